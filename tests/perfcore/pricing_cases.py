"""Cases of the pricing tests: a Lightning-shaped model written by hand, small tables, and single lookups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bitlane.perfcore import reference, sol
from bitlane.perfcore.policy import load
from bitlane.perfcore.store import Store
from bitlane.resolver.bucket import Bucket


def gemm(op: str, lane: str, layers: int, n: int, k: int, **more: Any) -> Bucket:
    return Bucket(op, "gemm", lane, layers, {"n": n, "k": k}, **more)


HIDDEN = 2688


def lightning(weight_only: str = "w4a16_nvfp4") -> list[Bucket]:
    """Nemotron-3.5-Lightning at TP 1: shapes from its config.json, lanes as published."""
    scan = {
        "d_model": HIDDEN, "d_state": 128, "d_conv": 4, "heads": 64, "head_dim": 64, "groups": 8, "chunk": 128, "tp": 1,
    }  # fmt: skip
    experts = {"hidden": HIDDEN, "inter": 1856, "topk": 6, "experts": 128, "tp": 1, "ep": 1, "gated": 0}
    return [
        Bucket("embedding", "embedding", "bf16", 1, {"hidden": HIDDEN}),
        gemm("mamba_in_proj", "fp8_static", 23, 10304, HIDDEN),
        Bucket("mamba_conv", "mamba2_conv", "bf16", 23, scan),
        Bucket("mamba_ssm", "mamba2_ssm", "bf16", 23, scan),
        gemm("mamba_out_proj", "fp8_static", 23, HIDDEN, 4096),
        gemm("qkv", "bf16", 6, 4608, HIDDEN),
        Bucket("attention", "attention", "fp8", 6, {"heads": 32, "kv_heads": 2, "head_dim": 128, "window": 0}),
        gemm("o_proj", "bf16", 6, HIDDEN, 4096),
        gemm("router", "bf16", 23, 128, HIDDEN),
        Bucket("experts", "moe", weight_only, 23, experts, overlap="moe/routed"),
        gemm("shared_up", weight_only, 23, 3712, HIDDEN, overlap="moe/shared"),
        gemm("shared_down", weight_only, 23, HIDDEN, 3712, overlap="moe/shared"),
        gemm("lm_head", weight_only, 1, 131072, HIDDEN, rows="sequences"),
        Bucket("norm", "elementwise", "bf16", 52, {"bytes": 8 * HIDDEN}),
    ]


def ask(store: Store, table: str, rows: dict[str, Any]) -> reference.Answer:
    """Look rows of key and axis columns up."""
    pack = store.table(table)
    size = len(next(iter(rows.values())))
    coordinates = [
        np.asarray(rows[axis.column], float) if axis is not None else np.zeros(size) for axis in pack.spec.axes
    ]

    def roofline(slab: int) -> list[sol.Row]:
        key = pack.key(slab)
        return sol.table_rows(table, key, sol.machine(store.systems, str(key["system"])), load())

    slab = pack.find_many({column: rows[column] for column in pack.spec.keys})
    return reference.evaluate(pack, slab, *coordinates, roofline)


def write_gemm(folder: Path, rows: list[tuple[str, int, int, int, float]], version: str = "0.31.0") -> Store:
    """Write a small GEMM table of (quant, m, n, k, ms) rows."""
    lane, m, n, k, ms = zip(*rows, strict=True)
    size = len(rows)
    folder.mkdir(exist_ok=True)
    pq.write_table(
        pa.table({
            "system": ["gb200"] * size, "backend": ["vllm"] * size, "backend_version": [version] * size,
            "quant_mode": lane, "m_tokens": m, "n_out_features": n, "k_in_features": k,
            "kernel_source": ["hand"] * size, "latency_ms": ms,
        }),
        folder / "gemm.parquet",
    )  # fmt: skip
    return Store([folder])


def one(store: Store, lane: str, m: int, n: int, k: int, version: str = "0.31.0") -> tuple[float, int]:
    got = ask(store, "gemm", {
        "system": ["gb200"], "backend": ["vllm"], "backend_version": [version], "quant_mode": [lane],
        "m_tokens": [m], "n_out_features": [n], "k_in_features": [k],
    })  # fmt: skip
    return float(got.ms[0]), int(got.status[0])


def grid(lane: str = "bfloat16") -> list[tuple[str, int, int, int, float]]:
    """A plane in n, k and m: bilinear interpolation must reproduce it."""
    return [
        (lane, m, n, k, 1.0 + 1e-3 * n + 2e-3 * k + 3e-3 * m)
        for m in (1, 2, 4, 8, 64) for n in (128, 256, 512) for k in (128, 256, 512)
    ]  # fmt: skip
