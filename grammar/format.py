"""The formatter: one layout for every rule file, its comments kept, its meaning untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import tree as t
from .compare import same
from .layout import INDENT, JsonReader, from_value, json_lines, wrap
from .lines import statement
from .parsing import parse
from .scan import Logical, Piece, pieces, statements

if TYPE_CHECKING:
    from collections.abc import Iterator


class FormatError(Exception):
    """The formatter would have changed a file's meaning or lost a comment; nothing is written."""


def children(node: t.Node) -> tuple[t.Node, ...]:
    """Return the statements inside a block, in order; none for other statements."""
    inner: Any = ()
    for name in ("items", "rows", "steps", "rules"):
        inner = getattr(node, name, inner)
    return tuple(inner)


def is_block(node: t.Node) -> bool:
    """Whether a statement has braces."""
    return isinstance(node, (t.Chain, t.Format, t.Algorithms, t.Schemes, t.Stack, t.Part, t.Names, t.Test))


def walk(node: t.File) -> Iterator[t.Node]:
    """Yield every statement of a file, blocks before what is in them."""
    todo: list[t.Node] = list(reversed(node.items))
    while todo:
        current = todo.pop()
        yield current
        todo += reversed(children(current))


# --- from a tree alone --------------------------------------------------------------


def format_tree(node: t.File) -> str:
    """Write a file from its tree; blocks stand apart."""
    out = [f"language {node.language}", *wrap(statement(node.head), "")]
    for item in node.items:
        if is_block(item) and out[-1] != "":
            out.append("")
        out += _write(item, "")
        if is_block(item):
            out.append("")
    return "\n".join(out).rstrip("\n") + "\n"


def _write(node: t.Node, indent: str) -> list[str]:
    if isinstance(node, t.Given):
        return json_lines(f"{indent}{statement(node)} ", from_value(node.value()), indent)
    if not is_block(node):
        return wrap(statement(node), indent)
    out = wrap(statement(node) + " {", indent)
    for child in children(node):
        out += _write(child, indent + INDENT)
    return [*out, indent + "}"]


# --- from a text ----------------------------------------------------------------------


class _Writer:
    """Writes the statements of a text in order, with the comments and the empty lines between them."""

    def __init__(self, source: str, tree: t.File) -> None:
        self.out: list[str] = []
        self.nodes: dict[int, t.Node] = {n.at.line: n for n in walk(tree)}
        self.logicals, self.loose = statements(source)
        self.heads = [f"language {tree.language}", statement(tree.head)]
        self.all = list(pieces(source))
        self.previous = 0

    def run(self) -> str:
        depth = 0
        waiting = list(self.loose)
        for number, logical in enumerate(self.logicals):
            while waiting and waiting[0].line < logical.first:
                self._comment(waiting.pop(0), depth)
            depth -= logical.closes
            self._gap(logical.first, closing=logical.closes)
            self._statement(logical, number, INDENT * depth)
            self.previous = logical.last
            depth += logical.opens
        for comment in waiting:
            self._comment(comment, 0)
        return "\n".join(self.out) + "\n"

    def _gap(self, line: int, closing: bool = False) -> None:
        opened = bool(self.out) and self.out[-1].partition("  #")[0].endswith("{")
        if self.previous and line > self.previous + 1 and not closing and not opened:
            self.out.append("")

    def _comment(self, comment: Piece, depth: int) -> None:
        self._gap(comment.line)
        self.out.append(INDENT * depth + comment.text.rstrip())
        self.previous = comment.line

    def _statement(self, logical: Logical, number: int, indent: str) -> None:
        behind = [c for c in logical.comments if c.line == logical.last and c.column > logical.pieces[-1].column]
        node = self.nodes.get(logical.first)
        if isinstance(node, t.Given):
            lines, inside = self._given(logical, node, indent), []
        else:
            inside = [c for c in logical.comments if c not in behind]
            lines = self._lines(logical, number, node, indent)
        # A comment stays behind a statement of one line and behind a brace; others go above.
        stays = len(lines) == 1 or isinstance(node, t.Given)
        above = inside + ([] if stays else behind)
        self.out += [indent + c.text.rstrip() for c in above]
        self.out += lines
        if behind and stays:
            self.out[-1] += "  " + behind[0].text.rstrip()

    def _lines(self, logical: Logical, number: int, node: t.Node | None, indent: str) -> list[str]:
        if logical.closes:
            return [indent + "}"]
        if number < len(self.heads):
            return wrap(self.heads[number], indent)
        if node is None:
            raise FormatError(f"line {logical.first} holds a statement that the tree lacks")
        return wrap(statement(node) + (" {" if logical.opens else ""), indent)

    def _given(self, logical: Logical, node: t.Given, indent: str) -> list[str]:
        start = (logical.pieces[2].line, logical.pieces[2].column)
        end = (logical.pieces[-1].line, logical.pieces[-1].column)
        mine = [p for p in self.all if start <= (p.line, p.column) <= end]
        return json_lines(f"{indent}{statement(node)} ", JsonReader(mine).value(), indent)


def comments(source: str) -> list[str]:
    """Every comment of a text, sorted."""
    return sorted(p.text.rstrip() for p in pieces(source) if p.kind == "comment")


def format_text(source: str, name: str = "<rules>") -> str:
    """Format a rule file.

    Returns
    -------
    str
        The formatted text; formatting it again changes nothing.

    Raises
    ------
    RuleSyntaxError
        The file does not parse.
    FormatError
        The result would mean something else, or lack a comment: a fault of the formatter, never written to a file.
    """
    source = source.removeprefix("\ufeff")
    tree = parse(source, name)
    text = _Writer(source, tree).run()
    if not same(parse(text, name), tree):
        raise FormatError(f"formatting would change the meaning of {name}")
    if comments(text) != comments(source):
        raise FormatError(f"formatting would lose a comment of {name}")
    return text
