"""Highlighting: one list of words, read from the grammar, for Pygments and for TextMate (VS Code and others).

``python -m bitlane.grammar.highlight editors`` writes the files below ``editors``.
"""

from __future__ import annotations

import json
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .expected import keywords, spelled, starts

if TYPE_CHECKING:
    from collections.abc import Iterable

_PARTS: Final = (
    "start",
    "header",
    "statement",
    "step",
    "format_item",
    "stack_item",
    "part_item",
    "name_rule",
    "test_item",
)
_EXPRESSION: Final = ("and", "or", "not", "is", "in", "if", "else", *("contains", "starts_with", "ends_with"))
_CONSTANTS: Final = ("true", "false", "null")
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_STRING_ESCAPE: Final = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'


@lru_cache(maxsize=1)
def words() -> dict[str, tuple[str, ...]]:
    """Sort every keyword of the grammar into one class: statement, expression, constant, kind or modifier."""
    out: dict[str, list[str]] = {"statement": [], "expression": [], "constant": [], "kind": [], "modifier": []}
    beginning = {w for rule in _PARTS for w in starts(rule)}
    presence = {*spelled("PRESENCE"), *spelled("TEXT_TEST")}
    kinds = {*spelled("KIND"), *spelled("PHASE"), *spelled("OUTCOME"), *spelled("SOURCE")}
    for word in keywords():
        if word in _CONSTANTS:
            out["constant"].append(word)
        elif word in _EXPRESSION or word in presence:
            out["expression"].append(word)
        elif word in kinds:
            out["kind"].append(word)
        elif word in beginning:
            out["statement"].append(word)
        else:
            out["modifier"].append(word)
    return {k: tuple(v) for k, v in out.items()}


def _alternatives(listed: Iterable[str]) -> str:
    # Longer words first, so that none is taken for the beginning of another.
    return "|".join(re.escape(w) for w in sorted(listed, key=lambda w: (-len(w), w)))


def _whole(listed: Iterable[str]) -> str:
    return rf"(?<![A-Za-z0-9_.])(?:{_alternatives(listed)})(?![A-Za-z0-9_.])"


_SCOPES: Final = {
    "statement": "keyword.control.bitlane",
    "expression": "keyword.operator.word.bitlane",
    "constant": "constant.language.bitlane",
    "kind": "storage.type.bitlane",
    "modifier": "keyword.other.bitlane",
}


def textmate() -> dict[str, Any]:
    """Return the TextMate grammar."""
    string = {
        "name": "string.quoted.double.bitlane",
        "begin": '"',
        "end": '"|$',
        "patterns": [{"name": "constant.character.escape.bitlane", "match": _STRING_ESCAPE}],
    }
    patterns: list[dict[str, Any]] = [
        {"name": "comment.line.number-sign.bitlane", "match": "#.*$"},
        string,
        *({"name": _SCOPES[k], "match": _whole(v)} for k, v in words().items()),
        {"name": "entity.name.function.bitlane", "match": rf"{_NAME}(?=\()"},
        {"name": "constant.numeric.bitlane", "match": r"(?<![A-Za-z0-9_.])[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_.])"},
        {"name": "variable.other.bitlane", "match": _NAME},
        {"name": "keyword.operator.bitlane", "match": r"->|<=|>=|//|[-+*/%<>=|]"},
    ]
    return {
        "name": "bitlane rules",
        "scopeName": "source.bitlane-rules",
        "fileTypes": ["rules"],
        "patterns": patterns,
    }


def package() -> dict[str, Any]:
    """Return the manifest of the VS Code extension that carries the grammar."""
    return {
        "name": "bitlane-rules",
        "displayName": "bitlane rules",
        "description": "Rule files of bitlane: highlighting, brackets and comments",
        "version": "0.1.0",
        "license": "Apache-2.0",
        "engines": {"vscode": "^1.75.0"},
        "categories": ["Programming Languages"],
        "contributes": {
            "languages": [
                {
                    "id": "bitlane-rules",
                    "aliases": ["bitlane rules"],
                    "extensions": [".rules"],
                    "configuration": "./language-configuration.json",
                }
            ],
            "grammars": [
                {
                    "language": "bitlane-rules",
                    "scopeName": "source.bitlane-rules",
                    "path": "./bitlane-rules.tmLanguage.json",
                }
            ],
        },
    }


def configuration() -> dict[str, Any]:
    """Return what editors know about brackets and comments."""
    pairs = [["{", "}"], ["[", "]"], ["(", ")"]]
    return {
        "comments": {"lineComment": "#"},
        "brackets": pairs,
        "autoClosingPairs": [*({"open": a, "close": b} for a, b in pairs), {"open": '"', "close": '"'}],
        "surroundingPairs": [*pairs, ['"', '"']],
        "indentationRules": {"increaseIndentPattern": r"^.*[{(\[]\s*(#.*)?$", "decreaseIndentPattern": r"^\s*[})\]]"},
    }


FILES: Final = {
    "vscode/bitlane-rules.tmLanguage.json": textmate,
    "vscode/package.json": package,
    "vscode/language-configuration.json": configuration,
}


def written() -> dict[str, str]:
    """Return every generated file below ``editors`` with its content."""
    return {name: json.dumps(make(), indent=2) + "\n" for name, make in FILES.items()}


def lexer() -> Any:
    """Return a Pygments lexer for rule files.

    Raises
    ------
    ModuleNotFoundError
        Pygments is not installed.
    """
    from .pygments_lexer import BitlaneRulesLexer

    return BitlaneRulesLexer()


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "editors")
    if not folder.is_dir():
        sys.exit(f"no folder {folder}: name the one that holds the editors' files")
    for name, content in written().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
