"""Questions to one table: a price, its source, its origin and its band for every key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..errors import MissingDataError, UsageError
from . import bands, reference, sol
from .explain import nearest
from .pack import NO_KERNEL
from .policy import load as load_policy
from .resolved import EXTRAPOLATED, INTERPOLATED, MEASURED, ROOFLINE, SOURCES, TRANSFERRED
from .specs import MISSING, SITE_EDGE, TEXT_COLUMNS, X_EDGE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .pack import FloatArray, IntArray, Pack
    from .store import Store

Mode = Literal["SILICON", "HYBRID", "SOL"]
NOT_FOUND: Final = len(SOURCES)
NAMES: Final = (*SOURCES, "missing")
# Fewer questions than this are answered by numpy before numba has started.
WORTH_COMPILING: Final = 4_000


@dataclass(slots=True)
class Answers:
    """Answers to the questions of one table, in their order.

    Attributes
    ----------
    ms
        Milliseconds; NaN where nothing answers.
    source
        Position in ``NAMES``; the last one means missing.
    low, high
        90 % band in milliseconds.
    version
        Version of the rows behind each answer, empty for a roofline; left out (an empty list) for large batches.
    kernel
        Kernel that ran, where the answer is one measured row; empty words for large batches.
    """

    ms: FloatArray
    source: IntArray
    low: FloatArray
    high: FloatArray
    version: list[str]
    kernel: list[str]


def ask(store: Store, table: str, columns: Mapping[str, Any], *, mode: Mode = "SILICON") -> Answers:
    """Answer questions to one table.

    Parameters
    ----------
    store
        Tables.
    table
        Table name.
    columns
        Key and axis columns of the table, each of the same length. A key column may be left out where the table holds
        a single value; columns that the table does not use are ignored.
    mode
        ``SILICON``: rows of the version, else of another version of the same backend (called ``transferred``);
        ``HYBRID``: else the roofline; ``SOL``: the roofline.

    Raises
    ------
    UsageError
        BL512: unknown table; BL527: a column is missing, empty or not of its type.
    """
    pack = store.table(table)
    keys, axes = _columns(pack, columns)
    size = len(axes[2])
    slab = pack.find_many(keys) if mode != "SOL" else np.full(size, -1)
    donated = _donors(pack, keys, slab) if mode != "SOL" else np.zeros(size, bool)
    ms, status, kernel = _evaluate(store, pack, slab, axes)
    edge = (status & (X_EDGE | SITE_EDGE)) != 0
    source = np.where(edge, EXTRAPOLATED, np.where(status != 0, INTERPOLATED, MEASURED))
    source = np.where(donated, TRANSFERRED, np.where(status == MISSING, NOT_FOUND, source))
    spread = np.ones((size, 2))
    for flag in (False, True):
        part = (donated == flag) & (slab >= 0)
        if part.any():
            spread[part] = bands.factors(pack, slab[part], status[part], axes[2][part], version=flag)
    if mode != "SILICON":
        _rooflines(store, pack, keys, axes, ms, source)
    versions = (
        [str(pack.key(int(s))["backend_version"]) if s >= 0 else "" for s in slab] if size < WORTH_COMPILING else []
    )
    names = [pack.kernels[int(code)] if code != NO_KERNEL else "" for code in kernel]
    return Answers(ms, source, ms * spread[:, 0], ms * spread[:, 1], versions, names)


def ask_file(store: Store, table: str, queries: Path, output: Path, *, mode: Mode = "SILICON") -> tuple[int, int]:
    """Answer a parquet file of questions.

    The output holds the input's rows and columns, and ``predicted_ms``, ``source``, ``band_lo_ms``, ``band_hi_ms``.

    Returns
    -------
    tuple
        Number of questions, and how many found no answer (``source`` is ``missing``, the numbers are null).

    Raises
    ------
    UsageError
        BL527: the file cannot be read, or its columns do not fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from .cache import write_atomic

    try:
        asked = pq.read_table(queries)
    except (OSError, pa.ArrowException) as error:
        raise UsageError("BL527", f"the file of questions cannot be read: {error}", place=str(queries)) from error
    names = set(asked.column_names) & set(store.table(table).spec.columns)
    columns = {name: _plain_column(asked[name]) for name in names}
    answers = ask(store, table, columns, mode=mode) if len(asked) else None
    for name in ("predicted_ms", "source", "band_lo_ms", "band_hi_ms"):
        if name in asked.column_names:
            asked = asked.drop_columns([name])
    numbers: dict[str, Any] = {
        "predicted_ms": answers.ms if answers else [],
        "band_lo_ms": answers.low if answers else [],
        "band_hi_ms": answers.high if answers else [],
    }
    for name, values in numbers.items():
        data = np.asarray(values, float)
        asked = asked.append_column(name, pa.array(data, pa.float64(), mask=np.isnan(data)))
    words = pa.array([NAMES[code] for code in answers.source] if answers else [], pa.string())
    asked = asked.add_column(asked.column_names.index("predicted_ms") + 1, "source", words)
    sink = pa.BufferOutputStream()
    pq.write_table(asked, sink, compression="zstd")
    try:
        write_atomic(output, [memoryview(sink.getvalue())])
    except OSError as error:
        raise UsageError("BL527", f"cannot write: {error.strerror or error}", place=str(output)) from error
    return len(asked), int((answers.source == NOT_FOUND).sum()) if answers else 0


def complete(store: Store, table: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Add the key columns that hold a single value in the table."""
    pack = store.table(table)
    return {c: pack.vocab[c][0] for c in pack.spec.keys if len(pack.vocab[c]) == 1} | dict(key)


def missing_error(store: Store, table: str, key: Mapping[str, Any]) -> MissingDataError:
    """Return the error for a single question without an answer: what is missing and what lies nearest."""
    pack = store.table(table)
    spec = pack.spec
    quant = str(key.get(spec.lane, "")) if spec.lane else ""
    near = nearest(pack, {c: v for c, v in key.items() if c in spec.keys}, quant)
    system, backend, version = (key.get(c, "") for c in ("system", "backend", "backend_version"))
    return MissingDataError(
        "BL501",
        f"{spec.label} perf data missing" + (f" for quant '{quant}'" if quant else ""),
        place=f"{table}: " + " ".join(f"{c}={key[c]}" for c in spec.columns if c in key),
        help="\n".join(
            [f"collect: bitlane collect plan CHECKPOINT --loader {backend}@{version} --system {system}"]
            + [f"         nearest: {other}" for other in near]
        ),
    )


def _columns(pack: Pack, columns: Mapping[str, Any]) -> tuple[dict[str, Any], list[FloatArray]]:
    spec = pack.spec
    size = max((len(values) for values in columns.values()), default=0)
    if not size:
        raise UsageError("BL527", "no question asked", place=spec.name)
    keys: dict[str, Any] = {}
    for column in spec.keys:
        if column in columns:
            keys[column] = _typed(column, columns[column], size)
        elif len(pack.vocab[column]) == 1:
            keys[column] = np.full(size, pack.vocab[column][0])
        else:
            raise _lacks(pack, column)
    axes = []
    for axis in spec.axes:
        if axis is None:
            axes.append(np.zeros(size))
        elif axis.column in columns:
            axes.append(_typed(axis.column, columns[axis.column], size).astype(np.float64))
        else:
            raise _lacks(pack, axis.column)
    if any((axis < 0).any() for axis in axes) or (axes[2] < 1).any():
        raise UsageError("BL527", "sizes must be positive", place=spec.name)
    return keys, axes


def _lacks(pack: Pack, column: str) -> UsageError:
    known = pack.vocab.get(column)
    return UsageError(
        "BL527",
        f"table `{pack.spec.name}` needs `{column}`",
        place=f"--{column.replace('_', '-')}",
        help=f"one of {', '.join(map(str, known[:12]))}" if known else "a size",
    )


def _typed(column: str, values: Any, size: int) -> Any:
    data = np.asarray(values)
    if len(data) != size:
        raise UsageError("BL527", f"column `{column}` has {len(data)} rows, not {size}", place=column)
    if column in TEXT_COLUMNS:
        return data.astype(str)
    try:
        whole = data.astype(np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError("BL527", f"column `{column}` must hold whole numbers of 64 bits", place=column) from error
    if (whole != data).any():
        raise UsageError("BL527", f"column `{column}` must hold whole numbers", place=column)
    return whole


def _plain_column(column: Any) -> Any:
    import pyarrow as pa

    if column.null_count:
        raise UsageError("BL527", "a column of the questions has empty cells", place=str(column.type))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return np.asarray(column.to_pylist()) if pa.types.is_string(column.type) else column.to_numpy()


def _donors(pack: Pack, keys: dict[str, Any], slab: IntArray) -> Any:
    """Fill slabs that the asked version lacks from other versions of the backend; return which those are."""
    donated = np.zeros(len(slab), bool)
    policy = load_policy()
    lost = np.flatnonzero(slab < 0)
    if not len(lost):
        return donated
    present = [str(version) for version in pack.vocab["backend_version"]]
    for asked in np.unique(np.asarray(keys["backend_version"])[lost]):
        rows = lost[np.asarray(keys["backend_version"])[lost] == asked]
        for version in policy.versions(str(asked), [v for v in present if v != asked]):
            part = {name: np.asarray(values)[rows] for name, values in keys.items()}
            found = pack.find_many(part | {"backend_version": np.full(len(rows), version)})
            hit = found >= 0
            slab[rows[hit]] = found[hit]
            donated[rows[hit]] = True
            rows = rows[~hit]
            if not len(rows):
                break
    return donated


def _evaluate(
    store: Store, pack: Pack, slab: IntArray, axes: list[FloatArray]
) -> tuple[FloatArray, IntArray, IntArray]:
    policy = load_policy()
    if len(slab) >= WORTH_COMPILING:
        from .batch import Lookups

        ms, status = Lookups(store, policy, pack.spec.name)(slab, axes[0], axes[1], axes[2])
        return ms, status, np.full(len(slab), NO_KERNEL)

    def roofline(one: int) -> list[sol.Row]:
        key = pack.key(one)
        return sol.table_rows(pack.spec.name, key, sol.machine(store.systems, str(key["system"])), policy)

    found = reference.evaluate(pack, slab, axes[0], axes[1], axes[2], roofline)
    return found.ms, found.status, found.kernel


def _rooflines(
    store: Store, pack: Pack, keys: Mapping[str, Any], axes: list[FloatArray], ms: FloatArray, source: IntArray
) -> None:
    policy = load_policy()
    for i in np.flatnonzero(source == NOT_FOUND):
        key = {name: values[i] for name, values in keys.items()}
        rows = sol.table_rows(pack.spec.name, key, sol.machine(store.systems, str(key["system"])), policy)
        ms[i] = sol.value(rows, *(float(axis[i]) for axis in axes))
        source[i] = ROOFLINE
