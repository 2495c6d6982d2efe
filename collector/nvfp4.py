"""NVFP4 weights in the layout of a checkpoint: two 4-bit values a byte, one fp8 scale per 16, one scale per tensor.

A value is ``E2M1 * block scale * tensor scale``; of two neighbours along k the first is in the low half of the byte.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

import torch

from . import e2m1

BLOCK: Final = 16
LARGEST: Final = 6.0
LARGEST_SCALE: Final = 448.0
# GPUs from here on have vLLM's quantization kernel.
NATIVE_SM: Final = 100


@dataclass(frozen=True, slots=True)
class Nvfp4:
    """A quantized matrix [n, k].

    Attributes
    ----------
    packed
        uint8 [n, k / 2].
    scales
        float8_e4m3fn [n, k / 16].
    tensor_scale
        float32 scalar: largest magnitude / 2688.
    """

    packed: Any
    scales: Any
    tensor_scale: Any


def quantize(weight: Any, sm: int | None) -> Nvfp4:
    """Quantize a bfloat16 matrix with vLLM: its kernel on SM100 and newer, its PyTorch reference elsewhere.

    Parameters
    ----------
    weight
        bfloat16 [n, k], k a multiple of 16.
    sm
        Compute capability times ten, ``None`` without a GPU.
    """
    largest = weight.abs().max().to(torch.float32).clamp(min=1e-6)
    inverse = (LARGEST * LARGEST_SCALE) / largest
    if sm is not None and sm >= NATIVE_SM:
        ops = importlib.import_module("vllm._custom_ops")
        packed, scales = ops.scaled_fp4_quant(weight, inverse, is_sf_swizzled_layout=False)
    else:
        reference = importlib.import_module("vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils")
        values, scales = reference.ref_nvfp4_quant(weight, inverse, BLOCK)
        if not e2m1.representable(values):
            raise ValueError("vLLM's reference quantizer gave a value that E2M1 does not have")
        packed = e2m1.pack(values).to(torch.uint8)
    n, k = weight.shape
    scales = scales.reshape(n, k // BLOCK).to(torch.float8_e4m3fn)
    return Nvfp4(packed.reshape(n, k // 2), scales, 1.0 / inverse)
