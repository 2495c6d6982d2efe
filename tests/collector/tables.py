"""Rows, runs and sidecars for tests; all of them made up, and marked so where a mark exists."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bitlane.collector import parts, runfile
from bitlane.collector.durable import REAL_DISK, Disk
from bitlane.collector.journal import Journal
from bitlane.collector.provenance import case_plan_hash
from bitlane.collector.schema import table_schema, without_source
from bitlane.collector.sidecar import Runtime

GEMM = without_source(table_schema("gemm"))


def gemm_rows(
    cases: list[tuple[int, int, int, float]],
    *,
    lane: str = "bfloat16",
    kernel: str = "numpy.matmul",
    system: str = "cpu_test",
    backend: str = "numpy_cpu",
    version: str = "1.0",
) -> pa.Table:
    """Rows of (m, n, k, latency in ms)."""
    lead = {"system": system, "backend": backend, "backend_version": version, "op_kind": "gemm"}
    return pa.Table.from_pylist(
        [
            {
                **lead,
                "quant_mode": lane,
                "m_tokens": m,
                "n_out_features": n,
                "k_in_features": k,
                "kernel_source": kernel,
                "latency_ms": latency,
            }
            for m, n, k, latency in cases
        ],
        schema=GEMM,
    )


def identity(**changes: object) -> runfile.RunIdentity:
    fields: dict[str, object] = {
        "engine": "numpy_cpu",
        "system": "cpu_test",
        "backend": "numpy_cpu",
        "backend_version": "1.0",
        "device": "a processor",
        "runtime": Runtime("numpy", "1.0"),
        "collector_ref": "unknown",
        "collector_hash": "0" * 64,
        "plan_hash": case_plan_hash(["a"]),
        "planned": 1,
        "seed": 0,
        "run_id": "run",
        "provenance": "local",
    }
    return runfile.RunIdentity(**{**fields, **changes})  # type: ignore[arg-type]


def case_names(rows: pa.Table) -> list[str]:
    return [
        f"gemm/{row['quant_mode']}/n={row['n_out_features']},k={row['k_in_features']},m={row['m_tokens']}"
        for row in rows.to_pylist()
    ]


def write_run(
    folder: Path,
    batches: list[pa.Table],
    *,
    at: str = "2026-01-02T03:04:05Z",
    disk: Disk = REAL_DISK,
    **changes: object,
) -> Path:
    """A run folder with one part per batch."""
    names = [name for batch in batches for name in case_names(batch)]
    changes = {"run_id": str(folder), "plan_hash": case_plan_hash(names), "planned": len(set(names)), **changes}
    if not disk.exists(folder / runfile.IDENTITY):
        runfile.write_identity(folder, identity(**changes), disk)
    log = Journal(folder / parts.JOURNAL, disk)
    for batch in batches:
        parts.append_part(log, folder, "gemm", batch, {"cases": case_names(batch), "at": at}, disk)
    return folder
