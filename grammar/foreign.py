"""Habits of other languages, and what this one writes instead; echoes of one mistake further down in a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .diagnostics import Diagnostic

_QUOTES: Final = 'strings stand in double quotes: "text"'
_SPACE: Final = "this blank is no space: replace it by one"
CHARACTERS: Final[Mapping[str, str]] = {
    **dict.fromkeys("'\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb`", _QUOTES),
    **dict.fromkeys("\u00a0\u2002\u2003\u2009\u200b\u202f\u3000", _SPACE),
    ";": "write one statement a line",
    "&": "write `and`",
    "|": "write `or`",
}
WORDS: Final[Mapping[str, str]] = {
    "startswith": "starts_with",
    "endswith": "ends_with",
    "includes": "contains",
    "equals": "is",
    "eq": "is",
    "else_if": "else",
    "elif": "else",
}
_HEADS: Final = ("language", "loader", "family", "lanes", "extend")


def without_echoes(found: Sequence[Diagnostic], text: str) -> list[Diagnostic]:
    """Leave out what follows from an earlier mistake: one mistake, one report."""
    lines = text.split("\n")
    out: list[Diagnostic] = []
    headless = any(d.label == "no-language" for d in found)
    for diagnostic in found:
        word = _word(lines, diagnostic)
        if headless and (diagnostic.label == "no-header" or (_misplaced(diagnostic) and word in _HEADS)):
            continue
        last = out[-1] if out else None
        if (
            word == "{"
            and last is not None
            and last.label == "ends-early"
            and last.span.line == diagnostic.span.line - 1
        ):
            out[-1] = replace(last, help="write the `{` at the end of this line")
            continue
        out.append(diagnostic)
    doubled = {n for n, line in enumerate(lines, 1) if set(line.strip()) == {"}"} and len(line.strip()) > 1}
    if any(d.span.line in doubled for d in out):
        out = [d for d in out if d.label != "unclosed-block"]
    return _without_spilled(out, lines)


def _without_spilled(found: Sequence[Diagnostic], lines: Sequence[str]) -> list[Diagnostic]:
    """Leave out what stands, indented, outside of all blocks because a mistake before it closed its block early."""
    out: list[Diagnostic] = []
    spilled = False
    for diagnostic in found:
        at = diagnostic.span
        same = bool(out) and not any(line[:1].isalpha() for line in lines[out[-1].span.line : at.line - 1])
        outside = diagnostic.label == "misplaced-statement" and "at the top of a file" in diagnostic.message
        torn = diagnostic.label == "unexpected" and _word(lines, diagnostic)[:1] in ('"', "}", "]")
        if same and at.column > 1 and (outside or torn):
            spilled = True
            continue
        if same and spilled and diagnostic.label == "stray-close":
            continue
        spilled = False
        out.append(diagnostic)
    return out


def _misplaced(diagnostic: Diagnostic) -> bool:
    return diagnostic.label in ("misplaced-statement", "unknown-statement")


def _word(lines: Sequence[str], diagnostic: Diagnostic) -> str:
    at = diagnostic.span
    return lines[at.line - 1][at.column - 1 : at.end_column - 1] if at.line <= len(lines) else ""
