"""findings: what an engine does other than the metadata means, and nothing else."""

from __future__ import annotations

from typing import Any

from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.resolution import Problem
from bitlane.resolver.verdict import against_spec, findings
from bitlane.rules import library

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}


def told(block: dict[str, Any], loader: str = "vllm@0.32.0", **files: dict[str, Any]) -> list[Problem]:
    all_files = {"config.json": {**CONFIG, "quantization_config": block}}
    opened = from_dicts(all_files | {f"{name}.json": v for name, v in files.items()}, "llama")
    return findings(resolve(opened, loader, "gb200"), resolve(opened, "spec", "gb200"))


def test_agreement_is_silent() -> None:
    assert told({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "model.layers.1*"]}) == []


def test_short_names_that_vllm_compares_for_equality() -> None:
    """`mlp.down_proj` means three modules; vLLM quantizes them all the same."""
    block = {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": ["mlp.down_proj"]}
    (found,) = told(block)
    assert found.code == "BL299"
    assert found.modules == tuple(f"model.layers.{i}.mlp.down_proj" for i in range(3))
    assert found.message.startswith("`model.layers.*.mlp.down_proj` (3 modules) is fp8 in vllm 0.32.0 by `")
    assert "the metadata means bf16" in found.message
    assert "loaders/vllm.rules:" in found.message
    assert "loaders/spec.rules:" in found.message


def test_the_kv_cache() -> None:
    """A scheme in the second file alone is no concern of vLLM."""
    block = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    second = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (found,) = told(block, hf_quant_config=second)
    assert found.message == "the metadata means a KV cache in fp8; vllm 0.32.0 leaves the KV cache's precision open"
    assert found.modules == ()


def test_four_bit_floats_are_one_storage_format() -> None:
    """Which activations go with MXFP4 weights is the engine's choice of kernel."""
    group = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}
    block = {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": group, "input_activations": {**group, "dynamic": True}}
        },
        "ignore": ["lm_head"],
    }
    assert told(block) == []


def test_a_contradiction_of_the_metadata_itself() -> None:
    """The engine decides by the first shard; the metadata means two things for one module."""
    listed = {
        "model.layers.0.mlp.gate_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
    }
    block = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed, "ignore": []}
    opened = from_dicts({"config.json": {**CONFIG, "quantization_config": block}}, "llama")
    does = resolve(opened, "trtllm", "gb200")
    (found,) = against_spec(does, library.find())
    assert found.code == "BL299"
    assert found.message.startswith("the metadata contradicts itself or is not understood: ")


def test_problems_of_the_metadata_come_along() -> None:
    """Two files that disagree are told whatever the engine reads."""
    block = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    second = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    files = {"config.json": {**CONFIG, "quantization_config": block}, "hf_quant_config.json": second}
    does = resolve(from_dicts(files, "llama"), "vllm@0.32.0", "gb200")
    assert "BL297" in {p.code for p in against_spec(does, library.find())}
