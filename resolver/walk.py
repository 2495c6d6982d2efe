"""A family applied to a config: every module that a loader builds, and every operation that a layer runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError, RuleError, UsageError
from .expressions import evaluate, names_used
from .metadata import json_kind
from .modules import Member, Module, Operation, OverlapGroup
from .parallel import Parallel
from .templates import style
from .values import ABSENT, present

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..grammar import tree as t
    from .family import Family
    from .templates import Block, StackPlan


_ONE_RANK = Parallel().values
# What a family knows of the metadata when nobody has read any.
_PLAIN: Final = {"format": "unquantized"}

# Published models have up to 200; a hostile config may name any number.
MAX_LAYERS: Final = 2_000


def _whole(value: Any, what: str, family: Family, node: t.Node) -> int:
    place = family.place(node)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or (isinstance(value, float) and not value.is_integer())
    ):
        raise CheckpointError(
            "BL212",
            f"{what} is {_shown(value)}, not a whole number",
            place=place,
            help="the config lacks a key that this family needs, or its value is odd",
        )
    if value < 0 or value > 1 << 40:
        raise CheckpointError("BL212", f"{what} is {value}", place=place, help="correct the config")
    return int(value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"the text `{value[:40]}`"
    if isinstance(value, (list, dict)):
        return json_kind(value)
    return "absent" if value is ABSENT else str(value)


class Walk:
    """One pass over a family's layers with a config; yields the blocks that apply."""

    def __init__(self, family: Family, config: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> None:
        self.family = family
        self.scope = family.scope(config)
        self.scope.values.update(
            {**_PLAIN, "loader": family.loader, "architecture": family.architecture, **(values or {})}
        )
        self._cache: dict[tuple[str, int, int], Any] = {}

    def check(self) -> None:
        """Check the family's `require` statements; those that name a parallel size judge the split, not the config."""
        for require in self.family.requires:
            self._require(require)

    def _require(self, require: t.Require) -> None:
        if evaluate(require.test, self.scope):
            return
        place = self.family.place(require)
        if self._splits(require.test):
            raise UsageError("BL225", require.message, place=place, help="choose another split")
        raise CheckpointError("BL213", require.message, place=place, help="compare the config with the published one")

    def _splits(self, expr: t.Expr) -> bool:
        """Return whether an expression names a parallel size."""
        return bool(names_used(expr, self.scope.lets) & _ONE_RANK.keys())

    def blocks(self) -> Iterator[tuple[StackPlan, int, Block]]:
        """Yield (stack, layer index, block) for every block whose condition holds."""
        for stack in self.family.stacks:
            self.scope.values.pop("i", None)
            self.scope.lets = {**self.family.lets, **stack.lets}
            if stack.when is not None and not evaluate(stack.when, self.scope):
                continue
            for require in stack.requires:
                self._require(require)
            for i in [-1] if stack.count is None else range(self.count(stack)):
                if i >= 0:
                    self.scope.values["i"] = i
                for block in stack.blocks:
                    self.scope.lets = {**self.family.lets, **block.lets}
                    if block.when is None or evaluate(block.when, self.scope):
                        yield stack, i, block

    def count(self, stack: StackPlan) -> int:
        """Return how many layers a stack has."""
        count = evaluate(stack.count, self.scope) if stack.count is not None else None
        if stack.count is None or not present(count):
            raise CheckpointError(
                "BL214",
                f"the number of layers of `{stack.name}` is not in the config",
                place=self.family.file,
                help="add the missing key",
            )
        layers = _whole(count, "the number of layers", self.family, stack.count)
        if layers > MAX_LAYERS:
            raise CheckpointError(
                "BL212",
                f"the number of layers of `{stack.name}` is {layers}",
                place=self.family.file,
                help=f"correct the config; more than {MAX_LAYERS} layers are not walked",
            )
        return layers

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
        varies = self.family.varies.get(known)
        if varies is None:
            varies = any("i" in names_used(e, self.scope.lets) for e in exprs)
            self.family.varies[known] = varies
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
                broken = isinstance(value, float) and math.isfinite(value) and not value.is_integer()
                if broken and self._splits(option.value):
                    raise UsageError(
                        "BL225",
                        f"`{option.name}` is {value:g} on one rank",
                        place=self.family.place(option),
                        help="choose another split",
                    )
                out[option.name] = (
                    value if isinstance(value, str) else _whole(value, f"`{option.name}`", self.family, option)
                )
            self._cache[key] = out
        found: Mapping[str, int | str] = self._cache[key]
        return found


def depths(family: Family, config: Mapping[str, Any]) -> dict[str, int]:
    """Return how many layers every priced stack has, in model order."""
    out: dict[str, int] = {}
    walk = Walk(family, config, _ONE_RANK)
    for stack in family.stacks:
        if stack.priced and stack.count is not None:
            walk.scope.lets = {**family.lets, **stack.lets}
            if stack.when is None or evaluate(stack.when, walk.scope):
                out[stack.name] = walk.count(stack)
    return out


def _join(template: str, index: int) -> str:
    return template.replace("{i}", str(index)) if index >= 0 else template


def _member(walk: Walk, node: t.Module, checkpoint: str, index: int) -> Member | None:
    sizes = walk.sizes(node, index)
    if sizes is None:
        return None
    given = walk.options(node, index)
    heads, rows = (v if isinstance(v, int) else 0 for v in (given.get("heads", 0), given.get("head_rows", 0)))
    return Member(checkpoint, sizes[0], sizes[1], style(node), heads, rows)


def modules(family: Family, config: Mapping[str, Any], asked: Mapping[str, Any] | None = None) -> list[Module]:
    """List every module that the loader builds for a config, in model order.

    Parameters
    ----------
    asked
        What conditions may ask besides: the ``format`` of the metadata as the loader reads it, and the GPU's ``sm``.

    Raises
    ------
    CheckpointError
        A size is missing, no whole number, or contradicts a `require` of the family.
    """
    walk = Walk(family, config, {**_ONE_RANK, **(asked or {})})
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
            attributes = (
                {k: v for k, v in walk.options(first, index).items() if isinstance(v, int)} if first.options else {}
            )
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
                    family.file_of(first),
                    first.at.line,
                    template.asked,
                )
            )
    if not out:
        raise RuleError(
            "BL118",
            f"family `{family.name}` builds no module",
            place=family.file,
            help="add `stack` and module statements",
        )
    return out


def operations(
    family: Family, config: Mapping[str, Any], values: Mapping[str, int | str]
) -> tuple[list[Operation], list[OverlapGroup]]:
    """List every operation without weights, in layer order, and the overlap groups.

    Parameters
    ----------
    values
        What the shapes may use: ``tp``, ``ep``, ``dp``, ``moe_tp``, the ``phase``, and ``format`` and ``sm``.
    """
    walk = Walk(family, config, values)
    walk.check()
    out: list[Operation] = []
    groups: list[OverlapGroup] = []
    seen: set[tuple[str, str, str]] = set()
    for stack, index, block in walk.blocks():
        if not stack.priced:
            continue
        out.extend(
            Operation(
                node.name,
                node.kind,
                index,
                stack.name,
                block.name,
                walk.options(node, index),
                family.file_of(node),
                node.at.line,
            )
            for node in block.operations
            if node.when is None or evaluate(node.when, walk.scope)
        )
        for overlap in block.overlaps:
            key = (stack.name, block.name, overlap.name)
            if key not in seen and (overlap.when is None or evaluate(overlap.when, walk.scope)):
                seen.add(key)
                groups.append(
                    OverlapGroup(overlap.name, block.name, stack.name, overlap.phase, (overlap.left, overlap.right))
                )
    return out, groups
