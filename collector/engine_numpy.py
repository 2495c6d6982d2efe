"""Backend ``numpy_cpu``: matrix products by numpy on this machine's processor. Always available, float32 only."""

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

LANE: Final = "fp32"


class NumpyCpu:
    """The engine; `options` may name a ``system``."""

    name = "numpy_cpu"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._system = options.get("system", cpu_system())

    def origin(self) -> Origin:
        """The processor of this machine."""
        runtime = Runtime("numpy", np.__version__, libraries=_blas())
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return Origin(self._system, self.name, np.__version__, cpu_device(threads), runtime, provenance="local")

    def lanes(self) -> frozenset[tuple[str, str]]:
        """Linear layers and experts in float32."""
        return frozenset({("gemm", LANE), ("moe", LANE)})

    def measure(self, case: Case, seed: int) -> Measurement:
        """Time one layer; the median over repeated calls."""
        rng = np.random.default_rng(seed)
        if case.table == "gemm":
            return Measurement(timing.median_ms(_linear(case, rng)), "numpy.matmul")
        if case.table == "moe":
            return Measurement(timing.median_ms([_experts(case, rng, seed)]), "numpy.matmul loop over experts")
        raise UsageError("BL732", f"engine {self.name} has no layer for `{case.table}`", place=case.id)


def _blas() -> dict[str, str]:
    """Name and version of the BLAS that numpy was built with."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return {str(blas["name"]): str(blas.get("version", "unknown"))} if blas.get("name") else {}


def _linear(case: Case, rng: np.random.Generator) -> list[Callable[[], object]]:
    m, n, k = (case.integer(name) for name in ("m", "n", "k"))
    x = rng.standard_normal((m, k), dtype=np.float32)
    weights = [rng.standard_normal((n, k), dtype=np.float32) for _ in range(timing.copies(4 * n * k))]
    out = np.empty((m, n), np.float32)
    return [_product(x, weight, out) for weight in weights]


def _product(x: Matrix, weight: Matrix, out: Matrix) -> Callable[[], object]:
    return lambda: np.matmul(x, weight.T, out=out)


def _experts(case: Case, rng: np.random.Generator, seed: int) -> Callable[[], object]:
    """The first rank's share of a routed layer: gather, up (and gate), activation, down, weighted scatter."""
    size = {name: case.integer(name) for name in ("hidden", "inter", "topk", "experts", "tp", "ep", "tokens")}
    hidden, inter, local = size["hidden"], size["inter"] // size["tp"], size["experts"] // size["ep"]
    how = str(case.axes["routing"])
    loads = routing.expert_loads(size["tokens"], size["topk"], size["experts"], size["ep"], how, seed)
    chosen = routing.assignments(loads, size["tokens"], size["topk"])
    gated = case.build.gated
    up = rng.standard_normal((local, (1 + gated) * inter, hidden), dtype=np.float32)
    down = rng.standard_normal((local, hidden, inter), dtype=np.float32)
    x = rng.standard_normal((size["tokens"], hidden), dtype=np.float32)
    rows = [np.flatnonzero((chosen == expert).any(axis=1)) for expert in range(local)]
    share = np.float32(1.0 / size["topk"])

    def forward() -> Matrix:
        out = np.zeros((size["tokens"], hidden), np.float32)
        for expert, mine in enumerate(rows):
            if len(mine):
                out[mine] += share * (_activation(x[mine] @ up[expert].T, inter, gated) @ down[expert].T)
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
