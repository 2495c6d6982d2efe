"""Generated checkpoints that four releases of the real vLLM have answered; ``generated.py`` makes the file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from generated import case, read

from bitlane.errors import BitlaneError
from bitlane.resolver.api import resolve_with
from bitlane.resolver.checkpoint import from_dicts
from bitlane.rules.library import find

if TYPE_CHECKING:
    from bitlane.rules.library import Library

DATA = Path(__file__).resolve().parents[1] / "data" / "vllm_generated.jsonl.gz"
VERSIONS = ("0.24.0", "0.30.0", "0.31.0", "0.32.0")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The recorded checkpoints and answers."""
    return read(DATA)


@pytest.fixture(scope="module")
def rules() -> Library:
    """The packaged rules."""
    return find(())


def _differs(rules: Library, row: dict[str, Any]) -> list[str]:
    label = f"{row['case']} under {row['vllm']}"
    try:
        found = resolve_with(rules, from_dicts(row["files"]), f"vllm@{row['vllm']}", "gb200")
    except BitlaneError as error:
        return [] if "error" in row else [f"{label}: refused: {error.message}"]
    if "error" in row:
        return [f"{label}: accepted; vLLM says {row['error']}"]
    mine = {r.module.path: r.answer.algorithm for r in found}
    # A head whose prefix begins with a dot was recorded without it where the layer does not keep its prefix.
    mine.update({p[1:]: a for p, a in mine.items() if p.startswith(".")})
    return [f"{label} {p}: {mine.get(p)}, vLLM {a}" for p, a in row["modules"].items() if mine.get(p) != a]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_answer(rules: Library, rows: list[dict[str, Any]], version: str) -> None:
    asked = [row for row in rows if row["vllm"] == version]
    assert len(asked) >= 80
    assert sum("error" in row for row in asked) >= 10
    assert [line for row in asked for line in _differs(rules, row)] == []


def test_the_answers_are_of_many_kinds(rows: list[dict[str, Any]]) -> None:
    words = Counter(a for row in rows for a in row.get("modules", {}).values())
    assert {
        "bf16",
        "fp8",
        "fp8_pc_pt",
        "fp8_block",
        "nvfp4",
        "w4a16_nvfp4",
        "mxfp4",
        "mxfp8",
        "int4_wo",
        "int8_wo",
        "int8",
    } <= {word for word, count in words.items() if count > 20}


def test_the_generator_still_makes_the_recorded_checkpoints(rows: list[dict[str, Any]]) -> None:
    for row in rows[:: max(1, len(rows) // 40)]:
        seed, _, rest = row["case"].partition("-")
        name, config, beside = case(int(seed))
        assert name.partition("-")[2] == rest
        assert config == row["files"]["config.json"]
        assert beside == row["files"].get("hf_quant_config.json")
