#!/usr/bin/env python3
"""Write docs/buckets.md: the bucket tables of ten checkpoints, with the engine modules behind every bucket.

python docs/make_buckets.py            # write the page
python docs/make_buckets.py --check    # exit 1 when it is not current
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import bitlane
from bitlane.resolver.parallel import Parallel
from bitlane.resolver.weights import weight_bytes

if TYPE_CHECKING:
    from bitlane.resolver.bucket import Bucket
    from bitlane.resolver.resolution import Resolution

HERE = Path(__file__).resolve().parent
PAGE = HERE / "buckets.md"
LOADER, SYSTEM = "vllm@0.32.0", "gb200"
# Name -> (packaged id, or how the folder is made; name of the golden, without its ending).
CHECKPOINTS: dict[str, tuple[str, str]] = {
    "Nemotron 3 Super 120B-A12B, mixed (reconstructed)": ("super", "synthetic--super-seed20261129"),
    "Nemotron 3.5 Lightning 30B-A3B": (
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
        "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4__inline",
    ),
    "Nemotron 3 Nano 30B-A3B NVFP4": (
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
        "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
    ),
    "Qwen3.6 35B-A3B NVFP4": ("nvidia/Qwen3.6-35B-A3B-NVFP4", "nvidia--Qwen3.6-35B-A3B-NVFP4"),
    "Qwen3.5 397B-A17B NVFP4": ("nvidia/Qwen3.5-397B-A17B-NVFP4", "nvidia--Qwen3.5-397B-A17B-NVFP4"),
    "Gemma 4 26B-A4B NVFP4": ("nvidia/Gemma-4-26B-A4B-NVFP4", "nvidia--Gemma-4-26B-A4B-NVFP4"),
    "MiniMax M3 NVFP4": ("nvidia/MiniMax-M3-NVFP4", "nvidia--MiniMax-M3-NVFP4"),
    "DeepSeek-V3.2 (constructed)": ("deepseek-v3.2", ""),
    "gpt-oss-120b": ("openai/gpt-oss-120b", "openai--gpt-oss-120b"),
    "Qwen3 32B FP8": ("Qwen/Qwen3-32B-FP8", "Qwen--Qwen3-32B-FP8"),
}
HEAD = f"""# Bucket tables

Written by `docs/make_buckets.py`; a test holds the page to the rules and every count to what vLLM 0.32.0 builds.
One rank, {LOADER} on {SYSTEM}. A bucket is an operation at one precision: same-name buckets add up to the layers of the
operation. The last column names the engine's modules behind a bucket, `*` for the layer; operations without weights
have none. Sizes are rank-local ([parallelism.md](parallelism.md)); bytes are stored weights with their scales.
Operations that the engine runs side by side in decode are listed with the layers that share their precisions; a pass
counts the longer of the two sides.
"""
NOTES = {
    "super": "The published file names a precision for each of 40,960 expert matrices;\n"
    "`model_configs/reconstruct_super.py` writes a file of its shape with the published counts. Which layers are the\n"
    "odd ones is invented.",
    "deepseek-v3.2": "The packaged DeepSeek-V3 config with the class and the indexer's sizes of DeepSeek-V3.2\n"
    "(`tests/data/deepseek-v3.2`).",
}


def folder(source: str, scratch: Path) -> str | Path:
    """Return a packaged id, or a folder that stands for one."""
    if source == "super":
        script = Path(bitlane.__file__).parent / "model_configs" / "reconstruct_super.py"
        subprocess.run([sys.executable, str(script), "--out", str(scratch)], check=True, capture_output=True)
        return scratch
    return HERE.parent / "tests" / "data" / source if source == "deepseek-v3.2" else source


def pattern(path: str) -> str:
    """Name a module without its layer."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path)


def answers(scratch: Path) -> dict[str, Resolution]:
    """Resolve the ten checkpoints."""
    return {name: bitlane.resolve(folder(s, scratch), LOADER, SYSTEM) for name, (s, _) in CHECKPOINTS.items()}


def row(bucket: Bucket) -> str:
    """Write one bucket as a table row."""
    shape = " ".join(f"{k}={v}" for k, v in bucket.shape.items())
    modules = ", ".join(f"`{name}` x {n}" for name, n in Counter(map(pattern, bucket.modules)).items())
    return f"| {bucket.op} | {bucket.kind} | {bucket.lane} | {bucket.layers} | {shape} | {modules} |"


def side_by_side(answer: Resolution) -> list[str]:
    """List the overlap groups of a decode step: their layers, and the two sides with their lanes."""
    groups: dict[str, dict[str, list[Bucket]]] = {}
    for bucket in bitlane.buckets(answer, phase="decode"):
        if bucket.overlap:
            group, _, side = bucket.overlap.partition("/")
            groups.setdefault(group, {}).setdefault(side, []).append(bucket)
    out = []
    for group, sides in groups.items():
        words = [", ".join(f"{b.op} {b.lane}" for b in sides[side]) for side in sorted(sides)]
        layers = max(b.layers for parts in sides.values() for b in parts)
        out.append(f"* `{group}`, {layers} layer{'s' if layers > 1 else ''}: {' | '.join(words)}")
    return ["Side by side in decode:\n", *out, ""] if out else []


def render(resolved: dict[str, Resolution]) -> str:
    """Write the page."""
    out = [HEAD]
    for name, answer in resolved.items():
        source = CHECKPOINTS[name][0]
        out.append(f"## {name}\n")
        if source in NOTES:
            out.append(NOTES[source] + "\n")
        gib = [sum(w.bytes for w in weight_bytes(answer, split)) / (1 << 30) for split in (Parallel(), Parallel.of(4))]
        out.append(f"Weights: {gib[0]:.2f} GiB on one GPU, {gib[1]:.2f} GiB on each of four (tp 4).\n")
        out.append("| op | kind | lane | layers | shape | modules |\n|---|---|---|---:|---|---|")
        out += [row(b) for b in bitlane.buckets(answer)]
        out.append("")
        out += side_by_side(answer)
    return "\n".join(out)


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        text = render(answers(Path(scratch)))
    if check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
