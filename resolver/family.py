"""A family file applied to a config: every module that a loader builds, and every operation that a layer runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, RuleError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from .expressions import ABSENT, Scope, descend, evaluate, names_used, present
from .modules import Member, Module, Operation, OverlapGroup
from .naming import Mapper, mapper
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Iterator

    from ..rules.library import Library, RuleFile

_INDEX = frozenset({"i"})
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


@dataclass(frozen=True, slots=True)
class Family:
    """A family file compiled for one loader and version."""

    name: str
    file: str
    loader: str
    version: str
    scope_paths: tuple[str, ...]
    stacks: tuple[StackPlan, ...]
    requires: tuple[t.Require, ...]
    lets: Mapping[str, t.Expr]
    renames: Mapper
    path_renames: Mapper
    packed: Mapping[str, tuple[str, ...]]
    architecture: str = ""
    _varies: dict[tuple[str, int], bool] = field(default_factory=dict)

    def scope(self, config: Mapping[str, Any]) -> Scope:
        """Return the expression scope of a config: the text model's keys bare, the whole file as ``config``."""
        base: Any = config
        for path in self.scope_paths:
            found = config if path == "root" else descend(config, path)
            if isinstance(found, dict):
                base = found
                break
        return Scope(base, {"config": config}, self.lets, volatile=_INDEX)


def find_file(library: Library, architecture: str) -> RuleFile:
    """Return the family file that serves a model class.

    Raises
    ------
    CheckpointError
        BL230: no family file names the class.
    """
    known = library.architectures()
    if architecture not in known:
        raise CheckpointError(
            "BL230",
            f"no family file describes `{architecture}`",
            place="config.json#/architectures",
            help=nearest(architecture, known) or "write one: docs/new-family.md; `bitlane rules list` shows the known ones",
        )
    return known[architecture]


def compile_family(library: Library, architecture: str, loader: str, version: str) -> Family:
    """Compile the family file of a model class for a loader and version; cached per library."""
    return _compiled(library.files, find_file(library, architecture), architecture, loader, version, _Lib(library))


class _Lib:
    """Carries a library past ``lru_cache`` without taking part in the key."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lib)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=128)
def _compiled(files: tuple[RuleFile, ...], file: RuleFile, architecture: str, loader: str, version: str, lib: _Lib) -> Family:  # noqa: ARG001 - files key the cache
    head, placed = lib.library.family(file)
    items = [p.item for p in placed if not isinstance(p.item, t.Statement) or holds(p.item, version)]
    _check_names(items, head.name, file.label, loader)
    known = Scope({"architecture": architecture, "loader": loader})
    rules = _naming(items, loader, version, known)
    renames = [r for r in rules if isinstance(r, t.Rename)]
    spelling = mapper([r for r in _naming(items, "checkpoint", version, known) if isinstance(r, t.Rename)], file.label)
    declared = mapper(renames, file.label)
    paths = mapper(renames, file.label, "path_")
    fuses = [r for r in rules if isinstance(r, t.Fuse)]
    nevers = [r for r in rules if isinstance(r, t.Never)]
    packed = {f.name: f.shards for f in fuses if not f.unmapped}
    classes = {r.old: r.new for r in renames if r.kind == "class"}
    builder = _Builder(spelling, declared, paths, fuses, nevers, classes, version)
    stacks: list[StackPlan] = []
    loose: list[t.Item] = []
    for item in items:
        if isinstance(item, t.Stack):
            stacks += builder.outside(loose)
            loose = []
            stacks.append(builder.stack(item))
        elif isinstance(item, (t.Module, t.Operation, t.Overlap, t.Part)):
            loose.append(item)
    stacks += builder.outside(loose)
    scopes = next((i.paths for i in items if isinstance(i, t.ConfigScope)), ("root",))
    lets = {i.name: i.value for i in items if isinstance(i, t.Let)}
    lets.update({r.name: r.value for r in rules if isinstance(r, t.Let)})
    requires = tuple(i for i in items if isinstance(i, t.Require))
    return Family(head.name, file.label, loader, version, scopes, tuple(stacks), requires, lets, declared, paths, packed, architecture)


def _check_names(items: list[t.Item], family: str, label: str, loader: str) -> None:
    """Refuse a loader whose names for this family nobody has written down: checkpoint names would pass for its own."""
    told = sorted({n.loader for n in items if isinstance(n, t.Names)} - {"checkpoint"})
    if told and loader not in (*told, "spec"):
        raise CheckpointError(
            "BL231",
            f"family `{family}` does not say how {loader} names and fuses its modules",
            place=label,
            help=f"add `names {loader}` in an overlay (`extend family {family}`); told: {', '.join(told)}",
        )


def _naming(items: list[t.Item], loader: str, version: str, known: Scope) -> list[t.Rename | t.Fuse | t.Never | t.Let]:
    """Return the rules of a loader's ``names`` blocks; conditions on renames and fusions know the model class, not the config."""
    rules = [r for n in items if isinstance(n, t.Names) and n.loader == loader and holds(n, version) for r in n.rules if holds(r, version)]
    return [r for r in rules if not isinstance(r, (t.Rename, t.Fuse)) or r.when is None or evaluate(r.when, known)]


class _Builder:
    """Turns statements into templates: names mapped, shards fused, exemptions noted."""

    def __init__(
        self,
        spelling: Mapper,
        declared: Mapper,
        paths: Mapper,
        fuses: list[t.Fuse],
        nevers: list[t.Never],
        classes: Mapping[str, str],
        version: str,
    ) -> None:
        self.spelling, self.declared, self.paths, self.fuses, self.nevers = spelling, declared, paths, fuses, nevers
        self.classes, self.version = classes, version

    def stack(self, node: t.Stack) -> StackPlan:
        lets = {i.name: i.value for i in node.items if isinstance(i, t.Let) and holds(i, self.version)}
        loose = [i for i in node.items if isinstance(i, (t.Module, t.Operation, t.Overlap))]
        blocks = [self.block(p.name, p.when, p.items, node.prefix, lets) for p in node.items if isinstance(p, t.Part) and holds(p, self.version)]
        if loose:
            blocks.insert(0, self.block("", None, loose, node.prefix, lets))
        requires = tuple(i for i in node.items if isinstance(i, t.Require))
        return StackPlan(node.name, node.count, node.when, "unpriced" not in node.flags, tuple(blocks), lets, requires)

    def outside(self, items: list[t.Item]) -> list[StackPlan]:
        """Collect statements between two stacks, so that modules keep the order of the file."""
        if not items:
            return []
        loose = [i for i in items if not isinstance(i, t.Part)]
        blocks = [self.block(p.name, p.when, p.items, "", {}) for p in items if isinstance(p, t.Part) and holds(p, self.version)]
        return [StackPlan("", None, None, True, (self.block("", None, loose, "", {}), *blocks), {}, ())]

    def block(self, name: str, when: t.Expr | None, items: Any, prefix: str, lets: Mapping[str, t.Expr]) -> Block:
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
        return self.paths.apply(self.declared.apply(checkpoint))

    def templates(self, modules: list[t.Module], prefix: str) -> Iterator[Template]:
        names = {id(m): self.spelling.apply(prefix + m.path) for m in modules}
        done: set[int] = set()
        for module in modules:
            if id(module) in done:
                continue
            path = self.loader_path(names[id(module)])
            parent, _, last = path.rpartition(".")
            fuse = next((f for f in self.fuses if last in f.shards), None) if module.kind == "linear" else None
            if fuse is None:
                done.add(id(module))
                yield self._template(path, (names[id(module)],), (module,), False)
                continue
            members = [
                m
                for shard in fuse.shards
                for m in modules
                if m.kind == "linear" and id(m) not in done and self.loader_path(names[id(m)]) == (f"{parent}.{shard}" if parent else shard)
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
        return Template(path, checkpoint, members, cls, op, configured, fused, never.when if never is not None else None)


def _ends(path: str, suffix: str) -> bool:
    return path == suffix or path.endswith("." + suffix)


def _class(module: t.Module, path: str, fused: bool) -> str:
    if module.kind != "linear":
        return _CLASSES[module.kind]
    if fused:
        return "QKVParallelLinear" if path.endswith("qkv_proj") else "MergedColumnParallelLinear"
    return _STYLES[_style(module)]


def _style(module: t.Module) -> str:
    return next((f for f in module.flags if f in _STYLES), "replicated")


def _whole(value: Any, what: str, family: Family, node: t.Node) -> int:
    place = f"{family.file}:{node.at.line}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise CheckpointError("BL212", f"{what} is {value}, not a whole number", place=place, help="the config lacks a key that this family needs, or its value is odd")
    if value < 0 or value > 1 << 40:
        raise CheckpointError("BL212", f"{what} is {value}", place=place, help="correct the config")
    return int(value)


class Walk:
    """One pass over a family's layers with a config; yields the blocks that apply."""

    def __init__(self, family: Family, config: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> None:
        self.family = family
        self.scope = family.scope(config)
        self.scope.values.update({"loader": family.loader, "architecture": family.architecture, **(values or {})})
        self._cache: dict[tuple[str, int, int], Any] = {}

    def check(self) -> None:
        """Check the family's `require` statements."""
        for require in self.family.requires:
            self._require(require)

    def _require(self, require: t.Require) -> None:
        if not evaluate(require.test, self.scope):
            raise CheckpointError("BL213", require.message, place=f"{self.family.file}:{require.at.line}", help="compare the config with the published one")

    def blocks(self) -> Iterator[tuple[StackPlan, int, Block]]:
        """Yield (stack, layer index, block) for every block whose condition holds."""
        for stack in self.family.stacks:
            self.scope.values.pop("i", None)
            self.scope.lets = {**self.family.lets, **stack.lets}
            if stack.when is not None and not evaluate(stack.when, self.scope):
                continue
            for require in stack.requires:
                self._require(require)
            if stack.count is None:
                indexes: list[int] = [-1]
            else:
                count = evaluate(stack.count, self.scope)
                if not present(count):
                    raise CheckpointError("BL214", f"the number of layers of `{stack.name}` is not in the config", place=self.family.file, help="add the missing key")
                indexes = list(range(min(_whole(count, "the number of layers", self.family, stack.count), 100_000)))
            for i in indexes:
                if i >= 0:
                    self.scope.values["i"] = i
                for block in stack.blocks:
                    self.scope.lets = {**self.family.lets, **block.lets}
                    if block.when is None or evaluate(block.when, self.scope):
                        yield stack, i, block

    def sizes(self, node: t.Module, index: int) -> tuple[int, int] | None:
        """Evaluate ``[out, in]``; memoised when it does not depend on the layer."""
        if node.shape is None:
            return None
        key = self._key("shape", node, node.shape, index)
        if key not in self._cache:
            out, into = (evaluate(e, self.scope) for e in node.shape)
            self._cache[key] = (
                _whole(out, f"the output size of `{node.path}`", self.family, node),
                _whole(into, f"the input size of `{node.path}`", self.family, node),
            )
        found: tuple[int, int] = self._cache[key]
        return found

    def _key(self, what: str, node: t.Node, exprs: tuple[t.Expr, ...], index: int) -> tuple[str, int, int]:
        known = (what, id(node))
        varies = self.family._varies.get(known)
        if varies is None:
            varies = any("i" in names_used(e, self.scope.lets) for e in exprs)
            self.family._varies[known] = varies
        return what, id(node), index if varies else -1

    def options(self, node: t.Module | t.Operation, index: int) -> Mapping[str, int | str]:
        """Evaluate the named attributes of a module or operation."""
        key = self._key("options", node, tuple(o.value for o in node.options), index)
        if key not in self._cache:
            out: dict[str, int | str] = {}
            for option in node.options:
                value = evaluate(option.value, self.scope)
                if isinstance(value, bool):
                    value = int(value)
                out[option.name] = value if isinstance(value, str) else _whole(value, f"`{option.name}`", self.family, option)
            self._cache[key] = out
        found: Mapping[str, int | str] = self._cache[key]
        return found


def _join(template: str, index: int) -> str:
    return template.replace("{i}", str(index)) if index >= 0 else template


def _member(walk: Walk, node: t.Module, checkpoint: str, index: int) -> Member | None:
    sizes = walk.sizes(node, index)
    if sizes is None:
        return None
    heads = walk.options(node, index).get("heads", 0)
    return Member(checkpoint, sizes[0], sizes[1], _style(node), heads if isinstance(heads, int) else 0)


def modules(family: Family, config: Mapping[str, Any]) -> list[Module]:
    """List every module that the loader builds for a config, in model order.

    Raises
    ------
    CheckpointError
        A size is missing, no whole number, or contradicts a `require` of the family.
    """
    walk = Walk(family, config)
    walk.check()
    out: list[Module] = []
    for stack, index, block in walk.blocks():
        for template in block.templates:
            active = [
                (node, name)
                for node, name in zip(template.members, template.checkpoint, strict=True)
                if node.when is None or evaluate(node.when, walk.scope)
            ]
            if not active:
                continue
            names = tuple(_join(name, index) for _, name in active)
            members = [_member(walk, node, name, index) for (node, _), name in zip(active, names, strict=True)]
            first = active[0][0]
            attributes = {k: v for k, v in walk.options(first, index).items() if isinstance(v, int)} if first.options else {}
            configured = template.configured
            if configured and template.never_when is not None:
                configured = not evaluate(template.never_when, walk.scope)
            out.append(
                Module(
                    _join(template.path, index),
                    names,
                    first.kind,
                    template.cls,
                    template.op,
                    index,
                    stack.name,
                    block.name,
                    configured,
                    stack.priced and not any("unpriced" in n.flags for n, _ in active),
                    tuple(m for m in members if m is not None),
                    attributes,
                    family.file,
                    first.at.line,
                )
            )
    if not out:
        raise RuleError("BL118", f"family `{family.name}` builds no module", place=family.file, help="add `stack` and module statements")
    return out


def operations(family: Family, config: Mapping[str, Any], values: Mapping[str, int | str]) -> tuple[list[Operation], list[OverlapGroup]]:
    """List every operation without weights, in layer order, and the overlap groups.

    Parameters
    ----------
    values
        What the shapes may use: ``tp``, ``ep``, ``dp``, ``moe_tp``, and the ``phase``.
    """
    walk = Walk(family, config, values)
    out: list[Operation] = []
    groups: list[OverlapGroup] = []
    seen: set[tuple[str, str, str]] = set()
    for stack, index, block in walk.blocks():
        if not stack.priced:
            continue
        for node in block.operations:
            if node.when is None or evaluate(node.when, walk.scope):
                out.append(Operation(node.name, node.kind, index, stack.name, block.name, walk.options(node, index), "", family.file, node.at.line))
        for overlap in block.overlaps:
            key = (stack.name, block.name, overlap.name)
            if key not in seen and (overlap.when is None or evaluate(overlap.when, walk.scope)):
                seen.add(key)
                groups.append(OverlapGroup(overlap.name, block.name, stack.name, overlap.phase, (overlap.left, overlap.right)))
    return out, groups


__all__ = ["ABSENT", "Family", "compile_family", "find_file", "modules", "operations"]
