"""A folder of measured tables, opened for change: lock, commit point, recovery.

The tables stay plain ``<table>.parquet`` files with a sidecar each, so that a reader needs to know nothing of this.
Beside them::

    ROOT/.journal/lock                 held by one merge at a time
    ROOT/.journal/journal.log          one record per commit
    ROOT/.journal/store/               files written, not yet published
    ROOT/.journal/superseded/          rows that a newer measurement of the same key took the place of

A commit writes the new table and sidecar into ``store``, appends the journal record (from here on the change is
decided) and puts both in place. A crash before the record leaves the old table, a crash after it is finished by
whoever opens the folder next.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from ..errors import UsageError
from . import sidecar
from .durable import REAL_DISK, Disk, digest, sweep_temporaries, write_durably
from .journal import Journal, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER: Final = ".journal"
JOURNAL: Final = "journal.log"
STORE: Final = "store"
SUPERSEDED: Final = "superseded"
LOCK_TIMEOUT_S: Final = 60.0
# The two files that a commit replaces together; also the names of their digests in the journal record.
ROLES: Final = ("rows", "meta")


@dataclass(slots=True)
class Root:
    """A locked folder of tables.

    Attributes
    ----------
    path
        The folder.
    log
        Its journal.
    disk
        Where it lies.
    notices
        What opening found and repaired, one sentence each.
    """

    path: Path
    log: Journal
    disk: Disk
    notices: list[str] = field(default_factory=list)

    def commit(self, table: str, parquet: bytes, meta: bytes, superseded: bytes | None, event_id: str) -> None:
        """Replace a table and its sidecar together; durable when this returns.

        Parameters
        ----------
        table
            Table name.
        parquet, meta
            New content of ``<table>.parquet`` and of its sidecar.
        superseded
            Parquet file of the rows that are no longer in the table, ``None`` if there are none.
        event_id
            What the change is, for the journal.
        """
        store = self.path / FOLDER / STORE
        self.disk.make_folder(store)
        record: Record = {"kind": "merge", "table": table, "event": event_id}
        for role, data in zip(ROLES, (parquet, meta), strict=True):
            record[role] = digest(data)
            write_durably(self.disk, store / _stored(table, role, record[role]), data)
        if superseded is not None:
            record["superseded"] = digest(superseded)
            folder = self.path / FOLDER / SUPERSEDED
            self.disk.make_folder(folder)
            write_durably(self.disk, folder / f"{table}-{record['superseded']}.parquet", superseded)
        self.log.append(record)
        self.publish(record)

    def publish(self, record: Record) -> bool:
        """Put a committed table and sidecar in place; no effect if they are.

        Returns
        -------
        bool
            Whether anything was put in place.
        """
        store = self.path / FOLDER / STORE
        names = {role: _stored(record["table"], role, record[role]) for role in ROLES}
        waiting = [role for role in ROLES if self.disk.exists(store / names[role])]
        # Copied, not moved: no file system promises that a rename between folders keeps one of the two names.
        for role in waiting:
            write_durably(self.disk, self.published(record["table"], role), self.disk.read(store / names[role]))
        for role in waiting:
            self.disk.remove(store / names[role])
        if waiting:
            self.disk.sync_folder(store)
        return bool(waiting)

    def published(self, table: str, role: str) -> Path:
        """Path of a table's parquet file (role ``rows``) or sidecar (role ``meta``)."""
        return self.path / f"{table}.parquet" if role == "rows" else sidecar.path_of(self.path, table)

    def recover(self) -> None:
        """Finish what a killed merge had committed and drop what it had not."""
        if self.log.torn:
            self.notices.append(f"the journal ended in {len(self.log.torn)} bytes of an unfinished record: ignored")
        last = {record["table"]: record for record in self.log.records if record.get("kind") == "merge"}
        for table, record in sorted(last.items()):
            if self.publish(record):
                self.notices.append(f"finished an interrupted merge into `{table}`")
        store = self.path / FOLDER / STORE
        for folder in (self.path, store, self.path / FOLDER / SUPERSEDED):
            sweep_temporaries(self.disk, folder)
        # All committed files have been published, so what is left was never decided.
        for name in self.disk.names(store):
            self.disk.remove(store / name)


def _stored(table: str, role: str, sha256: str) -> str:
    return f"{table}-{sha256}.{'parquet' if role == 'rows' else 'yaml'}"


@contextlib.contextmanager
def open_root(path: Path, disk: Disk = REAL_DISK, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[Root]:
    """Lock a folder of tables and repair what a crash left.

    Parameters
    ----------
    path
        The folder; created if absent.
    disk
        Where it lies. The lock is always on the real file system.
    timeout_s
        How long to wait for another merge.

    Raises
    ------
    UsageError
        ``BL712`` if another process holds the lock for longer, ``BL715`` if the folder cannot be written.
    """
    folder = path / FOLDER
    try:
        disk.make_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=timeout_s)
        lock.acquire()
    except Timeout as error:
        raise UsageError(
            "BL712",
            f"another merge has held the lock for {timeout_s:g} s",
            place=str(folder / "lock"),
            help="wait for it; the lock goes away with its process",
        ) from error
    except OSError as error:
        raise UsageError(
            "BL715",
            f"the folder of tables cannot be written: {error.strerror or error}",
            place=str(path),
            help="merge into a folder of your own with `--into DIR`",
        ) from error
    try:
        root = Root(path, Journal(folder / JOURNAL, disk), disk)
        root.recover()
        yield root
    finally:
        lock.release()


def pending(path: Path) -> bool:
    """Whether a killed merge left something to finish; looks only."""
    store = path / FOLDER / STORE
    return store.is_dir() and any(store.iterdir())
