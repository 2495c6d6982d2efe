"""The kernels give the numpy path's numbers, on every table and for whole passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pricing_cases import HIDDEN, gemm, lightning

from bitlane.perfcore import Lookups, Pricer, Store, compile_plan, kernels, price_many, reference, sol, specs
from bitlane.perfcore import workload as wl
from bitlane.perfcore.policy import load
from bitlane.resolver.bucket import Bucket

GB200 = {"system": "gb200", "backend": "vllm", "version": "0.31.0"}
WITHIN = 1e-12


@pytest.fixture(scope="session")
def lookups(store: Store) -> dict[str, Lookups]:
    return {name: Lookups(store, load(), name) for name in specs.SPECS}


def test_status_words_agree() -> None:
    for name in ("X_INTERPOLATED", "SITE_INTERPOLATED", "X_EDGE", "SITE_EDGE", "PENALTY", "FLOORED", "MISSING"):
        assert getattr(kernels, name) == getattr(specs, name)
    for name in ("hold_efficiency", "last_slope", "power_slope"):
        assert getattr(kernels, name.upper()) == specs.EDGE_CODES[name]
    forms = [sol.ONE, sol.LINE, sol.SQUARE, sol.SATURATING]
    assert [sol.shape(form, 0.5, 3.0) for form in forms] == pytest.approx(
        [kernels._form(form, 0.5, 3.0) for form in forms], rel=1e-15
    )


def questions(draw: Any, lookups: Lookups, count: int) -> tuple[Any, ...]:
    """Draw slabs and coordinates on, between and beyond the samples."""
    pack = lookups.pack
    slabs = draw(st.lists(st.integers(0, len(pack.slabs) - 1), min_size=1, max_size=4))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    slab = rng.choice(slabs, count)
    columns = []
    for number, axis in enumerate(pack.spec.axes):
        column = np.zeros(count)
        for i, one in enumerate(slab) if axis is not None else ():
            known = pack.axis(int(one), number)
            kind = rng.random()
            exact = rng.choice(known)
            between = max(1.0, np.floor(known[-1] * rng.random() ** 3))
            column[i] = exact if kind < 0.4 else between if kind < 0.7 else exact + rng.integers(0, 40)
        columns.append(column)
    return slab.astype(np.int64), *columns


@pytest.mark.parametrize("table", list(specs.SPECS))
@settings(max_examples=12)
@given(data=st.data(), efficiency=st.booleans())
def test_lookups_agree(lookups: dict[str, Lookups], table: str, efficiency: bool, data: st.DataObject) -> None:
    ask = lookups[table]
    slab, a0, a1, x = questions(data.draw, ask, 24)

    def roofline(one: int) -> list[sol.Row]:
        key = ask.pack.key(one)
        return sol.table_rows(table, key, sol.machine(ask.store.systems, str(key["system"])), ask.policy)

    ms, status = ask(slab, a0, a1, x, efficiency=efficiency)
    want = reference.evaluate(ask.pack, slab, a0, a1, x, roofline, efficiency=efficiency)
    assert status.tolist() == want.status.tolist()
    np.testing.assert_allclose(ms, want.ms, rtol=WITHIN, atol=0)


def everything() -> list[Bucket]:
    """Every kind of bucket at once."""
    heads = {"heads": 12, "kv_heads": 1, "head_dim": 128, "window": 0}
    window = {"heads": 8, "kv_heads": 2, "head_dim": 256, "window": 1024}
    gdn = {"d_model": 2048, "d_conv": 4, "k_heads": 16, "k_head_dim": 128, "v_heads": 32, "v_head_dim": 128}
    return [
        *lightning(),
        gemm("a", "fp8_block", 3, 4000, 4096),
        gemm("b", "nvfp4", 3, 3336, 1000),
        gemm("c", "bf16", 3, 300000, 90000),
        Bucket("attn", "attention", "bf16", 4, heads),
        Bucket("attn_w", "attention", "fp8", 4, window),
        Bucket("gdn", "gdn", "bf16", 30, gdn),
        Bucket("ar", "allreduce", "bf16", 8, {"elements": HIDDEN, "gpus": 4}),
        Bucket("ag", "nccl", "bf16", 8, {"elements": HIDDEN, "gpus": 8, "collective": "all_gather"}),
        Bucket("ep", "moe_dispatch", "bf16", 8,
               {"hidden": 7168, "topk": 8, "experts": 256, "ep": 4, "direction": "dispatch"}),
        Bucket("pp", "p2p", "bf16", 1, {"elements": HIDDEN}),
        Bucket("odd", "roofline", "bf16", 2,
               {"flops": 1000000, "bytes": 5000, "context_flops": 100, "context_bytes": 7}),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["HYBRID", "EMPIRICAL", "SOL"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_passes_agree(store: Store, phase: wl.Phase, mode: Any) -> None:
    rng = np.random.default_rng(7)
    batch, isl = rng.integers(1, 300, 60), rng.integers(2, 9000, 60)
    prefix = np.where(rng.random(60) < 0.5, 0, isl // 2) if phase == "prefill" else np.zeros(60)
    plan = compile_plan(everything(), phase, **GB200, mode=mode, store=store, prefixed=bool(prefix.any()))
    fast = Pricer(plan, "numba").many(batch, isl, prefix)
    slow = Pricer(plan, "numpy").many(batch, isl, prefix)
    assert np.isfinite(slow.ms).all()
    assert (slow.ms > 0).all()
    np.testing.assert_allclose(fast.ms, slow.ms, rtol=WITHIN, atol=0)
    np.testing.assert_allclose(fast.total_ms, slow.total_ms, rtol=WITHIN, atol=0)
    assert (fast.source == slow.source).all()
    one = Pricer(plan, "numba")
    for i in range(5):
        assert one.total(int(batch[i]), int(isl[i]), int(prefix[i])) == pytest.approx(slow.total_ms[i], rel=WITHIN)


def test_one_compilation_each(lookups: dict[str, Lookups], store: Store) -> None:
    empty = np.zeros(1)
    for table in ("gemm", "moe", "nccl"):
        lookups[table](np.zeros(1, np.int64), empty, empty, empty + 8)
    price_many(lightning(), "decode", [1, 2], [10, 20], **GB200, mode="HYBRID", store=store, engine="numba")
    for function in (kernels.compiled().lookup, kernels.compiled().run):
        assert len(function.signatures) == 1


def test_a_strided_batch_is_accepted(store: Store) -> None:
    options = {**GB200, "mode": "HYBRID", "store": store}
    sizes = np.arange(1, 9)
    many = price_many(lightning(), "decode", sizes[::2], sizes[::-2], **options, engine="numba")
    want = price_many(lightning(), "decode", [1, 3, 5, 7], [8, 6, 4, 2], **options, engine="numpy")
    np.testing.assert_allclose(many.total_ms, want.total_ms, rtol=WITHIN)
