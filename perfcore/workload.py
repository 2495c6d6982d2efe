"""What a pass processes, and the numbers that an operation's size can depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ..errors import UsageError

if TYPE_CHECKING:
    from .pack import FloatArray

Phase = Literal["prefill", "decode"]
PHASE_PREFIX: Final = {"prefill": "context", "decode": "generation"}

# Numbers of the workload table, one column each; sizes are linear in one of them.
ONE: Final = 0
BATCH: Final = 1
TOKENS: Final = 2  # rows entering a layer: batch x new tokens
NEW: Final = 3  # new tokens per sequence
TOTAL: Final = 4  # tokens per sequence after this pass, cached ones included
PREFIX: Final = 5  # cached tokens per sequence before this pass
VARIABLES: Final = 6


@dataclass(frozen=True, slots=True)
class Workload:
    """One forward pass.

    Attributes
    ----------
    phase
        ``prefill`` or ``decode``.
    batch
        Sequences in the pass.
    isl
        Prefill: prompt length in tokens, prefix included. Decode: tokens already in the key-value cache; the attention
        then reads ``isl + 1`` tokens, the new one included.
    prefix
        Prefill: how many tokens of the prompt are already cached.
    """

    phase: Phase
    batch: int = 1
    isl: int = 1024
    prefix: int = 0


def variables(phase: Phase, batch: FloatArray | int, isl: FloatArray | int, prefix: FloatArray | int = 0) -> FloatArray:
    """Return the workload table, shape [VARIABLES, passes].

    Raises
    ------
    UsageError
        BL523: an unknown phase, a size below 1, or a prefix that leaves no new token.
    """
    if phase not in PHASE_PREFIX:
        raise UsageError("BL523", f"unknown phase `{phase}`", place="--phase", help="prefill or decode")
    b, s, p = (np.atleast_1d(np.asarray(v, np.float64)) for v in (batch, isl, prefix))
    b, s, p = np.broadcast_arrays(b, s, p)
    low = 1 if phase == "prefill" else 0
    if (b < 1).any() or (s < low).any() or (p < 0).any() or (phase == "prefill" and (p >= s).any()):
        raise UsageError(
            "BL523", "batch and isl must be positive, and a prefix shorter than the prompt", place="--batch, --isl"
        )
    if any(np.asarray(v).dtype.kind not in "iu" and (np.asarray(v) % 1 != 0).any() for v in (batch, isl, prefix)):
        raise UsageError("BL523", "batch, isl and prefix are whole numbers", place="--batch, --isl")
    out = np.empty((VARIABLES, len(b)))
    out[ONE], out[BATCH] = 1.0, b
    if phase == "prefill":
        out[NEW], out[TOTAL], out[PREFIX] = s - p, s, p
    else:
        out[NEW], out[TOTAL], out[PREFIX] = 1.0, s + 1.0, s
    out[TOKENS] = b * out[NEW]
    return out
