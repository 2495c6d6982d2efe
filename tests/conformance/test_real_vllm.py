"""The real vLLM on freshly generated checkpoints, where one is installed; skipped visibly where not.

``BITLANE_VLLM_PYTHON`` names the Python of an environment with a CPU build of vLLM (docs/conformance.md says how to
make one), ``BITLANE_VLLM_SEEDS`` the seeds, ``FIRST:END``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from names import words

from bitlane.resolver.conform import conform, folded

HERE = Path(__file__).resolve().parent
MODELS = words("nemotronh-0 qwen3moe-0 deepseekv3-0 gemma4_vl-0 qwen3_5moe_vl-0 mixtral-0 llama-2 gptoss-0")
PYTHON = os.environ.get("BITLANE_VLLM_PYTHON", "")


@pytest.mark.slow
def test_generated_checkpoints_are_resolved_as_the_real_vllm_does(tmp_path: Path, shared: Path) -> None:
    if not PYTHON:
        pytest.skip("set BITLANE_VLLM_PYTHON to the Python of an environment with a CPU build of vLLM")
    first, end = (int(x) for x in os.environ.get("BITLANE_VLLM_SEEDS", "900000:900024").split(":"))
    bases, cases = tmp_path / "bases", tmp_path / "cases"
    runner = [PYTHON, str(HERE / "run_vllm.py"), "--oracle", str(shared / "oracle" / "vllm_oracle.py")]
    generator = [sys.executable, str(HERE / "generate.py")]
    subprocess.run([*generator, "bases", str(bases), "--only", ",".join(MODELS)], check=True)
    # Only models that vLLM builds as they are say anything about metadata.
    subprocess.run([*runner, str(bases)], check=True)
    subprocess.run([*generator, "cases", str(cases), "--bases", str(bases), "--seeds", f"{first}:{end}"], check=True)
    subprocess.run([*runner, str(cases)], check=True)
    found = list(conform((cases,)))
    assert len(found) >= end - first
    assert [(a.golden.label, d) for a in found for d, _ in folded(a.differences)] == []
