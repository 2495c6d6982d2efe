"""Version ranges: ``since`` includes its version, ``until`` does not."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..grammar import tree as t


@lru_cache(maxsize=1024)
def key(version: str) -> tuple[int, ...]:
    """Return a sort key; a branch such as ``main-008e0af`` sorts after every release."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in numbers.group().split(".")) if numbers else (1 << 30,)


def padded(version: str) -> tuple[int, ...]:
    """Return the key padded to four numbers, so that ``0.30`` equals ``0.30.0``."""
    return (*key(version), 0, 0, 0, 0)[:4]


def holds(statement: t.Statement, version: str) -> bool:
    """Return whether a statement is in force in ``version``."""
    here = padded(version)
    if statement.since is not None and here < padded(statement.since):
        return False
    return statement.until is None or here < padded(statement.until)


def split_loader(text: str) -> tuple[str, str]:
    """Split ``vllm@0.31.0``; the version is empty when not given."""
    name, _, version = text.partition("@")
    return name, version


def known_version(loader: str, version: str, versions: Iterable[str]) -> str:
    """Check a version against those that a loader file describes; empty means the newest.

    Raises
    ------
    UsageError
        BL222: not described.
    """
    listed = sorted(versions, key=key)
    if not version:
        return listed[-1]
    for candidate in listed:
        if candidate == version or (padded(candidate) == padded(version) and key(version) != (1 << 30,)):
            return candidate
    older = [v for v in listed if key(v) <= key(version)]
    hint = f"the newest one before it is `{older[-1]}`; " if older else ""
    raise UsageError(
        "BL222",
        f"{loader} {version} is not described by any rule file",
        place="--loader",
        help=hint + "known: " + ", ".join(listed),
    )
