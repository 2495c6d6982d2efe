"""How wrong a price may be: leave-one-out residuals of every table, kept per group, method and region.

For every measured row that has the neighbours, the row is left out and predicted by the rule that would have served
it; ``measured / predicted`` is its residual. The 5 % and 95 % quantiles of the residuals, per group (system, backend,
version, lane), method and region of x, are the band factors of a price made that way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import gaps
from . import layout as lay
from .specs import EDGE_CODES, IN_GAP, PENALTY, SITE_EDGE, SITE_INTERPOLATED, X_EDGE, X_INTERPOLATED, X_LOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from .pack import FloatArray, IntArray, Pack

METHODS: Final = ("measured", "gap", "x", "site", "x and site", "x edge", "x low", "site edge", "penalty", "version")
NOISE, GAP, ALONG_X, SITE, BOTH, EDGE_X, LOW_X, EDGE_SITE, UNALIGNED, VERSION = range(len(METHODS))
QUANTILES: Final = (0.05, 0.95)
ENOUGH: Final = 20
# Where a table cannot tell (too few rows anywhere): half to twice.
UNKNOWN: Final = (0.5, 2.0)
# Another version, and a repeat, where a table holds only one version: the spreads that GEMM shows.
OTHER_VERSION: Final = (0.85, 1.18)
REPEAT: Final = (0.9, 1.11)


class _Residuals:
    """Residuals on their way into the band table."""

    def __init__(self, pack: Pack) -> None:
        self.regions = len(pack.spec.regions) + 1
        self.bounds = np.asarray(pack.spec.regions)
        self.groups = len(pack.arrays["groups"])
        self.parts: dict[int, list[tuple[IntArray, FloatArray]]] = {}

    def add(self, method: int, group: IntArray, x: FloatArray, ratio: FloatArray) -> None:
        """Keep residuals of one method."""
        good = np.isfinite(ratio) & (ratio > 0)
        bin_ = group * self.regions + np.searchsorted(self.bounds, x, side="left")
        self.parts.setdefault(method, []).append((bin_[good].astype(np.int64), np.log(ratio[good])))

    def table(self) -> FloatArray:
        """Return log quantiles, shape [groups, methods, regions, 2]; thin cells borrow from wider ones."""
        out = np.empty((self.groups, len(METHODS), self.regions, 2))
        out[:] = np.log(UNKNOWN)
        out[:, VERSION] = np.log(OTHER_VERSION)
        out[:, NOISE] = np.log(REPEAT)
        for method, parts in self.parts.items():
            bins = np.concatenate([p[0] for p in parts])
            values = np.concatenate([p[1] for p in parts])
            if len(values) < ENOUGH:
                continue
            out[:, method] = np.quantile(values, QUANTILES)
            # Narrower pools overwrite wider ones wherever they hold enough residuals.
            for pool, spread in (
                (bins % self.regions, lambda k: (slice(None), k)),
                (bins // self.regions, lambda k: (k, slice(None))),
                (bins, lambda k: (k // self.regions, k % self.regions)),
            ):
                for key, low, high in _quantiles(pool, values):
                    group, region = spread(key)
                    out[group, method, region] = (low, high)
        out[:, BOTH] = _combine(out[:, ALONG_X], out[:, SITE])
        return out


def _quantiles(bins: IntArray, values: FloatArray) -> list[tuple[int, float, float]]:
    order = np.argsort(bins.astype(np.int16) if bins.max() < 2**15 else bins, kind="stable")  # radix: bins are few
    keys, start, count = np.unique(bins[order], return_index=True, return_counts=True)
    ranked = values[order]
    found = []
    for key, first, size in zip(keys.tolist(), start.tolist(), count.tolist(), strict=True):
        if size >= ENOUGH:
            # The order statistics that hold the wanted share of new residuals, not of these (split conformal).
            low = max(math.floor(QUANTILES[0] * (size + 1)) - 1, 0)
            high = min(math.ceil(QUANTILES[1] * (size + 1)) - 1, size - 1)
            part = np.partition(ranked[first : first + size], (low, high))
            found.append((key, float(part[low]), float(part[high])))
    return found


def _combine(one: FloatArray, other: FloatArray) -> FloatArray:
    """Add two independent spreads around their common middle."""
    middle = one.mean(axis=-1) + other.mean(axis=-1)
    half = np.hypot(one[..., 1] - one[..., 0], other[..., 1] - other[..., 0]) / 2.0
    return np.stack([middle - half, middle + half], axis=-1)


def annotate(pack: Pack) -> Pack:
    """Add the error table, the alignment penalties and the launch floors to a freshly built pack."""
    found = _Residuals(pack)
    if pack.guesses is None:
        raise ValueError("only a freshly built pack can be annotated")
    _inside(pack, pack.guesses, found)
    for which in (0, 1):
        _ends_of_x(pack, which, found)
    penalty = np.ones((len(pack.arrays["groups"]), found.regions))
    if pack.spec.outer0 is not None or pack.spec.outer1 is not None:
        unaligned = _Residuals(pack)
        for slab in range(len(pack.slabs)):
            for axis in (0, 1):
                _end_of_site(pack, slab, axis, found)
            _unaligned(pack, slab, unaligned)
        penalty = _penalties(pack, unaligned, found)
    _versions(pack, found)
    pack.arrays["penalty"] = penalty
    pack.arrays["bands"] = found.table()
    pack.arrays["group_min"] = _floors(pack)
    return pack


def factors(pack: Pack, slab: IntArray, status: IntArray, x: FloatArray, *, version: bool) -> FloatArray:
    """Return the band factors of prices, shape [prices, 2]: multiply a price by them.

    Parameters
    ----------
    pack, slab, status, x
        Where and how each price was made.
    version
        The rows come from another version of the backend, so the version-to-version spread adds.
    """
    method = np.select(
        [
            (status & PENALTY) != 0,
            (status & SITE_EDGE) != 0,
            (status & X_LOW) != 0,
            (status & X_EDGE) != 0,
            (status & (IN_GAP | SITE_INTERPOLATED)) == IN_GAP,
            (status & (X_INTERPOLATED | SITE_INTERPOLATED)) == (X_INTERPOLATED | SITE_INTERPOLATED),
            (status & SITE_INTERPOLATED) != 0,
            (status & X_INTERPOLATED) != 0,
        ],
        [UNALIGNED, EDGE_SITE, LOW_X, EDGE_X, GAP, BOTH, SITE, ALONG_X],
        NOISE,
    )
    group = pack.slabs[np.maximum(slab, 0), lay.GROUP]
    region = np.searchsorted(np.asarray(pack.spec.regions), x, side="left")
    table = pack.arrays["bands"]
    log = table[group, method, region]
    if version:
        log = _combine(log, table[group, VERSION, region])
    spread: FloatArray = np.exp(np.stack([np.minimum(log[..., 0], 0.0), np.maximum(log[..., 1], 0.0)], axis=-1))
    return spread


def _inside(pack: Pack, guesses: FloatArray, found: _Residuals) -> None:
    """Leave every measured cell out and predict it along x, along a site axis, and as a gap."""
    arrays = pack.arrays
    cell = np.flatnonzero(arrays["marks"] == lay.MEASURED)
    slab = np.searchsorted(pack.slabs[:, lay.VAL_OFF], cell, side="right") - 1
    row = pack.slabs[slab]
    x = arrays["axes"][row[:, lay.X_OFF] + (cell - row[:, lay.VAL_OFF]) % row[:, lay.X_N]]
    y, group = arrays["values"][cell], row[:, lay.GROUP]
    found.add(ALONG_X, group, x, y / guesses[gaps.ALONG_X, cell])
    found.add(GAP, group, x, y / gaps.combined(guesses[:, cell], sites=pack.spec.sites))
    for axis in (gaps.ALONG_A0, gaps.ALONG_A1):
        found.add(SITE, group, x, y / guesses[axis, cell])


def _ends_of_x(pack: Pack, which: int, found: _Residuals) -> None:
    """Predict the last sample of every curve from the two before it, and the first from the second."""
    arrays = pack.arrays
    cell, slab, start, end = gaps.curve_cells(arrays, which)
    if not len(cell):
        return
    slabs = arrays["slabs"]
    x = arrays["axes"][slabs[slab, lay.X_OFF] + (cell - slabs[slab, lay.VAL_OFF]) % slabs[slab, lay.X_N]]
    known = arrays["marks"][cell] == lay.MEASURED
    y = arrays["values"][cell]
    before, after = gaps.neighbours(known, start, end)
    first = np.flatnonzero(known & (before < 0) & (after >= 0))
    found.add(LOW_X, slabs[slab[first], lay.GROUP], x[first], y[first] / y[after[first]])
    last = np.flatnonzero(known & (before >= 0) & (after < 0))
    last = last[before[before[last]] >= 0]
    one, two = before[last], before[before[last]]
    if int(slabs[0, lay.X_HIGH]) == EDGE_CODES["power_slope"]:
        power = np.clip(np.log(y[one] / y[two]) / np.log(x[one] / x[two]), 0.0, 3.0)
        guess = y[one] * (x[last] / x[one]) ** power
    else:
        guess = y[one] + np.maximum((y[one] - y[two]) / (x[one] - x[two]), 0.0) * (x[last] - x[one])
    found.add(EDGE_X, slabs[slab[last], lay.GROUP], x[last], y[last] / guess)


def _end_of_site(pack: Pack, slab: int, axis: int, found: _Residuals) -> None:
    """Predict the last site on an outer axis from the one or two before it."""
    row = pack.slabs[slab]
    if int(row[2 * axis + 1]) < 3:
        return
    cell, at, start, end, known = gaps.lines(pack.arrays, row, axis)
    y = pack.arrays["values"][cell]
    before, after = gaps.neighbours(known, start, end)
    last = np.flatnonzero(known & (before >= 0) & (after < 0))
    if int(row[(lay.A0_HIGH, lay.A1_HIGH)[axis]]) == EDGE_CODES["last_slope"]:
        last = last[before[before[last]] >= 0]
        one, two = before[last], before[before[last]]
        guess = y[one] + (y[one] - y[two]) / (at[one] - at[two]) * (at[last] - at[one])
    else:
        guess = y[before[last]] * at[last] / at[before[last]]
    x = pack.axis(slab, 2)[(cell[last] - int(row[lay.VAL_OFF])) % int(row[lay.X_N])]
    found.add(EDGE_SITE, np.full(len(last), int(row[lay.GROUP])), x, y[last] / guess)


def _unaligned(pack: Pack, slab: int, found: _Residuals) -> None:
    """Compare unaligned sites with the line between their aligned neighbours."""
    row = pack.slabs[slab]
    if int(row[lay.ALIGN0]) == 1:
        return
    cell, n, start, end, known = gaps.lines(pack.arrays, row, 0)
    y = pack.arrays["values"][cell]
    before, after = gaps.neighbours(known, start, end)
    odd = (n % int(row[lay.ALIGN0]) != 0) & (pack.arrays["marks"][cell] == lay.MEASURED)
    at = np.flatnonzero(odd & (before >= 0) & (after >= 0))
    left, right = before[at], after[at]
    guess = y[left] + (n[at] - n[left]) / (n[right] - n[left]) * (y[right] - y[left])
    x = pack.axis(slab, 2)[(cell[at] - int(row[lay.VAL_OFF])) % int(row[lay.X_N])]
    found.add(UNALIGNED, np.full(len(at), int(row[lay.GROUP])), x, y[at] / guess)


def _penalties(pack: Pack, seen: _Residuals, found: _Residuals) -> FloatArray:
    """Take the median penalty per lane and region: of the group, else of the system's lane, else of the lane."""
    out = np.ones((found.groups, found.regions))
    parts = seen.parts.get(UNALIGNED)
    if not parts:
        return out
    bins, values = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    groups = pack.arrays["groups"]
    rules: tuple[Callable[[Any], Any], ...] = (
        lambda g: g[:, 3],
        lambda g: g[:, 3] * 1000 + g[:, 0],
        lambda g: np.arange(len(g)),
    )
    for rule in rules:
        pool = rule(groups)
        for region in range(found.regions):
            mine = bins % found.regions == region
            for key in np.unique(pool):
                part = values[mine & (pool[bins // found.regions] == key)]
                if len(part) >= ENOUGH:
                    out[pool == key, region] = np.exp(np.median(part))
    for region in range(1, found.regions):  # too few samples: as in the region before
        out[:, region] = np.where(out[:, region] == 1.0, out[:, region - 1], out[:, region])
    expected = np.log(out[bins // found.regions, bins % found.regions])
    found.parts.setdefault(UNALIGNED, []).append((bins, values - expected))
    return out


def _versions(pack: Pack, found: _Residuals) -> None:
    """Compare the same point in adjacent versions: the version spread and, for the same kernel, the noise."""
    arrays, spec = pack.arrays, pack.spec
    slabs = arrays["slabs"]
    at = spec.keys.index("backend_version")
    order = {name: rank for rank, name in enumerate(sorted(map(str, pack.vocab["backend_version"])))}
    rank = np.array([order[str(name)] for name in pack.vocab["backend_version"]])[arrays["keys"][:, at]]
    rest = np.delete(arrays["keys"], at, axis=1)
    _, same = np.unique(rest, axis=0, return_inverse=True)
    same = same.reshape(-1)
    if len(np.unique(same)) == len(same):
        return
    cell = np.flatnonzero(arrays["marks"] == lay.MEASURED)
    slab = np.searchsorted(slabs[:, lay.VAL_OFF], cell, side="right") - 1
    row = slabs[slab]
    within = cell - row[:, lay.VAL_OFF]
    ix = within % row[:, lay.X_N]
    i1 = within // row[:, lay.X_N] % row[:, lay.A1_N]
    i0 = within // row[:, lay.X_N] // row[:, lay.A1_N]
    axes = arrays["axes"]
    a0, a1, x = axes[row[:, lay.A0_OFF] + i0], axes[row[:, lay.A1_OFF] + i1], axes[row[:, lay.X_OFF] + ix]
    sort = np.lexsort((rank[slab], x, a1, a0, same[slab]))
    pair = np.ones(len(sort) - 1, bool)
    for column in (same[slab], a0, a1, x):
        pair &= np.diff(column[sort]) == 0
    old, new = sort[:-1][pair], sort[1:][pair]
    ratio = arrays["values"][cell[new]] / arrays["values"][cell[old]]
    kept = arrays["kernel"][cell[new]] == arrays["kernel"][cell[old]]
    root = np.exp(np.log(ratio[kept]) / np.sqrt(2.0))  # one of two equally noisy timings
    for group_of in (old, new):
        group = slabs[slab[group_of], lay.GROUP]
        found.add(VERSION, group, x[old], ratio)
        found.add(VERSION, group, x[old], 1.0 / ratio)
        found.add(NOISE, group[kept], x[old[kept]], root)
        found.add(NOISE, group[kept], x[old[kept]], 1.0 / root)


def _floors(pack: Pack) -> FloatArray:
    """Return the smallest measured latency of every group: what a launch costs at least there."""
    out = np.full(len(pack.arrays["groups"]), np.inf)
    for slab in range(len(pack.slabs)):
        values = pack.arrays["values"][pack.cells(slab)]
        measured = values[pack.arrays["marks"][pack.cells(slab)] == lay.MEASURED]
        group = int(pack.slabs[slab, lay.GROUP])
        out[group] = min(out[group], float(measured.min()))
    return out
