"""The Pygments lexer; it is found by its entry point, so that ``pygmentize x.rules`` and Sphinx know the language."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from .highlight import _NAME, _STRING_ESCAPE, _whole, words

_TOKENS = {
    "statement": Keyword,
    "expression": Operator.Word,
    "constant": Keyword.Constant,
    "kind": Keyword.Type,
    "modifier": Keyword.Pseudo,
}


class BitlaneRulesLexer(RegexLexer):  # type: ignore[misc]
    """Rule files of bitlane; the words come from the grammar."""

    name = "bitlane rules"
    aliases: ClassVar[list[str]] = ["bitlane-rules"]
    filenames: ClassVar[list[str]] = ["*.rules"]
    tokens: ClassVar[dict[str, list[tuple[object, ...]]]] = {
        "root": [
            (r"[ \t\r\n]+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r'"', String, "string"),
            *((_whole(listed), _TOKENS[kind]) for kind, listed in words().items()),
            (rf"{_NAME}(?=\()", Name.Function),
            (_NAME, Name),
            (r"[0-9]+(?:\.[0-9]+)?", Number),
            (r"->|<=|>=|//|[-+*/%<>=|]", Operator),
            (r"[{}()\[\],:]", Punctuation),
        ],
        "string": [
            (r'"|(?=\n)', String, "#pop"),
            (_STRING_ESCAPE, String.Escape),
            (r'[^"\\\n]+|\\', String),
        ],
    }
