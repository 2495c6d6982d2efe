"""``bitlane verify`` and ``bitlane conform`` as a user meets them: exit codes, words, JSON."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from bitlane.cli import main

if TYPE_CHECKING:
    from click.testing import Result

GOLDENS = Path(__file__).resolve().parents[1] / "data" / "goldens"
ON = ("--loader", "vllm@0.32.0", "--system", "gb200")
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "tie_word_embeddings": True,
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "*self_attn*"]},
}
# [out, in] of every matrix, by the sizes above.
SHAPES = {
    "model.embed_tokens": [64, 64],
    "model.layers.0.self_attn.q_proj": [64, 64],
    "model.layers.0.self_attn.k_proj": [32, 64],
    "model.layers.0.self_attn.v_proj": [32, 64],
    "model.layers.0.self_attn.o_proj": [64, 64],
    "model.layers.0.mlp.gate_proj": [128, 64],
    "model.layers.0.mlp.up_proj": [128, 64],
    "model.layers.0.mlp.down_proj": [64, 128],
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def store(folder: Path, quantized: tuple[str, ...]) -> None:
    """Write a checkpoint folder with one safetensors file, byte by byte."""
    entries: dict[str, dict[str, object]] = {}
    at = 0

    def put(name: str, dtype: str, shape: list[int], width: int) -> None:
        nonlocal at
        size = width
        for n in shape:
            size *= n
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size

    for name, shape in SHAPES.items():
        if any(part in name for part in quantized):
            put(f"{name}.weight", "F8_E4M3", shape, 1)
            put(f"{name}.weight_scale", "F32", [], 4)
            put(f"{name}.input_scale", "F32", [], 4)
        else:
            put(f"{name}.weight", "BF16", shape, 2)
    header = json.dumps(entries).encode()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(at))


def test_verify_says_nothing_where_nothing_contradicts(tmp_path: Path) -> None:
    store(tmp_path, ("mlp",))
    result = run("verify", tmp_path, *ON)
    assert result.exit_code == 0, result.output
    assert "nothing contradicts" in result.output
    assert "14 tensors of 1 files" in result.output


def test_verify_tells_attention_that_is_excluded_and_stored_with_scales(tmp_path: Path) -> None:
    store(tmp_path, ("mlp", "attn"))
    result = run("verify", tmp_path, *ON)
    assert result.exit_code == 1
    assert "index_disagrees[BL601]" in result.output
    assert "`model.layers.*.self_attn.qkv_proj` is bf16 by `exclude by" in result.output
    assert "q_proj, k_proj, v_proj are stored as fp8 per tensor" in result.output
    assert "config.json#/quantization_config/ignore/1" in result.output
    document = json.loads(run("verify", tmp_path, *ON, "--json").output)
    assert document["schema"] == "bitlane.verification/1"
    assert [f["modules"] for f in document["findings"]] == [
        ["model.layers.0.self_attn.qkv_proj"],
        ["model.layers.0.self_attn.o_proj"],
    ]


def test_verify_reads_tensors_from_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    store(there, ("mlp",))
    (here / "config.json").write_text(json.dumps(CONFIG))
    assert run("verify", here, *ON).exit_code == 4
    for where in (there, there / "model.safetensors"):
        assert run("verify", here, *ON, "--tensors", where).exit_code == 0


def test_verify_refuses_a_damaged_file_with_a_code(tmp_path: Path) -> None:
    store(tmp_path, ())
    whole = (tmp_path / "model.safetensors").read_bytes()
    for data, code in ((whole[:-1], "BL274"), (whole[:50], "BL271"), (b"\xff" * 64, "BL272"), (b"", "BL271")):
        (tmp_path / "model.safetensors").write_bytes(data)
        result = run("verify", tmp_path, *ON)
        assert result.exit_code == 4
        assert f"error[{code}]" in result.stderr
        assert "= help:" in result.stderr


def test_verify_names_no_tensors_of_a_packaged_checkpoint() -> None:
    result = run("verify", "Qwen/Qwen3-8B", *ON)
    assert result.exit_code == 4
    assert "error[BL276]" in result.stderr


def test_verify_on_the_hub_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = run("verify", "org/model", *ON, "--hub")
    assert result.exit_code == 2
    assert "error[BL277]" in result.stderr
    assert "bitlane[hub]" in result.stderr


def test_verify_prints_no_control_characters(tmp_path: Path) -> None:
    store(tmp_path, ("mlp",))
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({"a\x1b[31m.weight": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    result = run("verify", tmp_path, *ON)
    assert result.exit_code == 4
    assert "\x1b" not in result.output + result.stderr


def test_conform_counts_and_exits() -> None:
    result = run("conform", "--golden", GOLDENS, "--only", "trtllm")
    assert result.exit_code == 0, result.output
    assert "257 of 257 modules (100.00%), 256 of 256 shapes" in result.output
    document = json.loads(run("conform", "--golden", GOLDENS, "--only", "trtllm", "--json").output)
    assert document["schema"] == "bitlane.conformance/1"
    assert document["totals"]["all"]["modules"] == document["totals"]["all"]["agree"] == 257 + 2 * 271
    assert document["totals"]["all"]["differences"] == 0


def test_conform_shows_both_reasons(tmp_path: Path) -> None:
    source = GOLDENS / "vllm" / "0.32.0" / "openai--gpt-oss-120b.json.gz"
    golden = json.loads(gzip.decompress(source.read_bytes()))
    for i in range(36):
        golden["modules"][f"model.layers.{i}.mlp.experts"].update(algo="nvfp4", why="the engine's reason")
    (tmp_path / "0.32.0").mkdir()
    (tmp_path / "0.32.0" / source.name).write_bytes(gzip.compress(json.dumps(golden).encode()))
    result = run("conform", "--golden", tmp_path)
    assert result.exit_code == 1
    assert "differs  vllm@0.32.0 openai--gpt-oss-120b: 110 of 146 modules (75.34%)" in result.output
    assert "model.layers.*.mlp.experts x 36: algorithm" in result.output
    assert "engine   nvfp4   the engine's reason" in result.output
    assert "bitlane  mxfp4" in result.output
    assert "loaders/vllm.rules:" in result.output


def test_conform_with_nothing_compared_is_no_success(tmp_path: Path) -> None:
    assert run("conform", "--golden", GOLDENS, "--only", "no such checkpoint").exit_code == 1
    result = run("conform", "--golden", tmp_path)
    assert result.exit_code == 2
    assert "error[BL280]" in result.stderr
