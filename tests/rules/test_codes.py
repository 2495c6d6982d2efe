"""Every code: its bad example shows it and nothing else, its good example is clean, its page is the committed one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitlane.grammar.codes import CODES, page, pages
from bitlane.resolver.check import Source, check
from bitlane.rules.library import find


def _codes(text: str | bytes) -> list[str]:
    report = check([Source("demo.rules", Path("demo.rules"), text)], find())
    return [d.code for d in report.diagnostics]


@pytest.mark.parametrize("code", sorted(CODES))
def test_bad_example_has_it_and_only_it(code: str) -> None:
    """The bad example is reported under its code, and under no other."""
    found = _codes(CODES[code].bad)
    assert found
    assert set(found) == {code}


@pytest.mark.parametrize("code", sorted(CODES))
def test_good_example_is_clean(code: str) -> None:
    """The good example has no finding at all."""
    assert _codes(CODES[code].good) == []


def test_pages_are_written_from_the_table(repo_root: Path) -> None:
    """docs/rule-errors.md is what the table says; `python -m bitlane.grammar.codes` writes it."""
    assert (repo_root / "docs" / "rule-errors.md").read_text(encoding="utf-8") == pages()


def test_every_page_has_its_parts() -> None:
    """A page says what, why, and shows both examples; codes are in order and titles are unlike."""
    assert list(CODES) == sorted(CODES)
    assert len({c.title for c in CODES.values()}) == len(CODES)
    for code in CODES.values():
        text = page(code)
        assert text.startswith(f"## {code.code}: {code.title}")
        assert text.count("```rules") == 2
        assert "**Why.**" in text


def test_no_code_is_used_without_being_described(repo_root: Path) -> None:
    """Every BL1## that the package's own text speaks of is in the table."""
    used = set()
    for folder in ("grammar", "rules", "resolver", "cli"):
        for path in (repo_root / folder).glob("*.py"):
            used |= set(re.findall(r'"(BL1\d\d)"', path.read_text(encoding="utf-8")))
    assert used == set(CODES)
