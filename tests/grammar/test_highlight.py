"""Both highlighters know every keyword, colour whole rule files, and are what the grammar says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Name, Operator, String

from bitlane.grammar.expected import keywords
from bitlane.grammar.highlight import textmate, words, written
from bitlane.grammar.pygments_lexer import BitlaneRulesLexer
from bitlane.paths import RULES

WORDS = sorted(keywords())


def test_every_keyword_has_exactly_one_class() -> None:
    """The one list that both are made of is the grammar's."""
    listed = [w for group in words().values() for w in group]
    assert sorted(listed) == WORDS
    assert all(re.fullmatch(r"[a-z0-9_]+", w) for w in WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_pygments_knows_the_word(word: str) -> None:
    """A keyword is one, with something around it; a longer word is not."""
    kinds = {v: k for k, v in BitlaneRulesLexer().get_tokens(f" {word} ")}
    assert kinds[word] in Keyword or kinds[word] in Operator
    longer = {v: k for k, v in BitlaneRulesLexer().get_tokens(f"{word}_x")}
    assert longer[f"{word}_x"] in Name


@pytest.mark.parametrize("word", WORDS)
def test_textmate_knows_the_word(word: str) -> None:
    """The first pattern that matches a keyword is a keyword's; a longer word is a name."""

    def scope(text: str) -> str:
        for pattern in textmate()["patterns"]:
            found = re.match(pattern.get("match") or pattern["begin"], text)
            if found is not None and found.group() == text:
                return str(pattern["name"])
        return ""

    assert scope(word).startswith(("keyword", "storage", "constant"))
    assert scope(word + "_x") == "variable.other.bitlane"


@pytest.mark.parametrize("path", sorted(RULES.rglob("*.rules")), ids=lambda p: p.name)
def test_pygments_reads_whole_files(path: Path) -> None:
    """No packaged rule file has a token that the lexer does not know, and none is lost."""
    text = path.read_text(encoding="utf-8")
    tokens = list(BitlaneRulesLexer(ensurenl=False, stripnl=False).get_tokens(text))
    assert "".join(v for _, v in tokens) == text
    assert not [v for k, v in tokens if k is Error]


def test_comments_and_strings_hide_keywords() -> None:
    """A keyword in a comment or a string is none."""
    tokens = [(k, v) for k, v in BitlaneRulesLexer().get_tokens('let a = "when \\" if"  # else\n') if v.strip()]
    assert [v for k, v in tokens if k in Keyword or k in Operator.Word] == ["let"]
    assert [v for k, v in tokens if k in Comment] == ["# else"]
    assert [v for k, v in tokens if k is String.Escape] == ['\\"']


def test_committed_files_are_the_generated_ones(repo_root: Path) -> None:
    """`python -m bitlane.grammar.highlight editors` has been run since the grammar changed."""
    for name, content in written().items():
        assert (repo_root / "editors" / name).read_text(encoding="utf-8") == content, name
        json.loads(content)
