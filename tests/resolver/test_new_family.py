"""Two families from outside, as rule files alone, equal the modules and splits of the real vLLM 0.32.0."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bitlane
from bitlane.cli import main
from bitlane.errors import CheckpointError, UsageError
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.parallel import Parallel, expert_sizes, local, local_vocabulary

_RULES = Path(__file__).resolve().parents[1] / "data" / "new_family"
_CASES = json.loads(gzip.decompress((_RULES / "vllm-0.32.0.json.gz").read_bytes()))["cases"]
_IDS = [f"{c['family']} {c['recipe']}" for c in _CASES]


def _answer(case: dict[str, Any]) -> bitlane.Resolution:
    return bitlane.resolve(from_dicts({"config.json": case["config"]}), "vllm@0.32.0", "b200", rules=(_RULES,))


def _folded(rows: list[tuple[str, Any]]) -> dict[str, Counter[str]]:
    out: dict[str, Counter[str]] = {}
    for path, facts in rows:
        out.setdefault(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path), Counter())[json.dumps(facts)] += 1
    return out


def _golden(modules: dict[str, Any]) -> dict[str, Counter[str]]:
    return {name: Counter({json.dumps(facts): n for facts, n in found}) for name, found in modules.items()}


@pytest.mark.parametrize("case", _CASES, ids=_IDS)
def test_modules_are_the_engines(case: dict[str, Any]) -> None:
    answer = _answer(case)
    quantized = case["recipe"] != "plain"
    mine = []
    for row in answer.rows:
        module = row.module
        linear = module.kind in ("linear", "experts")
        # Without a quantization config in the checkpoint there is none to give.
        configured = (module.configured and quantized) if linear else None
        shape = module.shape if module.kind == "linear" else None
        mine.append((module.path, [module.cls, row.answer.algorithm, configured, shape]))
    assert _folded(mine) == _golden(case["modules"])


@pytest.mark.parametrize(
    "case", [c for c in _CASES if c["splits"]], ids=[i for i, c in zip(_IDS, _CASES, strict=True) if c["splits"]]
)
def test_splits_are_the_engines(case: dict[str, Any]) -> None:
    answer = _answer(case)
    for asked in case["splits"]:
        split = Parallel.of(asked["tp"], asked["ep"], asked["dp"])
        if "refused" in asked:
            with pytest.raises(UsageError, match="whole blocks of the weight scales"):
                bitlane.buckets(answer, split)
            continue
        assert bitlane.buckets(answer, split)
        held = []
        for row in answer.rows:
            module = row.module
            if module.kind == "experts":
                sizes = expert_sizes(module, split)
                held.append((module.path, ["experts", sizes.hidden, sizes.local_inter, sizes.local_count]))
            elif module.kind in ("embed", "lm_head"):
                rows, hidden = module.shape or [0, 0]
                held.append((module.path, [module.kind, local_vocabulary(rows, split.tp), hidden]))
            else:
                parts = [local(m, split.tp, module) for m in module.members]
                held.append((module.path, ["linear", sum(out for out, _ in parts), parts[0][1]]))
        assert _folded(held) == _golden(asked["modules"])


def test_without_the_files_the_class_that_is_not_packaged_is_unknown() -> None:
    for case in [c for c in _CASES if c["config"]["architectures"] == ["GraniteMoeHybridForCausalLM"]][:2]:
        with pytest.raises(CheckpointError, match="no family file describes"):
            bitlane.resolve(from_dicts({"config.json": case["config"]}), "vllm@0.32.0", "b200")


def test_the_files_check_and_their_tests_pass() -> None:
    checked = CliRunner().invoke(main, ["rules", "check", str(_RULES)])
    assert checked.exit_code == 0, checked.output
    tested = CliRunner().invoke(main, ["rules", "test", str(_RULES)])
    assert tested.exit_code == 0, tested.output
    assert "none failed" in tested.output


def test_a_pass_of_a_new_family_is_priced() -> None:
    granite = next(c for c in _CASES if (c["family"], c["recipe"]) == ("granite_hybrid", "mixed"))
    found = bitlane.price(_answer(granite), phase="decode", batch=8, isl=1024, mode="HYBRID")
    assert found.total_ms > 0
    # 36 of 40 layers are Mamba, every one has a shared MLP: 40 of them in FP8, and 8 of 40 expert layers in NVFP4.
    layers = {(o.op, o.lane): o.layers for o in found.ops}
    assert layers["mamba_in_proj", "bf16"] == 36
    assert layers["shared_gate_up", "fp8_static"] == 40
    assert (layers["experts", "nvfp4"], layers["experts", "bf16"]) == (8, 32)


def test_modules_that_an_engine_asks_about_under_no_name_are_in_no_list() -> None:
    """vLLM's MiniCPM3 builds q_a_proj without its name: lists do not reach it, what counts for all modules does."""
    config = {
        "architectures": ["MiniCPM3ForCausalLM"],
        **{"hidden_size": 256, "num_hidden_layers": 1, "vocab_size": 1024, "intermediate_size": 512},
        **{"num_attention_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32},
        "qk_rope_head_dim": 16,
    }
    name = "model.layers.0.self_attn.q_a_proj"
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    listed = {**mixed, "quantized_layers": {name: {"quant_algo": "FP8"}}}
    skipped = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": [name]}
    for block, vllm, spec in ((listed, "bf16", "fp8"), (skipped, "fp8", "bf16")):
        opened = from_dicts({"config.json": {**config, "quantization_config": block}}, "toy")
        for loader, wanted in (("vllm@0.32.0", vllm), ("spec", spec)):
            assert bitlane.resolve(opened, loader, "gb200")[name].answer.algorithm == wanted, (loader, block)
