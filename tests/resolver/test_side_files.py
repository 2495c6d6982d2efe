"""Files beside config.json that are damaged, and names and patterns of any length: as the real vLLM takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitlane.errors import CheckpointError
from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    **{"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 512, "vocab_size": 512},
    **{"num_attention_heads": 4, "num_key_value_heads": 4},
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
POINTER = "version https://git-lfs.github.com/spec/v1\n"


@pytest.mark.parametrize("text", ["", "{", POINTER, "null", "[]", '"x"', "[" * 5000])
def test_a_damaged_side_file_stops_only_loaders_that_read_it(tmp_path: Path, text: str) -> None:
    """The real vLLM builds such checkpoints: config.json says all it needs."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": FP8}))
    (tmp_path / "hf_quant_config.json").write_text(text)
    answer = resolve(tmp_path, "vllm@0.32.0", "gb200")
    assert "fp8" in {r.answer.algorithm for r in answer}
    assert [p.code for p in answer.problems] == ["BL303"]
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(CheckpointError) as caught:
        resolve(tmp_path, "vllm@0.32.0", "gb200")
    assert caught.value.code in ("BL203", "BL204")


def _algorithms(block: dict[str, Any]) -> dict[str, str]:
    opened = from_dicts({"config.json": {**LLAMA, "quantization_config": block}})
    return {r.module.path: r.answer.algorithm for r in resolve(opened, "vllm@0.32.0", "gb200")}


def test_a_pattern_of_more_than_a_thousand_characters_matches() -> None:
    """An alternation over layers and projections; the real vLLM matches it."""
    names = [rf"layers\.{i}\.self_attn\.{p}_proj" for i in range(15) for p in "qkvo"]
    group = {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
    }
    found = _algorithms(
        {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "ignore": ["lm_head", f"re:.*({'|'.join(names)})$"],
            "config_groups": {"g": group},
        }
    )
    assert found["model.layers.0.self_attn.qkv_proj"] == "bf16"
    assert found["model.layers.0.mlp.down_proj"] == "fp8_pc_pt"


def test_what_is_too_long_to_be_matched_is_refused_and_not_passed_over() -> None:
    with pytest.raises(CheckpointError) as caught:
        _algorithms({**FP8, "ignored_layers": ["*" * 5000]})
    assert caught.value.code == "BL252"
