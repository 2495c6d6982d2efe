"""Expressions against a vocabulary: functions, their values, names, and the keys of real metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.lint import parts, references
from .functions import FUNCTIONS
from .vocabulary import arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..grammar.findings import Findings


def expressions(node: t.Node) -> Iterator[t.Expr]:
    """Yield the expressions that stand directly in a statement."""
    for name in ("when", "value", "test", "count", "bytes_per_weight"):
        found = getattr(node, name, None)
        if isinstance(found, t.Node):
            yield found  # type: ignore[misc]
    yield from getattr(node, "shape", None) or ()
    yield from getattr(node, "comparing", ())
    for option in getattr(node, "options", ()):
        yield option.value


# Words that read like a call where they stand before a parenthesis.
_NO_FUNCTIONS: Final = {"in": 'write `x not in ("a", "b")`', "not": "write `not` before the whole condition"}


def calls(node: t.Expr, findings: Findings) -> None:
    """Report unknown functions and wrong numbers of values."""
    todo = [node]
    while todo:
        current = todo.pop()
        todo += parts(current)
        if not isinstance(current, t.Call):
            continue
        if current.function not in FUNCTIONS:
            hint = (
                _NO_FUNCTIONS.get(current.function)
                or nearest(current.function, FUNCTIONS)
                or "known: " + ", ".join(sorted(FUNCTIONS))
            )
            findings.add("BL110", f"unknown function `{current.function}`", current, current.function, hint)
            continue
        least, most = arguments(current.function)
        given = len(current.arguments)
        if given < least or (most is not None and given > most):
            takes = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            message = f"`{current.function}` takes {takes} values, {given} are given"
            findings.add("BL132", message, current, current.function, "see docs/rule-language.md, functions")


def heads(node: t.Expr) -> Iterator[tuple[t.Ref, str]]:
    """Yield every reference with its first name."""
    for ref in references(node):
        yield ref, ref.path.partition(".")[0]


def slip(word: str, other: str, least: int = 5) -> bool:
    """Whether a word is another one with one letter too many, too few, wrong, or two exchanged. Digits count.

    Words of fewer than ``least`` letters are left alone: too many others are near them.
    """
    if word == other or abs(len(word) - len(other)) > 1 or min(len(word), len(other)) < least:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    a, b = word[start:], other[start:]
    if any(c.isdigit() for c in a[:1] + b[:1]):
        return False
    exchanged = len(a) == len(b) > 1 and a[:2] == b[1::-1] and a[2:] == b[2:]
    return exchanged or a[1:] == b[1:] or a[1:] == b or a == b[1:]
