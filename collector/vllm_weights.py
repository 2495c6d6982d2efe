"""Synthetic weights for a layer that vLLM built, written into its parameters as a checkpoint would be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from . import nvfp4

if TYPE_CHECKING:
    from collections.abc import Iterator

# Trained weights are about this wide; a wider draw would saturate activations.
SPREAD: Final = 0.02
INPUT_SCALE: Final = 1.0 / 448.0


def fill(layer: Any, seed: int, sm: int | None) -> None:
    """Give every parameter of a layer values.

    Parameters
    ----------
    layer
        Holder of the parameters: a linear layer, or routed experts.
    seed
        Seed of the draw.
    sm
        Compute capability times ten, ``None`` without a GPU.

    Notes
    -----
    Parameters come in families, ``weight`` with ``weight_scale`` and ``weight_scale_2``, and the same with a prefix
    ``w13_`` or ``w2_`` for experts. Packed uint8 weights and their scales are quantized together; 8-bit and 16-bit
    weights are drawn, and their scales are the constant that keeps products in range.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed % 2**63)
    parameters = dict(layer.named_parameters(recurse=False))
    done: set[str] = set()
    with torch.no_grad():
        for name, parameter in parameters.items():
            if name.endswith("weight") and parameter.dtype == torch.uint8:
                done |= _fill_packed(name, parameters, generator, sm)
        for name, parameter in parameters.items():
            if name not in done:
                _fill_plain(name, parameter, generator)


def _fill_packed(name: str, parameters: dict[str, Any], generator: Any, sm: int | None) -> set[str]:
    scale_name, tensor_scale_name = f"{name}_scale", f"{name}_scale_2"
    packed, scales = parameters[name], parameters[scale_name]
    tensor_scales = parameters[tensor_scale_name]
    for matrix, matrix_scales, tensor_scale in _matrices(packed, scales, tensor_scales):
        n, half = matrix.shape
        drawn = torch.randn((n, half * 2), generator=generator, device="cpu", dtype=torch.float32).mul_(SPREAD)
        quantized = nvfp4.quantize(drawn.to(device=matrix.device, dtype=torch.bfloat16), sm)
        matrix.copy_(quantized.packed)
        matrix_scales.copy_(quantized.scales)
        tensor_scale.fill_(quantized.tensor_scale)
    return {name, scale_name, tensor_scale_name}


def _matrices(packed: Any, scales: Any, tensor_scales: Any) -> Iterator[tuple[Any, Any, Any]]:
    """One matrix of a linear layer, or one per expert."""
    if packed.dim() == 2:
        yield packed.data, scales.data, tensor_scales.data
        return
    for expert in range(packed.shape[0]):
        yield packed.data[expert], scales.data[expert], tensor_scales.data[expert]


def _fill_plain(name: str, parameter: Any, generator: Any) -> None:
    if name.endswith("input_scale"):
        parameter.data.fill_(INPUT_SCALE)
    elif "scale" in name:
        parameter.data.copy_(
            torch.full(parameter.shape, SPREAD / 100, device="cpu", dtype=torch.float32).to(parameter.dtype)
        )
    elif parameter.dtype == torch.float8_e4m3fn:
        parameter.data.copy_(_drawn(parameter, generator, 100.0).clamp_(-448, 448).to(parameter.dtype))
    elif parameter.is_floating_point():
        parameter.data.copy_(_drawn(parameter, generator, SPREAD).to(parameter.dtype))


def _drawn(parameter: Any, generator: Any, spread: float) -> Any:
    """Standard normal values times `spread`; of experts one is drawn and the others are rolled copies of it."""
    if parameter.dim() < 3:
        return torch.randn(parameter.shape, generator=generator, device="cpu", dtype=torch.float32).mul_(spread)
    one = torch.randn(parameter.shape[1:], generator=generator, device="cpu", dtype=torch.float32).mul_(spread)
    return torch.stack([one.roll(expert, dims=0) for expert in range(parameter.shape[0])])
