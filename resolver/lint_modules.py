"""The modules of a family one by one: their sizes, and those that two files build alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..grammar import tree as t
from ..grammar.compare import same
from ..grammar.format import children
from ..grammar.logic import implies
from ..grammar.ranges import overlap
from .templates import lacks_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..grammar.findings import Findings
    from ..rules.library import Placed


class _Built(NamedTuple):
    """A module with its whole path, the blocks around it, all conditions that it stands under, and its file."""

    node: t.Module
    path: str
    above: tuple[t.Node, ...]
    conditions: tuple[t.Expr, ...]
    file: str


def lint_modules(merged: Sequence[Placed], own: set[int], extends: bool, findings: Findings) -> None:
    """Report modules of the file (their identities are ``own``) without sizes, and those that are there already.

    ``extends``: of two files, the one that extends the other is told.
    """
    seen: dict[str, list[_Built]] = {}
    for placed in merged:
        for found in _built((placed.item,), (), "", placed.file):
            mine = id(found.node) in own
            if mine and lacks_shape(found.node):
                message = f"module `{found.node.path}` has no sizes"
                hint = "give them behind its path: `[OUT, IN]`"
                findings.add("BL136", message, found.node, found.node.path, hint)
            for other in seen.get(found.path, ()):
                told = (mine or id(other.node) in own) and (extends or found.file == other.file)
                if told and _both(found, other):
                    _twice(*((found, other) if mine else (other, found)), findings)
                    break
            seen.setdefault(found.path, []).append(found)


def _built(nodes: Sequence[t.Node], above: tuple[t.Node, ...], prefix: str, file: str) -> Iterator[_Built]:
    for node in nodes:
        if isinstance(node, t.Module):
            conditions = tuple(w for n in (*above, node) if (w := getattr(n, "when", None)) is not None)
            yield _Built(node, prefix + node.path, (*above, node), conditions, file)
        elif isinstance(node, (t.Stack, t.Part)):
            deeper = node.prefix if isinstance(node, t.Stack) else prefix
            yield from _built(children(node), (*above, node), deeper, file)


def _both(one: _Built, other: _Built) -> bool:
    """Whether two statements build the same module of the same layer, wherever one of them counts."""
    # Neighbours in one file are compared by the check of duplicates.
    if one.file == other.file and [id(n) for n in one.above[:-1]] == [id(n) for n in other.above[:-1]]:
        return False
    if not overlap(one.above, other.above):
        return False
    stacks = [next((n for n in f.above if isinstance(n, t.Stack)), None) for f in (one, other)]
    # Stacks of other lengths may share out the layers by their numbers.
    counts = [s.count for s in stacks if s is not None]
    if len(counts) == 1 or (len(counts) == 2 and not same(*counts) and (one.conditions or other.conditions)):
        return False
    return _under(one, other) or _under(other, one)


def _under(one: _Built, other: _Built) -> bool:
    """Whether the second stands under no condition that the first does not stand under."""
    whole: t.Expr | None = None
    for condition in one.conditions:
        whole = condition if whole is None else t.Binary(operator="and", left=whole, right=condition)
    return all(implies(whole, c) for c in other.conditions)


def _twice(mine: _Built, other: _Built, findings: Findings) -> None:
    message = f"module `{mine.path}` is built twice: also by {other.file}:{other.node.at.line}"
    if mine.file == other.file:
        related = (other.node, "the other one")
        findings.add("BL122", f"module `{mine.path}` is built twice", mine.node, mine.node.path, "remove one", related)
        return
    hint = "a file that extends a family adds to it; to change a module, give the whole family anew"
    findings.add("BL122", message, mine.node, mine.node.path, hint)
