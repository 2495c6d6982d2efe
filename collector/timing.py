"""Wall time of short calls: enough of them per sample that the clock does not matter, the median of the samples."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM_UPS: Final = 3
SAMPLES: Final = 7
# A sample lasts at least this long: the clock and the loop cost about a microsecond.
SAMPLE_S: Final = 0.002
# Copies of the weights that are used in turn, so that a layer's weights come from memory as in a real model.
COLD_BYTES: Final = 64 << 20
MOST_COPIES: Final = 6


def copies(weight_bytes: int) -> int:
    """How many copies of a layer's weights to rotate through."""
    return max(1, min(MOST_COPIES, -(-COLD_BYTES // max(weight_bytes, 1))))


def median_ms(calls: Sequence[Callable[[], object]], clock: Callable[[], float] = time.perf_counter) -> float:
    """Median latency of one call, milliseconds.

    Parameters
    ----------
    calls
        Equivalent calls, made in turn.
    clock
        Seconds, monotonic.
    """
    for index in range(max(WARM_UPS, len(calls))):
        calls[index % len(calls)]()
    started = clock()
    calls[0]()
    once = max(clock() - started, 1e-9)
    repeats = max(1, round(SAMPLE_S / once))
    samples, used = [], 0
    for _ in range(SAMPLES):
        started = clock()
        # Where the last sample stopped, so that all copies are used alike even when a sample is a single call.
        for index in range(used, used + repeats):
            calls[index % len(calls)]()
        samples.append((clock() - started) / repeats)
        used += repeats
    return float(np.median(samples) * 1e3)
