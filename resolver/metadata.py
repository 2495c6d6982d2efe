"""Strict reading of JSON that strangers wrote: bounded, shallow, duplicates noticed, names printable."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ..errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_LIMIT: Final = 16 << 20
INDEX_LIMIT: Final = 64 << 20
MAX_NAME: Final = 4096
MAX_TENSOR_NAME: Final = 512
MAX_DEPTH: Final = 64
# Sizes are multiplied with each other and stay floats' business.
LARGEST: Final = 1 << 62


@dataclass(slots=True)
class Document:
    """One parsed metadata file.

    Attributes
    ----------
    name
        File name, as it appears in evidence.
    value
        The top-level object.
    duplicates
        Keys that an object held twice (the last one counts, as in every loader).
    prepared
        What was derived from this document, kept for the next question about it.
    """

    name: str
    value: dict[str, Any]
    duplicates: tuple[str, ...] = ()
    prepared: dict[object, object] = field(default_factory=dict)


def read_json(path: Path, limit: int = CONFIG_LIMIT) -> Document:
    """Read a JSON object from a file.

    Raises
    ------
    CheckpointError
        BL201 unreadable, BL202 too large, BL203 not JSON or not an object, BL204 nested too deeply.
    """
    try:
        size = path.stat().st_size
        if size > limit:
            raise CheckpointError(
                "BL202",
                f"`{path.name}` is {size >> 20} MiB, more than {limit >> 20} MiB",
                place=str(path),
                help="metadata of this size is not a checkpoint's",
            )
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            "BL201",
            f"cannot read `{path.name}`: {error.strerror or error}",
            place=str(path),
            help="check the path and its permissions",
        ) from error
    return parse_json(data, path.name, str(path))


def parse_json(data: bytes, name: str, place: str = "") -> Document:
    """Parse a JSON object; ``place`` appears in errors."""
    where = place or name
    duplicates: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) < len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    duplicates.append(key)
                seen.add(key)
        return out

    try:
        # Decoded here, since json guesses UTF-16 and skips byte order marks; no loader does.
        value = json.loads(data.decode(), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise CheckpointError("BL203", f"`{name}` is not UTF-8", place=where, help="save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise CheckpointError(
            "BL203",
            f"`{name}` is not JSON: {error.msg.lower()}",
            place=f"{where}:{error.lineno}:{error.colno}",
            help="repair the file at this place",
        ) from error
    except RecursionError:
        raise _too_deep(name, where) from None
    except ValueError as error:
        raise CheckpointError(
            "BL203", f"`{name}` holds a number that no loader reads", place=where, help="repair the file"
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(
            "BL203", f"`{name}` holds no JSON object at the top", place=where, help='the file must start with "{"'
        )
    check_depth(value, name, where)
    return Document(name, value, tuple(dict.fromkeys(duplicates)))


def check_depth(value: dict[str, Any], name: str, where: str) -> None:
    """Refuse containers that nest deeper than :data:`MAX_DEPTH`; level by level, without recursion."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = [v for c in level for v in (c.values() if type(c) is dict else c)]
        level = [v for v in inner if type(v) is dict or type(v) is list]
        if not level:
            return
    raise _too_deep(name, where)


def _too_deep(name: str, where: str) -> CheckpointError:
    return CheckpointError(
        "BL204",
        f"`{name}` is nested deeper than {MAX_DEPTH}",
        place=where,
        help="no checkpoint metadata needs that; the file is damaged or hostile",
    )


def printable(name: str) -> str:
    """Escape control characters, for terminals."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def sane_name(name: object) -> TypeGuard[str]:
    """Return whether something can be a module name or a pattern: a printable text.

    Raises
    ------
    CheckpointError
        BL252: a text of more than 4,096 characters, which an engine might match and we do not try.
    """
    if not isinstance(name, str):
        return False
    _check_length(name)
    return name.isprintable()


def tensor_name(name: object) -> TypeGuard[str]:
    """Return whether something can be a tensor's or file's name: a printable text of at most 512 characters."""
    return isinstance(name, str) and len(name) <= MAX_TENSOR_NAME and name.isprintable()


def sane_names(names: list[str]) -> bool:
    """Return whether every name passes :func:`sane_name`; joined, since lists have tens of thousands of entries."""
    _check_length(max(names, key=len, default=""))
    return "".join(names).isprintable()


def _check_length(name: str) -> None:
    if len(name) > MAX_NAME:
        raise CheckpointError(
            "BL252",
            f"a name or pattern of {len(name):,} characters; at most {MAX_NAME:,} are matched",
            place=printable(name[:80]),
            help="split it",
        )


_WORDS: Final = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def json_kind(value: object) -> str:
    """Say what kind of JSON value something is, with its article."""
    return _WORDS.get(type(value), "a number" if isinstance(value, (int, float)) else "no JSON value")


def finite(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number, and none of hundreds of digits."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, float) and math.isfinite(value)


def pointer(*parts: str | int) -> str:
    """Build a JSON pointer (RFC 6901)."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in parts)
