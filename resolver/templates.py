"""Family statements to templates: names mapped, shards fused, exemptions noted; nothing here knows a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RuleError
from ..grammar import tree as t
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..rules.library import Placed
    from .naming import Mapper

_CLASSES = {"experts": "RoutedExperts", "embed": "VocabParallelEmbedding", "lm_head": "ParallelLMHead"}
_STYLES = {"column": "ColumnParallelLinear", "row": "RowParallelLinear", "replicated": "ReplicatedLinear"}


@dataclass(frozen=True, slots=True)
class Template:
    """A loader-side module before its layer index and sizes are known; ``members`` are fused into it."""

    path: str
    checkpoint: tuple[str, ...]
    members: tuple[t.Module, ...]
    cls: str
    op: str
    configured: bool
    fused: bool
    never_when: t.Expr | None = None
    asked: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Templates and operations that share one condition: a part of a layer, or a whole stack or file."""

    name: str
    when: t.Expr | None
    templates: tuple[Template, ...]
    operations: tuple[t.Operation, ...]
    overlaps: tuple[t.Overlap, ...]
    lets: Mapping[str, t.Expr]


@dataclass(frozen=True, slots=True)
class StackPlan:
    """A run of layers with its blocks; ``count`` None stands for the modules outside every stack."""

    name: str
    count: t.Expr | None
    when: t.Expr | None
    priced: bool
    blocks: tuple[Block, ...]
    lets: Mapping[str, t.Expr]
    requires: tuple[t.Require, ...]


def lacks_shape(node: t.Module) -> bool:
    """Whether a module has no sizes; experts give theirs by name."""
    return node.shape is None and node.kind != "experts"


def check_shapes(placed: Iterable[Placed]) -> None:
    """Refuse modules without sizes: they could be resolved, but not priced.

    Raises
    ------
    RuleError
        BL136
    """
    for found in placed:
        todo: list[t.Node] = [found.item]
        while todo:
            node = todo.pop()
            todo += getattr(node, "items", ()) if isinstance(node, (t.Stack, t.Part)) else ()
            if isinstance(node, t.Module) and lacks_shape(node):
                raise RuleError(
                    "BL136",
                    f"module `{node.path}` has no sizes",
                    place=f"{found.file}:{node.at.line}",
                    help="give them behind its path: `[OUT, IN]`",
                )


class Builder:
    """Turns statements into templates: names mapped, shards fused, exemptions noted."""

    def __init__(
        self,
        spelling: Mapper,
        declared: Mapper,
        paths: Mapper,
        fuses: list[t.Fuse],
        nevers: list[t.Never],
        asked: list[t.Asked],
        classes: Mapping[str, str],
        version: str,
    ) -> None:
        self.spelling, self.declared, self.paths, self.fuses, self.nevers = spelling, declared, paths, fuses, nevers
        self.asked = asked
        self.classes, self.version = classes, version

    def stack(self, node: t.Stack) -> StackPlan:
        """Build a run of layers."""
        lets = {i.name: i.value for i in node.items if isinstance(i, t.Let) and holds(i, self.version)}
        loose = [i for i in node.items if isinstance(i, (t.Module, t.Operation, t.Overlap))]
        blocks = [
            self.block(p.name, p.when, p.items, node.prefix, lets)
            for p in node.items
            if isinstance(p, t.Part) and holds(p, self.version)
        ]
        if loose:
            blocks.insert(0, self.block("", None, loose, node.prefix, lets))
        requires = tuple(i for i in node.items if isinstance(i, t.Require))
        return StackPlan(node.name, node.count, node.when, "unpriced" not in node.flags, tuple(blocks), lets, requires)

    def outside(self, items: list[t.Item]) -> list[StackPlan]:
        """Collect statements between two stacks, so that modules keep the order of the file."""
        if not items:
            return []
        loose = [i for i in items if not isinstance(i, t.Part)]
        blocks = [
            self.block(p.name, p.when, p.items, "", {})
            for p in items
            if isinstance(p, t.Part) and holds(p, self.version)
        ]
        return [StackPlan("", None, None, True, (self.block("", None, loose, "", {}), *blocks), {}, ())]

    def block(self, name: str, when: t.Expr | None, items: Any, prefix: str, lets: Mapping[str, t.Expr]) -> Block:
        """Build what one condition guards."""
        mine = [i for i in items if not isinstance(i, t.Statement) or holds(i, self.version)]
        inner = {**lets, **{i.name: i.value for i in mine if isinstance(i, t.Let)}}
        modules = [i for i in mine if isinstance(i, t.Module)]
        return Block(
            name,
            when,
            tuple(self.templates(modules, prefix)),
            tuple(i for i in mine if isinstance(i, t.Operation)),
            tuple(i for i in mine if isinstance(i, t.Overlap)),
            inner,
        )

    def loader_path(self, checkpoint: str) -> str:
        """Return what the loader calls a checkpoint-side module."""
        return self.paths.apply(self.declared.apply(checkpoint))

    def _fuse(self, shard: str, siblings: set[str]) -> t.Fuse | None:
        """Return the fused module of a shard: the first that stands there whole, else the first that knows it."""
        known = [f for f in self.fuses if shard in f.shards]
        return next((f for f in known if siblings.issuperset(f.shards)), known[0] if known else None)

    def templates(self, modules: list[t.Module], prefix: str) -> Iterator[Template]:
        """Fuse shards that stand under one parent, in the order of the statements."""
        names = {id(m): self.spelling.apply(prefix + m.path) for m in modules}
        done: set[int] = set()
        for module in modules:
            if id(module) in done:
                continue
            path = self.loader_path(names[id(module)])
            parent, _, last = path.rpartition(".")
            here = [p.rpartition(".") for p in (self.loader_path(names[id(m)]) for m in modules if m.kind == "linear")]
            fuse = self._fuse(last, {p[2] for p in here if p[0] == parent}) if module.kind == "linear" else None
            if fuse is None:
                done.add(id(module))
                yield self._template(path, (names[id(module)],), (module,), False)
                continue
            members = [
                m
                for shard in fuse.shards
                for m in modules
                if m.kind == "linear"
                and id(m) not in done
                and self.loader_path(names[id(m)]) == (f"{parent}.{shard}" if parent else shard)
            ]
            done.update(id(m) for m in members)
            if len(members) == 1 and len(fuse.shards) > 1:
                # A layer with one of the shards alone (only q_proj where keys are shared) has nothing to fuse.
                yield self._template(path, (names[id(module)],), (module,), False)
                continue
            fused = f"{parent}.{fuse.name}" if parent else fuse.name
            yield self._template(fused, tuple(names[id(m)] for m in members), tuple(members), True)

    def _template(self, path: str, checkpoint: tuple[str, ...], members: tuple[t.Module, ...], fused: bool) -> Template:
        never = next((n for n in self.nevers if any(_ends(path, p) for p in n.paths)), None)
        plain = any("plain" in m.flags for m in members)
        first = members[0]
        op = next((m.op for m in members if m.op), None) or path.rpartition(".")[2]
        cls = next((m.cls for m in members if m.cls), None) or _class(first, path, fused)
        cls = self.classes.get(cls, cls)
        configured = not plain and (never is None or never.when is not None)
        asked = next((a.name for a in self.asked if _ends(path, a.path)), None)
        return Template(
            path, checkpoint, members, cls, op, configured, fused, never.when if never is not None else None, asked
        )


def _ends(path: str, suffix: str) -> bool:
    return path == suffix or path.endswith("." + suffix)


def _class(module: t.Module, path: str, fused: bool) -> str:
    if module.kind != "linear":
        return _CLASSES[module.kind]
    if fused:
        return "QKVParallelLinear" if path.endswith("qkv_proj") else "MergedColumnParallelLinear"
    return _STYLES[style(module)]


def style(module: t.Module) -> str:
    """Return how tensor parallelism splits a module."""
    return next((f for f in module.flags if f in _STYLES), "replicated")
