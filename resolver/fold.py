"""Buckets of one operation folded into one line; where they differ, the line says ``mixed``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .bucket import Bucket

T = TypeVar("T")
V = TypeVar("V")
MIXED: Final = "mixed"


def shared(values: Iterable[V]) -> V | str:
    """Return the value that all have, or ``mixed``."""
    found = list(values)
    return found[0] if all(v == found[0] for v in found) else MIXED


def shared_keys(maps: Sequence[Mapping[str, V]]) -> dict[str, V | str]:
    """Return every key with the value that all have, or ``mixed``, also where some lack it."""
    keys = dict.fromkeys(k for m in maps for k in m)
    return {k: shared(m[k] for m in maps) if all(k in m for m in maps) else MIXED for k in keys}


def by_name(items: Iterable[T], name: Callable[[T], str]) -> list[list[T]]:
    """Collect items of one name, in the order of first sight."""
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(name(item), []).append(item)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Folded:
    """Buckets of one operation.

    Attributes
    ----------
    op, layers
        The operation, and the layers of all its parts.
    kind, lane, algorithm, shape
        What all parts have in common, ``mixed`` where they differ.
    parts
        The buckets.
    """

    op: str
    kind: str
    lane: str
    algorithm: str
    layers: int
    shape: Mapping[str, int | str]
    parts: tuple[Bucket, ...]


def fold(buckets: Iterable[Bucket]) -> list[Folded]:
    """Fold buckets of one operation, in the order of first sight."""
    return [
        Folded(
            parts[0].op,
            shared(b.kind for b in parts),
            shared(b.lane for b in parts),
            shared(b.algorithm for b in parts),
            sum(b.layers for b in parts),
            shared_keys([b.shape for b in parts]),
            tuple(parts),
        )
        for parts in by_name(buckets, lambda b: b.op)
    ]
