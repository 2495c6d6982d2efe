"""Names that are defined in some versions and used in others: there they are keys of the metadata, mostly absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grammar import tree as t
from ..grammar.format import children, walk
from .lint_expressions import expressions, heads
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..grammar.findings import Findings
    from .lint_merged import Merged
    from .vocabulary import Vocabulary


def lint_loader_versions(here: Merged) -> None:
    """Check the definitions of a loader, and of each of its formats."""
    outer = [p.item for p in here.merged if isinstance(p.item, t.Let)]
    loose = [p.item for p in here.merged if isinstance(p.item, (t.Read, t.Refuse, t.Report))]
    checks = _Checks(here.tree, here.vocabulary, here.findings)
    for version in here.head.versions:
        checks.judge(outer, [n for n in loose if holds(n, version)], version, here.head.versions)
        for form in here.formats:
            if holds(form, version):
                inner = [i for i in form.items if isinstance(i, t.Let)]
                nodes = [form, *here.in_force(form.items, version)]
                checks.judge([*outer, *inner], nodes, version, here.head.versions)


def lint_family_versions(tree: t.File, merged: Sequence[t.Node], vocabulary: Vocabulary, findings: Findings) -> None:
    """Check the definitions of a family, as every loader that it names sees them."""
    checks = _Checks(tree, vocabulary, findings)
    for loader in sorted({n.loader for n in merged if isinstance(n, t.Names)}):
        versions = vocabulary.versions(loader)
        items = [n for n in merged if not isinstance(n, t.Names) or n.loader == loader]
        for version in versions:
            nodes = list(_in_force(items, version))
            lets = [n for n in _all(items) if isinstance(n, t.Let)]
            checks.judge(lets, [n for n in nodes if not isinstance(n, t.Let)], version, versions)


class _Checks:
    """Reports every reference once, and only those that stand in the file."""

    def __init__(self, tree: t.File, vocabulary: Vocabulary, findings: Findings) -> None:
        self.vocabulary, self.findings = vocabulary, findings
        nodes = [m for n in walk(tree) for m in (n, *children(n))]
        self.own = {id(r) for n in nodes for e in expressions(n) for r, _ in heads(e)}

    def judge(self, lets: Sequence[t.Let], nodes: Sequence[t.Node], version: str, versions: Sequence[str]) -> None:
        """Report what the statements that count in a version lack of the definitions."""
        # What is in force in no version has been named already.
        known = [i for i in lets if any(holds(i, v) for v in versions)]
        for ref, name in _lacking(known, nodes, version):
            if id(ref) in self.own and name not in self.vocabulary.metadata_keys:
                self.own.discard(id(ref))
                message = f"`{name}` is not defined in {version}, where it is used"
                hint = f"there it is a key of the metadata; define it for {version} too"
                self.findings.add("BL135", message, ref, name, hint)


def _lacking(lets: Sequence[t.Let], nodes: Sequence[t.Node], version: str) -> list[tuple[t.Ref, str]]:
    """Return the references, straight or through definitions, to names that only other versions define."""
    ever = {i.name for i in lets}
    now = {i.name: i for i in lets if holds(i, version)}
    todo = [e for n in nodes for e in expressions(n)]
    out: list[tuple[t.Ref, str]] = []
    followed: set[str] = set()
    while todo:
        for ref, name in heads(todo.pop()):
            if name in now and name not in followed:
                followed.add(name)
                todo.append(now[name].value)
            elif name in ever and name not in now:
                out.append((ref, name))
    return out


def _in_force(nodes: Sequence[t.Node], version: str) -> Iterator[t.Node]:
    for node in nodes:
        if not isinstance(node, t.Statement) or holds(node, version):
            yield node
            yield from _in_force(children(node), version)


def _all(nodes: Sequence[t.Node]) -> Iterator[t.Node]:
    for node in nodes:
        yield node
        yield from _all(children(node))
