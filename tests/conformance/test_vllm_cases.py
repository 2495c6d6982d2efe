"""Generated checkpoints that the real vLLM has answered: every algorithm, shape and refusal, in every checkout.

``tests/data/vllm_cases.json.gz`` says which vLLM answered; ``corpus.py`` reads and makes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import differs, fold, read, unfold
from hypothesis import given
from hypothesis import strategies as st

DATA = Path(__file__).resolve().parents[1] / "data"


# The second file was made by hand, by somebody who looked for what the generator does not think of; the third is of
# classes that no packaged checkpoint has, from configs written after the published ones.
@pytest.mark.parametrize(("name", "least"), [("vllm_cases", 300), ("vllm_odd_cases", 150), ("vllm_family_cases", 200)])
def test_every_case_is_resolved_as_vllm_does(tmp_path: Path, name: str, least: int) -> None:
    cases = read(DATA / f"{name}.json.gz")
    assert len(cases) >= least
    assert sum(bool(c.error) for c in cases) >= least // 5
    assert [text for case in cases for text in differs(case, tmp_path, "vllm@0.32.0")] == []


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
