"""Expressions of the rule language: evaluated over metadata, never over Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, RuleError
from ..grammar import tree as t
from .functions import FUNCTIONS
from .metadata import finite
from .values import ABSENT, TYPES, descend, present, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Scope:
    """Names that an expression may use: variables, lazily evaluated ``let`` names, then keys of metadata.

    Parameters
    ----------
    base
        Dictionary whose keys are used bare.
    roots
        Dictionaries reached by their first name (``config``).
    lets
        Named expressions; evaluated on first use, memoised unless they depend on a variable in ``volatile``
        (``volatile_lets`` says which do, where that is known).
    """

    __slots__ = (
        "_busy",
        "_memo",
        "_volatile_lets",
        "base",
        "fallbacks",
        "lets",
        "place",
        "roots",
        "values",
        "volatile",
    )

    def __init__(
        self,
        base: Mapping[str, Any],
        roots: Mapping[str, Any] | None = None,
        lets: Mapping[str, t.Expr] | None = None,
        place: str = "config.json",
        volatile: frozenset[str] = frozenset(),
        volatile_lets: frozenset[str] | None = None,
    ) -> None:
        self.base = base
        self.roots = dict(roots or {})
        self.lets = dict(lets or {})
        self.values: dict[str, Any] = {}
        self.place = place
        self.volatile = volatile
        self._memo: dict[str, Any] = {}
        self._busy: set[str] = set()
        self._volatile_lets: dict[str, bool] = (
            {} if volatile_lets is None else {n: n in volatile_lets for n in self.lets}
        )

    def lookup(self, path: str) -> Any:
        """Return the value of a dotted name, :data:`ABSENT` when there is none."""
        head, _, rest = path.partition(".")
        if head in self.values:
            return descend(self.values[head], rest)
        if head in self.lets:
            return descend(self._let(head), rest)
        if head in self.roots:
            root = self.roots[head]
            if isinstance(root, CheckpointError):  # a file that cannot be read, and is asked for
                raise root
            return descend(root, rest)
        return descend(self.base, path)

    def _let(self, name: str) -> Any:
        if name in self._memo:
            return self._memo[name]
        if name in self._busy:
            raise RuleError(
                "BL116", f"`{name}` is defined by itself", help="break the circle between the `let` statements"
            )
        self._busy.add(name)
        try:
            value = evaluate(self.lets[name], self)
        finally:
            self._busy.discard(name)
        if not self.let_changes(name):
            self._memo[name] = value
        return value

    def changes(self, node: t.Expr) -> bool:
        """Whether an expression depends on a variable that changes from question to question."""
        return bool(self.volatile & names_used(node, self.lets))

    def let_changes(self, name: str) -> bool:
        """Whether a `let` depends on a variable that changes from question to question."""
        if not self.volatile:
            return False
        known = self._volatile_lets.get(name)
        if known is None:
            known = self._volatile_lets[name] = bool(self.volatile & names_used(self.lets[name], self.lets))
        return known


def _number(value: Any, node: t.Node, scope: Scope) -> float | int:
    if not finite(value):
        name = f"`{node.path}`" if isinstance(node, t.Ref) else "a value"
        raise CheckpointError(
            "BL210",
            f"{name} must be a number, it is {TYPES.get(type(value), 'something else')}",
            place=scope.place,
            help="complete the checkpoint's config, or correct the family file",
        )
    return value


def _arithmetic(operator: str, left: float, right: float, scope: Scope) -> float | int:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if right == 0:
        raise CheckpointError(
            "BL211", "division by zero in a shape", place=scope.place, help="a size in the config is 0"
        )
    if operator == "//":
        return left // right
    if operator == "%":
        return left % right
    quotient = left / right
    return int(quotient) if quotient == int(quotient) else quotient


def _contains(value: Any, part: Any) -> bool:
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    return isinstance(value, (list, tuple, dict)) and part in value


def _binary(node: t.Binary, scope: Scope) -> Any:
    operator = node.operator
    left = evaluate(node.left, scope)
    if operator == "or":
        return left if left else evaluate(node.right, scope)
    if operator == "and":
        return evaluate(node.right, scope) if left else left
    return compare(node, left, evaluate(node.right, scope), scope)


def compare(node: t.Binary, left: Any, right: Any, scope: Scope) -> Any:
    """Apply an operator that needs both of its sides.

    Raises
    ------
    CheckpointError
        BL210 when arithmetic meets something that is no number, BL211 on division by zero.
    """
    operator = node.operator
    if operator == "is":
        return same(left, right)
    if operator == "is_not":
        return not same(left, right)
    if operator == "contains":
        return _contains(left, right)
    if operator in ("starts_with", "ends_with"):
        if not isinstance(left, str) or not isinstance(right, str):
            return False
        return left.startswith(right) if operator == "starts_with" else left.endswith(right)
    if operator in ("<", ">", "<=", ">="):
        if not present(left) or not present(right):
            return False
        a, b = _number(left, node.left, scope), _number(right, node.right, scope)
        return a < b if operator == "<" else a > b if operator == ">" else a <= b if operator == "<=" else a >= b
    return _arithmetic(operator, _number(left, node.left, scope), _number(right, node.right, scope), scope)


def _index(node: t.Index, scope: Scope) -> Any:
    base, index = evaluate(node.base, scope), evaluate(node.index, scope)
    if isinstance(base, dict):
        return base.get(str(index), ABSENT)
    if isinstance(base, (list, str)) and isinstance(index, int) and not isinstance(index, bool):
        return base[index] if 0 <= index < len(base) else ABSENT
    return ABSENT


def evaluate(node: t.Expr, scope: Scope) -> Any:
    """Evaluate an expression.

    Raises
    ------
    CheckpointError
        BL210 when arithmetic meets something that is no number, BL211 on division by zero.
    """
    if isinstance(node, t.Constant):
        return node.value
    if isinstance(node, t.Ref):
        return scope.lookup(node.path)
    if isinstance(node, t.Binary):
        return _binary(node, scope)
    if isinstance(node, t.Not):
        return not evaluate(node.value, scope)
    if isinstance(node, t.Member):
        value = evaluate(node.value, scope)
        return any(same(value, evaluate(c, scope)) for c in node.choices) is not node.negated
    if isinstance(node, t.Presence):
        return present(evaluate(node.value, scope)) is (node.test == "exists")
    if isinstance(node, t.Index):
        return _index(node, scope)
    if isinstance(node, t.Conditional):
        return evaluate(node.then if evaluate(node.test, scope) else node.otherwise, scope)
    if isinstance(node, t.Minus):
        return -_number(evaluate(node.value, scope), node.value, scope)
    function = FUNCTIONS.get(node.function)
    if function is None:
        raise RuleError("BL110", f"unknown function `{node.function}`", help="known: " + ", ".join(sorted(FUNCTIONS)))
    return function(*[evaluate(a, scope) for a in node.arguments])


def names_used(node: t.Expr, lets: Mapping[str, t.Expr]) -> frozenset[str]:
    """Return the first names of every reference in an expression, through ``let`` names."""
    out: set[str] = set()
    todo = [node]
    while todo:
        for ref in references(todo.pop()):
            head = ref.path.partition(".")[0]
            if head not in out:
                out.add(head)
                if head in lets:
                    todo.append(lets[head])
    return frozenset(out)


def references(node: t.Expr) -> Iterable[t.Ref]:
    """Yield every reference in an expression."""
    if isinstance(node, t.Ref):
        yield node
    for child in children(node):
        yield from references(child)


def children(node: t.Expr) -> tuple[t.Expr, ...]:
    """Return the direct sub-expressions."""
    if isinstance(node, t.Binary):
        return (node.left, node.right)
    if isinstance(node, (t.Not, t.Minus, t.Presence)):
        return (node.value,)
    if isinstance(node, t.Member):
        return (node.value, *node.choices)
    if isinstance(node, t.Index):
        return (node.base, node.index)
    if isinstance(node, t.Call):
        return node.arguments
    if isinstance(node, t.Conditional):
        return (node.then, node.test, node.otherwise)
    return ()
