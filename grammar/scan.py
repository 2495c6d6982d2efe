"""Tokens without a parser: what layout, error recovery and editors need, even where a file does not parse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# A line that starts with one of these goes on with the statement before it; so does one that starts with `NAME =`.
CONTINUES: Final = ("when", "for", "since", "until", "and", "or", "if", "else")

# After these, `NAME =` is the statement's own subject; a line that starts with one of them is never an option.
NAMING: Final = ("let", "fuse", "builtin", "weights")
BLOCKS: Final = ("chain", "format", "algorithms", "schemes", "stack", "part", "names", "test")

# How many empty lines and comments may stand between the lines of one statement.
MAX_BETWEEN: Final = 20

# The first words of statements; `schemes` rows and rows of `algorithms` start with a name or a string instead.
STARTERS: Final = frozenset(
    [
        "language",
        "loader",
        "family",
        "lanes",
        "extend",
        "let",
        "read",
        "refuse",
        "report",
        "builtin",
        "alias",
        "chain",
        "format",
        "config",
        "require",
        "stack",
        "part",
        "linear",
        "experts",
        "embed",
        "lm_head",
        "op",
        "overlap",
        "names",
        "lane",
        "weights",
        "system",
        "test",
        "exclusions",
        "listing",
        "groups",
        "kv_cache",
        "algorithms",
        "schemes",
        "leave",
        "exclude",
        "take",
        "default",
        "use",
        "each",
        "prefix",
        "suffix",
        "substring",
        "regex",
        "path_prefix",
        "path_suffix",
        "path_substring",
        "path_regex",
        "class",
        "fuse",
        "never",
        "lacks",
        "asked",
        "given",
        "under",
        "expect",
    ]
)

_PIECE: Final = re.compile(
    r"""(?P<newline>\n)
    |(?P<space>[ \t\r]+)
    |(?P<comment>\#[^\n]*)
    |(?P<string>"(?:\\[^\n]|[^"\\\n])*")
    |(?P<torn>"[^\n]*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    |(?P<mark>->|<=|>=|==|!=|&&|\|\||//|.)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSES: Final = {")": "(", "]": "[", "}": "{"}


class Piece(NamedTuple):
    """One token: ``kind`` is newline, comment, string, torn (unclosed string), word, number, open, close or mark."""

    kind: str
    text: str
    line: int
    column: int

    @property
    def end_column(self) -> int:
        """Column after the last character."""
        return self.column + len(self.text)


def pieces(text: str) -> Iterator[Piece]:
    """Yield the tokens of a text with 1-based line and column; blanks are left out, nothing else is."""
    line, start = 1, 0
    for found in _PIECE.finditer(text):
        kind = found.lastgroup or "mark"
        if kind != "space":
            yield Piece(kind, found.group(), line, found.start() - start + 1)
        if kind == "newline":
            line, start = line + 1, found.end()


@dataclass(frozen=True, slots=True)
class Logical:
    """One statement as lines: a block's head (``opens``), its closing brace (``closes``), or a whole statement.

    Attributes
    ----------
    first, last
        1-based lines.
    pieces
        Its tokens without comments and line breaks.
    comments
        The comments between its first and last token, and the one after it on its last line.
    unclosed
        The bracket that nothing closes, if any.
    """

    first: int
    last: int
    pieces: tuple[Piece, ...]
    comments: tuple[Piece, ...]
    unclosed: Piece | None = None

    @property
    def word(self) -> str:
        """First word, empty when it starts with something else."""
        return self.pieces[0].text if self.pieces[0].kind == "word" else ""

    @property
    def closes(self) -> bool:
        """Whether it is the closing brace of a block."""
        return self.pieces[0].text == "}"

    @property
    def opens(self) -> bool:
        """Whether it is the head of a block."""
        return self.pieces[-1].text == "{" and (self.word in BLOCKS or self.word not in STARTERS)


class _Splitter:
    def __init__(self, text: str) -> None:
        self.all = list(pieces(text))
        self.out: list[Logical] = []
        self.loose: list[Piece] = []
        self.mine: list[Piece] = []
        self.comments: list[Piece] = []
        self.stack: list[Piece] = []
        self.closed: dict[Piece, bool] = {}

    def run(self) -> tuple[list[Logical], list[Piece]]:
        for position, piece in enumerate(self.all):
            if piece.kind == "newline":
                if self.mine and not self._goes_on(position):
                    self._end()
            elif piece.kind == "comment":
                (self.comments if self.mine else self.loose).append(piece)
            else:
                self.mine.append(piece)
                self._bracket(piece)
        if self.mine:
            self._end()
        return self.out, self.loose

    def _bracket(self, piece: Piece) -> None:
        # The brace that opens a block is no bracket of its statement, nor is a closing brace that stands alone.
        if piece.kind == "open":
            if piece.text != "{" or self.stack or self.mine[0].text == "given":
                self.stack.append(piece)
        elif piece.kind == "close" and self.stack and self.stack[-1].text == _CLOSES[piece.text]:
            self.stack.pop()

    def _goes_on(self, position: int) -> bool:
        following = self._following(position)
        if not following:
            return False
        first = following[0]
        if self.stack:
            # A line that starts like a statement, or closes a block, shows that a bracket above was forgotten. In
            # expressions a name may read like a statement: there the bracket must be missing for good.
            braces = any(p.text == "{" for p in self.stack)
            starts = first.text in STARTERS if first.kind == "word" else first.text == "}" and not braces
            return not starts or (not braces and self._closes(position))
        if self.mine[-1].text == ",":
            return True
        if self.mine[-1].text == "{" or first.kind != "word" or not self._near(position, first):
            return False
        option = len(following) > 1 and following[1].text == "=" and first.text not in NAMING
        return option or first.text in CONTINUES

    def _closes(self, position: int) -> bool:
        """Whether the innermost open bracket is closed after a token; worked out once for each bracket."""
        if self.stack[-1] not in self.closed:
            self.closed[self.stack[-1]] = self._closes_after(position)
        return self.closed[self.stack[-1]]

    def _closes_after(self, position: int) -> bool:
        depth = [self.stack[-1].text]
        for piece in self.all[position + 1 :]:
            if piece.kind == "open":
                depth.append(piece.text)
            elif piece.kind == "close":
                if depth.pop() != _CLOSES[piece.text]:
                    return False
                if not depth:
                    return True
        return False

    def _near(self, position: int, first: Piece) -> bool:
        """Whether only lines that are empty or comments, and not many, stand between a line break and a token."""
        return first.line - self.all[position].line - 1 <= MAX_BETWEEN

    def _following(self, position: int) -> list[Piece]:
        """Return the next two tokens that are no comment and no line break (of one line)."""
        found: list[Piece] = []
        for piece in self.all[position + 1 :]:
            if piece.kind in ("newline", "comment"):
                if found:
                    break
                continue
            found.append(piece)
            if len(found) == 2:
                break
        return found

    def _end(self) -> None:
        last = self.mine[-1].line
        inside = [c for c in self.comments if c.line <= last]
        self.loose += [c for c in self.comments if c.line > last]
        unclosed = self.stack[-1] if self.stack else None
        self.out.append(Logical(self.mine[0].line, last, tuple(self.mine), tuple(inside), unclosed))
        self.mine, self.comments, self.stack = [], [], []


def statements(text: str) -> tuple[list[Logical], list[Piece]]:
    """Split a text into statements, and list the comments that stand between them."""
    return _Splitter(text).run()


def locate(text: str, line: int, last: int, word: str, nth: int = 0) -> Piece | None:
    """Return the ``nth`` token equal to ``word`` (a name, or a quoted string) between two lines."""
    count = -1
    for piece in pieces(text):
        if piece.line > last:
            break
        if piece.line >= line and piece.kind != "comment" and piece.text == word:
            count += 1
            if count == nth:
                return piece
    return None
