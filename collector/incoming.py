"""What may be merged into a table: collections, each with its provenance and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BitlaneError, UsageError
from . import journal, runfile, sidecar
from .durable import REAL_DISK, Disk, digest
from .parts import JOURNAL, Part, committed, load, parquet_rows
from .provenance import case_plan_hash
from .schema import KERNEL, LEAD, SOURCE, differences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNNUMBERED: Final = -1


@dataclass(frozen=True, slots=True)
class Collection:
    """Rows that came from one run, and what is known of it.

    Attributes
    ----------
    table
        Table they belong to.
    event
        Provenance, its ``source_id`` not yet given.
    rows
        The rows, without a ``source_id`` column.
    place
        Where they were read.
    """

    table: str
    event: sidecar.Event
    rows: pa.Table
    place: str


def read_collections(folder: Path, known: frozenset[str], disk: Disk = REAL_DISK) -> list[Collection]:
    """Collections in a run's folder or in a folder of tables with sidecars.

    Parameters
    ----------
    folder
        Either kind of folder.
    known
        Event ids and ``<run>/<part>`` names that are merged already; they are left out.

    Raises
    ------
    UsageError
        ``BL717`` if the folder is of neither kind.
    """
    identity = runfile.read_identity(folder, disk)
    if identity is not None:
        return _from_run(folder, identity, known, disk)
    tables = sorted(name.removesuffix(".parquet") for name in disk.names(folder) if name.endswith(".parquet"))
    if not tables:
        raise UsageError(
            "BL717",
            "neither a collection run nor a folder of tables",
            place=str(folder),
            help=f"give the folder that `bitlane collect run` wrote, or one with TABLE.parquet and "
            f"TABLE{sidecar.SUFFIX}",
        )
    return [found for table in tables for found in _from_table(folder, table, known)]


def _from_run(folder: Path, identity: runfile.RunIdentity, known: frozenset[str], disk: Disk) -> list[Collection]:
    state = journal.read(folder / JOURNAL, disk)
    progress = runfile.progress_of(state.records)
    fresh: dict[str, dict[str, Part]] = {}
    for part in committed(state.records):
        if f"{identity.run_id}/{part.name}" not in known:
            fresh.setdefault(part.table, {})[part.name] = part
    return [
        _run_collection(folder, identity, table, list(parts.values()), progress, disk)
        for table, parts in sorted(fresh.items())
    ]


def _run_collection(
    folder: Path,
    identity: runfile.RunIdentity,
    table: str,
    parts: Sequence[Part],
    progress: runfile.Progress,
    disk: Disk,
) -> Collection:
    rows = _concatenated(folder, parts, disk)
    names = tuple(part.name for part in parts)
    attempted = {case for part in parts for case in part.record.get("cases", ())}
    failures = {case for case, failure in progress.failed.items() if failure.group.split("/", 1)[0] == table}
    event = sidecar.Event(
        id=digest(msgspec.json.encode((identity, sorted(names))))[:32],
        source_id=UNNUMBERED,
        system=identity.system,
        backend=identity.backend,
        backend_version=identity.backend_version,
        device=identity.device,
        runtime=identity.runtime,
        collector_ref=identity.collector_ref,
        collector_hash=identity.collector_hash,
        case_plan_hash=case_plan_hash(attempted | failures),
        collected_at=max(part.record.get("at", "") for part in parts),
        rows=rows.num_rows,
        status="complete" if len(progress.done) == identity.planned else "partial",
        failures=len(failures),
        provenance=identity.provenance,
        run=identity.run_id,
        parts=names,
        kernels=kernel_counts(rows),
    )
    _refuse_other_origin(event, rows, str(folder))
    return Collection(table, event, rows, str(folder))


def _concatenated(folder: Path, parts: Sequence[Part], disk: Disk) -> pa.Table:
    tables = [load(folder, part, disk) for part in parts]
    for part, rows in zip(parts, tables, strict=True):
        wrong = differences(tables[0].schema, rows.schema)
        if wrong:
            raise BitlaneError(
                "BL703",
                f"the parts of one run differ in schema: {'; '.join(wrong)}",
                place=part.name,
                help="this run was written by two versions of the collector; collect again",
            )
    schema = tables[0].schema
    return pa.concat_tables([rows.cast(schema) for rows in tables]).combine_chunks()


def _from_table(folder: Path, table: str, known: frozenset[str]) -> list[Collection]:
    path = folder / f"{table}.parquet"
    meta = sidecar.read(folder, table)
    if meta is None:
        raise BitlaneError(
            "BL711",
            f"the table `{table}` has no provenance",
            place=str(path),
            help=f"a table is merged with its {table}{sidecar.SUFFIX}, which says where each row was measured",
        )
    data = path.read_bytes()
    if digest(data) != meta.sha256:
        raise BitlaneError(
            "BL710",
            f"the table `{table}` and its sidecar do not belong together",
            place=str(path),
            help="one of the two was changed by hand; restore the pair",
        )
    rows = parquet_rows(data, str(path))
    if SOURCE not in rows.column_names:
        raise BitlaneError("BL703", f"the table `{table}` has no column `{SOURCE}`", place=str(path))
    found = []
    for event in meta.collections:
        if event.id in known:
            continue
        own = rows.filter(pc.equal(rows[SOURCE], event.source_id)).drop_columns([SOURCE]).combine_chunks()
        if own.num_rows:
            _refuse_other_origin(event, own, str(path))
            found.append(Collection(table, event, own, str(path)))
    return found


def kernel_counts(rows: pa.Table) -> dict[str, int]:
    """Rows per kernel, by name."""
    counted = pc.value_counts(rows[KERNEL]).to_pylist() if KERNEL in rows.column_names else []
    return dict(sorted((str(entry["values"]), int(entry["counts"])) for entry in counted))


def _refuse_other_origin(event: sidecar.Event, rows: pa.Table, place: str) -> None:
    for column, said in zip(LEAD[:3], (event.system, event.backend, event.backend_version), strict=True):
        found = set(pc.unique(rows[column]).to_pylist()) if column in rows.column_names else {"nothing"}
        if found != {said}:
            raise BitlaneError(
                "BL718",
                f"the provenance says {column} `{said}`, the rows say {', '.join(sorted(map(str, found)))}",
                place=place,
                help="rows are merged under the provenance of the run that measured them, and no other",
            )
