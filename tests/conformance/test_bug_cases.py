"""Public bug reports: what the metadata means, and what the reported engine answers today.

The loader ``spec`` is held to every ``expected.yaml``. Where an engine answers otherwise, ``TODAY`` has its answer, and
the finding that tells a reader so is required; the vLLM answers were read off the real 0.32.0 model classes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitlane.errors import CheckpointError
from bitlane.resolver import checkpoint
from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.diff import bare
from bitlane.resolver.resolution import Resolution, Resolved
from bitlane.resolver.tensors import read_folder
from bitlane.resolver.verdict import against_spec, findings
from bitlane.resolver.verify import verify
from bitlane.rules import library

CASES = Path(__file__).resolve().parents[1] / "data" / "bug_cases"
NAMES = sorted(p.parent.name for p in CASES.glob("*/expected.yaml"))

# The words of expected.yaml that bitlane spells differently.
WORDS = {
    "fp8_channel": "fp8_pc_pt",
    "nvfp4_a16": "w4a16_nvfp4",
    "int4_a16": "int4_wo",
    "int8_a16": "int8_wo",
}
REPORTED = {"files_disagree": "BL297", "group_disagrees": "BL298"}
LOADERS = {"vllm": "vllm@0.32.0", "sglang": "sglang@0.5.23", "trtllm": "trtllm@main-008e0af"}

# What an engine answers otherwise: a code where it refuses, else its answers where they are wrong. No entry: right.
TODAY: dict[str, str | dict[str, str]] = {
    "02": "BL240",  # vLLM reads no mixed listing from the second file alone
    "04": {"model.layers.3.self_attn.qkv_proj": "nvfp4"},
    "05": "BL231",  # bitlane has no names of this class in TensorRT-LLM
    "09": {"language_model.model.layers.0.linear_attn.in_proj_qkvz": "fp8_block"},
    "18": {
        "vision_tower.encoder.layers.0.self_attn.qkv_proj": "int4_wo",
        "vision_tower.encoder.layers.0.mlp.gate_up_proj": "int4_wo",
    },
    "27": {"kv_cache": "auto"},
    "34": {"model.layers.1.self_attn.qkv_proj": "fp8_block"},
}
# Case 11 expects an error of another build; this is its stock layout.
STOCK = {
    "language_model.model.layers.0.linear_attn.in_proj_qkvz": "fp8_block",
    "language_model.model.layers.0.linear_attn.in_proj_ba": "bf16",
}
# The class of a draft model is another one; the engine builds none of its modules here.
DRAFT = {"22": "model.layers.12."}


def expected(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CASES / name / "expected.yaml").read_text("utf-8")))


def by_name(resolution: Resolution) -> dict[str, Resolved]:
    """Rows by every spelling a report may use: the engine's path and the checkpoint's, wrappers aside."""
    rows = {bare(row.module.path).removesuffix(".linear"): row for row in resolution}
    for row in resolution:
        for name in row.module.checkpoint:
            rows.setdefault(bare(name), row)
    return rows


def answers(resolution: Resolution, wanted: dict[str, str]) -> dict[str, str]:
    rows = by_name(resolution)
    found = {n: rows[bare(n)].answer.algorithm if bare(n) in rows else "not built" for n in wanted if n != "kv_cache"}
    if "kv_cache" in wanted:
        found["kv_cache"] = resolution.kv_cache
    return found


def meant(case: dict[str, Any]) -> dict[str, str]:
    return {n: WORDS.get(w, w) for n, w in case.get("modules", STOCK).items()}


@pytest.mark.parametrize("name", NAMES)
def test_what_the_metadata_means(name: str) -> None:
    case = expected(name)
    means = resolve(CASES / name, "spec", "gb200")
    assert answers(means, meant(case)) == meant(case)
    codes = {p.code for p in means.problems}
    assert {REPORTED[r.partition(":")[0]] for r in case.get("must_report", ())} <= codes


@pytest.mark.parametrize("name", [n for n in NAMES if expected(n)["loader"] in LOADERS])
def test_what_the_engine_of_the_report_answers(name: str) -> None:
    """The engine's answer of today, and one finding for every module where it is not what the metadata means."""
    case = expected(name)
    today = TODAY.get(name, {})
    loader = LOADERS[case["loader"]]
    if isinstance(today, str):
        with pytest.raises(CheckpointError) as refused:
            resolve(CASES / name, loader, "gb200")
        assert refused.value.code == today
        return
    opened = _opened(name)
    does = resolve(opened, loader, "gb200")
    wanted = {n: w for n, w in meant(case).items() if name not in DRAFT or not n.startswith(DRAFT[name])}
    # How activations of a 4-bit float format are computed is the engine's choice of kernel, not a wrong answer.
    right = {n: "mxfp4" if w == "mxfp4_a4" else w for n, w in wanted.items()}
    found = {n: "mxfp4" if w == "mxfp4_a4" else w for n, w in answers(does, wanted).items()}
    assert found == right | today
    told = [p for p in findings(does, resolve(opened, "spec", "gb200")) if p.code == "BL299"]
    listed = {bare(m) for p in told for m in p.modules}
    rows = by_name(does)
    for module in wanted:
        if module != "kv_cache":
            assert (bare(rows[bare(module)].module.path) in listed) == (module in today), module
    assert any("KV cache" in p.message for p in told) == ("kv_cache" in today)


def _opened(name: str) -> checkpoint.Checkpoint:
    """Open a case; a toy size of DeepSeek-V4 lacks keys that the engines insist on, which a real config has."""
    files = {p.name: json.loads(p.read_text("utf-8")) for p in (CASES / name).glob("*config.json")}
    if name == "06":
        real = checkpoint.open_checkpoint("nvidia/DeepSeek-V4-Flash-NVFP4")
        files["config.json"] = {**real.config, **files["config.json"], "compress_ratios": [4, 128, 0]}
    return from_dicts(files, name)


_FOUR_WAY = """language 1
extend family qwen3_5
names spec {
  fuse in_proj = in_proj_qkv in_proj_z in_proj_b in_proj_a
}
"""


def test_shards_that_disagree_are_an_error_that_names_them(tmp_path: Path) -> None:
    """Case 11: the stock layout keeps the two precisions apart; a four-way fused projection cannot hold both."""
    (tmp_path / "four_way.rules").write_text(_FOUR_WAY)
    with pytest.raises(CheckpointError) as refused:
        resolve(CASES / "11", "spec", "gb200", rules=(tmp_path,))
    assert refused.value.code == "BL245"
    for shard in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"):
        assert shard in str(refused.value)


def test_the_index_against_the_list() -> None:
    """Case 31: the metadata alone means BF16 attention; the tensors that are stored say otherwise."""
    case = expected("31")
    means = resolve(CASES / "31", "spec", "gb200")
    assert by_name(means)[bare(case["at"])].answer.algorithm == "bf16"
    disagree = [f for f in verify(means, read_folder(CASES / "31")) if f.kind == case["error"]]
    assert case["at"] in {m for f in disagree for m in f.modules}


def test_a_metadata_contradiction_is_one_finding(tmp_path: Path) -> None:
    """What the metadata means cannot be said; what the engine does still can."""
    (tmp_path / "four_way.rules").write_text(_FOUR_WAY)
    lib = library.find((tmp_path,))
    does = resolve(CASES / "11", "vllm@0.32.0", "gb200", rules=(tmp_path,))
    told = against_spec(does, lib)
    assert [p.code for p in told] == ["BL299"]
    assert "contradicts itself" in told[0].message
    assert "in_proj" in told[0].message


def test_copies_are_the_reference_inputs(shared: Path) -> None:
    """The committed inputs are the reference folder's."""
    theirs = {p.relative_to(shared / "bug_cases"): p.read_bytes() for p in (shared / "bug_cases").glob("*/*")}
    assert theirs == {p.relative_to(CASES): p.read_bytes() for p in CASES.glob("*/*")}
