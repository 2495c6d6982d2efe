"""Runs: resume, refusal of another identity, failures as data, interrupts, lost workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fake_engine import Fake, latency

from bitlane.collector import grids, journal, parts, runfile, sidecar
from bitlane.collector.case import CasePlan
from bitlane.collector.merge import merge
from bitlane.collector.plan import base_plan
from bitlane.collector.pool import LocalPool
from bitlane.collector.run import collect
from bitlane.collector.worker import ProcessPool
from bitlane.errors import UsageError

GRID = grids.Grids(grids.GemmGrid((1, 2, 4, 8), (64, 128)), grids.packaged().moe)
ORIGIN = {"system": "cpu_test", "backend": "fake", "version": "1.0"}


def small_plan(lanes=("bf16",)) -> CasePlan:
    return base_plan(**ORIGIN, grid=GRID, has=lambda *_: False, sm=None, lanes=lanes)


def run(folder, plan=None, **options):
    fake = {name: options.pop(name) for name in ("fail", "die", "interrupt", "once") if name in options}
    pool = options.pop("pool", None) or LocalPool(Fake(fake))
    return collect(plan or small_plan(), pool, folder, engine_name="fake", **options)


def measured(folder):
    state = journal.read(folder / parts.JOURNAL)
    rows = [row for part in parts.committed(state.records) for row in parts.load(folder, part).to_pylist()]
    return {(r["quant_mode"], r["n_out_features"], r["k_in_features"], r["m_tokens"]): r["latency_ms"] for r in rows}


def expected(plan):
    return {(case.key()["quant_mode"], *(case.axes[name] for name in "nkm")): latency(case) for case in plan.cases}


def test_every_case_becomes_a_row(tmp_path):
    report = run(tmp_path / "run")
    assert (report.planned, report.done, report.failures, report.succeeded) == (16, 16, {}, True)
    assert measured(tmp_path / "run") == expected(small_plan())
    merged = merge([tmp_path / "run"], tmp_path / "root", allow_synthetic=True).merged[0]
    assert (merged.added, merged.event.status) == (16, "complete")
    assert merged.event.case_plan_hash == small_plan().hash


def test_a_run_is_not_started_twice_but_resumed(tmp_path):
    run(tmp_path / "run", small_plan())
    with pytest.raises(UsageError) as caught:
        run(tmp_path / "run")
    assert caught.value.code == "BL728"
    report = run(tmp_path / "run", resume=True)
    assert (report.resumed, report.done) == (16, 16)
    assert len(journal.read(tmp_path / "run/journal.log").records) == 1, "nothing was measured again"


@pytest.mark.parametrize("change", ["seed", "plan", "engine", "device", "collector"])
def test_another_identity_is_refused(tmp_path, change, monkeypatch):
    run(tmp_path / "run")
    before = (tmp_path / "run/journal.log").read_bytes()
    options, plan = {"resume": True, "engine_name": "fake"}, small_plan()
    pool = LocalPool(Fake({}))
    if change == "seed":
        options["seed"] = 1
    elif change == "plan":
        plan = plan.select(limit=3)
    elif change == "engine":
        options["engine_name"] = "other"
    elif change == "device":
        origin = msgspec.structs.replace(Fake({}).origin().runtime, version="2.0")
        monkeypatch.setattr(Fake, "origin", with_runtime(origin))
    else:
        monkeypatch.setattr("bitlane.collector.provenance.collector_hash", lambda: "f" * 64)
    with pytest.raises(UsageError) as caught:
        collect(plan, pool, tmp_path / "run", **options)
    assert caught.value.code == "BL714"
    assert (tmp_path / "run/journal.log").read_bytes() == before


def with_runtime(runtime):
    original = Fake.origin

    def origin(self):
        import dataclasses

        return dataclasses.replace(original(self), runtime=runtime)

    return origin


def test_failures_are_data(tmp_path):
    report = run(tmp_path / "run", fail="m=4")
    assert (report.done, len(report.failures), report.succeeded) == (12, 4, True)
    assert report.failures_by_group() == {("gemm/bf16", "RuntimeError"): 4}
    failure = next(iter(report.failures.values()))
    assert failure.message == f"no kernel for {failure.case}"
    assert "Traceback" in failure.detail
    assert runfile.read_progress(tmp_path / "run").failed.keys() == report.failures.keys()
    event = merge([tmp_path / "run"], tmp_path / "root", allow_synthetic=True).merged[0].event
    assert (event.rows, event.failures, event.status) == (12, 4, "partial")
    assert event.case_plan_hash == small_plan().hash, "attempted cases count, failed ones too"


def test_failed_cases_are_skipped_or_tried_again(tmp_path):
    run(tmp_path / "run", fail="m=4")
    assert run(tmp_path / "run", resume=True).resumed == 16
    report = run(tmp_path / "run", resume=True, retry_failed=True)
    assert (report.resumed, report.done, report.failures) == (12, 16, {})
    assert measured(tmp_path / "run") == expected(small_plan())


def test_a_group_without_any_success_fails_the_run(tmp_path):
    report = run(tmp_path / "run", small_plan(("bf16", "fp32")), fail="fp32")
    assert report.empty == ("gemm/fp32",)
    assert not report.succeeded


def test_an_interrupt_keeps_everything_measured(tmp_path):
    report = run(tmp_path / "run", interrupt="n=128,k=64,m=2")
    assert report.interrupted
    assert not report.succeeded
    done = report.done
    assert 0 < done < 16
    assert len(measured(tmp_path / "run")) == done
    report = run(tmp_path / "run", resume=True)
    assert (report.resumed, report.done) == (done, 16)
    assert measured(tmp_path / "run") == expected(small_plan())


def test_an_interrupt_while_a_row_is_kept_waits_for_it(tmp_path, monkeypatch):
    from bitlane.collector import run as run_module

    original = run_module.append_part

    def interrupted(*arguments):
        os.kill(os.getpid(), 2)
        return original(*arguments)

    monkeypatch.setattr(run_module, "append_part", interrupted)
    report = run(tmp_path / "run", flush_rows=3)
    assert (report.interrupted, report.done) == (True, 3)


def test_rows_are_flushed_by_count_and_by_time(tmp_path):
    run(tmp_path / "a", flush_rows=5)
    run(tmp_path / "b", flush_s=0.0)
    assert [len(journal.read(tmp_path / name / "journal.log").records) for name in "ab"] == [4, 16]


def test_another_process_in_the_folder_is_refused(tmp_path):
    from filelock import FileLock

    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / runfile.LOCK), pytest.raises(UsageError) as caught:
        run(tmp_path / "run")
    assert caught.value.code == "BL729"


def test_a_plan_for_another_machine_is_refused(tmp_path):
    plan = base_plan(
        system="gb200", backend="vllm", version="0.31.0", grid=GRID, has=lambda *_: False, sm=None, lanes=["bf16"]
    )
    with pytest.raises(UsageError) as caught:
        run(tmp_path / "run", plan)
    assert caught.value.code == "BL730"
    assert not (tmp_path / "run").exists()


def test_a_lane_that_the_engine_cannot_build_is_refused(tmp_path):
    with pytest.raises(UsageError) as caught:
        run(tmp_path / "run", small_plan(("nvfp4",)))
    assert caught.value.code == "BL735"


def test_an_empty_plan_is_refused(tmp_path):
    with pytest.raises(UsageError) as caught:
        collect(CasePlan(*ORIGIN.values(), ()), LocalPool(Fake({})), tmp_path / "run", engine_name="fake")
    assert caught.value.code == "BL734"


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "bitlane.run/0"}'])
def test_a_folder_of_another_schema_is_refused(tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / runfile.IDENTITY).write_text(text)
    with pytest.raises(Exception, match="not a run of this collector") as caught:
        run(tmp_path / "run", resume=True)
    assert caught.value.code == "BL713"


@pytest.fixture
def process_pool(tmp_path):
    pools = []

    def make(**options):
        pools.append(ProcessPool("fake_engine:Fake", options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_a_worker_that_dies_once_is_replaced(tmp_path, process_pool):
    pool = process_pool(die="n=64,k=128,m=2", once=str(tmp_path / "died"))
    report = run(tmp_path / "run", pool=pool)
    assert (report.done, report.failures) == (16, {})
    assert measured(tmp_path / "run") == expected(small_plan()), "as a local run"


def test_a_case_that_always_kills_its_worker_is_a_failure(tmp_path, process_pool):
    report = run(tmp_path / "run", pool=process_pool(die="n=64,k=128,m=2"))
    assert report.done == 15
    (failure,) = report.failures.values()
    assert (failure.kind, failure.case) == ("WorkerLost", "gemm/bf16/n=64,k=128,m=2")
    assert "-9" in failure.message


def test_a_case_that_hangs_is_a_failure(tmp_path):
    pool = ProcessPool("fake_engine:Fake", {"hang": "n=64,k=128,m=2"}, timeout_s=2.0)
    try:
        report = run(tmp_path / "run", small_plan().select(["n=64,k=128,m="]), pool=pool)
    finally:
        pool.close()
    assert report.done == 3
    assert [entry.kind for entry in report.failures.values()] == ["WorkerLost"]


def test_what_the_engine_refuses_at_its_start_comes_through(process_pool):
    with pytest.raises(UsageError, match="told to refuse"):
        process_pool(refuse="yes")


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_run
test_run.run(Path(sys.argv[1]), flush_rows=1, resume=True, die="n=128,k=64,m=4")
"""


def test_a_killed_run_loses_at_most_what_was_not_flushed(tmp_path):
    """The process itself is killed with SIGKILL in the middle; --resume goes on and all rows are there."""
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, check=False)
    assert done.returncode == -9
    kept = measured(tmp_path / "run")
    order = [case.id for case in small_plan().cases]
    assert len(kept) == order.index("gemm/bf16/n=128,k=64,m=4")
    report = run(tmp_path / "run", resume=True)
    assert (report.resumed, report.done) == (len(kept), 16)
    assert measured(tmp_path / "run") == expected(small_plan())


def test_the_identity_file_says_who_collected(tmp_path):
    run(tmp_path / "run")
    said = json.loads((tmp_path / "run/run.json").read_text())
    assert (said["system"], said["backend"], said["planned"]) == ("cpu_test", "fake", 16)
    assert len(said["collector_hash"]) == 64
    assert runfile.read_identity(tmp_path / "run") is not None
    meta_before = sidecar.read(tmp_path, "gemm")
    assert meta_before is None
