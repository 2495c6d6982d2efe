"""Measured rows come back bit for bit, called measured; neighbours and ends follow the declared rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pricing_cases import ask, grid, one, write_gemm

from bitlane import paths
from bitlane.perfcore.specs import SITE_EDGE, SPECS, X_EDGE, X_INTERPOLATED
from bitlane.perfcore.store import Store


@pytest.mark.parametrize("table", list(SPECS))
def test_sampled_rows_are_exact(store: Store, table: str) -> None:
    source = pq.read_table(paths.PERF_DATA / f"{table}.parquet")
    chosen = np.sort(np.random.default_rng(20261129).choice(len(source), min(len(source), 400), replace=False))
    rows = {name: source[name].take(pa.array(chosen)).to_pylist() for name in source.column_names}
    got = ask(store, table, rows)
    assert got.ms.tolist() == rows["latency_ms"]  # equal as doubles, not nearly
    assert not got.status.any()
    pack = store.table(table)
    assert [pack.kernels[int(code)] for code in got.kernel] == rows["kernel_source"]


def test_a_plane_is_reproduced_off_the_grid(tmp_path: Path) -> None:
    store = write_gemm(tmp_path / "t", grid())
    ms, status = one(store, "bfloat16", 36, 200, 300)
    assert ms == pytest.approx(1.0 + 0.2 + 0.6 + 0.108, rel=1e-12)
    assert status == X_INTERPOLATED | 2


def test_past_the_last_m_the_last_slope_goes_on(tmp_path: Path) -> None:
    store = write_gemm(tmp_path / "t", grid())
    ms, status = one(store, "bfloat16", 1064, 256, 256)
    assert ms == pytest.approx(1.0 + 0.256 + 0.512 + 3e-3 * 1064, rel=1e-12)
    assert status & X_EDGE


def test_past_the_last_n_the_efficiency_is_held(tmp_path: Path) -> None:
    store = write_gemm(tmp_path / "t", grid())
    ms, status = one(store, "bfloat16", 8, 1024, 256)
    # gb200: 8 TB/s and 2.5 PFLOPS, so bytes decide: 2(nk + mk + mn).
    ratio = (1024 * 256 + 8 * 256 + 8 * 1024) / (512 * 256 + 8 * 256 + 8 * 512)
    assert ms == pytest.approx((1.0 + 0.512 + 0.512 + 0.024) * ratio, rel=1e-12)
    assert status & SITE_EDGE


def test_interleaved_curves_are_not_mixed(tmp_path: Path) -> None:
    rows = [("fp8_block", m, 128, 128, 2.0 if m % 4 else 1.0) for m in range(1, 129) if m < 18 or m % 16 < 2]
    store = write_gemm(tmp_path / "t", rows)
    assert one(store, "fp8_block", 40, 128, 128)[0] == 1.0
    assert one(store, "fp8_block", 41, 128, 128)[0] == 2.0
    assert one(store, "fp8_block", 42, 128, 128)[0] == 2.0


def test_a_later_folder_wins(tmp_path: Path) -> None:
    write_gemm(tmp_path / "a", grid())
    write_gemm(tmp_path / "b", [("bfloat16", 8, 256, 256, 0.125), ("w4a16_nvfp4", 8, 256, 256, 0.25)])
    store = Store([tmp_path / "a", tmp_path / "b"])
    assert one(store, "bfloat16", 8, 256, 256) == (0.125, 0)
    assert one(store, "w4a16_nvfp4", 8, 256, 256) == (0.25, 0)
    assert one(store, "bfloat16", 4, 256, 256)[0] == 1.0 + 0.256 + 0.512 + 0.012
