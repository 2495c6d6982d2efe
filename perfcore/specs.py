"""What every measured table means: key columns, free axes, interpolation and edge rules, as data.

Nothing here computes. `store` packs tables by these declarations, `reference` and `kernels` read the packed rules, so
a new table is a new entry and never a new branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

EdgeRule = Literal["hold_latency", "hold_efficiency", "last_slope", "power_slope"]
EDGE_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {"hold_latency": 0, "hold_efficiency": 1, "last_slope": 2, "power_slope": 3}
)
TRANSFORM_CODES: Final[Mapping[str, int]] = MappingProxyType({"linear": 0, "sqrt": 1})

# Bits of a price's status word.
X_INTERPOLATED: Final = 1
SITE_INTERPOLATED: Final = 2
X_EDGE: Final = 4
SITE_EDGE: Final = 8
PENALTY: Final = 16
FLOORED: Final = 32
MISSING: Final = 64
X_LOW: Final = 256  # with X_EDGE: below the first sample
IN_GAP: Final = 128  # on the grid, but not measured: filled from all its neighbours


@dataclass(frozen=True, slots=True)
class Axis:
    """One free axis.

    Attributes
    ----------
    column
        Table column with the coordinate.
    low, high
        What to do below the first and past the last sample: repeat the latency of the end, keep its efficiency
        (roofline over latency), or go on with the last slope, linear or in log-log.
    align
        Multiple that a kernel needs, by value of the table's lane column; a coordinate that misses it is priced from
        aligned neighbours times the measured penalty.
    """

    column: str
    low: EdgeRule = "hold_latency"
    high: EdgeRule = "hold_efficiency"
    align: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """Two interleaved curves along the last axis that must not be interpolated across.

    ``modulo``: samples with ``x % value != 0`` form the second curve. ``equals``: the sample ``x == value`` stands
    alone. ``where`` restricts the rule to slabs whose key columns have these values.
    """

    rule: Literal["modulo", "equals"]
    value: int
    where: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """How one table is read.

    Attributes
    ----------
    name, label
        File stem, and the name used in messages (``GEMM``).
    lane
        Column that holds the numeric lane (``quant_mode``, ``kv_cache_dtype``, ``dtype``), or empty.
    keys
        Columns that must match exactly; a *slab* is one combination of their values.
    outer0, outer1
        Axes of the site grid (may be absent), blended linearly in latency.
    x
        The curve axis of every site.
    sqrt_where
        Slabs whose curve is interpolated in sqrt(latency): key column -> value.
    redundant
        Columns that follow from others; accepted in queries and ignored.
    split_by
        Key columns beyond origin and lane by which error statistics are kept apart.
    regions
        Upper bounds along x that separate the regions of the error statistics.
    """

    name: str
    label: str
    lane: str
    keys: tuple[str, ...]
    x: Axis
    outer0: Axis | None = None
    outer1: Axis | None = None
    sqrt_where: Mapping[str, int] | None = None
    split: Split | None = None
    redundant: tuple[str, ...] = ()
    split_by: tuple[str, ...] = ()
    regions: tuple[float, ...] = (32.0, 512.0)

    @property
    def axes(self) -> tuple[Axis | None, Axis | None, Axis]:
        """The three axes in storage order."""
        return (self.outer0, self.outer1, self.x)

    @property
    def sites(self) -> bool:
        """Whether the table has two outer axes."""
        return self.outer0 is not None and self.outer1 is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Key and axis columns: together they identify a row."""
        return self.keys + tuple(axis.column for axis in self.axes if axis is not None)


TEXT_COLUMNS: Final = frozenset({
    "system", "backend", "backend_version", "quant_mode", "routing_distribution", "attn_dtype", "kv_cache_dtype",
    "kernel_source", "phase", "comm_backend", "comm_dtype", "collective", "dtype", "launch_mode",
})  # fmt: skip
ORIGIN: Final = ("system", "backend", "backend_version")
_ATTENTION: Final = (*ORIGIN, "attn_dtype", "kv_cache_dtype", "head_dim", "window_size_tokens", "num_kv_heads")

_SPECS: Final = (
    TableSpec(
        "gemm",
        "GEMM",
        "quant_mode",
        (*ORIGIN, "quant_mode"),
        outer0=Axis("n_out_features", align={"fp8": 16, "nvfp4": 32, "fp8_block": 64}),
        outer1=Axis("k_in_features", align={"fp8": 16, "nvfp4": 32, "fp8_block": 128}),
        x=Axis("m_tokens", high="last_slope"),
        split=Split("modulo", 4, {"quant_mode": "fp8_block"}),
        regions=(17.0, 257.0, 4353.0),
    ),
    TableSpec(
        "moe",
        "MoE",
        "quant_mode",
        (
            *ORIGIN,
            "quant_mode",
            "routing_distribution",
            "hidden_size",
            "inter_size",
            "topk",
            "num_experts",
            "moe_tp_size",
            "moe_ep_size",
        ),
        x=Axis("num_tokens", high="last_slope"),
    ),
    TableSpec(
        "context_attention",
        "context attention",
        "kv_cache_dtype",
        (*_ATTENTION, "prefix_len_tokens"),
        outer0=Axis("num_q_heads"),
        outer1=Axis("batch_size", high="last_slope"),
        x=Axis("query_len_tokens", high="power_slope"),
        sqrt_where={"window_size_tokens": 0},
        # One-token rows come from the decode kernel.
        split=Split("equals", 1),
        regions=(256.0, 2048.0),
    ),
    TableSpec(
        "generation_attention",
        "generation attention",
        "kv_cache_dtype",
        _ATTENTION,
        outer0=Axis("num_q_heads"),
        outer1=Axis("batch_size", high="last_slope"),
        x=Axis("kv_len_tokens", high="last_slope"),
        regions=(512.0, 8192.0),
    ),
    TableSpec(
        "encoder_attention",
        "encoder attention",
        "attn_dtype",
        (*ORIGIN, "attn_dtype", "head_dim"),
        outer0=Axis("num_heads"),
        outer1=Axis("batch_size", high="last_slope"),
        x=Axis("seq_len_tokens", high="power_slope"),
        sqrt_where={},
        regions=(256.0, 2048.0),
    ),
    TableSpec(
        "gdn",
        "GDN",
        "",
        (
            *ORIGIN,
            "kernel_source",
            "phase",
            "d_model",
            "d_conv",
            "num_k_heads",
            "head_k_dim",
            "num_v_heads",
            "head_v_dim",
        ),
        outer1=Axis("batch_size", high="last_slope"),
        x=Axis("seq_len_tokens", high="last_slope"),
        redundant=("model_name", "num_tokens"),
        split_by=("kernel_source",),
        regions=(32.0, 512.0),
    ),
    TableSpec(
        "mamba2",
        "Mamba2",
        "",
        (
            *ORIGIN,
            "kernel_source",
            "phase",
            "d_model",
            "d_state",
            "d_conv",
            "num_heads",
            "head_dim",
            "n_groups",
            "chunk_size",
        ),
        outer1=Axis("batch_size", high="last_slope"),
        x=Axis("seq_len_tokens", high="last_slope"),
        redundant=("model_name", "num_tokens"),
        split_by=("kernel_source",),
        regions=(32.0, 512.0),
    ),
    TableSpec(
        "moe_dispatch",
        "MoE dispatch",
        "comm_dtype",
        (
            *ORIGIN,
            "comm_backend",
            "phase",
            "comm_dtype",
            "ep_size",
            "num_nodes",
            "hidden_size",
            "topk",
            "num_experts",
            "num_sms",
        ),
        x=Axis("num_tokens_per_rank", high="last_slope"),
        split_by=("comm_backend", "phase"),
        regions=(128.0, 2048.0),
    ),
    TableSpec(
        "custom_allreduce",
        "all-reduce",
        "dtype",
        (*ORIGIN, "collective", "dtype", "launch_mode", "num_gpus"),
        x=Axis("message_elements", high="last_slope"),
        split_by=("launch_mode",),
        regions=(65536.0, 4194304.0),
    ),
    TableSpec(
        "nccl",
        "NCCL",
        "dtype",
        (*ORIGIN, "collective", "dtype", "num_gpus"),
        x=Axis("message_elements", high="last_slope"),
        regions=(65536.0, 4194304.0),
    ),
    TableSpec(
        "fp8_quantize_static",
        "static fp8 quantization",
        "quant_mode",
        (*ORIGIN, "quant_mode"),
        outer1=Axis("k_in_features"),
        x=Axis("m_tokens", high="last_slope"),
        regions=(257.0, 4353.0),
    ),
    TableSpec(
        "fp8_quantize_dynamic_minus_static",
        "dynamic-minus-static fp8 quantization",
        "quant_mode",
        (*ORIGIN, "quant_mode"),
        outer1=Axis("k_in_features", high="hold_latency"),
        x=Axis("m_tokens", high="last_slope"),
        regions=(257.0, 4353.0),
    ),
)

SPECS: Final[Mapping[str, TableSpec]] = MappingProxyType({spec.name: spec for spec in _SPECS})
