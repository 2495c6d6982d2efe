"""Collecting over a local Ray with processor workers; skips where Ray is not installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed: collecting across machines is not tested here")

from test_run import expected, measured, run, small_plan  # noqa: E402

from bitlane.collector.ray_pool import RayPool  # noqa: E402
from bitlane.errors import UsageError  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster():
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    ray.init(
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield
    ray.shutdown()


@pytest.fixture
def make(cluster):
    pools = []

    def start(**options):
        pools.append(RayPool("fake_engine:Fake", options, workers=2))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


def test_the_rows_are_those_of_a_local_run(tmp_path, make):
    report = run(tmp_path / "ray", pool=make())
    assert (report.done, report.failures) == (16, {})
    run(tmp_path / "local")
    assert measured(tmp_path / "ray") == measured(tmp_path / "local") == expected(small_plan())


def test_a_lost_workers_case_is_tried_elsewhere(tmp_path, make):
    report = run(tmp_path / "run", pool=make(die="n=64,k=128,m=2", once=str(tmp_path / "died")))
    assert (tmp_path / "died").exists()
    assert (report.done, report.failures) == (16, {})
    assert measured(tmp_path / "run") == expected(small_plan())


def test_a_case_that_kills_every_worker_is_a_failure(tmp_path, make):
    report = run(tmp_path / "run", pool=make(die="n=64,k=128,m=2"))
    assert report.done == 15
    assert [entry.kind for entry in report.failures.values()] == ["WorkerLost"]


def test_the_command(tmp_path, cluster):
    from click.testing import CliRunner

    from bitlane.cli import main

    command = ["collect", "--engine", "ray", "--on", "numpy_cpu", "--workers", "2", "--base-grid", "--lane", "fp32"]
    done = CliRunner().invoke(main, [*command, "--limit", "4", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "4 of 4 cases have a row" in done.output


def test_what_the_engine_refuses_comes_through(cluster):
    with pytest.raises(UsageError, match="told to refuse"):
        RayPool("fake_engine:Fake", {"refuse": "yes"}, workers=1)
