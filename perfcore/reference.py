"""The numpy path: the same prices as the kernels without numba, for one-shot calls and as the kernels' check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import layout as lay
from . import sol
from .gaps import blend
from .pack import NO_KERNEL, FloatArray, IntArray, Pack
from .sites import select
from .specs import EDGE_CODES, FLOORED, IN_GAP, MISSING, PENALTY, SITE_EDGE, X_EDGE, X_INTERPOLATED, X_LOW

Roofline = Callable[[int], list[sol.Row]]


@dataclass(slots=True)
class Answer:
    """Prices of a batch of queries.

    Attributes
    ----------
    ms
        Milliseconds, shape [queries]; NaN where there is no slab.
    status
        Bits of :mod:`bitlane.perfcore.specs`; 0 is a measured row.
    kernel
        Code of the kernel that ran, where the answer is one row.
    """

    ms: FloatArray
    status: IntArray
    kernel: IntArray


def evaluate(
    pack: Pack,
    slab: IntArray,
    a0: FloatArray,
    a1: FloatArray,
    x: FloatArray,
    roofline: Roofline,
    *,
    efficiency: bool = False,
) -> Answer:
    """Price queries from one table.

    Parameters
    ----------
    pack
        The table.
    slab
        Slab per query, -1 for none.
    a0, a1, x
        Coordinates per query.
    roofline
        Rows of :mod:`bitlane.perfcore.sol` for a slab; needed past the ends of the axes only.
    efficiency
        Blend sites by roofline over latency instead of latency (mode EMPIRICAL).
    """
    answer = Answer(
        np.full(len(slab), np.nan), np.full(len(slab), MISSING, np.int64), np.full(len(slab), NO_KERNEL, np.int64)
    )
    for one in np.unique(slab):
        if one < 0:
            continue
        member = np.flatnonzero(slab == one)
        points = np.stack([a0[member], a1[member]], axis=1)
        places, inverse = np.unique(points, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        for number, (q0, q1) in enumerate(places):
            chosen = member[inverse == number]
            part = _site(pack, int(one), float(q0), float(q1), x[chosen], roofline, efficiency)
            answer.ms[chosen], answer.status[chosen], answer.kernel[chosen] = part.ms, part.status, part.kernel
    return answer


def _site(pack: Pack, slab: int, q0: float, q1: float, x: FloatArray, roofline: Roofline, efficiency: bool) -> Answer:
    corners, bits = select(pack, slab, q0, q1)
    efficiency = efficiency and bool(roofline(slab))  # a table without a bound has no efficiency
    total = np.zeros(len(x))
    status = np.full(len(x), bits, np.int64)
    kernel = np.full(len(x), NO_KERNEL, np.int64)
    for corner in corners:
        rows: list[sol.Row] | None = None
        if (corner.t0, corner.t1) != (corner.a0, corner.a1) or efficiency:
            rows = roofline(slab)
        y, more, kernel = _curve(pack, slab, corner.site, corner.a0, corner.a1, x, roofline)
        status |= more
        if efficiency:
            y = roof(rows or [], corner.a0, corner.a1, x) / y
        elif rows is not None:
            base = roof(rows, corner.a0, corner.a1, x)
            y = np.where(base > 0, y * (roof(rows, corner.t0, corner.t1, x) / np.where(base > 0, base, 1.0)), y)
        total = total + corner.weight * y
    if len(corners) > 1:
        kernel[:] = NO_KERNEL
    if efficiency:
        total = roof(roofline(slab), q0, q1, x) / total
    if bits & PENALTY:
        bounds = np.asarray(pack.spec.regions)
        total = (
            total * pack.arrays["penalty"][int(pack.slabs[slab, lay.GROUP])][np.searchsorted(bounds, x, side="left")]
        )
    weak = (status & (X_EDGE | SITE_EDGE | PENALTY)) != 0
    if weak.any():
        floor = roof(roofline(slab), q0, q1, x)
        low = weak & (total < floor)
        total = np.where(low, floor, total)
        status = np.where(low, status | FLOORED, status)
    return Answer(total, status, kernel)


def _curve(
    pack: Pack, slab: int, site: int, a0: float, a1: float, x: FloatArray, roofline: Roofline
) -> tuple[FloatArray, IntArray, IntArray]:
    """Evaluate one site's curve: latency, status bits, kernel codes."""
    row = pack.slabs[slab]
    second = np.zeros(len(x), bool)
    if row[lay.SPLIT_RULE] == 1:
        second = x % row[lay.SPLIT_VALUE] != 0
    elif row[lay.SPLIT_RULE] == 2:
        second = x == row[lay.SPLIT_VALUE]
    bounds = pack.arrays["sites"][int(row[lay.SITE_OFF]) + site]
    if bounds[lay.LO1] > bounds[lay.HI1]:
        second[:] = False
    if bounds[lay.LO0] > bounds[lay.HI0]:
        second[:] = True
    y, status, kernel = np.empty(len(x)), np.zeros(len(x), np.int64), np.full(len(x), NO_KERNEL, np.int64)
    for which in (0, 1):
        chosen = second == bool(which)
        if chosen.any():
            y[chosen], status[chosen], kernel[chosen] = _list(pack, slab, site, which, a0, a1, x[chosen], roofline)
    return y, status, kernel


def _list(
    pack: Pack, slab: int, site: int, which: int, a0: float, a1: float, x: FloatArray, roofline: Roofline
) -> tuple[FloatArray, IntArray, IntArray]:
    row = pack.slabs[slab]
    low, high = (int(v) for v in pack.arrays["sites"][int(row[lay.SITE_OFF]) + site][2 * which : 2 * which + 2])
    start = int(row[(lay.CLS0_OFF, lay.CLS1_OFF)[which]])
    index = pack.arrays["curve"][start + low : start + high + 1].astype(np.int64)
    xs = pack.axis(slab, 2)[index]
    cells = int(row[lay.VAL_OFF]) + site * int(row[lay.X_N]) + index
    ys = pack.arrays["values"][cells]
    place = np.minimum(np.searchsorted(xs, x, side="left"), len(xs) - 1)
    exact = xs[place] == x
    status = np.where(
        exact, np.where(pack.arrays["marks"][cells[place]] == lay.MEASURED, 0, X_INTERPOLATED | IN_GAP), X_INTERPOLATED
    )
    kernel = np.where(status == 0, pack.arrays["kernel"][cells[place]].astype(np.int64), NO_KERNEL)
    left = np.maximum(place - 1, 0)
    width = np.where(place > left, xs[place] - xs[left], 1.0)
    t = (x - xs[left]) / width
    root = np.full(len(x), bool(row[lay.TRANSFORM] == 1))
    y = np.where(exact, ys[place], blend(ys[left], ys[place], t, root))
    below, above = x < xs[0], x > xs[-1]
    y = np.where(below, ys[0], y)
    if above.any():
        y = np.where(above, _beyond(row, xs, ys, x, lambda q: roof(roofline(slab), a0, a1, q)), y)
    status = np.where(above, X_EDGE, np.where(below, X_EDGE | X_LOW, status))
    return y, status, np.where(below | above, NO_KERNEL, kernel)


def _beyond(
    row: IntArray, xs: FloatArray, ys: FloatArray, x: FloatArray, bound: Callable[[Any], FloatArray]
) -> FloatArray:
    """Go on past the last sample by the declared rule; never below the last latency."""
    rule = int(row[lay.X_HIGH])
    end, last = xs[-1], ys[-1]
    if len(xs) < 2 or rule == EDGE_CODES["hold_efficiency"]:
        base = bound(np.array([end]))[0]
        return np.maximum(last, last * (bound(x) / base)) if base > 0 else np.full(len(x), last)
    if rule == EDGE_CODES["last_slope"]:
        slope = max((last - ys[-2]) / (end - xs[-2]), 0.0)
        line: FloatArray = last + slope * (x - end)
        return line
    if rule == EDGE_CODES["power_slope"]:
        power = min(max(np.log(last / ys[-2]) / np.log(end / xs[-2]), 0.0), 3.0)
        curve: FloatArray = last * (x / end) ** power
        return curve
    return np.full(len(x), last)


def roof(rows: list[sol.Row], a0: float, a1: float | FloatArray, x: FloatArray) -> FloatArray:
    """Evaluate a roofline along x (and, where it is an array, along a1), in milliseconds."""
    sums = [np.zeros(len(x)), np.zeros(len(x))]
    for which, coefficient, p0, p1, kind, parameter in rows:
        sums[which] = sums[which] + coefficient * a0**p0 * a1**p1 * form(kind, parameter, x)
    total: FloatArray = np.maximum(sums[0], sums[1])
    return total


def form(kind: int, parameter: float, x: FloatArray) -> FloatArray:
    """Evaluate a row's dependence on x."""
    if kind == sol.ONE:
        return np.ones(len(x))
    if kind == sol.SATURATING:
        return -np.expm1(-parameter * x)
    line = np.maximum(x - parameter, 0.0)
    return line if kind == sol.LINE else line * line
