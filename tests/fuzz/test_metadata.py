"""A short campaign of mutated metadata; ``python -m tests.fuzz.metadata 1000000`` runs a long one."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz import metadata

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer to notice a hang")
SHORT = 1500


def test_every_mutated_checkpoint_ends_in_an_answer_or_a_code() -> None:
    before = signal.getsignal(signal.SIGALRM)
    try:
        codes, failures, _ = metadata.campaign(SHORT)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [f"seed {f.seed}: {f.code}\n{f.trace}" for f in failures] == []
    assert sum(codes.values()) == SHORT
    # Neither all answered nor all refused, and refused for many reasons.
    assert codes["ok"] > SHORT // 10
    assert len(codes) > 12


def test_the_same_seed_makes_the_same_files() -> None:
    for seed in range(0, 200, 7):
        assert metadata.checkpoint(seed) == metadata.checkpoint(seed)
