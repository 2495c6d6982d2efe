"""Backend ``numpy_cpu``: matrix products by numpy on this machine's processor. Always available.

Lane ``fp32`` multiplies float32. Lane ``bf16`` keeps weights and inputs as bfloat16 in memory and widens them to
float32 inside the timed call, since numpy cannot multiply bfloat16; the row's ``kernel_source`` says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import UsageError
from . import routing, timing
from .engine import Measurement, Origin, cpu_device, cpu_system
from .sidecar import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from .case import Case

    Matrix = npt.NDArray[np.float32]
    Stored = npt.NDArray[Any]

KERNELS: Final = {"fp32": "numpy.matmul", "bf16": "numpy.matmul after widening bfloat16"}


class NumpyCpu:
    """The engine. It takes no options: its rows are of this processor, whatever system a checkpoint is planned for."""

    name = "numpy_cpu"

    def __init__(self, options: Mapping[str, str]) -> None:
        del options

    def origin(self) -> Origin:
        """The processor of this machine."""
        runtime = Runtime("numpy", np.__version__, libraries=_blas())
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return Origin(cpu_system(), self.name, np.__version__, cpu_device(threads), runtime, provenance="local")

    def lanes(self) -> frozenset[tuple[str, str]]:
        """Linear layers and experts, in both types."""
        return frozenset((table, lane) for table in ("gemm", "moe") for lane in KERNELS)

    def measure(self, case: Case, seed: int) -> Measurement:
        """Time one layer; the median over repeated calls."""
        rng = np.random.default_rng(seed)
        if case.table == "gemm":
            return Measurement(timing.median_ms(_linear(case, rng)), KERNELS[case.lane])
        if case.table == "moe":
            kernel = f"{KERNELS[case.lane]}, loop over experts"
            return Measurement(timing.median_ms([_experts(case, rng, seed)]), kernel)
        raise UsageError("BL732", f"engine {self.name} has no layer for `{case.table}`", place=case.id)


def _blas() -> dict[str, str]:
    """Name and version of the BLAS that numpy was built with."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return {str(blas["name"]): str(blas.get("version", "unknown"))} if blas.get("name") else {}


def _linear(case: Case, rng: np.random.Generator) -> list[Callable[[], object]]:
    m, n, k = (case.integer(name) for name in ("m", "n", "k"))
    x = _drawn(rng, case.lane, (m, k))
    weights = [_drawn(rng, case.lane, (n, k)) for _ in range(timing.copies(x.itemsize * n * k))]
    out = np.empty((m, n), np.float32)
    return [_product(x, weight, out) for weight in weights]


def _product(x: Stored, weight: Stored, out: Matrix) -> Callable[[], object]:
    return lambda: np.matmul(_widened(x), _widened(weight).T, out=out)


def _drawn(rng: np.random.Generator, lane: str, shape: tuple[int, ...]) -> Stored:
    """Standard normal values as they lie in memory: float32, or the upper half of it as uint16."""
    values = rng.standard_normal(shape, dtype=np.float32)
    return values if lane == "fp32" else (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def _widened(stored: Stored) -> Matrix:
    """Stored values as float32; bfloat16 is the upper half of a float32."""
    if stored.dtype == np.float32:
        return stored
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _experts(case: Case, rng: np.random.Generator, seed: int) -> Callable[[], object]:
    """The first rank's share of a routed layer: gather, up (and gate), activation, down, weighted scatter."""
    size = {name: case.integer(name) for name in ("hidden", "inter", "topk", "experts", "tp", "ep", "tokens")}
    hidden, inter, local = size["hidden"], size["inter"] // size["tp"], size["experts"] // size["ep"]
    how = str(case.axes["routing"])
    loads = routing.expert_loads(size["tokens"], size["topk"], size["experts"], size["ep"], how, seed)
    chosen = routing.assignments(loads, size["tokens"], size["topk"])
    gated = case.build.gated
    up = _drawn(rng, case.lane, (local, (1 + gated) * inter, hidden))
    down = _drawn(rng, case.lane, (local, hidden, inter))
    x = _drawn(rng, case.lane, (size["tokens"], hidden))
    rows = [np.flatnonzero((chosen == expert).any(axis=1)) for expert in range(local)]
    share = np.float32(1.0 / size["topk"])

    def forward() -> Matrix:
        out = np.zeros((size["tokens"], hidden), np.float32)
        for expert, mine in enumerate(rows):
            if len(mine):
                middle = _activation(_widened(x[mine]) @ _widened(up[expert]).T, inter, gated)
                out[mine] += share * (middle @ _widened(down[expert]).T)
        return out

    return forward


def _activation(values: Matrix, inter: int, gated: bool) -> Any:
    """SwiGLU on gated experts, ReLU squared on the others."""
    if not gated:
        return np.square(np.maximum(values, np.float32(0)))
    gate = values[:, :inter]
    # exp of a large negative gate overflows to infinity, and the quotient is then the right limit 0.
    with np.errstate(over="ignore"):
        activated: Any = gate / (np.float32(1) + np.exp(-gate)) * values[:, inter:]
    return activated
