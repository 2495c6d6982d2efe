"""What vLLM's classes are asked for, checked by stand-ins that have their signatures and record their arguments.

The signatures are those of vLLM 0.24 (`FusedMoE`), 0.31 and 0.32 (`FusedMoEFactory`, with and without an optional third
projection name). Where vLLM itself is installed, test_vllm_real.py asks the real ones.
"""

from __future__ import annotations

import sys
import types

import pytest

from bitlane.collector import vllm_build, vllm_recipe
from bitlane.collector.case import Build, Case
from bitlane.errors import BitlaneError, UsageError

LINEAR = "vllm.model_executor.layers.linear"
MOE = "vllm.model_executor.layers.fused_moe"
LIGHTNING = "model.layers.1.mixer.shared_experts.up_proj"
EXPERTS = "model.layers.1.mixer.experts"
QWEN = "language_model.model.layers.0.mlp.experts"


class Config:
    """A quantization config; subclasses have vLLM's names."""

    def __init__(self, metadata):
        self.metadata = metadata

    @classmethod
    def from_config(cls, metadata):
        return cls(metadata)


def config(name):
    return type(name, (Config,), {})


class Kernels:
    """What the stand-ins 'choose'; a test sets it."""

    linear_method = "ModelOptLinearMethod"
    linear_kernel = "MarlinNvFp4LinearKernel"
    moe_method = "ModelOptNvFp4FusedMoE"
    backend = "MARLIN"
    experts = "MarlinExperts"
    activations: str | None = None


class ReplicatedLinear:
    """Signature of vLLM 0.24 to 0.32."""

    def __init__(
        self,
        input_size,
        output_size,
        bias=True,
        skip_bias_add=False,
        params_dtype=None,
        quant_config=None,
        prefix="",
        *,
        return_bias=True,
        disable_tp=False,
    ):
        self.asked = dict(locals())
        name = "UnquantizedLinearMethod" if quant_config is None else Kernels.linear_method
        self.quant_method = type(name, (), {})()
        if quant_config is not None:
            self.quant_method.kernel = type(Kernels.linear_kernel, (), {})()


def runner(asked):
    method = type("UnquantizedFusedMoEMethod" if asked["quant_config"] is None else Kernels.moe_method, (), {})()
    method.nvfp4_backend = types.SimpleNamespace(value=Kernels.backend)
    method.experts_cls = type(Kernels.experts, (), {})
    method.moe_quant_config = types.SimpleNamespace(quant_dtype=Kernels.activations)
    return types.SimpleNamespace(asked=asked, routed_experts=types.SimpleNamespace(quant_method=method))


def factory_032(
    num_experts,
    top_k,
    hidden_size,
    intermediate_size,
    intermediate_pad=None,
    params_dtype=None,
    renormalize=True,
    quant_config=None,
    tp_size=None,
    dp_size=None,
    pcp_size=None,
    prefix="",
    activation="silu",
    ckpt_names: tuple[str, str, str | None] = ("gate_proj", "down_proj", "up_proj"),
):
    return runner(dict(locals()))


def factory_031(
    num_experts,
    top_k,
    hidden_size,
    intermediate_size,
    params_dtype=None,
    renormalize=True,
    quant_config=None,
    tp_size=None,
    dp_size=None,
    pcp_size=None,
    prefix="",
    activation="silu",
    ckpt_names: tuple[str, str, str] = ("gate_proj", "down_proj", "up_proj"),
):
    return runner(dict(locals()))


def factory_024(
    num_experts,
    top_k,
    hidden_size,
    intermediate_size,
    params_dtype=None,
    renormalize=True,
    quant_config=None,
    tp_size=None,
    dp_size=None,
    pcp_size=None,
    prefix="",
    activation="silu",
):
    return runner(dict(locals()))


def module(monkeypatch, name, **members):
    stand_in = types.ModuleType(name)
    stand_in.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, stand_in)


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    modelopt = ("ModelOptMixedPrecisionConfig", "ModelOptNvFp4Config", "ModelOptFp8Config")
    module(monkeypatch, vllm_recipe._MODELOPT, **{name: config(name) for name in modelopt})
    module(monkeypatch, vllm_recipe._FP8, Fp8Config=config("Fp8Config"))
    module(monkeypatch, LINEAR, ReplicatedLinear=ReplicatedLinear)
    module(monkeypatch, MOE, FusedMoEFactory=factory_032)
    module(monkeypatch, "torch", bfloat16="bfloat16")
    for name in ("linear_method", "linear_kernel", "moe_method", "backend", "experts", "activations"):
        monkeypatch.setattr(Kernels, name, getattr(Kernels, name))
    return monkeypatch


def gemm(lane="w4a16_nvfp4", n=464, k=2688, export="mixed", prefix=LIGHTNING):
    return vllm_recipe.linear(Case("gemm", lane, (n, k, 16), Build(prefix, export)))


def moe(lane="w4a16_nvfp4", *, tp=1, ep=1, gated=False, export="mixed", prefix=EXPERTS, hidden=2688):
    shape = (hidden, 1856, 6, 128, tp, ep, "balanced", 16)
    return vllm_recipe.experts(Case("moe", lane, shape, Build(prefix, export, gated)))


def test_a_weight_only_layer_is_built_as_a_mixed_checkpoint_would_be():
    layer = vllm_build.linear(gemm())
    asked = layer.asked
    assert (asked["input_size"], asked["output_size"]) == (2688, 464)
    assert (asked["prefix"], asked["params_dtype"]) == (LIGHTNING, "bfloat16")
    assert (asked["bias"], asked["return_bias"], asked["disable_tp"]) == (False, False, True)
    built = asked["quant_config"]
    assert type(built).__name__ == "ModelOptMixedPrecisionConfig"
    assert built.metadata == {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "ignore": [],
        "quantized_layers": {LIGHTNING: {"quant_algo": "W4A16_NVFP4", "group_size": 16}},
    }
    assert vllm_build.check_linear(layer, gemm()) == "MarlinNvFp4LinearKernel"


@pytest.mark.parametrize(
    ("lane", "entry"),
    [
        ("nvfp4", {"quant_algo": "NVFP4", "group_size": 16}),
        ("nvfp4_wo", {"quant_algo": "NVFP4", "group_size": 16}),
        ("fp8_static", {"quant_algo": "FP8"}),
        ("fp8_block", {"quant_algo": "FP8_PB_WO", "group_size": 128}),
    ],
)
def test_the_listed_algorithm_of_each_lane(lane, entry):
    built = vllm_build.linear(gemm(lane)).asked["quant_config"]
    assert type(built).__name__ == "ModelOptMixedPrecisionConfig"
    assert built.metadata["quantized_layers"] == {LIGHTNING: entry}


def test_plain_fp8_and_bfloat16():
    dynamic = vllm_build.linear(gemm("fp8_dynamic")).asked["quant_config"]
    assert type(dynamic).__name__ == "Fp8Config"
    assert dynamic.metadata == {"quant_method": "fp8", "activation_scheme": "dynamic"}
    layer = vllm_build.linear(gemm("bf16"))
    assert layer.asked["quant_config"] is None
    assert vllm_build.check_linear(layer, gemm("bf16")) == "torch.nn.functional.linear"


@pytest.mark.parametrize(
    ("lane", "name", "algorithm"),
    [
        ("nvfp4", "ModelOptNvFp4Config", "NVFP4"),
        ("w4a16_nvfp4", "ModelOptNvFp4Config", "W4A16_NVFP4"),
        ("fp8_static", "ModelOptFp8Config", "FP8"),
    ],
)
def test_a_uniform_export_uses_the_uniform_class(lane, name, algorithm):
    built = vllm_build.linear(gemm(lane, export="uniform")).asked["quant_config"]
    assert type(built).__name__ == name
    assert built.metadata["quant_algo"] == algorithm
    assert "quantized_layers" not in built.metadata
    experts = vllm_build.experts(moe(lane, export="uniform")).asked["quant_config"]
    assert type(experts).__name__ == name


@pytest.mark.parametrize("prefix", [EXPERTS, QWEN])
@pytest.mark.parametrize(("lane", "algorithm"), [("w4a16_nvfp4", "W4A16_NVFP4"), ("nvfp4", "NVFP4")])
def test_experts_are_listed_under_the_checkpoints_own_prefix(prefix, lane, algorithm):
    asked = vllm_build.experts(moe(lane, prefix=prefix, gated=prefix == QWEN)).asked
    assert asked["prefix"] == prefix
    assert (asked["num_experts"], asked["top_k"]) == (128, 6)
    assert (asked["hidden_size"], asked["intermediate_size"]) == (2688, 1856)
    built = asked["quant_config"]
    assert type(built).__name__ == "ModelOptMixedPrecisionConfig"
    listed = built.metadata["quantized_layers"]
    assert listed[f"{prefix}.127.up_proj"] == {"quant_algo": algorithm, "group_size": 16}
    assert (f"{prefix}.0.gate_proj" in listed) == (prefix == QWEN)
    assert all(name.startswith(f"{prefix}.") for name in listed)


@pytest.mark.parametrize(("tp", "ep", "ranks"), [(1, 1, 1), (8, 1, 8), (1, 16, 16)])
def test_vllm_divides_the_layer_itself(tp, ep, ranks):
    """Sizes are the whole model's; vLLM takes rank 0's share for `tp_size` ranks, of experts or of their width."""
    asked = vllm_build.experts(moe(tp=tp, ep=ep)).asked
    assert (asked["tp_size"], asked["dp_size"], asked["pcp_size"]) == (ranks, 1, 1)
    assert (asked["num_experts"], asked["intermediate_size"]) == (128, 1856)


@pytest.mark.parametrize("latent", [1024, 2048])
def test_latent_experts_take_the_latent_width(latent):
    assert vllm_build.experts(moe(hidden=latent)).asked["hidden_size"] == latent


@pytest.mark.parametrize(
    ("factory", "name", "third"),
    [(factory_032, "FusedMoEFactory", None), (factory_031, "FusedMoEFactory", ""), (factory_024, "FusedMoE", "absent")],
)
def test_each_versions_factory(vllm, factory, name, third):
    module(vllm, MOE, **{name: factory})
    asked = vllm_build.experts(moe(gated=False)).asked
    assert asked["activation"] == "relu2_no_mul"
    assert asked.get("ckpt_names", ("", "", "absent"))[2] == third
    gated = vllm_build.experts(moe(gated=True)).asked
    assert gated["activation"] == "silu"
    assert gated.get("ckpt_names", ("gate_proj",))[0] == "gate_proj"


def test_kernel_names_are_spelled_as_in_the_imported_tables(monkeypatch):
    layer = vllm_build.experts(moe())
    assert vllm_build.check_experts(layer, moe()) == "vllm_modeloptnvfp4fusedmoe_marlin_marlinexperts"
    monkeypatch.setattr(Kernels, "backend", "FLASHINFER_TRTLLM")
    monkeypatch.setattr(Kernels, "experts", "TrtLlmNvFp4ExpertsMonolithic")
    monkeypatch.setattr(Kernels, "activations", "nvfp4")
    name = vllm_build.check_experts(vllm_build.experts(moe("nvfp4")), moe("nvfp4"))
    assert name == "vllm_modeloptnvfp4fusedmoe_flashinfer_trtllm_trtllmnvfp4expertsmonolithic"
    from bitlane.collector.check import known_kernels

    assert name in known_kernels()["moe"]


@pytest.mark.parametrize("lane", ["w4a16_nvfp4", "nvfp4_wo"])
@pytest.mark.parametrize("kernel", ["FlashInferCuteDslNvFp4LinearKernel", "CutlassNvFp4LinearKernel", "NewKernel"])
def test_a_linear_kernel_that_quantizes_activations_fails_a_weight_only_lane(monkeypatch, lane, kernel):
    monkeypatch.setattr(Kernels, "linear_kernel", kernel)
    with pytest.raises(BitlaneError) as caught:
        vllm_build.check_linear(vllm_build.linear(gemm(lane)), gemm(lane))
    assert caught.value.code == "BL743"
    assert vllm_build.check_linear(vllm_build.linear(gemm("nvfp4")), gemm("nvfp4")) == kernel


@pytest.mark.parametrize("lane", ["w4a16_nvfp4", "nvfp4_wo"])
@pytest.mark.parametrize("activations", ["nvfp4", "float8_e4m3fn"])
def test_experts_that_quantize_activations_fail_a_weight_only_lane(monkeypatch, lane, activations):
    monkeypatch.setattr(Kernels, "activations", activations)
    with pytest.raises(BitlaneError) as caught:
        vllm_build.check_experts(vllm_build.experts(moe(lane)), moe(lane))
    assert caught.value.code == "BL743"


def test_experts_whose_activations_are_unknown_fail_a_weight_only_lane():
    layer = vllm_build.experts(moe())
    layer.routed_experts.quant_method.moe_quant_config = None
    with pytest.raises(BitlaneError) as caught:
        vllm_build.check_experts(layer, moe())
    assert caught.value.code == "BL743"


def test_a_layer_that_vllm_leaves_unquantized_is_not_measured(monkeypatch):
    monkeypatch.setattr(Kernels, "linear_method", "UnquantizedLinearMethod")
    with pytest.raises(BitlaneError) as caught:
        vllm_build.check_linear(vllm_build.linear(gemm("fp8_block")), gemm("fp8_block"))
    assert caught.value.code == "BL742"
    monkeypatch.setattr(Kernels, "moe_method", "UnquantizedFusedMoEMethod")
    with pytest.raises(BitlaneError) as caught:
        vllm_build.check_experts(vllm_build.experts(moe()), moe())
    assert caught.value.code == "BL742"


def test_a_width_without_whole_blocks_is_refused():
    with pytest.raises(UsageError) as caught:
        gemm(k=2680)
    assert caught.value.code == "BL740"


def test_experts_need_the_path_of_experts():
    with pytest.raises(UsageError) as caught:
        moe(prefix="model.layers.0.mlp")
    assert caught.value.code == "BL741"
