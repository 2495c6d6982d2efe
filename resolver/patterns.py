"""Patterns that arrive inside checkpoints, matched without ever handing them to a backtracking engine unbounded."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_S: Final = 0.05
MAX_PATTERN: Final = 4096
_PLAIN: Final = re.compile(r"(?:[\w/ -]|\\\.)*")
_LOOKAHEAD: Final = "(?!"


class BadPatternError(Exception):
    """No engine compiles the pattern."""


def _unescape(text: str) -> str:
    return text.replace("\\.", ".")


def _simple(pattern: str, full: bool) -> Callable[[str], bool] | None:
    """Literal, prefix, suffix and contains shapes need no engine."""
    body, tail = pattern.removeprefix("^"), False
    if body.endswith("$") and not body.endswith("\\$"):
        body, tail = body[:-1], True
    anchored_end = full or tail
    lead = body.startswith(".*")
    middle = body[2:] if lead else body
    trail = middle.endswith(".*") and not middle.endswith("\\.*")
    middle = middle[:-2] if trail else middle
    if not _PLAIN.fullmatch(middle) or "\n" in middle:
        return None
    text = _unescape(middle)
    ends = anchored_end and not trail
    if lead and ends:
        return lambda s: s.endswith(text)
    if lead:
        return lambda s: text in s
    if ends:
        return lambda s: s == text
    return lambda s: s.startswith(text)


def _re2(pattern: str, full: bool) -> Callable[[str], bool] | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 32 << 20
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        return None
    found = compiled.fullmatch if full else compiled.match
    return lambda s: found(s) is not None


def _closing(pattern: str, start: int) -> int:
    """Index of the parenthesis that closes the group opened at ``start``, -1 when unbalanced."""
    depth, index, in_set = 0, start, False
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return -1


def _leading_lookahead(pattern: str, full: bool) -> Callable[[str], bool] | None:
    """Rewrite ``^(?!X)Y`` as "Y and not X"."""
    body = pattern.removeprefix("^")
    if not body.startswith(_LOOKAHEAD):
        return None
    end = _closing(body, 0)
    if end < 0:
        return None
    forbidden, rest = body[3:end], body[end + 1 :]
    if _LOOKAHEAD in forbidden or _LOOKAHEAD in rest or "|" in _outside_groups(rest):
        return None
    refuse, accept = _re2(forbidden, False), _re2(rest, full)
    if refuse is None or accept is None:
        return None
    return lambda s: accept(s) and not refuse(s)


def _outside_groups(pattern: str) -> str:
    out, depth = [], 0
    for char in pattern:
        depth += (char == "(") - (char == ")")
        if depth == 0:
            out.append(char)
    return "".join(out)


def _bounded(pattern: str, full: bool) -> Callable[[str], bool]:
    import regex

    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise BadPatternError(str(error)) from error

    def found(text: str) -> bool:
        try:
            hit = compiled.fullmatch(text, timeout=BUDGET_S) if full else compiled.match(text, timeout=BUDGET_S)
        except TimeoutError:
            raise CheckpointError(
                "BL250",
                f"pattern `{pattern[:80]}` takes more than {int(BUDGET_S * 1000)} ms on one name",
                place=text[:200],
                help="write it without nested repeats",
            ) from None
        return hit is not None

    return found


@lru_cache(maxsize=4096)
def matcher(pattern: str, full: bool = False) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches from its start (``full``: to its end too).

    Raises
    ------
    BadPatternError
        The pattern does not compile.
    CheckpointError
        BL250 (from the returned function): too costly; BL252: longer than 4,096 characters.
    """
    if len(pattern) > MAX_PATTERN:
        raise CheckpointError("BL252", f"a pattern of {len(pattern)} characters", place=pattern[:80], help="split it")
    return _simple(pattern, full) or _leading_lookahead(pattern, full) or _re2(pattern, full) or _bounded(pattern, full)


def glob_to_regex(pattern: str) -> str:
    """Translate an fnmatch pattern (``* ? [seq] [!seq]``) to RE2 syntax, to be matched in full."""
    out: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == "*":
            if not out or out[-1] != ".*":
                out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[":
            end = index + (pattern[index : index + 1] == "!")
            end += pattern[end : end + 1] == "]"
            while end < len(pattern) and pattern[end] != "]":
                end += 1
            if end >= len(pattern):
                out.append(r"\[")
                continue
            out.append(_char_set(pattern[index:end]))
            index = end + 1
        else:
            out.append(re.escape(char))
    return "(?s:" + "".join(out) + ")"


def _char_set(body: str) -> str:
    """Translate what stands inside ``[...]``; ranges that run backwards match nothing, as in fnmatch."""
    negated = body.startswith("!")
    body = body[1:] if negated else body
    pieces: list[str] = []
    index = 0
    while index < len(body):
        if index + 2 < len(body) and body[index + 1] == "-":
            low, high = body[index], body[index + 2]
            if low <= high:
                pieces.append(f"{_set_escape(low)}-{_set_escape(high)}")
            index += 3
        else:
            pieces.append(_set_escape(body[index]))
            index += 1
    if not pieces:
        return "." if negated else r"[^\x00-\x{10FFFF}]"
    return f"[{'^' if negated else ''}{''.join(pieces)}]"


def _set_escape(char: str) -> str:
    return "\\" + char if char in r"\]^[-&~|" else char


@lru_cache(maxsize=8192)
def glob(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches an fnmatch pattern in full."""
    body = pattern.strip("*")
    if not any(c in body for c in "*?["):
        lead, trail = pattern.startswith("*"), pattern.endswith("*")
        if not body:
            return (lambda _: True) if pattern else (lambda s: s == "")
        if lead and trail:
            return lambda s: body in s
        if lead:
            return lambda s: s.endswith(body)
        if trail:
            return lambda s: s.startswith(body)
        return lambda s: s == pattern
    found = _re2(glob_to_regex(pattern), True)
    if found is None:
        raise CheckpointError(
            "BL252", f"pattern `{pattern[:80]}` cannot be compiled", place=pattern[:80], help="simplify it"
        )
    return found


def any_of(patterns: list[str], chunk: int = 500) -> Callable[[str], bool]:
    """Return a fast test whether a name contains a match of any RE2 pattern (each anchored as it wishes)."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 128 << 20
    parts = [
        re2.compile("|".join(f"(?:{p})" for p in patterns[i : i + chunk]), options).search
        for i in range(0, len(patterns), chunk)
    ]
    if len(parts) == 1:
        only = parts[0]
        return lambda s: only(s) is not None
    return lambda s: any(p(s) is not None for p in parts)


def joined(patterns: list[str]) -> Callable[[str], bool] | None:
    """Return :func:`any_of` patterns that may not be RE2's; None when they cannot be joined."""
    import re2

    try:
        return any_of(patterns)
    except re2.error:
        return None
