"""What another precision would save or cost: two resolutions priced side by side, and every bucket on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..errors import CheckpointError
from ..resolver.buckets import Parallel, buckets
from . import policy
from .forward import known_routing, price, store_of
from .pricing import price as price_buckets
from .workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..resolver.bucket import Bucket
    from ..resolver.lanes import Lanes
    from ..resolver.resolution import Resolution
    from .modes import Mode
    from .pricing import PassPrice
    from .workload import Phase


@dataclass(frozen=True, slots=True)
class OpChange:
    """One operation before and after; lanes with their layer counts, milliseconds of all layers."""

    op: str
    before: str
    after: str
    before_ms: float
    after_ms: float
    sources: tuple[str, ...]

    @property
    def delta_ms(self) -> float:
        """Milliseconds that the change costs; negative when it saves."""
        return self.after_ms - self.before_ms


@dataclass(frozen=True, slots=True)
class PassChange:
    """One pass before and after."""

    before: PassPrice
    after: PassPrice
    ops: tuple[OpChange, ...]

    @property
    def delta_ms(self) -> float:
        """Change of the whole pass, overlap counted."""
        return self.after.total_ms - self.before.total_ms

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        w = self.before.workload
        return {
            "phase": w.phase, "batch": w.batch, "isl": w.isl,
            "before_ms": self.before.total_ms, "after_ms": self.after.total_ms, "delta_ms": self.delta_ms,
            "before_band_ms": list(self.before.band), "after_band_ms": list(self.after.band),
            "ops": [{**msgspec.to_builtins(o), "delta_ms": o.delta_ms} for o in self.ops],
        }  # fmt: skip


def _lanes(found: PassPrice, op: str) -> str:
    return ", ".join(f"{o.lane} x{o.layers}" for o in found.ops if o.op == op)


@dataclass(frozen=True, slots=True)
class Tables:
    """Where prices come from, when not from the packaged tables alone."""

    perf_data: tuple[Path, ...] = ()
    routing: str = ""


PACKAGED: Final = Tables()


def compare(
    before: Resolution,
    after: Resolution,
    phase: Phase,
    batch: int,
    isl: int,
    parallel: Parallel,
    mode: Mode,
    tables: Tables = PACKAGED,
) -> PassChange:
    """Price one pass under two resolutions of the same model."""
    more: dict[str, Any] = {"perf_data": tables.perf_data, "routing": tables.routing}
    a, b = (price(r, phase=phase, batch=batch, isl=isl, parallel=parallel, mode=mode, **more) for r in (before, after))
    names = list(dict.fromkeys(o.op for p in (a, b) for o in p.ops))
    ops = []
    for name in names:
        old, new = ([o for o in p.ops if o.op == name] for p in (a, b))
        sources = tuple(dict.fromkeys(o.source for o in new))
        ops.append(
            OpChange(name, _lanes(a, name), _lanes(b, name), sum(o.ms for o in old), sum(o.ms for o in new), sources)
        )
    return PassChange(a, b, tuple(ops))


@dataclass(frozen=True, slots=True)
class Option:
    """One bucket at another precision; ``refused`` says why it cannot run."""

    op: str
    lane: str
    layers: int
    other: str
    before_ms: float
    after_ms: float
    source: str
    refused: str = ""

    @property
    def delta_ms(self) -> float:
        """Milliseconds that the other precision costs; negative when it saves."""
        return self.after_ms - self.before_ms


def rank(
    answer: Resolution,
    lanes: Lanes,
    phase: Phase,
    batch: int,
    isl: int,
    parallel: Parallel,
    mode: Mode,
    tables: Tables = PACKAGED,
) -> list[Option]:
    """Price every quantizable bucket at every recipe of the policy, largest saving first."""
    found: list[tuple[Bucket, Bucket]] = []
    refused: list[Option] = []
    for bucket in buckets(answer, parallel, phase):
        if bucket.kind not in ("gemm", "moe") or not _quantizable(answer, bucket):
            continue
        kind = "experts" if bucket.kind == "moe" else "linear"
        for recipe in policy.load().data["recipes"]:
            algorithm, _, activations = recipe.partition(":")
            if algorithm == bucket.algorithm:
                continue
            try:
                lane = lanes.choose(algorithm, activations, kind, answer.format).lane
            except CheckpointError as error:
                refused.append(Option(bucket.op, bucket.lane, bucket.layers, algorithm, 0.0, 0.0, "", error.message))
                continue
            if lane != bucket.lane:
                found.append((bucket, _at(bucket, lane, algorithm)))
    priced = _priced(answer, found, Workload(phase, batch, isl), mode, tables)
    return sorted(priced, key=lambda o: (o.delta_ms, o.op, o.other)) + refused


def _quantizable(answer: Resolution, bucket: Bucket) -> bool:
    return bool(bucket.modules) and answer[bucket.modules[0]].module.configured


def _at(bucket: Bucket, lane: str, algorithm: str) -> Bucket:
    from dataclasses import replace

    return replace(bucket, lane=lane, algorithm=algorithm, overlap="")


def _priced(
    answer: Resolution, pairs: Sequence[tuple[Bucket, Bucket]], work: Workload, mode: Mode, tables: Tables
) -> list[Option]:
    if not pairs:
        return []
    where: dict[str, Any] = {
        "system": answer.system.name,
        "backend": answer.loader,
        "version": answer.version,
        "mode": mode,
        "routing": known_routing(tables.routing),
        "store": store_of(tables.perf_data),
    }
    old = price_buckets([_at(a, a.lane, a.algorithm) for a, _ in pairs], work, **where)
    new = price_buckets([b for _, b in pairs], work, **where)
    return [
        Option(a.op, a.lane, a.layers, b.lane, x.ms, y.ms, y.source)
        for (a, b), x, y in zip(pairs, old.ops, new.ops, strict=True)
    ]
