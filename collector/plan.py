"""From operations to cases: what must be measured so that a price needs no guess."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from ..resolver.bucket import Bucket
from . import grids
from .case import Build, Case, CasePlan, Dropped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Has = Callable[[str, Mapping[str, int | str]], bool]
Answered = Callable[[Bucket], bool]

# A module that every loader quantizes when it is listed.
BASE_MODULE: Final = "model.layers.0.mlp.down_proj"


def plan(
    buckets: Iterable[Bucket],
    *,
    system: str,
    backend: str,
    version: str,
    grid: grids.Grids,
    has: Has,
    sm: int | None,
    answered: Answered | None = None,
    lanes: Sequence[str] = (),
    export: str = "mixed",
    buildable: frozenset[tuple[str, str]] | None = None,
) -> CasePlan:
    """Cases whose rows the tables lack.

    Parameters
    ----------
    buckets
        Operations of a model at one parallelism, or of several parallelisms one after the other.
    system, backend, version
        Where the rows will belong.
    grid
        Token counts and routings.
    has
        ``has(table, key)``: whether the tables hold a row of exactly this key.
    sm
        Compute capability of the system times ten (100 for B200), ``None`` for a processor.
    answered
        Whether a strict price of the operation succeeds already; such operations are left out. Without it every
        row that is not measured is planned: the exact widths of the model.
    lanes
        Only these lanes, by name or table label; empty means all.
    export
        Whether the checkpoint lists modules (``mixed``) or has one algorithm (``uniform``).
    buildable
        Pairs (table, lane) that the engine can build; ``None`` asks nothing of it.

    Raises
    ------
    UsageError
        ``BL722`` if a lane in `lanes` is unknown, or no operation of the model runs in it.
    """
    buckets = list(buckets)
    wanted = {grids.lane_name(text) for text in lanes}
    _refuse_absent_lanes(buckets, wanted)
    found: dict[str, Case] = {}
    dropped: Counter[tuple[str, str]] = Counter()
    for bucket in buckets:
        if wanted and bucket.lane not in wanted:
            continue
        if answered is not None and answered(bucket):
            continue
        reason = _refusal(bucket, sm, buildable)
        if reason:
            dropped[f"{bucket.op} ({bucket.kind}, {bucket.lane})", reason] += 0
            continue
        for case in _cases(bucket, grid, export):
            if not has(case.table, case.key()):
                found.setdefault(case.id, case)
    cases = tuple(sorted(found.values(), key=Case.sort_key))
    return CasePlan(system, backend, version, cases, _dropped(dropped))


def base_plan(
    *,
    system: str,
    backend: str,
    version: str,
    grid: grids.Grids,
    has: Has,
    sm: int | None,
    lanes: Sequence[str],
    sites: Iterable[tuple[int, int]] | None = None,
) -> CasePlan:
    """Cases of the base GEMM grid, or of given widths at its token counts.

    Parameters
    ----------
    lanes
        Lanes by name or table label.
    sites
        Pairs (n, k); default is the whole grid.

    The other parameters and the errors are those of :func:`plan`.
    """
    cases: list[Case] = []
    dropped: Counter[tuple[str, str]] = Counter()
    pairs = tuple(grid.gemm.sites if sites is None else sites)
    for name in dict.fromkeys(grids.lane_name(text) for text in lanes):
        reason = grids.lane(name).refusal(sm)
        if reason:
            dropped[f"gemm, {name}", reason] += len(pairs) * len(grid.gemm.tokens)
            continue
        cases += [Case("gemm", name, (n, k, m), Build(BASE_MODULE)) for n, k in pairs for m in grid.gemm.tokens]
    missing = {case.id: case for case in cases if not has("gemm", case.key())}
    ordered = tuple(sorted(missing.values(), key=Case.sort_key))
    return CasePlan(system, backend, version, ordered, _dropped(dropped))


def over_topologies(buckets: Iterable[Bucket], topologies: Iterable[tuple[int, int]]) -> list[Bucket]:
    """Routed experts of a model, once per way of splitting them; other operations are left out.

    Parameters
    ----------
    buckets
        Operations of the model on one rank.
    topologies
        Pairs (tensor parallel, expert parallel). One that does not divide the experts is dropped by :func:`plan`.
    """
    experts = [bucket for bucket in buckets if bucket.kind == "moe"]
    return [
        dataclasses.replace(bucket, shape={**bucket.shape, "tp": tp, "ep": ep})
        for bucket in experts
        for tp, ep in topologies
    ]


def _refuse_absent_lanes(buckets: Sequence[Bucket], wanted: set[str]) -> None:
    present = {bucket.lane for bucket in buckets if bucket.kind in grids.TABLES}
    absent = sorted(wanted - present)
    if absent:
        raise UsageError(
            "BL722",
            f"no operation of this model runs in lane {', '.join(f'`{name}`' for name in absent)}",
            place="--lane",
            help=f"its linear layers and experts run in {', '.join(sorted(present)) or 'no lane of the collector'}",
        )


def _refusal(bucket: Bucket, sm: int | None, buildable: frozenset[tuple[str, str]] | None) -> str:
    if bucket.kind not in grids.TABLES:
        return f"the collector does not measure {bucket.kind} yet"
    lane = grids.lanes().get(bucket.lane)
    if lane is None or bucket.kind not in lane.tables:
        return f"the collector cannot build lane {bucket.lane} for {bucket.kind}"
    if buildable is not None and (bucket.kind, bucket.lane) not in buildable:
        return f"this engine does not build lane {bucket.lane}"
    refusal = lane.refusal(sm)
    if refusal or bucket.kind != "moe":
        return refusal
    shape = {name: _number(bucket, name) for name in ("inter", "experts", "tp", "ep")}
    if shape["tp"] > 1 and shape["ep"] > 1:
        return "the engine splits experts by tensor or by expert parallelism, not by both"
    if shape["inter"] % shape["tp"]:
        return f"tensor parallelism {shape['tp']} does not divide the experts' width {shape['inter']}"
    if shape["experts"] % shape["ep"]:
        return f"expert parallelism {shape['ep']} does not divide {shape['experts']} experts"
    return ""


def _number(bucket: Bucket, name: str) -> int:
    value = bucket.shape[name]
    if isinstance(value, str):
        raise UsageError("BL724", f"`{name}` of operation `{bucket.op}` is not a number", place=bucket.op)
    return value


def _cases(bucket: Bucket, grid: grids.Grids, export: str) -> Iterable[Case]:
    module = bucket.modules[0] if bucket.modules else ""
    if bucket.kind == "gemm":
        site = (_number(bucket, "n"), _number(bucket, "k"))
        build = Build(module or BASE_MODULE, export)
        return [Case("gemm", bucket.lane, (*site, m), build) for m in grid.gemm.tokens]
    shape = tuple(_number(bucket, name) for name in ("hidden", "inter", "topk", "experts", "tp", "ep"))
    build = Build(module, export, bool(_number(bucket, "gated")))
    return [
        Case("moe", bucket.lane, (*shape, routing, tokens), build)
        for routing in grid.moe.routings
        for tokens in grid.moe.tokens
    ]


def _dropped(found: Counter[tuple[str, str]]) -> tuple[Dropped, ...]:
    return tuple(Dropped(what, reason, count) for (what, reason), count in sorted(found.items()))
