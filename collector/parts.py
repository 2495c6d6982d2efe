"""Immutable part files of rows, and the journal line that commits each of them.

A folder of this kind belongs to one run::

    RUN/run.json                      who collects what (identity; see ``collector.checkpoint``)
    RUN/journal.log                   append-only, the commit point
    RUN/parts/<table>-<sha256>.parquet

A part counts when the journal names it. A part file without its line is the work of a killed writer and is ignored.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import BitlaneError
from .durable import REAL_DISK, Disk, digest, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from . import journal

JOURNAL: Final = "journal.log"
PARTS: Final = "parts"
_NAME_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Part:
    """A committed part file.

    Attributes
    ----------
    table
        Table its rows belong to.
    name
        File name, which holds the digest of the content.
    sha256
        Digest of the whole file.
    rows
        Row count.
    record
        The journal record that committed it.
    """

    table: str
    name: str
    sha256: str
    rows: int
    record: journal.Record


def parquet_bytes(rows: pa.Table) -> bytes:
    """A parquet file of `rows`; equal rows give equal bytes under one pyarrow version."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", compression_level=9, use_dictionary=True, write_statistics=True)
    return sink.getvalue()


def parquet_rows(data: bytes, place: str) -> pa.Table:
    """Rows of a parquet file.

    Raises
    ------
    BitlaneError
        ``BL707`` if it is not a readable parquet file.
    """
    try:
        return pq.read_table(io.BytesIO(data), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise BitlaneError(
            "BL707",
            f"not a readable parquet file: {str(error).splitlines()[0]}",
            place=place,
            help="restore the file from a copy",
        ) from error


def append_part(
    log: journal.Journal, folder: Path, table: str, rows: pa.Table, note: dict[str, Any], disk: Disk = REAL_DISK
) -> Part:
    """Write rows as a part file and commit it; durable when this returns.

    Parameters
    ----------
    log
        Open journal of `folder`.
    folder
        The run's folder.
    table
        Table name.
    rows
        At least one row.
    note
        More fields for the journal record, for instance the cases that the rows answer.
    disk
        Where it lies.
    """
    if rows.num_rows == 0:
        raise BitlaneError("BL708", "a part without rows", place=table, help="append at least one row")
    data = parquet_bytes(rows)
    sha256 = digest(data)
    name = f"{table}-{sha256[:_NAME_DIGITS]}.parquet"
    disk.make_folder(folder / PARTS)
    # An identical part may be there already: its writer died before the commit, or measured the very same values.
    write_durably(disk, folder / PARTS / name, data)
    record = log.append({**note, "kind": "part", "table": table, "name": name, "sha256": sha256, "rows": rows.num_rows})
    return Part(table, name, sha256, rows.num_rows, record)


def committed(records: Iterable[journal.Record]) -> tuple[Part, ...]:
    """Parts that a journal's records commit, in order."""
    return tuple(
        Part(record["table"], record["name"], record["sha256"], record["rows"], record)
        for record in records
        if record.get("kind") == "part"
    )


def load(folder: Path, part: Part, disk: Disk = REAL_DISK) -> pa.Table:
    """Rows of a committed part.

    Raises
    ------
    BitlaneError
        ``BL709`` if the file is absent or its content is not what was committed.
    """
    path = folder / PARTS / part.name
    data = disk.read(path) if disk.exists(path) else None
    if data is None or digest(data) != part.sha256:
        raise BitlaneError(
            "BL709",
            "a committed part file is missing" if data is None else "a committed part file has changed",
            place=str(path),
            help="restore it from a copy; nothing of this run was merged",
        )
    return parquet_rows(data, str(path))
