"""Text to syntax tree, with every mistake reported once and none cascading."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import tree
from .diagnostics import Diagnostic, RuleSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAMMAR = Path(__file__).with_name("bitlane.lark")
MAX_DEPTH = 64
MAX_OPERATORS = 256
MAX_ERRORS = 20
_OPEN = {"LPAR", "LSQB"}
_CLOSE = {"RPAR", "RSQB"}
_CHAINING = {"NOT", "MINUS", "ADD", "MUL", "AND", "OR", "IF", "COMPARE", "IS"}


class DepthError(Exception):
    """Nesting beyond :data:`MAX_DEPTH`, or a statement of more than :data:`MAX_OPERATORS` operators."""

    def __init__(self, token: Any, what: str) -> None:
        super().__init__(what)
        self.token = token
        self.what = what


class _Lines:
    """Token filter: line breaks do not count inside ( ) and [ ], and repeat for free elsewhere."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Any]) -> Iterator[Any]:
        quiet = depth = operators = 0
        last = "_NL"
        token: Any = None
        for token in stream:
            kind = token.type
            if kind == "_NL":
                operators = 0
                if quiet or last == "_NL":
                    continue
            elif kind in _OPEN or kind == "LBRACE":
                quiet += kind in _OPEN
                depth += 1
                if depth > MAX_DEPTH:
                    raise DepthError(token, f"nesting deeper than {MAX_DEPTH}")
            elif kind in _CLOSE or kind == "RBRACE":
                quiet = max(0, quiet - (kind in _CLOSE))
                depth = max(0, depth - 1)
            elif kind in _CHAINING:
                operators += 1
                if operators > MAX_OPERATORS:
                    raise DepthError(token, f"more than {MAX_OPERATORS} operators in one statement")
            last = kind
            yield token
        if last != "_NL" and token is not None:
            yield type(token).new_borrow_pos("_NL", "\n", token)


def grammar_digest() -> str:
    """Digest of the grammar and of the tree it builds: names compiled caches."""
    here = Path(__file__).parent
    parts = [GRAMMAR, here / "tree.py", here / "build.py"]
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in parts)).hexdigest()[:16]


@lru_cache(maxsize=1)
def parser() -> Any:
    """Return the LALR parser; built once per process (about 0.4 s of CPU)."""
    from lark import Lark

    return Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=True,
        postlex=_Lines(),  # type: ignore[arg-type]
    )


def _once(text: str, name: str) -> tree.File | Diagnostic:
    from lark.exceptions import UnexpectedInput

    from .build import BuildError, build
    from .messages import explain

    try:
        return build(parser().parse(text))
    except DepthError as error:
        return Diagnostic.at_token("BL102", error.what, error.token, name, help="split the statement, or name a part of it with `let`")
    except UnexpectedInput as error:
        return explain(error, text, name)
    except BuildError as error:
        return Diagnostic("BL103", error.message, name, error.span, help=error.help)


def parse(text: str, name: str = "<rules>") -> tree.File:
    """Parse a rule file.

    Parameters
    ----------
    text
        The file's content.
    name
        What to call the file in diagnostics.

    Raises
    ------
    RuleSyntaxError
        With one diagnostic per mistake: after each, the statement that holds it is blanked out and parsing starts over.
    """
    if len(text) > 1 << 20:
        raise RuleSyntaxError([Diagnostic("BL102", "a rule file of more than 1 MiB", name, tree.Span(1, 1, 1, 2))])
    found: list[Diagnostic] = []
    current = text
    for _ in range(MAX_ERRORS):
        result = _once(current, name)
        if isinstance(result, tree.File):
            if found:
                raise RuleSyntaxError(found)
            return result
        if found and result.span.line <= found[-1].span.line and result.span == found[-1].span:
            break
        found.append(result)
        blanked = _blank(current, result.span.line)
        if blanked == current:
            break
        current = blanked
    raise RuleSyntaxError(found)


def _blank(text: str, line: int) -> str:
    """Blank the statement on ``line`` and, when it opens a block, the whole block."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines) or not lines[line - 1].strip():
        return text
    depth = lines[line - 1].count("{") - lines[line - 1].count("}")
    last = line
    while depth > 0 and last < len(lines):
        depth += lines[last].count("{") - lines[last].count("}")
        last += 1
    for index in range(line - 1, last):
        lines[index] = ""
    return "\n".join(lines)
