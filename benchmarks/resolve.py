#!/usr/bin/env python3
"""How the cost of resolving grows with the size of a listing: MiniMax-M3 with 1, 2 and 4 times its experts; Lightning.

    python benchmarks/resolve.py [--runs N] [--dump FOLDER]

Prints CPU milliseconds, medians. Warm: same process, nothing changed, answers are kept with the checkpoint. Decided:
the file is kept, its metadata checked and every module decided anew. First: the file is read and indexed anew too.
Command: the whole process. ``--dump`` writes the checkpoints and the modules asked, for ``resolve_vllm.py``, which puts
vLLM's own matching to the same questions.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bitlane import paths
from bitlane.resolver import checkpoint as reading
from bitlane.resolver.api import resolve

if TYPE_CHECKING:
    from bitlane.resolver.resolution import Resolution

MODEL = "nvidia--MiniMax-M3-NVFP4"
LIGHTNING = "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
LOADER, SYSTEM = "vllm@0.32.0", "gb200"


def scaled(factor: int) -> dict[str, object]:
    """MiniMax-M3's config with ``factor`` times its experts, every one listed."""
    config = json.loads((paths.MODEL_CONFIGS / MODEL / "config.json").read_text())
    block = config["quantization_config"]
    listed = block["quantized_layers"]
    experts = 1 + max(int(k.split(".experts.")[1].split(".")[0]) for k in listed if ".experts." in k)
    grown = {}
    for name, entry in listed.items():
        grown[name] = entry
        if ".experts." in name:
            head, tail = name.split(".experts.")
            number, leaf = tail.split(".", 1)
            for copy in range(1, factor):
                grown[f"{head}.experts.{int(number) + copy * experts}.{leaf}"] = entry
    block["quantized_layers"] = grown
    block.pop("config_groups", None)
    for scope in (config, config.get("text_config", {})):
        for key in ("num_local_experts", "num_experts", "n_routed_experts"):
            if key in scope:
                scope[key] *= factor
    return config


def cpu(action, runs: int) -> float:
    """Median CPU milliseconds of an action in this process."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        action()
        found.append(time.process_time() - start)
    return statistics.median(found) * 1000


def command(folder: Path, runs: int) -> float:
    """Median CPU milliseconds of the whole command."""
    arguments = [
        sys.executable,
        "-m",
        "bitlane.cli",
        "resolve",
        str(folder),
        "--loader",
        LOADER,
        "--system",
        SYSTEM,
        "--json",
    ]
    found = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(found) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--dump", type=Path)
    arguments = parser.parse_args()
    print(f"{'entries':>9} {'modules':>8} {'warm ms':>8} {'decided ms':>10} {'first ms':>9} {'command ms':>11}")
    with tempfile.TemporaryDirectory() as temporary:
        home = arguments.dump or Path(temporary)
        for factor in (1, 2, 4):
            folder = home / f"x{factor}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text(json.dumps(scaled(factor)))
            answer = measure(folder, arguments.runs)
            asked = [{"module": r.module.path, "algorithm": r.answer.algorithm} for r in answer if r.module.configured]
            (folder / "modules.json").write_text(json.dumps(asked))
        measure(paths.MODEL_CONFIGS / LIGHTNING, arguments.runs)


def measure(folder: Path, runs: int) -> Resolution:
    """Print one row; return the answer."""
    answer = resolve(folder, LOADER, SYSTEM)

    def anew() -> None:
        for document in reading.open_checkpoint(folder).files.values():
            for key in [k for k in document.prepared if isinstance(k, tuple) and k[0] == "asked"]:
                del document.prepared[key]
        resolve(folder, LOADER, SYSTEM)

    def first() -> None:
        reading._read_cached.cache_clear()
        resolve(folder, LOADER, SYSTEM)

    found = [cpu(action, runs) for action in (lambda: resolve(folder, LOADER, SYSTEM), anew, first)]
    entries = len(answer.chooser.declared.listing)
    print(
        f"{entries:9,d} {len(answer):8d} {found[0]:8.1f} {found[1]:10.1f} {found[2]:9.1f} {command(folder, runs):11.0f}"
    )
    return answer


if __name__ == "__main__":
    main()
