"""Add collected rows to measured tables: nothing is lost, nothing is replaced silently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BitlaneError, UsageError
from . import sidecar, sources
from .durable import REAL_DISK, Disk, digest
from .incoming import Collection, kernel_counts, read_collections
from .parts import parquet_bytes, parquet_rows
from .root import LOCK_TIMEOUT_S, ROLES, Root, open_root
from .schema import SOURCE, VALUE, conform, key_columns, key_tuples, sort_by_key, table_schema, without_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Key = tuple[object, ...]
_EXAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class Replacement:
    """A key measured twice; the newer row is in the table, the older in the archive of superseded rows."""

    key: dict[str, object]
    older_ms: float
    newer_ms: float


@dataclass(frozen=True, slots=True)
class Merged:
    """What one collection did to one table.

    Attributes
    ----------
    table
        Table name.
    event
        The event as it stands in the sidecar.
    added
        Rows whose key was new.
    replaced
        Rows that took the place of an older measurement of the same key.
    outdated
        Rows left out because the table has a newer measurement of their key.
    examples
        The first replacements.
    """

    table: str
    event: sidecar.Event
    added: int
    replaced: int
    outdated: int
    examples: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """Outcome of :func:`merge`.

    Attributes
    ----------
    merged
        One entry per collection that was added.
    known
        Folders that held nothing new.
    notices
        What was repaired or ignored on the way.
    """

    merged: tuple[Merged, ...]
    known: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as it stands in the root: rows sorted by key, and provenance."""

    rows: pa.Table
    meta: sidecar.Sidecar


def merge(
    folders: Sequence[Path],
    into: Path,
    *,
    allow_synthetic: bool = False,
    disk: Disk = REAL_DISK,
    timeout_s: float = LOCK_TIMEOUT_S,
) -> MergeReport:
    """Add the collections in `folders` to the tables in `into`.

    Existing rows and events stay as they are; a row gives way only to a newer measurement of its full key, and then
    it is archived and reported. Merging the same collection again changes nothing.

    Parameters
    ----------
    folders
        Run folders, or folders of tables with sidecars.
    into
        Folder of tables; created if absent.
    allow_synthetic
        Accept collections that are marked synthetic.
    disk
        Where all of them lie.
    timeout_s
        How long to wait for another merge, seconds.

    Raises
    ------
    BitlaneError
        ``BL703`` another schema, ``BL705`` a legacy sidecar, ``BL710`` and ``BL711`` a table without sound
        provenance, ``BL719`` synthetic rows. Nothing of the collection is merged then.
    """
    merged: list[Merged] = []
    known: list[str] = []
    with open_root(into, disk, timeout_s) as root:
        for folder in folders:
            collections = read_collections(folder, _merged_names(root), disk)
            if not collections:
                known.append(str(folder))
            for collection in collections:
                if collection.event.provenance == sidecar.SYNTHETIC and not allow_synthetic:
                    raise UsageError(
                        "BL719",
                        "the collection is marked synthetic: nothing in it was measured",
                        place=collection.place,
                        help="merge it only into a folder for tests, with `--allow-synthetic`",
                    )
                merged.append(_merge_one(root, collection))
        return MergeReport(tuple(merged), tuple(known), tuple(root.notices))


def _merged_names(root: Root) -> frozenset[str]:
    events = [event for meta in _sidecars(root) for event in meta.collections]
    # Two runs may measure the very same values, so a part's content does not name it across runs.
    names = [f"{event.run}/{part}" for event in events for part in event.parts]
    return frozenset([*names, *(event.id for event in events)])


def _sidecars(root: Root) -> list[sidecar.Sidecar]:
    names = [name for name in root.disk.names(root.path) if name.endswith(sidecar.SUFFIX)]
    return [sidecar.parse(root.disk.read(root.path / name), str(root.path / name)) for name in names]


def _merge_one(root: Root, collection: Collection) -> Merged:
    name = collection.table
    table = _read_table(root, name)
    schema = table.rows.schema
    event = msgspec.structs.replace(collection.event, source_id=_next_source(root))
    rows = conform(collection.rows, without_source(schema), collection.place)
    keys = key_columns(name, schema.names)
    rows = _last_of_each_key(rows, keys)
    older = _rows_with_keys(table.rows, rows, keys)
    dates = _dates(root, table.meta)
    outdated = {key for key, row in older.items() if dates.get(row.source, "") > event.collected_at}
    rows = _without(rows, keys, outdated)
    superseded = {key: row for key, row in older.items() if key not in outdated}
    event = msgspec.structs.replace(
        event, rows=rows.num_rows, replaced=len(superseded), kernels=kernel_counts(rows) if rows.num_rows else {}
    )
    if rows.num_rows == 0:
        return Merged(name, event, added=0, replaced=0, outdated=len(outdated), examples=())
    result = _combined(name, table.rows, superseded, rows, event.source_id)
    data = parquet_bytes(result)
    meta = msgspec.structs.replace(
        table.meta, rows=result.num_rows, sha256=digest(data), collections=(*table.meta.collections, event)
    )
    indices = pa.array(sorted(row.index for row in superseded.values()), pa.int64())
    archive = parquet_bytes(table.rows.take(indices)) if superseded else None
    root.commit(name, data, sidecar.dump(meta), archive, event.id)
    return Merged(
        name,
        event,
        added=rows.num_rows - len(superseded),
        replaced=len(superseded),
        outdated=len(outdated),
        examples=_examples(keys, rows, superseded),
    )


def _read_table(root: Root, name: str) -> _Table:
    path, meta_path = (root.published(name, role) for role in ROLES)
    if not root.disk.exists(path):
        if root.disk.exists(meta_path):
            raise _inconsistent(name, str(meta_path), "has a sidecar but no rows")
        rows = table_schema(name).empty_table()
        return _Table(rows, sidecar.Sidecar(sidecar.SCHEMA_VERSION, name, 0, ""))
    data = root.disk.read(path)
    rows = parquet_rows(data, str(path))
    if root.disk.exists(meta_path):
        meta = sidecar.parse(root.disk.read(meta_path), str(meta_path))
        if meta.sha256 != digest(data):
            raise _inconsistent(name, str(path), "and its sidecar do not belong together")
        return _Table(rows, meta)
    imported = sources.read(root.path).tables.get(name)
    if imported is None:
        raise BitlaneError(
            "BL711",
            f"the table `{name}` has no provenance",
            place=str(path),
            help=f"rows are added only to a table whose {name}{sidecar.SUFFIX} or {sources.FILE} says where it is from",
        )
    if imported.sha256 != digest(data):
        raise _inconsistent(name, str(path), f"is not the one that {sources.FILE} describes")
    base = sidecar.Base(sources.FILE, imported.sha256, imported.rows)
    return _Table(rows, sidecar.Sidecar(sidecar.SCHEMA_VERSION, name, rows.num_rows, imported.sha256, base))


def _inconsistent(name: str, place: str, what: str) -> BitlaneError:
    return BitlaneError(
        "BL710", f"the table `{name}` {what}", place=place, help="it was changed by hand; restore both files"
    )


def _next_source(root: Root) -> int:
    numbers = [source.source_id for source in sources.read(root.path).sources]
    numbers += [event.source_id for meta in _sidecars(root) for event in meta.collections]
    return max(numbers, default=-1) + 1


def _dates(root: Root, meta: sidecar.Sidecar) -> dict[int, str]:
    dates = {source.source_id: source.newest for source in sources.read(root.path).sources}
    dates.update({event.source_id: event.collected_at for event in meta.collections})
    return dates


@dataclass(frozen=True, slots=True)
class _Older:
    index: int
    source: int
    latency_ms: float


def _last_of_each_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    last = {key: index for index, key in enumerate(key_tuples(rows, keys))}
    return rows if len(last) == rows.num_rows else rows.take(pa.array(sorted(last.values()), pa.int64()))


def _rows_with_keys(table: pa.Table, rows: pa.Table, keys: Sequence[str]) -> dict[Key, _Older]:
    """Rows of `table` that share a key with `rows`."""
    candidates = table.append_column("index", pa.array(np.arange(table.num_rows)))
    # Column by column first: millions of rows shrink to a few before any tuple is built.
    for name in keys:
        wanted = pc.unique(rows[name]).cast(table.schema.field(name).type)
        candidates = candidates.filter(pc.is_in(candidates[name], wanted))
    wanted_keys = set(key_tuples(rows, keys))
    values = (candidates["index"].to_pylist(), candidates[SOURCE].to_pylist(), candidates[VALUE].to_pylist())
    return {
        key: _Older(index, source, latency)
        for key, index, source, latency in zip(key_tuples(candidates, keys), *values, strict=True)
        if key in wanted_keys
    }


def _without(rows: pa.Table, keys: Sequence[str], dropped: set[Key]) -> pa.Table:
    if not dropped:
        return rows
    return rows.filter(pa.array([key not in dropped for key in key_tuples(rows, keys)], pa.bool_()))


def _combined(name: str, table: pa.Table, superseded: dict[Key, _Older], rows: pa.Table, source: int) -> pa.Table:
    schema = table.schema
    gone = pa.array(sorted(row.index for row in superseded.values()), pa.int64())
    index = pa.array(np.arange(table.num_rows))
    kept = table.filter(pc.invert(pc.is_in(index, gone))) if superseded else table
    numbered = rows.append_column(SOURCE, pa.array(np.full(rows.num_rows, source, np.int64)))
    numbered = numbered.select(schema.names).cast(schema)
    result = sort_by_key(name, pa.concat_tables([kept, numbered]))
    if result.num_rows != table.num_rows - len(superseded) + rows.num_rows or result.schema != schema:
        raise BitlaneError(
            "BL720", "the merged table is not old rows plus new rows: nothing was written", place=name, exit_code=70
        )
    return result


def _examples(keys: Sequence[str], rows: pa.Table, superseded: dict[Key, _Older]) -> tuple[Replacement, ...]:
    found: Iterable[tuple[Key, float]] = zip(key_tuples(rows, keys), rows[VALUE].to_pylist(), strict=True)
    pairs = [(key, latency) for key, latency in found if key in superseded][:_EXAMPLES]
    return tuple(
        Replacement(dict(zip(keys, key, strict=True)), superseded[key].latency_ms, latency) for key, latency in pairs
    )
