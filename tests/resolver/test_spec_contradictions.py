"""What the metadata means: experts named in part, or one thing said twice, are errors, never one of the two unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from bitlane.errors import CheckpointError
from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.resolution import Resolution

MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    **{"num_hidden_layers": 2, "hidden_size": 256, "moe_intermediate_size": 128, "intermediate_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512},
    **{"num_experts": 6, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": []},
}
EXPERTS = "model.layers.0.mlp.experts"
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}


def _group(weights: dict[str, Any], *targets: str) -> dict[str, Any]:
    return {"targets": list(targets), "weights": weights, "input_activations": {**weights, "dynamic": True}}


def _ct(groups: list[dict[str, Any]], *ignore: str) -> dict[str, Any]:
    named = {f"group_{n}": g for n, g in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, "ignore": list(ignore)}


def _resolve(block: dict[str, Any], **files: dict[str, Any]) -> Resolution:
    documents = {"config.json": {**MOE, "quantization_config": block}}
    return resolve(from_dicts({**documents, **{f"{n}.json": v for n, v in files.items()}}, "toy"), "spec", "gb200")


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128}
UNIFORM = {"quant_method": "modelopt", "quant_algo": "FP8"}
MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}


@pytest.mark.parametrize(
    ("block", "code", "words"),
    [
        (_ct([_group(FP8, "Linear")], r"re:.*experts\.3\.up_proj"), "BL245", "3.up_proj bf16"),
        (
            _ct([_group(NVFP4, r"re:.*experts\.[0-2]\..*"), _group(FP8, r"re:.*experts\.[3-5]\..*")]),
            "BL245",
            "0.gate_proj nvfp4, 3.gate_proj fp8_pc_pt",
        ),
        (_ct([_group(NVFP4, r"re:.*experts\.(0|1|2)\..*")]), "BL245", "3.gate_proj bf16"),
        ({**GPTQ, "dynamic": {r"-:.*experts\.1\..*": {}}}, "BL245", "1.gate_proj bf16"),
        ({**AWQ, "modules_to_not_convert": ["experts.4.down_proj"]}, "BL245", "4.down_proj bf16"),
        ({**ROUND, "extra_config": {f"{EXPERTS}.1.up_proj": {"bits": 8}}}, "BL245", "1.up_proj int8_wo"),
        (
            {**UNIFORM, "ignore": [f"{EXPERTS}.{n}.{p}" for n in range(6) for p in ("gate_proj", "up_proj")]},
            "BL248",
            "not down_proj",
        ),
        ({**UNIFORM, "quant_algo": "NVFP4", "config_groups": {"g": _group(FP8, "Linear")}}, "BL245", "the groups"),
        ({**UNIFORM, "quantization": {"quant_algo": "NVFP4"}}, "BL245", "nested"),
        (
            {
                **MIXED,
                "quantized_layers": {
                    "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
                    "layers.0.self_attn.o_proj": {"quant_algo": "NVFP4"},
                },
            },
            "BL245",
            "o_proj FP8, o_proj NVFP4",
        ),
    ],
)
def test_what_is_said_in_part_or_twice_is_an_error(block: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        _resolve(block)
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("block", "algorithm"),
    [
        (_ct([_group(FP8, "Linear")], r"re:.*experts\.\d+\..*"), "bf16"),
        (_ct([_group(FP8, "Linear")], r"re:.*layers\.1\.mlp\.experts.*"), "fp8_pc_pt"),
        ({**GPTQ, "dynamic": {r"-:.*experts.*": {}}}, "bf16"),
        ({**AWQ, "modules_to_not_convert": ["mlp.gate"]}, "int4_wo"),
        ({**UNIFORM, "config_groups": {"g": _group(FP8, "Linear")}}, "fp8"),
    ],
)
def test_what_is_said_of_all_experts_counts(block: dict[str, Any], algorithm: str) -> None:
    assert _resolve(block)[EXPERTS].answer.algorithm == algorithm


MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    **{"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 128, "vocab_size": 512, "head_dim": 64},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
}


def _mixtral(*ignored: str) -> Resolution:
    block = _ct([_group(FP8, "Linear")], *ignored)
    return resolve(from_dicts({"config.json": {**MIXTRAL, "quantization_config": block}}, "toy"), "spec", "gb200")


def test_matrices_of_experts_go_by_the_names_that_the_checkpoint_uses() -> None:
    """w1, w3 and w2 in Mixtral: one of them skipped in one expert is an error, all of them in all experts are not."""
    every = _mixtral("re:.*experts.*w1$", "re:.*experts.*w2$", "re:.*experts.*w3$")
    assert {r.answer.algorithm for r in every if r.module.kind == "experts"} == {"bf16"}
    with pytest.raises(CheckpointError) as caught:
        _mixtral("re:.*experts.2.w1")
    assert "2.w1 bf16" in caught.value.message


def test_two_files_that_list_different_things_are_told() -> None:
    listing = {"model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"}}
    other = {"model.layers.0.self_attn.o_proj": {"quant_algo": "NVFP4"}}
    beside = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": other}}
    told = _resolve({**MIXED, "quantized_layers": listing}, hf_quant_config=beside)
    assert "the two files disagree about what is listed" in [p.message for p in told.problems]


@pytest.mark.parametrize(
    ("key", "files", "code"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, {}, "BL253"),
        ({}, {"quant_model_description.json": {"model_quant_type": "W8A8_DYNAMIC"}}, "BL253"),
        ({"quant_config": {"bits": 4}}, {}, "BL294"),
        ({"llm_config": {"quantization_config": {"quant_method": "fp8"}}}, {}, "BL294"),
    ],
)
def test_metadata_that_no_format_reads_is_not_silently_bf16(
    key: dict[str, Any], files: dict[str, dict[str, Any]], code: str
) -> None:
    opened = from_dicts({"config.json": {**MOE, **key}, **files}, "toy")
    if code == "BL253":
        with pytest.raises(CheckpointError) as caught:
            resolve(opened, "spec", "gb200")
        assert caught.value.code == code
    else:
        for loader in ("spec", "vllm@0.32.0"):
            assert code in {p.code for p in resolve(opened, loader, "gb200").problems}
