"""The torch engine on this machine's processor; skips where torch is not installed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the torch_cpu engine is not tested here")

from test_engines import moe_case  # noqa: E402

from bitlane.collector import engine, engine_torch_cpu, routing  # noqa: E402
from bitlane.collector.case import Case  # noqa: E402


@pytest.mark.parametrize("lane", ["bf16", "fp32"])
@pytest.mark.parametrize("table", ["gemm", "moe"])
def test_it_measures(table, lane):
    torch_cpu = engine.load("torch_cpu", {})
    case = Case("gemm", lane, (64, 64, 8)) if table == "gemm" else moe_case(lane)
    measured = torch_cpu.measure(case, 1)
    assert 0 < measured.latency_ms < 1000
    assert measured.kernel.startswith("torch.")
    assert torch_cpu.origin().version == torch.__version__.partition("+")[0]


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 1), (1, 2)])
def test_the_experts_compute_a_routed_layer(gated, tp, ep):
    case, seed = moe_case(gated=gated, tp=tp, ep=ep), 3
    generator = torch.Generator().manual_seed(seed)
    got = engine_torch_cpu.experts(case, torch.float32, generator, seed)().numpy()
    again = torch.Generator().manual_seed(seed)
    local, inter = 4 // ep, 6 // tp
    up = torch.randn((local, (1 + gated) * inter, 8), generator=again).double().numpy()
    down = torch.randn((local, 8, inter), generator=again).double().numpy()
    x = torch.randn((5, 8), generator=again).double().numpy()
    chosen = routing.assignments(routing.expert_loads(5, 2, 4, ep, "power_law_1.2", seed), 5, 2)
    want = np.zeros((5, 8))
    for token in range(5):
        for expert in chosen[token]:
            if expert < local:
                middle = up[expert] @ x[token]
                if gated:
                    middle = middle[:inter] / (1 + np.exp(-middle[:inter])) * middle[inter:]
                else:
                    middle = np.maximum(middle, 0) ** 2
                want[token] += 0.5 * (down[expert] @ middle)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_linear_layer_is_the_product():
    calls = engine_torch_cpu.linear(
        Case("gemm", "fp32", (3, 4, 2)), torch.float32, torch.Generator().manual_seed(1), "cpu"
    )
    again = torch.Generator().manual_seed(1)
    x, weight = torch.randn((2, 4), generator=again), torch.randn((3, 4), generator=again)
    torch.testing.assert_close(calls[0](), x @ weight.T)
    assert len(calls) == 6
