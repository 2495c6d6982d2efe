"""Layers grouped into priced operations, one bucket per operation, lane and rank-local shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from .bucket import SHAPE_KEYS, Bucket, Rows
from .parallel import Parallel as Parallel
from .parallel import expert_sizes, local, local_vocabulary
from .splits import OnStage, check
from .walk import operations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .modules import OverlapGroup
    from .resolution import Resolution, Resolved
    from .splits import Stage


def _gemm(row: Resolved, tp: int) -> dict[str, int | str]:
    module = row.module
    if module.kind == "lm_head":
        out, into = module.shape or [0, 0]
        return {"n": local_vocabulary(out, tp), "k": into}
    sizes = [local(m, tp, module) for m in module.members]
    return {"n": sum(s[0] for s in sizes), "k": sizes[0][1]}


def _moe(row: Resolved, parallel: Parallel) -> dict[str, int | str]:
    sizes = expert_sizes(row.module, parallel)
    return {
        "hidden": sizes.hidden,
        "inter": sizes.inter,
        "topk": sizes.topk,
        "experts": sizes.count,
        "tp": parallel.moe_tp,
        "ep": parallel.moe_ep,
        "gated": sizes.gated,
        # Every attention group brings tokens of its own.
        **({"dp": parallel.dp} if parallel.dp > 1 else {}),
    }


def _module_bucket(row: Resolved, parallel: Parallel) -> tuple[str, dict[str, int | str], Rows]:
    match row.module.kind:
        case "experts":
            return "moe", _moe(row, parallel), "tokens"
        case "embed":
            return "embedding", {"hidden": (row.module.shape or [0, 0])[1]}, "tokens"
        case "lm_head":
            return "gemm", _gemm(row, parallel.tp), "sequences"
        case _:
            return "gemm", _gemm(row, parallel.tp), "tokens"


_Key = tuple[str, str, str, tuple[tuple[str, int | str], ...], str, str]


def buckets(
    resolution: Resolution, parallel: Parallel | None = None, phase: str | None = None, stage: Stage | None = None
) -> list[Bucket]:
    """Group a resolution into priced operations.

    Parameters
    ----------
    resolution
        What every module runs at.
    parallel
        The split; one rank by default.
    phase
        ``prefill`` or ``decode``: which overlap groups hold; None leaves overlap out.
    stage
        One pipeline stage alone; by default all of them, which is what one pass costs from end to end.

    Returns
    -------
    list of Bucket
        In model order; buckets of one op name add up to the per-layer total.

    Raises
    ------
    UsageError
        BL225: the engine, or the model's sizes, refuse the split.
    """
    split = parallel or Parallel()
    check(resolution, split)
    found = _Found(resolution)
    signatures = _signatures(resolution, split, phase)
    here = OnStage(resolution, stage)
    for row in resolution.rows:
        if not here(row.module.stack, row.module.layer) or not row.module.priced:
            continue
        kind, shape, rows = _module_bucket(row, split)
        overlap = signatures.get((row.module.stack, row.module.layer, row.module.op), "")
        key = (row.module.op, kind, row.lane.lane, tuple(shape.items()), overlap, row.answer.algorithm)
        found.add(key, row.module.path, rows, row.module.stack)
    cache = "fp8" if resolution.kv_cache.startswith("fp8") else "bf16"
    values: dict[str, int | str] = {**resolution.reading.asked, **split.values, "phase": phase or "prefill"}
    here = OnStage(resolution, stage)
    for op in operations(resolution.family, resolution.checkpoint.config, values)[0]:
        if not here(op.stack, op.layer):
            continue
        shape = {k: v for k, v in op.attributes.items() if k != "rows"}
        _complete(op.kind, shape, f"{op.file}:{op.line}")
        overlap = signatures.get((op.stack, op.layer, op.name), "")
        lane = cache if op.kind == "attention" else "bf16"
        key = (op.name, op.kind, lane, tuple(shape.items()), overlap, lane)
        # A matrix outside the linear classes may run once per sequence, as a tied head does.
        found.add(key, op.layer, "sequences" if op.attributes.get("rows") == "sequences" else "tokens", op.stack)
    return [*found.buckets(), *_hops(resolution, split, stage)]


class _Found:
    """Members by bucket, in the order of the stacks, and inside one in the order of first sight."""

    def __init__(self, resolution: Resolution) -> None:
        names = [s.name for s in resolution.family.stacks]
        self._rank = {name: n for n, name in reversed(list(enumerate(names)))}
        self._last = len(names)
        self._seen: dict[_Key, tuple[int, int]] = {}
        self._members: dict[_Key, list[str | int]] = {}
        self._rows: dict[_Key, Rows] = {}

    def add(self, key: _Key, member: str | int, rows: Rows, stack: str) -> None:
        """Add a module (its path) or an operation (its layer)."""
        rank = self._last if not stack and key[1] == "gemm" else self._rank.get(stack, self._last)
        self._seen.setdefault(key, (rank, len(self._seen)))
        self._members.setdefault(key, []).append(member)
        self._rows[key] = rows

    def buckets(self) -> Iterator[Bucket]:
        """Yield them."""
        for key in sorted(self._seen, key=self._seen.__getitem__):
            op, kind, lane, shape, overlap, algorithm = key
            members = self._members[key]
            modules = tuple(m for m in members if isinstance(m, str))
            yield Bucket(op, kind, lane, len(members), dict(shape), self._rows[key], overlap, algorithm, modules)


def _hops(resolution: Resolution, split: Parallel, stage: Stage | None) -> list[Bucket]:
    """Return what stages hand on: every stage but the last sends, every stage but the first gathers."""
    if split.pp == 1:
        return []
    ends = [r.module.shape for r in resolution.rows if r.module.priced and r.module.kind in ("embed", "lm_head")]
    # A tied head that is the embedding itself is no module of some engines.
    text = resolution.family.scope(resolution.checkpoint.config).base
    hidden = ends[0][1] if ends and ends[0] else text.get("hidden_size")
    if not isinstance(hidden, int) or hidden < 1:
        raise UsageError(
            "BL226",
            "no embedding, head or `hidden_size` tells what stages hand on",
            place=resolution.family.file,
            help="add an `embed` statement",
        )
    asked = {**split.values, "hidden": hidden}
    sent = resolution.lanes.number("hop_elements", asked)
    gathered = resolution.lanes.number("hop_gathered", asked)
    sends = split.pp - 1 if stage is None else int(stage.number < stage.of - 1)
    gathers = split.pp - 1 if stage is None else int(stage.number > 0)
    out = [Bucket("stage_send", "p2p", "bf16", sends, {"elements": sent}, algorithm="bf16")]
    if gathered:
        shape: dict[str, int | str] = {"elements": gathered, "gpus": split.tp, "collective": "all_gather"}
        out.append(Bucket("stage_gather", "nccl", "bf16", gathers, shape, algorithm="bf16"))
    return [b for b in out if b.layers]


def _complete(kind: str, attributes: Mapping[str, int | str], place: str) -> None:
    if kind not in SHAPE_KEYS:
        raise UsageError(
            "BL227", f"unknown operation kind `{kind}`", place=place, help="known: " + ", ".join(sorted(SHAPE_KEYS))
        )
    missing = [k for k in SHAPE_KEYS[kind] if k not in attributes]
    if missing:
        raise UsageError(
            "BL226",
            f"a `{kind}` operation lacks {', '.join(missing)}",
            place=place,
            help="name every size: " + ", ".join(SHAPE_KEYS[kind]),
        )


def _signatures(resolution: Resolution, parallel: Parallel, phase: str | None) -> dict[tuple[str, int, str], str]:
    """Name the overlap group and side of every operation that runs beside others.

    Layers whose overlapping operations have the same lanes form one group: the joint precision signature.
    """
    if phase is None:
        return {}
    groups = [
        g
        for g in operations(
            resolution.family,
            resolution.checkpoint.config,
            {**resolution.reading.asked, **parallel.values, "phase": phase},
        )[1]
        if g.phase in (None, phase)
    ]
    out: dict[tuple[str, int, str], str] = {}
    for group in groups:
        _sign(resolution, group, out)
    return out


def _sign(resolution: Resolution, group: OverlapGroup, out: dict[tuple[str, int, str], str]) -> None:
    wanted = {name: side for side, names in zip(("a", "b"), group.sides, strict=True) for name in names}
    lanes: dict[int, list[tuple[str, str]]] = {}
    for row in resolution.rows:
        if row.module.stack == group.stack and row.module.part == group.part and row.module.op in wanted:
            lanes.setdefault(row.module.layer, []).append((row.module.op, row.lane.lane))
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    for layer, pairs in lanes.items():
        number = numbers.setdefault(tuple(pairs), len(numbers) + 1)
        for name, side in wanted.items():
            out[(group.stack, layer, name)] = f"{group.name}.{number}/{side}"
