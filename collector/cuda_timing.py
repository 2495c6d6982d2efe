"""Time on a CUDA device: one graph with all calls, replayed, so that the host's launch time stays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM_UPS: Final = 3
REPLAYS: Final = 6


def graph_ms(calls: Sequence[Callable[[], object]], warm_ups: int = WARM_UPS, replays: int = REPLAYS) -> float:
    """Median latency of one call, milliseconds.

    Parameters
    ----------
    calls
        Equivalent calls that launch kernels on the current stream; captured one after the other in one CUDA graph.
    warm_ups
        Untimed rounds before the capture, and untimed replays after it.
    replays
        Timed replays.
    """
    graph = captured(calls, warm_ups)
    return replay_ms(graph, warm_ups, replays) / len(calls)


def captured(calls: Sequence[Callable[[], object]], warm_ups: int = WARM_UPS) -> torch.cuda.CUDAGraph:
    """A graph of all calls, after warming them up on a side stream as capturing asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_ups):
            for call in calls:
                call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def replay_ms(graph: torch.cuda.CUDAGraph, warm_ups: int, replays: int) -> float:
    """Median time of one replay, milliseconds."""
    for _ in range(warm_ups):
        graph.replay()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(replays)]
    for start, end in marks:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) for start, end in marks)
    middle = len(times) // 2
    return float(times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2)
