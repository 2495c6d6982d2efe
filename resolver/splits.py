"""Splits of a resolved model: the refusals of its engine, and which layers a pipeline stage holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RuleError, UsageError
from .facts import Facts
from .walk import depths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .parallel import Parallel
    from .resolution import Resolution, Resolved


def check(resolution: Resolution, split: Parallel) -> None:
    """Refuse what the engine refuses; a single rank is never refused.

    Raises
    ------
    UsageError
        BL225: with the engine's reason and the rule that states it.
    """
    if split.gpus == 1:
        return
    priced = [r for r in resolution.rows if r.module.priced]
    experts = max((r.module.attributes.get("count", 0) for r in priced if r.module.kind == "experts"), default=0)
    text = resolution.family.scope(resolution.checkpoint.config).base
    resolution.lanes.check_split("model", {**split.values, "experts": experts, "text": text}, "this model")
    facts = Facts(resolution)
    seen: set[object] = set()
    # The vocabulary last: where heads do not divide either, they are the better reason.
    for row in sorted(priced, key=lambda r: r.module.kind in ("embed", "lm_head")):
        known = facts.of(row)
        key = (row.module.kind, row.answer.algorithm, _sizes(row), id(known["entry"]))
        if key not in seen:
            seen.add(key)
            _check_module(resolution, row, split, known)


def _sizes(row: Resolved) -> tuple[object, ...]:
    members = tuple((m.out, m.into, m.style, m.heads, m.head_rows) for m in row.module.members)
    return (*members, *row.module.attributes.items())


def _check_module(resolution: Resolution, row: Resolved, split: Parallel, known: Mapping[str, Any]) -> None:
    module, a = row.module, row.module.attributes
    asked: dict[str, Any] = {
        **split.values, **known, "algorithm": row.answer.algorithm, "activations": row.answer.activations,
        "format": resolution.format, "merged": len(module.members) > 1,
    }  # fmt: skip
    what = f"`{module.path}`"
    if module.kind == "experts":
        sizes = {"experts": a.get("count", 0), "hidden": a.get("hidden", 0), "inter": a.get("inter", 0)}
        resolution.lanes.check_split("experts", {**asked, **sizes}, what)
        return
    for member in module.members:
        rows = member.head_rows or (member.out if member.heads else 0)
        sizes = {
            "out": member.out, "into": member.into, "heads": member.heads, "head_rows": rows,
        }  # fmt: skip
        resolution.lanes.check_split(module.kind, {**asked, **sizes, "style": member.style}, what)


# --- pipeline stages ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage.

    Attributes
    ----------
    number, of
        Which stage of how many, from 0.
    first, last
        Its layers, ``first`` included and ``last`` not.
    """

    number: int
    of: int
    first: int
    last: int


def stages(resolution: Resolution, split: Parallel) -> list[Stage]:
    """Lay the layers over the pipeline stages as the engine does.

    Raises
    ------
    UsageError
        BL225: more stages than layers.
    RuleError
        BL262: the rule `stage_layers` does not lay out every layer once.
    """
    layers = sum(depths(resolution.family, resolution.checkpoint.config).values())
    if split.pp > layers:
        raise UsageError(
            "BL225",
            f"{split.pp} stages for {layers} layers",
            place="--pp",
            help=f"at most {layers}: a stage without layers does nothing",
        )
    out: list[Stage] = []
    start = 0
    for number in range(split.pp):
        asked = {**split.values, "layers": layers, "stage": number}
        size = resolution.lanes.number("stage_layers", asked) if split.pp > 1 else layers
        out.append(Stage(number, split.pp, start, start + size))
        start += size
    if start != layers:
        raise RuleError("BL262", f"`stage_layers` lays out {start} of {layers} layers", place="lanes.rules")
    return out


class OnStage:
    """Follows a model in its order and tells what lies on one stage; None stands for all stages.

    What comes before the layers is on the first stage, anything else outside them on the stage of the layer before it.
    """

    def __init__(self, resolution: Resolution, stage: Stage | None) -> None:
        self._stage = stage
        self._start: dict[str, int] = {}
        self._at = 0
        if stage is not None:
            done = 0
            for stack, count in depths(resolution.family, resolution.checkpoint.config).items():
                self._start[stack] = done
                done += count

    def __call__(self, stack: str, layer: int) -> bool:
        """Return whether the next module or operation, of this stack and layer, is on the stage."""
        if self._stage is None:
            return True
        if stack in self._start and layer >= 0:
            self._at = self._start[stack] + layer
        return self._stage.first <= self._at < self._stage.last
