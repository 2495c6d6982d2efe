"""Engines of this machine: routing, timing, and layers that compute what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.collector import engine, engine_numpy, routing, timing
from bitlane.collector.case import Build, Case
from bitlane.errors import UsageError

MOE = ("hidden", "inter", "topk", "experts", "tp", "ep", "routing", "tokens")


def moe_case(lane="fp32", *, gated=True, **changes):
    shape = {
        "hidden": 8,
        "inter": 6,
        "topk": 2,
        "experts": 4,
        "tp": 1,
        "ep": 1,
        "routing": "power_law_1.2",
        "tokens": 5,
        **changes,
    }
    return Case("moe", lane, tuple(shape[name] for name in MOE), Build(gated=gated))


@st.composite
def layers(draw):
    ep = draw(st.sampled_from([1, 2, 4]))
    experts = ep * draw(st.integers(1, 8))
    tokens, topk = draw(st.integers(1, 40)), draw(st.integers(1, experts))
    return tokens, topk, experts, ep


@given(layers(), st.sampled_from(["balanced", "power_law_1.01", "power_law_1.2", "power_law_1.0"]), st.integers(0, 99))
def test_routing(layer, how, seed):
    tokens, topk, experts, ep = layer
    loads = routing.expert_loads(tokens, topk, experts, ep, how, seed)
    assert loads.sum() == tokens * topk
    assert loads.min() >= 0
    assert loads.max() <= tokens
    ranks = loads.reshape(ep, -1).sum(axis=1)
    assert ranks[0] == ranks.max(), "the rank that is timed is the busiest"
    if how == "balanced":
        assert loads.max() - loads.min() <= 1
    chosen = routing.assignments(loads, tokens, topk)
    assert chosen.shape == (tokens, topk)
    assert all(len(set(row)) == topk for row in chosen.tolist())
    assert np.bincount(chosen.ravel(), minlength=experts).tolist() == loads.tolist()
    assert routing.expert_loads(tokens, topk, experts, ep, how, seed).tolist() == loads.tolist()


def test_a_power_law_is_skewed_and_a_steeper_one_more_so():
    def spread(how):
        draws = [np.sort(routing.expert_loads(4096, 8, 128, 1, how, seed))[::-1] for seed in range(40)]
        return np.mean([draw[:13].sum() / draw.sum() for draw in draws])

    assert spread("balanced") < 0.11
    assert 0.3 < spread("power_law_1.01") < spread("power_law_1.2") < 0.9


@pytest.mark.parametrize("how", ["uniform", "power_law_", "power_law_x", ""])
def test_unknown_routing(how):
    with pytest.raises(UsageError) as caught:
        routing.expert_loads(4, 1, 4, 1, how, 0)
    assert caught.value.code == "BL731"


def test_more_choices_than_experts():
    with pytest.raises(UsageError):
        routing.expert_loads(4, 5, 4, 1, "balanced", 0)


class Clock:
    """Seconds that pass only in calls."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("cost_s", [1e-6, 1e-4, 0.5])
@pytest.mark.parametrize("count", [1, 6])
def test_the_median_is_the_cost_of_one_call(cost_s, count):
    clock, used = Clock(), [0] * count

    def call(index):
        def body():
            used[index] += 1
            clock.now += cost_s

        return body

    assert timing.median_ms([call(index) for index in range(count)], clock) == pytest.approx(cost_s * 1e3, rel=1e-6)
    assert max(used) - min(used) <= 2, "all copies are used alike"


def test_one_slow_sample_does_not_move_the_median():
    clock, calls = Clock(), 0

    def body():
        nonlocal calls
        calls += 1
        clock.now += 0.01 if calls != 6 else 1.0

    assert timing.median_ms([body], clock) == pytest.approx(10.0)


def test_copies_exceed_the_cache_but_not_the_memory():
    assert timing.copies(1) == 6
    assert timing.copies(40 << 20) == 2
    assert timing.copies(1 << 30) == 1


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 1), (1, 2)])
def test_the_numpy_experts_compute_a_routed_layer(gated, tp, ep):
    """Token by token and expert by expert, with the weights drawn again."""
    case, seed = moe_case(gated=gated, tp=tp, ep=ep), 3
    got = engine_numpy._experts(case, np.random.default_rng(seed), seed)()
    rng = np.random.default_rng(seed)
    local, inter = 4 // ep, 6 // tp
    up = rng.standard_normal((local, (1 + gated) * inter, 8), dtype=np.float32)
    down = rng.standard_normal((local, 8, inter), dtype=np.float32)
    x = rng.standard_normal((5, 8), dtype=np.float32)
    chosen = routing.assignments(routing.expert_loads(5, 2, 4, ep, "power_law_1.2", seed), 5, 2)
    want = np.zeros((5, 8))
    for token in range(5):
        for expert in chosen[token]:
            if expert < local:
                middle = up[expert].astype(float) @ x[token]
                if gated:
                    gate = middle[:inter]
                    middle = gate / (1 + np.exp(-gate)) * middle[inter:]
                else:
                    middle = np.maximum(middle, 0) ** 2
                want[token] += 0.5 * (down[expert] @ middle)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_bfloat16_is_widened_exactly():
    """Every bfloat16 is a float32 whose lower half is zero."""
    got = engine_numpy._widened(engine_numpy._drawn(np.random.default_rng(1), "bf16", (50, 3)))
    exact = np.random.default_rng(1).standard_normal((50, 3), dtype=np.float32)
    assert (got.view(np.uint32) & 0xFFFF == 0).all()
    assert (np.abs(got - exact) <= np.abs(exact) * 2**-7).all()


@pytest.mark.parametrize("lane", ["fp32", "bf16"])
def test_the_numpy_layer_is_the_product(lane):
    calls = engine_numpy._linear(Case("gemm", lane, (3, 4, 2)), np.random.default_rng(1))
    rng = np.random.default_rng(1)
    x, weight = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, 4), (3, 4)))
    np.testing.assert_allclose(calls[0](), x @ weight.T, atol=1e-5 if lane == "fp32" else 0.1)
    assert len(calls) == 6


@pytest.mark.parametrize("lane", ["fp32", "bf16"])
@pytest.mark.parametrize("gated", [True, False])
def test_the_kernels_are_known(lane, gated):
    from bitlane.collector.check import known_kernels

    numpy_cpu = engine.load("numpy_cpu", {})
    for case in (Case("gemm", lane, (16, 32, 4)), moe_case(lane, gated=gated)):
        assert numpy_cpu.measure(case, 1).kernel in known_kernels()[case.table]


@pytest.mark.parametrize("case", [Case("gemm", "fp32", (16, 32, 4)), moe_case(), moe_case(gated=False, ep=2)])
def test_the_numpy_engine_measures(case):
    numpy_cpu = engine.load("numpy_cpu", {})
    measured = numpy_cpu.measure(case, 1)
    assert 0 < measured.latency_ms < 1000
    assert measured.kernel.startswith("numpy.matmul")
    origin = engine.load("numpy_cpu", {"system": "gb200"}).origin()
    assert (origin.version, origin.provenance) == (np.__version__, "local")
    assert origin.system == engine.cpu_system()


@pytest.mark.parametrize(
    ("name", "code"), [("cuda", "BL726"), ("no_such_module_here:X", "BL727"), ("bitlane.errors:X", "BL726")]
)
def test_unknown_engines(name, code):
    with pytest.raises(UsageError) as caught:
        engine.load(name, {})
    assert caught.value.code == code
    assert caught.value.exit_code == 2


def test_an_engine_without_its_library_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "bitlane.collector.engine_torch_cpu", raising=False)
    with pytest.raises(UsageError) as caught:
        engine.load("torch_cpu", {})
    assert caught.value.code == "BL727"
    assert "pip install 'bitlane[collect]'" in caught.value.help


def test_the_seed_of_a_case_does_not_depend_on_its_place():
    one, other = Case("gemm", "fp32", (1, 2, 3)), Case("gemm", "fp32", (1, 2, 4))
    assert engine.case_seed(0, one) == engine.case_seed(0, Case("gemm", "fp32", (1, 2, 3), Build("elsewhere")))
    assert len({engine.case_seed(0, one), engine.case_seed(1, one), engine.case_seed(0, other)}) == 3
