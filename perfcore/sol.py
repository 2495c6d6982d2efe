"""Rooflines: the least time that the bytes and operations of one call need on a system.

A roofline is a short list of rows, each adding ``coefficient * a0**p0 * a1**p1 * form(x, parameter)`` milliseconds to
the compute sum or to the memory (or link) sum; the roofline is the larger sum. The same rows drive the numpy path and
the kernels. Peaks, bandwidths and link rates are the plain figures of ``systems.yaml``, without efficiency factors, so
a roofline is a bound and not an estimate. Activations are charged at their own bytes, outputs at bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import MissingDataError, UsageError
from . import layout as lay

if TYPE_CHECKING:
    from .policy import Cost, Policy

Row = tuple[int, float, int, int, int, float]
Key = Mapping[str, Any]
COMPUTE: Final = 0
MEMORY: Final = 1
ONE: Final = 0
LINE: Final = 1
SQUARE: Final = 2
SATURATING: Final = 3


@dataclass(frozen=True, slots=True)
class Machine:
    """One system's figures in the units of the rows: milliseconds per operation and per byte."""

    name: str
    facts: Mapping[str, Any]

    def op(self, peak: str) -> float:
        """Milliseconds per floating-point (or integer) operation at a named peak.

        Raises
        ------
        MissingDataError
            BL521: the system has no such peak, so it cannot run the lane natively.
        """
        name = "peak_ops_int8_dense" if peak == "int8" else f"peak_flops_{peak}_dense"
        value = self.facts.get(name)
        if not value:
            raise MissingDataError(
                "BL521",
                f"system `{self.name}` has no {peak} peak, so no roofline for that lane",
                place=f"systems.yaml: {self.name}.{name}",
                help="price the weight-only lane that the loader builds there, or add the peak",
            )
        return 1e3 / float(value)

    @property
    def byte(self) -> float:
        """Milliseconds per byte of memory traffic."""
        return 1e3 / float(self.facts["memory_bandwidth_bytes_per_s"])

    def link(self, gpus: int) -> float:
        """Milliseconds per byte over the slowest link that a group of this size must use."""
        inside = gpus <= int(self.facts["gpus_per_node"])
        name = "intra_node_bytes_per_s_per_gpu_one_way" if inside else "inter_node_bytes_per_s_per_gpu_one_way"
        return 1e3 / float(self.facts[name])

    @property
    def launch(self) -> float:
        """Milliseconds that a memory-bound kernel costs beyond its bytes (a guess of systems.yaml's authors)."""
        return 1e3 * float(self.facts["memory_op_constant_s_guess"])

    @property
    def usable(self) -> float:
        """Fraction of the memory bandwidth that simple kernels reach (a guess of systems.yaml's authors)."""
        return float(self.facts["memory_bandwidth_usable_fraction_guess"])


def machine(systems: Mapping[str, Mapping[str, Any]], name: str) -> Machine:
    """Return a system by its name in ``systems.yaml``.

    Raises
    ------
    UsageError
        BL522: no such system.
    """
    if name not in systems:
        raise UsageError(
            "BL522", f"unknown system `{name}`", place="--system", help=f"one of {', '.join(sorted(systems))}"
        )
    return Machine(name, systems[name])


def table_rows(table: str, key: Key, machine: Machine, policy: Policy) -> list[Row]:
    """Return the roofline of a table's slab in its own axes (a0, a1, x)."""
    return _TABLES[table](key, machine, policy)


def value(rows: Sequence[Row], a0: float, a1: float, x: float) -> float:
    """Evaluate a roofline at one point, in milliseconds."""
    sums = [0.0, 0.0]
    for which, coefficient, p0, p1, form, parameter in rows:
        sums[which] += coefficient * a0**p0 * a1**p1 * shape(form, parameter, x)
    return max(sums)


def shape(form: int, parameter: float, x: float) -> float:
    """Evaluate a row's dependence on x."""
    if form == LINE:
        return max(x - parameter, 0.0)
    if form == SQUARE:
        return max(x - parameter, 0.0) ** 2
    if form == SATURATING:
        return -math.expm1(-parameter * x)
    return 1.0


def gemm(cost: Cost, m: Machine) -> list[Row]:
    """``y[x, n] = x[x, k] W[n, k]`` with a0 = n, a1 = k."""
    return [
        (COMPUTE, 2.0 * m.op(cost.peak), 1, 1, LINE, 0.0),
        (MEMORY, cost.weight * m.byte, 1, 1, ONE, 0.0),
        (MEMORY, cost.activation * m.byte, 0, 1, LINE, 0.0),
        (MEMORY, 2.0 * m.byte, 1, 0, LINE, 0.0),
    ]


def moe(key: Key, cost: Cost, m: Machine, *, gated: bool = True) -> list[Row]:
    """Routed experts of one layer on one rank; x = tokens entering the layer.

    Weights are charged for the experts that `x` tokens touch under uniform routing, E (1 - (1 - k/E)^x).
    """
    hidden, inter = float(key["hidden_size"]), float(key["inter_size"]) / key["moe_tp_size"]
    experts, topk, ep = float(key["num_experts"]), float(key["topk"]), float(key["moe_ep_size"])
    matrices = 3.0 if gated else 2.0
    weights = matrices * hidden * inter
    routed = topk / ep
    share = min(topk / experts, 1.0)
    rate = -math.log1p(-share) if share < 1.0 else 50.0
    # One gather of the inputs, one write and read of the intermediate, one scatter of the outputs.
    moved = hidden * cost.activation + (2.0 + cost.activation) * inter + 2.0 * hidden
    return [
        (COMPUTE, 2.0 * weights * routed * m.op(cost.peak), 0, 0, LINE, 0.0),
        (MEMORY, weights * cost.weight * experts / ep * m.byte, 0, 0, SATURATING, rate),
        (MEMORY, moved * routed * m.byte, 0, 0, LINE, 0.0),
    ]


def context_attention(head_dim: int, kv_heads: int, window: int, kv_bytes: float, m: Machine) -> list[Row]:
    """Causal attention of a fresh prompt: a0 = query heads, a1 = batch, x = prompt length."""
    pair = 4.0 * head_dim * m.op("bfloat16")
    rows: list[Row] = [
        (COMPUTE, pair / 2.0, 1, 1, SQUARE, 0.0),
        (MEMORY, 4.0 * head_dim * m.byte, 1, 1, LINE, 0.0),
        (MEMORY, 2.0 * kv_heads * head_dim * kv_bytes * m.byte, 0, 1, LINE, 0.0),
    ]
    if window:
        rows.append((COMPUTE, -pair / 2.0, 1, 1, SQUARE, float(window)))
    return rows


def generation_attention(head_dim: int, kv_heads: int, window: int, kv_bytes: float, m: Machine) -> list[Row]:
    """One new token per sequence: a0 = query heads, a1 = batch, x = key-value length."""
    pair = 4.0 * head_dim * m.op("bfloat16")
    read = 2.0 * kv_heads * head_dim * kv_bytes * m.byte
    rows: list[Row] = [
        (COMPUTE, pair, 1, 1, LINE, 0.0),
        (MEMORY, read, 0, 1, LINE, 0.0),
        (MEMORY, 4.0 * head_dim * m.byte, 1, 1, ONE, 0.0),
    ]
    if window:
        rows += [(COMPUTE, -pair, 1, 1, LINE, float(window)), (MEMORY, -read, 0, 1, LINE, float(window))]
    return rows


def conv(channels: float, width: int, m: Machine, *, decode: bool) -> list[Row]:
    """Causal depthwise convolution: a1 = batch, x = new tokens per sequence; decode also moves the conv state."""
    rows: list[Row] = [(MEMORY, 4.0 * channels * m.byte, 0, 1, LINE, 0.0)]
    if decode:
        rows.append((MEMORY, 4.0 * channels * (width - 1) * m.byte, 0, 1, ONE, 0.0))
    return rows


def delta_rule(k_heads: int, k_dim: int, v_heads: int, v_dim: int, m: Machine) -> list[Row]:
    """Gated delta rule: reads q, k, v, writes o, reads and writes an fp32 state per sequence and value head."""
    moved = 2.0 * (2.0 * k_heads * k_dim + 2.0 * v_heads * v_dim)
    return [
        (COMPUTE, 6.0 * v_heads * k_dim * v_dim * m.op("bfloat16"), 0, 1, LINE, 0.0),
        (MEMORY, moved * m.byte, 0, 1, LINE, 0.0),
        (MEMORY, 8.0 * v_heads * k_dim * v_dim * m.byte, 0, 1, ONE, 0.0),
    ]


def ssm(heads: float, head_dim: int, groups: float, d_state: int, chunk: int, m: Machine, *, decode: bool) -> list[Row]:
    """Selective state-space scan of Mamba-2: a1 = batch, x = new tokens per sequence.

    Inputs x, dt, B, C and output y move once in bfloat16. Decode reads and writes the fp32 state of every sequence;
    prefill writes it once, and writes and reads one fp32 state per chunk, with the matrix products of the chunked scan.
    """
    state = heads * head_dim * d_state * 4.0
    moved = 2.0 * (2.0 * heads * head_dim + 2.0 * groups * d_state + heads)
    rows: list[Row] = [(MEMORY, moved * m.byte, 0, 1, LINE, 0.0)]
    if decode:
        return [*rows, (MEMORY, 2.0 * state * m.byte, 0, 1, ONE, 0.0)]
    work = heads * (2.0 * chunk * head_dim + 4.0 * d_state * head_dim) + groups * 2.0 * chunk * d_state
    return [
        *rows,
        (MEMORY, 2.0 * state / chunk * m.byte, 0, 1, LINE, 0.0),
        (MEMORY, state * m.byte, 0, 1, ONE, 0.0),
        (COMPUTE, work * m.op("bfloat16"), 0, 1, LINE, 0.0),
    ]


def collective(name: str, gpus: int, element: float, m: Machine) -> list[Row]:
    """Ring bound of a collective; x = message elements."""
    factor = {"all_reduce": 2.0}.get(name, 1.0) * (gpus - 1) / gpus
    return [(MEMORY, factor * element * m.link(gpus), 0, 0, LINE, 0.0)]


def _gemm(key: Key, m: Machine, policy: Policy) -> list[Row]:
    return gemm(policy.cost(key["quant_mode"]), m)


def _moe(key: Key, m: Machine, policy: Policy) -> list[Row]:
    gated = [key["hidden_size"], key["inter_size"]] not in policy.data["ungated_experts"]
    return moe(key, policy.cost(key["quant_mode"]), m, gated=gated)


def kv_bytes(lane: str) -> float:
    """Bytes per cached element of a KV lane."""
    return {"bfloat16": 2.0, "bf16": 2.0, "nvfp4": 0.5625}.get(lane, 1.0)


def _context(key: Key, m: Machine, _: Policy) -> list[Row]:
    return context_attention(
        key["head_dim"], key["num_kv_heads"], key["window_size_tokens"], kv_bytes(key["kv_cache_dtype"]), m
    )


def _generation(key: Key, m: Machine, _: Policy) -> list[Row]:
    return generation_attention(
        key["head_dim"], key["num_kv_heads"], key["window_size_tokens"], kv_bytes(key["kv_cache_dtype"]), m
    )


def _encoder(key: Key, m: Machine, _: Policy) -> list[Row]:
    return [
        (COMPUTE, 4.0 * key["head_dim"] * m.op("bfloat16"), 1, 1, SQUARE, 0.0),
        (MEMORY, 8.0 * key["head_dim"] * m.byte, 1, 1, LINE, 0.0),
    ]


def _gdn(key: Key, m: Machine, _: Policy) -> list[Row]:
    decode = key["phase"] == "generation"
    if "conv1d" in key["kernel_source"]:
        channels = 2.0 * key["num_k_heads"] * key["head_k_dim"] + key["num_v_heads"] * key["head_v_dim"]
        return conv(channels, key["d_conv"], m, decode=decode)
    return delta_rule(key["num_k_heads"], key["head_k_dim"], key["num_v_heads"], key["head_v_dim"], m)


def _mamba2(key: Key, m: Machine, _: Policy) -> list[Row]:
    channels = float(key["num_heads"] * key["head_dim"] + 2 * key["n_groups"] * key["d_state"])
    return conv(channels, key["d_conv"], m, decode=key["phase"] == "generation")


def _dispatch(key: Key, m: Machine, _: Policy) -> list[Row]:
    ranks = int(key["ep_size"])
    copies = min(int(key["topk"]), ranks) * (ranks - 1) / ranks
    return [(MEMORY, copies * key["hidden_size"] * m.link(ranks), 0, 0, LINE, 0.0)]


def _collective(key: Key, m: Machine, _: Policy) -> list[Row]:
    return collective(key["collective"], int(key["num_gpus"]), 1.0 if key["dtype"] == "int8" else 2.0, m)


def _quantize(_key: Key, m: Machine, _: Policy) -> list[Row]:
    return [(MEMORY, 3.0 * m.byte, 0, 1, LINE, 0.0)]


def _nothing(_key: Key, _m: Machine, _: Policy) -> list[Row]:
    return []


_TABLES: Final[Mapping[str, Callable[[Key, Machine, Policy], list[Row]]]] = {
    "gemm": _gemm,
    "moe": _moe,
    "context_attention": _context,
    "generation_attention": _generation,
    "encoder_attention": _encoder,
    "gdn": _gdn,
    "mamba2": _mamba2,
    "moe_dispatch": _dispatch,
    "custom_allreduce": _collective,
    "nccl": _collective,
    "fp8_quantize_static": _quantize,
    # A difference of two timings has no bound of its own.
    "fp8_quantize_dynamic_minus_static": _nothing,
}


def padded(rows: Sequence[Row]) -> list[Row]:
    """Pad to the fixed number of rows that the arrays hold."""
    return [*rows, *([(0, 0.0, 0, 0, 0, 0.0)] * (lay.R_ROWS - len(rows)))]
