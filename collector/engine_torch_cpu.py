"""Backend ``torch_cpu``: torch on this machine's processor, bfloat16 and float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ..errors import UsageError
from . import routing, timing
from .engine import Measurement, Origin, cpu_device, cpu_system
from .sidecar import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .case import Case

DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32}


class TorchCpu:
    """The engine. It takes no options: its rows are of this processor, whatever system a checkpoint is planned for."""

    name = "torch_cpu"

    def __init__(self, options: Mapping[str, str]) -> None:
        del options

    def origin(self) -> Origin:
        """The processor of this machine."""
        version, _, build = str(torch.__version__).partition("+")
        libraries = {"build": build} if build else {}
        threads = int(torch.get_num_threads())
        runtime = Runtime("torch", str(torch.__version__), libraries=libraries)
        return Origin(cpu_system(), self.name, version, cpu_device(threads), runtime, provenance="local")

    def lanes(self) -> frozenset[tuple[str, str]]:
        """Linear layers and experts, in both types."""
        return frozenset((table, lane) for table in ("gemm", "moe") for lane in DTYPES)

    def measure(self, case: Case, seed: int) -> Measurement:
        """Time one layer; the median over repeated calls."""
        generator = torch.Generator().manual_seed(seed % 2**63)
        with torch.inference_mode():
            if case.table == "gemm":
                calls = linear(case, DTYPES[case.lane], generator, "cpu")
                return Measurement(timing.median_ms(calls), "torch.nn.functional.linear")
            if case.table == "moe":
                forward = experts(case, DTYPES[case.lane], generator, seed)
                return Measurement(timing.median_ms([forward]), "torch.mm, loop over experts")
        raise UsageError("BL732", f"engine {self.name} has no layer for `{case.table}`", place=case.id)


def normal(shape: tuple[int, ...], dtype: Any, generator: Any, device: str) -> Any:
    """Standard normal values, drawn in float32 on the processor so that every device gets the same ones."""
    return torch.randn(shape, generator=generator, dtype=torch.float32).to(device=device, dtype=dtype)


def linear(case: Case, dtype: Any, generator: Any, device: str) -> list[Callable[[], object]]:
    """Calls of one linear layer, each with its own copy of the weights."""
    m, n, k = (case.integer(name) for name in ("m", "n", "k"))
    x = normal((m, k), dtype, generator, device)
    count = timing.copies(n * k * x.element_size())
    weights = [normal((n, k), dtype, generator, device) for _ in range(count)]
    return [_product(x, weight) for weight in weights]


def _product(x: Any, weight: Any) -> Callable[[], object]:
    return lambda: torch.nn.functional.linear(x, weight)


def experts(case: Case, dtype: Any, generator: Any, seed: int) -> Callable[[], object]:
    """The first rank's share of a routed layer: gather, up (and gate), activation, down, weighted scatter."""
    size = {name: case.integer(name) for name in ("hidden", "inter", "topk", "experts", "tp", "ep", "tokens")}
    hidden, inter, local = size["hidden"], size["inter"] // size["tp"], size["experts"] // size["ep"]
    how = str(case.axes["routing"])
    loads = routing.expert_loads(size["tokens"], size["topk"], size["experts"], size["ep"], how, seed)
    chosen = torch.from_numpy(routing.assignments(loads, size["tokens"], size["topk"]))
    gated = case.build.gated
    up = normal((local, (1 + gated) * inter, hidden), dtype, generator, "cpu")
    down = normal((local, hidden, inter), dtype, generator, "cpu")
    x = normal((size["tokens"], hidden), dtype, generator, "cpu")
    rows = [(chosen == expert).any(dim=1).nonzero().flatten() for expert in range(local)]
    share = 1.0 / size["topk"]

    def forward() -> Any:
        out = torch.zeros((size["tokens"], hidden), dtype=dtype)
        for expert, mine in enumerate(rows):
            if len(mine):
                middle = _activation(x[mine] @ up[expert].T, inter, gated)
                out.index_add_(0, mine, middle @ down[expert].T, alpha=share)
        return out

    return forward


def _activation(values: Any, inter: int, gated: bool) -> Any:
    """SwiGLU on gated experts, ReLU squared on the others."""
    if gated:
        return torch.nn.functional.silu(values[:, :inter]) * values[:, inter:]
    return torch.nn.functional.relu(values).square()
