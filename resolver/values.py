"""Values of metadata as expressions see them: what is absent, what is equal, what a dotted name leads to."""

from __future__ import annotations

from typing import Any, Final


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

TYPES: Final = {
    dict: "dict",
    list: "list",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Absent: "absent",
}


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


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; a boolean is no number, and nothing equals what is absent."""
    return (
        type(left) is not Absent
        and type(right) is not Absent
        and isinstance(left, bool) == isinstance(right, bool)
        and left == right
    )
