"""Published facts about real checkpoints, as vLLM 0.31 answers them; none of the numbers comes from this code."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bitlane import paths
from bitlane.errors import CheckpointError
from bitlane.resolver.api import resolve
from bitlane.resolver.buckets import Parallel, buckets

LIGHTNING = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
GEMMA = "nvidia/Gemma-4-26B-A4B-NVFP4"
QWEN = "nvidia/Qwen3.6-35B-A3B-NVFP4"

# Tail of the loader-side path -> how many modules run at which algorithm; sources: the published listings, and vLLM
# 0.31.0 itself building the model classes on the meta device.
FACTS = {
    LIGHTNING: {
        "mixer.in_proj": {"fp8": 23},
        "mixer.out_proj": {"fp8": 23},
        "mixer.qkv_proj": {"bf16": 6},
        "mixer.o_proj": {"bf16": 6},
        "mixer.shared_experts.up_proj": {"w4a16_nvfp4": 23},
        "mixer.shared_experts.down_proj": {"w4a16_nvfp4": 23},
        "mixer.experts": {"w4a16_nvfp4": 23},
        "mixer.gate": {"bf16": 23},
        "mixer.conv1d": {"bf16": 23},
        "embed_tokens": {"bf16": 1},
        "lm_head": {"w4a16_nvfp4": 1},
    },
    GEMMA: {
        "experts": {"nvfp4": 30},
        "language_model.model.layers.0.mlp.gate_up_proj": {"bf16": 1},
        "mlp.gate_up_proj": {"bf16": 30},
        "self_attn.qkv_proj": {"bf16": 30},
        "router.proj": {"bf16": 30},
        "lm_head": {"bf16": 1},
    },
    QWEN: {
        "linear_attn.in_proj_qkvz": {"fp8": 30},
        "linear_attn.out_proj": {"fp8": 30},
        "linear_attn.in_proj_ba": {"bf16": 30},
        "self_attn.qkv_proj": {"fp8": 10},
        "self_attn.o_proj": {"fp8": 10},
        "mlp.experts": {"w4a16_nvfp4": 40},
        "mlp.shared_expert.gate_up_proj": {"w4a16_nvfp4": 40},
        "mlp.shared_expert.down_proj": {"w4a16_nvfp4": 40},
        "lm_head": {"w4a16_nvfp4": 1},
    },
}

SUPER = {
    "mixer.shared_experts.up_proj": {"fp8": 39, "bf16": 1},
    "mixer.shared_experts.down_proj": {"fp8": 37, "nvfp4": 1, "bf16": 2},
    "mixer.fc1_latent_proj": {"fp8": 3, "bf16": 37},
    "mixer.fc2_latent_proj": {"fp8": 1, "bf16": 39},
    "mixer.in_proj": {"fp8": 28, "bf16": 12},
    "mixer.o_proj": {"fp8": 2, "bf16": 6},
    "mixer.qkv_proj": {"bf16": 8},
    "mixer.experts": {"nvfp4": 40},
}


def counts(resolution, tail, attribute=lambda r: r.answer.algorithm):
    return Counter(attribute(r) for r in resolution if r.module.path == tail or r.module.path.endswith("." + tail))


@pytest.fixture(scope="module")
def super_shaped(tmp_path_factory):
    """A Super-shaped checkpoint: synthetic choice of layers, published counts."""
    folder = tmp_path_factory.mktemp("super")
    script = Path(paths.MODEL_CONFIGS) / "reconstruct_super.py"
    subprocess.run([sys.executable, script, "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.mark.parametrize("name", FACTS)
def test_precision_of_every_kind(name):
    answer = resolve(name, "vllm@0.31.0", "gb200")
    for tail, want in FACTS[name].items():
        got = counts(answer, tail)
        if name == GEMMA and tail == "experts":
            got = Counter(r.answer.algorithm for r in answer if r.module.kind == "experts")
        assert got == want, tail


@pytest.mark.parametrize("name", FACTS)
def test_every_answer_names_its_rule_and_place(name):
    for row in resolve(name, "vllm@0.31.0", "gb200").to_dict()["modules"]:
        assert row["rule"], row["module"]
        file, _, line = row["rule_at"].rpartition(":")
        text = (paths.RULES / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        assert text.strip()
        assert not text.strip().startswith("#")


def test_evidence_points_at_the_declaration():
    answer = resolve(LIGHTNING, "vllm@0.31.0", "gb200")
    config = answer.checkpoint.config
    row = answer["model.layers.0.mixer.in_proj"]
    (place,) = row.answer.evidence
    file, _, pointer = place.partition("#")
    value = config
    for part in pointer.split("/")[1:]:
        value = value[part.replace("~1", "/").replace("~0", "~")]
    assert file == "config.json"
    assert value == {"quant_algo": "FP8"}


@pytest.mark.parametrize("name", FACTS)
def test_no_native_fp4_lane_on_hopper(name):
    answer = resolve(name, "vllm@0.31.0", "h200")
    lanes = {r.answer.algorithm: r.lane.lane for r in answer}
    assert "nvfp4" not in lanes.values()
    assert lanes.get("nvfp4", "nvfp4_wo") == "nvfp4_wo"
    assert lanes.get("w4a16_nvfp4", "w4a16_nvfp4") == "w4a16_nvfp4"


def test_weight_only_experts_are_not_turned_into_nvfp4():
    answer = resolve(LIGHTNING, "vllm@0.31.0", "gb200")
    assert counts(answer, "mixer.experts", lambda r: r.lane.lane) == {"w4a16_nvfp4": 23}


def test_super_shaped_split(super_shaped):
    answer = resolve(super_shaped, "vllm@0.31.0", "gb200")
    assert len(answer.chooser.declared.listing) == 41_099
    for tail, want in SUPER.items():
        assert counts(answer, tail) == want, tail


def test_super_shaped_has_one_bucket_per_precision(super_shaped):
    answer = resolve(super_shaped, "vllm@0.31.0", "gb200")
    found = Counter()
    for bucket in buckets(answer, Parallel.of()):
        assert (bucket.op, bucket.lane) not in found
        found[(bucket.op, bucket.lane)] = bucket.layers
    assert {lane: n for (op, lane), n in found.items() if op == "shared_up"} == {"fp8_static": 39, "bf16": 1}
    assert {lane: n for (op, lane), n in found.items() if op == "shared_down"} == {
        "fp8_static": 37,
        "nvfp4": 1,
        "bf16": 2,
    }
    assert {lane: n for (op, lane), n in found.items() if op == "mamba_in_proj"} == {"fp8_static": 28, "bf16": 12}


def test_original_lightning_pair_is_refused_as_vllm_refuses_it(lightning_original):
    # vLLM of every version: "ValueError: Unknown ModelOpt quant algo: MIXED_PRECISION".
    with pytest.raises(CheckpointError, match="Unknown ModelOpt quant algo") as caught:
        resolve(lightning_original, "vllm@0.31.0", "gb200")
    assert caught.value.exit_code == 4
    assert "hf_quant_config.json" in caught.value.place


def test_buckets_of_one_name_add_up_to_the_layers():
    answer = resolve(LIGHTNING, "vllm@0.31.0", "gb200")
    total = Counter()
    for bucket in buckets(answer, Parallel.of()):
        total[bucket.op] += bucket.layers
    assert total["mamba_in_proj"] == 23
    assert total["experts"] == 23
    assert total["qkv"] == 6
    assert total["norm"] == 52


@pytest.mark.parametrize(("tp", "n_qkv", "k_o"), [(1, 4608, 4096), (2, 2304, 2048), (4, 1024 + 2 * 128, 1024)])
def test_rank_local_shapes_replicate_kv_heads(tp, n_qkv, k_o):
    # Lightning has 32 query heads and 2 KV heads of 128: at tp 4 every rank keeps 8 query and one of each KV head.
    shapes = {b.op: b.shape for b in buckets(resolve(LIGHTNING, "vllm@0.31.0", "gb200"), Parallel.of(tp=tp))}
    assert shapes["qkv"] == {"n": n_qkv, "k": 2688}
    assert shapes["o_proj"] == {"n": 2688, "k": k_o}
