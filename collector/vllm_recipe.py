"""What vLLM is asked to build for a case: which of its config classes, with which checkpoint listing, at which path.

Nothing here imports vLLM. The recipe is what a checkpoint's ``quantization_config`` would say about this one module,
so that vLLM's own rules find the precision and its own selectors the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from . import grids

if TYPE_CHECKING:
    from .case import Case

_MODELOPT: Final = "vllm.model_executor.layers.quantization.modelopt"
_FP8: Final = "vllm.model_executor.layers.quantization.fp8"
MIXED: Final = (_MODELOPT, "ModelOptMixedPrecisionConfig")
NVFP4: Final = (_MODELOPT, "ModelOptNvFp4Config")
MODELOPT_FP8: Final = (_MODELOPT, "ModelOptFp8Config")
FP8: Final = (_FP8, "Fp8Config")

DYNAMIC: Final = "FP8_DYNAMIC"
GROUP_SIZE: Final = 16
FP8_BLOCK: Final = 128


@dataclass(frozen=True, slots=True)
class QuantConfig:
    """A vLLM quantization config: class, and the checkpoint metadata that its ``from_config`` reads."""

    module: str
    class_name: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LinearRecipe:
    """One linear layer, per rank.

    Attributes
    ----------
    quant
        Quantization config, ``None`` for a bfloat16 layer.
    prefix
        Module path that vLLM matches.
    n, k
        Output and input features.
    copies
        Layers to rotate through.
    weight_only
        Whether activations must stay in 16 bits.
    """

    quant: QuantConfig | None
    prefix: str
    n: int
    k: int
    copies: int
    weight_only: bool


@dataclass(frozen=True, slots=True)
class ExpertsRecipe:
    """The routed experts of one layer; vLLM takes rank 0's share of them.

    Attributes
    ----------
    hidden, inter, topk, experts
        The whole model's sizes.
    tp, ep
        Ranks that share the layer; one of the two is 1.
    gated
        SwiGLU experts, else ReLU squared with a single up projection.
    """

    quant: QuantConfig | None
    prefix: str
    hidden: int
    inter: int
    topk: int
    experts: int
    tp: int
    ep: int
    gated: bool
    weight_only: bool


def linear(case: Case) -> LinearRecipe:
    """Recipe of a ``gemm`` case.

    Raises
    ------
    UsageError
        ``BL740`` if the lane's weights cannot be laid out for this width.
    """
    lane = grids.lane(case.lane)
    n, k = case.integer("n"), case.integer("k")
    if lane.algorithm in ("NVFP4", "W4A16_NVFP4") and k % GROUP_SIZE:
        raise UsageError(
            "BL740",
            f"{case.lane} stores one scale per {GROUP_SIZE} inputs, {k} is no multiple of it",
            place=case.id,
            help="no checkpoint has this layer in this lane",
        )
    prefix = case.build.module
    return LinearRecipe(
        quant_config(lane.algorithm, case.build.export, (prefix,)), prefix, n, k, lane.copies, lane.weight_only
    )


def experts(case: Case) -> ExpertsRecipe:
    """Recipe of a ``moe`` case; experts are listed one by one, as checkpoints do.

    Raises
    ------
    UsageError
        ``BL741`` if the case does not name the experts' module.
    """
    lane = grids.lane(case.lane)
    prefix = case.build.module
    if not prefix.endswith(".experts"):
        raise UsageError(
            "BL741",
            f"the case names the module `{prefix}`, experts are matched by a path that ends in `.experts`",
            place=case.id,
            help="plan from a checkpoint: `bitlane collect plan CHECKPOINT`",
        )
    size = {name: case.integer(name) for name in ("hidden", "inter", "topk", "experts", "tp", "ep")}
    projections = ("gate_proj", "up_proj", "down_proj") if case.build.gated else ("up_proj", "down_proj")
    listed = tuple(f"{prefix}.{expert}.{name}" for expert in range(size["experts"]) for name in projections)
    quant = quant_config(lane.algorithm, case.build.export, listed)
    return ExpertsRecipe(quant, prefix, **size, gated=case.build.gated, weight_only=lane.weight_only)


def quant_config(algorithm: str | None, export: str, listed: tuple[str, ...]) -> QuantConfig | None:
    """Metadata for one module.

    Parameters
    ----------
    algorithm
        ModelOpt's name, ``FP8_DYNAMIC`` for plain fp8 checkpoints, or ``None``.
    export
        ``mixed`` or ``uniform``.
    listed
        Names under which a mixed export lists it.
    """
    if algorithm is None:
        return None
    if algorithm == DYNAMIC:
        return QuantConfig(*FP8, {"quant_method": "fp8", "activation_scheme": "dynamic"})
    base = {"quant_method": "modelopt", "ignore": []}
    if export == "uniform":
        kind = NVFP4 if "NVFP4" in algorithm else MODELOPT_FP8
        grouped = {"group_size": GROUP_SIZE} if kind is NVFP4 else {}
        return QuantConfig(*kind, {**base, "quant_algo": algorithm, **grouped})
    entry: dict[str, Any] = {"quant_algo": algorithm}
    if "NVFP4" in algorithm:
        entry["group_size"] = GROUP_SIZE
    elif algorithm == "FP8_PB_WO":
        entry["group_size"] = FP8_BLOCK
    metadata = {**base, "quant_algo": "MIXED_PRECISION", "quantized_layers": {name: dict(entry) for name in listed}}
    return QuantConfig(*MIXED, metadata)
