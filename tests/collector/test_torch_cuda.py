"""The torch engine for GPUs, as far as it can be tested without one; skips where torch is not installed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the torch_cuda engine is not tested here")

from bitlane.collector import engine, engine_torch_cuda, gpu  # noqa: E402
from bitlane.collector.case import Case  # noqa: E402
from bitlane.errors import UsageError  # noqa: E402


@pytest.mark.parametrize("name", ["torch_cuda", "vllm"])
def test_without_a_gpu_it_says_so(name):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError) as caught:
        engine.load(name, {})
    assert caught.value.code in {"BL727", "BL737"}


@pytest.mark.parametrize("static", [False, True])
def test_the_fp8_layer_computes_the_product(static):
    case = Case("gemm", "fp8_static" if static else "fp8_dynamic", (32, 64, 8))
    calls = engine_torch_cuda.fp8_linear(case, torch.Generator().manual_seed(3), "cpu", static=static)
    again = torch.Generator().manual_seed(3)
    x = torch.randn((8, 64), generator=again).to(torch.bfloat16).double()
    weight = torch.randn((32, 64), generator=again).to(torch.bfloat16).double()
    exact = x @ weight.T
    out = calls[0]().double()
    # Two factors rounded to three mantissa bits each.
    assert torch.linalg.norm(out - exact) / torch.linalg.norm(exact) < 0.06
    assert len(calls) == 6


def test_widths_that_fp8_cannot_take():
    with pytest.raises(UsageError) as caught:
        engine_torch_cuda.fp8_linear(Case("gemm", "fp8_static", (24, 64, 8)), None, "cpu", static=True)
    assert caught.value.code == "BL740"


def test_the_device_decides_the_system():
    assert gpu.system_name("NVIDIA H200", None) == "h200_sxm"
    assert gpu.system_name("NVIDIA H200", "h200_sxm") == "h200_sxm"
    assert gpu.system_name("NVIDIA New GPU", "new_gpu") == "new_gpu"
    for device, wanted in (("NVIDIA H200", "gb200"), ("NVIDIA New GPU", None)):
        with pytest.raises(UsageError) as caught:
            gpu.system_name(device, wanted)
        assert caught.value.code == "BL738"
