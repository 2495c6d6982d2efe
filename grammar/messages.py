"""Parser failures in the author's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .diagnostics import Diagnostic, nearest
from .tree import Span

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

_WORDS = {
    "_NL": "the end of the line",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "EQUAL": "`=`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "VBAR": "`|`",
    "PATH": "a name",
    "STRING": 'a "string"',
    "INT": "a number",
    "FLOAT": "a number",
    "SIGNED": "a number",
    "__ANON_0": "`->`",
}


def _choices(parser_terminals: dict[str, Any], names: set[str]) -> tuple[list[str], list[str]]:
    """Split acceptable terminals into keywords (as written) and kinds of token (in words)."""
    keywords: list[str] = []
    kinds: list[str] = []
    for name in sorted(names):
        if name in _WORDS:
            kinds.append(_WORDS[name])
            continue
        pattern = parser_terminals.get(name)
        value = pattern.pattern.value if pattern is not None else name
        if value.startswith("(") and "(?!" in value:
            keywords += value[1 : value.index(")")].split("|")
        elif value.replace("_", "").isalpha():
            keywords.append(value)
        elif name in ("COMPARE", "ADD", "MUL", "MINUS"):
            continue
        else:
            kinds.append(f"`{value}`" if len(value) < 4 else name.lower())
    return sorted(set(keywords)), sorted(set(kinds))


def explain(error: UnexpectedInput, text: str, file: str) -> Diagnostic:
    """Turn a lark failure into one diagnostic with what may stand there and the nearest spelling."""
    from .parsing import parser

    lines = text.split("\n")
    line = error.line if error.line and error.line > 0 else len(lines)
    column = error.column if error.column and error.column > 0 else len(lines[-1]) + 1
    source = lines[line - 1] if line <= len(lines) else ""
    found = _word_at(source, column)
    accepted = getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None) or set()
    terminals = {t.name: t for t in parser().terminals}
    keywords, kinds = _choices(terminals, set(accepted))
    expected = [f"`{k}`" for k in keywords] + kinds
    span = Span(line, column, line, column + max(1, len(found)))
    if found.startswith('"') and not found.endswith('"'):
        return Diagnostic("BL100", "unterminated string", file, span, 'close it with `"` on the same line')
    what = f"unexpected `{found}`" if found else "unexpected end of the line"
    hint = nearest(found, keywords)
    if not hint and expected:
        hint = "expected " + _join(expected[:8] + (["..."] if len(expected) > 8 else []))
    return Diagnostic("BL100", what, file, span, hint)


def _word_at(source: str, column: int) -> str:
    rest = source[column - 1 :]
    if not rest.strip():
        return ""
    if rest[0] == '"':
        end = rest.find('"', 1)
        return rest if end < 0 else rest[: end + 1]
    size = 0
    while size < len(rest) and (rest[size].isalnum() or rest[size] in "_."):
        size += 1
    return rest[: max(1, size)]


def _join(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " or " + items[-1]
