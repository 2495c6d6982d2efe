"""All numba code: single lookups by the million, and whole passes from a compiled program.

The functions below are plain Python until :func:`compiled` is first called; it imports numba, points its cache at a
private folder named by the code's digest, and replaces them by their dispatchers. Every array that enters is
contiguous and writable, so each function is compiled once. The numpy path in :mod:`bitlane.perfcore.reference` states
the same rules independently; tests hold both to 1e-12.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from .layout import (
    A0_HIGH,
    A0_N,
    A0_OFF,
    A1_HIGH,
    A1_N,
    A1_OFF,
    ALIGN0,
    ALIGN1,
    CLS0_N,
    CLS0_OFF,
    CLS1_N,
    CLS1_OFF,
    COL_OFF,
    FULL_N,
    FULL_OFF,
    MEASURED,
    R_ROWS,
    RANK_OFF,
    SITE_OFF,
    SPLIT_RULE,
    SPLIT_VALUE,
    TRANSFORM,
    VAL_OFF,
    X_HIGH,
    X_N,
    X_OFF,
)  # fmt: skip

# The numbers of specs.py, repeated as plain integers for the compiler; a test compares them.
X_INTERPOLATED: Final = 1
SITE_INTERPOLATED: Final = 2
X_EDGE: Final = 4
SITE_EDGE: Final = 8
PENALTY: Final = 16
FLOORED: Final = 32
MISSING: Final = 64
IN_GAP: Final = 128
X_LOW: Final = 256
HOLD_EFFICIENCY: Final = 1
LAST_SLOPE: Final = 2
POWER_SLOPE: Final = 3

# Columns of a program's records (program.py).
PART_SIGN, PART_TERM, PART_TERMS, PART_A1, PART_X, PART_ROW, PART_ROWS = range(7)
PART_SCALED, PART_DONOR, PART_DONORS, PART_D_A1, PART_D_X, PART_FLOOR, PART_LEAST = range(7, 14)
PART_INTS: Final = 14
PART_A0, PART_A1_SCALE, PART_X_SCALE, PART_LEAST_MS, PART_CONSTANT, PART_FLOOR_MS = range(6)
PART_D_A0, PART_D_A1_SCALE, PART_D_X_SCALE, PART_SMALLEST = range(6, 10)
PART_FLOATS: Final = 10
TERM_SLAB, TERM_A1, TERM_X, TERM_SIGN, TERM_LINE, TERM_SURFACE = range(6)
TERM_INTS: Final = 6
LINE_START, LINE_COUNT, LINE_START2, LINE_COUNT2, LINE_RULE, LINE_VALUE = range(6)
LINE_INTS: Final = 6
LINE_SLOPE, LINE_SLOPE2, LINE_STRAIGHT, LINE_HELD, LINE_BOUND, LINE_BASE = 0, 1, 2, 3, 4, 8
LINE_FLOATS: Final = 12
SURFACE_A1, SURFACE_A1_N, SURFACE_X, SURFACE_X_N, SURFACE_Y, SURFACE_M, SURFACE_ROOT, SURFACE_NOT = range(8)
SURFACE_INTS: Final = 8
TERM_A0, TERM_A1_SCALE, TERM_X_SCALE = range(3)
TERM_FLOATS: Final = 3
OP_PART, OP_PARTS, OP_DIFFERENCE, OP_ALONE = range(4)
OP_INTS: Final = 4
SIDE_JOINT, SIDE_MEMBER, SIDE_MEMBERS = range(3)
SIDE_INTS: Final = 3
# Arrays of a program, in the order of its header.
(P_SLABS, P_AXES, P_VALUES, P_MARKS, P_SITES, P_CURVE, P_COL_PTR, P_COL_IDX, P_FULL, P_FULL_RANK, P_RANK, P_LEAST_A0,
 P_PENALTY, P_REGIONS, P_ROOFS, P_OP_I, P_LAYERS, P_PART_I, P_PART_F, P_TERM_I, P_TERM_F, P_ROWS, P_JOINT, P_SIDE,
 P_MEMBER, P_TIMES, P_LINE_I, P_LINE_X, P_LINE_Y, P_LINE_M, P_LINE_F, P_ONE_MS, P_ONE_W, P_ONE_SPARE, P_ONE_DONE,
 P_SURFACE_I, P_SURFACE_F, P_SURFACE_M) = range(38)  # fmt: skip
PREFILL: Final = 0

# Callees first. Inlined are those with a single call site.
_ORDER: Final = (
    "_first", "_member", "_form", "_roof_rows", "_roof", "_beyond", "_curve", "_columns", "_members", "_point", "_line",
    "_other", "_straight", "_ended", "_cell", "_surface", "_ints", "_floats", "_rows", "_plain_bound", "_plain_line",
    "_plain_surface", "_ops", "_sum", "lookup", "run", "total",
)  # fmt: skip
_INLINED: Final = frozenset({
    "_first", "_member", "_curve", "_columns", "_members", "_point", "_line", "_other", "_straight", "_ended", "_cell",
    "_surface", "_ints", "_floats", "_rows",
})  # fmt: skip
# Bounds along x that a slab has at most (program.py).
REGIONS: Final = 3
# Passes priced together, so that their numbers stay in the first cache.
BLOCK: Final = 1024
# Fewer passes than this do not repay the set-up of a loop of their own.
WORTH_SPLITTING: Final = 8

Arrays = Any
_ready: list[SimpleNamespace] = []
_lock = threading.Lock()


def compiled() -> SimpleNamespace:
    """Return the compiled entry points, compiling or loading them on first use.

    Returns
    -------
    namespace
        ``lookup``, ``run`` and ``total``.
    """
    with _lock:
        if not _ready:
            _ready.append(_compile())
    return _ready[0]


def loaded() -> bool:
    """Say whether the kernels are compiled in this process already."""
    return bool(_ready)


def _compile() -> SimpleNamespace:
    import numba

    from . import cache
    from .store import code_digest

    before, keep = numba.config.CACHE_DIR, True
    try:
        numba.config.CACHE_DIR = str(
            cache.private(cache.root() / f"numba-{numba.__version__}-{code_digest('layout', 'kernels')}")
        )
    except OSError as error:
        cache.log.warning("bitlane: compiled kernels cannot be kept: %s", error)
        keep = False
    if not keep or not any(Path(numba.config.CACHE_DIR).rglob("*.nbi")):
        cache.log.warning("bitlane: compiling kernels, once per version (about twenty seconds)")
    space = globals()
    try:
        for name in _ORDER:
            inline = "always" if name in _INLINED else "never"
            # Nothing here allocates: without reference counts a lookup takes a third of the time.
            space[name] = numba.njit(cache=keep, error_model="numpy", nogil=True, inline=inline, _nrt=False)(
                space[name]
            )
    finally:
        numba.config.CACHE_DIR = before
    return SimpleNamespace(lookup=space["lookup"], run=space["run"], total=space["total"])


def _first(values: Arrays, start: int, count: int, q: float) -> int:
    """Position of the first of `count` sorted values that is at least q; without branches that depend on the data."""
    low, left = start, count
    while left > 1:
        half = left >> 1
        low += half if values[low + half - 1] < q else 0
        left -= half
    return low - start + (1 if count > 0 and values[low] < q else 0)


def _member(axes: Arrays, base: int, index: Arrays, start: int, count: int, q: float) -> int:
    """Position of the first listed coordinate that is at least q."""
    low, left = start, count
    while left > 1:
        half = left >> 1
        low += half if axes[base + index[low + half - 1]] < q else 0
        left -= half
    return low - start + (1 if count > 0 and axes[base + index[low]] < q else 0)


def _form(kind: int, parameter: float, x: float) -> float:
    if kind == 3:
        return -math.expm1(-parameter * x)
    if kind == 0:
        return 1.0
    line = max(x - parameter, 0.0)
    return line if kind == 1 else line * line


def _roof_rows(rows: Arrays, start: int, count: int, a0: float, a1: float, x: float) -> float:
    """Larger of the compute and the memory sum, in milliseconds."""
    compute, memory = 0.0, 0.0
    for i in range(start, start + count):
        value = rows[i, 1]
        if value == 0.0:
            continue
        for _ in range(int(rows[i, 2])):
            value *= a0
        for _ in range(int(rows[i, 3])):
            value *= a1
        value *= _form(int(rows[i, 4]), rows[i, 5], x)
        if rows[i, 0] == 0.0:
            compute += value
        else:
            memory += value
    return max(compute, memory)


def _roof(roofs: Arrays, s: int, a0: float, a1: float, x: float) -> float:
    return _roof_rows(roofs, s * R_ROWS, R_ROWS, a0, a1, x)


def _beyond(
    roofs: Arrays, s: int, rule: int, y1: float, x1: float, y0: float, x0: float, a0: float, a1: float, x: float
) -> float:
    """Latency past the last sample (x1, y1); (x0, y0) is the one before, or the same."""
    if x1 == x0 or rule == HOLD_EFFICIENCY:
        base = _roof(roofs, s, a0, a1, x1)
        return max(y1, y1 * (_roof(roofs, s, a0, a1, x) / base)) if base > 0.0 else y1
    if rule == LAST_SLOPE:
        return y1 + max((y1 - y0) / (x1 - x0), 0.0) * (x - x1)
    if rule == POWER_SLOPE:
        power = min(max(math.log(y1 / y0) / math.log(x1 / x0), 0.0), 3.0)
        grown: float = y1 * (x / x1) ** power
        return grown
    return y1


def _curve(
    slabs: Arrays, axes: Arrays, values: Arrays, marks: Arrays, sites: Arrays, curve: Arrays, roofs: Arrays,
    s: int, site: int, second: bool, place: int, a0: float, a1: float, x: float,
) -> tuple[float, int]:  # fmt: skip
    """One site's latency at x; `place` is x's position in the slab's (first or second) curve."""
    row = slabs[s, SITE_OFF] + site
    base, cell = slabs[s, X_OFF], slabs[s, VAL_OFF] + site * slabs[s, X_N]
    low, high = (sites[row, 2], sites[row, 3]) if second else (sites[row, 0], sites[row, 1])
    start = slabs[s, CLS1_OFF] if second else slabs[s, CLS0_OFF]
    if low > high:  # the site lacks this curve and is served by the other one
        second = not second
        low, high = (sites[row, 2], sites[row, 3]) if second else (sites[row, 0], sites[row, 1])
        start = slabs[s, CLS1_OFF] if second else slabs[s, CLS0_OFF]
        count = slabs[s, CLS1_N] if second else slabs[s, CLS0_N]
        place = _member(axes, base, curve, start, count, x)
    if place > high:
        last, before = curve[start + high], curve[start + max(high - 1, low)]
        y = _beyond(roofs, s, slabs[s, X_HIGH], values[cell + last], axes[base + last], values[cell + before],
                    axes[base + before], a0, a1, x)  # fmt: skip
        return y, X_EDGE
    place = max(place, low)
    at = curve[start + place]
    x1, y1 = axes[base + at], values[cell + at]
    if x1 == x:
        return y1, 0 if marks[cell + at] == MEASURED else X_INTERPOLATED | IN_GAP
    if place == low:
        return y1, X_EDGE | X_LOW
    left = curve[start + place - 1]
    x0, y0 = axes[base + left], values[cell + left]
    part = (x - x0) / (x1 - x0)
    if slabs[s, TRANSFORM] == 1:
        r0, r1 = math.sqrt(y0), math.sqrt(y1)
        root = r0 + part * (r1 - r0)
        return root * root, X_INTERPOLATED
    return y0 + part * (y1 - y0), X_INTERPOLATED


def _columns(
    slabs: Arrays, axes: Arrays, col_ptr: Arrays, col_idx: Arrays, full: Arrays, full_rank: Arrays, s: int, i1: int,
    on1: bool, q0: float, q1: float,
) -> tuple[int, int, float, bool]:  # fmt: skip
    """Choose the a1 column(s) around q1: two positions (or one and -1), the second's share, and whether q1 is beyond.

    `i1` is the position of the first column at or past q1.
    """
    base1, first, count = slabs[s, A1_OFF], slabs[s, FULL_OFF], slabs[s, FULL_N]
    at = full_rank[slabs[s, COL_OFF] + i1]
    if on1:
        if full_rank[slabs[s, COL_OFF] + i1 + 1] > at:
            return i1, -1, 0.0, False
        pointer, base0 = slabs[s, COL_OFF] + i1, slabs[s, A0_OFF]
        start, end = col_ptr[pointer], col_ptr[pointer + 1]
        if end > start and axes[base0 + col_idx[start]] <= q0 <= axes[base0 + col_idx[end - 1]]:
            return i1, -1, 0.0, False
    if at == 0:
        return full[first], -1, 0.0, True
    beyond = at == count
    if beyond and (slabs[s, A1_HIGH] != LAST_SLOPE or count == 1):
        return full[first + count - 1], -1, 0.0, True
    at = min(at, count - 1)
    low, high = full[first + at - 1], full[first + at]
    return low, high, (q1 - axes[base1 + low]) / (axes[base1 + high] - axes[base1 + low]), beyond


def _members(
    slabs: Arrays, axes: Arrays, col_ptr: Arrays, col_idx: Arrays, rank: Arrays, s: int, column: int, i0: int,
    on0: bool, q0: float,
) -> tuple[int, int, float, bool]:  # fmt: skip
    """Choose the a0 site(s) of a column around q0, as :func:`_columns` does for q1."""
    pointer, base = slabs[s, COL_OFF] + column, slabs[s, A0_OFF]
    start = col_ptr[pointer]
    count = col_ptr[pointer + 1] - start
    at = rank[slabs[s, RANK_OFF] + column * (slabs[s, A0_N] + 1) + i0]
    if on0 and at < count and col_idx[start + at] == i0:
        return i0, -1, 0.0, False
    if at == 0:
        return col_idx[start], -1, 0.0, True
    beyond = at == count
    if beyond and (slabs[s, A0_HIGH] != LAST_SLOPE or count == 1):
        return col_idx[start + count - 1], -1, 0.0, True
    at = min(at, count - 1)
    low, high = col_idx[start + at - 1], col_idx[start + at]
    return low, high, (q0 - axes[base + low]) / (axes[base + high] - axes[base + low]), beyond


def _point(
    slabs: Arrays, axes: Arrays, values: Arrays, marks: Arrays, sites: Arrays, curve: Arrays, col_ptr: Arrays,
    col_idx: Arrays, full: Arrays, full_rank: Arrays, rank: Arrays, least_a0: Arrays, penalty: Arrays, regions: Arrays,
    roofs: Arrays,
    s: int, q0: float, q1: float, x: float, eff: bool,
) -> tuple[float, int]:  # fmt: skip
    """Price one query: milliseconds and status bits.

    Every helper is called from one place only: they are inlined, because passing a dozen arrays costs more than a
    lookup.
    """
    if eff and _roof(roofs, s, q0, q1, x) <= 0.0:  # a table without a bound has no efficiency
        eff = False
    rule, n1 = slabs[s, SPLIT_RULE], slabs[s, A1_N]
    second = (rule == 1 and x % slabs[s, SPLIT_VALUE] != 0) or (rule == 2 and x == slabs[s, SPLIT_VALUE])
    start = slabs[s, CLS1_OFF] if second else slabs[s, CLS0_OFF]
    count = slabs[s, CLS1_N] if second else slabs[s, CLS0_N]
    place = _member(axes, slabs[s, X_OFF], curve, start, count, x)
    n0 = slabs[s, A0_N]
    i0, i1 = _first(axes, slabs[s, A0_OFF], n0, q0), _first(axes, slabs[s, A1_OFF], n1, q1)
    on0 = i0 < n0 and axes[slabs[s, A0_OFF] + i0] == q0
    on1 = i1 < n1 and axes[slabs[s, A1_OFF] + i1] == q1
    exact = -1
    if on0 and on1:
        row = slabs[s, SITE_OFF] + i0 * n1 + i1
        if sites[row, 0] <= sites[row, 1] or sites[row, 2] <= sites[row, 3]:
            exact = i0 * n1 + i1
    c_low, c_high, c_part, c_beyond, status = exact % n1, -1, 0.0, False, 0
    if exact < 0:
        status = SITE_INTERPOLATED
        if (q0 % slabs[s, ALIGN0] != 0 and q0 > least_a0[s]) or q1 % slabs[s, ALIGN1] != 0:
            status |= PENALTY
        c_low, c_high, c_part, c_beyond = _columns(slabs, axes, col_ptr, col_idx, full, full_rank, s, i1, on1, q0, q1)
    total = 0.0
    for c in range(2 if c_high >= 0 else 1):
        column = c_high if c == 1 else c_low
        m_low, m_high, m_part, m_beyond = exact // n1, -1, 0.0, False
        if exact < 0:
            m_low, m_high, m_part, m_beyond = _members(slabs, axes, col_ptr, col_idx, rank, s, column, i0, on0, q0)
        if c_beyond or m_beyond:
            status |= SITE_EDGE
        c1 = axes[slabs[s, A1_OFF] + column]
        t1 = q1 if c_beyond and q1 > c1 and slabs[s, A1_HIGH] == HOLD_EFFICIENCY else c1
        blended = 0.0
        for m in range(2 if m_high >= 0 else 1):
            member = m_high if m == 1 else m_low
            c0 = axes[slabs[s, A0_OFF] + member]
            t0 = q0 if m_beyond and q0 > c0 and slabs[s, A0_HIGH] == HOLD_EFFICIENCY else c0
            y, more = _curve(slabs, axes, values, marks, sites, curve, roofs, s, member * n1 + column, second, place,
                             c0, c1, x)  # fmt: skip
            status |= more
            if eff:
                y = _roof(roofs, s, c0, c1, x) / y
            elif t0 != c0 or t1 != c1:
                base = _roof(roofs, s, c0, c1, x)
                if base > 0.0:
                    y *= _roof(roofs, s, t0, t1, x) / base
            if m_high >= 0:
                y *= m_part if m == 1 else 1.0 - m_part
            blended += y
        if c_high >= 0:
            blended *= c_part if c == 1 else 1.0 - c_part
        total += blended
    if eff:
        total = _roof(roofs, s, q0, q1, x) / total
    if status & (X_EDGE | SITE_EDGE | PENALTY):
        if status & PENALTY:
            region = 0
            while region < REGIONS and x > regions[s, region]:
                region += 1
            total *= penalty[s, region]
        floor = _roof(roofs, s, q0, q1, x)
        if total < floor:
            return floor, status | FLOORED
    return total, status


def _line(
    line_x: Arrays, line_y: Arrays, line_m: Arrays, start: int, count: int, slope: float, x: float
) -> tuple[float, int]:
    """Latency and source on a curve whose site never moves; negative where only :func:`_point` knows.

    Past the last sample the source is 2 and the roofline is still to be respected.
    """
    if count == 0:
        return -1.0, 1
    at = start + _first(line_x, start, count, x)
    if at == start + count:
        return (line_y[at - 1] + slope * (x - line_x[at - 1]), 2) if slope >= 0.0 else (-1.0, 1)
    x1, y1 = line_x[at], line_y[at]
    if x1 == x:
        return y1, line_m[at]
    if at == start:
        return -1.0, 1
    x0, y0 = line_x[at - 1], line_y[at - 1]
    return y0 + (x - x0) / (x1 - x0) * (y1 - y0), 1


def _other(rule: int, value: int, x: float) -> bool:
    """Say whether x lies on a line's second curve; rule 3 is rule 1 for a power of two, `value` its mask."""
    if rule == 3:
        return (int(x) & value) != 0
    if rule == 1:
        return int(x) % value != 0
    return rule == 2 and int(x) == value


def _straight(line_f: Arrays, row: int, at: int, x: float) -> float:
    """Roofline whose two sums are straight in x: their starts and slopes stand from column `at` on."""
    compute: float = line_f[row, at] + line_f[row, at + 1] * x
    memory: float = line_f[row, at + 2] + line_f[row, at + 3] * x
    return max(compute, memory)


def _ended(
    line_f: Arrays, roofs: Arrays, row: int, s: int, a0: float, a1: float, y: float, how: int, x: float
) -> tuple[float, int]:
    """Finish a line's answer past the end of an axis: hold the efficiency of its site, respect the roofline."""
    held = line_f[row, LINE_HELD] != 0.0
    if y < 0.0 or (how < 2 and not held):
        return y, how
    bound = _straight(line_f, row, LINE_BOUND, x) if line_f[row, LINE_STRAIGHT] != 0.0 else _roof(roofs, s, a0, a1, x)
    if held:
        y *= bound / _straight(line_f, row, LINE_BASE, x)
    return max(y, bound), 2


def _cell(
    f: Arrays, m: Arrays, y: int, columns: int, column: int, k: int, exact: bool, part: float, root: bool
) -> float:
    """One column of a surface at a place along x; negative past the column's last sample."""
    if k > m[column]:
        return -1.0
    at = y + column * columns + k
    y1: float = f[at]
    if exact:
        return y1
    y0: float = f[at - 1]
    if root:
        r0, r1 = math.sqrt(y0), math.sqrt(y1)
        r = r0 + part * (r1 - r0)
        return r * r
    return y0 + part * (y1 - y0)


def _surface(surface_i: Arrays, f: Arrays, m: Arrays, row: int, q1: float, x: float) -> tuple[float, int]:
    """Latency and source on a surface over (a1, x) at a measured a0; negative where only :func:`_point` knows.

    `m` holds each column's last place along x, then a 0 for every measured cell and a 1 for every filled one.
    """
    n1, nx, xs, ys = surface_i[row, 1], surface_i[row, 3], surface_i[row, SURFACE_X], surface_i[row, SURFACE_Y]
    a1s, ms = surface_i[row, SURFACE_A1], surface_i[row, SURFACE_M]
    c, k = _first(f, a1s, n1, q1), _first(f, xs, nx, x)
    if c == n1 or k == nx or x == surface_i[row, SURFACE_NOT]:
        return -1.0, 1
    exact, part = f[xs + k] == x, 0.0
    if not exact:
        if k == 0:
            return -1.0, 1
        part = (x - f[xs + k - 1]) / (f[xs + k] - f[xs + k - 1])
    root = surface_i[row, SURFACE_ROOT] != 0
    y1 = _cell(f, m[ms:], ys, nx, c, k, exact, part, root)
    if f[a1s + c] == q1:
        return y1, m[ms + n1 + c * nx + k] if exact and y1 >= 0.0 else 1
    if c == 0:
        return -1.0, 1
    y0 = _cell(f, m[ms:], ys, nx, c - 1, k, exact, part, root)
    if y0 < 0.0 or y1 < 0.0:
        return -1.0, 1
    share = (q1 - f[a1s + c - 1]) / (f[a1s + c] - f[a1s + c - 1])
    return (1.0 - share) * y0 + share * y1, 1


def lookup(t: Arrays, slab: Arrays, q0: Arrays, q1: Arrays, x: Arrays, eff: bool, ms: Arrays, status: Arrays) -> None:
    """Price queries of one table into `ms` (milliseconds) and `status`; slab -1 gives NaN."""
    (
        slabs,
        axes,
        values,
        marks,
        sites,
        curve,
        col_ptr,
        col_idx,
        full,
        full_rank,
        rank,
        least_a0,
        penalty,
        regions,
        roofs,
    ) = t
    for i in range(len(slab)):
        if slab[i] < 0:
            ms[i], status[i] = np.nan, MISSING
        else:
            ms[i], status[i] = _point(
                slabs, axes, values, marks, sites, curve, col_ptr, col_idx, full, full_rank, rank, least_a0, penalty,
                regions, roofs,
                slab[i], q0[i], q1[i], x[i], eff,
            )  # fmt: skip


def _ints(ints: Arrays, number: int) -> Arrays:
    """Integer array of a program."""
    return ints[ints[2 * number] : ints[2 * number + 1]]


def _floats(ints: Arrays, floats: Arrays, number: int) -> Arrays:
    """Float array of a program."""
    return floats[ints[2 * number] : ints[2 * number + 1]]


def _rows(ints: Arrays, table: Arrays, number: int) -> Arrays:
    """Rows of a program's integer or float table; a table is as wide as its widest part."""
    return table[ints[2 * number] : ints[2 * number + 1]]


def _plain_bound(
    ints: Arrays,
    int_rows: Arrays,
    float_rows: Arrays,
    k: int,
    w: Arrays,
    first: int,
    last: int,
    ms: Arrays,
    source: Arrays,
    done: Arrays,
) -> int:
    """Add a part that is a formula without rows, pass by pass; nothing is left undone."""
    n, f = _rows(ints, int_rows, P_PART_I), _rows(ints, float_rows, P_PART_F)
    rows = _rows(ints, float_rows, P_ROWS)
    row, count, made = n[k, PART_ROW], n[k, PART_ROWS], n[k, PART_LEAST]
    a0, a1_scale, x_scale, a1, x = (
        f[k, PART_A0], f[k, PART_A1_SCALE], f[k, PART_X_SCALE], n[k, PART_A1], n[k, PART_X]
    )  # fmt: skip
    least, constant = f[k, PART_LEAST_MS], f[k, PART_CONSTANT]
    straight = count == 1 and rows[row, 2] == 0.0 and rows[row, 3] == 0.0 and rows[row, 4] == 1.0
    if straight and rows[row, 5] == 0.0:
        per_x = rows[row, 1] * x_scale
        for p in range(first, last):
            ms[p] += max(per_x * w[x, p], least) + constant
            source[p] = max(source[p], made)
            done[p - first] = 1
        return 0
    for p in range(first, last):
        bound = _roof_rows(rows, row, count, a0, a1_scale * w[a1, p], x_scale * w[x, p])
        ms[p] += max(bound, least) + constant
        source[p] = max(source[p], made)
        done[p - first] = 1
    return 0


def _plain_line(
    ints: Arrays,
    floats: Arrays,
    int_rows: Arrays,
    float_rows: Arrays,
    k: int,
    w: Arrays,
    first: int,
    last: int,
    ms: Arrays,
    source: Arrays,
    done: Arrays,
) -> int:
    """Add a part that is one row's curve, pass by pass; return how many lie outside its samples."""
    n, term_i, term_f = (
        _rows(ints, int_rows, P_PART_I),
        _rows(ints, int_rows, P_TERM_I),
        _rows(ints, float_rows, P_TERM_F),
    )
    line_i, line_m, line_f = _rows(ints, int_rows, P_LINE_I), _ints(ints, P_LINE_M), _rows(ints, float_rows, P_LINE_F)
    line_x, line_y = _floats(ints, floats, P_LINE_X), _floats(ints, floats, P_LINE_Y)
    roofs = _rows(ints, float_rows, P_ROOFS)
    at, least = n[k, PART_TERM], n[k, PART_LEAST]
    row, slab, x = term_i[at, TERM_LINE], term_i[at, TERM_SLAB], term_i[at, TERM_X]
    x_scale, a0, a1 = term_f[at, TERM_X_SCALE], term_f[at, TERM_A0], term_f[at, TERM_A1_SCALE]
    start0, count0, slope0 = line_i[row, LINE_START], line_i[row, LINE_COUNT], line_f[row, 0]
    start1, count1, slope1 = line_i[row, LINE_START2], line_i[row, LINE_COUNT2], line_f[row, 1]
    rule, value = line_i[row, LINE_RULE], line_i[row, LINE_VALUE]
    left = 0
    for p in range(first, last):
        tx = max(x_scale * w[x, p], 1.0)
        two = _other(rule, value, tx)
        y, how = _line(
            line_x, line_y, line_m, start1 if two else start0, count1 if two else count0, slope1 if two else slope0, tx
        )
        y, how = _ended(line_f, roofs, row, slab, a0, a1, y, how, tx)
        if y >= 0.0:
            ms[p] += y
            source[p] = max(source[p], max(least, how))
            done[p - first] = 1
        else:
            done[p - first] = 0
            left += 1
    return left


def _plain_surface(
    ints: Arrays,
    floats: Arrays,
    int_rows: Arrays,
    float_rows: Arrays,
    k: int,
    w: Arrays,
    first: int,
    last: int,
    ms: Arrays,
    source: Arrays,
    done: Arrays,
) -> int:
    """Add a part that is one row's surface, pass by pass; return how many lie outside its samples."""
    n, term_i, term_f = (
        _rows(ints, int_rows, P_PART_I),
        _rows(ints, int_rows, P_TERM_I),
        _rows(ints, float_rows, P_TERM_F),
    )
    surface_i, surface_m = _rows(ints, int_rows, P_SURFACE_I), _ints(ints, P_SURFACE_M)
    surface_f = _floats(ints, floats, P_SURFACE_F)
    at, least = n[k, PART_TERM], n[k, PART_LEAST]
    row, a1, x = term_i[at, TERM_SURFACE], term_i[at, TERM_A1], term_i[at, TERM_X]
    x_scale, a1_scale = term_f[at, TERM_X_SCALE], term_f[at, TERM_A1_SCALE]
    left = 0
    for p in range(first, last):
        y, how = _surface(surface_i, surface_f, surface_m, row, a1_scale * w[a1, p], max(x_scale * w[x, p], 1.0))
        if y >= 0.0:
            ms[p] += y
            source[p] = max(source[p], max(least, how))
            done[p - first] = 1
        else:
            done[p - first] = 0
            left += 1
    return left


def _ops(
    ints: Arrays, floats: Arrays, int_rows: Arrays, float_rows: Arrays, w: Arrays, eff: bool, first: int, last: int,
    ms: Arrays, source: Arrays, spare: Arrays, done: Arrays,
) -> None:  # fmt: skip
    """Price every operation of every pass: milliseconds of one layer, and the source.

    Operations run in the outer loop, so that one curve stays in the cache for all passes.
    """
    slabs, sites = _rows(ints, int_rows, P_SLABS), _rows(ints, int_rows, P_SITES)
    axes, values = _floats(ints, floats, P_AXES), _floats(ints, floats, P_VALUES)
    marks, curve, col_ptr = _ints(ints, P_MARKS), _ints(ints, P_CURVE), _ints(ints, P_COL_PTR)
    col_idx, full = _ints(ints, P_COL_IDX), _ints(ints, P_FULL)
    full_rank, rank = _ints(ints, P_FULL_RANK), _ints(ints, P_RANK)
    least_a0, penalty = _floats(ints, floats, P_LEAST_A0), _rows(ints, float_rows, P_PENALTY)
    regions, roofs = _rows(ints, float_rows, P_REGIONS), _rows(ints, float_rows, P_ROOFS)
    op_i, n, term_i = _rows(ints, int_rows, P_OP_I), _rows(ints, int_rows, P_PART_I), _rows(ints, int_rows, P_TERM_I)
    f, term_f, rows = (
        _rows(ints, float_rows, P_PART_F),
        _rows(ints, float_rows, P_TERM_F),
        _rows(ints, float_rows, P_ROWS),
    )
    line_i, line_m = _rows(ints, int_rows, P_LINE_I), _ints(ints, P_LINE_M)
    line_x, line_y = _floats(ints, floats, P_LINE_X), _floats(ints, floats, P_LINE_Y)
    line_f = _rows(ints, float_rows, P_LINE_F)
    for i in range(len(op_i)):
        difference, smallest = op_i[i, OP_DIFFERENCE] != 0, 0.0
        for p in range(first, last):
            ms[i, p], source[i, p], spare[p - first] = 0.0, 0, 0.0
        for k in range(op_i[i, OP_PART], op_i[i, OP_PART] + op_i[i, OP_PARTS]):
            sign, terms, scaled, floor_term = (
                n[k, PART_SIGN],
                n[k, PART_TERMS],
                n[k, PART_SCALED] != 0,
                n[k, PART_FLOOR],
            )
            lookups = terms + (1 if floor_term >= 0 else 0)
            bounded = terms != 1 or scaled or difference  # a plain row needs no bound
            smallest = max(smallest, f[k, PART_SMALLEST])
            plain = last - first >= WORTH_SPLITTING and lookups <= 1 and not scaled and not difference and sign > 0
            left = -1
            if plain and terms == 0:
                left = _plain_bound(ints, int_rows, float_rows, k, w, first, last, ms[i], source[i], done)
            elif plain and term_i[n[k, PART_TERM], TERM_LINE] >= 0:
                left = _plain_line(ints, floats, int_rows, float_rows, k, w, first, last, ms[i], source[i], done)
            elif plain and term_i[n[k, PART_TERM], TERM_SURFACE] >= 0:
                left = _plain_surface(ints, floats, int_rows, float_rows, k, w, first, last, ms[i], source[i], done)
            if left == 0:
                continue
            if left < 0:
                done[: last - first] = 0
            for p in range(first, last):
                if done[p - first]:
                    continue
                x = f[k, PART_X_SCALE] * w[n[k, PART_X], p]
                if sign < 0 and x <= 0.0:  # no cached prefix: nothing to take off
                    continue
                made, bound = n[k, PART_LEAST], 0.0
                if bounded:
                    bound = _roof_rows(rows, n[k, PART_ROW], n[k, PART_ROWS], f[k, PART_A0],
                                       f[k, PART_A1_SCALE] * w[n[k, PART_A1], p], x)  # fmt: skip
                part, floor = 0.0, f[k, PART_FLOOR_MS]
                if terms == 0:
                    part = max(bound, f[k, PART_LEAST_MS]) + f[k, PART_CONSTANT]
                for j in range(lookups):
                    at = floor_term if j == terms else n[k, PART_TERM] + j
                    tx = max(term_f[at, TERM_X_SCALE] * w[term_i[at, TERM_X], p], 1.0)
                    y, how = -1.0, 1
                    row = term_i[at, TERM_LINE]
                    if row >= 0:
                        two = 2 if _other(line_i[row, LINE_RULE], line_i[row, LINE_VALUE], tx) else 0
                        y, how = _line(line_x, line_y, line_m, line_i[row, LINE_START + two],
                                       line_i[row, LINE_COUNT + two], line_f[row, two >> 1], tx)  # fmt: skip
                        y, how = _ended(line_f, roofs, row, term_i[at, TERM_SLAB], term_f[at, TERM_A0],
                                        term_f[at, TERM_A1_SCALE], y, how, tx)  # fmt: skip
                    if y < 0.0:
                        y, status = _point(
                            slabs, axes, values, marks, sites, curve, col_ptr, col_idx, full, full_rank, rank, least_a0,
                            penalty, regions, roofs, term_i[at, TERM_SLAB], term_f[at, TERM_A0],
                            term_f[at, TERM_A1_SCALE] * w[term_i[at, TERM_A1], p], tx, eff,
                        )  # fmt: skip
                        how = 2 if status & (X_EDGE | SITE_EDGE) else (1 if status or eff else 0)
                    if j == terms:
                        floor = y
                    else:
                        part += y * term_i[at, TERM_SIGN]
                        made = max(made, how)
                if scaled:
                    floor = min(floor, part)
                    base = _roof_rows(rows, n[k, PART_DONOR], n[k, PART_DONORS], f[k, PART_D_A0],
                                      f[k, PART_D_A1_SCALE] * w[n[k, PART_D_A1], p],
                                      f[k, PART_D_X_SCALE] * w[n[k, PART_D_X], p])  # fmt: skip
                    part = max(floor + (part - floor) * (bound / (base if base > 0.0 else 1.0)), max(floor, bound))
                if terms > 1:
                    part = max(part, bound)
                ms[i, p] += sign * part
                source[i, p] = max(source[i, p], made)
                spare[p - first] += sign * bound
        if difference:
            for p in range(first, last):
                ms[i, p] = max(ms[i, p], max(spare[p - first], smallest))
                source[i, p] = max(source[i, p], 1)


def _sum(
    ints: Arrays,
    floats: Arrays,
    int_rows: Arrays,
    passes: int,
    ms: Arrays,
    total_ms: Arrays,
    longest: Arrays,
) -> None:
    """Add passes up; of an overlap group the longer side counts, layer kind by layer kind."""
    op_i, side_i, member = _rows(ints, int_rows, P_OP_I), _rows(ints, int_rows, P_SIDE), _ints(ints, P_MEMBER)
    layers, joint = _floats(ints, floats, P_LAYERS), _floats(ints, floats, P_JOINT)
    times = _floats(ints, floats, P_TIMES)
    total_ms[:] = 0.0
    for i in range(len(op_i)):
        if op_i[i, OP_ALONE]:
            for p in range(passes):
                total_ms[p] += layers[i] * ms[i, p]
    for j in range(len(joint)):
        longest[:] = 0.0
        for k in range(len(side_i)):
            if side_i[k, SIDE_JOINT] != j:
                continue
            for p in range(passes):
                side = 0.0
                for m in range(side_i[k, SIDE_MEMBER], side_i[k, SIDE_MEMBER] + side_i[k, SIDE_MEMBERS]):
                    side += times[m] * ms[member[m], p]
                longest[p] = max(longest[p], side)
        for p in range(passes):
            total_ms[p] += joint[j] * longest[p]


def run(
    ints: Arrays,
    floats: Arrays,
    int_rows: Arrays,
    float_rows: Arrays,
    eff: bool,
    w: Arrays,
    total_ms: Arrays,
    ms: Arrays,
    source: Arrays,
    spare: Arrays,
    done: Arrays,
) -> None:
    """Price many passes.

    Parameters
    ----------
    ints, floats, int_rows, float_rows
        A program (program.py).
    eff
        Blend efficiency (EMPIRICAL).
    w
        Workload table (workload.py), float64 [VARIABLES, passes].
    total_ms, ms, source
        Results: [passes], [ops, passes], int8 [ops, passes].
    spare, done
        Room for one number and one int64 per pass.
    """
    passes = ms.shape[1]
    for first in range(0, passes, BLOCK):
        last = min(first + BLOCK, passes)
        _ops(ints, floats, int_rows, float_rows, w, eff, first, last, ms, source, spare, done)
    _sum(ints, floats, int_rows, passes, ms, total_ms, spare)


def total(
    ints: Arrays,
    floats: Arrays,
    int_rows: Arrays,
    float_rows: Arrays,
    phase: int,
    eff: bool,
    batch: float,
    isl: float,
    prefix: float,
    source: Arrays,
) -> float:
    """Price one pass; milliseconds. Works in the program's own spare room, so one thread at a time may ask.

    Parameters
    ----------
    ints, floats, int_rows, float_rows
        A program (program.py).
    phase
        0 prefill, 1 decode.
    eff
        Blend efficiency (EMPIRICAL).
    batch, isl, prefix
        The pass.
    source
        Room for the sources, int8 [ops, 1].
    """
    w, ms = _rows(ints, float_rows, P_ONE_W), _rows(ints, float_rows, P_ONE_MS)
    spare, done = _floats(ints, floats, P_ONE_SPARE), _ints(ints, P_ONE_DONE)
    w[0, 0], w[1, 0] = 1.0, batch
    if phase == PREFILL:
        w[3, 0], w[4, 0], w[5, 0] = isl - prefix, isl, prefix
    else:
        w[3, 0], w[4, 0], w[5, 0] = 1.0, isl + 1.0, isl
    w[2, 0] = batch * w[3, 0]
    one = len(done)  # not written 1: numba would compile everything again for that constant
    _ops(ints, floats, int_rows, float_rows, w, eff, one - 1, one, ms, source, spare, done)
    _sum(ints, floats, int_rows, one, ms, spare[1:2], spare[:1])
    milliseconds: float = spare[1]
    return milliseconds
