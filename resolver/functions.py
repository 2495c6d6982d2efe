"""Functions that rule files may call, over values of metadata."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from .values import ABSENT, TYPES, descend, present, same

if TYPE_CHECKING:
    from collections.abc import Callable


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
    words: set[str] = set()
    for member in _values(collection):
        if not isinstance(member, dict):
            continue
        value = descend(member, key)
        value = missing if value is ABSENT else value
        if type(value) is str:  # listings have tens of thousands of entries, and few words
            if value not in words:
                words.add(value)
                out.append(value)
        elif value is not ABSENT and value not in out:
            out.append(value)
    return out


def _select(collection: Any, key: Any, *words: Any) -> list[Any]:
    """The members that are objects whose ``key`` is one of the words, letter case aside."""
    wanted: dict[str, bool] = {}
    out = []
    for member in _values(collection):
        word = member.get(key) if isinstance(member, dict) else None
        if isinstance(word, str):
            if word not in wanted:
                wanted[word] = word.upper() in words
            if wanted[word]:
                out.append(member)
    return out


def _kinds(collection: Any, key: Any = None) -> list[str]:
    """The type words among the members, or among their values of ``key``; a member that is no object is odd."""
    members = _values(collection)
    if key is None:
        return sorted({TYPES.get(type(m), "odd") for m in members})
    return sorted({TYPES.get(type(m.get(key, ABSENT)), "odd") if isinstance(m, dict) else "odd" for m in members})


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
    return all(TYPES.get(kind) == word for kind in set(map(type, _values(collection))))


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
    "type": lambda v: TYPES.get(type(v), "something else"),
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
