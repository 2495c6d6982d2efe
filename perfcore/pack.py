"""From table columns to packed arrays: slabs of one key, dense over their axes, with the gaps marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import MissingDataError
from . import gaps
from . import layout as lay
from .specs import EDGE_CODES, ORIGIN, TRANSFORM_CODES, Axis, TableSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
NO_KERNEL: Final = 255


@dataclass(slots=True)
class Coded:
    """A text column: sorted names and every row's position among them."""

    names: list[str]
    codes: IntArray

    @classmethod
    def of(cls, values: Sequence[str]) -> Coded:
        """Code a plain sequence."""
        names, codes = np.unique(np.asarray(values, dtype=str), return_inverse=True)
        return cls([str(name) for name in names], codes.astype(np.int64))

    @classmethod
    def join(cls, parts: Sequence[Coded]) -> Coded:
        """Concatenate, and drop names that no row uses."""
        names = sorted({name for part in parts for name in part.names})
        place = {name: i for i, name in enumerate(names)}
        codes = np.concatenate([np.array([place[n] for n in p.names], np.int64)[p.codes] for p in parts])
        used, codes = np.unique(codes, return_inverse=True)
        return cls([names[int(i)] for i in used], codes.astype(np.int64))


@dataclass(slots=True)
class Columns:
    """A table as plain columns: text coded, counts as int64, latency as float64 milliseconds."""

    data: dict[str, npt.NDArray[Any]]
    text: dict[str, Coded] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.data["latency_ms"])

    def take(self, rows: npt.NDArray[Any]) -> Columns:
        """Return some of the rows, by number or mask."""
        text = {name: Coded.join([Coded(column.names, column.codes[rows])]) for name, column in self.text.items()}
        return Columns({name: column[rows] for name, column in self.data.items()}, text)


@dataclass(slots=True)
class Pack:
    """One packed table.

    Attributes
    ----------
    spec
        The declaration it was packed by.
    vocab
        Sorted values of every key column; `keys` holds their positions.
    kernels
        Names behind `kernel` codes.
    arrays
        Flat arrays, see :mod:`bitlane.perfcore.layout`. ``values`` are milliseconds.
    notes
        What the packer noticed: number of rows, duplicate keys.
    guesses
        Of a freshly built pack: what the neighbours of every cell say of it (:func:`bitlane.perfcore.gaps.estimates`).
    """

    spec: TableSpec
    vocab: dict[str, list[str | int]]
    kernels: list[str]
    arrays: dict[str, npt.NDArray[Any]]
    notes: dict[str, Any] = field(default_factory=dict)
    guesses: FloatArray | None = field(default=None, repr=False)
    _lookup: dict[str, dict[str | int, int]] = field(default_factory=dict, repr=False)

    @property
    def slabs(self) -> IntArray:
        """Integer table of the slabs, shape [slabs, SLAB_COLUMNS]."""
        return self.arrays["slabs"]

    def codes(self, column: str) -> dict[str | int, int]:
        """Return the position of every value of a key column."""
        found = self._lookup.get(column)
        if found is None:
            found = self._lookup[column] = {value: i for i, value in enumerate(self.vocab[column])}
        return found

    def find(self, key: Mapping[str, str | int]) -> int:
        """Return the slab of a full key, or -1."""
        ident = 0
        for column in self.spec.keys:
            code = self.codes(column).get(key[column])
            if code is None:
                return -1
            ident = ident * max(len(self.vocab[column]), 1) + code
        ids = self.arrays["key_ids"]
        place = int(np.searchsorted(ids, ident))
        return place if place < len(ids) and int(ids[place]) == ident else -1

    def find_many(self, key: Mapping[str, Sequence[str | int] | npt.NDArray[Any]]) -> IntArray:
        """Return the slab of every row of key columns, -1 where there is none."""
        size = len(next(iter(key.values())))
        ident = np.zeros(size, np.int64)
        known = np.ones(size, bool)
        for column in self.spec.keys:
            codes = self.codes(column)
            values, inverse = np.unique(np.asarray(key[column]), return_inverse=True)
            mapped = np.array([codes.get(_plain(value), -1) for value in values], np.int64)[inverse]
            known &= mapped >= 0
            ident = ident * max(len(self.vocab[column]), 1) + mapped
        ids = self.arrays["key_ids"]
        place = np.minimum(np.searchsorted(ids, ident), max(len(ids) - 1, 0))
        known &= ids[place] == ident if len(ids) else False
        return np.where(known, place, -1)

    def key(self, slab: int) -> dict[str, str | int]:
        """Return the key columns of a slab."""
        codes = self.arrays["keys"][slab]
        return {column: self.vocab[column][int(code)] for column, code in zip(self.spec.keys, codes, strict=True)}

    def axis(self, slab: int, number: int) -> FloatArray:
        """Return the sorted coordinates of axis 0, 1 or 2 (x)."""
        row = self.slabs[slab]
        offset, count = int(row[2 * number]), int(row[2 * number + 1])
        return self.arrays["axes"][offset : offset + count]

    def cells(self, slab: int) -> slice:
        """Return the range of the slab's cells in ``values``."""
        row = self.slabs[slab]
        start = int(row[lay.VAL_OFF])
        return slice(start, start + int(row[lay.A0_N] * row[lay.A1_N] * row[lay.X_N]))


def _plain(value: Any) -> str | int:
    return str(value) if isinstance(value, str) else int(value)


def build(spec: TableSpec, columns: Columns) -> Pack:
    """Pack a table.

    Parameters
    ----------
    spec
        Its declaration.
    columns
        Its rows, in order of preference: of rows with the same key the last one stays.

    Raises
    ------
    MissingDataError
        BL510: the table has no rows or a non-positive or non-finite latency.
    """
    data = columns.data
    latency = np.ascontiguousarray(data["latency_ms"], np.float64)
    if not len(latency) or not np.isfinite(latency).all() or (latency <= 0).any():
        raise MissingDataError(
            "BL510", f"table `{spec.name}` is empty or holds a latency that is not positive and finite"
        )
    vocab, codes = _encode(spec, columns)
    ident = np.zeros(len(latency), np.int64)
    for column in spec.keys:
        ident = ident * max(len(vocab[column]), 1) + codes[column]
    ids, slab = np.unique(ident, return_inverse=True)
    first = np.zeros(len(ids), np.int64)
    first[slab[::-1]] = np.arange(len(latency))[::-1]
    slabs = np.zeros((len(ids), lay.SLAB_COLUMNS), np.int64)
    keys = np.stack([codes[column][first] for column in spec.keys], axis=1).astype(np.int32)

    axes, places = _axes(spec, data, slab, slabs)
    counts = slabs[:, lay.A0_N] * slabs[:, lay.A1_N]
    slabs[:, lay.SITE_OFF] = np.cumsum(counts) - counts
    cells = counts * slabs[:, lay.X_N]
    slabs[:, lay.VAL_OFF] = np.cumsum(cells) - cells
    row = slabs[slab]
    cell = row[:, lay.VAL_OFF] + (places[0] * row[:, lay.A1_N] + places[1]) * row[:, lay.X_N] + places[2]
    values = np.full(int(cells.sum()), np.nan)
    values[cell] = latency
    marks = np.zeros(len(values), np.uint8)
    marks[cell] = lay.MEASURED
    kernels, kernel = _kernels(columns, cell, len(values))
    slabs[:, lay.SOURCE] = data["source_id"][first] if "source_id" in data else -1
    groups = _rules(spec, vocab, keys, slabs)
    curve = _curves(slabs, axes)
    arrays: dict[str, npt.NDArray[Any]] = {
        "keys": keys, "key_ids": ids, "slabs": slabs, "axes": axes, "values": values, "marks": marks,
        "kernel": kernel, "curve": curve, "groups": groups,
    }  # fmt: skip
    gaps.fill(arrays, guesses := gaps.estimates(arrays), sites=spec.sites)
    arrays |= _columns(arrays)
    # The smallest a0 of a complete column, where a kernel does the least work.
    first_column = slabs[:, lay.COL_OFF] + arrays["full"][slabs[:, lay.FULL_OFF]]
    arrays["least_a0"] = axes[slabs[:, lay.A0_OFF] + arrays["col_idx"][arrays["col_ptr"][first_column]]]
    notes = {
        "rows": int((marks == lay.MEASURED).sum()),
        "duplicates": len(latency) - int((marks == lay.MEASURED).sum()),
    }
    return Pack(spec, vocab, kernels, arrays, notes, guesses)


def _encode(spec: TableSpec, columns: Columns) -> tuple[dict[str, list[str | int]], dict[str, IntArray]]:
    vocab: dict[str, list[str | int]] = {}
    codes: dict[str, IntArray] = {}
    for column in spec.keys:
        if column in columns.text:
            vocab[column] = [*columns.text[column].names]
            codes[column] = columns.text[column].codes
        else:
            values, inverse = np.unique(columns.data[column], return_inverse=True)
            vocab[column] = [int(value) for value in values]
            codes[column] = inverse.astype(np.int64)
    return vocab, codes


def _axes(
    spec: TableSpec, data: Mapping[str, npt.NDArray[Any]], slab: IntArray, slabs: IntArray
) -> tuple[FloatArray, list[IntArray]]:
    """Collect the distinct coordinates per slab and axis, and every row's place among them."""
    parts: list[FloatArray] = []
    places: list[IntArray] = []
    base = 0
    for number, axis in enumerate(spec.axes):
        coordinate = np.zeros(len(slab), np.int64) if axis is None else data[axis.column].astype(np.int64)
        order = np.lexsort((coordinate, slab))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(slab[order]) != 0) | (np.diff(coordinate[order]) != 0)
        entry = np.empty(len(order), np.int64)
        entry[order] = np.cumsum(new) - 1
        count = np.bincount(slab[order][new], minlength=len(slabs))
        start = np.cumsum(count) - count
        slabs[:, 2 * number] = base + start
        slabs[:, 2 * number + 1] = count
        places.append(entry - start[slab])
        parts.append(coordinate[order][new].astype(np.float64))
        base += len(parts[-1])
    return np.concatenate(parts), places


def _kernels(columns: Columns, cell: IntArray, size: int) -> tuple[list[str], npt.NDArray[np.uint8]]:
    codes = np.full(size, NO_KERNEL, np.uint8)
    named = columns.text.get("kernel_source")
    if named is None:
        return [], codes
    if len(named.names) < NO_KERNEL:
        codes[cell] = named.codes
    return named.names, codes


def _rules(
    spec: TableSpec, vocab: Mapping[str, list[str | int]], keys: npt.NDArray[np.int32], slabs: IntArray
) -> npt.NDArray[np.int32]:
    """Write the declared rules into every slab row; return the key codes of every group (origin x lane)."""
    wanted = [spec.keys.index(c) for c in (*ORIGIN, spec.lane, *spec.split_by) if c]
    groups, member = np.unique(keys[:, wanted], axis=0, return_inverse=True)
    slabs[:, lay.GROUP] = member.reshape(-1)
    for number, column in ((0, lay.A0_HIGH), (1, lay.A1_HIGH), (2, lay.X_HIGH)):
        axis = spec.axes[number]
        slabs[:, column] = EDGE_CODES[axis.high] if axis else 0
    for number, column in ((0, lay.ALIGN0), (1, lay.ALIGN1)):
        slabs[:, column] = _alignment(spec, spec.axes[number], vocab, keys)
    if spec.sqrt_where is not None:
        slabs[:, lay.TRANSFORM] = np.where(_matches(spec, spec.sqrt_where, vocab, keys), TRANSFORM_CODES["sqrt"], 0)
    if spec.split is not None:
        hit = _matches(spec, spec.split.where, vocab, keys)
        slabs[:, lay.SPLIT_RULE] = np.where(hit, 1 if spec.split.rule == "modulo" else 2, 0)
        slabs[:, lay.SPLIT_VALUE] = spec.split.value
    return groups.astype(np.int32)


def _matches(
    spec: TableSpec, where: Mapping[str, Any], vocab: Mapping[str, list[str | int]], keys: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    hit = np.ones(len(keys), bool)
    for column, value in where.items():
        code = vocab[column].index(value) if value in vocab[column] else -1
        hit &= keys[:, spec.keys.index(column)] == code
    return hit


def _alignment(
    spec: TableSpec, axis: Axis | None, vocab: Mapping[str, list[str | int]], keys: npt.NDArray[np.int32]
) -> IntArray:
    if axis is None or not axis.align:
        return np.ones(len(keys), np.int64)
    by_code = np.array([axis.align.get(str(value), 1) for value in vocab[spec.lane]], np.int64)
    return by_code[keys[:, spec.keys.index(spec.lane)]]


def _curves(slabs: IntArray, axes: FloatArray) -> npt.NDArray[np.int32]:
    """List, per slab, the x indices of its one or two interleaved curves."""
    parts: list[IntArray] = []
    base = 0
    for row in slabs:
        x = axes[row[lay.X_OFF] : row[lay.X_OFF] + row[lay.X_N]]
        if row[lay.SPLIT_RULE] == 0:
            lists = (np.arange(len(x)), np.arange(0))
        else:
            odd = x % row[lay.SPLIT_VALUE] != 0 if row[lay.SPLIT_RULE] == 1 else x == row[lay.SPLIT_VALUE]
            second = odd.copy()
            if row[lay.SPLIT_RULE] == 1 and odd.any():
                second |= x > x[odd].max()  # past its own end the second curve goes on with the first
            lists = (np.flatnonzero(~odd), np.flatnonzero(second))
        for number, part in enumerate(lists):
            row[(lay.CLS0_OFF, lay.CLS1_OFF)[number]] = base
            row[(lay.CLS0_N, lay.CLS1_N)[number]] = len(part)
            parts.append(part)
            base += len(part)
    return np.concatenate(parts).astype(np.int32)


def _columns(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[np.int32]]:
    """List, per a1 column, the aligned a0 sites that exist; and which columns are complete enough to blend between."""
    slabs, axes, sites = arrays["slabs"], arrays["axes"], arrays["sites"]
    pointers: list[int] = []
    parts: dict[str, list[npt.NDArray[Any]]] = {"col_idx": [], "full": [], "full_rank": [], "rank": []}
    filled = n_full = ranked = 0
    for row in slabs:
        n0, n1 = int(row[lay.A0_N]), int(row[lay.A1_N])
        part = sites[row[lay.SITE_OFF] : row[lay.SITE_OFF] + n0 * n1].reshape(n0, n1, lay.SITE_COLUMNS)
        exists = (part[:, :, lay.LO0] <= part[:, :, lay.HI0]) | (part[:, :, lay.LO1] <= part[:, :, lay.HI1])
        a0 = axes[row[lay.A0_OFF] : row[lay.A0_OFF] + n0]
        aligned = exists & (a0 % row[lay.ALIGN0] == 0)[:, None]
        row[lay.COL_OFF] = len(pointers)
        population = aligned.sum(axis=0)
        pointers += [filled, *(filled + np.cumsum(population)).tolist()]
        filled = pointers[-1]
        parts["col_idx"].append(np.nonzero(aligned.T)[1])
        complete = (population * 2 >= population.max()) & (population > 0)
        row[lay.FULL_OFF], row[lay.FULL_N] = n_full, int(complete.sum())
        n_full += int(complete.sum())
        parts["full"].append(np.flatnonzero(complete))
        parts["full_rank"].append(ranks(complete[None])[0])
        row[lay.RANK_OFF] = ranked
        parts["rank"].append(ranks(aligned.T).reshape(-1))
        ranked += n1 * (n0 + 1)
    joined = {name: np.concatenate(pieces).astype(np.int32) for name, pieces in parts.items()}
    return joined | {"col_ptr": np.array(pointers, np.int32)}


def ranks(member: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return, per row of flags, how many are set before each position, the end included."""
    out = np.zeros((member.shape[0], member.shape[1] + 1), np.int64)
    np.cumsum(member, axis=1, out=out[:, 1:])
    return out
