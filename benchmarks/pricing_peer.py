"""Time the peer `aisimulate`; run by pricing_speed.py with the interpreter of an environment that has it.

    PEER_PYTHON benchmarks/pricing_peer.py passes MODEL SYSTEM MODE COUNT
    PEER_PYTHON benchmarks/pricing_peer.py gemm COUNT

Prints one JSON object; times in seconds.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from typing import Any

VERSION = "0.31.0"


def rss_mib() -> float:
    """Resident memory of this process."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def passes(model: str, system: str, mode: str, count: int) -> dict[str, Any]:
    """Cold build and first price, fresh single passes, and a sweep of distinct (batch, isl)."""
    begin = time.process_time()
    from aisimulate_core.sdk.engine import EngineHandle, compile_engine

    spec = compile_engine(model, system, "vllm", VERSION, tp_size=1, moe_tp_size=1, moe_ep_size=1, database_mode=mode)
    engine = EngineHandle(spec)._engine
    engine.run_static(1, 1, 1024, 2, 0, 1.0, 1.0, "static", 32)
    out: dict[str, Any] = {"first_cpu_s": time.process_time() - begin}
    drawn = random.Random(1)
    asked = [(drawn.randint(1, 64), drawn.randint(64, 8192)) for _ in range(count)]
    out["sweep_s"] = []
    for _ in range(3):
        engine = EngineHandle(spec)._engine
        start = time.process_time()
        for batch, isl in asked:
            engine.run_static(batch, 1, isl, 2, 0, 1.0, 1.0, "static", 32)
        out["sweep_s"].append(time.process_time() - start)
    engine = EngineHandle(spec)._engine
    for name, call in (
        ("prefill_us", lambda b, s: engine.predict_prefill_latency(b, s, 0)),
        ("decode_us", lambda b, s: engine.decode_step_latency(b, s, 128)),
    ):
        call(1, 1024)
        windows = []
        for window in range(30):
            part = [(1 + (7 * i) % 64, 100 + 137 * window + i) for i in range(200)]
            start = time.process_time()
            for batch, isl in part:
                call(batch, isl)
            windows.append((time.process_time() - start) / len(part) * 1e6)
        out[name] = statistics.median(windows)
    out["rss_mib"] = rss_mib()
    return out


def gemm(count: int) -> dict[str, Any]:
    """GEMM lookups at widths that were not collected, a thousand in a call."""
    from aisimulate_core.sdk.engine import EngineHandle
    from aisimulate_core.sdk.perf_database import get_database_view

    engine = EngineHandle.for_database(get_database_view("gb200", "vllm", VERSION, database_mode="SILICON"))._engine
    drawn = random.Random(0)

    def op(i: int) -> dict[str, Any]:
        size = {"n": 32 * drawn.randint(20, 1500) + 32, "k": 32 * drawn.randint(20, 400) + 16}
        return {"Gemm": {"name": f"g{i}", "scale_factor": 1.0, **size, "quant_mode": "nvfp4", "scale_num_tokens": 1,
                         "low_precision_input": False, "seq_split": 1, "below_grid_sol": False}}  # fmt: skip

    text = json.dumps([op(i) for i in range(count)])
    times = []
    engine.evaluate_ops_json(text, True, 1, 77, 0, 1.0, 77)
    for i in range(7):
        start = time.process_time()
        engine.evaluate_ops_json(text, True, 1, 201 + i, 0, 1.0, 201 + i)
        times.append(time.process_time() - start)
    return {"gemm_us": statistics.median(times) / count * 1e6}


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    result = gemm(int(rest[0])) if what == "gemm" else passes(rest[0], rest[1], rest[2], int(rest[3]))
    print(json.dumps(result))
