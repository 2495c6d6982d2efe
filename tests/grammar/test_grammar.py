"""The grammar itself: free of collisions, parsed without lark's cache, and its trees carry places."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bitlane.grammar.format import walk
from bitlane.grammar.parsing import GRAMMAR, _Lines, parse, parser
from bitlane.paths import RULES


def test_no_terminal_collides_with_another() -> None:
    """lark's strict mode refuses expressions of terminals that match the same text in one place."""
    pytest.importorskip("interegular")
    from lark import Lark

    Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr", lexer="contextual", postlex=_Lines(), strict=True)


def test_larks_cache_is_off() -> None:
    """Its cache is a pickle in the shared temporary folder; ours is data in a private one."""
    assert parser().options.cache is False
    assert parser().options.parser == "lalr"


@pytest.mark.parametrize("path", sorted(RULES.rglob("*.rules")), ids=lambda p: p.name)
def test_every_statement_knows_its_line(path: Path) -> None:
    """Places of statements are those of the text: a statement's line begins with its first word."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in walk(parse(text, path.name)):
        start = lines[node.at.line - 1][node.at.column - 1 :]
        assert start[:1].strip(), (node.at, start)
        assert lines[node.at.line - 1][: node.at.column - 1].strip() == ""


def test_hooks_call_commands_that_exist(repo_root: Path) -> None:
    """The pre-commit hooks run `bitlane rules check` and `fmt` on rule files."""
    from bitlane.cli.rules import command

    hooks = yaml.safe_load((repo_root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [h["id"] for h in hooks] == ["bitlane-rules-check", "bitlane-rules-fmt"]
    for hook in hooks:
        program, group, name = hook["entry"].split()
        assert (program, group) == ("bitlane", "rules")
        assert name in command.commands
        assert hook["files"] == r"\.rules$"
