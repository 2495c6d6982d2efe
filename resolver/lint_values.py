"""Comparisons that cannot come out both ways: with words that do not exist, or with values of another type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.lint import parts
from ..grammar.logic import constant
from ..grammar.text import expression as written
from .vocabulary import TYPE_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..grammar.findings import Findings

# How other languages spell what is `true`, `false` and `null` here: as names they are keys that no metadata has.
SPELLINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("True", "TRUE"), "true"),
    **dict.fromkeys(("False", "FALSE"), "false"),
    **dict.fromkeys(("None", "NONE", "Null", "NULL", "nil"), "null"),
}
_NUMBERS: Final = frozenset({"len", "count", "ceil", "round_up", "gcd"})
_ARITHMETIC: Final = ("+", "-", "*", "/", "//", "%")
_ORDER: Final = ("<", "<=", ">", ">=")
_PRESENCES: Final = ("exists", "absent")


def literals(node: t.Expr, findings: Findings) -> None:
    """Report `True`, `None` and the like."""
    for current in _walk(node):
        word = SPELLINGS.get(current.path) if isinstance(current, t.Ref) else None
        if isinstance(current, t.Ref) and word is not None:
            findings.add("BL110", f"unknown name `{current.path}`", current, current.path, f"did you mean `{word}`?")


def comparisons(node: t.Expr, findings: Findings, numbers: frozenset[str], words: Mapping[str, Sequence[str]]) -> None:
    """Report comparisons whose outcome is known before anything is read.

    Parameters
    ----------
    numbers
        Names that are always numbers here.
    words
        Names that are always one of a few words here.
    """
    for current in _walk(node):
        for what, constants, known in _compared(current, numbers, words):
            for value in constants:
                _judge(current, what, value, known, findings)
        if isinstance(current, t.Binary):
            _types(current, findings)


def _walk(node: t.Expr) -> Iterator[t.Expr]:
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        todo += reversed(parts(current))


def _compared(
    node: t.Expr, numbers: frozenset[str], words: Mapping[str, Sequence[str]]
) -> Iterator[tuple[t.Expr, list[t.Constant], Sequence[str] | None]]:
    """Yield what is compared, the constants that it is compared with, and the words that it can be (None: numbers)."""
    match node:
        case t.Binary(operator="is" | "is_not"):
            pairs = [(node.left, [node.right]), (node.right, [node.left])]
        case t.Member():
            pairs = [(node.value, list(node.choices))]
        case t.Call(function="all_are", arguments=(_, word)):
            pairs = [(t.Call(function="type", arguments=()), [word])]
        case t.Call(function="every", arguments=(_, _, t.Constant() as test)):
            yield node, [test], _PRESENCES
            return
        case _:
            return
    for what, others in pairs:
        constants = [c for c in others if isinstance(c, t.Constant)]
        if isinstance(what, t.Call) and what.function == "type":
            yield what, constants, TYPE_WORDS
        elif isinstance(what, t.Ref) and what.path in words:
            yield what, constants, words[what.path]
        elif is_number(what, numbers):
            yield what, constants, None


def is_number(node: t.Expr, names: frozenset[str]) -> bool:
    """Whether an expression is a number whatever its names mean; an absent key in it is an error of its own."""
    match node:
        case t.Ref():
            return node.path in names
        case t.Call():
            return node.function in _NUMBERS
        case t.Binary():
            return node.operator in _ARITHMETIC
        case t.Minus():
            return True
    return False


def _judge(node: t.Expr, what: t.Expr, value: t.Constant, known: Sequence[str] | None, findings: Findings) -> None:
    text = written(value)
    if known is None:
        if not _numeric(value):
            message = f"a number is never `{text}`"
            findings.add("BL134", message, value, _word(value), f"write `{_bare(value)}`" if _bare(value) else "")
    elif value.value not in known:
        words = ", ".join(f'"{k}"' for k in known if k)
        near = nearest(value.value, known) if isinstance(value.value, str) else ""
        name = (
            f"`{what.path}`" if isinstance(what, t.Ref) else f"a `{what.function}`" if isinstance(what, t.Call) else ""
        )
        message = (
            f"{name} is never `{text}`" if not isinstance(node, t.Call) else f"`{node.function}` knows no `{text}`"
        )
        findings.add("BL134", message, value, _word(value), near or f"known: {words}")


def _types(node: t.Binary, findings: Findings) -> None:
    if node.operator in _ORDER and constant(node) is None:
        for side in (node.left, node.right):
            if isinstance(side, t.Constant) and not _numeric(side):
                hint = f"write `{_bare(side)}`" if _bare(side) else "compare with a number"
                message = f"`{node.operator}` compares numbers, `{written(side)}` is none"
                findings.add("BL134", message, side, _word(side), hint)
    elif node.operator in ("starts_with", "ends_with"):
        side = node.right
        if isinstance(side, t.Constant) and not isinstance(side.value, str):
            message = f"`{node.operator}` compares texts, `{written(side)}` is none"
            findings.add("BL134", message, side, _word(side), f'write `"{written(side)}"`')


def _numeric(value: t.Constant) -> bool:
    return isinstance(value.value, (int, float)) and not isinstance(value.value, bool)


def _bare(value: t.Constant) -> str:
    """Return the number that a text holds."""
    text = value.value if isinstance(value.value, str) else ""
    return text if text.replace(".", "", 1).isdigit() else ""


def _word(value: t.Constant) -> str:
    return value.value if isinstance(value.value, str) else written(value)
