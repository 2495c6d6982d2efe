"""Which catalogued system the GPU of this machine is, and the parts of an origin that all GPU engines share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from ..errors import UsageError
from . import casefile
from .engine import Origin
from .sidecar import Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_gpu(engine: str) -> None:
    """Refuse to start without a CUDA device.

    Raises
    ------
    UsageError
        ``BL737``.
    """
    if not torch.cuda.is_available():
        raise UsageError(
            "BL737",
            f"engine `{engine}` needs a CUDA device, torch finds none",
            place="--engine",
            help="run it on the GPU machine; make the plan anywhere with `bitlane collect plan ... -o FILE`",
        )


def system_name(device: str, wanted: str | None) -> str:
    """System of a device.

    Parameters
    ----------
    device
        Name that the driver gives.
    wanted
        What the user says it is.

    Raises
    ------
    UsageError
        ``BL738`` if the device is not catalogued and nothing is said, or the two contradict.
    """
    known = casefile.load("devices.yaml", dict[str, str]).get(device)
    if known is None and wanted is None:
        raise UsageError(
            "BL738", f"`{device}` is not in devices.yaml", place="--system", help="name its system with `--system`"
        )
    if known is not None and wanted not in (None, known):
        raise UsageError(
            "BL738", f"`{device}` is {known}, not {wanted}", place="--system", help="rows keep the true system's name"
        )
    return known or str(wanted)


def gpu_origin(backend: str, framework: str, full_version: str, options: Mapping[str, str]) -> Origin:
    """Origin of rows measured on the current CUDA device.

    Parameters
    ----------
    backend
        As the rows will say.
    framework, full_version
        What ran; a local build tag after ``+`` is kept in the runtime and left out of the row's version.
    options
        ``system``, ``image``, ``image_digest``, ``source_commit``.
    """
    device = str(torch.cuda.get_device_name())
    major, minor = torch.cuda.get_device_capability()
    libraries = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda)}
    runtime = Runtime(
        framework,
        full_version,
        image=options.get("image") or os.environ.get("BITLANE_IMAGE"),
        image_digest=options.get("image_digest") or os.environ.get("BITLANE_IMAGE_DIGEST"),
        source_commit=options.get("source_commit"),
        libraries=libraries,
    )
    system = system_name(device, options.get("system"))
    return Origin(system, backend, full_version.partition("+")[0], device, runtime, sm=major * 10 + minor)
