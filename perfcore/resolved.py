"""What a part became on the ladder: the rows that price it, how they are scaled, or what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from . import sol
    from .lower import Coordinate, Op, Part
    from .pack import Pack

Mode = Literal["SILICON", "HYBRID", "EMPIRICAL", "SOL"]
MODES: Final = ("SILICON", "HYBRID", "EMPIRICAL", "SOL")
SOURCES: Final = ("measured", "interpolated", "extrapolated", "transferred", "roofline")
MEASURED, INTERPOLATED, EXTRAPOLATED, TRANSFERRED, ROOFLINE = range(5)

Origin = tuple[str, str, str]  # system, backend, version


@dataclass(frozen=True, slots=True)
class Term:
    """One table lookup: slab, coordinates and sign."""

    pack: Pack
    slab: int
    a0: float
    a1: Coordinate
    x: Coordinate
    sign: int = 1


@dataclass(frozen=True, slots=True)
class Scale:
    """How a donor's latency y becomes the target's: ``f + (y - f) * target / donor``, f being the launch floor.

    Attributes
    ----------
    target, donor
        Rooflines, each in its own part's coordinates.
    a0, a1, x
        The donor's coordinates.
    floor
        Launch floor in milliseconds, used where `floor_term` is None.
    floor_term
        Lookup that gives the launch floor at the same k and m.
    """

    target: list[sol.Row]
    donor: list[sol.Row]
    a0: float
    a1: Coordinate
    x: Coordinate
    floor: float = 0.0
    floor_term: Term | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A part with the rows that price it.

    Attributes
    ----------
    part
        The part.
    terms
        Lookups to add; none for a formula or roofline.
    least
        The best source that the price may be called, as a position in ``SOURCES``.
    origin
        Where the rows come from: system, backend, version, and donor notes.
    rung
        Which rung of the ladder answered: own, minus, same, version, library, backend, lane, shape, system, roofline.
    scale
        Scaling of a donor.
    """

    part: Part
    terms: tuple[Term, ...]
    least: int
    origin: Mapping[str, Any]
    rung: str
    scale: Scale | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A price that no allowed row answers.

    Attributes
    ----------
    op
        The operation.
    table, label
        Its table, and the table's name in messages.
    quant
        The lane's row label, or empty.
    key
        Key and axis columns that a measurement would need.
    """

    op: Op
    table: str
    label: str
    quant: str
    key: Mapping[str, Any] = field(default_factory=dict)
