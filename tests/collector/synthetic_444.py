"""SYNTHETIC rows for Lightning's six shared-expert sites: nobody measured them, and the sidecar says so.

The latencies are a made-up function of the shape. They exist so that the way from an imported table to a strict price
can be tested: what comes out of a query must be what went in.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tables import gemm_rows

from bitlane.collector import grids, sidecar
from bitlane.collector.durable import digest
from bitlane.collector.provenance import case_plan_hash
from bitlane.collector.schema import sort_by_key, table_schema

HIDDEN, INTER = 2688, 3712
SITES = [
    *((INTER // tp, HIDDEN) for tp in (1, 4, 8)),
    *((HIDDEN, INTER // tp) for tp in (1, 4, 8)),
]
KERNEL = "FlashInferCuteDslNvFp4W4A16LinearKernel"


def latency_ms(n: int, k: int, m: int) -> float:
    """A made-up latency, milliseconds."""
    return 0.004 + 1e-9 * n * k / 3.0 + 1e-10 * n * k * m / 7.0


def write_fixture(folder: Path) -> None:
    """Write ``gemm.parquet`` with 6 sites x 74 token counts and a sidecar of provenance ``synthetic``."""
    cases = [(m, n, k, latency_ms(n, k, m)) for n, k in SITES for m in grids.packaged().gemm.tokens]
    rows = gemm_rows(cases, lane="w4a16_nvfp4", kernel=KERNEL, system="gb200", backend="vllm", version="0.31.0")
    rows = rows.append_column("source_id", pa.array([0] * rows.num_rows, pa.int64()))
    rows = sort_by_key("gemm", rows.cast(table_schema("gemm")))
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "gemm.parquet", compression="zstd")
    event = sidecar.Event(
        id="synthetic-444",
        source_id=0,
        system="gb200",
        backend="vllm",
        backend_version="0.31.0",
        device="none: made up for tests",
        runtime=sidecar.Runtime("none", "0"),
        collector_ref="tests",
        collector_hash="0" * 64,
        case_plan_hash=case_plan_hash(f"gemm/w4a16_nvfp4/n={n},k={k},m={m}" for m, n, k, _ in cases),
        collected_at="2026-01-01T00:00:00Z",
        rows=rows.num_rows,
        status="complete",
        provenance="synthetic",
        kernels={KERNEL: rows.num_rows},
        note="SYNTHETIC: a formula, not a measurement",
    )
    data = (folder / "gemm.parquet").read_bytes()
    meta = sidecar.Sidecar(sidecar.SCHEMA_VERSION, "gemm", rows.num_rows, digest(data), collections=(event,))
    sidecar.path_of(folder, "gemm").write_bytes(sidecar.dump(meta))
