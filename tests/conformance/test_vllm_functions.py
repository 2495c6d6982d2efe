"""The rules' matching alone, name by name, against vLLM's own functions.

The recorded answers run everywhere. The functions themselves run where vLLM can be imported, or with the Python that
the environment variable ``BITLANE_VLLM_PYTHON`` names; ``vllm_functions.py`` says how to ask a million pairs.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from vllm_functions import FUNCTIONS, differences, names, ours, questions, read_corpus, real_answers

CORPUS = Path(__file__).resolve().parents[1] / "data" / "vllm_functions.jsonl.gz"
QUICK = 100_000


def test_the_recorded_answers_are_the_rules_answers() -> None:
    head, found, real = read_corpus(CORPUS)
    compared, lines = differences(found, real, ours(found, head["vllm"]))
    assert lines == []
    assert compared >= QUICK


def test_the_recorded_answers_say_something() -> None:
    _, found, real = read_corpus(CORPUS)
    seen: dict[str, Counter[str]] = {name: Counter() for name in FUNCTIONS}
    for question, answers in zip(found, real, strict=True):
        seen[question["f"]].update(answers)
    for name, answers in seen.items():
        total = sum(answers.values())
        assert total > QUICK // 20, name
        # No answer that a function gives all the time, and each of the common ones often.
        assert answers.most_common(1)[0][1] < 0.95 * total, (name, answers)
        assert answers.most_common(2)[1][1] > 300, (name, answers)


def test_without_a_packed_map_the_first_spelling_with_a_shard_answers() -> None:
    """Found by a run of a million pairs; the answers are the real function's."""
    name = "language_model.model.layers.10.mlp.gate_up_proj"
    one, other = "language_model.model.layers.10.mlp", "model.language_model.layers.10.mlp"
    listings = [
        ({f"{one}.gate_proj": "NVFP4", f"{other}.gate_proj": "FP8", f"{one}.up_proj": "NVFP4"}, "1"),
        ({f"{one}.gate_proj": "NVFP4", f"{other}.up_proj": "FP8"}, "1"),
        ({f"{one}.gate_proj": "NVFP4", f"{one}.up_proj": "FP8"}, "x"),
        ({f"{other}.gate_proj": "NVFP4", f"{other}.up_proj": "FP8"}, "x"),
    ]
    found = [{"f": "algo", "p": 2, "e": entries, "n": [names().index(name)]} for entries, _ in listings]
    assert ours(found, "0.32.0") == [answer for _, answer in listings]


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has vLLM."""
    chosen = os.environ.get("BITLANE_VLLM_PYTHON", "")
    if not chosen and importlib.util.find_spec("vllm") is not None:
        chosen = sys.executable
    if not chosen:
        pytest.skip("needs vLLM, or BITLANE_VLLM_PYTHON naming a Python that has it")
    return chosen


def _compare(python: str, seed: int) -> None:
    try:
        version, real = real_answers(python, seed, QUICK)
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{python} could not answer:\n{error.stderr[-2000:]}")
    found = list(questions(seed, QUICK))
    compared, lines = differences(found, real, ours(found, version))
    assert lines == []
    assert compared > 0.95 * QUICK


def test_new_questions_get_the_real_functions_answers(python: str) -> None:
    _compare(python, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 13))
def test_a_million_pairs(python: str, seed: int) -> None:
    _compare(python, seed)
