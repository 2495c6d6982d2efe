"""A whole pass: sources, donors, errors, overlap, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pricing_cases import HIDDEN, ask, gemm, lightning, write_gemm

from bitlane.errors import MISSING_DATA, UsageError
from bitlane.perfcore import MissingRowsError, Store, Workload, price
from bitlane.resolver.bucket import Bucket

GB200 = {"system": "gb200", "backend": "vllm", "version": "0.31.0"}


def test_lightning_hybrid_never_calls_w4a16_measured(store: Store) -> None:
    for workload in (Workload("prefill", 1, 1024), Workload("decode", 32, 4096)):
        found = price(lightning(), workload, **GB200, mode="HYBRID", store=store)
        for op in found.ops:
            if op.lane == "w4a16_nvfp4":
                assert op.source in ("transferred", "roofline")
            assert op.ms > 0
            assert op.band[0] <= op.ms <= op.band[1]
        assert sum(found.by_source_ms.values()) == pytest.approx(found.total_ms, rel=1e-12)


def test_lightning_silicon_names_everything_missing(store: Store) -> None:
    with pytest.raises(MissingRowsError) as caught:
        price(lightning(), Workload("prefill", 1, 1024), **GB200, mode="SILICON", store=store)
    error = caught.value
    assert error.message.startswith("GEMM perf data missing for quant 'w4a16_nvfp4'")
    assert error.exit_code == MISSING_DATA
    assert error.code == "BL501"
    ops = {one.op.bucket.op for one in error.missing}
    assert ops == {"experts", "shared_up", "shared_down", "lm_head", "mamba_conv", "mamba_ssm"}
    assert "bitlane collect plan" in error.help
    assert "n=3712" in error.help


def test_rows_of_the_lane_itself_are_measured(tmp_path: Path) -> None:
    write_gemm(tmp_path / "mine", [("w4a16_nvfp4", m, 3712, HIDDEN, 0.001 * m) for m in (1, 2, 4)])
    found = price(
        [gemm("shared_up", "w4a16_nvfp4", 23, 3712, HIDDEN)], Workload("decode", 4, 100), **GB200,
        store=Store([tmp_path / "mine"]),
    )  # fmt: skip
    (op,) = found.ops
    assert (op.source, op.ms_per_layer, op.ms) == ("measured", 0.004, 23 * 0.004)
    assert op.name == "generation_shared_up_gemm"
    assert found.measured_share == 1.0
    assert found.to_dict()["ops"][0]["shape"] == {"m": 4, "n": 3712, "k": HIDDEN}


def test_another_version_is_transferred_and_named(store: Store) -> None:
    bucket = Bucket("attention", "attention", "bf16", 6, {"heads": 32, "kv_heads": 2, "head_dim": 128, "window": 0})
    (op,) = price([bucket], Workload("decode", 32, 4095), **GB200, store=store).ops
    assert op.source == "transferred"
    assert op.origin["version"] == "0.25.0"
    (same,) = price([bucket], Workload("decode", 32, 4095), **(GB200 | {"version": "0.25.0"}), store=store).ops
    assert same.source == "measured"
    assert same.ms == op.ms


def test_static_fp8_is_dynamic_minus_the_difference(store: Store) -> None:
    n, k, m = 4096, 4096, 64
    origin = {"system": ["gb200"], "backend": ["vllm"], "quant_mode": ["fp8"], "m_tokens": [m], "k_in_features": [k]}
    dynamic = ask(store, "gemm", origin | {"backend_version": ["0.31.0"], "n_out_features": [n]}).ms[0]
    saved = ask(store, "fp8_quantize_dynamic_minus_static", origin | {"backend_version": ["0.24.0"]}).ms[0]
    (op,) = price([gemm("x", "fp8_static", 1, n, k)], Workload("decode", m, 1), **GB200, store=store).ops
    assert op.ms == pytest.approx(dynamic - saved, rel=1e-12)
    assert op.source == "interpolated"


def test_ssm_reads_and_writes_its_state() -> None:
    scan = lightning()[3]
    (op,) = price([scan], Workload("decode", 32, 100), **GB200, mode="HYBRID").ops
    state = 32 * 64 * 64 * 128 * 4 * 2  # batch, heads, head size, state size, fp32, read and write
    inputs = 32 * (2 * 64 * 64 + 2 * 8 * 128 + 64) * 2
    assert op.ms_per_layer == pytest.approx((state + inputs) / 8e12 * 1e3, rel=1e-12)
    assert op.source == "roofline"
    with pytest.raises(MissingRowsError):
        price([scan], Workload("decode", 32, 100), **GB200)
    allowed = price([scan], Workload("decode", 32, 100), **GB200, allow_roofline=["mamba2"])
    assert allowed.ops[0].source == "roofline"


def test_a_transfer_respects_launch_floor_and_roofline(store: Store) -> None:
    bucket = gemm("x", "w4a16_nvfp4", 1, 4608, HIDDEN)
    (op,) = price([bucket], Workload("decode", 1, 10), **GB200, mode="HYBRID", store=store).ops
    (bf16,) = price([gemm("x", "bf16", 1, 4608, HIDDEN)], Workload("decode", 1, 10), **GB200, store=store).ops
    (small,) = price([gemm("x", "bf16", 1, 32, HIDDEN)], Workload("decode", 1, 10), **GB200, store=store).ops
    (bound,) = price([bucket], Workload("decode", 1, 10), **GB200, mode="SOL", store=store).ops
    assert max(small.ms, bound.ms) <= op.ms <= bf16.ms


def test_overlap_counts_the_longer_side_layer_by_layer(tmp_path: Path) -> None:
    rows = [("bfloat16", m, n, 64, 1e-3 * n * m) for m in (1, 2) for n in (64, 128, 256)]
    names = tuple(f"model.layers.{i}.x" for i in range(4))
    buckets = [
        gemm("a", "bf16", 3, 128, 64, overlap="g/one", modules=names[:3]),
        gemm("b", "bf16", 1, 64, 64, overlap="g/one", modules=names[3:]),
        gemm("c", "bf16", 4, 64, 64, overlap="g/two", modules=names),
        gemm("d", "bf16", 1, 64, 64),
    ]
    found = price(buckets, Workload("decode", 1, 1), **GB200, store=write_gemm(tmp_path / "t", rows))
    # Three layers cost side one (0.128), the fourth costs either side (0.064), and d runs alone.
    assert found.total_ms == pytest.approx(3 * 0.128 + 0.064 + 0.064, rel=1e-12)
    assert sum(op.counted_ms for op in found.ops) == pytest.approx(found.total_ms, rel=1e-12)


def test_prefix_is_full_minus_prefix(store: Store) -> None:
    bucket = Bucket("attention", "attention", "bf16", 1, {"heads": 32, "kv_heads": 2, "head_dim": 128, "window": 0})
    mine = GB200 | {"version": "0.25.0"}
    (full,) = price([bucket], Workload("prefill", 1, 8192), **mine, store=store).ops
    (cached,) = price([bucket], Workload("prefill", 1, 4096), **mine, store=store).ops
    (rest,) = price([bucket], Workload("prefill", 1, 8192, prefix=4096), **mine, store=store).ops
    assert rest.ms == pytest.approx(full.ms - cached.ms, rel=1e-12)
    assert rest.source == "interpolated"
    assert rest.origin["method"] == "full minus prefix"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"system": "gb999"}, "BL522"),
        ({"mode": "GOLD"}, "BL525"),
    ],
)
def test_wrong_questions_are_refused(store: Store, change: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        price(lightning(), Workload("decode", 1, 1), **(GB200 | {"mode": "HYBRID"} | change), store=store)
    assert caught.value.code == code


def test_unknown_lanes_and_sizes_are_refused(store: Store) -> None:
    with pytest.raises(UsageError, match=r"unknown lane|no cost"):
        price([gemm("x", "fp3", 1, 64, 64)], Workload("decode", 1, 1), **GB200, mode="HYBRID", store=store)
    for workload in (Workload("decode", 0, 1), Workload("prefill", 1, 0), Workload("prefill", 1, 10, prefix=10)):
        with pytest.raises(UsageError):
            price([gemm("x", "bf16", 1, 64, 64)], workload, **GB200, store=store)


def test_the_numpy_path_loads_no_compiler() -> None:
    code = (
        "import sys; import bitlane.perfcore; "
        "heavy = {'numba', 'pyarrow', 'numpy', 'torch'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
