"""After a mistake: neutralise the statement that holds it, so that the next mistake can be found and none is echoed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .diagnostics import closest
from .scan import STARTERS, Logical, statements

if TYPE_CHECKING:
    from .diagnostics import Diagnostic

# Heads that parse, with nothing inside that could be wrong.
_NEUTRAL: Final = {
    "chain": "chain x {",
    "format": "format x {",
    "algorithms": "algorithms {",
    "schemes": "schemes {",
    "stack": 'stack x of 1 at "" {',
    "part": "part x {",
    "names": "names x {",
    "test": 'test "" {',
}
_HEADERS: Final = ("language 1", "lanes")


class Recovery:
    """A text that loses one faulty statement after the other.

    Attributes
    ----------
    shift
        How many lines were put in front of the author's.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.shift = 0
        self._tried: set[int] = set()

    def repair(self, found: Diagnostic) -> bool:
        """Neutralise the statement that a diagnostic is about; return False when nothing is left to parse."""
        logicals, _ = statements(self.text)
        if found.label == "unclosed-block":
            return self._close(logicals, found.span.line)
        position = _holding(logicals, found.span.line)
        if found.label in ("no-language", "no-header"):
            return self._head(logicals, position, 0 if found.label == "no-language" else 1)
        if position is None:
            return False
        logical = logicals[position]
        again = logical.first in self._tried
        self._tried.add(logical.first)
        if position < len(_HEADERS) and not logical.opens:
            return not again and self._write(logical.first, logical.last, _HEADERS[position])
        word = closest(logical.word, _NEUTRAL)
        forgotten = bool(word) and sum(s.closes - s.opens for s in logicals) > 0
        if not logical.opens and not forgotten:
            return self._write(logical.first, _json_end(logicals, position), "")
        # A head that is wrong, or lacks its brace, still opens its block.
        if word and not again and found.label != "misplaced-statement":
            return self._write(logical.first, logical.last, _NEUTRAL[word])
        return self._write(logical.first, _block_end(logicals, position), "")

    def _close(self, logicals: list[Logical], line: int) -> bool:
        """Close the block whose head is on ``line``, before the next statement as far left as it."""
        lines = self.text.split("\n")
        head = next(s for s in logicals if s.first <= line <= s.last)
        indent = head.pieces[0].column
        following = next(
            (s for s in logicals if s.first > head.last and s.pieces[0].column <= indent and not s.closes), None
        )
        if following is None:
            self.text += "\n}\n"
            return True
        if not lines[following.first - 2].partition("#")[0].strip():
            return self._write(following.first - 1, following.first - 1, "}")
        # No line is free: the block's last statement gives way.
        before = next(s for s in reversed(logicals) if s.last < following.first)
        if before is head or before.closes or before.opens:
            return False
        return self._write(before.first, before.last, "}")

    def _head(self, logicals: list[Logical], position: int | None, number: int) -> bool:
        """Put in a header line, or replace the misspelt one."""
        expected = ("language",) if number == 0 else ("loader", "family", "lanes", "extend")
        if position is not None and closest(logicals[position].word, expected):
            return self._write(logicals[position].first, logicals[position].last, _HEADERS[number])
        before = logicals[position].first - 1 if position is not None else self.text.count("\n") + 1
        lines = self.text.split("\n")
        lines.insert(before, _HEADERS[number])
        self.text = "\n".join(lines)
        self.shift += 1
        return True

    def _write(self, first: int, last: int, what: str) -> bool:
        lines = self.text.split("\n")
        changed = [what] + [""] * (last - first)
        if lines[first - 1 : last] == changed:
            return False
        lines[first - 1 : last] = changed
        self.text = "\n".join(lines)
        return True


def _holding(logicals: list[Logical], line: int) -> int | None:
    """Index of the statement on a line."""
    for position, logical in enumerate(logicals):
        if logical.first <= line <= logical.last:
            return position
    return None


def _json_end(logicals: list[Logical], position: int) -> int:
    """Last line of a statement; of `given`, whose braces may be out of step, the line before the next statement."""
    mine = logicals[position]
    last = mine.last
    for logical in logicals[position + 1 :] if mine.word == "given" else ():
        if logical.word in STARTERS or (logical.closes and logical.pieces[0].column < mine.pieces[0].column):
            break
        last = logical.last
    return last


def _block_end(logicals: list[Logical], position: int) -> int:
    depth = 0
    for logical in logicals[position:]:
        depth += logical.opens - logical.closes
        if depth <= 0:
            return logical.last
    return logicals[-1].last
