"""Expressions of the rule language: evaluated over metadata, never over Python objects."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError, RuleError
from ..grammar import tree as t
from .metadata import finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Absent:
    """What a key that is not there evaluates to; falsy, equal to nothing."""

    _only: Absent | None = None

    def __new__(cls) -> Absent:
        """Return the one instance."""
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = Absent()

_TYPES: Final = {
    dict: "dict",
    list: "list",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Absent: "absent",
}


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


def descend(value: Any, path: str) -> Any:
    """Follow dotted keys; :data:`ABSENT` where a key is missing or the value is no dictionary."""
    if not path:
        return value
    if "." not in path:
        return value.get(path, ABSENT) if isinstance(value, dict) else ABSENT
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return ABSENT
        value = value[part]
    return value


def present(value: Any) -> bool:
    """Return whether a value is there and not null."""
    return value is not ABSENT and value is not None


def _number(value: Any, node: t.Node, scope: Scope) -> float | int:
    if not finite(value):
        name = f"`{node.path}`" if isinstance(node, t.Ref) else "a value"
        raise CheckpointError(
            "BL210",
            f"{name} must be a number, it is {_TYPES.get(type(value), 'something else')}",
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


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; a boolean is no number, and nothing equals what is absent."""
    return (
        type(left) is not Absent
        and type(right) is not Absent
        and isinstance(left, bool) == isinstance(right, bool)
        and left == right
    )


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


def _largest(*values: Any) -> Any:
    return max((v for v in values if isinstance(v, (int, float))), default=ABSENT)


def _smallest(*values: Any) -> Any:
    return min((v for v in values if isinstance(v, (int, float))), default=ABSENT)


def _text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """Apply a change of letters to a text, or to the texts of a list."""

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [change(v) for v in value if isinstance(v, str)]
        return change(value) if isinstance(value, str) else value

    return changed


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []


def _every(collection: Any, key: Any, test: str) -> bool:
    """All members of a dict or list have ``key`` present/absent; false when there are none."""
    members = _values(collection)
    return bool(members) and all(
        isinstance(m, dict) and present(descend(m, key)) is (test == "exists") for m in members
    )


def _field(collection: Any, key: Any, missing: Any = ABSENT) -> list[Any]:
    """The values of ``key`` in every member that is a dict, each once, in order; ``missing`` where it is absent."""
    out: list[Any] = []
    for member in _values(collection):
        value = descend(member, key) if isinstance(member, dict) else ABSENT
        value = missing if value is ABSENT and isinstance(member, dict) else value
        if value is not ABSENT and value not in out:
            out.append(value)
    return out


def _select(collection: Any, key: Any, *words: Any) -> list[Any]:
    """The members that are objects whose ``key`` is one of the words, letter case aside."""
    found = [m for m in _values(collection) if isinstance(m, dict)]
    return [m for m in found if isinstance(w := m.get(key), str) and w.upper() in words]


def _kinds(collection: Any, key: Any = None) -> list[str]:
    """The type words among the members, or among their values of ``key``; a member that is no object is odd."""
    members = _values(collection)
    if key is None:
        return sorted({_TYPES.get(type(m), "odd") for m in members})
    return sorted({_TYPES.get(type(m.get(key, ABSENT)), "odd") if isinstance(m, dict) else "odd" for m in members})


def _multiples(values: Any, step: Any) -> bool:
    """Every number (or the one number) is a multiple of ``step``; also where either is no number."""
    numbers = values if isinstance(values, list) else [values]
    if isinstance(step, bool) or not isinstance(step, int) or step <= 0:
        return True
    return all(n % step == 0 for n in numbers if isinstance(n, int))


def _whole(value: Any) -> bool:
    """The value is a whole number or can be read as one."""
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _all_are(collection: Any, word: Any) -> bool:
    """Every member is of that type."""
    return all(_TYPES.get(type(m)) == word for m in _values(collection))


def _gcd(*values: Any) -> int:
    return math.gcd(*[v for v in values if isinstance(v, int)])


def _unknown_keys(value: Any, *known: Any) -> list[Any]:
    return [k for k in value if k not in known] if isinstance(value, dict) else []


def _starts_any(text: Any, prefixes: Any) -> bool:
    """The text starts with one of a list of prefixes, or of the parts of a text between commas."""
    listed = prefixes.split(",") if isinstance(prefixes, str) else _values(prefixes)
    return isinstance(text, str) and any(isinstance(p, str) and text.startswith(p) for p in listed)


def _starting(value: Any, *prefixes: Any) -> bool:
    return any(isinstance(v, str) and any(v.startswith(p) for p in prefixes) for v in _values(value))


def _holding(collection: Any, key: Any, item: Any) -> Any:
    """The last member whose list ``key`` holds ``item``; :data:`ABSENT` when none does."""
    found = [m for m in _values(collection) if isinstance(m, dict) and item in _values(m.get(key))]
    return found[-1] if found else ABSENT


def _having(collection: Any, key: Any, value: Any) -> list[Any]:
    """The members whose (dotted) ``key`` has this value."""
    return [m for m in _values(collection) if isinstance(m, dict) and same(descend(m, key), value)]


def _globbed(text: Any, patterns: Any) -> bool:
    """Whether a text matches one of a list of shell patterns as a whole, letter case included."""
    from .patterns import glob

    return isinstance(text, str) and any(isinstance(p, str) and glob(p)(text) for p in _values(patterns))


def _members(collection: Any, patterns: Any) -> list[Any]:
    """The members of an object whose names match one of a list of shell patterns."""
    return [v for k, v in collection.items() if _globbed(k, patterns)] if isinstance(collection, dict) else []


def _only_of(collection: Any, choices: Any) -> bool:
    """Whether every member of a list is a member of another."""
    known = _values(choices)
    return all(v in known for v in _values(collection))


def _only(collection: Any, *choices: Any) -> bool:
    """Whether every member of a list is one of the choices."""
    return all(any(same(v, c) for c in choices) for v in _values(collection))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "max": _largest,
    "min": _smallest,
    "ceil": lambda v: math.ceil(v),
    "round_up": lambda v, step: -(-int(v) // int(step)) * int(step),
    "len": lambda v: len(v) if isinstance(v, (list, dict, str)) else 0,
    "count": lambda v, item: v.count(item) if isinstance(v, (list, str)) else 0,
    "upper": _text(str.upper),
    "lower": _text(str.lower),
    "type": lambda v: _TYPES.get(type(v), "something else"),
    "first": lambda v: (_values(v) or [ABSENT])[0],
    "every": _every,
    "field": _field,
    "keys": lambda v: list(v) if isinstance(v, dict) else [],
    "any_starts": _starting,
    "holding": _holding,
    "having": _having,
    "globbed": _globbed,
    "members": _members,
    "only": _only,
    "only_of": _only_of,
    "starts_any": _starts_any,
    "select": _select,
    "kinds": _kinds,
    "front": lambda v: v[:-1] if isinstance(v, list) else [],
    "multiples": _multiples,
    "whole": _whole,
    "all_are": _all_are,
    "gcd": _gcd,
    "unknown_keys": _unknown_keys,
}


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
