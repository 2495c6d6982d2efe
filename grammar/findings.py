"""Collecting findings about one file: where each stands in the text, and which its author has chosen to ignore."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from .codes import CODES
from .diagnostics import Diagnostic, nearest
from .scan import Logical, Piece, statements
from .text import quote
from .tree import Node, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

_IGNORE: Final = re.compile(r"#\s*ignore\b\s*:?\s*(?P<codes>((?i:bl)\d\w*[\s,]*)*)(?P<rest>.*)")


class Findings:
    """The findings of one file.

    Parameters
    ----------
    source
        The file's text.
    file
        Its name in diagnostics.
    """

    def __init__(self, source: str, file: str) -> None:
        self.source = source
        self.file = file
        self.found: list[Diagnostic] = []

    @cached_property
    def _split(self) -> tuple[list[Logical], list[Piece]]:
        return statements(self.source)

    @cached_property
    def _by_line(self) -> dict[int, Logical]:
        return {line: s for s in self._split[0] for line in range(s.first, s.last + 1)}

    def add(
        self,
        code: str,
        message: str,
        node: Node,
        word: str = "",
        help: str = "",
        related: tuple[Node, str] | None = None,
        severity: str = "",
    ) -> None:
        """Report something about a node; ``word`` is the name or string in it that the caret points at."""
        other = ((self.span(related[0]), related[1]),) if related is not None else ()
        severity = severity or CODES[code].severity
        self.found.append(Diagnostic(code, message, self.file, self.span(node, word), help, severity, related=other))

    def span(self, node: Node, word: str = "") -> Span:
        """Return the place of a word of a node's statement, or of the statement's first line."""
        here = self._by_line.get(node.at.line)
        if here is None:
            return Span(max(1, node.at.line), max(1, node.at.column), max(1, node.at.line), max(2, node.at.column + 1))
        if word:
            names = (word, quote(word))
            hits = [p for p in here.pieces if p.text in names or p.text.startswith(word + ".")]
            after = [p for p in hits if (p.line, p.column) >= (node.at.line, node.at.column)]
            if hits:
                piece = (after or hits)[0]
                width = len(word) if piece.text.startswith(word + ".") else len(piece.text)
                return Span(piece.line, piece.column, piece.line, piece.column + width)
        first = next((p for p in here.pieces if (p.line, p.column) >= (node.at.line, node.at.column)), here.pieces[0])
        inside = node.at.end_line == first.line and node.at.end_column > first.column
        ends = [p.end_column for p in here.pieces if p.line == first.line and p.text != "{"]
        last = node.at.end_column if inside else max([*ends, first.end_column])
        return Span(first.line, first.column, first.line, last)

    def settled(self) -> list[Diagnostic]:
        """Return the findings in order, without the ignored ones, with a finding for every needless ignore comment."""
        ignores = self._ignores()
        used: set[tuple[int, str]] = set()
        out = []
        for finding in self.found:
            here = self._by_line.get(finding.span.line)
            key = (here.first if here is not None else finding.span.line, finding.code)
            if key in ignores:
                used.add(key)
            else:
                out.append(finding)
        for (line, code), comment in ignores.items():
            if (line, code) not in used:
                what = f"nothing to ignore: `{code}` is not reported here" if code else "`ignore` names no code"
                what = f"unknown code `{code}`" if code and code not in CODES else what
                at = Span(comment.line, comment.column, comment.line, comment.end_column)
                severity = CODES["BL131"].severity
                hint = nearest(code, CODES) if code and code not in CODES else ""
                hint = hint or ("remove it" if code else "write `# ignore BL###: why`")
                out.append(Diagnostic("BL131", what, self.file, at, hint, severity))
        return ordered(out)

    def _ignores(self) -> dict[tuple[int, str], Piece]:
        """Ignored codes by the first line of the statement that their comment is behind, or above."""
        out: dict[tuple[int, str], Piece] = {}
        logicals, loose = self._split
        behind = [(s.first, c) for s in logicals for c in s.comments]
        above = [(next((s.first for s in logicals if s.first > c.line), 0), c) for c in loose]
        for line, comment in (*behind, *above):
            found = _IGNORE.fullmatch(comment.text.rstrip())
            if found is None or (not found["codes"] and found["rest"].strip()):
                continue
            for code in re.findall(r"\w+", found["codes"]) or [""]:
                out[(line, code)] = comment
        return out


def ordered(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sort by place and drop repeats."""
    unique = {(d.file, d.span.line, d.span.column, d.code, d.message): d for d in found}
    return [unique[k] for k in sorted(unique)]
