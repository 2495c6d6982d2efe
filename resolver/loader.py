"""A loader file applied to a checkpoint: which metadata is read, which format it is, what it declares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..errors import RuleError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from .expressions import names_used
from .versions import holds, known_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.library import Library, Placed, RuleFile


@dataclass(frozen=True, slots=True)
class Rule:
    """One step of a chain, with where it is written; ``inner`` are the steps of the chain that `each` uses."""

    step: t.Step
    file: str
    inner: tuple[Rule, ...] = ()

    @property
    def place(self) -> str:
        """``loaders/vllm.rules:23``."""
        return f"{self.file}:{self.step.at.line}"


@dataclass(frozen=True, slots=True)
class LoaderFormat:
    """One metadata format as a loader reads it.

    Attributes
    ----------
    volatile_lets, volatile
        Names of the `let` statements, and identities of the conditions, whose value changes from module to module.
    """

    name: str
    when: t.Expr | None
    file: str
    line: int
    lets: Mapping[str, t.Expr]
    checks: tuple[tuple[t.Refuse | t.Report, str], ...]
    sources: tuple[t.Source, ...]
    algorithms: tuple[t.Algorithm, ...]
    schemes: tuple[t.Scheme, ...]
    kv_cache: tuple[t.KvCache, ...]
    rules: tuple[Rule, ...]
    dropped_groups: tuple[t.Leave, ...] = ()
    group_checks: tuple[tuple[t.Refuse, str], ...] = ()
    volatile_lets: frozenset[str] = frozenset()
    volatile: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Loader:
    """A loader file compiled for one version."""

    name: str
    version: str
    reads: tuple[t.Read, ...]
    lets: Mapping[str, t.Expr]
    checks: tuple[tuple[t.Refuse | t.Report, str], ...]
    formats: tuple[LoaderFormat, ...]
    builtin: Mapping[str, tuple[str, ...]]
    aliases: tuple[t.Alias, ...]
    file: str
    _marked: dict[int, LoaderFormat] = field(default_factory=dict, compare=False)

    def marked(self, chosen: LoaderFormat) -> LoaderFormat:
        """Return one of the formats with what changes from module to module noted; worked out when it is asked for."""
        if id(chosen) not in self._marked:
            self._marked[id(chosen)] = _marked(chosen, self.lets)
        return self._marked[id(chosen)]

    def spellings(self, path: str) -> tuple[str, ...]:
        """Return a module path and the other spellings under which listings are searched, in order."""
        out = [path]
        for alias in self.aliases:
            other = _alias(alias, path)
            if other is not None and other not in out:
                out.append(other)
        return tuple(out)


def _alias(alias: t.Alias, path: str) -> str | None:
    if alias.path.startswith("*"):
        tail = alias.path[1:]
        return (
            path[: -len(tail)] + alias.other[1:]
            if path.endswith(tail) and alias.other.startswith("*")
            else alias.other
            if path.endswith(tail)
            else None
        )
    return alias.other + path[len(alias.path) :] if path.startswith(alias.path) else None


def compile_loader(library: Library, name: str, version: str) -> Loader:
    """Compile a loader file for a version (empty: the newest it describes).

    Raises
    ------
    UsageError
        BL220 unknown loader, BL222 unknown version.
    """
    head, _ = library.loader(name)
    return _compiled(library.files, name, known_version(name, version, head.versions), _Holder(library))


class _Holder:
    """Carries a library past ``lru_cache`` without taking part in the key."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=64)
def _compiled(files: tuple[RuleFile, ...], name: str, version: str, holder: _Holder) -> Loader:
    _, placed = holder.library.loader(name)
    alive = [p for p in placed if not isinstance(p.item, t.Statement) or holds(p.item, version)]
    chains = {p.item.name: (p.item, p.file) for p in alive if isinstance(p.item, t.Chain)}
    items = [p.item for p in alive]
    lets = {i.name: i.value for i in items if isinstance(i, t.Let)}
    formats = tuple(_format(p.item, p, version, chains) for p in alive if isinstance(p.item, t.Format))
    return Loader(
        name,
        version,
        tuple(i for i in items if isinstance(i, t.Read)),
        lets,
        tuple((p.item, p.file) for p in alive if isinstance(p.item, (t.Refuse, t.Report))),
        formats,
        {i.name: i.shards for i in items if isinstance(i, t.Builtin)},
        tuple(i for i in items if isinstance(i, t.Alias)),
        next(f.label for f in files if f.kind == "loader" and f.name == name and not f.extends),
    )


def _format(node: t.Format, placed: Placed, version: str, chains: Mapping[str, tuple[t.Chain, str]]) -> LoaderFormat:
    kept = [
        (i, placed.file_of(n)) for n, i in enumerate(node.items) if not isinstance(i, t.Statement) or holds(i, version)
    ]
    items = [i for i, _ in kept]
    rules: list[Rule] = []
    checks: list[tuple[t.Refuse | t.Report, str]] = []
    dropped: list[t.Leave] = []
    group_checks: list[tuple[t.Refuse, str]] = []
    for item, file in kept:
        if isinstance(item, t.Use):
            rules += _chain(item, file, version, chains, ())
        elif isinstance(item, t.Each):
            rules.append(_each(item, file, version, chains, ()))
        elif isinstance(item, t.Leave) and item.kinds == ("groups",):
            dropped.append(item)
        elif isinstance(item, t.Refuse) and item.kinds == ("groups",):
            group_checks.append((item, file))
        elif isinstance(item, (t.Leave, t.Exclude, t.Take, t.Default)) or (
            isinstance(item, t.Refuse) and (item.kinds or _about_module(item.when))
        ):
            rules.append(Rule(item, file))
        elif isinstance(item, (t.Refuse, t.Report)):
            checks.append((item, file))
    return LoaderFormat(
        node.name,
        node.when,
        placed.file,
        node.at.line,
        {i.name: i.value for i in items if isinstance(i, t.Let)},
        tuple(checks),
        tuple(i for i in items if isinstance(i, t.Source)),
        tuple(r for i in items if isinstance(i, t.Algorithms) for r in i.rows if holds(r, version)),
        tuple(r for i in items if isinstance(i, t.Schemes) for r in i.rows if holds(r, version)),
        tuple(i for i in items if isinstance(i, t.KvCache)),
        tuple(rules),
        tuple(dropped),
        tuple(group_checks),
    )


MODULE_NAMES: Final = frozenset(
    {
        "path",
        "name",
        "kind",
        "class",
        "fused",
        "layer",
        "part",
        "stack",
        "shape_out",
        "shape_in",
        "outs",
        "expert_hidden",
        "expert_inter",
        "target",
    }
)


# A scheme is remembered per target and kind, so these two do not make its condition change.
_SCHEME_NAMES: Final = MODULE_NAMES - {"target", "kind"}


def _marked(found: LoaderFormat, outer: Mapping[str, t.Expr]) -> LoaderFormat:
    """Note which `let` statements and conditions have to be evaluated anew for each module."""
    direct = {name: _heads(value) for name, value in {**outer, **found.lets}.items()}
    changing = _reaching(direct, MODULE_NAMES)
    for_schemes = _reaching(direct, _SCHEME_NAMES)
    volatile: set[int] = set()
    for when in [*_conditions(found.rules), *(a.when for a in found.algorithms)]:
        if when is not None and _heads(when) & (MODULE_NAMES | changing):
            volatile.add(id(when))
    for scheme in found.schemes:
        if scheme.when is not None and _heads(scheme.when) & (_SCHEME_NAMES | for_schemes):
            volatile.add(id(scheme.when))
    return replace(found, volatile_lets=changing, volatile=frozenset(volatile))


def _heads(node: t.Expr) -> frozenset[str]:
    """First names of the references in an expression itself."""
    return names_used(node, {})


def _reaching(direct: Mapping[str, frozenset[str]], names: frozenset[str]) -> frozenset[str]:
    """Return the definitions that use one of ``names``, themselves or through others."""
    out: set[str] = set()
    grown = True
    while grown:
        wanted = names | out
        more = {n for n, used in direct.items() if n not in out and used & wanted}
        out |= more
        grown = bool(more)
    return frozenset(out)


def _conditions(rules: tuple[Rule, ...]) -> list[t.Expr | None]:
    out: list[t.Expr | None] = []
    for rule in rules:
        out += [getattr(rule.step, "when", None), *_conditions(rule.inner)]
    return out


def _about_module(node: t.Expr | None) -> bool:
    return node is not None and bool(names_used(node, {}) & MODULE_NAMES)


def _chain(
    use: t.Use, file: str, version: str, chains: Mapping[str, tuple[t.Chain, str]], seen: tuple[str, ...]
) -> list[Rule]:
    if use.chain not in chains:
        raise RuleError(
            "BL110",
            f"unknown chain `{use.chain}`",
            place=f"{file}:{use.at.line}",
            help=nearest(use.chain, chains) or "define it with `chain NAME { ... }`",
        )
    if use.chain in seen:
        raise RuleError(
            "BL116", f"chain `{use.chain}` uses itself", place=f"{file}:{use.at.line}", help="break the circle"
        )
    chain, where = chains[use.chain]
    out: list[Rule] = []
    for step in chain.steps:
        if isinstance(step, t.Use):
            out += _chain(step, where, version, chains, (*seen, use.chain))
        elif isinstance(step, t.Each):
            if holds(step, version):
                out.append(_each(step, where, version, chains, (*seen, use.chain)))
        elif not isinstance(step, t.Statement) or holds(step, version):
            out.append(Rule(step, where))
    return out


def _each(
    step: t.Each, file: str, version: str, chains: Mapping[str, tuple[t.Chain, str]], seen: tuple[str, ...]
) -> Rule:
    return Rule(step, file, tuple(_chain(t.Use(chain=step.chain, at=step.at), file, version, chains, seen)))
