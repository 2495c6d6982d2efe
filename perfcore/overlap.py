"""Operations that run side by side: a group costs what its longer side costs, layer by layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..resolver.bucket import Bucket
    from .pack import FloatArray


@dataclass(frozen=True, slots=True)
class Joint:
    """Layers of one overlap group that run the same set of operations.

    Attributes
    ----------
    group
        Name of the group.
    count
        How many layers (fractional when the buckets do not name their layers).
    sides
        For every side: its name and (operation number, how often) pairs.
    """

    group: str
    count: float
    sides: tuple[tuple[str, tuple[tuple[int, float], ...]], ...]


def joints(buckets: Sequence[Bucket]) -> tuple[Joint, ...]:
    """Group overlapping buckets by the layers that they share.

    Buckets that name modules with a layer number are combined per layer; a group with a bucket that does not is
    treated as if its operations were spread evenly over the layers.
    """
    found: list[Joint] = []
    groups = dict.fromkeys(bucket.overlap.partition("/")[0] for bucket in buckets if bucket.overlap)
    for group in groups:
        members = [i for i, bucket in enumerate(buckets) if bucket.overlap.partition("/")[0] == group]
        sides = list(dict.fromkeys(buckets[i].overlap.partition("/")[2] for i in members))
        layers = [_layers(buckets[i]) for i in members]
        if all(layers):
            every = sorted({layer for part in layers for layer in part})
            signatures: Counter[tuple[float, ...]] = Counter(
                tuple(float(layer in part) for part in layers) for layer in every
            )
        else:
            most = max(buckets[i].layers for i in members)
            signatures = Counter({tuple(buckets[i].layers / most for i in members): most})
        for signature, count in signatures.items():
            parts = tuple(
                (side, tuple((i, float(times)) for i, times in zip(members, signature, strict=True)
                             if times and buckets[i].overlap.partition("/")[2] == side))
                for side in sides
            )  # fmt: skip
            found.append(Joint(group, float(count), parts))
    return tuple(found)


def _layers(bucket: Bucket) -> set[int]:
    """Return the layers that the bucket's modules name; empty unless every one does and they add up."""
    found: set[int] = set()
    for module in bucket.modules:
        numbers = [part for part in module.split(".") if part.isdigit()]
        if not numbers:
            return set()
        found.add(int(numbers[0]))
    return found if len(found) == bucket.layers else set()


def visible(ms: FloatArray, layers: FloatArray, groups: Sequence[Joint]) -> FloatArray:
    """Return how much of each operation's time counts.

    Parameters
    ----------
    ms
        Milliseconds of one layer, shape [ops, passes].
    layers
        Layers of every operation, shape [ops].
    groups
        The joints of the pass.

    Returns
    -------
    array
        Milliseconds over all layers that add to the pass, shape [ops, passes]: all of it for an operation that runs
        alone, and for the shorter side of a joint none.
    """
    out: FloatArray = ms * layers[:, None]
    overlapped = {i for joint in groups for _, side in joint.sides for i, _ in side}
    for i in overlapped:
        out[i] = 0.0
    for joint in groups:
        sums = np.stack([_side(ms, side) for _, side in joint.sides])
        longest = np.argmax(sums, axis=0)
        for number, (_, side) in enumerate(joint.sides):
            for i, times in side:
                out[i] += np.where(longest == number, joint.count * times * ms[i], 0.0)
    return out


def _side(ms: FloatArray, side: Sequence[tuple[int, float]]) -> FloatArray:
    total = np.zeros(ms.shape[1])
    for number, times in side:
        total = total + times * ms[number]
    return total
