"""``bitlane diff`` as a user meets it: pairing of sides, words, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bitlane.cli import main

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["diff", *(str(a) for a in arguments)])


def store(folder: Path, block: dict[str, Any] | None) -> Path:
    folder.mkdir()
    config = {**CONFIG, **({"quantization_config": block} if block else {})}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return store(tmp_path / "plain", None)


@pytest.fixture
def fp8(tmp_path: Path) -> Path:
    return store(
        tmp_path / "fp8", {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "*self_attn*"]}
    )


ON = ("--loader", "vllm@0.32.0", "--system", "gb200")


def test_two_checkpoints(plain: Path, fp8: Path) -> None:
    shown = run(fp8, plain, *ON)
    assert shown.exit_code == 1
    assert "model.layers.*.mlp.gate_up_proj" in shown.output
    assert "self_attn" not in shown.output
    assert "10 matrices agree, 6 differ" in shown.output


def test_one_checkpoint_under_two_engines_that_agree(fp8: Path) -> None:
    shown = run(fp8, "--loader", "vllm@0.32.0", "--loader", "spec", "--system", "gb200")
    assert shown.exit_code == 0
    assert "16 matrices agree, 0 differ" in shown.output


def test_three_sides_are_two_comparisons(fp8: Path) -> None:
    shown = run(fp8, "--loader", "vllm@0.32.0", "--loader", "sglang", "--loader", "spec", "--system", "gb200", "--json")
    document = json.loads(shown.output)
    assert document["schema"] == "bitlane.diff/1"
    assert [(d["a"]["loader"], d["b"]["loader"]) for d in document["diffs"]] == [("vllm", "sglang"), ("vllm", "spec")]
    assert document["refused"] == []


def test_two_systems(tmp_path: Path) -> None:
    folder = store(
        tmp_path / "nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "group_size": 16}
    )
    shown = run(folder, "--loader", "vllm@0.32.0", "--system", "gb200", "--system", "h200")
    assert shown.exit_code == 1
    assert "on gb200" in shown.output
    assert "nvfp4 (nvfp4_wo)" in shown.output


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    """TensorRT-LLM does not read GPTQ; what the others say is still compared."""
    folder = store(tmp_path / "gptq", GPTQ)
    sides = ("--loader", "vllm@0.32.0", "--loader", "spec", "--loader", "trtllm", "--system", "gb200")
    shown = run(folder, *sides)
    assert shown.exit_code == 1
    assert "trtllm on gb200 refuses" in shown.output
    assert "BL253" in shown.output
    refused = json.loads(run(folder, *sides, "--json").output)["refused"]
    assert [(r["loader"], r["code"]) for r in refused] == [("trtllm", "BL253")]


def test_nobody_answers(tmp_path: Path) -> None:
    folder = store(tmp_path / "gptq", GPTQ)
    shown = run(folder, "--loader", "trtllm", "--system", "gb200", "--system", "h200")
    assert shown.exit_code != 0
    assert "BL253" in shown.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("X", "--loader", "spec", "--system", "gb200"),
        ("X", "Y", "Z", "--loader", "spec", "--loader", "vllm", "--system", "gb200"),
        ("X", "Y", "--loader", "spec", "--system", "gb200", "--system", "h200", "--system", "b200"),
    ],
)
def test_sides_that_do_not_pair(arguments: tuple[str, ...]) -> None:
    shown = run(*arguments)
    assert shown.exit_code == 2
    assert "BL233" in shown.output


def test_control_characters_are_not_printed(tmp_path: Path, plain: Path) -> None:
    folder = store(
        tmp_path / "odd", {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "\x1b[31m*mlp*"]}
    )
    assert "\x1b" not in run(folder, plain, *ON).output
