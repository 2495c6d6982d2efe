"""Prices of a pass: every operation with its source, origin and band, and what the pass adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import overlap
from . import workload as wl
from .explain import CHECKPOINT
from .plan import Evaluation, Plan, compile_plan, describe
from .resolved import SOURCES, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..resolver.bucket import Bucket
    from .lower import Coordinate
    from .store import Store
    from .workload import Workload


@dataclass(frozen=True, slots=True)
class OpPrice:
    """One operation's price.

    Attributes
    ----------
    name
        ``context_`` or ``generation_``, the operation and its kind.
    op, kind, lane, layers, shape
        The bucket, its shape joined by the workload's sizes.
    ms_per_layer, ms
        Milliseconds of one layer, and of all of them.
    source
        ``measured``, ``interpolated``, ``extrapolated``, ``transferred`` or ``roofline``: the weakest of its parts.
    origin
        System, backend and version of the rows, and what was done with them.
    band
        90 % band of `ms`.
    counted_ms
        What of `ms` adds to the pass; less than `ms` only on the shorter side of an overlap group.
    overlap
        Overlap group and side, or empty.
    lacks
        Where own rows do not price the operation: the rows that a measurement would add.
    """

    name: str
    op: str
    kind: str
    lane: str
    layers: int
    shape: Mapping[str, int | float | str]
    ms_per_layer: float
    ms: float
    source: str
    origin: Mapping[str, Any]
    band: tuple[float, float]
    counted_ms: float
    overlap: str = ""
    lacks: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON contract ``bitlane.price/1``."""
        out: dict[str, Any] = {
            "name": self.name, "op": self.op, "kind": self.kind, "lane": self.lane, "layers": self.layers,
            "shape": dict(self.shape), "ms_per_layer": self.ms_per_layer, "ms": self.ms, "source": self.source,
            "origin": dict(self.origin), "band": list(self.band),
        }  # fmt: skip
        if self.lacks:
            out["lacks"] = self.lacks
        if self.overlap:
            out |= {"overlap": self.overlap, "counted_ms": self.counted_ms}
        return out


@dataclass(frozen=True, slots=True)
class StagePrice:
    """One pipeline stage of a pass: its layers ``first`` to ``last`` (``last`` excluded) and its milliseconds."""

    number: int
    first: int
    last: int
    ms: float


@dataclass(frozen=True, slots=True)
class PassPrice:
    """The price of one forward pass.

    Attributes
    ----------
    workload, system, backend, version, mode
        What was priced.
    ops
        Operations in bucket order.
    total_ms
        Sum of what each operation counts; an overlap group counts its longer side.
    band
        90 % band of the total: errors of different operations are taken as independent, layers of one as equal.
    stages
        Pipeline stages, when there are several; the total runs through all of them once.
    collect
        Collector call that lists the rows that the operations lack; empty when they lack none.
    """

    workload: Workload
    system: str
    backend: str
    version: str
    mode: Mode
    ops: tuple[OpPrice, ...]
    total_ms: float
    band: tuple[float, float]
    stages: tuple[StagePrice, ...] = ()
    collect: str = ""

    @property
    def slowest(self) -> StagePrice | None:
        """The stage that every other one waits for once the pipeline is full; its time is the least between passes."""
        return max(self.stages, key=lambda s: s.ms, default=None)

    @property
    def by_source_ms(self) -> dict[str, float]:
        """Counted milliseconds per source, strongest source first; they add up to the total."""
        out = dict.fromkeys(SOURCES, 0.0)
        for op in self.ops:
            out[op.source] += op.counted_ms
        return {source: ms for source, ms in out.items() if ms}

    @property
    def measured_share(self) -> float:
        """Share of the total that is measured rows of exactly this system, backend, version, lane and shape."""
        return self.by_source_ms.get("measured", 0.0) / self.total_ms if self.total_ms else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract ``bitlane.price/1``, without what only the caller knows (checkpoint, loader)."""
        w = self.workload
        slowest = self.slowest
        staged: dict[str, Any] = {}
        if slowest is not None:
            staged = {
                "stages": [
                    {"stage": s.number, "first_layer": s.first, "layers": s.last - s.first, "ms": s.ms}
                    for s in self.stages
                ],
                "slowest_stage": slowest.number,
                "interval_ms": slowest.ms,
            }
        return {
            "schema": "bitlane.price/1", "system": self.system, "backend": self.backend, "version": self.version,
            "mode": self.mode, "phase": w.phase, "batch": w.batch, "isl": w.isl, "prefix": w.prefix,
            "total_ms": self.total_ms, "band": list(self.band), "by_source_ms": self.by_source_ms,
            "measured_share": self.measured_share, "collect": self.collect, **staged,
            "ops": [op.to_dict() for op in self.ops],
        }  # fmt: skip


def price(
    buckets: Iterable[Bucket],
    workload: Workload,
    *,
    system: str,
    backend: str,
    version: str,
    mode: Mode = "SILICON",
    store: Store | None = None,
    allow_roofline: Sequence[str] = (),
    routing: str = "",
    checkpoint: str = CHECKPOINT,
) -> PassPrice:
    """Price one pass.

    Parameters
    ----------
    buckets
        What the resolver made of a checkpoint; shapes are rank-local.
    workload
        Phase, batch and lengths.
    system, backend, version, mode, store, allow_roofline, routing, checkpoint
        See :func:`bitlane.perfcore.compile_plan`.

    Raises
    ------
    MissingRowsError
        BL501 (exit 5): SILICON lacks measured rows.
    UsageError
        Unknown system, lane, mode, or malformed workload.
    """
    table = wl.variables(workload.phase, workload.batch, workload.isl, workload.prefix)
    plan = compile_plan(
        buckets,
        workload.phase,
        system=system,
        backend=backend,
        version=version,
        mode=mode,
        store=store,
        allow_roofline=allow_roofline,
        routing=routing,
        prefixed=workload.prefix > 0,
        checkpoint=checkpoint,
    )
    return assemble(plan, workload, plan.evaluate(table))


def assemble(plan: Plan, workload: Workload, found: Evaluation) -> PassPrice:
    """Put the first pass of an evaluation into words."""
    table = wl.variables(workload.phase, workload.batch, workload.isl, workload.prefix)
    counted = overlap.visible(found.ms, plan.layers, plan.joints)[:, 0]
    ops = []
    lacks = plan.lacks() if plan.mode != "SOL" else {}
    low2 = high2 = 0.0
    for number, planned in enumerate(plan.ops):
        bucket = planned.op.bucket
        one, low, high = (float(a[number, 0]) for a in (found.ms, found.low, found.high))
        share = float(counted[number]) / (one * bucket.layers) if one * bucket.layers else 0.0
        low2 += ((one - low) * bucket.layers * share) ** 2
        high2 += ((high - one) * bucket.layers * share) ** 2
        origin = dict(describe(planned.parts, plan.mode)) | ({"method": planned.op.method} if planned.op.method else {})
        ops.append(
            OpPrice(
                planned.op.name, bucket.op, bucket.kind, bucket.lane, bucket.layers,
                _shape(bucket, planned.op.size, table), one, one * bucket.layers,
                SOURCES[int(found.source[number, 0])], origin, (low * bucket.layers, high * bucket.layers),
                float(counted[number]), bucket.overlap, lacks.get(number, ""),
            )
        )  # fmt: skip
    total = float(counted.sum())
    return PassPrice(
        workload, plan.system, plan.backend, plan.version, plan.mode, tuple(ops), total,
        (max(total - float(np.sqrt(low2)), 0.0), total + float(np.sqrt(high2))),
        collect=plan.collect if lacks else "",
    )  # fmt: skip


def _shape(bucket: Bucket, size: Mapping[str, Coordinate], table: Any) -> dict[str, int | float | str]:
    numbers = {name: int(c.scale * table[c.variable, 0]) for name, c in size.items()}
    return {**numbers, **{k: v for k, v in bucket.shape.items() if k not in numbers}}
