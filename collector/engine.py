"""What an engine is: something that runs one case on one machine and says how long it took and what ran."""

from __future__ import annotations

import hashlib
import importlib
import platform
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .case import Case
    from .sidecar import Runtime


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and with what an engine measures.

    Attributes
    ----------
    system, backend, version
        As the rows will say.
    device
        The machine in words.
    runtime
        Software, for the provenance.
    sm
        Compute capability times ten, ``None`` for a processor.
    provenance
        ``collected`` on a catalogued system, ``local`` on this very machine, ``synthetic`` if nothing is measured.
    """

    system: str
    backend: str
    version: str
    device: str
    runtime: Runtime
    sm: int | None = None
    provenance: str = "collected"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A result.

    Attributes
    ----------
    latency_ms
        Time of one forward pass of the layer, milliseconds.
    kernel
        Name of what ran, for the ``kernel_source`` column.
    """

    latency_ms: float
    kernel: str


class Engine(Protocol):
    """One engine on one device."""

    name: str

    def origin(self) -> Origin:
        """Where it measures."""
        ...

    def lanes(self) -> frozenset[tuple[str, str]]:
        """Pairs (table, lane) that it can build."""
        ...

    def measure(self, case: Case, seed: int) -> Measurement:
        """Build the layer with synthetic weights, run it, time it.

        Raises
        ------
        Exception
            Whatever goes wrong with this case; the run records it and goes on.
        """
        ...


# Name -> module and class; imported when asked for, since each needs another library.
REGISTRY: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "numpy_cpu": ("engine_numpy", "NumpyCpu"),
        "torch_cpu": ("engine_torch_cpu", "TorchCpu"),
        "torch_cuda": ("engine_torch_cuda", "TorchCuda"),
        "vllm": ("engine_vllm", "Vllm"),
    }
)
_EXTRA: Final[Mapping[str, str]] = MappingProxyType({"torch": "bitlane[collect]", "vllm": "bitlane[collect]"})


def load(name: str, options: Mapping[str, str]) -> Engine:
    """Start an engine.

    Parameters
    ----------
    name
        A key of :data:`REGISTRY`, or ``package.module:Class`` for an engine of one's own.
    options
        Its options, for instance ``system``.

    Raises
    ------
    UsageError
        ``BL726`` for an unknown engine, ``BL727`` if its library is not installed.
    """
    if ":" in name:
        module_name, _, class_name = name.partition(":")
    elif name in REGISTRY:
        module, class_name = REGISTRY[name]
        module_name = f"{__package__}.{module}"
    else:
        raise UsageError(
            "BL726", f"unknown engine `{name}`", place="--engine", help=f"there are {', '.join(sorted(REGISTRY))}"
        )
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        raise UsageError(
            "BL727",
            f"engine `{name}` needs `{library}`, which is not installed",
            place="--engine",
            help=f"pip install '{_EXTRA.get(library, library)}', or use the engine numpy_cpu, which needs nothing more",
        ) from error
    except AttributeError as error:
        raise UsageError("BL726", f"there is no class `{class_name}` in `{module_name}`", place="--engine") from error
    engine: Engine = factory(options)
    return engine


def case_seed(seed: int, case: Case) -> int:
    """Seed of one case: depends on the run's seed and the case id, not on the order of cases."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{case.id}".encode()).digest()[:8], "big")


def cpu_system() -> str:
    """Name of this machine's processor as a system, for instance ``cpu_x86_64``."""
    return f"cpu_{platform.machine().lower() or 'unknown'}"


def cpu_device(threads: int) -> str:
    """The processor of this machine, in words."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor() or platform.machine()}, {threads} threads"
