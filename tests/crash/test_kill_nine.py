"""The kill -9 driver, briefly; ``python -m tests.crash.kill_nine --kills 1000`` is the long run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def drive(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.crash.kill_nine", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_nothing_acknowledged_is_lost_in_thirty_kills(tmp_path):
    done = drive("--kills", "30", "--seed", "7", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "damage: 0" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_the_check_finds_the_damage_of_writing_in_place(tmp_path):
    done = drive("--kills", "20", "--seed", "7", "--folder", str(tmp_path), "--careless")
    assert done.returncode == 1, done.stdout
