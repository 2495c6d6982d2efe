"""The measured tables are the files that sources.json and the README of the data describe."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from bitlane import paths

SOURCES: dict[str, Any] = json.loads((paths.PERF_DATA / "sources.json").read_text())
TABLES: dict[str, dict[str, Any]] = SOURCES["tables"]
README = (paths.PERF_DATA / "README.md").read_text()
ROWS_IN_README = {
    name: int(rows.replace(",", "")) for name, rows in re.findall(r"\| `(\w+)\.parquet` \| ([\d,]+) \|", README)
}
NOT_KEY = {"latency_ms", "source_id", "kernel_source"}
KERNEL_IS_KEY = {"gdn", "mamba2"}


def meta(table: str) -> pq.FileMetaData:
    return pq.read_metadata(paths.PERF_DATA / f"{table}.parquet")


def test_the_readme_the_sources_and_the_folder_name_the_same_tables() -> None:
    shipped = {p.stem for p in paths.PERF_DATA.glob("*.parquet")}
    assert shipped == set(TABLES) == set(ROWS_IN_README)
    assert len(shipped) == 12


@pytest.mark.parametrize("table", sorted(TABLES))
def test_table_is_the_one_its_sources_name(table: str) -> None:
    entry = TABLES[table]
    content = (paths.PERF_DATA / entry["file"]).read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])
    assert meta(table).num_rows == entry["rows"] == ROWS_IN_README[table]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_columns_are_documented_and_plain(table: str) -> None:
    schema = pq.read_schema(paths.PERF_DATA / f"{table}.parquet")
    assert {f.name: str(f.type) for f in schema} == TABLES[table]["columns"]
    assert schema.names[:4] == ["system", "backend", "backend_version", "op_kind"]
    assert schema.names[-3:] == ["kernel_source", "latency_ms", "source_id"]
    assert {str(f.type) for f in schema} <= {"string", "int64", "double"}


@pytest.mark.parametrize("table", sorted(TABLES))
def test_rows_are_positive_and_belong_to_named_sources_and_systems(table: str) -> None:
    columns = ["system", "backend", "backend_version", "op_kind", "latency_ms", "source_id"]
    rows = pq.read_table(paths.PERF_DATA / f"{table}.parquet", columns=columns)
    latency = rows["latency_ms"]
    assert latency.null_count == 0
    assert pc.all(pc.is_finite(latency)).as_py()
    assert pc.min(latency).as_py() > 0
    assert pc.unique(rows["op_kind"]).to_pylist() == [table]
    by_id = {s["source_id"]: s for s in SOURCES["sources"]}
    seen = rows.group_by(["source_id", "system", "backend", "backend_version"]).aggregate([])
    for row in seen.to_pylist():
        source = by_id[row["source_id"]]
        assert (source["table"], source["system"], source["backend"], source["version_dir"]) == (
            table,
            row["system"],
            row["backend"],
            row["backend_version"],
        )
    systems = yaml.safe_load((paths.PERF_DATA / "systems.yaml").read_text())["systems"]
    assert set(pc.unique(rows["system"]).to_pylist()) <= set(systems)


def test_about_one_percent_is_held_back_and_kept_apart() -> None:
    kept = sum(t["rows"] for t in TABLES.values())
    back = sum(t["held_back_rows"] for t in TABLES.values())
    assert 0.009 < back / (kept + back) < 0.011
    assert not list(paths.PERF_DATA.glob("*hold*"))
    for table, entry in TABLES.items():
        measured = sum(s["kept_rows"] for s in SOURCES["sources"] if s["table"] == table)
        assert measured == entry["rows"] + entry["held_back_rows"]


def test_systems_are_the_fourteen_with_units_in_their_names() -> None:
    systems = yaml.safe_load((paths.PERF_DATA / "systems.yaml").read_text())["systems"]
    assert len(systems) == 14
    for name, facts in systems.items():
        assert facts["memory_bandwidth_bytes_per_s"] > 1e11, name
        assert facts["peak_flops_bfloat16_dense"] > 1e13, name
    # b60 is an Intel GPU: no SM version.
    assert [name for name, facts in systems.items() if "sm_version" not in facts] == ["b60"]
    # NVIDIA's data sheets: H200 SXM 4.8 TB/s and 141 GB; Hopper is SM90, Blackwell SM100, Ada SM89, Ampere A100 SM80.
    assert systems["h200_sxm"]["memory_bandwidth_bytes_per_s"] == 4.8e12
    assert [systems[s]["sm_version"] for s in ("h200_sxm", "gb200", "l40s", "a100_sxm")] == [90, 100, 89, 80]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_keys_are_unique(table: str) -> None:
    rows = pq.read_table(paths.PERF_DATA / f"{table}.parquet")
    key = [c for c in rows.column_names if c not in NOT_KEY or (c == "kernel_source" and table in KERNEL_IS_KEY)]
    counted: pa.Table = rows.group_by(key).aggregate([([], "count_all")])
    assert counted.num_rows == rows.num_rows
