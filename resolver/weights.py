"""Stored weight bytes on one rank, matrix by matrix, scales included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .facts import Facts
from .parallel import Parallel, expert_sizes, local, local_vocabulary
from .splits import OnStage, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .modules import Member, Module
    from .resolution import Resolution, Resolved
    from .splits import Stage


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Stored weight bytes of one operation and lane on one rank.

    Attributes
    ----------
    modules
        How many loader-side modules.
    weights
        Weights on the rank.
    bytes
        Bytes on the rank: the weights and their scales.
    """

    op: str
    lane: str
    modules: int
    weights: int
    bytes: int


def weight_bytes(
    resolution: Resolution, parallel: Parallel | None = None, stage: Stage | None = None
) -> list[WeightBytes]:
    """Sum stored weight bytes per operation and lane on one rank.

    Matrices only: norms, biases and the like are left out, and so are checkpoints' own draft blocks unless the family
    describes them. A head tied to the embedding counts where the embedding is not: on a last stage of several.

    Parameters
    ----------
    parallel
        The split; one rank by default.
    stage
        One pipeline stage alone; by default all of them together.

    Raises
    ------
    UsageError
        BL225: the engine, or the model's sizes, refuse the split.
    CheckpointError
        BL261: no `weights` rule for a lane.
    """
    split = parallel or Parallel()
    check(resolution, split)
    sizes = _Sizes(resolution, split)
    here = OnStage(resolution, stage)
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in resolution.rows:
        tied = row.module.kind == "lm_head" and row.module.attributes.get("tied") and (stage is None or stage.of == 1)
        if here(row.module.stack, row.module.layer) and not tied:
            found.setdefault((row.module.op, row.lane.lane), []).append(sizes.of(row))
    return [
        WeightBytes(op, lane, len(all_), sum(w for w, _ in all_), sum(b for _, b in all_))
        for (op, lane), all_ in found.items()
    ]


class _Sizes:
    """Weights and bytes of modules; memoised, since layers repeat."""

    def __init__(self, resolution: Resolution, split: Parallel) -> None:
        self._resolution, self._split, self._facts = resolution, split, Facts(resolution)
        self._memo: dict[object, tuple[int, int]] = {}

    def of(self, row: Resolved) -> tuple[int, int]:
        """Return (weights, bytes) of a module on one rank."""
        known = self._facts.of(row)
        matrices = tuple(_matrices(row.module, self._split))
        key = (row.lane.lane, row.answer.activations, matrices, id(known["entry"]))
        if key not in self._memo:
            total = stored = 0
            for out, into, copies in matrices:
                asked = {**known, "out": out, "into": into, "kind": row.module.kind}
                asked |= {"activations": row.answer.activations, "algorithm": row.answer.algorithm}
                total += out * into * copies
                stored += copies * self._stored(row.lane.lane, asked)
            self._memo[key] = total, stored
        return self._memo[key]

    def _stored(self, lane: str, asked: dict[str, Any]) -> int:
        """Return the bytes of one matrix; a size of zero has none."""
        weights = asked["out"] * asked["into"]
        return round(weights * self._resolution.lanes.bytes_per_weight(lane, asked)) if weights else 0


def _matrices(module: Module, split: Parallel) -> Iterator[tuple[int, int, int]]:
    """Yield (out, in, how many) of the stored matrices of one module on one rank."""
    if module.kind == "experts":
        sizes = expert_sizes(module, split)
        yield sizes.local_inter, sizes.hidden, sizes.local_count * (2 if sizes.gated else 1)
        yield sizes.hidden, sizes.local_inter, sizes.local_count
    elif module.kind in ("lm_head", "embed"):
        out, into = module.shape or [0, 0]
        yield local_vocabulary(out, split.tp), into, 1
    else:
        for member in module.members:
            yield (*_local(member, split.tp, module), 1)


def _local(member: Member, tp: int, module: Module) -> tuple[int, int]:
    """Return the sizes on one rank; a vision tower or draft block that does not divide stands whole on every rank."""
    try:
        return local(member, tp, module)
    except UsageError:
        if module.priced:
            raise
        return member.out, member.into
