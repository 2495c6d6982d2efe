"""Disk operations whose effect survives a crash: the one place where bytes reach the disk.

Every write of the collector goes through a :class:`Disk`, so that tests can put a simulated one in its place which
loses whatever was not synced, as a power cut does.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pathlib import Path

TEMPORARY_SUFFIX: Final = ".tmp"


class Disk(Protocol):
    """The primitive operations; none of them is durable by itself except the two ``sync`` ones."""

    def read(self, path: Path) -> bytes:
        """Whole content of a file; raises ``FileNotFoundError``."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file or folder is there."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder, empty if the folder is absent."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Create or truncate a file and fill it."""
        ...

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to the end of a file, creating it if need be."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to `size` bytes."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over `target` in one step."""
        ...

    def remove(self, path: Path) -> None:
        """Delete a file; no error if it is absent."""
        ...

    def sync_file(self, path: Path) -> None:
        """Make a file's content durable."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Make a folder's entries (creations, renames, deletions) durable."""
        ...


class RealDisk:
    """The file system of this machine."""

    def read(self, path: Path) -> bytes:
        """Whole content of a file."""
        return path.read_bytes()

    def exists(self, path: Path) -> bool:
        """Whether a file or folder is there."""
        return path.exists()

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder."""
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents; each new entry is synced in its parent."""
        missing = [folder, *folder.parents]
        missing = [entry for entry in missing if not entry.exists()]
        for entry in reversed(missing):
            entry.mkdir(exist_ok=True)
            self.sync_folder(entry.parent)

    def write(self, path: Path, data: bytes) -> None:
        """Create or truncate a file and fill it."""
        path.write_bytes(data)

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to the end of a file, in one system call where the kernel allows."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.truncate(path, size)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over `target` in one step."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Delete a file; no error if it is absent."""
        path.unlink(missing_ok=True)

    def sync_file(self, path: Path) -> None:
        """Flush the file's data and size to the device."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Flush the folder's entries to the device; a system without folder handles (Windows) has no such call."""
        if os.name == "nt":
            return
        self.sync_file(folder)


REAL_DISK: Final = RealDisk()


def digest(data: bytes) -> str:
    """SHA-256 of `data` in hex."""
    return hashlib.sha256(data).hexdigest()


def write_durably(disk: Disk, path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a reader sees the old file or the new one, and a crash keeps either whole.

    Temporary file, sync, rename, folder sync, in this order: a rename that reaches the disk before the data would
    leave an empty file behind after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    disk.write(temporary, data)
    disk.sync_file(temporary)
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)


def sweep_temporaries(disk: Disk, folder: Path) -> list[str]:
    """Delete temporary files that a killed writer left in `folder`; call it under that folder's lock.

    Returns
    -------
    list[str]
        Names of the files removed.
    """
    stale = [name for name in disk.names(folder) if name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)]
    for name in stale:
        disk.remove(folder / name)
    return stale
