"""Generated checkpoints that the real vLLM has answered: every algorithm, shape and refusal, in every checkout.

``tests/data/vllm_cases.json.gz`` says which vLLM answered and how the file was made; ``corpus.py`` reads and makes it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpus import Case, fold, read, unfold
from hypothesis import given
from hypothesis import strategies as st

from bitlane.errors import BitlaneError
from bitlane.resolver.api import resolve_with
from bitlane.resolver.checkpoint import open_checkpoint
from bitlane.rules.library import find

DATA = Path(__file__).resolve().parents[1] / "data" / "vllm_cases.json.gz"
_LEAST = 300


def _differs(case: Case, folder: Path) -> list[str]:
    (folder / "config.json").write_text(json.dumps(case.config))
    (folder / "hf_quant_config.json").unlink(missing_ok=True)
    if case.beside is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(case.beside))
    try:
        found = {r.module.path: r for r in resolve_with(find(()), open_checkpoint(str(folder)), "vllm@0.32.0", "gb200")}
    except BitlaneError as error:
        if case.error:
            return [] if error.exit_code == 4 else [f"{case.name}: exit code {error.exit_code}, not 4"]
        return [f"{case.name}: refused: {error.message}"]
    if case.error:
        return [f"{case.name}: accepted, vLLM says {case.error}"]
    mine = {path: (r.answer.algorithm, r.module.shape) for path, r in found.items()}
    # Experts have no shape.
    theirs = {path: (word, case.shapes.get(path)) for path, word in case.algorithms.items()}
    return [
        f"{case.name} {path}: {mine.get(path)} not {theirs.get(path)}"
        for path in sorted(mine.keys() | theirs.keys())
        if path not in mine
        or path not in theirs
        or mine[path][0] != theirs[path][0]
        or (theirs[path][1] is not None and mine[path][1] != theirs[path][1])
    ]


def test_every_case_is_resolved_as_vllm_does(tmp_path: Path) -> None:
    cases = read(DATA)
    assert len(cases) >= _LEAST
    assert sum(bool(c.error) for c in cases) >= _LEAST // 5
    assert [text for case in cases for text in _differs(case, tmp_path)] == []


@given(st.lists(st.from_regex(r"[a-z]{1,3}(\.([0-9]|[a-z]{1,2})){0,4}", fullmatch=True), unique=True))
def test_folded_names_come_back(names: list[str]) -> None:
    assert sorted(unfold(fold(names))) == sorted(names)


@pytest.mark.parametrize(
    ("paths", "folded"),
    [
        (["m.layers.0.a", "m.layers.2.a"], ["m.layers.{0,2}.a"]),
        (["lm_head", "v.1.b.2.c", "v.1.b.3.c"], ["lm_head", "v.{1}.b.2.c", "v.{1}.b.3.c"]),
    ],
)
def test_folded_names_are_readable(paths: list[str], folded: list[str]) -> None:
    assert fold(paths) == folded
