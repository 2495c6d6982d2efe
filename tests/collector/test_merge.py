"""Merging: what was there stays, what is new is added once, what does not fit is refused."""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import gemm_rows, write_run

from bitlane.collector import sidecar
from bitlane.collector.merge import merge
from bitlane.collector.schema import table_schema
from bitlane.errors import BitlaneError

STRING = pa.string()
FIRST = [(1, 64, 32, 0.5), (2, 64, 32, 0.75)]


def stored(root):
    return pq.read_table(root / "gemm.parquet")


def values(root):
    return {(r["m_tokens"], r["n_out_features"], r["k_in_features"]): r["latency_ms"] for r in stored(root).to_pylist()}


def imported_table(root, *, string=STRING, rows=FIRST):
    """A table as a package ships it: no sidecar, described by sources.json."""
    root.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(
        [
            pa.field(f.name, string if pa.types.is_string(f.type) else f.type, nullable=f.nullable)
            for f in table_schema("gemm")
        ]
    )
    plain = gemm_rows(rows, system="gb200", backend="vllm", version="0.31.0", kernel="torch.nn.functional.linear")
    plain = plain.append_column("source_id", pa.array([3] * plain.num_rows, pa.int64()))
    table = plain.cast(schema)
    pq.write_table(table, root / "gemm.parquet")
    data = (root / "gemm.parquet").read_bytes()
    source = {
        "source_id": 3,
        "table": "gemm",
        "system": "gb200",
        "backend": "vllm",
        "version_dir": "0.31.0",
        "collections": [{"collected_at": "2025-12-01T00:00:00Z"}],
    }
    tables = {"gemm": {"sha256": hashlib.sha256(data).hexdigest(), "rows": table.num_rows}}
    (root / "sources.json").write_text(json.dumps({"schema": 1, "tables": tables, "sources": [source]}))
    return table


def refused(code, *arguments, **options):
    with pytest.raises(BitlaneError) as caught:
        merge(*arguments, **options)
    assert caught.value.code == code, str(caught.value)
    assert caught.value.help
    return caught.value


def test_a_run_becomes_a_table_with_provenance(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST[1:]), gemm_rows(FIRST[:1])])
    report = merge([run], tmp_path / "root")
    table = stored(tmp_path / "root")
    assert table.schema == table_schema("gemm")
    assert table["latency_ms"].to_pylist() == [0.5, 0.75], "rows are sorted by key"
    meta = sidecar.read(tmp_path / "root", "gemm")
    assert meta is not None
    assert meta.sha256 == hashlib.sha256((tmp_path / "root/gemm.parquet").read_bytes()).hexdigest()
    assert (meta.rows, len(meta.collections)) == (2, 1)
    event = meta.collections[0]
    assert (event.rows, event.status, event.kernels, len(event.parts)) == (2, "complete", {"numpy.matmul": 2}, 2)
    ids = "gemm/bfloat16/n=64,k=32,m=1\ngemm/bfloat16/n=64,k=32,m=2\n"
    assert event.case_plan_hash == hashlib.sha256(ids.encode()).hexdigest()
    assert (report.merged[0].added, report.merged[0].replaced, report.notices) == (2, 0, ())


def test_merging_again_changes_nothing(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST)])
    merge([run], tmp_path / "root")
    before = {path.name: path.read_bytes() for path in (tmp_path / "root").iterdir() if path.is_file()}
    report = merge([run, run], tmp_path / "root")
    assert not report.merged
    assert report.known == (str(run), str(run))
    assert {path.name: path.read_bytes() for path in (tmp_path / "root").iterdir() if path.is_file()} == before


def test_a_run_that_went_on_adds_only_its_new_parts(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST)])
    merge([run], tmp_path / "root")
    write_run(run, [gemm_rows([(4, 64, 32, 1.5)])], at="2026-01-03T00:00:00Z")
    report = merge([run], tmp_path / "root")
    assert [(entry.added, entry.replaced) for entry in report.merged] == [(1, 0)]
    assert len(stored(tmp_path / "root")) == 3


@pytest.mark.parametrize("string", [pa.string(), pa.large_string()])
def test_an_imported_table_keeps_its_schema_and_every_row(tmp_path, string):
    before = imported_table(tmp_path / "root", string=string)
    run = write_run(
        tmp_path / "run",
        [gemm_rows([(1, 3712, 2688, 0.01)], lane="w4a16_nvfp4", system="gb200", backend="vllm", version="0.31.0")],
        system="gb200",
        backend="vllm",
        backend_version="0.31.0",
        provenance="collected",
    )
    merge([run], tmp_path / "root")
    after = stored(tmp_path / "root")
    assert after.schema == before.schema
    old = after.filter(pa.compute.equal(after["source_id"], 3))
    assert old.equals(before)
    meta = sidecar.read(tmp_path / "root", "gemm")
    assert meta is not None
    assert meta.base == sidecar.Base("sources.json", json_sha(tmp_path / "root"), 2)
    assert meta.collections[0].source_id == 4, "numbers of imported sources are not used again"


def json_sha(root):
    return json.loads((root / "sources.json").read_text())["tables"]["gemm"]["sha256"]


def test_large_strings_may_be_appended_to_strings(tmp_path):
    imported_table(tmp_path / "root")
    rows = gemm_rows([(8, 64, 32, 0.5)])
    fields = [f.with_type(pa.large_string()) if pa.types.is_string(f.type) else f for f in rows.schema]
    merge([write_run(tmp_path / "run", [rows.cast(pa.schema(fields))])], tmp_path / "root")
    assert stored(tmp_path / "root").schema.field("system").type == pa.string()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.drop_columns(["kernel_source"]), "column `kernel_source` is missing"),
        (lambda rows: rows.append_column("power", pa.array([1.0, 2.0])), "column `power` is not in the table"),
        (lambda rows: rows.set_column(5, "m_tokens", pa.array([1, 2], pa.int32())), "`m_tokens` is int32"),
        (lambda rows: rows.set_column(4, "quant_mode", rows["quant_mode"].dictionary_encode()), "is dictionary"),
        (lambda rows: rows.select([*reversed(rows.column_names)]), "another order"),
    ],
)
def test_another_schema_is_refused_and_nothing_is_written(tmp_path, change, said):
    imported_table(tmp_path / "root")
    before = (tmp_path / "root/gemm.parquet").read_bytes()
    rows = change(gemm_rows([(1, 1, 1, 1.0), (2, 1, 1, 1.0)]))
    run = tmp_path / "other"
    write_part_as_is(run, rows)
    error = refused("BL703", [run], tmp_path / "root")
    assert said in error.message
    assert (tmp_path / "root/gemm.parquet").read_bytes() == before
    assert sidecar.read(tmp_path / "root", "gemm") is None


def write_part_as_is(run, rows):
    from tables import identity

    from bitlane.collector import parts, runfile
    from bitlane.collector.journal import Journal

    runfile.write_identity(run, identity(planned=2))
    parts.append_part(Journal(run / parts.JOURNAL), run, "gemm", rows, {"cases": ["a", "b"], "at": "2026-01-01"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_latency_that_is_none_is_refused(tmp_path, value):
    run = write_run(tmp_path / "run", [gemm_rows([(1, 1, 1, value)])])
    refused("BL704", [run], tmp_path / "root")
    assert not (tmp_path / "root/gemm.parquet").exists()


def test_newest_wins_for_the_same_key_and_is_reported_and_archived(tmp_path):
    root = tmp_path / "root"
    merge([write_run(tmp_path / "a", [gemm_rows(FIRST)], at="2026-01-01T00:00:00Z")], root)
    newer = write_run(
        tmp_path / "b", [gemm_rows([(2, 64, 32, 0.7), (3, 64, 32, 0.9)], kernel="other")], at="2026-02-01T00:00:00Z"
    )
    report = merge([newer], root)
    assert values(root) == {(1, 64, 32): 0.5, (2, 64, 32): 0.7, (3, 64, 32): 0.9}
    entry = report.merged[0]
    assert (entry.added, entry.replaced, entry.event.replaced) == (1, 1, 1)
    assert (entry.examples[0].older_ms, entry.examples[0].newer_ms) == (0.75, 0.7)
    assert entry.examples[0].key["m_tokens"] == 2
    archives = list((root / ".journal/superseded").iterdir())
    assert [pq.read_table(path)["latency_ms"].to_pylist() for path in archives] == [[0.75]]
    meta = sidecar.read(root, "gemm")
    assert meta is not None
    assert [event.rows for event in meta.collections] == [2, 2], "the first event is unchanged"


def test_an_older_run_does_not_overwrite_a_newer_row(tmp_path):
    root = tmp_path / "root"
    merge([write_run(tmp_path / "b", [gemm_rows(FIRST)], at="2026-02-01T00:00:00Z")], root)
    older = write_run(tmp_path / "a", [gemm_rows([(2, 64, 32, 0.1), (9, 64, 32, 0.2)])], at="2026-01-01T00:00:00Z")
    entry = merge([older], root).merged[0]
    assert (entry.added, entry.replaced, entry.outdated) == (1, 0, 1)
    assert values(root) == {(1, 64, 32): 0.5, (2, 64, 32): 0.75, (9, 64, 32): 0.2}


def test_another_kernel_for_one_shape_leaves_one_row(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST[:1], kernel="a"), gemm_rows([(1, 64, 32, 0.6)], kernel="b")])
    merge([run], tmp_path / "root")
    assert stored(tmp_path / "root")["kernel_source"].to_pylist() == ["b"]


def test_the_key_of_gdn_holds_the_kernel():
    from bitlane.collector.schema import key_columns

    names = ["system", "op_kind", "batch_size", "kernel_source", "latency_ms", "source_id"]
    assert key_columns("gdn", names) == ("system", "op_kind", "batch_size", "kernel_source")
    assert key_columns("moe", names) == ("system", "op_kind", "batch_size")


LEGACY = [
    "provenance: legacy\nschema_version: 2\ntable: gemm\nrows: 2\nsha256: ''\n",
    "schema_version: 1\nprovenance: collected\nruntime: {framework: vllm}\n",
    "rows: 3\n",
]


@pytest.mark.parametrize("text", LEGACY)
def test_a_legacy_sidecar_is_never_merged_into_nor_from(tmp_path, text):
    imported_table(tmp_path / "old")
    (tmp_path / "old/gemm.meta.yaml").write_text(text)
    run = write_run(tmp_path / "run", [gemm_rows([(8, 64, 32, 0.5)])])
    before = (tmp_path / "old/gemm.parquet").read_bytes()
    refused("BL705", [run], tmp_path / "old")
    assert (tmp_path / "old/gemm.parquet").read_bytes() == before
    refused("BL705", [tmp_path / "old"], tmp_path / "new")
    assert not (tmp_path / "new/gemm.parquet").exists()


@pytest.mark.parametrize("text", ["a: [", "- 1\n", "schema_version: 2\nunknown: 1\n", "x: &a 1\ny: *a\n", "\xff"])
def test_an_unreadable_sidecar_is_refused(tmp_path, text):
    imported_table(tmp_path / "root")
    (tmp_path / "root/gemm.meta.yaml").write_bytes(text.encode("latin-1"))
    run = write_run(tmp_path / "run", [gemm_rows([(8, 64, 32, 0.5)])])
    with pytest.raises(BitlaneError) as caught:
        merge([run], tmp_path / "root")
    assert caught.value.code in {"BL705", "BL706"}


def test_a_table_without_provenance_is_refused_both_ways(tmp_path):
    imported_table(tmp_path / "old")
    (tmp_path / "old/sources.json").unlink()
    run = write_run(tmp_path / "run", [gemm_rows([(8, 64, 32, 0.5)])])
    refused("BL711", [run], tmp_path / "old")
    refused("BL711", [tmp_path / "old"], tmp_path / "new")


def test_a_table_changed_by_hand_is_refused(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST)])
    merge([run], tmp_path / "root")
    pq.write_table(stored(tmp_path / "root").slice(0, 1), tmp_path / "root/gemm.parquet")
    more = write_run(tmp_path / "more", [gemm_rows([(8, 64, 32, 0.5)])])
    refused("BL710", [more], tmp_path / "root")
    refused("BL710", [tmp_path / "root"], tmp_path / "new")


def test_a_changed_or_missing_part_is_refused(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST)])
    part = next((run / "parts").iterdir())
    part.write_bytes(part.read_bytes() + b"x")
    refused("BL709", [run], tmp_path / "root")
    part.unlink()
    refused("BL709", [run], tmp_path / "root")


def test_rows_of_another_system_than_the_provenance_says_are_refused(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST, system="gb200")])
    refused("BL718", [run], tmp_path / "root")


def test_synthetic_rows_need_a_word(tmp_path):
    run = write_run(tmp_path / "run", [gemm_rows(FIRST)], provenance="synthetic")
    refused("BL719", [run], tmp_path / "root")
    merge([run], tmp_path / "root", allow_synthetic=True)
    meta = sidecar.read(tmp_path / "root", "gemm")
    assert meta is not None
    assert meta.collections[0].provenance == "synthetic"


def test_tables_travel_between_roots_with_their_events(tmp_path):
    merge([write_run(tmp_path / "a", [gemm_rows(FIRST)])], tmp_path / "one")
    imported_table(tmp_path / "two")
    report = merge([tmp_path / "one"], tmp_path / "two")
    assert [entry.added for entry in report.merged] == [2]
    one, two = (sidecar.read(tmp_path / name, "gemm") for name in ("one", "two"))
    assert one is not None
    assert two is not None
    assert two.collections[0].id == one.collections[0].id
    assert two.collections[0].source_id == 4
    assert merge([tmp_path / "one", tmp_path / "a"], tmp_path / "two").known == (
        str(tmp_path / "one"),
        str(tmp_path / "a"),
    )


def test_a_folder_of_neither_kind_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    assert refused("BL717", [tmp_path / "empty"], tmp_path / "root").exit_code == 2


def test_a_second_merge_waits_for_the_lock_and_gives_up_with_a_reason(tmp_path):
    from bitlane.collector.root import open_root

    run = write_run(tmp_path / "run", [gemm_rows(FIRST)])
    with open_root(tmp_path / "root"):
        refused("BL712", [run], tmp_path / "root", timeout_s=0.05)


ROWS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(1, 3),
        st.just(32),
        st.floats(min_value=1e-6, max_value=1e6, allow_nan=False, allow_infinity=False),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_table_is_the_newest_row_of_each_key_whatever_the_order_of_merges(tmp_path_factory, runs, shuffle):
    base = tmp_path_factory.mktemp("merge")
    folders, expected = [], {}
    for number, cases in enumerate(runs):
        folders.append(write_run(base / f"run{number}", [gemm_rows(cases)], at=f"2026-01-{number + 1:02d}T00:00:00Z"))
        expected.update({case[:3]: case[3] for case in cases})
    shuffle.shuffle(folders)
    for folder in folders:
        merge([folder], base / "root")
    assert values(base / "root") == expected
    meta = sidecar.read(base / "root", "gemm")
    assert meta is not None
    assert meta.rows == len(expected) == sum(event.rows - event.replaced for event in meta.collections)


def test_two_runs_with_the_very_same_values_are_two_runs(tmp_path):
    """Found by the property above: the second run was taken for the first, so its newer rows did not count."""
    root = tmp_path / "root"
    for number, latency in enumerate((0.5, 0.7, 0.5)):
        run = write_run(tmp_path / f"run{number}", [gemm_rows([(1, 64, 32, latency)])], at=f"2026-01-0{number + 1}")
        merge([run], root)
    assert values(root) == {(1, 64, 32): 0.5}
    meta = sidecar.read(root, "gemm")
    assert meta is not None
    assert len(meta.collections) == 3
