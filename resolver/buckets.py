"""Layers grouped into priced operations, one bucket per operation, lane and rank-local shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from .bucket import SHAPE_KEYS, Bucket, Rows
from .walk import operations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .modules import Member, Module, OverlapGroup
    from .resolution import Resolution, Resolved

_PAD = 64


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a model is split.

    Attributes
    ----------
    tp
        Tensor parallel size of attention and dense layers.
    moe_tp, moe_ep
        How the routed experts are split; their product is the number of ranks that share them.
    dp
        Attention data parallel size.
    pp
        Pipeline stages.
    """

    tp: int = 1
    moe_tp: int = 0
    moe_ep: int = 1
    dp: int = 1
    pp: int = 1

    @classmethod
    def of(cls, tp: int = 1, ep: int = 1, dp: int = 1, pp: int = 1, moe_tp: int = 0) -> Parallel:
        """Fill what was left open: experts are split over all of ``tp * dp`` ranks, by expert first.

        Raises
        ------
        UsageError
            BL225: a size below one, or an expert split that does not fill the ranks.
        """
        for name, value in (("tp", tp), ("ep", ep), ("dp", dp), ("pp", pp)):
            if value < 1:
                raise UsageError("BL225", f"{name} is {value}", place=f"--{name}", help="sizes start at 1")
        ranks = tp * dp
        if moe_tp == 0:
            if ranks % ep:
                raise UsageError(
                    "BL225",
                    f"{ep} expert groups do not divide {ranks} ranks",
                    place="--ep",
                    help="ep must divide tp x dp",
                )
            moe_tp = ranks // ep
        if moe_tp * ep != ranks:
            raise UsageError(
                "BL225",
                f"moe_tp {moe_tp} x ep {ep} is not tp {tp} x dp {dp}",
                place="--moe-tp",
                help="the experts are split over all ranks",
            )
        return cls(tp, moe_tp, ep, dp, pp)

    @property
    def values(self) -> dict[str, int]:
        """Names that the shapes of operations may use."""
        return {"tp": self.tp, "ep": self.moe_ep, "moe_tp": self.moe_tp, "dp": self.dp, "pp": self.pp}


def _divide(size: int, parts: int, what: str) -> int:
    if size % parts:
        raise UsageError(
            "BL225",
            f"{what} is {size}, which {parts} ranks do not divide",
            place="--tp",
            help="choose a size that divides it",
        )
    return size // parts


def local(member: Member, tp: int, module: Module) -> tuple[int, int]:
    """Return ``(out, in)`` of one matrix on one rank.

    Raises
    ------
    UsageError
        BL225: the split does not divide the size; heads fewer than ranks are replicated where they divide them.
    """
    what = f"the {'input' if member.style == 'row' else 'output'} of `{module.path}`"
    if tp == 1 or member.style == "replicated":
        return member.out, member.into
    if member.style == "row":
        return member.out, _divide(member.into, tp, what)
    if member.heads:
        if member.heads >= tp:
            return _divide(member.heads, tp, f"the head count of `{module.path}`") * (
                member.out // member.heads
            ), member.into
        if tp % member.heads:
            raise UsageError(
                "BL225",
                f"`{module.path}` has {member.heads} heads, which {tp} ranks cannot share",
                place="--tp",
                help="choose a multiple or a divisor",
            )
        return member.out // member.heads, member.into
    return _divide(member.out, tp, what), member.into


def _gemm(row: Resolved, tp: int) -> dict[str, int | str]:
    module = row.module
    if module.kind == "lm_head":
        out, into = module.shape or [0, 0]
        return {"n": out if tp == 1 else -(-(-(-out // _PAD) * _PAD) // tp), "k": into}
    sizes = [local(m, tp, module) for m in module.members]
    return {"n": sum(s[0] for s in sizes), "k": sizes[0][1]}


def _moe(row: Resolved, parallel: Parallel) -> dict[str, int | str]:
    a = row.module.attributes
    missing = [k for k in ("hidden", "inter", "topk", "count") if k not in a]
    if missing:
        raise UsageError(
            "BL226",
            f"`{row.module.path}` does not say its {missing[0]}",
            place=f"{row.module.file}:{row.module.line}",
            help="complete the `experts` statement",
        )
    _divide(a["inter"], parallel.moe_tp, f"the intermediate size of `{row.module.path}`")
    _divide(a["count"], parallel.moe_ep, f"the number of experts of `{row.module.path}`")
    return {
        "hidden": a["hidden"],
        "inter": a["inter"],
        "topk": a["topk"],
        "experts": a["count"],
        "tp": parallel.moe_tp,
        "ep": parallel.moe_ep,
        "gated": a.get("gated", 1),
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


def buckets(resolution: Resolution, parallel: Parallel | None = None, phase: str | None = None) -> list[Bucket]:
    """Group a resolution into priced operations.

    Parameters
    ----------
    resolution
        What every module runs at.
    parallel
        The split; one rank by default.
    phase
        ``prefill`` or ``decode``: which overlap groups hold; None leaves overlap out.

    Returns
    -------
    list of Bucket
        In model order; buckets of one op name add up to the per-layer total.
    """
    split = parallel or Parallel.of()
    signatures = _signatures(resolution, split, phase)
    found: dict[_Key, list[str | int]] = {}
    rows_of: dict[_Key, Rows] = {}
    order = _Order(resolution)
    for row in resolution.rows:
        if not row.module.priced:
            continue
        kind, shape, rows = _module_bucket(row, split)
        overlap = signatures.get((row.module.stack, row.module.layer, row.module.op), "")
        key = (row.module.op, kind, row.lane.lane, tuple(shape.items()), overlap, row.answer.algorithm)
        found.setdefault(key, []).append(row.module.path)
        rows_of[key] = rows
        order.see(key, row.module.stack)
    lane = "fp8" if resolution.kv_cache.startswith("fp8") else "bf16"
    values: dict[str, int | str] = {**split.values, "phase": phase or "prefill"}
    for op in operations(resolution.family, resolution.checkpoint.config, values)[0]:
        shape = {k: v for k, v in op.attributes.items() if k != "rows"}
        _complete(op.kind, shape, f"{op.file}:{op.line}")
        overlap = signatures.get((op.stack, op.layer, op.name), "")
        here = lane if op.kind == "attention" else "bf16"
        key = (op.name, op.kind, here, tuple(shape.items()), overlap, here)
        found.setdefault(key, []).append(op.layer)
        # A matrix outside the linear classes may run once per sequence, as a tied head does.
        rows_of[key] = "sequences" if op.attributes.get("rows") == "sequences" else "tokens"
        order.see(key, op.stack)
    return [
        Bucket(
            op,
            kind,
            here,
            len(members),
            dict(shape),
            rows_of[key],
            overlap,
            algorithm,
            tuple(m for m in members if isinstance(m, str)),
        )
        for key in order.sorted()
        for op, kind, here, shape, overlap, algorithm in [key]
        for members in [found[key]]
    ]


class _Order:
    """Keeps buckets in the order of the stacks, and inside one in the order of first sight."""

    def __init__(self, resolution: Resolution) -> None:
        names = [s.name for s in resolution.family.stacks]
        self._rank = {name: n for n, name in reversed(list(enumerate(names)))}
        self._last = len(names)
        self._seen: dict[_Key, tuple[int, int]] = {}

    def see(self, key: _Key, stack: str) -> None:
        rank = self._rank.get(stack, self._last)
        if not stack and key[1] == "gemm":
            rank = self._last
        self._seen.setdefault(key, (rank, len(self._seen)))

    def sorted(self) -> list[_Key]:
        return sorted(self._seen, key=self._seen.__getitem__)


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
        for g in operations(resolution.family, resolution.checkpoint.config, {**parallel.values, "phase": phase})[1]
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


# --- stored weights ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Stored weight bytes of one operation on one rank."""

    op: str
    lane: str
    layers: int
    weights: int
    bytes: float


def weight_bytes(
    resolution: Resolution, bytes_of: Mapping[str, float], parallel: Parallel | None = None
) -> list[WeightBytes]:
    """Sum stored weight bytes per operation and lane on one rank.

    Parameters
    ----------
    bytes_of
        Bytes per weight of each lane, scales included.
    """
    split = parallel or Parallel.of()
    found: dict[tuple[str, str], list[int]] = {}
    for row in resolution.rows:
        total = _weights(row, split)
        found.setdefault((row.module.op, row.lane.lane), []).append(total)
    return [
        WeightBytes(op, lane, len(sizes), sum(sizes), sum(sizes) * bytes_of[lane])
        for (op, lane), sizes in found.items()
    ]


def _weights(row: Resolved, split: Parallel) -> int:
    module = row.module
    if module.kind == "experts":
        a = _moe(row, split)
        matrices = 3 if a["gated"] else 2
        return matrices * int(a["hidden"]) * (int(a["inter"]) // split.moe_tp) * (int(a["experts"]) // split.moe_ep)
    if module.kind in ("lm_head", "embed"):
        out, into = module.shape or [0, 0]
        return (out if split.tp == 1 else -(-out // split.tp)) * into
    return sum(out * into for out, into in _local_sizes(module, split.tp))


def _local_sizes(module: Module, tp: int) -> Iterable[tuple[int, int]]:
    return [local(m, tp, module) for m in module.members]
