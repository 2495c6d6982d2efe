"""What the grammar accepts, in words: keywords, kinds of token, and what may stand in which kind of file."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from . import tree as t
from .belongs import BELONGS

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORDS: Final = {
    "_NL": "the end of the line",
    "PATH": "a name",
    "STRING": 'a "string"',
    "INT": "a number",
    "FLOAT": "a number",
    "SIGNED": "a number",
}
# How the grammar writes a set of words: in parentheses, and no longer word may begin with one of them.
_ALTERNATIVES: Final = re.compile(r"\(([a-z0-9_|]+)\)\(\?!")


@lru_cache(maxsize=1)
def _terminals() -> dict[str, Any]:
    from .parsing import parser

    return {t.name: t for t in parser().terminals}


def spelled(name: str) -> list[str]:
    """Return the words that a terminal stands for, none when it is no set of words."""
    pattern = _terminals().get(name)
    value = pattern.pattern.value if pattern is not None else ""
    listed = _ALTERNATIVES.match(value)
    if listed is not None:
        return listed[1].split("|")
    return [value] if value.replace("_", "").isalpha() else []


@lru_cache(maxsize=1)
def keywords() -> tuple[str, ...]:
    """Every word that the grammar gives a meaning, sorted."""
    return tuple(sorted({w for name in _terminals() for w in spelled(name)}))


@lru_cache(maxsize=64)
def starts(rule: str) -> frozenset[str]:
    """Return the words that an alternative of a grammar rule starts with."""
    from .parsing import parser

    out: set[str] = set()
    todo, seen = [rule], {rule}
    while todo:
        name = todo.pop()
        for production in parser().rules:
            if production.origin.name != name or not production.expansion:
                continue
            first = production.expansion[0]
            if first.is_term:
                out.update(spelled(first.name))
            elif first.name not in seen:
                seen.add(first.name)
                todo.append(first.name)
    return frozenset(out)


def choices(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split acceptable terminals into keywords (as written) and kinds of token (in words)."""
    words: set[str] = set()
    kinds: set[str] = set()
    for name in names:
        found = spelled(name)
        pattern = _terminals().get(name)
        words.update(found)
        if name in _WORDS:
            kinds.add(_WORDS[name])
        elif not found and pattern is not None and pattern.pattern.type == "str":
            kinds.add(f"`{pattern.pattern.value}`")
        elif not found and name in ("COMPARE", "ADD", "MUL", "MINUS"):
            kinds.add("an operator")
    return sorted(words), sorted(kinds)


def _words_of(statement: type[t.Node]) -> list[str]:
    """The words that a statement begins with; the tags of the others are theirs."""
    return spelled("KIND") if statement is t.Module else [str(statement.__struct_config__.tag)]


def of_kind(words: list[str], kind: str) -> list[str]:
    """Leave out the statements that only another kind of file has at its top."""
    if kind not in BELONGS:
        return words
    foreign = {s for k, statements in BELONGS.items() for s in statements if k != kind and s not in BELONGS[kind]}
    others = {w for s in foreign for w in _words_of(s)}
    return [w for w in words if w not in others]


def expected(accepted: Iterable[str], kind: str = "") -> str:
    """Name what may stand at a place; ``kind`` is the kind of file, for the statements at its top."""
    words, kinds = choices(accepted)
    words = of_kind(words, kind)
    items = [*kinds, *(f"`{w}`" for w in words)]
    return "expected " + join(items[:8] + (["..."] if len(items) > 8 else [])) if items else ""


def join(items: list[str]) -> str:
    """Write a list with commas and an `or`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " or " + items[-1]
