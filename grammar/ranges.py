"""Version ranges: ``since`` includes its version, ``until`` does not."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from . import tree as t

_FIRST: Final[tuple[int, ...]] = (0, 0, 0, 0)
_LAST: Final[tuple[int, ...]] = (1 << 31, 0, 0, 0)


@lru_cache(maxsize=1024)
def key(version: str) -> tuple[int, ...]:
    """Return a sort key; a branch such as ``main-008e0af`` sorts after every release."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in numbers.group()[:40].strip(".").split(".")) if numbers else (1 << 30,)


def padded(version: str) -> tuple[int, ...]:
    """Return the key padded to four numbers, so that ``0.30`` equals ``0.30.0``."""
    return (*key(version), 0, 0, 0, 0)[:4]


def holds(statement: t.Statement, version: str) -> bool:
    """Return whether a statement is in force in ``version``."""
    here = padded(version)
    if statement.since is not None and here < padded(statement.since):
        return False
    return statement.until is None or here < padded(statement.until)


def limits(*nested: t.Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first version and the first version after, of a statement inside others."""
    first, last = _FIRST, _LAST
    for node in nested:
        since, until = getattr(node, "since", None), getattr(node, "until", None)
        first = max(first, padded(since)) if since is not None else first
        last = min(last, padded(until)) if until is not None else last
    return first, last


def empty(*nested: t.Node) -> bool:
    """Whether no version can lie in the range of a statement inside others."""
    first, last = limits(*nested)
    return first >= last


def overlap(left: tuple[t.Node, ...], right: tuple[t.Node, ...]) -> bool:
    """Whether some version may lie in both ranges."""
    return not empty(*left, *right)


def bounded(nodes: Iterable[t.Node]) -> bool:
    """Whether any of the statements has a range of its own."""
    return any(getattr(n, "since", None) is not None or getattr(n, "until", None) is not None for n in nodes)
