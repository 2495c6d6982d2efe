"""One loader file (or extension) beside everything that it is used with: what the checks of loaders look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grammar import tree as t
from ..grammar.diagnostics import closest
from ..grammar.format import children, walk
from .lint_expressions import expressions, heads
from .loader import MODULE_NAMES
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..grammar.findings import Findings
    from ..rules.library import Placed, RuleFile
    from .vocabulary import Vocabulary


class Merged:
    """The statements of a loader as overlays leave them; findings are about the file's own.

    Attributes
    ----------
    own
        Identities of the file's own statements.
    suggested
        Names that a finding asks whether they were meant: that nothing uses them is the same mistake.
    unreachable
        Identities of steps that are reported as unreachable.
    """

    def __init__(self, file: RuleFile, vocabulary: Vocabulary, findings: Findings) -> None:
        self.file, self.vocabulary, self.findings = file, vocabulary, findings
        self.tree = file.tree()
        self.own = {id(n) for n in walk(self.tree)} | {id(r) for n in walk(self.tree) for r in children(n)}
        self.head, placed = vocabulary.library.loader(file.name)
        self.merged: list[Placed] = placed
        self.chains = {p.item.name: p.item for p in placed if isinstance(p.item, t.Chain)}
        self.formats = [p.item for p in placed if isinstance(p.item, t.Format)]
        self.suggested: set[str] = set()
        self.unreachable: set[int] = set()

    def unknown(self, what: str, name: str, node: t.Node, known: Iterable[str]) -> None:
        """Report a name that nothing defines."""
        choices = list(known)
        near = closest(name, choices)
        self.suggested.add(near)
        hint = f"did you mean `{near}`?" if near else "known: " + ", ".join(choices)
        self.findings.add("BL110", f"unknown {what} `{name}`", node, name, hint)

    def every(self) -> Iterator[t.Node]:
        """Yield every statement and row of the loader."""
        for placed in self.merged:
            yield placed.item
            for child in children(placed.item):
                yield child
                yield from children(child)

    def steps(self, items: Sequence[t.Node], seen: tuple[str, ...] = ()) -> Iterator[tuple[t.Node, int]]:
        """Yield the steps of a chain, `use` and `each` resolved, each with the number of its run of names."""
        for item in items:
            if isinstance(item, (t.Use, t.Each)):
                chain = self.chains.get(item.chain)
                if chain is not None and item.chain not in seen:
                    run = id(item) if isinstance(item, t.Each) else 0
                    for step, deeper in self.steps(chain.steps, (*seen, item.chain)):
                        yield step, deeper or run
                if isinstance(item, t.Each):
                    yield item, 0
            elif is_step(item, bool(seen)):
                yield item, 0

    def in_force(self, items: Sequence[t.Node], version: str, seen: tuple[str, ...] = ()) -> Iterator[t.Node]:
        """Yield the statements and rows of a format that count in a version, chains resolved, but not its `let`."""
        for item in items:
            if isinstance(item, t.Let) or (isinstance(item, t.Statement) and not holds(item, version)):
                continue
            yield item
            chain = self.chains.get(item.chain) if isinstance(item, (t.Use, t.Each)) else None
            if chain is not None and chain.name not in seen:
                yield from self.in_force(chain.steps, version, (*seen, chain.name))
            else:
                yield from self.in_force(children(item), version, seen)


def is_step(node: t.Node, in_chain: bool) -> bool:
    """Whether a statement decides modules: not what drops groups, and a `refuse` only where it speaks of modules."""
    if getattr(node, "kinds", ()) == ("groups",):
        return False
    if not isinstance(node, t.Refuse):
        return isinstance(node, (t.Leave, t.Exclude, t.Take, t.Default))
    named = node.when is not None and any(h in MODULE_NAMES for _, h in heads(node.when))
    return in_chain or bool(node.kinds) or named


def paths(node: t.Node) -> Iterator[tuple[t.Node, str]]:
    """Yield every path into metadata that a statement names, with the node that it stands in."""
    for expression in expressions(node):
        for ref, _ in heads(expression):
            yield ref, ref.path
    for path in (*evidence(node), *(node.paths if isinstance(node, t.Source) else ())):
        yield node, path


def evidence(node: t.Node) -> tuple[str, ...]:
    """Return the paths that a `default` cites or reads."""
    group = getattr(node, "group", None)
    found: tuple[str, ...] = getattr(node, "evidence", ())
    return (*found, group) if isinstance(group, str) else found
