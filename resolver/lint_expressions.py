"""Expressions against a vocabulary: functions, their values, names, and the keys of real metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.lint import parts, references
from .expressions import FUNCTIONS
from .vocabulary import arguments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..grammar.findings import Findings


_ARITHMETIC = ("+", "-", "*", "/", "//", "%")


def expressions(node: t.Node) -> Iterator[t.Expr]:
    """Yield the expressions that stand directly in a statement."""
    for name in ("when", "value", "test", "count", "bytes_per_weight"):
        found = getattr(node, name, None)
        if isinstance(found, t.Node):
            yield found  # type: ignore[misc]
    yield from getattr(node, "shape", None) or ()
    for option in getattr(node, "options", ()):
        yield option.value


def calls(node: t.Expr, findings: Findings) -> None:
    """Report unknown functions and wrong numbers of values."""
    todo = [node]
    while todo:
        current = todo.pop()
        todo += parts(current)
        if not isinstance(current, t.Call):
            continue
        if current.function not in FUNCTIONS:
            hint = nearest(current.function, FUNCTIONS) or "known: " + ", ".join(sorted(FUNCTIONS))
            findings.add("BL110", f"unknown function `{current.function}`", current, current.function, hint)
            continue
        least, most = arguments(current.function)
        given = len(current.arguments)
        if given < least or (most is not None and given > most):
            takes = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            message = f"`{current.function}` takes {takes} values, {given} are given"
            findings.add("BL132", message, current, current.function, "see docs/rule-language.md, functions")


@dataclass(frozen=True, slots=True)
class Keys:
    """Which names of a config are known.

    Attributes
    ----------
    bases
        Dictionaries whose keys are used bare.
    roots
        First names that lead into other dictionaries, with those dictionaries.
    """

    bases: Sequence[Mapping[str, Any]]
    roots: Mapping[str, Sequence[Mapping[str, Any]]]

    def unknown(self, path: str, lets: Mapping[str, t.Expr]) -> str:
        """Return the part of a dotted name that no dictionary has; empty when all is known or cannot be told."""
        head, _, rest = path.partition(".")
        if head in lets:
            value = lets[head]
            if not rest or not isinstance(value, t.Ref) or value.path.partition(".")[0] == head:
                return ""
            # `vision.depth` where `vision` is a key of the config: look the key up through its definition.
            return self.unknown(f"{value.path}.{rest}", lets)
        if head in self.roots:
            return _missing(self.roots[head], rest.split(".")) if rest else ""
        return _missing(self.bases, path.split("."))

    def names(self) -> set[str]:
        """Every bare name, for suggestions."""
        return {k for b in self.bases for k in b}


def _missing(documents: Sequence[Any], keys: list[str]) -> str:
    current = list(documents)
    for key in keys:
        following = [d[key] for d in current if isinstance(d, dict) and key in d]
        if not following:
            return key
        if any(not isinstance(v, dict) for v in following):
            return ""
        current = following
    return ""


def needed(node: t.Expr) -> Iterator[t.Ref]:
    """Yield the references whose absence would break an expression that must give a number or a text.

    Comparisons, tests and conditions take an absent key for what it is; arithmetic and values cannot.
    """
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, t.Ref):
            yield current
        elif isinstance(current, t.Conditional):
            todo += [current.then, current.otherwise]
        elif isinstance(current, t.Minus) or (isinstance(current, t.Binary) and current.operator in _ARITHMETIC):
            todo += parts(current)
        elif isinstance(current, t.Call) and current.function in ("ceil", "round_up"):
            todo += current.arguments


def heads(node: t.Expr) -> Iterator[tuple[t.Ref, str]]:
    """Yield every reference with its first name."""
    for ref in references(node):
        yield ref, ref.path.partition(".")[0]


def slip(word: str, other: str) -> bool:
    """Whether a word is another one with one letter too many, too few, wrong, or two exchanged. Digits count."""
    if word == other or abs(len(word) - len(other)) > 1 or min(len(word), len(other)) < 5:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    a, b = word[start:], other[start:]
    if any(c.isdigit() for c in a[:1] + b[:1]):
        return False
    exchanged = len(a) == len(b) > 1 and a[:2] == b[1::-1] and a[2:] == b[2:]
    return exchanged or a[1:] == b[1:] or a[1:] == b or a == b[1:]
