"""The pages about rules: their tables are the code's, their examples work, their commands print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tutorial

from bitlane.grammar.expected import spelled, starts
from bitlane.grammar.words import STATEMENTS
from bitlane.resolver import targets
from bitlane.resolver.check import Source, check, laid_over
from bitlane.resolver.entries import KINDS
from bitlane.resolver.reference import FLAGS, MODULE_FLAGS, QUANTIFIERS, filled, functions, sentence
from bitlane.resolver.ruletest import run_tests
from bitlane.resolver.vocabulary import TARGETS
from bitlane.rules.library import find, read_head

# What a block takes over from another: `format` has steps, `let` and so on, which are told once.
TOLD_ELSEWHERE = {
    "header": set(),
    "statement": set(),
    "format_item": {"let", "refuse", "report", *starts("step")},
    "step": set(),
    "name_rule": {"let"},
    "test_item": set(),
}


@pytest.mark.parametrize("rule", list(STATEMENTS))
def test_every_statement_is_described(rule: str) -> None:
    """The reference lists what the grammar lets stand in a block, and nothing else."""
    assert set(STATEMENTS[rule]) == set(starts(rule)) - TOLD_ELSEWHERE[rule]


def test_every_word_of_matching_is_described() -> None:
    """Quantifiers, flags, targets and pattern kinds of the code all have their line."""
    assert set(QUANTIFIERS) == set(spelled("QUANTIFIER"))
    assert set(FLAGS) == set(spelled("SOURCE_FLAG"))
    assert set(MODULE_FLAGS) == set(spelled("MODULE_FLAG"))
    assert {*targets._NAMED, "expert0"} == set(TARGETS)
    assert all(sentence(v.__doc__) for v in KINDS.values())


def test_every_function_is_described() -> None:
    """No row of the table of functions is empty."""
    rows = functions().split("\n")[2:]
    assert not [row for row in rows if row.rstrip().endswith("|  |")]


def test_the_reference_is_written_from_the_code(repo_root: Path) -> None:
    """`python -m bitlane.resolver.reference docs/rule-language.md` has been run; the grammar there is the real one."""
    text = (repo_root / "docs" / "rule-language.md").read_text(encoding="utf-8")
    assert filled(text) == text
    assert (repo_root / "grammar" / "bitlane.lark").read_text(encoding="utf-8").rstrip("\n") in text


def _blocks(repo_root: Path) -> list[str]:
    text = (repo_root / "docs" / "rule-language.md").read_text(encoding="utf-8")
    return re.findall(r"```rules\n(.*?)```", text, re.DOTALL)


def test_examples_of_the_reference_work(repo_root: Path) -> None:
    """Whole files are checked, the test is run."""
    blocks = _blocks(repo_root)
    assert len(blocks) == 3
    for text in blocks:
        whole = text if text.startswith("language") else f"language 1\nextend loader vllm\n{text}"
        report = check([Source("page.rules", Path("page.rules"), whole)], find())
        assert [str(d) for d in report.diagnostics if d.severity == "error"] == []
        file = read_head(whole, Path("page.rules"), "page.rules", keep=True)
        assert file is not None
        results = run_tests([file], laid_over([file], find()))
        assert [f.to_dict() for r in results for f in r.failures] == []
    assert any("test " in b for b in blocks)


@pytest.mark.parametrize("page", ["new-loader.md", "new-family.md"])
def test_every_command_of_a_tutorial_prints_what_it_says(page: str, repo_root: Path) -> None:
    """The pages are played from their first file to their last command."""
    path = repo_root / "docs" / page
    sessions = [s["body"] for s in tutorial.steps(path.read_text(encoding="utf-8")) if not s["name"]]
    assert sum(len(tutorial.commands(body)) for body in sessions) >= 5
    assert tutorial.play(path) == []


def test_commands_are_split_from_what_they_print() -> None:
    """The player itself: continued commands, output, wildcards."""
    assert tutorial.commands("$ a \\\n  b\nout\n$ c\n") == [("a \\\n  b", "out\n"), ("c", "")]
    assert tutorial.agrees("a\n...\nd\n", "a\nb\nc\nd\n")
    assert tutorial.agrees("...\nd\n", "d\n")
    assert not tutorial.agrees("a\n...\n", "b\n")
