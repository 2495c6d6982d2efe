"""A built wheel holds every rule, checkpoint and table, and finds them without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bitlane import paths

pytestmark = pytest.mark.slow

# What the resolver, the grammar, the pricing core and the collector read at run time.
READ_AT_RUN_TIME = (
    "rules/*.rules",
    "rules/loaders/*.rules",
    "rules/families/*.rules",
    "grammar/*.lark",
    "collector/cases/*.yaml",
    "perfcore/*.yaml",
    "model_configs/provenance.yaml",
    "model_configs/*/*.json",
    "perf_data/*.parquet",
    "perf_data/*.yaml",
    "perf_data/*.json",
)
SHOW = """
import json
from bitlane import paths

def count(root):
    return sum(p.is_file() and p.suffix not in (".py", ".pyc") for p in root.rglob("*"))

counts = {"rules": count(paths.RULES), "models": count(paths.MODEL_CONFIGS), "tables": count(paths.PERF_DATA)}
print(json.dumps({"root": str(paths.ROOT), **counts}))
"""


@pytest.fixture(scope="module")
def wheel(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no stale build folder slips in and none is left behind."""
    work = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "tests")
    shutil.copytree(repo_root, work / "copy", symlinks=True, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work / "out", work / "copy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = (work / "out").glob("bitlane-*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    folder = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(site: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run Python away from the checkout, with the unpacked wheel first on the path."""
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, *args], cwd=site, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("pattern", READ_AT_RUN_TIME)
def test_everything_read_at_run_time_is_inside(pattern: str, repo_root: Path, unpacked: Path) -> None:
    expected = {p.relative_to(repo_root).as_posix(): p.read_bytes() for p in repo_root.glob(pattern)}
    assert expected, f"nothing in the checkout matches {pattern}"
    got = {p.relative_to(unpacked / "bitlane").as_posix(): p.read_bytes() for p in (unpacked / "bitlane").glob(pattern)}
    assert got.keys() == expected.keys()
    assert got == expected


def test_every_module_is_inside_and_nothing_else(repo_root: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    outside = ("tests", "docs", "editors", "benchmarks", "build", "dist")
    modules = {
        f"bitlane/{p.relative_to(repo_root).as_posix()}"
        for p in repo_root.rglob("*.py")
        if not (parts := p.relative_to(repo_root).parts)[0].startswith(".") and parts[0] not in outside
    }
    assert {n for n in names if n.endswith(".py")} == modules
    assert {n.split("/")[0].split("-")[0] for n in names} == {"bitlane"}
    assert "bitlane/py.typed" in names


def test_licences_travel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    licences = {n.partition(".dist-info/licenses/")[2] for n in names if ".dist-info/licenses/" in n}
    assert licences == {"LICENSE", "NOTICE", "model_configs/THIRD_PARTY_LICENSES.md", "perf_data/LICENSE"}


def test_the_installed_package_finds_its_data(unpacked: Path, repo_root: Path) -> None:
    done = run(unpacked, "-c", SHOW)
    assert done.returncode == 0, done.stderr
    here = run(repo_root.parent, "-c", SHOW)
    assert str(unpacked / "bitlane") in done.stdout
    assert done.stdout.partition(",")[2] == here.stdout.partition(",")[2] != ""


def test_the_wheel_answers_the_first_half_of_the_main_job(unpacked: Path) -> None:
    model = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
    code = "from bitlane.cli import main; main()"
    done = run(unpacked, "-c", code, "resolve", model, "--loader", "vllm@0.31.0", "--system", "gb200")
    assert done.returncode == 0, done.stderr
    assert "w4a16_nvfp4" in done.stdout


def test_data_is_found_by_the_package_under_test() -> None:
    assert (paths.MODEL_CONFIGS / "nvidia--Gemma-4-26B-A4B-NVFP4" / "config.json").is_file()
    assert (paths.PERF_DATA / "gemm.parquet").is_file()
