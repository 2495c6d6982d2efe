"""Stored weight bytes: against weight indexes of real checkpoints, the engine's own sizes, and hand calculations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import bitlane
from bitlane.resolver.parallel import Parallel
from bitlane.resolver.splits import stages
from bitlane.resolver.weights import WeightBytes, weight_bytes

_SPLITS = Path(__file__).resolve().parents[1] / "data" / "splits" / "vllm-0.32.0.json.gz"
_CASES = json.loads(gzip.decompress(_SPLITS.read_bytes()))["cases"]


def _answer(checkpoint: str | Path, loader: str = "vllm@0.32.0") -> bitlane.Resolution:
    return bitlane.resolve(checkpoint, loader, "b200")


def _bytes(found: list[WeightBytes]) -> int:
    return sum(w.bytes for w in found)


# --- stored checkpoints -------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "total_size", "norms"),
    [
        # `total_size` of the published model.safetensors.index.json; norms: two a layer and a last one, in bf16.
        ("meta-llama/Meta-Llama-3.1-8B", 16_060_522_496, (2 * 32 + 1) * 4096),
        ("mistralai/Mixtral-8x7B-v0.1", 93_405_585_408, (2 * 32 + 1) * 4096),
    ],
)
def test_bf16_bytes_are_those_of_the_published_index(checkpoint: str, total_size: int, norms: int) -> None:
    assert _bytes(weight_bytes(_answer(checkpoint))) + 2 * norms == total_size


def test_bytes_are_those_of_an_index_at_hand(shared: Path) -> None:
    folder = shared / "model_configs_reference" / "mistralai--Devstral-Small-2507"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    norms = (2 * 40 + 1) * 5120
    assert _bytes(weight_bytes(_answer(folder))) + 2 * norms == index["metadata"]["total_size"]


def test_fp8_blocks_with_the_draft_layer_make_up_the_published_files() -> None:
    """DeepSeek-V3: the published safetensors files hold draft layer, norms and headers too."""
    hidden, inter, heads, blocks = 7168, 2048, 128, 128 * 128
    attention = hidden * 1536 + 1536 * heads * 192 + hidden * 576 + 512 * heads * 256 + heads * 128 * hidden
    quantized = 257 * 3 * hidden * inter + attention
    draft = quantized + 4 * quantized // blocks + 2 * (256 * hidden + 2 * hidden * hidden + 2 * 129280 * hidden)
    norms = 2 * 61 * (2 * hidden + 1536 + 512) + 4 * 58 * 256
    rest = 688_586_727_753 - _bytes(weight_bytes(_answer("deepseek-ai/DeepSeek-V3"))) - draft - norms
    # 163 headers name about 92,000 tensors, some 130 bytes each.
    assert 10e6 < rest < 14e6


def test_a_layer_by_layer_reference_gives_the_same_bytes() -> None:
    """Qwen3-32B-FP8 from its config alone: every matrix of 64 layers, an fp32 scale per block of 128 x 128."""
    hidden, inter, heads, key_heads, size = 5120, 25600, 64, 8, 128
    total = 2 * 2 * 151936 * hidden
    for _ in range(64):
        attention = [
            (heads * size, hidden),
            (key_heads * size, hidden),
            (key_heads * size, hidden),
            (hidden, heads * size),
        ]
        for out, into in [*attention, (inter, hidden), (inter, hidden), (hidden, inter)]:
            total += out * into + 4 * (out // 128) * (into // 128)
    assert _bytes(weight_bytes(_answer("Qwen/Qwen3-32B-FP8"))) == total


# --- one rank -----------------------------------------------------------------


def _golden_weights(case: dict[str, Any], gated: int) -> int:
    total = 0
    for sizes in case["modules"].values():
        for (kind, *size), count in sizes:
            if kind == "experts":
                hidden, inter, experts = size
                total += count * (3 if gated else 2) * hidden * inter * experts
            else:
                total += count * size[0] * size[1]
    return total


_PACKAGED = [
    c for c in _CASES
    if "modules" in c
    and (Path(__file__).resolve().parents[2] / "model_configs" / c["checkpoint"]).is_dir()
    # Shared experts of sequences that are cut, and towers that stand whole, are told apart in test_splits.
    and not (c["tp"] > 1 and c["dp"] > 1 and c["ep"] > 1)
    and c["tp"] < 32
]  # fmt: skip


def test_weights_of_one_rank_are_those_that_the_engine_builds() -> None:
    answers: dict[str, bitlane.Resolution] = {}
    wrong = []
    for case in _PACKAGED:
        name = case["checkpoint"]
        answer = answers.setdefault(name, _answer(name.replace("--", "/", 1)))
        rows = {r.module.path: r for r in answer.rows}
        gated = next((r.module.attributes.get("gated", 1) for r in rows.values() if r.module.kind == "experts"), 1)
        split = Parallel.of(case["tp"], case["ep"], case["dp"])
        mine = sum(w.weights for w in weight_bytes(answer, split))
        tied = next((r for r in rows.values() if r.module.attributes.get("tied")), None)
        # The engine lists a tied head beside the embedding, whose memory it shares.
        head = [v[0][0] for k, v in case["modules"].items() if v[0][0][0] == "lm_head"] if tied else []
        engine = _golden_weights(case, gated) - sum(h[1] * h[2] for h in head)
        if mine != engine:
            wrong.append(f"{name} {split.text}: {mine} here, {engine} in the engine")
    assert wrong == []
    assert len(_PACKAGED) >= 100


def test_expert_parallelism_and_tensor_parallelism_hold_the_same_bytes_of_even_experts() -> None:
    answer = _answer("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")

    def experts(split: Parallel) -> WeightBytes:
        return next(w for w in weight_bytes(answer, split) if w.op == "experts")

    one = experts(Parallel.of())
    by_expert, by_tensor = experts(Parallel.of(tp=4, ep=4)), experts(Parallel.of(tp=4))
    assert one.weights == 23 * 128 * 2 * 2688 * 1856
    assert by_expert.weights == by_tensor.weights == one.weights // 4
    # Each expert matrix: 4 bits a weight, an fp8 scale per 16, two fp32 scalars; a rank of tp 4 keeps all its scalars.
    assert by_expert.bytes == one.bytes // 4 == one.weights // 4 * 9 // 16 + 23 * 32 * 2 * 8
    assert by_tensor.bytes == one.weights // 4 * 9 // 16 + 23 * 128 * 2 * 8


def test_stages_hold_the_model_together() -> None:
    answer = _answer("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    split = Parallel.of(tp=2, pp=4)
    parts = [_bytes(weight_bytes(answer, split, s)) for s in stages(answer, split)]
    assert sum(parts) == _bytes(weight_bytes(answer, Parallel.of(tp=2)))
    assert min(parts) > 0


def test_a_tied_head_counts_once_and_again_on_a_last_stage() -> None:
    answer = _answer("Qwen/Qwen3-0.6B")
    embedding = 151936 * 1024 * 2
    assert [w.op for w in weight_bytes(answer)].count("lm_head") == 0
    split = Parallel.of(pp=2)
    parts = [_bytes(weight_bytes(answer, split, s)) for s in stages(answer, split)]
    assert sum(parts) == _bytes(weight_bytes(answer)) + embedding


# --- scales that the metadata declares ----------------------------------------


def _small(folder: Path, quantization: dict[str, Any]) -> bitlane.Resolution:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 512,
        "quantization_config": quantization,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return _answer(folder)


def _ct(weights: dict[str, Any], fmt: str, activations: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors", "format": fmt, "config_groups": {"group_0": group}, "ignore": ["lm_head"],
    }  # fmt: skip


_INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "dynamic": False}
_FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
_DOWN = 512 * 1024  # weights of one down_proj: 512 rows of 1024


@pytest.mark.parametrize(
    ("quantization", "down"),
    [
        # One 16-bit scale per group of a row; GPTQ and AWQ add packed zero points, GPTQ an int32 per input.
        (_ct({**_INT4, "group_size": 32}, "pack-quantized"), _DOWN // 2 + 512 * 32 * 2),
        (_ct({**_INT4, "group_size": 128}, "pack-quantized"), _DOWN // 2 + 512 * 8 * 2),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True},
            _DOWN // 2 + 512 * 16 * 2 + 512 * 16 // 2 + 1024 * 4,
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": False, "sym": True},
            _DOWN // 2 + 512 * 2 + 512 // 2 + 1024 * 4,
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
            _DOWN // 2 + 512 * 16 * 2 + 512 * 16 // 2,
        ),
        # One fp32 scale per block of 128 x 128, or of what the metadata says.
        (
            {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            _DOWN + 4 * 8 * 4,
        ),
        (
            {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 256]},
            _DOWN + 8 * 4 * 4,
        ),
        # One fp32 scale per row; per matrix one for the weight, and one for the input where it is static.
        (
            _ct({**_FP8, "strategy": "channel"}, "float-quantized", {**_FP8, "strategy": "token", "dynamic": True}),
            _DOWN + 512 * 4,
        ),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, _DOWN + 4),
        ({"quant_method": "fp8", "activation_scheme": "static"}, _DOWN + 8),
        # NVFP4: an fp8 scale per 16, two fp32 scalars.
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, _DOWN // 2 + _DOWN // 16 + 8),
    ],
)
def test_bytes_of_scales_follow_the_metadata(tmp_path: Path, quantization: dict[str, Any], down: int) -> None:
    answer = _small(tmp_path, quantization)
    found = next(w for w in weight_bytes(answer) if w.op == "mlp_down")
    assert (found.modules, found.weights, found.bytes) == (2, 2 * _DOWN, 2 * down)


def test_scales_of_a_fused_module_are_those_of_its_stored_matrices(tmp_path: Path) -> None:
    """A shard whose rows are no whole block has its own last block: q, k and v of 192 rows have 2 x 4 blocks each."""
    quantization = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    _small(tmp_path, quantization)
    config = json.loads((tmp_path / "config.json").read_text()) | {"head_dim": 48}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = next(w for w in weight_bytes(_answer(tmp_path)) if w.op == "qkv")
    assert found.bytes == 2 * (3 * 192 * 512 + 4 * 3 * 2 * 4)


def test_an_algorithm_that_the_user_gave_has_its_usual_scales(tmp_path: Path) -> None:
    _small(tmp_path, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 256]})
    answer = bitlane.resolve(tmp_path, "vllm@0.32.0", "b200", modes={"gemm": "fp8_block"})
    found = next(w for w in weight_bytes(answer) if w.op == "mlp_down")
    assert found.bytes == 2 * (_DOWN + 4 * 8 * 4)
