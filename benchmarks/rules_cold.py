"""CPU time that a cold process spends on rules: import, find, load and compile what one resolve needs.

``python benchmarks/rules_cold.py`` starts one process with an empty cache of parsed files, then nine with a warm one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

_CHILD = """
import sys, time
# What every command imports anyway is not the rules' cost.
import dataclasses, hashlib, json, os, pathlib, re
import click, msgspec
import bitlane.errors, bitlane.paths
start = time.process_time()
from bitlane.rules.library import find
from bitlane.resolver.loader import compile_loader
from bitlane.resolver.family import compile_family
middle = time.process_time()
library = find()
loader = compile_loader(library, "vllm", "0.31.0")
loader.marked(next(f for f in loader.formats if f.name == "modelopt_mixed"))
compile_family(library, "NemotronHForCausalLM", "vllm", "0.31.0")
library.lanes()
end = time.process_time()
print((middle - start) * 1e3, (end - middle) * 1e3, "lark" in sys.modules)
"""


def once(cache: str) -> tuple[float, float, bool]:
    """Run one process; return ms of importing, ms of finding, loading and compiling, and whether lark was imported."""
    environment = {**os.environ, "BITLANE_CACHE": cache}
    done = subprocess.run([sys.executable, "-c", _CHILD], env=environment, capture_output=True, text=True, check=True)
    importing, using, parsed = done.stdout.split()
    return float(importing), float(using), parsed == "True"


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as cache:
        importing, using, parsed = once(cache)
        print(f"empty cache: import {importing:.0f} ms, find, parse and compile {using:.0f} ms CPU (lark: {parsed})")
        runs = [once(cache) for _ in range(9)]
    imports = statistics.median(r[0] for r in runs)
    uses = statistics.median(r[1] for r in runs)
    total = imports + uses
    print(f"warm cache: import {imports:.1f} ms, find, load and compile {uses:.1f} ms CPU, {total:.1f} together")
    print(f"lark imported: {any(r[2] for r in runs)}; median of {len(runs)} processes")


if __name__ == "__main__":
    main()
