"""The vLLM engine against the real vLLM on this machine's processor; skips where vLLM is not installed.

A processor runs only some lanes. For the others vLLM's own config, layer and weight layout are used, and a kernel that
decodes the weights by itself takes the place of the GPU kernel: what comes out must be x times the decoded weights.
"""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

pytest.importorskip("vllm", reason="vLLM is not installed: its engine is tested against stand-ins only")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from test_e2m1 import unpack  # noqa: E402

from bitlane.collector import engine, nvfp4, vllm_build, vllm_recipe, vllm_weights  # noqa: E402
from bitlane.collector.case import Build, Case  # noqa: E402
from bitlane.errors import BitlaneError  # noqa: E402

MODULE = "model.layers.1.mixer.shared_experts.up_proj"
EXPERTS = "model.layers.1.mixer.experts"


@pytest.fixture(scope="module")
def vllm_cpu():
    return engine.load("vllm", {"device": "cpu"})


def gemm(lane, n=96, k=64, m=4, export="mixed"):
    return Case("gemm", lane, (n, k, m), Build(MODULE, export))


def moe(lane, *, tp=1, ep=1, gated=True, experts=8, export="mixed"):
    return Case("moe", lane, (64, 128, 2, experts, tp, ep, "power_law_1.01", 16), Build(EXPERTS, export, gated))


def decoded(packed, scales, tensor_scale):
    """Weights from their stored parts, by the decoder of the tests."""
    blocks = scales.to(torch.float32).numpy().repeat(16, axis=1)
    return unpack(packed.numpy()) * blocks * float(tensor_scale)


def test_its_origin_is_this_machine(vllm_cpu):
    import vllm

    origin = vllm_cpu.origin()
    assert (origin.backend, origin.version) == ("vllm_cpu", vllm.__version__.partition("+")[0])


@pytest.mark.parametrize("case", [gemm("bf16"), gemm("fp8_static")])
def test_a_linear_lane_of_the_processor_is_measured(vllm_cpu, case):
    measured = vllm_cpu.measure(case, 1)
    assert 0 < measured.latency_ms < 1000
    expected = {"bf16": "torch.nn.functional.linear", "fp8_static": "PerTensorTorchFP8ScaledMMLinearKernel"}
    assert measured.kernel == expected[case.lane]


@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 1), (1, 2)])
def test_experts_are_measured_as_rank_0_of_the_group(vllm_cpu, tp, ep):
    measured = vllm_cpu.measure(moe("bf16", tp=tp, ep=ep), 1)
    assert 0 < measured.latency_ms < 1000
    assert measured.kernel.startswith("vllm_unquantizedfusedmoe_cpu_")


@pytest.mark.parametrize(("tp", "ep", "experts", "inter"), [(1, 1, 8, 128), (2, 1, 8, 64), (1, 2, 4, 128)])
def test_vllm_takes_rank_0s_share(vllm_cpu, tp, ep, experts, inter):
    case = moe("bf16", tp=tp, ep=ep)
    with vllm_cpu._session(expert_parallel=ep > 1):
        held = vllm_build.experts(vllm_recipe.experts(case)).routed_experts
    assert tuple(held.w13_weight.shape) == (experts, 2 * inter, 64)
    assert tuple(held.w2_weight.shape) == (experts, 64, inter)


def test_the_reference_quantizer_and_our_packing_give_the_weights_back():
    weight = (torch.randn((48, 64), generator=torch.Generator().manual_seed(1)) * 0.02).to(torch.bfloat16)
    quantized = nvfp4.quantize(weight, None)
    assert (quantized.packed.dtype, tuple(quantized.packed.shape)) == (torch.uint8, (48, 32))
    assert (quantized.scales.dtype, tuple(quantized.scales.shape)) == (torch.float8_e4m3fn, (48, 4))
    back = decoded(quantized.packed, quantized.scales, quantized.tensor_scale)
    # Half the widest gap of E2M1 is 1, and a scale rounded down clips by at most 6 times 1/16.
    steps = quantized.scales.to(torch.float32).numpy().repeat(16, axis=1) * float(quantized.tensor_scale)
    assert (np.abs(back - weight.to(torch.float32).numpy()) <= 1.0 * steps + 1e-12).all()
    relative = np.linalg.norm(back - weight.to(torch.float32).numpy()) / np.linalg.norm(
        weight.to(torch.float32).numpy()
    )
    assert relative < 0.12


def test_vllms_own_decoder_reads_our_packing():
    from vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils import break_fp4_bytes

    weight = torch.randn((16, 32), generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    packed = nvfp4.quantize(weight, None).packed
    np.testing.assert_array_equal(break_fp4_bytes(packed, torch.float32).numpy(), unpack(packed.numpy()))


class MarlinNvFp4LinearKernel:
    """Stands where the GPU kernel would: multiplies 16-bit activations with weights it decodes itself."""

    def input_quant_key(self):
        return None

    def process_weights_after_loading(self, layer):
        scale = layer.weight_global_scale
        layer.decoded = torch.from_numpy(decoded(layer.weight.data, layer.weight_scale.data, scale))

    def apply_weights(self, layer, x, bias):
        return x.double() @ layer.decoded.T


class FlashInferCutlassNvFp4LinearKernel(MarlinNvFp4LinearKernel):
    """A kernel of the name that quantizes activations."""


@pytest.fixture
def posed(monkeypatch):
    from vllm.model_executor.layers.quantization import modelopt

    def pose(kernel):
        asked = []

        def init(use_a16=False):
            asked.append(use_a16)
            return kernel()

        monkeypatch.setattr(modelopt, "init_nvfp4_linear_kernel", init)
        return asked

    return pose


@pytest.mark.parametrize("export", ["mixed", "uniform"])
def test_a_weight_only_layer_multiplies_with_the_decoded_weights(vllm_cpu, posed, export):
    asked = posed(MarlinNvFp4LinearKernel)
    recipe = vllm_recipe.linear(gemm("w4a16_nvfp4", export=export))
    with vllm_cpu._session(expert_parallel=False):
        layer = vllm_build.linear(recipe)
        assert (layer.weight.dtype, tuple(layer.weight.shape)) == (torch.uint8, (96, 32))
        assert (layer.weight_scale.dtype, tuple(layer.weight_scale.shape)) == (torch.float8_e4m3fn, (96, 4))
        vllm_weights.fill(layer, 5, None)
        layer.quant_method.process_weights_after_loading(layer)
        assert vllm_build.check_linear(layer, recipe) == "MarlinNvFp4LinearKernel"
        x = torch.randn((4, 64), dtype=torch.float32).to(torch.bfloat16)
        out = layer(x)
    assert asked == [True], "vLLM asks its selector for 16-bit activations"
    drawn = torch.randn((96, 64), generator=torch.Generator().manual_seed(5)).mul(vllm_weights.SPREAD)
    exact = x.double() @ drawn.double().T
    assert torch.linalg.norm(out - exact) / torch.linalg.norm(exact) < 0.15, "the layer is the one that was drawn"
    assert vllm_cpu.measure(gemm("w4a16_nvfp4", export=export), 5).kernel == "MarlinNvFp4LinearKernel"


def test_an_nvfp4_layer_asks_for_4_bit_activations(vllm_cpu, posed):
    asked = posed(FlashInferCutlassNvFp4LinearKernel)
    assert vllm_cpu.measure(gemm("nvfp4"), 5).kernel == "FlashInferCutlassNvFp4LinearKernel"
    assert set(asked) == {False}


def test_a_kernel_that_quantizes_activations_is_not_measured_as_weight_only(vllm_cpu, posed):
    posed(FlashInferCutlassNvFp4LinearKernel)
    for lane in ("w4a16_nvfp4", "nvfp4_wo"):
        with pytest.raises(BitlaneError) as caught:
            vllm_cpu.measure(gemm(lane), 5)
        assert caught.value.code == "BL743"
    posed(MarlinNvFp4LinearKernel)
    assert vllm_cpu.measure(gemm("nvfp4_wo"), 5).kernel == "MarlinNvFp4LinearKernel"


@pytest.mark.parametrize("export", ["mixed", "uniform"])
@pytest.mark.parametrize(("lane", "weight_only"), [("w4a16_nvfp4", True), ("nvfp4", False)])
def test_experts_get_the_precision_of_their_listing(vllm_cpu, monkeypatch, lane, weight_only, export):
    from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import NvFp4MoeBackend
    from vllm.model_executor.layers.quantization import modelopt

    monkeypatch.setattr(
        modelopt, "select_nvfp4_moe_backend", lambda **_: (NvFp4MoeBackend.MARLIN, type("MarlinExperts", (), {}))
    )
    recipe = vllm_recipe.experts(moe(lane, tp=2, export=export))
    with vllm_cpu._session(expert_parallel=False):
        runner = vllm_build.experts(recipe)
        held = runner.routed_experts
        assert type(held.quant_method).__name__ == "ModelOptNvFp4FusedMoE"
        assert held.quant_method.use_a16 == weight_only
        assert (held.w13_weight.dtype, tuple(held.w13_weight.shape)) == (torch.uint8, (8, 2 * 64, 32))
        assert tuple(held.w2_weight_scale.shape) == (8, 64, 64 // 16)
        vllm_weights.fill(held, 5, None)
    assert not torch.isnan(held.w13_weight_scale.to(torch.float32)).any()
    assert (held.w13_weight_scale_2 > 0).all()
    first = decoded(held.w13_weight.data[0], held.w13_weight_scale.data[0], held.w13_weight_scale_2.data[0, 0])
    assert 0.015 < first.std() < 0.025, "as wide as the weights that were drawn"


def test_an_unlisted_module_would_be_refused(vllm_cpu):
    recipe = vllm_recipe.linear(gemm("fp8_static"))
    recipe.quant.metadata["quantized_layers"] = {"model.layers.9.other": {"quant_algo": "FP8"}}
    with vllm_cpu._session(expert_parallel=False):
        layer = vllm_build.linear(recipe)
    with pytest.raises(BitlaneError) as caught:
        vllm_build.check_linear(layer, recipe)
    assert caught.value.code == "BL742"
