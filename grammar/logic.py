"""When one condition implies others: conditions as statements of truth, their names as unknowns."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from . import tree as t
from .compare import same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STRICTER: Final = {">": (">", ">="), ">=": (">=",), "<": ("<", "<="), "<=": ("<=",)}
# Truth tables are written for so many different comparisons; what has more is left in doubt.
_MOST_ATOMS: Final = 8


def constant(node: t.Expr | None) -> bool | None:
    """Return whether a condition holds (or fails) whatever its names mean; None when that depends on them."""
    match node:
        case None:
            return True
        case t.Constant():
            return bool(node.value)
        case t.Not():
            found = constant(node.value)
            return None if found is None else not found
        case t.Binary(operator="and" | "or"):
            decisive = node.operator == "or"
            sides = (constant(node.left), constant(node.right))
            return decisive if decisive in sides else None if None in sides else not decisive
        case t.Binary(left=t.Constant(), right=t.Constant(), operator="is" | "is_not"):
            return _equal(node.left, node.right) is (node.operator == "is")
        case t.Member(value=t.Constant()) if all(isinstance(c, t.Constant) for c in node.choices):
            return any(_equal(node.value, c) for c in node.choices) is not node.negated
        case t.Conditional():
            test = constant(node.test)
            return None if test is None else constant(node.then if test else node.otherwise)
    return _ordered(node)


def _ordered(node: t.Expr) -> bool | None:
    if not isinstance(node, t.Binary) or node.operator not in _STRICTER:
        return None
    a, b = _number(node.left), _number(node.right)
    if a is None or b is None:
        return None
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[node.operator]


def _equal(left: t.Expr, right: t.Expr) -> bool:
    a, b = (n.value if isinstance(n, t.Constant) else n for n in (left, right))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def split(node: t.Expr | None, operator: str) -> list[t.Expr]:
    """Return the parts of a chain of `and` or `or`."""
    if node is None:
        return []
    if isinstance(node, t.Binary) and node.operator == operator:
        return [*split(node.left, operator), *split(node.right, operator)]
    return [node]


def implies(later: t.Expr | None, earlier: t.Expr | None) -> bool:
    """Whether ``earlier`` holds wherever ``later`` does. Sound, not complete: False when in doubt."""
    if constant(earlier) is True or constant(later) is False:
        return True
    return all(_one(later, part) for part in split(earlier, "and"))


def entails(later: t.Expr | None, choices: Sequence[t.Expr | None]) -> bool:
    """Whether at least one of ``choices`` holds wherever ``later`` does. Sound, not complete."""
    if any(implies(later, c) for c in choices):
        return True
    if len(choices) < 2:
        return False
    atoms: list[t.Expr] = []
    wanted = [_formula(c, atoms) for c in choices]
    known = _formula(later, atoms)
    if len(atoms) > _MOST_ATOMS:
        return False
    stricter = [(a, b) for a, x in enumerate(atoms) for b, y in enumerate(atoms) if a != b and _narrower(x, y)]
    for values in product((True, False), repeat=len(atoms)):
        impossible = any(values[a] and not values[b] for a, b in stricter)
        if not impossible and known(values) and not any(w(values) for w in wanted):
            return False
    return True


def _formula(node: t.Expr | None, atoms: list[t.Expr]) -> Callable[[Sequence[bool]], bool]:
    """Return a condition as a function of what its comparisons give; new ones are added to ``atoms``."""
    fixed = constant(node)
    if node is None or fixed is not None:
        return lambda _: bool(fixed)
    match node:
        case t.Binary(operator="and" | "or"):
            left, right = _formula(node.left, atoms), _formula(node.right, atoms)
            if node.operator == "or":
                return lambda v: left(v) or right(v)
            return lambda v: left(v) and right(v)
        case t.Not():
            return _negated(_formula(node.value, atoms))
        case t.Binary(operator="is_not"):
            return _negated(_atom(t.Binary(operator="is", left=node.left, right=node.right), atoms))
        case t.Presence(test="absent"):
            return _negated(_atom(t.Presence(value=node.value, test="exists"), atoms))
        case t.Member():
            same_as = [_atom(t.Binary(operator="is", left=node.value, right=c), atoms) for c in node.choices]
            return (
                (lambda v: not any(f(v) for f in same_as)) if node.negated else (lambda v: any(f(v) for f in same_as))
            )
    return _atom(node, atoms)


def _negated(formula: Callable[[Sequence[bool]], bool]) -> Callable[[Sequence[bool]], bool]:
    return lambda v: not formula(v)


def _atom(node: t.Expr, atoms: list[t.Expr]) -> Callable[[Sequence[bool]], bool]:
    position = next((n for n, known in enumerate(atoms) if same(known, node)), len(atoms))
    if position == len(atoms):
        atoms.append(node)
    return lambda v: v[position]


def _one(later: t.Expr | None, earlier: t.Expr) -> bool:
    choices = [earlier, *split(earlier, "or")]
    cases = split(later, "or")
    if len(cases) > 1:
        return all(_one(case, earlier) for case in cases)
    known = split(later, "and")
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
