"""verify: what a checkpoint stores against what an engine builds; every contradiction once, nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import Stored, as_resolved, gptq, matrix, plain, write_sharded

from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.headers import Tensor
from bitlane.resolver.tensors import Tensors, read_folder
from bitlane.resolver.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from bitlane.resolver.contradictions import Verification
    from bitlane.resolver.resolution import Resolution

VLLM = "vllm@0.32.0"

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}
MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}


def nvfp4(ignore: list[str], config: dict[str, Any] = LLAMA) -> Resolution:
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignore, "group_size": 16, "config_groups": {}}
    return resolve(from_dicts({"config.json": {**config, "quantization_config": block}}), VLLM, "gb200")


def mixed(listed: dict[str, str], config: dict[str, Any] = LLAMA) -> Resolution:
    layers = {name: {"quant_algo": word} for name, word in listed.items()}
    block = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": [], "quantized_layers": layers}
    return resolve(from_dicts({"config.json": {**config, "quantization_config": block}}), VLLM, "gb200")


def tensors(stored: Stored, bare: bool = False) -> Tensors:
    if bare:
        return Tensors("index", {n: Tensor(n) for n in stored})
    return Tensors("folder", {n: Tensor(n, d, tuple(s), "f") for n, (d, s) in stored.items()}, ("f",))


def told(found: Verification) -> list[tuple[str, str, int]]:
    return [(f.code, f.module, len(f.modules)) for f in found]


# --- nothing to say -------------------------------------------------------------

# Every storage of this list is what one published export looks like; deepseek_v4 and gpt_oss have layouts of their own.
QUICK = ["Qwen/Qwen3-32B-FP8", "nvidia/Gemma-4-26B-A4B-NVFP4", "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"]
SLOW = [
    "deepseek-ai/DeepSeek-V3",
    "nvidia/GLM-5-NVFP4",
    "nvidia/Qwen3.5-397B-A17B-NVFP4",
    "openai/gpt-oss-120b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "moonshotai/Kimi-K2.5",
]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
@pytest.mark.parametrize("bare", [False, True])
def test_what_is_stored_as_it_is_built_says_nothing(name: str, bare: bool) -> None:
    resolution = resolve(name, VLLM, "gb200")
    found = verify(resolution, tensors(as_resolved(resolution), bare))
    assert told(found) == []
    assert found.compared == len(resolution)


def test_a_gpt_oss_folder_with_stacked_blocks() -> None:
    config = {
        "architectures": ["GptOssForCausalLM"],
        **{
            "hidden_size": 256,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        **{
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "vocab_size": 1024,
            "layer_types": ["full_attention"] * 2,
        },
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
        },
    }
    resolution = resolve(from_dicts({"config.json": config}), VLLM, "gb200")
    stored = {n: t for n, t in as_resolved(resolution).items() if ".experts." not in n}
    for i in range(2):
        at = f"model.layers.{i}.mlp.experts"
        stored |= {
            f"{at}.gate_up_proj_blocks": ("U8", [8, 256, 8, 16]),
            f"{at}.gate_up_proj_scales": ("U8", [8, 256, 8]),
        }
        stored |= {f"{at}.gate_up_proj_bias": ("BF16", [8, 256]), f"{at}.down_proj_bias": ("BF16", [8, 256])}
        stored |= {f"{at}.down_proj_blocks": ("U8", [8, 256, 4, 16]), f"{at}.down_proj_scales": ("U8", [8, 256, 4])}
    assert told(verify(resolution, tensors(stored))) == []
    assert told(verify(resolution, tensors(stored, bare=True))) == []
    # The same experts without their scales, as a BF16 export has them.
    plain_experts = {n: t for n, t in stored.items() if ".experts." not in n}
    plain_experts |= {f"model.layers.{i}.mlp.experts.gate_up_proj": ("BF16", [8, 256, 256]) for i in range(2)}
    plain_experts |= {f"model.layers.{i}.mlp.experts.down_proj": ("BF16", [8, 128, 256]) for i in range(2)}
    assert told(verify(resolution, tensors(plain_experts))) == [("BL601", "model.layers.*.mlp.experts", 2)]


# --- precision ------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
def test_a_head_that_is_excluded_and_stored_with_scales(bare: bool) -> None:
    resolution = nvfp4(["lm_head"])
    stored = as_resolved(resolution)
    assert told(verify(resolution, tensors(stored, bare))) == []
    del stored["lm_head.weight"]
    (found,) = verify(resolution, tensors(stored | matrix("lm_head", "nvfp4", 1024, 256), bare))
    assert (found.code, found.kind, found.modules, found.resolved) == ("BL601", "index_disagrees", ("lm_head",), "bf16")
    assert "nvfp4" in found.stored
    assert found.evidence == ("config.json#/quantization_config/ignore/0",)


@pytest.mark.parametrize("bare", [False, True])
def test_experts_built_plain_that_carry_scales_are_one_finding(bare: bool) -> None:
    resolution = nvfp4(["model.layers.*.mlp.experts*"], MOE)
    experts = [r.module.path for r in resolution if r.module.kind == "experts"]
    assert {resolution[p].answer.algorithm for p in experts} == {"bf16"}
    stored = as_resolved(resolution, changed=dict.fromkeys(experts, "nvfp4"))
    assert len(stored) > 3 * 8 * 3
    (found,) = verify(resolution, tensors(stored, bare))
    assert (found.code, found.module, found.modules) == ("BL601", "model.layers.*.mlp.experts", tuple(experts))
    assert "8 x gate_proj, 8 x up_proj, 8 x down_proj are stored as nvfp4" in found.message


@pytest.mark.parametrize("bare", [False, True])
def test_quantized_modules_that_are_stored_plain(bare: bool) -> None:
    resolution = nvfp4(["lm_head"])
    changed = {f"model.layers.{i}.mlp.down_proj": "bf16" for i in (0, 2)}
    (found,) = verify(resolution, tensors(as_resolved(resolution, changed=changed), bare))
    assert (found.code, found.modules, found.resolved) == ("BL601", tuple(changed), "nvfp4")
    assert "without scales" in found.stored


def test_one_shard_and_some_experts_of_another_precision() -> None:
    resolution = nvfp4(["lm_head"], MOE)
    stored = as_resolved(resolution)
    for tail in ("weight", "weight_scale", "weight_scale_2", "input_scale"):
        del stored[f"model.layers.1.self_attn.k_proj.{tail}"]
        del stored[f"model.layers.1.mlp.experts.3.up_proj.{tail}"]
    stored |= plain("model.layers.1.self_attn.k_proj", 128, 256) | plain(
        "model.layers.1.mlp.experts.3.up_proj", 128, 256
    )
    qkv, experts = verify(resolution, tensors(stored))
    assert (qkv.code, qkv.modules) == ("BL601", ("model.layers.1.self_attn.qkv_proj",))
    assert "k_proj is stored as BF16 without scales" in qkv.message
    assert (experts.code, experts.modules) == ("BL601", ("model.layers.1.mlp.experts",))
    assert "up_proj is stored as BF16 without scales" in experts.message


def test_gptq_with_attention_missing_from_its_list() -> None:
    """Bug case 31 of the reference, from vllm-project/vllm#25455."""
    inside = [["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]
    block = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False}
    config = {**LLAMA, "quantization_config": {**block, "modules_in_block_to_quantize": inside}}
    resolution = resolve(from_dicts({"config.json": config}), VLLM, "gb200")
    stored: Stored = plain("model.embed_tokens", 1024, 256) | plain("lm_head", 1024, 256)
    for i in range(3):
        attention, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        for name, out, into in (("q", 256, 256), ("k", 128, 256), ("v", 128, 256), ("o", 256, 256)):
            stored |= gptq(f"{attention}.{name}_proj", out, into)
        for name, out, into in (("gate", 512, 256), ("up", 512, 256), ("down", 256, 512)):
            stored |= gptq(f"{mlp}.{name}_proj", out, into)
    for bare in (False, True):
        found = verify(resolution, tensors(stored, bare))
        assert told(found) == [
            ("BL601", "model.layers.*.self_attn.qkv_proj", 3),
            ("BL601", "model.layers.*.self_attn.o_proj", 3),
        ]
        assert {f.kind for f in found} == {"index_disagrees"}


def test_metadata_that_an_engine_ignores() -> None:
    # ModelOpt metadata without `quant_method`: vLLM builds everything BF16, silently (loaders.md, rule 4).
    config = {**LLAMA, "quantization_config": {"quant_algo": "FP8", "ignore": ["lm_head"]}}
    resolution = resolve(from_dicts({"config.json": config}), VLLM, "gb200")
    assert {r.answer.algorithm for r in resolution} == {"bf16"}
    quantized = {r.module.path: "fp8" for r in resolution if r.module.layer >= 0}
    found = verify(resolution, tensors(as_resolved(resolution, changed=quantized)))
    assert [(f.code, len(f.modules)) for f in found] == [("BL601", 3)] * 4


# --- scales, sizes, names ---------------------------------------------------------


def test_four_bit_activations_need_a_stored_scale() -> None:
    resolution = nvfp4(["lm_head"])
    stored = {n: t for n, t in as_resolved(resolution).items() if not n.endswith("input_scale")}
    found = verify(resolution, tensors(stored))
    assert [f.code for f in found] == ["BL603"] * 4
    assert all("without the scale of the input" in f.message for f in found)
    # Where the GPU runs weights only, nobody asks for it.
    block = resolution.checkpoint
    assert told(verify(resolve(block, VLLM, "h200"), tensors(stored))) == []


def test_a_scale_that_is_missing_or_of_the_wrong_size() -> None:
    resolution = nvfp4(["lm_head"])
    stored = as_resolved(resolution)
    stored["model.layers.1.mlp.down_proj.weight_scale"] = ("F8_E4M3", [256, 16])
    del stored["model.layers.2.self_attn.o_proj.weight_scale_2"]
    found = verify(resolution, tensors(stored))
    assert told(found) == [
        ("BL603", "model.layers.*.mlp.down_proj", 1),
        ("BL603", "model.layers.*.self_attn.o_proj", 1),
    ]
    assert "[256, 32] would fit" in found.findings[0].message
    assert "`weight_scale_2` is not there" in found.findings[1].message


def test_a_matrix_of_another_size() -> None:
    resolution = nvfp4(["lm_head"], MOE)
    stored = as_resolved(resolution)
    for tail, shape in (("weight", [256, 64]), ("weight_scale", [256, 8])):
        stored[f"model.layers.1.self_attn.o_proj.{tail}"] = (
            stored[f"model.layers.1.self_attn.o_proj.{tail}"][0],
            shape,
        )
    for expert in range(8):
        stored |= matrix(f"model.layers.2.mlp.experts.{expert}.up_proj", "nvfp4", 96, 256)
    o_proj, experts = verify(resolution, tensors(stored))
    assert (o_proj.code, o_proj.modules) == ("BL605", ("model.layers.1.self_attn.o_proj",))
    assert "[256, 128], and the config says [256, 256]" in o_proj.message
    assert (experts.code, experts.modules) == ("BL605", ("model.layers.2.mlp.experts",))
    assert "[96, 256], and the config says 8 experts of 128 x 256" in experts.message


def test_a_convolution_keeps_its_axes() -> None:
    resolution = resolve("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", VLLM, "gb200")
    stored = as_resolved(resolution)
    convolutions = [n for n in stored if n.endswith("conv1d.weight")]
    assert convolutions
    for name in convolutions:
        dtype, (channels, width) = stored[name]
        stored[name] = (dtype, [channels, 1, width])
    assert told(verify(resolution, tensors(stored))) == []


def test_experts_that_are_not_all_there() -> None:
    resolution = nvfp4(["lm_head"], MOE)
    (found,) = verify(resolution, tensors(as_resolved(resolution, experts=6)))
    assert (found.code, found.modules[0], len(found.modules)) == ("BL604", "model.layers.0.mlp.experts", 3)
    assert "6 experts are stored, and the config says 8" in found.message


def test_modules_without_a_tensor() -> None:
    resolution = nvfp4(["lm_head"])
    stored = {n: t for n, t in as_resolved(resolution).items() if ".1.mlp.down_proj" not in n and ".v_proj" not in n}
    found = verify(resolution, tensors(stored))
    assert told(found) == [
        ("BL604", "model.layers.*.self_attn.qkv_proj", 3),
        ("BL604", "model.layers.*.mlp.down_proj", 1),
    ]
    assert "v_proj is not stored beside q_proj, k_proj" in found.findings[0].message


def test_a_tied_head_needs_no_tensor() -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    for config, count in ((LLAMA, 1), (tied, 0)):
        resolution = nvfp4(["lm_head"], config)
        stored = {n: t for n, t in as_resolved(resolution).items() if n != "lm_head.weight"}
        assert len(verify(resolution, tensors(stored))) == count


def test_another_model_altogether() -> None:
    (found,) = verify(nvfp4(["lm_head"]), tensors({"transformer.h.0.attn.c_attn.weight": ("BF16", [4, 4])}))
    assert found.code == "BL604"
    assert "transformer.h.0.attn.c_attn" in found.message


def test_a_listing_against_what_is_stored() -> None:
    listed = {f"model.layers.{i}.mlp.{n}_proj": "FP8" for i in range(3) for n in ("gate", "up", "down")}
    listed |= {"model.layers.0.self_attn.o_proj": "NVFP4", "model.layers.9.mlp.down_proj": "FP8"}
    resolution = mixed({**listed, "model.layers.3.mlp.down_proj": "FP8"})
    stored = as_resolved(resolution)
    # The engine follows the listing, so one contradiction is a finding about the engine's answer ...
    o_proj = "model.layers.0.self_attn.o_proj"
    for tail in ("weight", "weight_scale", "weight_scale_2", "input_scale"):
        del stored[f"{o_proj}.{tail}"]
    found = verify(resolution, tensors(stored | matrix(o_proj, "fp8", 256, 256)))
    assert told(found) == [
        ("BL601", "model.layers.*.self_attn.o_proj", 1),
        ("BL606", "model.layers.*.mlp.down_proj", 2),
    ]
    assert found.findings[1].modules == ("model.layers.9.mlp.down_proj", "model.layers.3.mlp.down_proj")


def test_a_listing_that_an_engine_does_not_follow() -> None:
    # vLLM builds the embedding in BF16 whatever the listing says, and so it is stored.
    resolution = mixed({"model.embed_tokens": "FP8", "model.layers.0.self_attn.o_proj": "FP8"})
    found = verify(resolution, tensors(as_resolved(resolution)))
    assert told(found) == [("BL602", "model.embed_tokens", 1)]
    assert "is listed as FP8, and stored as BF16 without scales" in found.findings[0].message


def test_stored_modules_that_no_family_knows_are_a_note() -> None:
    resolution = nvfp4(["lm_head"])
    stored = as_resolved(resolution) | matrix("model.layers.3.eh_proj", "fp8", 256, 512)
    found = verify(resolution, tensors(stored))
    assert told(found) == []
    (note,) = found.notes
    assert "`model.layers.*.eh_proj` (1 modules) is stored with scales" in note


# --- folders --------------------------------------------------------------------


def test_a_sharded_folder_and_its_index_alone(tmp_path: Path) -> None:
    resolution = nvfp4(["lm_head"])
    stored = as_resolved(resolution, changed={"lm_head": "nvfp4"})
    (tmp_path / "config.json").write_text(json.dumps(resolution.checkpoint.config))
    write_sharded(tmp_path, stored)
    whole = verify(resolve(tmp_path, VLLM, "gb200"), read_folder(tmp_path))
    assert told(whole) == [("BL601", "lm_head", 1)]
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    codes = [f.code for f in verify(resolution, read_folder(tmp_path))]
    assert codes == ["BL607", "BL601"]
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    alone = verify(resolution, read_folder(tmp_path))
    assert told(alone) == [("BL601", "lm_head", 1)]
    assert "only an index was at hand" in alone.notes[0]


def test_the_contract() -> None:
    resolution = nvfp4(["lm_head"])
    document = verify(resolution, tensors(as_resolved(resolution, changed={"lm_head": "fp8"}))).to_dict()
    assert document["schema"] == "bitlane.verification/1"
    assert (document["loader"], document["loader_version"], document["modules"], document["compared"]) == (
        "vllm",
        "0.32.0",
        14,
        14,
    )
    (finding,) = document["findings"]
    assert set(finding) == {"code", "kind", "message", "module", "count", "modules", "resolved", "stored", "evidence"}
    json.dumps(document)


def test_real_indexes(shared: Path) -> None:
    """The two published weight indexes at hand."""
    devstral = shared / "model_configs_reference" / "mistralai--Devstral-Small-2507"
    found = verify(resolve(devstral, VLLM, "gb200"), read_folder(devstral))
    assert told(found) == []
    assert found.compared == len(found.resolution)
    case = shared / "bug_cases" / "31"
    found = verify(resolve(case, VLLM, "gb200"), read_folder(case))
    assert ("BL601", "model.layers.*.self_attn.qkv_proj", 1) in told(found)


_ROLE = st.sampled_from(
    [
        "weight",
        "weight_scale",
        "weight_scale_2",
        "weight_scale_inv",
        "weight_packed",
        "qweight",
        "qzeros",
        "scales",
        "input_scale",
        "bias",
        "k_scale",
        "weight.absmax",
        "blocks",
    ]
)
_MODULE = st.sampled_from(
    [
        "self_attn.q_proj",
        "self_attn.o_proj",
        "mlp.gate",
        "mlp.experts.0.up_proj",
        "mlp.experts.3.down_proj",
        "mlp.experts.gate_up_proj",
        "mlp.experts",
    ]
)
_TYPE = st.sampled_from(["", "BF16", "F8_E4M3", "F8_E8M0", "U8", "I8", "I32", "F4", "BOOL"])
_SHAPE = st.lists(st.sampled_from([0, 1, 2, 16, 32, 64, 128, 256, 512]), max_size=4)
_TENSOR = st.tuples(st.integers(0, 3), _MODULE, _ROLE, _TYPE, _SHAPE)


@given(st.lists(_TENSOR, max_size=24))
def test_whatever_is_stored_there_is_an_answer(chosen: list[tuple[int, str, str, str, list[int]]]) -> None:
    stored = {
        f"model.layers.{i}.{module}.{role}": (dtype, tuple(shape) if dtype else None)
        for i, module, role, dtype, shape in chosen
    }
    found = verify(NVFP4_MOE, Tensors("x", {n: Tensor(n, d, s, "f") for n, (d, s) in stored.items()}, ("f",)))
    again = verify(NVFP4_MOE, Tensors("x", {n: Tensor(n, d, s, "f") for n, (d, s) in stored.items()}, ("f",)))
    assert found.to_dict() == again.to_dict()
    assert all(f.code.startswith("BL60") and f.message for f in found)
    # One finding a kind of module and reason: never one a layer or expert.
    assert len({(f.code, f.module, f.message) for f in found}) == len(found)


NVFP4_MOE = nvfp4(["lm_head", "*self_attn*"], MOE)


def test_a_single_expert_is_named_by_its_number() -> None:
    resolution = nvfp4([], MOE)
    stored = as_resolved(resolution)
    del stored["model.layers.1.mlp.experts.5.up_proj.weight_scale_2"]
    (found,) = verify(resolution, tensors(stored))
    assert found.code == "BL603"
    assert found.modules == ("model.layers.1.mlp.experts",)
    assert "expert 5's up_proj" in found.message
