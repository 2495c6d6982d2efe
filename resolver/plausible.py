"""Questions that can be answered but not run: weights beyond the GPU's memory, prompts beyond the model's positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import CheckpointError
from .resolution import Problem
from .weights import weight_bytes

if TYPE_CHECKING:
    from .parallel import Parallel
    from .resolution import Resolution

_GIB: Final = 1 << 30


def doubts(resolution: Resolution, parallel: Parallel, tokens: int) -> list[Problem]:
    """Say why a pass could not be run as it is asked for.

    Parameters
    ----------
    tokens
        Positions that one sequence takes.
    """
    found = [*_memory(resolution, parallel), *_positions(resolution, tokens)]
    return [Problem(code, message) for code, message in found]


def _memory(resolution: Resolution, parallel: Parallel) -> list[tuple[str, str]]:
    room = resolution.system.facts.get("memory_capacity_bytes")
    if not isinstance(room, int):
        return []
    try:
        stored = sum(w.bytes for w in weight_bytes(resolution, parallel)) // parallel.pp
    except CheckpointError:  # BL261: a lane whose stored size no rule tells
        return []
    if stored <= room:
        return []
    return [
        (
            "BL301",
            f"the weights take {stored / _GIB:,.0f} GiB of each GPU, a {resolution.system.name} has "
            f"{room / _GIB:,.0f} GiB: this needs more GPUs",
        )
    ]


def _positions(resolution: Resolution, tokens: int) -> list[tuple[str, str]]:
    config = resolution.checkpoint.config
    inner = config.get("text_config")
    for where in (config, inner if isinstance(inner, dict) else {}):
        most = where.get("max_position_embeddings")
        if isinstance(most, int) and not isinstance(most, bool) and 0 < most < tokens:
            return [("BL302", f"{tokens:,} tokens are more than the model's max_position_embeddings of {most:,}")]
    return []
