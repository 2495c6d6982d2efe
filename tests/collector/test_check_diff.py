"""`perf-data check` finds each kind of damage; `perf-data diff` counts by key."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tables import gemm_rows, write_run
from test_merge import imported_table

from bitlane.cli.perf_data_checks import check_command, diff_command
from bitlane.collector import sidecar
from bitlane.collector.check import check
from bitlane.collector.diff import diff
from bitlane.collector.durable import digest
from bitlane.collector.merge import merge
from bitlane.collector.provenance import EMPTY_PLAN_HASH
from bitlane.paths import PERF_DATA

ROWS = [(1, 64, 32, 0.5), (2, 64, 32, 0.75), (4, 64, 32, 1.5)]


@pytest.fixture
def root(tmp_path):
    imported_table(tmp_path / "root")
    merge([write_run(tmp_path / "run", [gemm_rows(ROWS)])], tmp_path / "root")
    return tmp_path / "root"


def rules(folder):
    return {(finding.rule, finding.severity) for finding in check(folder).findings}


def rewrite(root, change, *, sidecar_too=True):
    """Change the table; the sidecar follows in hash and rows, so that only the content is wrong."""
    path = root / "gemm.parquet"
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    meta = sidecar.read(root, "gemm")
    assert meta is not None
    if sidecar_too:
        fields = {"sha256": digest(path.read_bytes()), "rows": table.num_rows}
        (root / "gemm.meta.yaml").write_bytes(sidecar.dump(replaced(meta, **fields)))


def replaced(struct, **changes):
    import msgspec

    return msgspec.structs.replace(struct, **changes)


def edit_event(root, **changes):
    meta = sidecar.read(root, "gemm")
    assert meta is not None
    event = replaced(meta.collections[0], **changes)
    (root / "gemm.meta.yaml").write_bytes(sidecar.dump(replaced(meta, collections=(event,))))


def with_column(name, values):
    return lambda table: table.set_column(
        table.column_names.index(name), table.schema.field(name), pa.array(values(table[name].to_pylist()))
    )


def test_the_packaged_tables_are_sound():
    if not (PERF_DATA / "gemm.parquet").exists():
        pytest.skip("no packaged tables in this checkout")
    report = check(PERF_DATA)
    assert report.findings == ()
    assert report.tables["gemm"] == 1_524_204, "perf_data/README.md states this count"


def test_a_merged_folder_is_sound(root):
    assert check(root).findings == ()


DAMAGE = {
    "a duplicate key": (lambda t: pa.concat_tables([t, t.slice(0, 1)]), ("keys", "error")),
    "a NaN": (with_column("latency_ms", lambda v: [float("nan"), *v[1:]]), ("values", "error")),
    "a zero": (with_column("latency_ms", lambda v: [0.0, *v[1:]]), ("values", "error")),
    "another op": (with_column("op_kind", lambda v: ["moe", *v[1:]]), ("values", "error")),
    "an unknown kernel": (with_column("kernel_source", lambda v: ["Marlim", *v[1:]]), ("kernels", "error")),
    "an unknown source": (with_column("source_id", lambda v: [99, *v[1:]]), ("provenance", "error")),
    "a source of another system": (with_column("source_id", lambda v: [3, *v[1:]]), ("provenance", "error")),
    "too few rows": (lambda t: t.slice(1), ("rows", "error")),
    "no rows": (lambda t: t.slice(0, 0), ("rows", "error")),
    "a missing column": (lambda t: t.drop_columns(["kernel_source"]), ("schema", "error")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_the_rows_is_found(root, damage):
    change, expected = DAMAGE[damage]
    rewrite(root, change)
    assert expected in rules(root)


def test_a_table_that_is_not_the_sidecars_is_found(root):
    rewrite(root, with_column("latency_ms", lambda v: [9.0, *v[1:]]), sidecar_too=False)
    assert ("hash", "error") in rules(root)


EVENTS = {
    "no rows": ({"rows": 0, "kernels": {}}, ("events", "error")),
    "an empty plan": ({"case_plan_hash": EMPTY_PLAN_HASH}, ("events", "error")),
    "kernels of other rows": ({"kernels": {"numpy.matmul": 1}}, ("events", "error")),
    "another system": ({"system": "gb300"}, ("provenance", "error")),
    "partial": ({"status": "partial", "failures": 2}, ("events", "note")),
    "synthetic": ({"provenance": "synthetic"}, ("events", "note")),
}


@pytest.mark.parametrize("damage", EVENTS)
def test_damage_to_an_event_is_found(root, damage):
    changes, expected = EVENTS[damage]
    edit_event(root, **changes)
    assert expected in rules(root)
    assert check(root).sound == (expected[1] == "note")


def test_a_table_without_provenance_is_found(root):
    (root / "gemm.meta.yaml").unlink()
    assert ("hash", "error") in rules(root)
    (root / "sources.json").unlink()
    assert ("provenance", "error") in rules(root)


def test_a_base_that_is_not_the_imported_table_is_found(root):
    data = json.loads((root / "sources.json").read_text())
    data["tables"]["gemm"]["sha256"] = "0" * 64
    (root / "sources.json").write_text(json.dumps(data))
    assert ("hash", "error") in rules(root)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all"])
def test_an_unreadable_table_is_a_finding(root, content):
    (root / "gemm.parquet").write_bytes(content)
    assert ("provenance", "error") in rules(root)


def test_a_legacy_sidecar_is_a_finding(root):
    (root / "gemm.meta.yaml").write_text("schema_version: 1\nprovenance: legacy\n")
    assert ("provenance", "error") in rules(root)


def test_an_interrupted_merge_is_a_finding(root):
    (root / ".journal/store/gemm-0.parquet").write_bytes(b"")
    assert ("recovery", "error") in rules(root)


def test_diff_counts_rows_by_key(tmp_path, root):
    newer = [(2, 64, 32, 1.5), (4, 64, 32, 1.5), (8, 64, 32, 3.0)]
    imported_table(tmp_path / "other")
    merge([write_run(tmp_path / "b", [gemm_rows(newer)])], tmp_path / "other")
    (entry,) = diff(root, tmp_path / "other")
    (group,) = entry.groups
    assert (group.system, group.lane) == ("cpu_test", "bfloat16")
    assert (group.added, group.removed, group.changed, group.same) == (1, 1, 1, 1)
    assert (group.median_percent, group.worst_percent) == (100.0, 100.0)
    assert (entry.examples[0].key["m_tokens"], entry.examples[0].old_ms, entry.examples[0].new_ms) == (2, 0.75, 1.5)


def test_a_kernel_that_changed_is_a_change(tmp_path):
    for name, kernel in (("a", "numpy.matmul"), ("b", "torch.mm")):
        merge([write_run(tmp_path / f"run-{name}", [gemm_rows(ROWS, kernel=kernel)])], tmp_path / name)
    (entry,) = diff(tmp_path / "a", tmp_path / "b")
    assert entry.groups[0].changed == 3
    assert entry.groups[0].worst_percent == 0.0
    assert (entry.examples[0].old_kernel, entry.examples[0].new_kernel) == ("numpy.matmul", "torch.mm")


def test_source_numbers_and_string_widths_are_no_difference(tmp_path, root):
    other = tmp_path / "other"
    other.mkdir()
    table = pq.read_table(root / "gemm.parquet")
    fields = [f.with_type(pa.large_string()) if pa.types.is_string(f.type) else f for f in table.schema]
    table = with_column("source_id", lambda v: [number + 7 for number in v])(table)
    pq.write_table(table.cast(pa.schema(fields)), other / "gemm.parquet")
    assert diff(root, other) == []
    assert diff(root / "gemm.parquet", other / "gemm.parquet") == []


def test_a_table_that_only_one_side_has(tmp_path, root):
    other = tmp_path / "other"
    other.mkdir()
    table = pq.read_table(root / "gemm.parquet")
    pq.write_table(table.slice(0, 2), other / "moe.parquet")
    found = {entry.table: entry for entry in diff(root, other)}
    assert [sum(group.removed for group in found["gemm"].groups), sum(g.added for g in found["moe"].groups)] == [5, 2]


def test_another_schema_is_said_and_rows_are_not_compared(tmp_path, root):
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pq.read_table(root / "gemm.parquet").drop_columns(["k_in_features"]), other / "gemm.parquet")
    (entry,) = diff(root, other)
    assert entry.schema == ("column `k_in_features` is missing",)
    assert not entry.groups


def test_commands(tmp_path, root):
    run = CliRunner().invoke
    sound = run(check_command, [str(root)])
    assert (sound.exit_code, sound.output) == (0, "1 tables, 5 rows: sound\n")
    edit_event(root, status="partial")
    as_json = json.loads(run(check_command, [str(root), "--json"]).output)
    assert as_json["schema"] == "bitlane.perf_check/1"
    assert as_json["findings"][0]["severity"] == "note"
    edit_event(root, rows=0, kernels={})
    assert run(check_command, [str(root)]).exit_code == 1
    imported_table(tmp_path / "other")
    changed = run(diff_command, [str(root), str(tmp_path / "other")])
    assert changed.exit_code == 1
    assert "cpu_test" in changed.output
    assert run(diff_command, [str(root), str(root)]).output == "no difference\n"
    found = json.loads(run(diff_command, [str(root), str(tmp_path / "other"), "--json"]).output)
    assert found["tables"][0]["groups"][0]["removed"] == 3
