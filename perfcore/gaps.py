"""Cells of the grid that were not measured: what the lines through their neighbours say, and how they are filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import layout as lay

if TYPE_CHECKING:
    from collections.abc import Mapping

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
ALONG_X, ALONG_A0, ALONG_A1 = range(3)


def curve_cells(arrays: Mapping[str, npt.NDArray[Any]], which: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Walk every site's curve.

    Parameters
    ----------
    arrays
        A pack's arrays.
    which
        0 or 1: the first or the second curve.

    Returns
    -------
    tuple
        Cell number, slab number, first and last list position of the curve, all along the concatenated curves.
    """
    slabs = arrays["slabs"]
    offset, count = slabs[:, (lay.CLS0_OFF, lay.CLS1_OFF)[which]], slabs[:, (lay.CLS0_N, lay.CLS1_N)[which]]
    sites = slabs[:, lay.A0_N] * slabs[:, lay.A1_N]
    slab_of_site = np.repeat(np.arange(len(slabs)), sites)
    length = count[slab_of_site]
    slab = np.repeat(slab_of_site, length)
    end = np.cumsum(length)
    start = np.repeat(end - length, length)
    within = np.arange(len(slab)) - start
    site = np.repeat(np.arange(len(slab_of_site)) - slabs[slab_of_site, lay.SITE_OFF], length)
    cell = slabs[slab, lay.VAL_OFF] + site * slabs[slab, lay.X_N] + arrays["curve"][offset[slab] + within]
    return cell, slab, start, np.repeat(end - 1, length)


def neighbours(known: npt.NDArray[np.bool_], start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Return the nearest known list position before and after each one (itself excluded), -1 where there is none."""
    index = np.arange(len(known))
    before = np.maximum.accumulate(np.where(known, index, -1))
    before = np.concatenate(([-1], before[:-1])) if len(before) else before
    after = np.minimum.accumulate(np.where(known, index, len(known))[::-1])[::-1]
    after = np.concatenate((after[1:], [len(known)])) if len(after) else after
    return np.where(before >= start, before, -1), np.where(after <= end, after, -1)


def blend(y0: FloatArray, y1: FloatArray, t: FloatArray, root: npt.NDArray[np.bool_]) -> FloatArray:
    """Interpolate latency, or its square root where `root`."""
    line = y0 + t * (y1 - y0)
    r0, r1 = np.sqrt(y0), np.sqrt(y1)
    curve = r0 + t * (r1 - r0)
    return np.where(root, curve * curve, line)


def estimates(arrays: Mapping[str, npt.NDArray[Any]]) -> FloatArray:
    """Estimate every cell from its measured neighbours on each axis, itself left out.

    Returns
    -------
    array
        Milliseconds, shape [3, cells]: along x (same curve), along a0 (aligned sites) and along a1; NaN where a side
        has no measured neighbour.
    """
    slabs, values = arrays["slabs"], arrays["values"]
    out = np.full((3, len(values)), np.nan)
    measured = arrays["marks"] == lay.MEASURED
    for which in (0, 1):
        cell, slab, start, end = curve_cells(arrays, which)
        if not len(cell):
            continue
        before, after = neighbours(measured[cell], start, end)
        # The tail that the second curve borrows from the first belongs to the first.
        at = np.flatnonzero((before >= 0) & (after >= 0) & np.isnan(out[ALONG_X, cell]))
        left, right = cell[before[at]], cell[after[at]]
        x = _x(arrays, slab[at])
        t = (x(cell[at]) - x(left)) / (x(right) - x(left))
        out[ALONG_X, cell[at]] = blend(values[left], values[right], t, slabs[slab[at], lay.TRANSFORM] == 1)
    for row in slabs:
        for axis in (0, 1):
            if row[2 * axis + 1] >= 3:
                _along(arrays, row, axis, out[1 + axis])
    return out


def lines(
    arrays: Mapping[str, npt.NDArray[Any]], row: IntArray, axis: int
) -> tuple[IntArray, FloatArray, IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Lay a slab out along an outer axis.

    Returns
    -------
    tuple
        Cell number, coordinate, start and end of the line, and whether the cell is measured (on axis 0: at an aligned
        site), line after line.
    """
    shape = (int(row[lay.A0_N]), int(row[lay.A1_N]), int(row[lay.X_N]))
    offset = int(row[lay.VAL_OFF])
    cell = np.moveaxis(np.arange(offset, offset + int(np.prod(shape))).reshape(shape), axis, -1).reshape(-1)
    size = shape[axis]
    index = np.arange(len(cell))
    start = index - index % size
    axes = arrays["axes"][row[2 * axis] : row[2 * axis] + size]
    known = arrays["marks"][cell] == lay.MEASURED
    if axis == 0:
        known = known & (axes[index % size] % int(row[lay.ALIGN0]) == 0)
    return cell, axes[index % size], start, start + size - 1, known


def _along(arrays: Mapping[str, npt.NDArray[Any]], row: IntArray, axis: int, out: FloatArray) -> None:
    cell, coordinate, start, end, known = lines(arrays, row, axis)
    before, after = neighbours(known, start, end)
    at = np.flatnonzero((before >= 0) & (after >= 0))
    left, right = before[at], after[at]
    t = (coordinate[at] - coordinate[left]) / (coordinate[right] - coordinate[left])
    y0, y1 = arrays["values"][cell[left]], arrays["values"][cell[right]]
    out[cell[at]] = y0 + t * (y1 - y0)


def combined(guesses: FloatArray, *, sites: bool) -> FloatArray:
    """Combine the estimates of cells.

    A kernel switch bends one line sharply and leaves the other two straight, so the median of three halves the tail of
    the error. Of two, the mean; but where the table has one outer axis only, the line along x, which is the better one
    by far (gdn, fp8 quantization).

    Parameters
    ----------
    guesses
        Estimates as from :func:`estimates`, shape [3, cells]; without one along x there is none.
    sites
        Whether the table has two outer axes.
    """
    along_x = guesses[ALONG_X]
    count = (~np.isnan(guesses)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(guesses, axis=0) / np.maximum(count, 1)
    few = np.where((count == 2) & sites & ~np.isnan(along_x), mean, along_x)
    return np.where(count == 3, np.median(guesses, axis=0), few)


def fill(arrays: dict[str, npt.NDArray[Any]], guesses: FloatArray, *, sites: bool) -> None:
    """Fill the gaps inside each curve, mark them, and note where each curve begins and ends."""
    slabs, values, marks = arrays["slabs"], arrays["values"], arrays["marks"]
    gap = (marks == lay.ABSENT) & ~np.isnan(guesses[ALONG_X])
    values[gap] = combined(guesses[:, gap], sites=sites)
    marks[gap] = lay.FILLED
    total = int((slabs[:, lay.A0_N] * slabs[:, lay.A1_N]).sum())
    ranges = np.zeros((total, lay.SITE_COLUMNS), np.int32)
    ranges[:, (lay.LO0, lay.LO1)] = 1
    for which, (low, high) in enumerate(((lay.LO0, lay.HI0), (lay.LO1, lay.HI1))):
        cell, slab, start, _ = curve_cells(arrays, which)
        known = marks[cell] != lay.ABSENT
        site = (cell - slabs[slab, lay.VAL_OFF]) // slabs[slab, lay.X_N] + slabs[slab, lay.SITE_OFF]
        within = np.arange(len(cell)) - start
        lo, hi = np.full(total, np.iinfo(np.int32).max, np.int64), np.full(total, -1, np.int64)
        np.minimum.at(lo, site[known], within[known])
        np.maximum.at(hi, site[known], within[known])
        ranges[:, low], ranges[:, high] = np.where(hi >= 0, lo, 1), np.where(hi >= 0, hi, 0)
    arrays["sites"] = ranges


def _x(arrays: Mapping[str, npt.NDArray[Any]], slab: IntArray) -> Any:
    rows = arrays["slabs"][slab]
    return lambda cell: arrays["axes"][rows[:, lay.X_OFF] + (cell - rows[:, lay.VAL_OFF]) % rows[:, lay.X_N]]
