"""Backend ``torch_cuda``: torch on any CUDA device, bfloat16 and per-tensor fp8 by ``torch._scaled_mm``.

A lower bound beside a serving engine's rows, and a check that a machine measures sanely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ..errors import UsageError
from . import cuda_timing, grids
from .engine import Measurement, Origin
from .engine_torch_cpu import linear, normal
from .gpu import gpu_origin, require_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .case import Case

FP8: Final = torch.float8_e4m3fn
LARGEST: Final = 448.0
# torch._scaled_mm wants both widths in multiples of this.
FP8_MULTIPLE: Final = 16


class TorchCuda:
    """The engine; `options` as :func:`~.gpu.gpu_origin` takes them."""

    name = "torch_cuda"

    def __init__(self, options: Mapping[str, str]) -> None:
        require_gpu(self.name)
        self._options = dict(options)

    def origin(self) -> Origin:
        """The current device."""
        return gpu_origin(self.name, "torch", str(torch.__version__), self._options)

    def lanes(self) -> frozenset[tuple[str, str]]:
        """Linear layers in bfloat16, and in fp8 with dynamic and with static activation scales."""
        return frozenset({("gemm", "bf16"), ("gemm", "fp8_dynamic"), ("gemm", "fp8_static")})

    def measure(self, case: Case, seed: int) -> Measurement:
        """Time one layer in a CUDA graph, activation quantization included."""
        refusal = grids.lane(case.lane).refusal(self.origin().sm)
        if refusal:
            raise UsageError("BL739", f"{case.lane} {refusal}", place=case.id)
        generator = torch.Generator().manual_seed(seed % 2**63)
        with torch.inference_mode():
            if case.lane == "bf16":
                calls = linear(case, torch.bfloat16, generator, "cuda")
                return Measurement(cuda_timing.graph_ms(calls), "torch.nn.functional.linear")
            calls = fp8_linear(case, generator, "cuda", static=case.lane == "fp8_static")
            return Measurement(cuda_timing.graph_ms(calls), "torch._scaled_mm")


def fp8_linear(case: Case, generator: Any, device: str, *, static: bool) -> list[Callable[[], object]]:
    """Calls of one fp8 layer: scale and round the activations, then multiply.

    Raises
    ------
    UsageError
        ``BL740`` if a width is no multiple of 16.
    """
    m, n, k = (case.integer(name) for name in ("m", "n", "k"))
    if n % FP8_MULTIPLE or k % FP8_MULTIPLE:
        raise UsageError("BL740", f"torch._scaled_mm needs widths in multiples of {FP8_MULTIPLE}", place=case.id)
    x = normal((m, k), torch.bfloat16, generator, device)
    copies = grids.lane(case.lane).copies
    weights = [normal((n, k), torch.bfloat16, generator, device).to(FP8) for _ in range(copies)]
    one = torch.ones((), device=device)
    return [_scaled_product(x, weight, one, static=static) for weight in weights]


def _scaled_product(x: Any, weight: Any, one: Any, *, static: bool) -> Callable[[], object]:
    def call() -> Any:
        scale = one if static else x.abs().amax().to(torch.float32) / LARGEST
        rounded = (x / scale).clamp(-LARGEST, LARGEST).to(FP8)
        return torch._scaled_mm(rounded, weight.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)

    return call
