"""The chains of a loader: steps that nothing reaches, that lack their list, and formats that do not decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.logic import constant
from ..grammar.reach import ends, in_range, shadowed, wider
from .lint_expressions import expressions, heads
from .lint_merged import is_step
from .versions import holds
from .vocabulary import MODULE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .lint_merged import Merged

_DECIDING = (t.Leave, t.Exclude, t.Take, t.Default, t.Use, t.Each)


def lint_chains(here: Merged, extended: frozenset[str]) -> None:
    """Check the formats and chains of a loader; ``extended`` are the names of formats that this file may add to."""
    _unreachable(here)
    for node in here.formats:
        _sources(here, node)
        if id(node) in here.own or any(id(i) in here.own for i in node.items):
            _default(here, node, extended)


# --- unreachable rules ------------------------------------------------------------


def _unreachable(here: Merged) -> None:
    uses: dict[int, int] = {}
    hidden: dict[int, list[tuple[t.Node, t.Node]]] = {}
    for node in here.formats:
        steps = list(here.steps(node.items))
        for run in sorted({r for _, r in steps}):
            # What never holds is named where it stands.
            mine = [s for s, r in steps if r == run and constant(getattr(s, "when", None)) is not False]
            for step in mine:
                uses[id(step)] = uses.get(id(step), 0) + 1
            for pair in shadowed(mine, MODULE_KINDS):
                hidden.setdefault(id(pair[0]), []).append(pair)
    rows = [i.rows for f in here.formats for i in f.items if isinstance(i, (t.Algorithms, t.Schemes))]
    pairs = [p for group in rows for p in _hidden_rows(group)] + _hidden_formats(here.formats)
    # A step that several formats share is unreachable when it is so in all of them.
    pairs += [found[0] for key, found in hidden.items() if len(found) == uses[key]]
    pairs += [pair for pair in _refused(here) if id(pair[0]) not in {id(p[0]) for p in pairs}]
    for later, earlier in pairs:
        # What an overlay puts before the steps of a file is meant to.
        overlaid = id(earlier) not in here.own and not here.file.extends
        if id(later) in here.own and not overlaid and constant(getattr(later, "when", None)) is not False:
            here.unreachable.add(id(later))
            related = (earlier, "this one decides before") if id(earlier) in here.own else None
            hint = "put it before, or remove it"
            here.findings.add("BL111", "no module is left for this rule", later, help=hint, related=related)


def _refused(here: Merged) -> Iterator[tuple[t.Node, t.Node]]:
    """Yield the first step of a format that always refuses, and the first format of a loader that does."""
    places: list[tuple[Sequence[t.Node], tuple[type, ...]]] = [([p.item for p in here.merged], (t.Format,))]
    places += [(f.items, _DECIDING) for f in here.formats]
    for items, kinds in places:
        refusals = [i for i in items if isinstance(i, t.Refuse) and not i.kinds and constant(i.when) is True]
        for refusal in refusals[:1]:
            yield from [(i, refusal) for i in items if isinstance(i, kinds) and in_range(refusal, i)][:1]


def _hidden_rows(rows: Sequence[t.Algorithm | t.Scheme]) -> list[tuple[t.Node, t.Node]]:
    """Rows of `algorithms` or `schemes` that an earlier row leaves nothing to."""
    out: list[tuple[t.Node, t.Node]] = []
    for position, later in enumerate(rows):
        for earlier in rows[:position]:
            words = getattr(earlier, "words", ())
            narrow = bool(words) and not (getattr(later, "words", ()) and set(later.words) <= set(words))  # type: ignore[union-attr]
            if not narrow and wider(earlier, later):
                out.append((later, earlier))
                break
    return out


def _hidden_formats(formats: Sequence[t.Format]) -> list[tuple[t.Node, t.Node]]:
    out: list[tuple[t.Node, t.Node]] = []
    for position, later in enumerate(formats):
        # A format without a condition is for metadata that was found.
        asks = later.when is not None and any(h == "found" for _, h in heads(later.when))
        before = [f for f in formats[:position] if f.name != later.name and not (asks and f.when is None)]
        earlier = next((f for f in before if wider(f, later)), None)
        if earlier is not None:
            out.append((later, earlier))
    return out


# --- lists ----------------------------------------------------------------------------


def _sources(here: Merged, node: t.Format) -> None:
    steps = [s for s, _ in here.steps(node.items)]
    wants = {w for s in steps for w in _wants(s)}
    if any(h == "listed" for i in node.items for e in expressions(i) for _, h in heads(e)):
        wants.add("listing")
    groups = any(isinstance(s, t.Default) and s.group is not None for s in steps)
    for step in steps:
        # A chain that several formats share may look at lists that some of them lack.
        if id(step) in here.own and id(step) not in here.unreachable and any(step is i for i in node.items):
            _missing(here, node, step)
    for item in node.items:
        if id(item) not in here.own:
            continue
        kind = item.kind if isinstance(item, t.Source) else type(item).__name__.lower()
        if isinstance(item, (t.Source, t.Algorithms, t.Schemes)) and kind not in wants:
            if kind == "schemes" and groups:
                continue
            hint = "add the rule that should, or remove it"
            here.findings.add("BL127", f"no rule of format `{node.name}` looks at its `{kind}`", item, kind, hint)


def _missing(here: Merged, node: t.Format, step: t.Node) -> None:
    """Report a step whose list the format never has, or not in every version in which the step counts."""
    tables = {type(i).__name__.lower() for i in node.items if isinstance(i, (t.Algorithms, t.Schemes))}
    sources = [i for i in node.items if isinstance(i, t.Source)]
    for want in sorted(_wants(step) - tables):
        there = [s for s in sources if s.kind == want]
        versions = [
            v for v in here.head.versions if all(holds(n, v) for n in (node, step) if isinstance(n, t.Statement))
        ]
        lacking = [v for v in versions if not any(holds(s, v) for s in there)]
        if there and not lacking:
            continue
        where = f" in {lacking[0]}" if there else ""
        hint = f"add `{want} ...` to the format" + (" for this version" if there else "")
        here.findings.add("BL128", f"format `{node.name}` has no `{want}`{where}", step, help=hint)
        return


def _wants(step: t.Node) -> set[str]:
    """Return the parts of a format that a step looks at."""
    if isinstance(step, t.Exclude) and not step.match.named:
        return {"listing"} if step.unlisted else {"exclusions"}
    if isinstance(step, t.Take):
        return {"listing", "algorithms"} if step.source == "listing" else {"groups", "schemes"}
    return set()


# --- the end of a chain -------------------------------------------------------------------


def _default(here: Merged, node: t.Format, extended: frozenset[str]) -> None:
    for version in here.head.versions:
        if not holds(node, version) or _closes(here, node.items, version):
            continue
        near = nearest(node.name, extended) if extended and node.name not in extended else ""
        if near and node.when is None:
            message = f"no format `{node.name}` to add to"
            here.findings.add("BL133", message, node, node.name, near)
            return
        message = f"format `{node.name}` may leave a module undecided in {version}"
        hint = f"{near} otherwise end its chain with `default`" if near else "end its chain with `default`"
        here.findings.add("BL121", message, node, node.name, hint)
        return


def _closes(here: Merged, items: Sequence[t.Node], version: str, seen: tuple[str, ...] = ()) -> bool:
    alive = [i for i in items if not isinstance(i, t.Statement) or holds(i, version)]
    for item in alive:
        if isinstance(item, (t.Use, t.Each)) and item.chain not in here.chains:
            return True
        if not isinstance(item, (t.Use, t.Each)) or item.chain in seen:
            continue
        guarded = isinstance(item, t.Each) and (item.when is not None or bool(item.kinds))
        if not guarded and _closes(here, here.chains[item.chain].steps, version, (*seen, item.chain)):
            return True
    return ends([i for i in alive if not isinstance(i, t.Leave) or is_step(i, True)], MODULE_KINDS)
