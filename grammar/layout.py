"""Where lines break: long statements go on over indented lines, JSON keeps its author's breaks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .scan import CONTINUES, NAMING, Piece, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH: Final = 120
INDENT: Final = "  "
_HANG: Final = "    "
_GUARDS: Final = ("when", "for", "since", "until")


# --- statements -----------------------------------------------------------------


def wrap(line: str, indent: str) -> list[str]:
    """Break a canonical line that is wider than :data:`WIDTH` where the language lets a statement go on."""
    return _Wrapped(indent).write(line)


class _Wrapped:
    """Fills lines; a piece that fits no line is broken where the next finer level allows it."""

    def __init__(self, indent: str) -> None:
        self.lines = [indent]
        self.indent = indent

    def write(self, line: str) -> list[str]:
        self._place(line, 0)
        return self.lines

    def _place(self, part: str, level: int) -> None:
        current = self.lines[-1]
        empty = not current.strip()
        if len(current) + (not empty) + len(part) <= WIDTH:
            self.lines[-1] += part if empty else " " + part
            return
        hang = self.indent + _HANG
        if level and not empty and (len(hang) + len(part) <= WIDTH or level > _FINEST):
            self.lines.append(hang + part)
            return
        if level > _FINEST:
            self.lines[-1] += part
            return
        if level == 1 and not empty and part.startswith(_GUARDS):
            self.lines.append(hang)
        for piece in _segments(part, level):
            self._place(piece, level + 1)


# Levels: before guards, options and members of lists; before words inside conditions; inside brackets.
_FINEST: Final = 2


def _segments(line: str, level: int) -> list[str]:
    found = list(pieces(line))
    starts = [0]
    depth = shape = 0
    for position, piece in enumerate(found):
        # A shape stays together.
        if position and not shape and (not depth or level == _FINEST) and _breaks(found, position, depth, level):
            starts.append(piece.column - 1)
        depth += (piece.text in "([") - (piece.text in ")]")
        shape += (piece.text == "[") - (piece.text == "]")
    return [line[a:b].strip() for a, b in zip(starts, [*starts[1:], len(line)], strict=True)]


def _breaks(found: list[Piece], position: int, depth: int, level: int) -> bool:
    """Whether a line may begin with the token at ``position``."""
    piece, before = found[position], found[position - 1]
    if before.text == ",":
        return True
    if piece.kind != "word":
        return False
    if piece.text in CONTINUES:
        return level > 0 or piece.text in _GUARDS
    option = not depth and position + 1 < len(found) and found[position + 1].text == "="
    return option and not (position == 1 and found[0].text in NAMING)


# --- JSON -------------------------------------------------------------------------


@dataclass(slots=True)
class Json:
    """A JSON value as it stands in a file: its tokens, its author's line breaks, its comments.

    Attributes
    ----------
    text
        A scalar's token; for containers the two brackets.
    broken
        Whether the author broke the line after the opening bracket.
    tail
        Comments between the last member and the closing bracket.
    """

    text: str
    members: list[Member] = field(default_factory=list)
    broken: bool = False
    tail: list[str] = field(default_factory=list)

    def inline(self) -> str | None:
        """Write it on one line; None when a break or a comment forbids that."""
        if self.text not in ("{}", "[]"):
            return self.text
        if self.broken or self.tail:
            return None
        parts = []
        for member in self.members:
            value = member.value.inline()
            if value is None or member.lead or member.comment:
                return None
            parts.append(member.key + value)
        return self.text[0] + ", ".join(parts) + self.text[1]


@dataclass(slots=True)
class Member:
    """A member of a JSON container: ``key`` is empty or ``"name": ``; ``fresh``: its author began a line with it."""

    key: str
    value: Json
    fresh: bool = False
    lead: list[str] = field(default_factory=list)
    comment: str = ""


class JsonReader:
    """Reads JSON tokens (comments and line breaks among them) that the parser has already accepted."""

    def __init__(self, found: Sequence[Piece]) -> None:
        self.found = found
        self.at = 0

    def value(self) -> Json:
        """Read one value."""
        piece = self._next()
        if piece.text not in "{[" or piece.kind != "open":
            return Json(piece.text + (self._next().text if piece.text == "-" else ""))
        out = Json("{}" if piece.text == "{" else "[]")
        lead, fresh = self._skip()
        out.broken = fresh
        while self._peek() not in ("}", "]"):
            member = Member(self._key(piece.text), self.value(), fresh, lead)
            out.members.append(member)
            lead, fresh = self._after(member)
        out.tail = lead
        self._next()
        return out

    def _key(self, bracket: str) -> str:
        if bracket == "[":
            return ""
        name = self._next().text
        self._next()
        return name + ": "

    def _after(self, member: Member) -> tuple[list[str], bool]:
        """Pass the comma; a comment on the member's line is the member's own."""
        line = self.found[self.at - 1].line
        lead, fresh = self._skip()
        if self._peek() == ",":
            comma = self._next()
            more, fresh = self._skip()
            lead, line = lead + more, max(line, comma.line)
        own = [p for p in self.found[: self.at] if p.kind == "comment" and p.line == line]
        if own and lead and lead[0] == own[-1].text.rstrip():
            member.comment = lead.pop(0)
        return lead, fresh

    def _skip(self) -> tuple[list[str], bool]:
        comments, fresh = [], False
        while self.found[self.at].kind in ("comment", "newline"):
            piece = self.found[self.at]
            fresh = fresh or piece.kind == "newline"
            if piece.kind == "comment":
                comments.append(piece.text.rstrip())
            self.at += 1
        return comments, fresh

    def _peek(self) -> str:
        return self.found[self.at].text

    def _next(self) -> Piece:
        piece = self.found[self.at]
        self.at += 1
        return piece


def from_value(value: Any) -> Json:
    """Lay out decoded JSON that has no author."""
    if isinstance(value, dict):
        return Json("{}", [Member(json.dumps(k, ensure_ascii=False) + ": ", from_value(v)) for k, v in value.items()])
    if isinstance(value, list):
        return Json("[]", [Member("", from_value(v)) for v in value])
    if isinstance(value, float):
        from .text import literal

        return Json(literal(value))
    return Json(json.dumps(value, ensure_ascii=False))


def json_lines(head: str, value: Json, indent: str, room: int = 0) -> list[str]:
    """Write ``head`` and a value after it; ``room`` is what must still fit behind its last line."""
    flat = value.inline()
    if flat is not None and (len(head) + len(flat) + room <= WIDTH or value.text not in ("{}", "[]")):
        return [head + flat]
    if not value.members and not value.tail:
        return [head + value.text]
    out = [head + value.text[0]]
    out += _members(value, indent + INDENT)
    out += [indent + INDENT + c for c in value.tail]
    return [*out, indent + value.text[1]]


def _members(value: Json, indent: str) -> Iterator[str]:
    """Fill lines with members: its author's breaks stay, lines that are too wide break once more."""
    current = ""
    for number, member in enumerate(value.members):
        comma = "," if number + 1 < len(value.members) else ""
        flat = member.value.inline()
        size = len(member.key) + (len(flat) if flat is not None else 1) + len(comma)
        full = bool(current) and len(current) + 1 + size > WIDTH
        if current and (member.fresh or member.lead or full):
            yield current
            current = ""
        for comment in member.lead:
            yield indent + comment
        head = (current + " " if current else indent) + member.key
        lines = json_lines(head, member.value, indent, len(comma))
        yield from lines[:-1]
        current = lines[-1] + comma
        if member.comment:
            yield current + "  " + member.comment
            current = ""
    if current:
        yield current
