"""Speed and memory of the pricing core, beside the peer `aisimulate` when its interpreter is given.

    python benchmarks/pricing_speed.py [--peer PYTHON] [--runs 5]

Ours and the peer's processes take turns in one run; the figures are medians of CPU time. Tables and kernels are
compiled beforehand, as they are on every use but the first.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIGHTNING = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
QWEN = "Qwen/Qwen3-32B-FP8"
CONFIGURATIONS = 10_000
# The peer answers Lightning in SILICON (it prices other precisions than the checkpoint declares); a strict price of
# ours refuses it, so ours is HYBRID.
MODELS = {LIGHTNING: "SILICON", QWEN: "SILICON"}


def rss_mib() -> float:
    """Resident memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def child_cpu(command: list[str]) -> tuple[float, str]:
    """Run a process; its CPU seconds and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def plans(model: str) -> dict[str, Any]:
    """Resolve a model and compile both phases."""
    from bitlane import buckets, resolve
    from bitlane.perfcore import Store, compile_plan

    answer, store = resolve(model, "vllm@0.31.0", "gb200"), Store()
    options = {"system": answer.system.name, "backend": "vllm", "version": "0.31.0", "mode": "HYBRID", "store": store}
    return {phase: compile_plan(buckets(answer, None, phase), phase, **options) for phase in ("prefill", "decode")}


def measure(model: str) -> dict[str, Any]:
    """Sweep and single passes of one model, in this process."""
    import numpy as np

    from bitlane.perfcore import Pricer

    begin = time.process_time()
    pricers = {phase: Pricer(plan, "numba") for phase, plan in plans(model).items()}
    for pricer in pricers.values():
        pricer.total(1, 1024)
    out: dict[str, Any] = {"build_cpu_s": time.process_time() - begin}
    rng = np.random.default_rng(1)
    batch, isl = rng.integers(1, 65, CONFIGURATIONS), rng.integers(64, 8193, CONFIGURATIONS)
    sweeps = []
    for _ in range(7):
        start = time.process_time()
        for pricer in pricers.values():
            pricer.many(batch, isl)
        sweeps.append(time.process_time() - start)
    out["sweep_s"] = statistics.median(sweeps)
    for phase, pricer in pricers.items():
        windows = []
        for window in range(30):
            part = [(1 + (7 * i) % 64, 100 + 137 * window + i) for i in range(200)]
            start = time.process_time()
            for b, s in part:
                pricer.total(b, s)
            windows.append((time.process_time() - start) / len(part) * 1e6)
        out[f"{phase}_us"] = statistics.median(windows)
    out["rss_mib"] = rss_mib()
    return out


def lookups() -> dict[str, Any]:
    """GEMM lookups in one call, on and off the measured widths, by batch size."""
    import numpy as np

    from bitlane.perfcore import Lookups, Store
    from bitlane.perfcore.policy import load

    ask = Lookups(Store(), load(), "gemm")
    key = {"system": "gb200", "backend": "vllm", "backend_version": "0.31.0", "quant_mode": "nvfp4"}
    slab = ask.pack.find(key)
    rng = np.random.default_rng(0)
    n0, k0 = ask.pack.axis(slab, 0), ask.pack.axis(slab, 1)
    out: dict[str, Any] = {}
    for name in ("collected", "uncollected"):
        for size in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
            if name == "collected":
                n, k = rng.choice(n0[n0 % 32 == 0], size), rng.choice(k0, size)
            else:
                n, k = rng.integers(20, 1500, size) * 32.0 + 32, rng.integers(20, 400, size) * 32.0 + 16
            m = rng.integers(1, 32769, size).astype(float)
            slabs, times = np.full(size, slab), []
            ask(slabs[:10], n[:10], k[:10], m[:10])
            for _ in range(3 if size > 1_000_000 else 7):
                start = time.process_time()
                ask(slabs, n, k, m)
                times.append(time.process_time() - start)
            out[f"{name} {size:,}"] = statistics.median(times) / size * 1e9
    return out


def inside(what: str, *arguments: str) -> dict[str, Any]:
    """Run one of the measurements above in a process of its own."""
    _, text = child_cpu([sys.executable, str(Path(__file__).resolve()), "--inside", what, *arguments])
    found: dict[str, Any] = json.loads(text)
    return found


def row(name: str, ours: float, peer: float | None, unit: str, digits: int = 2) -> None:
    """Print one line of the table."""
    theirs = "" if peer is None else f"{peer:.{digits}f}"
    ratio = "" if peer is None else f"{peer / ours:.1f}"
    print(f"| {name} | {ours:.{digits}f} | {theirs} | {ratio} | {unit} |")


def compare(peer: str, runs: int) -> None:
    """Measure everything, ours and the peer's processes in turn."""
    price = [sys.executable, "-m", "bitlane.cli", "price", "--loader", "vllm@0.31.0", "--system", "gb200", "--phase",
             "prefill", "--mode", "HYBRID", "--json"]  # fmt: skip
    print("| what | bitlane | peer | peer / bitlane | unit |\n|---|---:|---:|---:|---|")
    for model, mode in MODELS.items():
        name = model.rpartition("/")[2]
        child_cpu([*price, model])
        cold, first, mine, theirs = [], [], [], []
        for _ in range(runs):
            cold.append(child_cpu([*price, model])[0])
            mine.append(inside("passes", model))
            if peer:
                _cpu, text = child_cpu(
                    [peer, str(HERE / "pricing_peer.py"), "passes", model, "gb200", mode, str(CONFIGURATIONS)]
                )
                theirs.append(json.loads(text))
                first.append(theirs[-1]["first_cpu_s"])

        def middle(found: list[dict[str, Any]], key: str) -> float | None:
            values = [statistics.median(v) if isinstance(v, list) else v for v in (one[key] for one in found)]
            return statistics.median(values) if values else None

        row(f"{name}: cold process to first priced pass (CLI, numpy)", statistics.median(cold),
            statistics.median(first) if first else None, "CPU s")  # fmt: skip
        sweeps = 1e3 * (middle(mine, "sweep_s") or 0)
        row(f"{name}: {CONFIGURATIONS:,} x (prefill + decode), one batch call each", sweeps,
            1e3 * sweep if (sweep := middle(theirs, "sweep_s")) else None, "CPU ms", 1)  # fmt: skip
        for phase in ("prefill", "decode"):
            row(f"{name}: one fresh {phase} pass from Python", middle(mine, f"{phase}_us") or 0,
                middle(theirs, f"{phase}_us"), "us")  # fmt: skip
        row(
            f"{name}: memory after pricing (numba loaded)",
            middle(mine, "rss_mib") or 0,
            middle(theirs, "rss_mib"),
            "MiB",
            0,
        )
    ours = [inside("lookups") for _ in range(runs)]
    theirs_us = None
    if peer:
        found = [json.loads(child_cpu([peer, str(HERE / "pricing_peer.py"), "gemm", "1000"])[1]) for _ in range(runs)]
        theirs_us = statistics.median(one["gemm_us"] for one in found)
    for name in ours[0]:
        value = statistics.median(one[name] for one in ours)
        same = name == "uncollected 1,000"
        row(f"GEMM lookup, {name} in one call", value, 1e3 * theirs_us if theirs_us and same else None, "CPU ns", 0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default="", metavar="PYTHON", help="interpreter of an environment with aisimulate")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(lookups() if options.inside[0] == "lookups" else measure(options.inside[1])))
        return
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {options.runs} runs\n")
    compare(options.peer, options.runs)


if __name__ == "__main__":
    main()
