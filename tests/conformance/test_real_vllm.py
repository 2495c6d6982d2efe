"""The real vLLM on the packaged checkpoints and on fresh ones, where one is installed; skipped visibly where not.

``BITLANE_VLLM_PYTHON`` names the Python of an environment with a CPU build of vLLM (docs/conformance.md says how to
make one), ``BITLANE_VLLM_SEEDS`` the seeds, ``FIRST:END``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from names import words

from bitlane.paths import MODEL_CONFIGS
from bitlane.resolver.conform import conform, folded

HERE = Path(__file__).resolve().parent
MODELS = words("nemotronh-0 qwen3moe-0 deepseekv3-0 gemma4_vl-0 qwen3_5moe_vl-0 mixtral-0 llama-2 gptoss-0")
PYTHON = os.environ.get("BITLANE_VLLM_PYTHON", "")


# These repositories hold code or a tokenizer, without which the engine stops before it looks at any module.
MORE_THAN_METADATA = {
    "XiaomiMiMo--MiMo-7B-Base",
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
    "deepseek-ai--DeepSeek-V4.1-Flash",
}


def _python() -> str:
    if not PYTHON:
        pytest.skip("set BITLANE_VLLM_PYTHON to the Python of an environment with a CPU build of vLLM")
    return PYTHON


def _ask(folder: Path, shared: Path) -> None:
    oracle = str(shared / "oracle" / "vllm_oracle.py")
    subprocess.run([_python(), str(HERE / "run_vllm.py"), "--oracle", oracle, str(folder)], check=True)


@pytest.mark.slow
def test_packaged_checkpoints_are_resolved_as_the_real_vllm_does(tmp_path: Path, shared: Path) -> None:
    _python()
    for folder in MODEL_CONFIGS.glob("*--*"):
        if folder.name not in MORE_THAN_METADATA:
            shutil.copytree(folder, tmp_path / folder.name)
    _ask(tmp_path, shared)
    found = list(conform((tmp_path,)))
    assert len(found) == 73
    assert [(a.golden.label, a.status, d) for a in found for d, _ in folded(a.differences)] == []
    assert {a.status for a in found} == {"compared", "refused"}


@pytest.mark.slow
def test_generated_checkpoints_are_resolved_as_the_real_vllm_does(tmp_path: Path, shared: Path) -> None:
    _python()
    first, end = (int(x) for x in os.environ.get("BITLANE_VLLM_SEEDS", "900000:900024").split(":"))
    bases, cases = tmp_path / "bases", tmp_path / "cases"
    generator = [sys.executable, str(HERE / "generate.py")]
    subprocess.run([*generator, "bases", str(bases), "--only", ",".join(MODELS)], check=True)
    # Only models that vLLM builds as they are say anything about metadata.
    _ask(bases, shared)
    subprocess.run([*generator, "cases", str(cases), "--bases", str(bases), "--seeds", f"{first}:{end}"], check=True)
    _ask(cases, shared)
    found = list(conform((cases,)))
    assert len(found) >= end - first
    assert [(a.golden.label, d) for a in found for d, _ in folded(a.differences)] == []
