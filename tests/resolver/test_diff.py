"""diff: matrices meet through their names in the checkpoint, however the sides name and fuse their modules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.diff import bare, diff
from bitlane.resolver.resolution import Resolution

QWEN = "nvidia/Qwen3.6-35B-A3B-NVFP4"
VLLM, SGLANG, TRTLLM = "vllm@0.32.0", "sglang@0.5.23", "trtllm@main-008e0af"

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}


def fp8(*ignore: str, **more: Any) -> dict[str, Any]:
    """A ModelOpt FP8 block."""
    return {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": list(ignore), **more}


def answer(block: dict[str, Any] | None, loader: str = VLLM, system: str = "gb200", **config: Any) -> Resolution:
    files = {"config.json": {**LLAMA, **config, **({"quantization_config": block} if block else {})}}
    return resolve(from_dicts(files, "llama"), loader, system)


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("model.layers.0.mlp.down_proj", "layers.0.mlp.down_proj"),
        ("model.language_model.layers.0.mlp", "layers.0.mlp"),
        ("language_model.model.layers.0.mlp", "layers.0.mlp"),
        ("language_model.lm_head", "lm_head"),
        ("backbone.layers.0.mixer", "layers.0.mixer"),
        ("model", "model"),
        ("models.layers.0", "models.layers.0"),
        ("mtp.layers.0", "mtp.layers.0"),
    ],
)
def test_wrappers_are_no_part_of_a_name(name: str, without: str) -> None:
    assert bare(name) == without


def test_nothing_differs_from_itself() -> None:
    one = answer(fp8("lm_head"))
    found = diff(one, one)
    assert not found
    # 2 layers of q, k, v, o, gate, up and down, the embedding and the head.
    assert (found.same, found.only_a, found.only_b) == (16, [], [])


def test_two_checkpoints_differ_in_what_was_excluded() -> None:
    a, b = answer(fp8("lm_head")), answer(fp8("lm_head", "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"))
    found = diff(a, b)
    (only,) = found.differences
    assert only.what == "algorithm"
    assert only.matrices == ("model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj")
    assert (only.a.module, only.a.algorithm, only.b.algorithm) == ("model.layers.0.mlp.gate_up_proj", "fp8", "bf16")
    assert only.b.evidence
    assert found.same == 14
    assert bool(found)


def test_layers_that_say_the_same_are_folded() -> None:
    found = diff(answer(fp8("lm_head")), answer(None))
    assert [(name, count) for name, count, _ in found.folded()] == [
        ("model.layers.*.self_attn.qkv_proj", 2),
        ("model.layers.*.self_attn.o_proj", 2),
        ("model.layers.*.mlp.gate_up_proj", 2),
        ("model.layers.*.mlp.down_proj", 2),
    ]
    assert sum(len(d.matrices) for d in found.differences) == 14


def test_the_other_order_says_the_same_of_the_same_matrices() -> None:
    a, b = answer(fp8("lm_head", "*self_attn*")), answer(fp8("lm_head", "*mlp*"))
    there, back = diff(a, b), diff(b, a)
    assert {(d.matrices, d.a.algorithm, d.b.algorithm) for d in there.differences} == {
        (d.matrices, d.b.algorithm, d.a.algorithm) for d in back.differences
    }
    assert there.same == back.same


def test_a_layer_that_only_one_side_has() -> None:
    found = diff(answer(None, num_hidden_layers=3), answer(None))
    assert not found
    assert len(found.only_a) == 7
    assert all(name.startswith("model.layers.2.") for name in found.only_a)
    assert found.only_b == []


def test_the_same_precision_in_another_kernel() -> None:
    """Blackwell computes NVFP4; an H200 only unpacks it."""
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "group_size": 16}
    found = diff(answer(block, system="gb200"), answer(block, system="h200"))
    assert {d.what for d in found.differences} == {"lane"}
    assert {(d.a.lane, d.b.lane) for d in found.differences} == {("nvfp4", "nvfp4_wo")}


def test_fusion_is_told_on_request() -> None:
    """SGLang fuses q, k and v of Gemma's vision tower, gate and up too; vLLM leaves the tower as it is."""
    a, b = resolve("google/gemma-4-26B-A4B", VLLM, "gb200"), resolve("google/gemma-4-26B-A4B", SGLANG, "gb200")
    assert diff(a, b).differences == []
    told = {name.rpartition("layers.*.")[2]: d for name, _, d in diff(a, b, fusion=True).folded()}
    tower = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    assert list(told) == [f"{name}.linear" for name in tower]
    assert {d.what for d in told.values()} == {"fusion"}
    assert told["mlp.up_proj.linear"].b.module.endswith("mlp.gate_up_proj")


def test_kv_cache() -> None:
    found = diff(answer(fp8("lm_head")), answer(fp8("lm_head", kv_cache_scheme={"type": "float", "num_bits": 8})))
    assert found.kv_cache == ("auto", "fp8")
    assert found.differences == []
    assert bool(found)


def test_qwen_under_three_engines() -> None:
    """TensorRT-LLM runs the weight-only experts and head of this checkpoint with 4-bit activations; SGLang does not."""
    vllm, sglang, trtllm = (resolve(QWEN, loader, "gb200") for loader in (VLLM, SGLANG, TRTLLM))
    assert diff(vllm, sglang).differences == []
    found = diff(vllm, trtllm)
    assert [(name, count, d.a.algorithm, d.b.algorithm) for name, count, d in found.folded()] == [
        ("language_model.model.layers.*.mlp.experts", 40, "w4a16_nvfp4", "nvfp4"),
        ("language_model.lm_head", 1, "w4a16_nvfp4", "nvfp4"),
    ]
    for d in found.differences:
        assert d.a.rule_at.startswith("loaders/vllm.rules:")
        assert d.b.rule_at.startswith("loaders/trtllm.rules:")


def test_json() -> None:
    found = diff(answer(fp8("lm_head")), answer(fp8("lm_head", "*down_proj")))
    document = json.loads(json.dumps(found.to_dict()))
    assert document["schema"] == "bitlane.diff/1"
    assert document["a"]["loader_version"] == "0.32.0"
    assert [d["checkpoint_modules"] for d in document["differences"]] == [
        ["model.layers.0.mlp.down_proj"],
        ["model.layers.1.mlp.down_proj"],
    ]
    assert document["differences"][0]["b"]["rule"]
