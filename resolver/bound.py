"""Expressions bound to one scope: what no module changes is worked out once, the rest becomes plain calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..grammar import tree as t
from .expressions import compare, evaluate
from .functions import FUNCTIONS
from .values import present, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from .expressions import Scope

    Call = Callable[[], Any]


class Binder:
    """Turns expressions into calls without arguments that read one scope.

    A part that uses no variable in the scope's ``volatile`` is evaluated on first use and kept: the order of
    evaluation, and so what is refused, stays that of :func:`evaluate`.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lets: dict[str, tuple[Call, bool]] = {}

    def bind(self, node: t.Expr) -> Call:
        """Return the call for an expression."""
        return self._bind(node)[0]

    def _bind(self, node: t.Expr) -> tuple[Call, bool]:
        """The call, and whether its value changes from module to module."""
        call, changes = self._parts(node)
        return (call, True) if changes else (self._once(node), False)

    def _once(self, node: t.Expr) -> Call:
        if isinstance(node, t.Constant):
            constant = node.value
            return lambda: constant
        kept: list[Any] = []
        scope = self._scope

        def once() -> Any:
            if not kept:
                kept.append(evaluate(node, scope))
            return kept[0]

        return once

    def _parts(self, node: t.Expr) -> tuple[Call, bool]:
        if isinstance(node, t.Ref):
            return self._reference(node.path)
        if isinstance(node, t.Binary):
            return self._binary(node)
        if isinstance(node, t.Not):
            value, changes = self._bind(node.value)
            return (lambda: not value()), changes
        if isinstance(node, t.Member):
            return self._member(node)
        if isinstance(node, t.Presence):
            value, changes = self._bind(node.value)
            wanted = node.test == "exists"
            return (lambda: present(value()) is wanted), changes
        if isinstance(node, t.Call) and node.function in FUNCTIONS:
            function, bound = FUNCTIONS[node.function], [self._bind(a) for a in node.arguments]
            calls = [c for c, _ in bound]
            return (lambda: function(*[c() for c in calls])), any(c for _, c in bound)
        if isinstance(node, t.Conditional):
            bound = [self._bind(e) for e in (node.test, node.then, node.otherwise)]
            test, then, otherwise = (c for c, _ in bound)
            return (lambda: then() if test() else otherwise()), any(c for _, c in bound)
        scope = self._scope
        return (lambda: evaluate(node, scope)), scope.changes(node)

    def _reference(self, path: str) -> tuple[Call, bool]:
        scope, values = self._scope, self._scope.values
        head, _, rest = path.partition(".")
        if head in scope.volatile:
            if rest or head not in values:
                return (lambda: scope.lookup(path)), True
            return (lambda: values[head]), True
        if head not in values and head in scope.lets and not rest and scope.let_changes(head):
            if head not in self._lets:
                self._lets[head] = (lambda: scope.lookup(path)), True  # a circle ends there, with its message
                self._lets[head] = self._bind(scope.lets[head])
            return self._lets[head]
        return (lambda: scope.lookup(path)), head in scope.lets and head not in values and scope.let_changes(head)

    def _binary(self, node: t.Binary) -> tuple[Call, bool]:
        (left, moves), (right, also) = self._bind(node.left), self._bind(node.right)
        changes = moves or also
        if node.operator == "or":
            return (lambda: left() or right()), changes
        if node.operator == "and":
            return (lambda: left() and right()), changes
        if node.operator == "is":
            return (lambda: same(left(), right())), changes
        scope = self._scope
        return (lambda: compare(node, left(), right(), scope)), changes

    def _member(self, node: t.Member) -> tuple[Call, bool]:
        value, changes = self._bind(node.value)
        negated = node.negated
        if all(isinstance(c, t.Constant) and isinstance(c.value, str) for c in node.choices):
            texts = frozenset(c.value for c in node.choices if isinstance(c, t.Constant))
            return (lambda: (isinstance(v := value(), str) and v in texts) is not negated), changes
        bound = [self._bind(c) for c in node.choices]
        calls = [c for c, _ in bound]

        def member() -> bool:
            found = value()
            return any(same(found, c()) for c in calls) is not negated

        return member, changes or any(c for _, c in bound)
