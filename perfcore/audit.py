"""What the measured tables hold, how well they predict themselves, and what in them looks wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import gaps
from . import layout as lay
from . import pack as packing
from .policy import load as load_policy
from .specs import SPECS
from .store import read_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .pack import Columns, FloatArray, IntArray, Pack
    from .specs import TableSpec
    from .store import Store

FALLS: Final = 0.9  # a step along x to less than this is reported
SPIKES: Final = 1.5  # a sample this far above both neighbours is
# Kernels replayed from a graph start in microseconds; a group whose cheapest rows are above this was launched eagerly.
EAGER_FLOOR_MS: Final = 0.1
ENOUGH: Final = 20


@dataclass(frozen=True, slots=True)
class ErrorLine:
    r"""Leave-one-out error of one group by one method: median and 95 % quantile of \\|predicted / measured - 1\\|."""

    group: tuple[str, ...]
    method: str
    rows: int
    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something in the rows that a reader should know; never corrected."""

    kind: str
    group: tuple[str, ...]
    count: int
    share: float
    example: str


@dataclass(slots=True)
class TableAudit:
    """Audit of one table.

    Attributes
    ----------
    name, rows, duplicates
        Table, distinct rows, and rows that a later one with the same key replaced.
    coverage
        Per group: rows, slabs, and the share of grid cells inside the measured range that are filled in.
    errors, anomalies
        Findings.
    inexact
        Rows that a lookup did not return bit for bit, or -1 when not checked.
    """

    name: str
    rows: int
    duplicates: int
    coverage: list[tuple[tuple[str, ...], int, int, float]] = field(default_factory=list)
    errors: list[ErrorLine] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    inexact: int = -1


def audit(store: Store, tables: Sequence[str] = (), *, exact: bool = False) -> list[TableAudit]:
    """Audit tables.

    Parameters
    ----------
    store
        Where they lie.
    tables
        Names; all by default.
    exact
        Also look every row up and compare bit for bit.

    Raises
    ------
    UsageError
        BL512: unknown table.
    """
    found = []
    for name in tables or SPECS:
        if not tables and not store.files(name):
            continue
        store.table(name)
        spec = SPECS[name]
        columns = read_columns(spec, store.files(name))
        pack = packing.build(spec, columns)
        one = TableAudit(name, pack.notes["rows"], pack.notes["duplicates"])
        one.coverage = list(_coverage(pack))
        one.errors = list(_errors(pack))
        one.anomalies = [*_steps(pack), *_eager(pack), *_slower(pack)]
        if one.duplicates:
            share = one.duplicates / len(columns)
            one.anomalies.insert(0, Anomaly("duplicate keys, the last row stays", (), one.duplicates, share, ""))
        if exact:
            one.inexact = count_inexact(store, spec, columns)
        found.append(one)
    return found


def count_inexact(store: Store, spec: TableSpec, columns: Columns) -> int:
    """Look every row up and count those that do not come back bit for bit, called measured."""
    from .batch import Lookups

    lookups = Lookups(store, load_policy(), spec.name)
    keys: dict[str, Any] = {
        c: np.array(columns.text[c].names)[columns.text[c].codes] if c in columns.text else columns.data[c]
        for c in spec.keys
    }
    zeros = np.zeros(len(columns))
    coordinates = [zeros if axis is None else columns.data[axis.column].astype(np.float64) for axis in spec.axes]
    ms, status = lookups(lookups.pack.find_many(keys), coordinates[0], coordinates[1], coordinates[2])
    wrong = (ms != columns.data["latency_ms"]) | (status != 0)
    duplicates = int(lookups.pack.notes["duplicates"])
    return max(int(wrong.sum()) - duplicates, 0)


def _names(pack: Pack) -> list[tuple[str, ...]]:
    columns = [c for c in ("system", "backend", "backend_version", pack.spec.lane, *pack.spec.split_by) if c]
    return [
        tuple(str(pack.vocab[c][int(code)]) for c, code in zip(columns, codes, strict=True))
        for codes in pack.arrays["groups"]
    ]


def _cells(pack: Pack) -> tuple[IntArray, IntArray, FloatArray]:
    """Measured cells, their groups and their x."""
    cell = np.flatnonzero(pack.arrays["marks"] == lay.MEASURED)
    row = pack.slabs[np.searchsorted(pack.slabs[:, lay.VAL_OFF], cell, side="right") - 1]
    x = pack.arrays["axes"][row[:, lay.X_OFF] + (cell - row[:, lay.VAL_OFF]) % row[:, lay.X_N]]
    return cell, row[:, lay.GROUP], x


def _coverage(pack: Pack) -> Iterator[tuple[tuple[str, ...], int, int, float]]:
    _, group, _ = _cells(pack)
    rows = np.bincount(group, minlength=len(pack.arrays["groups"]))
    slabs = np.bincount(pack.slabs[:, lay.GROUP], minlength=len(rows))
    gap = np.flatnonzero(pack.arrays["marks"] == lay.FILLED)
    row = pack.slabs[np.searchsorted(pack.slabs[:, lay.VAL_OFF], gap, side="right") - 1]
    filled = np.bincount(row[:, lay.GROUP], minlength=len(rows))
    for name, count, many, holes in zip(_names(pack), rows.tolist(), slabs.tolist(), filled.tolist(), strict=True):
        yield name, count, many, holes / (count + holes)


def _errors(pack: Pack) -> Iterator[ErrorLine]:
    if pack.guesses is None:
        raise ValueError("only a freshly built pack can be audited")
    cell, group, _ = _cells(pack)
    y = pack.arrays["values"][cell]
    guesses = pack.guesses[:, cell]
    methods = {
        "along x": guesses[gaps.ALONG_X],
        "gap": gaps.combined(guesses, sites=pack.spec.sites),
        "along a0": guesses[gaps.ALONG_A0],
        "along a1": guesses[gaps.ALONG_A1],
    }
    for number, name in enumerate(_names(pack)):
        mine = group == number
        for method, guess in methods.items():
            error = np.abs(guess[mine] / y[mine] - 1.0)
            error = error[np.isfinite(error)]
            if len(error) >= ENOUGH:
                middle, high = np.quantile(error, (0.5, 0.95))
                yield ErrorLine(name, method, len(error), float(middle), float(high))


def _steps(pack: Pack) -> Iterator[Anomaly]:
    """Falling steps and lone spikes along x."""
    cell, slab, start, end = gaps.curve_cells(pack.arrays, 0)
    known = pack.arrays["marks"][cell] == lay.MEASURED
    y = pack.arrays["values"][cell]
    before, after = gaps.neighbours(known, start, end)
    group = pack.slabs[slab, lay.GROUP]
    names = _names(pack)
    has = known & (before >= 0)
    both = has & (after >= 0)
    fall, spike = np.ones(len(y)), np.ones(len(y))
    fall[has] = y[has] / y[before[has]]
    spike[both] = np.minimum(y[both] / y[before[both]], y[both] / y[after[both]])
    for number, name in enumerate(names):
        mine = group == number
        for kind, hit, worst in (
            ("falls by over 10 % to the next x", mine & (fall < FALLS), fall),
            ("stands over 1.5 x above both neighbours", mine & (spike > SPIKES), -spike),
        ):
            places = np.flatnonzero(hit)
            if len(places):
                at = int(places[np.argmin(worst[places])])
                share = len(places) / max(int((mine & has).sum()), 1)
                ratio = abs(float(worst[at]))
                yield Anomaly(kind, name, len(places), share, f"x {ratio:.2f} at {_where(pack, int(cell[at]))}")


def _eager(pack: Pack) -> Iterator[Anomaly]:
    """Groups whose every row sits on a launch floor that other groups do not show."""
    if pack.spec.name not in ("gemm", "moe", "custom_allreduce", "nccl"):
        return
    cell, group, _ = _cells(pack)
    y = pack.arrays["values"][cell]
    floors = [float(np.quantile(y[group == g], 0.01)) for g in range(len(pack.arrays["groups"]))]
    usual = float(np.median(floors))
    for number, (name, floor) in enumerate(zip(_names(pack), floors, strict=True)):
        if floor > max(3.0 * usual, EAGER_FLOOR_MS / 5.0) or "eager" in " ".join(name):
            count = int((group == number).sum())
            yield Anomaly("launch floor: timed eagerly", name, count, 1.0, f"cheapest 1 % cost {floor:.4f} ms")


def _slower(pack: Pack) -> Iterator[Anomaly]:
    """Shapes where a narrow lane is slower than bfloat16."""
    spec = pack.spec
    if spec.name not in ("gemm", "moe"):
        return
    for slab in range(len(pack.slabs)):
        key = pack.key(slab)
        if key["quant_mode"] == "bfloat16" or (spec.name == "moe" and key["routing_distribution"] != "balanced"):
            continue
        other = pack.find(key | {"quant_mode": "bfloat16"})
        if other < 0:
            continue
        ratio = _ratio(pack, slab, other)
        if len(ratio) and (ratio > 1.0).any() and (spec.name == "gemm" or (ratio > 1.0).mean() > 0.5):
            name = tuple(str(key[c]) for c in spec.keys)
            count, share = int((ratio > 1.0).sum()), float((ratio > 1.0).mean())
            kind = "slower than bfloat16" + (" at m >= 4096, n and k >= 2048" if spec.name == "gemm" else "")
            yield Anomaly(kind, name, count, share, f"median ratio {np.median(ratio):.2f}")


def _ratio(pack: Pack, slab: int, other: int) -> FloatArray:
    """Latency ratio of two slabs at the points that both measured (GEMM: large ones only)."""
    least = (2048, 2048, 4096) if pack.spec.name == "gemm" else (0, 0, 0)
    shared = [
        np.intersect1d(pack.axis(slab, number), pack.axis(other, number), return_indices=True) for number in range(3)
    ]
    chosen = [axis[0] >= low for axis, low in zip(shared, least, strict=True)]
    parts = []
    for one, column in ((slab, 1), (other, 2)):
        row, cells = pack.slabs[one], pack.cells(one)
        shape = (int(row[lay.A0_N]), int(row[lay.A1_N]), int(row[lay.X_N]))
        block = np.ix_(*(axis[column][keep] for axis, keep in zip(shared, chosen, strict=True)))
        known = pack.arrays["marks"][cells].reshape(shape)[block] == lay.MEASURED
        parts.append(np.where(known, pack.arrays["values"][cells].reshape(shape)[block], np.nan))
    ratio: FloatArray = (parts[0] / parts[1]).reshape(-1)
    return ratio[~np.isnan(ratio)]


def _where(pack: Pack, cell: int) -> str:
    slab = int(np.searchsorted(pack.slabs[:, lay.VAL_OFF], cell, side="right") - 1)
    row = pack.slabs[slab]
    within = cell - int(row[lay.VAL_OFF])
    n1, nx = int(row[lay.A1_N]), int(row[lay.X_N])
    place = (within // nx // n1, within // nx % n1, within % nx)
    shown = [
        f"{axis.column}={pack.axis(slab, number)[place[number]]:.0f}"
        for number, axis in enumerate(pack.spec.axes)
        if axis is not None
    ]
    key = pack.key(slab)
    shown += [f"{c}={key[c]}" for c in pack.spec.keys if c not in ("system", "backend", "backend_version")]
    return " ".join(shown)
