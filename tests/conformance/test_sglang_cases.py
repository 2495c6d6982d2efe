"""Checkpoints that the real SGLang has answered: every algorithm, shape and refusal, in every checkout.

``tests/data/sglang_cases.json.gz`` says which SGLang answered: ``run_sglang.py`` asks it, ``corpus.py`` makes the file.
``sglang_family_cases.json.gz`` is of classes that no packaged checkpoint has.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import differs, read

from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.coverage import measure
from bitlane.rules import library

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.mark.parametrize(("name", "least", "classes"), [("sglang_cases", 300, 20), ("sglang_family_cases", 200, 8)])
def test_every_case_is_resolved_as_sglang_does(tmp_path: Path, name: str, least: int, classes: int) -> None:
    cases = read(DATA / f"{name}.json.gz")
    assert len(cases) >= least
    assert len({c.config["architectures"][0] for c in cases}) >= classes
    assert sum(bool(c.error) for c in cases) >= least // 10
    assert [text for case in cases for text in differs(case, tmp_path, "sglang@0.5.23")] == []


@pytest.mark.slow
def test_every_rule_decides_something_in_a_test_or_a_recorded_answer() -> None:
    """A rule that neither reaches is a guess; formats that do nothing but refuse are counted by their refusals."""
    given = []
    for case in (c for name in ("sglang_cases", "sglang_family_cases") for c in read(DATA / f"{name}.json.gz")):
        beside = {"hf_quant_config.json": case.beside} if case.beside is not None else {}
        given.append(from_dicts({"config.json": case.config, **beside}, case.name))
    found = measure(library.find(), given, ("sglang",))
    idle = [c for c in found.never_fired() if c.place.startswith("loaders/sglang.rules:") and c.what != "format"]
    assert [(c.place, c.rule) for c in idle] == []
