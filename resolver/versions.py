"""Versions of loaders: ``vllm@0.31.0``, and which ones a rule file describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from ..grammar.ranges import holds, key, padded

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["holds", "key", "known_version", "padded", "split_loader"]


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
