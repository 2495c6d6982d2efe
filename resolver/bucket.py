"""The contract between resolution and pricing: one priced operation, rank-local, free of any workload."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Rows = Literal["tokens", "sequences"]

# Required integer (or string) shape keys per kind; sizes are per rank unless a comment says otherwise.
SHAPE_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "gemm": ("n", "k"),
        # hidden, inter and experts are the whole model's; tp and ep divide them.
        "moe": ("hidden", "inter", "topk", "experts", "tp", "ep", "gated"),
        "attention": ("heads", "kv_heads", "head_dim", "window"),
        # Head and group counts are the whole model's; tp divides them.
        "mamba2_conv": ("d_model", "d_state", "d_conv", "heads", "head_dim", "groups", "chunk", "tp"),
        "mamba2_ssm": ("d_model", "d_state", "d_conv", "heads", "head_dim", "groups", "chunk", "tp"),
        # Head counts are per rank.
        "gdn": ("d_model", "d_conv", "k_heads", "k_head_dim", "v_heads", "v_head_dim"),
        "allreduce": ("elements", "gpus"),  # elements per token
        "nccl": ("elements", "gpus", "collective"),  # collective: all_gather, reduce_scatter, alltoall, all_reduce
        "moe_dispatch": ("hidden", "topk", "experts", "ep", "direction"),  # direction: dispatch or combine
        "elementwise": ("bytes",),  # bytes moved per token
        "embedding": ("hidden",),
        "p2p": ("elements",),  # elements per token
        # An operation without measured table: cost stated per token and per (token x context) pair.
        "roofline": ("flops", "bytes", "context_flops", "context_bytes"),
    }
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Layers that share one operation at one precision.

    Attributes
    ----------
    op
        Operation name, without the phase (``mamba_in_proj``); buckets of one name add up.
    kind
        Key of :data:`SHAPE_KEYS`.
    lane
        What the GPU runs (``fp8_static``, ``nvfp4_wo``); attention carries the KV-cache lane (``bf16``, ``fp8``).
    layers
        How many layers (or single modules) share the operation.
    shape
        The keys of ``SHAPE_KEYS[kind]``.
    rows
        What drives the row count: every token, or one row per sequence (the language-model head in prefill).
    overlap
        Name of the overlap group and side (``"moe/shared"``), empty when the operation runs alone.
    algorithm
        Declared algorithm behind the lane.
    modules
        Loader-side modules behind the bucket, in model order.
    """

    op: str
    kind: str
    lane: str
    layers: int
    shape: Mapping[str, int | str]
    rows: Rows = "tokens"
    overlap: str = ""
    algorithm: str = ""
    modules: tuple[str, ...] = ()
