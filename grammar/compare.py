"""Trees without their places: when two files mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from . import tree as t


def stripped(node: t.Node) -> Any:
    """Return a tree as plain data without the places of its nodes."""
    return _strip(msgspec.to_builtins(node))


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _strip(v) for k, v in value.items() if k != "at"}
    if isinstance(value, (list, tuple)):
        return [_strip(v) for v in value]
    return (type(value).__name__, value)


def same(left: t.Node, right: t.Node) -> bool:
    """Whether two trees differ in nothing but places."""
    return bool(stripped(left) == stripped(right))
