"""What changed between two folders of measured tables, by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from .durable import digest
from .parts import parquet_rows
from .schema import KERNEL, LEAD, SOURCE, VALUE, differences, key_columns, sort_by_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_EXAMPLES: Final = 20
_OLD, _NEW = "old", "new"


@dataclass(frozen=True, slots=True)
class Group:
    """Changes of one system, backend, version and precision.

    Attributes
    ----------
    system, backend, backend_version, lane
        What the rows share; `lane` is the table's precision column, empty if it has none.
    added, removed
        Rows whose key only the new, or only the old table has.
    changed
        Rows of one key whose latency or kernel differs.
    same
        Rows that are equal bit for bit.
    median_percent, worst_percent
        Median and largest change of latency among the changed rows, new against old.
    """

    system: str
    backend: str
    backend_version: str
    lane: str
    added: int
    removed: int
    changed: int
    same: int
    median_percent: float | None
    worst_percent: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """One changed row."""

    key: dict[str, object]
    old_ms: float
    new_ms: float
    old_kernel: str
    new_kernel: str


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Differences of one table.

    Attributes
    ----------
    table
        Table name.
    schema
        Logical differences of the columns; when there are any, rows are not compared.
    groups
        Groups with a difference.
    examples
        The changed rows with the largest change.
    """

    table: str
    schema: tuple[str, ...]
    groups: tuple[Group, ...]
    examples: tuple[Change, ...]


def diff(old: Path, new: Path) -> list[TableDiff]:
    """Compare two folders of tables, or two parquet files of one table.

    Parameters
    ----------
    old, new
        Both folders, or both files.

    Returns
    -------
    list[TableDiff]
        One entry per table that differs; empty when all rows are equal. Source numbers do not count: they name a
        file's own list.

    Raises
    ------
    UsageError
        ``BL717`` if there is nothing to compare.
    """
    before, after = _tables(old), _tables(new)
    found = [
        _diff_table(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) is None or after.get(name) is None or digest(before[name]) != digest(after[name])
    ]
    return [entry for entry in found if entry.schema or entry.groups]


def _tables(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    if not files:
        raise UsageError(
            "BL717", "no tables to compare", place=str(path), help="give a folder with *.parquet, or one such file"
        )
    return {"table" if path.is_file() else file.name.removesuffix(".parquet"): file.read_bytes() for file in files}


def _diff_table(name: str, old: bytes | None, new: bytes | None) -> TableDiff:
    before, after = _rows(name, old, new), _rows(name, new, old)
    schema = tuple(differences(before.schema, after.schema))
    if schema:
        return TableDiff(name, schema, (), ())
    table = pc.unique(after["op_kind"] if after.num_rows else before["op_kind"]).to_pylist() if name == "table" else []
    keys = key_columns(table[0] if table else name, before.column_names)
    values = [column for column in (VALUE, KERNEL) if column not in keys]
    joined = _side(before, keys, values, _OLD).join(
        _side(after.cast(before.schema), keys, values, _NEW), keys=list(keys), join_type="full outer"
    )
    joined = sort_by_key(name, joined.select([*keys, *(c for c in joined.column_names if c not in keys)]))
    return TableDiff(name, (), tuple(_groups(joined)), _examples(joined, keys))


def _rows(name: str, mine: bytes | None, other: bytes | None) -> pa.Table:
    """Rows of a table; where one folder lacks it, no rows of the other's schema."""
    if mine is not None:
        return parquet_rows(mine, name)
    return parquet_rows(other or b"", name).slice(0, 0)


def _side(rows: pa.Table, keys: tuple[str, ...], values: list[str], side: str) -> pa.Table:
    plain = rows.drop_columns([SOURCE]) if SOURCE in rows.column_names else rows
    return plain.select([*keys, *values]).rename_columns([*keys, *(f"{side}_{value}" for value in values)])


def _kinds(joined: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Masks of added, removed and changed rows."""
    added, removed = pc.is_null(joined[f"{_OLD}_{VALUE}"]), pc.is_null(joined[f"{_NEW}_{VALUE}"])
    changed = pc.not_equal(joined[f"{_OLD}_{VALUE}"], joined[f"{_NEW}_{VALUE}"])
    if f"{_OLD}_{KERNEL}" in joined.column_names:
        changed = pc.or_(changed, pc.not_equal(joined[f"{_OLD}_{KERNEL}"], joined[f"{_NEW}_{KERNEL}"]))
    return added, removed, pc.fill_null(changed, False)


def _lane_column(names: list[str]) -> str | None:
    return next(
        (name for name in ("quant_mode", "kv_cache_dtype", "attn_dtype", "comm_dtype", "dtype") if name in names), None
    )


def _groups(joined: pa.Table) -> Iterator[Group]:
    added, removed, changed = _kinds(joined)
    lane = _lane_column(joined.column_names)
    columns = [*LEAD[:3], *([lane] if lane else [])]
    marked = joined.append_column("added", added).append_column("removed", removed).append_column("changed", changed)
    ratio = pc.divide(joined[f"{_NEW}_{VALUE}"], joined[f"{_OLD}_{VALUE}"])
    marked = marked.append_column("percent", pc.multiply(pc.subtract(ratio, 1.0), 100.0))
    counts = marked.group_by(columns).aggregate(
        [("added", "sum"), ("removed", "sum"), ("changed", "sum"), ([], "count_all")]
    )
    moved = marked.filter(marked["changed"])
    for row in counts.sort_by([(name, "ascending") for name in columns]).to_pylist():
        if not (row["added_sum"] or row["removed_sum"] or row["changed_sum"]):
            continue
        mine = moved
        for name in columns:
            mine = mine.filter(pc.equal(mine[name], row[name]))
        percent = np.asarray(mine["percent"].to_pylist(), dtype=np.float64)
        yield Group(
            system=row["system"],
            backend=row["backend"],
            backend_version=row["backend_version"],
            lane=row[lane] if lane else "",
            added=row["added_sum"],
            removed=row["removed_sum"],
            changed=row["changed_sum"],
            same=row["count_all"] - row["added_sum"] - row["removed_sum"] - row["changed_sum"],
            median_percent=float(np.median(percent)) if len(percent) else None,
            worst_percent=float(percent[np.argmax(np.abs(percent))]) if len(percent) else None,
        )


def _examples(joined: pa.Table, keys: tuple[str, ...]) -> tuple[Change, ...]:
    *_, changed = _kinds(joined)
    moved = joined.filter(changed).to_pylist()
    moved.sort(key=lambda row: -abs(row[f"{_NEW}_{VALUE}"] / row[f"{_OLD}_{VALUE}"] - 1.0))
    return tuple(
        Change(
            {name: row[name] for name in keys},
            row[f"{_OLD}_{VALUE}"],
            row[f"{_NEW}_{VALUE}"],
            row.get(f"{_OLD}_{KERNEL}", row.get(KERNEL, "")),
            row.get(f"{_NEW}_{KERNEL}", row.get(KERNEL, "")),
        )
        for row in moved[:_EXAMPLES]
    )
