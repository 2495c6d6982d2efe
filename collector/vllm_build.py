"""Build a recipe's layer through vLLM's own classes, and say what vLLM made of it.

vLLM is imported by name when something is built, so that the contract with it can be tested against stand-ins.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, Final

from ..errors import BitlaneError

if TYPE_CHECKING:
    from .vllm_recipe import ExpertsRecipe, LinearRecipe, QuantConfig

# Kernels that multiply 16-bit activations with decoded weights. A kernel that is not here counts as quantizing.
WEIGHT_ONLY_KERNELS: Final = frozenset(
    {
        "MarlinNvFp4LinearKernel",
        "FlashInferCuteDslNvFp4W4A16LinearKernel",
        "B12xNvFp4W4A16LinearKernel",
        "HummingNvFp4LinearKernel",
        # vLLM 0.24 has a method of its own instead of a kernel class.
        "ModelOptNvFp4W4A16LinearMethod",
    }
)
_KERNEL_ATTRIBUTES: Final = ("kernel", "fp8_linear", "w8a8_block_fp8_linear", "fp8_block_linear")
_BACKEND_ATTRIBUTES: Final = ("nvfp4_backend", "fp8_backend", "unquantized_backend", "backend")
UNQUANTIZED_KERNEL: Final = "torch.nn.functional.linear"


class WrongLayerError(BitlaneError):
    """vLLM built something else than the lane; measuring it would put a wrong row into the table."""


def quantization(quant: QuantConfig | None) -> Any:
    """VLLM's config object for checkpoint metadata, ``None`` for none."""
    if quant is None:
        return None
    config_class = getattr(importlib.import_module(quant.module), quant.class_name)
    return config_class.from_config(quant.metadata)


def linear(recipe: LinearRecipe) -> Any:
    """A linear layer as rank 0 holds it, its weights not yet loaded."""
    torch = importlib.import_module("torch")
    layers = importlib.import_module("vllm.model_executor.layers.linear")
    return layers.ReplicatedLinear(
        recipe.k,
        recipe.n,
        bias=False,
        params_dtype=torch.bfloat16,
        quant_config=quantization(recipe.quant),
        prefix=recipe.prefix,
        return_bias=False,
        disable_tp=True,
    )


def experts(recipe: ExpertsRecipe) -> Any:
    """Routed experts as rank 0 of `tp` or `ep` ranks holds them, their weights not yet loaded.

    The caller has set a vLLM config whose expert parallelism is on exactly when ``recipe.ep > 1``.
    """
    torch = importlib.import_module("torch")
    package = importlib.import_module("vllm.model_executor.layers.fused_moe")
    # Renamed in 0.30; both take the same arguments.
    factory = getattr(package, "FusedMoEFactory", None) or package.FusedMoE
    arguments: dict[str, Any] = {
        "num_experts": recipe.experts,
        "top_k": recipe.topk,
        "hidden_size": recipe.hidden,
        "intermediate_size": recipe.inter,
        "params_dtype": torch.bfloat16,
        "quant_config": quantization(recipe.quant),
        "prefix": recipe.prefix,
        "tp_size": recipe.tp * recipe.ep,
        "dp_size": 1,
        "pcp_size": 1,
        "renormalize": True,
        "activation": "silu" if recipe.gated else "relu2_no_mul",
    }
    if not recipe.gated and "ckpt_names" in inspect.signature(factory).parameters:
        arguments["ckpt_names"] = ("up_proj", "down_proj", _no_gate(factory))
    return factory(**arguments)


def _no_gate(factory: Any) -> str | None:
    """How this version spells the missing third projection: 0.32 wants None, 0.30 and 0.31 an empty name."""
    annotation = str(inspect.signature(factory).parameters["ckpt_names"].annotation)
    return None if "None" in annotation else ""


def check_linear(layer: Any, recipe: LinearRecipe) -> str:
    """Name of the kernel that vLLM chose.

    Raises
    ------
    WrongLayerError
        ``BL742`` if the layer is not quantized and should be, or is and should not be; ``BL743`` if it quantizes
        activations in a weight-only lane.
    """
    method = layer.quant_method
    _check_quantized(type(method).__name__, recipe.quant, recipe.prefix)
    if recipe.quant is None:
        return UNQUANTIZED_KERNEL
    kernels = [getattr(method, name, None) for name in _KERNEL_ATTRIBUTES]
    name = next((type(kernel).__name__ for kernel in kernels if kernel is not None), type(method).__name__)
    if recipe.weight_only and name not in WEIGHT_ONLY_KERNELS:
        raise _quantizes(recipe.prefix, name)
    return name


def check_experts(layer: Any, recipe: ExpertsRecipe) -> str:
    """Name of what runs: method, backend and experts class, as the imported tables spell it.

    Raises
    ------
    WrongLayerError
        As :func:`check_linear`.
    """
    held = getattr(layer, "routed_experts", layer)
    method = held.quant_method
    _check_quantized(type(method).__name__, recipe.quant, recipe.prefix)
    backends = [getattr(method, name, None) for name in _BACKEND_ATTRIBUTES]
    backend = next((str(getattr(entry, "value", entry)) for entry in backends if entry is not None), "default")
    experts_class = getattr(getattr(method, "experts_cls", None), "__name__", "")
    words = ["vllm", type(method).__name__.removesuffix("Method"), backend, experts_class]
    name = "_".join(word.lower().replace(" ", "_") for word in words if word)
    if recipe.weight_only and not _keeps_activations(method):
        raise _quantizes(recipe.prefix, name)
    return name


def _keeps_activations(method: Any) -> bool:
    """Whether the experts' activations stay in 16 bits: their quantization config names no activation type."""
    config = getattr(method, "moe_quant_config", None)
    if config is None:
        return False
    return getattr(config, "quant_dtype", "unknown") is None


def _check_quantized(method: str, quant: QuantConfig | None, prefix: str) -> None:
    plain = method.startswith("Unquantized")
    if plain != (quant is None):
        expected = "without quantization" if quant is None else f"from {quant.class_name}"
        raise WrongLayerError(
            "BL742",
            f"vLLM built `{prefix}` with {method}, the lane asks for a layer {expected}",
            place=prefix,
            help="this version of vLLM may not know the algorithm; nothing was measured",
        )


def _quantizes(prefix: str, kernel: str) -> WrongLayerError:
    return WrongLayerError(
        "BL743",
        f"vLLM runs `{prefix}` with {kernel}, which is not known to leave activations alone",
        place=prefix,
        help="the lane is weight-only; a row of this kernel would belong to another lane",
    )
