"""Which measured sites surround a query on the two outer axes, and with which weights."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import layout as lay
from .specs import EDGE_CODES, PENALTY, SITE_EDGE, SITE_INTERPOLATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .pack import Pack

_HOLD_EFFICIENCY = EDGE_CODES["hold_efficiency"]
_LAST_SLOPE = EDGE_CODES["last_slope"]


@dataclass(frozen=True, slots=True)
class Corner:
    """One surrounding site.

    Attributes
    ----------
    site
        Number within the slab, a0-major.
    weight
        Share in the blend; the weights of a query add up to 1.
    a0, a1
        The site's coordinates.
    t0, t1
        Coordinates that the site stands for: beyond the end of an axis that holds its efficiency they are the query's,
        and the site's latency is scaled by the ratio of the two rooflines.
    """

    site: int
    weight: float
    a0: float
    a1: float
    t0: float
    t1: float


def bracket(values: Sequence[float], q: float, *, slope: bool) -> list[tuple[int, float, bool]]:
    """Place a coordinate among sorted ones.

    Returns
    -------
    list
        One or two of (position, weight, beyond the end). With `slope`, a coordinate past the last one extends the line
        through the last two.
    """
    last = len(values) - 1
    place = bisect_left(values, q)
    if place <= last and values[place] == q:
        return [(place, 1.0, False)]
    if place == 0:
        return [(0, 1.0, True)]
    if place > last:
        if slope and last > 0:
            t = (q - values[last - 1]) / (values[last] - values[last - 1])
            return [(last - 1, 1.0 - t, True), (last, t, True)]
        return [(last, 1.0, True)]
    t = (q - values[place - 1]) / (values[place] - values[place - 1])
    return [(place - 1, 1.0 - t, False), (place, t, False)]


def select(pack: Pack, slab: int, q0: float, q1: float) -> tuple[list[Corner], int]:
    """Choose the sites of one query.

    Parameters
    ----------
    pack, slab
        Where to look.
    q0, q1
        Outer coordinates; ignored where the table lacks the axis.

    Returns
    -------
    tuple
        The corners, and the status bits that they imply.
    """
    row = pack.slabs[slab]
    a0, a1 = pack.axis(slab, 0).tolist(), pack.axis(slab, 1).tolist()
    q0 = q0 if pack.spec.outer0 is not None else a0[0]
    q1 = q1 if pack.spec.outer1 is not None else a1[0]
    i0, i1 = bisect_left(a0, q0), bisect_left(a1, q1)
    on0, on1 = i0 < len(a0) and a0[i0] == q0, i1 < len(a1) and a1[i1] == q1
    if on0 and on1 and _exists(pack, row, i0 * len(a1) + i1):
        return [Corner(i0 * len(a1) + i1, 1.0, q0, q1, q0, q1)], 0
    status = SITE_INTERPOLATED
    odd = bool(q0 % int(row[lay.ALIGN0])) and q0 > float(pack.arrays["least_a0"][slab])
    if odd or q1 % int(row[lay.ALIGN1]):
        status |= PENALTY
    columns = _columns(pack, row, a0, a1, q0, q1, i1 if on1 else -1)
    corners: list[Corner] = []
    for column, weight1, beyond1 in columns:
        members = _members(pack, row, column)
        values = [a0[i] for i in members]
        for place, weight0, beyond0 in bracket(values, q0, slope=int(row[lay.A0_HIGH]) == _LAST_SLOPE):
            at0, at1 = values[place], a1[column]
            if beyond0 or beyond1:
                status |= SITE_EDGE
            stands0 = q0 if beyond0 and q0 > at0 and row[lay.A0_HIGH] == _HOLD_EFFICIENCY else at0
            stands1 = q1 if beyond1 and q1 > at1 and row[lay.A1_HIGH] == _HOLD_EFFICIENCY else at1
            site = members[place] * len(a1) + column
            corners.append(Corner(site, weight1 * weight0, at0, at1, stands0, stands1))
    return corners, status


def around(pack: Pack, slab: int, q0: float, column: int) -> set[int]:
    """Return the a0 positions that a lookup at q0 can touch in one a1 column."""
    row = pack.slabs[slab]
    a0 = pack.axis(slab, 0).tolist()
    members = _members(pack, row, column)
    exact = bisect_left(a0, q0)
    found = {exact} if exact < len(a0) and a0[exact] == q0 else set()
    if members:
        values = [a0[i] for i in members]
        found |= {members[p] for p, _, _ in bracket(values, q0, slope=int(row[lay.A0_HIGH]) == _LAST_SLOPE)}
    return found


def _columns(
    pack: Pack, row: Sequence[int], a0: list[float], a1: list[float], q0: float, q1: float, exact: int
) -> list[tuple[int, float, bool]]:
    """Use the query's own column when its sites reach around q0, else the two complete columns beside it."""
    offset, count = int(row[lay.FULL_OFF]), int(row[lay.FULL_N])
    full = pack.arrays["full"][offset : offset + count].tolist()
    if exact >= 0:
        members = _members(pack, row, exact)
        if exact in full or (members and a0[members[0]] <= q0 <= a0[members[-1]]):
            return [(exact, 1.0, False)]
    values = [a1[i] for i in full]
    return [(full[p], w, b) for p, w, b in bracket(values, q1, slope=int(row[lay.A1_HIGH]) == _LAST_SLOPE)]


def _members(pack: Pack, row: Sequence[int], column: int) -> list[int]:
    start = int(row[lay.COL_OFF]) + column
    pointers = pack.arrays["col_ptr"]
    members: list[int] = pack.arrays["col_idx"][int(pointers[start]) : int(pointers[start + 1])].tolist()
    return members


def _exists(pack: Pack, row: Sequence[int], site: int) -> bool:
    found = pack.arrays["sites"][int(row[lay.SITE_OFF]) + site]
    return bool(found[lay.LO0] <= found[lay.HI0] or found[lay.LO1] <= found[lay.HI1])
