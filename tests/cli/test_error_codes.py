"""The list of codes is the codes that exist: none undocumented, none that nothing gives."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from click.testing import CliRunner

from bitlane import error_codes, paths
from bitlane.cli import main

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cli", "collector", "perfcore", "resolver", "rules", "model_configs", "perf_data")
CODE = re.compile(r"BL[2-9]\d\d")


def used() -> set[str]:
    """Codes that the sources and rule files name outside of texts."""
    found: set[str] = set()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    if CODE.fullmatch(node.value):
                        found.add(node.value)
                    found |= set(re.findall(r"^error\[(BL[2-9]\d\d)\]", node.value))
    for file in paths.RULES.rglob("*.rules"):
        found |= set(re.findall(r"\bcode (BL[2-9]\d\d)\b", file.read_text(encoding="utf-8")))
    return found


def test_every_code_is_listed_and_every_listed_code_is_given() -> None:
    assert used() == set(error_codes.known())


def test_the_page_is_the_list() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == error_codes.reference()


def test_explain_knows_codes_of_every_kind() -> None:
    run = CliRunner().invoke(main, ["rules", "explain", "bl222"])
    assert (run.exit_code, "no rule file describes this version" in run.stdout) == (0, True)
    run = CliRunner().invoke(main, ["rules", "explain", "BL999"])
    assert run.exit_code == 2
    assert "error[BL229]: `BL999` is no code of bitlane" in run.stderr
