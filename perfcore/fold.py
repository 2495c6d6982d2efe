"""Prices of one operation folded into one line; where its parts differ, the line says ``mixed``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..resolver.fold import by_name, shared, shared_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .pricing import OpPrice


@dataclass(frozen=True, slots=True)
class FoldedPrice:
    """Prices of one operation.

    Attributes
    ----------
    name, op, kind, lane, shape, source, origin
        What all parts have in common, ``mixed`` where they differ.
    layers, ms, counted_ms, band
        Sums over the parts; the band takes their errors as equal.
    ms_per_layer
        Mean over the layers.
    parts
        The prices.
    """

    name: str
    op: str
    kind: str
    lane: str
    layers: int
    shape: Mapping[str, int | float | str]
    ms_per_layer: float
    ms: float
    source: str
    origin: Mapping[str, Any]
    band: tuple[float, float]
    counted_ms: float
    parts: tuple[OpPrice, ...]

    def to_dict(self, parts: bool = False) -> dict[str, Any]:
        """Return the JSON form; ``parts`` adds what was folded."""
        out: dict[str, Any] = {
            "name": self.name, "op": self.op, "kind": self.kind, "lane": self.lane, "layers": self.layers,
            "shape": dict(self.shape), "ms_per_layer": self.ms_per_layer, "ms": self.ms, "source": self.source,
            "origin": dict(self.origin), "band": list(self.band), "counted_ms": self.counted_ms,
        }  # fmt: skip
        if parts:
            out["parts"] = [p.to_dict() for p in self.parts]
        return out


def fold(ops: Iterable[OpPrice]) -> list[FoldedPrice]:
    """Fold the prices of one operation, in the order of first sight."""
    return [_folded(parts) for parts in by_name(ops, lambda o: o.op)]


def _folded(parts: list[OpPrice]) -> FoldedPrice:
    layers, ms = sum(p.layers for p in parts), sum(p.ms for p in parts)
    return FoldedPrice(
        shared(p.name for p in parts),
        parts[0].op,
        shared(p.kind for p in parts),
        shared(p.lane for p in parts),
        layers,
        shared_keys([p.shape for p in parts]),
        ms / layers if layers else 0.0,
        ms,
        shared(p.source for p in parts),
        shared_keys([p.origin for p in parts]),
        (sum(p.band[0] for p in parts), sum(p.band[1] for p in parts)),
        sum(p.counted_ms for p in parts),
        tuple(parts),
    )
