"""When one condition implies another, and which rules an earlier rule leaves nothing to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import tree as t
from .compare import same
from .ranges import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

_STRICTER: Final = {">": (">", ">="), ">=": (">=",), "<": ("<", "<="), "<=": ("<=",)}


def _split(node: t.Expr | None, operator: str) -> list[t.Expr]:
    if node is None:
        return []
    if isinstance(node, t.Binary) and node.operator == operator:
        return [*_split(node.left, operator), *_split(node.right, operator)]
    return [node]


def implies(later: t.Expr | None, earlier: t.Expr | None) -> bool:
    """Whether ``earlier`` holds wherever ``later`` does. Sound, not complete: False when in doubt."""
    if earlier is None:
        return True
    return all(_one(later, part) for part in _split(earlier, "and"))


def _one(later: t.Expr | None, earlier: t.Expr) -> bool:
    choices = [earlier, *_split(earlier, "or")]
    cases = _split(later, "or")
    if len(cases) > 1:
        return all(_one(case, earlier) for case in cases)
    known = _split(later, "and")
    return any(same(k, c) or _narrower(k, c) for k in known for c in choices)


def _narrower(known: t.Expr, wanted: t.Expr) -> bool:
    """`x >= 100` implies `x >= 89`; `x is "a"` implies `x in ("a", "b")`."""
    left, values = _members(known)
    right, choices = _members(wanted)
    if left is not None and right is not None and same(left, right):
        return all(any(same(v, c) for c in choices) for v in values)
    if isinstance(known, t.Binary) and isinstance(wanted, t.Binary) and same(known.left, wanted.left):
        a, b = _number(known.right), _number(wanted.right)
        if a is None or b is None or wanted.operator not in _STRICTER.get(known.operator, ()):
            return False
        return a >= b if known.operator.startswith(">") else a <= b
    return False


def _members(node: t.Expr) -> tuple[t.Expr | None, Sequence[t.Expr]]:
    if isinstance(node, t.Member) and not node.negated:
        return node.value, node.choices
    if isinstance(node, t.Binary) and node.operator == "is":
        return node.left, (node.right,)
    return None, ()


def _number(node: t.Expr) -> float | None:
    value = node.value if isinstance(node, t.Constant) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def wider(earlier: t.Node, later: t.Node) -> bool:
    """Whether a statement applies wherever a later one does: versions, module kinds and conditions."""
    first, last = limits(earlier)
    start, end = limits(later)
    if not (first <= start and end <= last):
        return False
    kinds = set(getattr(earlier, "kinds", ()))
    if not isinstance(earlier, t.Leave) and kinds and not (set(_kinds(later)) and set(_kinds(later)) <= kinds):
        return False
    return implies(getattr(later, "when", None), getattr(earlier, "when", None))


def _kinds(node: t.Node) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(node, "kinds", ())
    return found


def covers(earlier: t.Node, later: t.Node) -> bool:
    """Whether a step decides every module that a later one could decide."""
    if isinstance(earlier, t.Leave):
        return wider(earlier, later) and bool(_kinds(later)) and set(_kinds(later)) <= set(earlier.kinds)
    if not wider(earlier, later):
        return False
    if isinstance(earlier, t.Default):
        return earlier.group is None
    if isinstance(earlier, t.Refuse):
        return True
    if isinstance(earlier, t.Exclude) and isinstance(later, t.Exclude):
        return earlier.unlisted == later.unlisted and not earlier.unlisted and _matches(earlier.match, later.match)
    if isinstance(earlier, t.Take) and isinstance(later, t.Take):
        if earlier.match is None or later.match is None or earlier.source != later.source:
            return False
        return _matches(earlier.match, later.match)
    return False


def _matches(earlier: t.Match, later: t.Match) -> bool:
    """Whether whatever the later matcher hits, the earlier one hits too."""
    if earlier.containing not in (None, later.containing) or (earlier.ending and earlier.ending != later.ending):
        return False
    if earlier.quantifier != later.quantifier and earlier.quantifier not in (None, "any"):
        return False
    if bool(earlier.named) != bool(later.named) or not set(later.on) <= set(earlier.on):
        return False
    return set(later.named) <= set(earlier.named) and set(later.by) <= set(earlier.by)


def shadowed(steps: Sequence[t.Node]) -> list[tuple[t.Node, t.Node]]:
    """Return (unreachable step, the earlier one that covers it), in order."""
    out: list[tuple[t.Node, t.Node]] = []
    for position, later in enumerate(steps):
        earlier = next((s for s in steps[:position] if covers(s, later)), None)
        if earlier is not None:
            out.append((later, earlier))
    return out


def ends(steps: Sequence[t.Node], kinds: Sequence[str]) -> bool:
    """Whether a chain (of one version, `use` resolved) decides modules of all ``kinds``, whatever they are."""
    left = set(kinds)
    for step in steps:
        if isinstance(step, (t.Default, t.Refuse, t.Leave)) and step.when is None:
            left -= set(step.kinds or kinds)
    return not left
