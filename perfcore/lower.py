"""From a bucket and a phase to priced parts: which table, which key, which coordinates, which roofline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from ..resolver.bucket import SHAPE_KEYS, Bucket
from . import sol
from . import workload as wl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .policy import Policy


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A size: ``scale`` times a column of the workload table."""

    scale: float
    variable: int = wl.ONE


@dataclass(frozen=True, slots=True)
class Part:
    """One table row (or formula) behind an operation.

    Attributes
    ----------
    kind
        Which section of the policy knows its lanes (``gemm``, ``moe``, ``attention``), or empty.
    table
        Measured table, or empty for a formula.
    key
        Key columns except the origin and, for a part with lanes, the lane column.
    lane
        What the GPU runs; the policy says which rows answer for it.
    a0
        Fixed first outer coordinate.
    a1, x
        Second outer coordinate and curve coordinate.
    roofline
        Rows of :mod:`bitlane.perfcore.sol` in (a0, a1, x), for this lane and system.
    sign
        1, or -1 for what a cached prefix saves.
    constant
        Milliseconds added to a formula.
    least
        A formula costs at least this many milliseconds.
    """

    kind: str
    table: str
    key: Mapping[str, Any]
    lane: str
    a0: float
    a1: Coordinate
    x: Coordinate
    roofline: list[sol.Row]
    sign: int = 1
    constant: float = 0.0
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Op:
    """A bucket made ready for pricing.

    Attributes
    ----------
    bucket
        The bucket.
    name
        ``context_`` or ``generation_`` + operation + kind.
    parts
        What is added up.
    size
        What the JSON shows as shape beside the bucket's own: name -> coordinate.
    measurable
        Whether a measured price could exist; formulas of the policy (elementwise and the like) are not.
    gap
        For an operation whose table nobody has: the word that ``allow_roofline`` must hold.
    method
        How its parts are combined, for the origin.
    """

    bucket: Bucket
    name: str
    parts: tuple[Part, ...]
    size: Mapping[str, Coordinate] = field(default_factory=dict)
    gap: str = ""
    method: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What lowering needs to know beside the bucket."""

    phase: wl.Phase
    machine: sol.Machine
    policy: Policy
    routing: str
    prefixed: bool


def lower(bucket: Bucket, context: Context) -> Op:
    """Lower one bucket.

    Raises
    ------
    UsageError
        BL524: unknown kind or a missing shape key; BL520: unknown lane.
    """
    if bucket.kind not in _KINDS:
        raise UsageError("BL524", f"unknown bucket kind `{bucket.kind}`", place=bucket.op)
    missing = [key for key in SHAPE_KEYS[bucket.kind] if key not in bucket.shape]
    if missing:
        raise UsageError("BL524", f"bucket `{bucket.op}` lacks shape key `{missing[0]}`", place=bucket.op)
    return _KINDS[bucket.kind](bucket, context)


def _name(bucket: Bucket, context: Context) -> str:
    stem = f"{wl.PHASE_PREFIX[context.phase]}_{bucket.op}"
    return stem if f"_{bucket.op}".endswith(f"_{bucket.kind}") else f"{stem}_{bucket.kind}"


def _rows(bucket: Bucket) -> int:
    return wl.TOKENS if bucket.rows == "tokens" else wl.BATCH


def _whole(bucket: Bucket, *names: str) -> list[int]:
    return [int(bucket.shape[name]) for name in names]


def _gemm(bucket: Bucket, context: Context) -> Op:
    n, k = _whole(bucket, "n", "k")
    m = Coordinate(1.0, _rows(bucket))
    rows = sol.gemm(context.policy.cost(bucket.lane), context.machine)
    part = Part("gemm", "gemm", {}, bucket.lane, float(n), Coordinate(float(k)), m, rows)
    return Op(bucket, _name(bucket, context), (part,), {"m": m})


def _moe(bucket: Bucket, context: Context) -> Op:
    hidden, inter, topk, experts, tp, ep, gated = _whole(
        bucket, "hidden", "inter", "topk", "experts", "tp", "ep", "gated"
    )
    key = {
        "routing_distribution": context.routing, "hidden_size": hidden, "inter_size": inter, "topk": topk,
        "num_experts": experts, "moe_tp_size": tp, "moe_ep_size": ep,
    }  # fmt: skip
    # The experts see the tokens of every attention group.
    x = Coordinate(float(bucket.shape.get("dp", 1)), wl.TOKENS)
    rows = sol.moe(key, context.policy.cost(bucket.lane), context.machine, gated=bool(gated))
    part = Part("moe", "moe", key, bucket.lane, 0.0, Coordinate(0.0), x, rows)
    return Op(bucket, _name(bucket, context), (part,), {"tokens": x})


def _attention(bucket: Bucket, context: Context) -> Op:
    heads, kv_heads, head_dim, window = _whole(bucket, "heads", "kv_heads", "head_dim", "window")
    key = {
        "attn_dtype": "bfloat16", "head_dim": head_dim, "window_size_tokens": window, "num_kv_heads": kv_heads,
    }  # fmt: skip
    table = "context_attention" if context.phase == "prefill" else "generation_attention"
    roof = sol.context_attention if context.phase == "prefill" else sol.generation_attention
    rows = roof(head_dim, kv_heads, window, sol.kv_bytes(bucket.lane), context.machine)
    if context.phase == "prefill":
        key["prefix_len_tokens"] = 0
    batch, total = Coordinate(1.0, wl.BATCH), Coordinate(1.0, wl.TOTAL)
    parts = [Part("attention", table, key, bucket.lane, float(heads), batch, total, rows)]
    size = {"batch": batch, "isl" if context.phase == "prefill" else "kv_len": total}
    method = ""
    if context.phase == "prefill" and context.prefixed:
        parts.append(
            Part("attention", table, key, bucket.lane, float(heads), batch, Coordinate(1.0, wl.PREFIX), rows, sign=-1)
        )
        size["prefix"] = Coordinate(1.0, wl.PREFIX)
        method = "full minus prefix"
    return Op(bucket, _name(bucket, context), tuple(parts), size, method=method)


def _mamba2_conv(bucket: Bucket, context: Context) -> Op:
    d_model, d_state, d_conv, heads, head_dim, groups, chunk, tp = _whole(bucket, *SHAPE_KEYS["mamba2_conv"])
    decode = context.phase == "decode"
    key = {
        "kernel_source": "causal_conv1d_update" if decode else "causal_conv1d_fn",
        "phase": wl.PHASE_PREFIX[context.phase], "d_model": d_model, "d_state": d_state, "d_conv": d_conv,
        "num_heads": heads, "head_dim": head_dim, "n_groups": groups, "chunk_size": chunk, "tp": tp,
    }  # fmt: skip
    channels = (heads * head_dim + 2 * groups * d_state) / tp
    batch, new = Coordinate(1.0, wl.BATCH), Coordinate(1.0, wl.NEW)
    rows = sol.conv(channels, d_conv, context.machine, decode=decode)
    part = Part("", "mamba2", key, "", 0.0, batch, new, rows)
    return Op(bucket, _name(bucket, context), (part,), {"batch": batch, "seq": new})


def _mamba2_ssm(bucket: Bucket, context: Context) -> Op:
    _, d_state, _, heads, head_dim, groups, chunk, tp = _whole(bucket, *SHAPE_KEYS["mamba2_ssm"])
    rows = sol.ssm(heads / tp, head_dim, groups / tp, d_state, chunk, context.machine, decode=context.phase == "decode")
    batch, new = Coordinate(1.0, wl.BATCH), Coordinate(1.0, wl.NEW)
    part = Part("", "", {}, "", 0.0, batch, new, rows, least=context.machine.launch)
    return Op(bucket, _name(bucket, context), (part,), {"batch": batch, "seq": new}, gap="mamba2",
              method="fp32 state read and written")  # fmt: skip


def _gdn(bucket: Bucket, context: Context) -> Op:
    d_model, d_conv, k_heads, k_dim, v_heads, v_dim = _whole(bucket, *SHAPE_KEYS["gdn"])
    decode = context.phase == "decode"
    shape = {
        "phase": wl.PHASE_PREFIX[context.phase], "d_model": d_model, "d_conv": d_conv, "num_k_heads": k_heads,
        "head_k_dim": k_dim, "num_v_heads": v_heads, "head_v_dim": v_dim,
    }  # fmt: skip
    m = context.machine
    conv = sol.conv(2.0 * k_heads * k_dim + v_heads * v_dim, d_conv, m, decode=decode)
    batch, new = Coordinate(1.0, wl.BATCH), Coordinate(1.0, wl.NEW)
    kernels = context.policy.data["gdn_kernels"][context.phase]
    parts = (
        Part("", "gdn", shape | {"kernel_source": kernels["conv"]}, "", 0.0, batch, new, conv),
        Part("", "gdn", shape | {"kernel_source": kernels["rule"]}, "", 0.0, batch, new,
             sol.delta_rule(k_heads, k_dim, v_heads, v_dim, m)),
    )  # fmt: skip
    return Op(bucket, _name(bucket, context), parts, {"batch": batch, "seq": new}, method="conv row + delta rule row")


def _allreduce(bucket: Bucket, context: Context) -> Op:
    elements, gpus = _whole(bucket, "elements", "gpus")
    key = {
        "collective": "all_reduce", "dtype": "bfloat16", "num_gpus": gpus,
        "launch_mode": context.policy.data["allreduce_launch"][context.phase],
    }  # fmt: skip
    return _message(bucket, context, "custom_allreduce", key, "all_reduce", elements, gpus)


def _nccl(bucket: Bucket, context: Context) -> Op:
    elements, gpus = _whole(bucket, "elements", "gpus")
    name = str(bucket.shape["collective"])
    key = {"collective": name, "dtype": "half", "num_gpus": gpus}
    return _message(bucket, context, "nccl", key, name, elements, gpus)


def _message(
    bucket: Bucket, context: Context, table: str, key: Mapping[str, Any], collective: str, elements: int, gpus: int
) -> Op:
    x = Coordinate(float(elements), _rows(bucket))
    rows = sol.collective(collective, gpus, 2.0, context.machine)
    part = Part("", table if gpus > 1 else "", key, "", 0.0, Coordinate(0.0), x, rows)
    return Op(bucket, _name(bucket, context), (part,), {"elements": x})


def _moe_dispatch(bucket: Bucket, context: Context) -> Op:
    hidden, topk, experts, ep = _whole(bucket, "hidden", "topk", "experts", "ep")
    key = {
        "comm_backend": context.policy.data["moe_dispatch"][context.phase], "phase": str(bucket.shape["direction"]),
        "comm_dtype": "default", "ep_size": ep, "num_nodes": 1, "hidden_size": hidden, "topk": topk,
        "num_experts": experts, "num_sms": context.policy.data["moe_dispatch"]["num_sms"],
    }  # fmt: skip
    x = Coordinate(1.0, wl.TOKENS)
    rows = sol.table_rows("moe_dispatch", key, context.machine, context.policy)
    part = Part("", "moe_dispatch" if ep > 1 else "", key, "", 0.0, Coordinate(0.0), x, rows)
    return Op(bucket, _name(bucket, context), (part,), {"tokens": x})


def _formula(bucket: Bucket, context: Context, per_row: float, rows: int, constant: float, method: str) -> Op:
    x = Coordinate(1.0, rows)
    roof: list[sol.Row] = [(sol.MEMORY, per_row, 0, 0, sol.LINE, 0.0)]
    part = Part("", "", {}, "", 0.0, Coordinate(0.0), x, roof, constant=constant)
    return Op(bucket, _name(bucket, context), (part,), {"rows": x}, method=method)


def _elementwise(bucket: Bucket, context: Context) -> Op:
    m = context.machine
    (size,) = _whole(bucket, "bytes")
    return _formula(
        bucket,
        context,
        size * m.byte / m.usable,
        _rows(bucket),
        m.launch,
        "bytes / (usable fraction x bandwidth) + launch",
    )


def _embedding(bucket: Bucket, context: Context) -> Op:
    m = context.machine
    (hidden,) = _whole(bucket, "hidden")
    return _formula(
        bucket,
        context,
        4.0 * hidden * m.byte / m.usable,
        _rows(bucket),
        m.launch,
        "row read and written, as elementwise",
    )


def _p2p(bucket: Bucket, context: Context) -> Op:
    m = context.machine
    (elements,) = _whole(bucket, "elements")
    byte = 1e3 / float(m.facts["inter_node_bytes_per_s_per_gpu_one_way"])
    latency = 1e3 * float(m.facts["point_to_point_latency_s_guess"])
    return _formula(bucket, context, 2.0 * elements * byte, _rows(bucket), latency, "bytes / inter-node link + latency")


def _roofline(bucket: Bucket, context: Context) -> Op:
    flops, moved, pair_flops, pair_bytes = (float(bucket.shape[key]) for key in SHAPE_KEYS["roofline"])
    m = context.machine
    op = m.op(context.policy.cost(bucket.lane).peak)
    size = Coordinate(1.0, _rows(bucket))
    per_token: list[sol.Row] = [
        (sol.COMPUTE, flops * op, 0, 0, sol.LINE, 0.0), (sol.MEMORY, moved * m.byte, 0, 0, sol.LINE, 0.0),
    ]  # fmt: skip
    parts = [Part("", "", {}, "", 0.0, Coordinate(0.0), size, per_token, least=m.launch)]
    batch = Coordinate(1.0, wl.BATCH)
    square, total = context.phase == "prefill", Coordinate(1.0, wl.TOTAL)
    form, half = (sol.SQUARE, 0.5) if square else (sol.LINE, 1.0)
    pairs: list[sol.Row] = [
        (sol.COMPUTE, half * pair_flops * op, 0, 1, form, 0.0),
        (sol.MEMORY, half * pair_bytes * m.byte, 0, 1, form, 0.0),
    ]
    if pair_flops or pair_bytes:
        parts.append(Part("", "", {}, "", 0.0, batch, total, pairs))
        if square and context.prefixed:
            parts.append(Part("", "", {}, "", 0.0, batch, Coordinate(1.0, wl.PREFIX), pairs, sign=-1))
    return Op(bucket, _name(bucket, context), tuple(parts), {"rows": size}, gap="roofline", method="stated per token")


_KINDS: Final[Mapping[str, Callable[[Bucket, Context], Op]]] = {
    "gemm": _gemm,
    "moe": _moe,
    "attention": _attention,
    "mamba2_conv": _mamba2_conv,
    "mamba2_ssm": _mamba2_ssm,
    "gdn": _gdn,
    "allreduce": _allreduce,
    "nccl": _nccl,
    "moe_dispatch": _moe_dispatch,
    "elementwise": _elementwise,
    "embedding": _embedding,
    "p2p": _p2p,
    "roofline": _roofline,
}
