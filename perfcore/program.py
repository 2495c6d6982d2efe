"""A plan as a few flat arrays: only the sites that it can touch, and records that the kernels walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from . import kernels as k
from . import layout as lay
from . import sol
from . import workload as wl
from .pack import ranks
from .sites import around, select
from .specs import EDGE_CODES, SITE_EDGE, SITE_INTERPOLATED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .pack import FloatArray, IntArray, Pack
    from .plan import Plan
    from .resolved import Resolved, Term

REGIONS: Final = 3


class Tables(NamedTuple):
    """Packed arrays as the kernels take them; see :mod:`bitlane.perfcore.layout`."""

    slabs: Any
    axes: Any
    values: Any
    marks: Any
    sites: Any
    curve: Any
    col_ptr: Any
    col_idx: Any
    full: Any
    full_rank: Any
    rank: Any
    least_a0: Any
    penalty: Any
    regions: Any
    roofs: Any


class Program(NamedTuple):
    """A plan as the kernels take it: four arrays, because every array argument costs a call 0.1 us.

    `ints` begins with the start and end of every part below, in that order. One-dimensional parts lie in `ints` and
    `floats`, tables in `int_rows` and `float_rows`, which are as wide as their widest part.
    """

    ints: Any
    floats: Any
    int_rows: Any
    float_rows: Any


class _Parts(NamedTuple):
    """The parts of a program; their columns are named in :mod:`bitlane.perfcore.kernels`."""

    tables: Tables
    op_i: Any
    layers: Any
    part_i: Any
    part_f: Any
    term_i: Any
    term_f: Any
    rows: Any
    joint: Any
    side: Any
    member: Any
    times: Any
    line_i: Any
    line_x: Any
    line_y: Any
    line_m: Any
    line_f: Any
    one_ms: Any
    one_w: Any
    one_spare: Any
    one_done: Any
    surface_i: Any
    surface_f: Any
    surface_m: Any


Rows = list[sol.Row]


def whole(pack: Pack) -> Tables:
    """Return a whole table for lookups; rooflines are filled in by :func:`fill_roofs`."""
    arrays = pack.arrays
    count = len(pack.slabs)
    groups = pack.slabs[:, lay.GROUP]
    regions, penalty = np.full((count, REGIONS), np.inf), np.ones((count, REGIONS + 1))
    regions[:, : len(pack.spec.regions)] = pack.spec.regions
    penalty[:, : arrays["penalty"].shape[1]] = arrays["penalty"][groups]
    return Tables(
        arrays["slabs"], arrays["axes"], arrays["values"], arrays["marks"], arrays["sites"], arrays["curve"],
        arrays["col_ptr"], arrays["col_idx"], arrays["full"], arrays["full_rank"], arrays["rank"], arrays["least_a0"],
        penalty, regions,
        np.zeros((count * lay.R_ROWS, lay.R_COLUMNS)),
    )  # fmt: skip


def fill_roofs(tables: Tables, known: IntArray, slabs: IntArray, rows_of: Callable[[int], Rows]) -> None:
    """Fill the rooflines of slabs that are about to be used; `known` remembers which are there."""
    wanted = np.zeros(len(known), bool)
    wanted[slabs[slabs >= 0]] = True
    for slab in np.flatnonzero(wanted & (known == 0)):
        tables.roofs[slab * lay.R_ROWS : (slab + 1) * lay.R_ROWS] = sol.padded(rows_of(int(slab)))
        known[slab] = 1


class _Cutter:
    """Collects the parts of slabs that terms can touch into one set of small tables."""

    def __init__(self) -> None:
        self.slabs: list[IntArray] = []
        self.parts: dict[str, list[Any]] = {name: [] for name in Tables._fields}
        self.size = dict.fromkeys(Tables._fields, 0)

    def _put(self, name: str, data: Any) -> int:
        start = self.size[name]
        self.parts[name].append(data)
        self.size[name] += len(data)
        return start

    def cut(self, pack: Pack, slab: int, a0: float, a1: float | None, rows: Rows) -> int:
        """Copy what lookups at a fixed a0 (and, unless None, a fixed a1) can touch; return its slab number."""
        old = pack.slabs[slab]
        axis0, axis1, axis_x = (pack.axis(slab, number) for number in range(3))
        keep0, keep1 = _kept(pack, slab, a0, a1)
        row = old.copy()
        row[lay.A0_OFF], row[lay.A0_N] = self._put("axes", axis0[keep0]), len(keep0)
        row[lay.A1_OFF], row[lay.A1_N] = self._put("axes", axis1[keep1]), len(keep1)
        row[lay.X_OFF] = self._put("axes", axis_x)
        block = np.ix_(keep0, keep1)
        shape = (len(axis0), len(axis1), len(axis_x))
        row[lay.VAL_OFF] = self._put(
            "values", pack.arrays["values"][pack.cells(slab)].reshape(shape)[block].reshape(-1)
        )
        self._put("marks", pack.arrays["marks"][pack.cells(slab)].reshape(shape)[block].reshape(-1))
        at = int(old[lay.SITE_OFF])
        sites = pack.arrays["sites"][at : at + shape[0] * shape[1]].reshape(shape[0], shape[1], lay.SITE_COLUMNS)
        row[lay.SITE_OFF] = self._put("sites", sites[block].reshape(-1, lay.SITE_COLUMNS))
        for offset, count in ((lay.CLS0_OFF, lay.CLS0_N), (lay.CLS1_OFF, lay.CLS1_N)):
            row[offset] = self._put("curve", pack.arrays["curve"][old[offset] : old[offset] + old[count]])
        self._columns(pack, old, row, keep0, keep1, fixed=a1 is not None)
        self._put("least_a0", pack.arrays["least_a0"][slab : slab + 1])
        group = int(old[lay.GROUP])
        penalty, regions = np.ones(REGIONS + 1), np.full(REGIONS, np.inf)
        penalty[: len(pack.spec.regions) + 1] = pack.arrays["penalty"][group]
        regions[: len(pack.spec.regions)] = pack.spec.regions
        self._put("penalty", penalty[None])
        self._put("regions", regions[None])
        self._put("roofs", np.array(sol.padded(rows)))
        return self._put("slabs", row[None])

    def _columns(self, pack: Pack, old: IntArray, row: IntArray, keep0: Any, keep1: Any, *, fixed: bool) -> None:
        pointers, place = pack.arrays["col_ptr"], {int(i): n for n, i in enumerate(keep0)}
        row[lay.COL_OFF] = self.size["col_ptr"]
        listed_in = np.zeros((len(keep1), len(keep0)), bool)
        for number, column in enumerate(keep1):
            start = int(old[lay.COL_OFF]) + int(column)
            listed = pack.arrays["col_idx"][pointers[start] : pointers[start + 1]]
            mine = np.array([place[int(i)] for i in listed if int(i) in place], np.int32)
            self._put("col_ptr", np.array([self.size["col_idx"]], np.int32))
            self._put("col_idx", mine)
            listed_in[number, mine] = True
        self._put("col_ptr", np.array([self.size["col_idx"]], np.int32))
        full = pack.arrays["full"][old[lay.FULL_OFF] : old[lay.FULL_OFF] + old[lay.FULL_N]]
        kept = [n for n, i in enumerate(keep1) if fixed or i in full]
        row[lay.FULL_OFF], row[lay.FULL_N] = self._put("full", np.array(kept, np.int32)), len(kept)
        flags = np.isin(np.arange(len(keep1)), kept)
        self._put("full_rank", ranks(flags[None])[0].astype(np.int32))
        row[lay.RANK_OFF] = self._put("rank", ranks(listed_in).reshape(-1).astype(np.int32))

    def tables(self) -> Tables:
        """Join the pieces."""
        empty = {"slabs": np.zeros((0, lay.SLAB_COLUMNS), np.int64), "sites": np.zeros((0, lay.SITE_COLUMNS), np.int32),
                 "penalty": np.ones((0, REGIONS + 1)), "regions": np.ones((0, REGIONS)),
                 "roofs": np.zeros((0, lay.R_COLUMNS)), "marks": np.zeros(0, np.uint8)}  # fmt: skip
        kinds = dict.fromkeys(("curve", "col_ptr", "col_idx", "full", "full_rank", "rank"), np.int32)
        joined = [
            np.ascontiguousarray(np.concatenate(self.parts[name]))
            if self.parts[name]
            else empty.get(name, np.zeros(0, kinds.get(name, np.float64)))
            for name in Tables._fields
        ]
        return Tables(*joined)


def _kept(pack: Pack, slab: int, a0: float, a1: float | None) -> tuple[Any, Any]:
    """Choose the a0 and a1 positions that lookups at a fixed a0 can touch."""
    n1 = int(pack.slabs[slab, lay.A1_N])
    if a1 is not None:
        corners, _ = select(pack, slab, a0, a1)
        return np.unique([c.site // n1 for c in corners]), np.unique([c.site % n1 for c in corners])
    return np.array(sorted({i for column in range(n1) for i in around(pack, slab, a0, column)})), np.arange(n1)


class _Lines:
    """Collects the curves of queries whose site never moves, the sites around it blended once and for all."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.x: list[FloatArray] = []
        self.y: list[FloatArray] = []
        self.made: list[IntArray] = []
        self.slopes: list[list[float]] = []
        self.size = 0

    def add(self, pack: Pack, slab: int, a0: float, a1: float, rows: Rows) -> int:
        """Add a curve; -1 where an end of an axis, a penalty or a gap in a site's range rules it out."""
        corners, bits = select(pack, slab, a0, a1)
        row = pack.slabs[slab]
        held = bool(bits & SITE_EDGE)
        ends, bound = corners[0], _straight(rows, a0, a1)
        base = _straight(rows, ends.a0, ends.a1)
        if bits & ~(SITE_INTERPOLATED | SITE_EDGE) or row[lay.TRANSFORM]:
            return -1
        # Past the end of an axis one site holds its efficiency; anything else is left to the general way.
        if held and (len(corners) > 1 or not bound[0] or (ends.t0, ends.t1) != (a0, a1) or max(base[1:]) <= 0.0):
            return -1
        cells = pack.arrays["values"][pack.cells(slab)].reshape(-1, int(row[lay.X_N]))
        marks = pack.arrays["marks"][pack.cells(slab)].reshape(cells.shape)
        blend = np.zeros(cells.shape[1])
        for corner in corners:
            blend = blend + corner.weight * cells[corner.site]
        made = np.ones(len(blend), np.int64)
        if len(corners) == 1:
            made = (marks[corners[0].site] != lay.MEASURED).astype(np.int64)
        entry: list[int] = []
        slopes: list[float] = []
        sites = [pack.arrays["sites"][int(row[lay.SITE_OFF]) + corner.site] for corner in corners]
        for which, (offset, count) in enumerate(((lay.CLS0_OFF, lay.CLS0_N), (lay.CLS1_OFF, lay.CLS1_N))):
            index = pack.arrays["curve"][row[offset] : row[offset] + row[count]]
            low = max(int(ends[2 * which]) for ends in sites)
            high = min(int(ends[2 * which + 1]) for ends in sites)
            index = index[low : high + 1] if all(e[2 * which] <= e[2 * which + 1] for e in sites) else index[:0]
            entry += [self.size, len(index)]
            self.x.append(pack.axis(slab, 2)[index])
            self.y.append(blend[index])
            self.made.append(made[index])
            self.size += len(index)
            same = len({int(ends[2 * which + 1]) for ends in sites}) == 1
            slopes.append(np.nan)
            if same and len(index) >= 2 and row[lay.X_HIGH] == EDGE_CODES["last_slope"]:
                x, last = self.x[-1][-2:], index[-2:]
                steps = [(c.weight, float(np.diff(cells[c.site][last])[0] / np.diff(x)[0])) for c in corners]
                slopes[-1] = sum(weight * max(step, 0.0) for weight, step in steps)
        self.slopes.append([*slopes, bound[0], float(held), *bound[1:], *base[1:]])
        rule, value = int(row[lay.SPLIT_RULE]), int(row[lay.SPLIT_VALUE])
        if rule == 1 and value & (value - 1) == 0:  # a mask is faster than a division
            rule, value = 3, value - 1
        self.rows.append([*entry, rule, value])
        return len(self.rows) - 1


def _straight(rows: Rows, a0: float, a1: float) -> list[float]:
    """Return a roofline at a fixed site as two straight lines: whether it is that, then start and slope of each."""
    sums = [0.0, 0.0, 0.0, 0.0]
    for which, coefficient, p0, p1, form, parameter in rows:
        if form not in (sol.ONE, sol.LINE) or parameter:
            return [0.0, *sums]
        sums[2 * which + (form == sol.LINE)] += coefficient * a0**p0 * a1**p1
    return [1.0, *sums]


class _Surfaces:
    """Collects batch x length surfaces of slabs whose a0 is a measured one."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.floats: list[FloatArray] = []
        self.marks: list[IntArray] = []
        self.size = self.marked = 0

    def _put(self, data: FloatArray) -> int:
        self.floats.append(data)
        self.size += len(data)
        return self.size - len(data)

    def add(self, pack: Pack, slab: int, a0: float) -> int:
        """Add a surface; -1 where a0 lies between sites or a column lacks its beginning."""
        row = pack.slabs[slab]
        axis0, axis1 = pack.axis(slab, 0), pack.axis(slab, 1)
        i0 = int(np.searchsorted(axis0, a0))
        n1 = len(axis1)
        if i0 == len(axis0) or axis0[i0] != a0 or row[lay.SPLIT_RULE] == 1 or int(row[lay.FULL_N]) != n1:
            return -1
        start = int(row[lay.SITE_OFF]) + i0 * n1
        sites = pack.arrays["sites"][start : start + n1]
        if (sites[:, lay.LO0] != 0).any() or int(row[lay.CLS0_N]) == 0:
            return -1
        index = pack.arrays["curve"][row[lay.CLS0_OFF] : row[lay.CLS0_OFF] + row[lay.CLS0_N]]
        block = (slice(i0, i0 + 1), slice(None), index)
        shape = (len(axis0), n1, int(row[lay.X_N]))
        values = pack.arrays["values"][pack.cells(slab)].reshape(shape)[block].reshape(-1)
        filled = pack.arrays["marks"][pack.cells(slab)].reshape(shape)[block].reshape(-1) != lay.MEASURED
        marks = np.concatenate([sites[:, lay.HI0], filled]).astype(np.int64)
        apart = int(row[lay.SPLIT_VALUE]) if row[lay.SPLIT_RULE] == 2 else 0
        self.rows.append([
            self._put(axis1), n1, self._put(pack.axis(slab, 2)[index]), len(index), self._put(values), self.marked,
            int(row[lay.TRANSFORM]), apart,
        ])  # fmt: skip
        self.marks.append(marks)
        self.marked += len(marks)
        return len(self.rows) - 1


def build(plan: Plan, rows_of: Callable[[Term], Rows]) -> Program:
    """Flatten a plan.

    Parameters
    ----------
    plan
        The plan.
    rows_of
        Roofline of a term's slab, in the slab's own axes.
    """
    cutter, lines, surfaces = _Cutter(), _Lines(), _Surfaces()
    ops, parts_i, parts_f, terms_i, terms_f = [], [], [], [], []
    rows: list[sol.Row] = []
    alone = set(range(len(plan.ops))) - {i for joint in plan.joints for _, side in joint.sides for i, _ in side}

    def put_rows(more: Sequence[sol.Row]) -> tuple[int, int]:
        rows.extend(more)
        return len(rows) - len(more), len(more)

    def put_term(term: Term) -> int:
        fixed = term.a1.scale if term.a1.variable == wl.ONE else None
        slab = cutter.cut(term.pack, term.slab, term.a0, fixed, rows_of(term))
        line = surface = -1
        if plan.mode != "EMPIRICAL":
            if fixed is not None:
                line = lines.add(term.pack, term.slab, term.a0, fixed, rows_of(term))
            else:
                surface = surfaces.add(term.pack, term.slab, term.a0)
        terms_i.append([slab, term.a1.variable, term.x.variable, term.sign, line, surface])
        terms_f.append([term.a0, term.a1.scale, term.x.scale])
        return len(terms_i) - 1

    def put_part(found: Resolved) -> None:
        part, scale = found.part, found.scale
        first = [put_term(term) for term in found.terms]
        floor = put_term(scale.floor_term) if scale is not None and scale.floor_term is not None else -1
        where = put_rows(part.roofline)
        donor = put_rows(scale.donor) if scale else (0, 0)
        sol_only = plan.mode == "SOL"
        parts_i.append([
            part.sign, first[0] if first else 0, len(first), part.a1.variable, part.x.variable, *where,
            int(scale is not None), *donor, scale.a1.variable if scale else 0, scale.x.variable if scale else 0,
            floor, found.least,
        ])  # fmt: skip
        parts_f.append([
            part.a0, part.a1.scale, part.x.scale, 0.0 if sol_only else part.least, 0.0 if sol_only else part.constant,
            scale.floor if scale else 0.0, scale.a0 if scale else 0.0, scale.a1.scale if scale else 0.0,
            scale.x.scale if scale else 0.0, plan.smallest(found),
        ])  # fmt: skip

    for number, planned in enumerate(plan.ops):
        ops.append(
            [len(parts_i), len(planned.parts), int(any(p.part.sign < 0 for p in planned.parts)), int(number in alone)]
        )
        for found in planned.parts:
            put_part(found)
    joint, side, member, times = _joints(plan)
    return _flat(_Parts(
        cutter.tables(), _table(ops, k.OP_INTS, np.int64), plan.layers, _table(parts_i, k.PART_INTS, np.int64),
        _table(parts_f, k.PART_FLOATS, np.float64), _table(terms_i, k.TERM_INTS, np.int64),
        _table(terms_f, k.TERM_FLOATS, np.float64), _table(rows, lay.R_COLUMNS, np.float64), joint, side, member, times,
            _table(lines.rows, k.LINE_INTS, np.int64), _joined(lines.x, np.float64), _joined(lines.y, np.float64),
            _joined(lines.made, np.int64), _table(lines.slopes, k.LINE_FLOATS, np.float64), np.zeros((len(ops), 1)),
            np.zeros((wl.VARIABLES, 1)), np.zeros(2), np.zeros(1, np.int64),
            _table(surfaces.rows, k.SURFACE_INTS, np.int64), _joined(surfaces.floats, np.float64),
            _joined(surfaces.marks, np.int64),
    ))  # fmt: skip


def _flat(parts: _Parts) -> Program:
    arrays = [*parts.tables, *parts[1:]]
    header = np.zeros(2 * len(arrays), np.int64)
    homes: dict[tuple[bool, int], list[Any]] = {(False, 1): [header], (True, 1): [], (False, 2): [], (True, 2): []}
    sizes = {home: sum(len(part) for part in held) for home, held in homes.items()}
    for number, array in enumerate(arrays):
        home = (array.dtype == np.float64, array.ndim)
        homes[home].append(array)
        header[2 * number : 2 * number + 2] = sizes[home], sizes[home] + len(array)
        sizes[home] += len(array)
    return Program(
        np.concatenate(homes[False, 1]).astype(np.int64),
        np.concatenate(homes[True, 1]),
        _stack(homes[False, 2], np.int64),
        _stack(homes[True, 2], np.float64),
    )


def _stack(tables: Sequence[Any], kind: Any) -> Any:
    out = np.zeros((sum(len(table) for table in tables), max(table.shape[1] for table in tables)), kind)
    at = 0
    for table in tables:
        out[at : at + len(table), : table.shape[1]] = table
        at += len(table)
    return out


def _joints(plan: Plan) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
    sides: list[list[int]] = []
    member: list[int] = []
    times: list[float] = []
    for number, joint in enumerate(plan.joints):
        for _, side in joint.sides:
            sides.append([number, len(member), len(side)])
            member += [i for i, _ in side]
            times += [often for _, often in side]
    return (
        np.array([joint.count for joint in plan.joints], np.float64), _table(sides, k.SIDE_INTS, np.int64),
        np.array(member, np.int64), np.array(times, np.float64),
    )  # fmt: skip


def _table(rows: Sequence[Sequence[Any]], columns: int, kind: Any) -> Any:
    return np.array(rows, kind).reshape(len(rows), columns)


def _joined(parts: Sequence[Any], kind: Any) -> Any:
    return np.concatenate(parts).astype(kind) if parts else np.zeros(0, kind)
