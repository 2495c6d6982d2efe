"""Text to syntax tree, with every mistake reported once and none cascading."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import tree
from .diagnostics import Diagnostic, RuleSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAMMAR: Final = Path(__file__).with_name("bitlane.lark")
MAX_DEPTH: Final = 64
MAX_OPERATORS: Final = 256
MAX_ERRORS: Final = 20
MAX_TEXT: Final = 1 << 20
_OPEN: Final = frozenset({"LPAR", "LSQB"})
_CLOSE: Final = frozenset({"RPAR", "RSQB"})
_CHAINING: Final = frozenset({"NOT", "MINUS", "ADD", "MUL", "AND", "OR", "IF", "COMPARE", "IS"})
# `[` after one of these takes a member of a value; elsewhere it opens a list, which nests by itself.
_INDEXABLE: Final = frozenset({"PATH", "RPAR", "RSQB", "STRING"})


class TokenError(Exception):
    """A token that the language has no place for, whatever stands around it."""

    def __init__(self, code: str, what: str, token: Any, help: str) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.token = token
        self.help = help


class JoinedError(Exception):
    """Two words without a blank between them (``whenx``); ``token`` is the first."""

    def __init__(self, token: Any) -> None:
        super().__init__(str(token))
        self.token = token


def _wordish(char: str) -> bool:
    return char.isalnum() or char in "_."


class _Lines:
    """Token filter: where line breaks count, how deep brackets go, and that words stand apart."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Any]) -> Iterator[Any]:
        quiet = depth = operators = 0
        last, before = "_NL", None
        for token in stream:
            kind = token.type
            if kind == "_NL":
                # Inside brackets and after a comma a line break is a blank; elsewhere several count as one.
                if quiet or last in ("_NL", "COMMA"):
                    continue
                operators = 0
            elif kind in _OPEN or kind == "LBRACE":
                quiet += kind in _OPEN
                operators += kind == "LSQB" and last in _INDEXABLE
                depth += 1
            elif kind in _CLOSE or kind == "RBRACE":
                quiet = max(0, quiet - (kind in _CLOSE))
                depth = max(0, depth - 1)
            elif kind in _CHAINING:
                operators += 1
            _check(token, before, depth, operators)
            last, before = kind, token
            yield token
        if last != "_NL" and before is not None:
            yield type(before).new_borrow_pos("_NL", "\n", before)


def _check(token: Any, before: Any, depth: int, operators: int) -> None:
    if depth > MAX_DEPTH:
        raise TokenError("BL102", f"nesting deeper than {MAX_DEPTH}", token, "name a part of it with `let`")
    if operators > MAX_OPERATORS:
        what = f"more than {MAX_OPERATORS} operators in one statement"
        raise TokenError("BL102", what, token, "name a part of it with `let`")
    if before is not None and before.end_pos == token.start_pos and _wordish(before[-1:]) and _wordish(token[:1]):
        raise JoinedError(before)


def grammar_digest() -> str:
    """Digest of the grammar and of the tree it builds: names compiled caches."""
    here = Path(__file__).parent
    parts = [GRAMMAR, here / "tree.py", here / "build.py"]
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in parts)).hexdigest()[:16]


@lru_cache(maxsize=1)
def parser() -> Any:
    """Return the LALR parser; built once per process (about 0.4 s of CPU)."""
    from lark import Lark

    return Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=True,
        postlex=_Lines(),
    )


def _once(text: str, name: str) -> tree.File | Diagnostic:
    from lark.exceptions import UnexpectedInput

    from .build import BuildError, build
    from .messages import explain, joined

    try:
        return build(parser().parse(text))
    except TokenError as error:
        return Diagnostic.at_token(error.code, error.what, error.token, name, help=error.help)
    except JoinedError as error:
        return joined(error.token, text, name)
    except UnexpectedInput as error:
        return explain(error, text, name)
    except BuildError as error:
        return Diagnostic("BL103", error.message, name, error.span, help=error.help)


def parse(text: str, name: str = "<rules>") -> tree.File:
    """Parse a rule file.

    Parameters
    ----------
    text
        The file's content.
    name
        What to call the file in diagnostics.

    Raises
    ------
    RuleSyntaxError
        With one diagnostic per mistake: after each, the statement that holds it is neutralised and parsing starts over.
    """
    from .foreign import without_echoes
    from .recovery import Recovery

    if len(text) > MAX_TEXT:
        where = tree.Span(1, 1, 1, 2)
        raise RuleSyntaxError([Diagnostic("BL102", "a rule file of more than 1 MiB", name, where, "split it")])
    # A byte order mark is no text.
    recovery = Recovery(text.removeprefix("\ufeff"))
    found: dict[int, Diagnostic] = {}
    for _ in range(2 * MAX_ERRORS):
        result = _once(recovery.text, name)
        if isinstance(result, tree.File):
            if not found:
                return result
            break
        # A statement that is still wrong after its first repair is one mistake, not two.
        line = max(1, result.span.line - recovery.shift)
        found.setdefault(line, _moved(result, recovery.shift))
        if len(found) == MAX_ERRORS or not recovery.repair(result):
            break
    raise RuleSyntaxError(without_echoes(sorted(found.values(), key=lambda d: (d.span.line, d.span.column)), text))


def _moved(found: Diagnostic, shift: int) -> Diagnostic:
    if not shift:
        return found
    at = found.span
    moved = tree.Span(max(1, at.line - shift), at.column, max(1, at.end_line - shift), at.end_column)
    return replace(found, span=moved)
