"""Checkpoints that the real SGLang has answered: every algorithm, shape and refusal, in every checkout.

``tests/data/sglang_cases.json.gz`` says which SGLang answered: ``run_sglang.py`` asks it, ``corpus.py`` makes the file.
"""

from __future__ import annotations

from pathlib import Path

from corpus import differs, read

DATA = Path(__file__).resolve().parents[1] / "data" / "sglang_cases.json.gz"
_CLASSES = 20
_LEAST = 300


def test_every_case_is_resolved_as_sglang_does(tmp_path: Path) -> None:
    cases = read(DATA)
    assert len(cases) >= _LEAST
    assert len({c.config["architectures"][0] for c in cases}) >= _CLASSES
    assert sum(bool(c.error) for c in cases) >= _LEAST // 10
    assert [text for case in cases for text in differs(case, tmp_path, "sglang@0.5.23")] == []
