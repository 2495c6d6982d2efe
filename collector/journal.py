"""An append-only log, one checksummed JSON line per record; a record that is on disk whole is committed.

Line format: ``{"crc":"<8 hex digits>","record":{...}}`` with the CRC-32 of the record's bytes as they stand in the
line. ``record.seq`` counts from 0 without gaps, so that a line lost from the middle shows.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import BitlaneError
from .durable import REAL_DISK, Disk

if TYPE_CHECKING:
    from pathlib import Path

Record = dict[str, Any]
_OPEN: Final = b'{"crc":"'
_MIDDLE: Final = b'","record":'
_CLOSE: Final = b"}"


@dataclass(frozen=True, slots=True)
class JournalState:
    """What a journal holds.

    Attributes
    ----------
    records
        Committed records in order.
    sound_bytes
        Length of the part of the file that holds them.
    torn
        Bytes after that part: a record whose writer died. They were never acknowledged.
    """

    records: tuple[Record, ...]
    sound_bytes: int
    torn: bytes


def encode(record: Record) -> bytes:
    """One journal line, newline included."""
    body = json.dumps(record, separators=(",", ":"), sort_keys=True, allow_nan=False, ensure_ascii=True).encode()
    return b"%s%08x%s%s%s\n" % (_OPEN, zlib.crc32(body), _MIDDLE, body, _CLOSE)


def decode(line: bytes) -> Record | None:
    """Record of a line without its newline; ``None`` if the line is not exactly what :func:`encode` wrote."""
    head = len(_OPEN) + 8 + len(_MIDDLE)
    if not (line.startswith(_OPEN) and line[len(_OPEN) + 8 : head] == _MIDDLE and line.endswith(_CLOSE)):
        return None
    body = line[head : -len(_CLOSE)]
    if line[len(_OPEN) : len(_OPEN) + 8] != b"%08x" % zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read(path: Path, disk: Disk = REAL_DISK) -> JournalState:
    """Read a journal; a last line that is torn is set aside, any other damage is refused.

    Parameters
    ----------
    path
        The log file; absent means empty.
    disk
        Where it lies.

    Raises
    ------
    BitlaneError
        ``BL701`` if a line before the last is damaged or missing: that is not what a crash leaves behind.
    """
    if not disk.exists(path):
        return JournalState((), 0, b"")
    data = disk.read(path)
    records: list[Record] = []
    sound = 0
    while sound < len(data):
        end = data.find(b"\n", sound)
        record = decode(data[sound:end]) if end >= 0 else None
        if record is None or record.get("seq") != len(records):
            break
        records.append(record)
        sound = end + 1
    torn = data[sound:]
    # The last piece of the split is unterminated, so even when it parses its writer was never answered.
    if any(decode(line) is not None for line in torn.split(b"\n")[:-1]):
        raise BitlaneError(
            "BL701",
            f"line {len(records) + 1} of the journal is damaged or missing, and whole records follow it",
            place=str(path),
            help="the disk or an editor changed it; restore the file from a copy, do not merge from it",
        )
    return JournalState(tuple(records), sound, torn)


class Journal:
    """Writer of one journal; hold the owning folder's lock while it is open.

    Parameters
    ----------
    path
        The log file; created at the first append.
    disk
        Where it lies.

    Attributes
    ----------
    records
        All committed records.
    torn
        Bytes of an unfinished last record, cut off when the journal was opened; empty in the normal case.
    """

    def __init__(self, path: Path, disk: Disk = REAL_DISK) -> None:
        self._path = path
        self._disk = disk
        state = read(path, disk)
        self.records: list[Record] = list(state.records)
        self.torn = state.torn
        if state.torn:
            # Without the cut the next record would be glued to the fragment and be lost with it.
            disk.truncate(path, state.sound_bytes)
            disk.sync_file(path)
        if disk.exists(path):
            # Its creator may have died between writing it and syncing the folder.
            disk.sync_folder(path.parent)

    def append(self, record: Record) -> Record:
        """Commit a record: it is durable when this returns.

        Returns
        -------
        dict
            The record as stored, with its ``seq``.
        """
        stored = {**record, "seq": len(self.records)}
        created = not self._disk.exists(self._path)
        self._disk.append(self._path, encode(stored))
        self._disk.sync_file(self._path)
        if created:
            self._disk.sync_folder(self._path.parent)
        self.records.append(stored)
        return stored
