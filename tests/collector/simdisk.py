"""A disk in memory that forgets, at a power cut, whatever was not synced.

Files are inodes; a folder entry (creation, rename, removal) and a file's content become durable only by the two sync
calls. ``power_cut`` keeps or drops each change that was not synced by the toss of a seeded coin, and may keep a torn
piece of bytes that were appended. This is weaker than any journaling file system, so what survives here survives there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path


class PowerCutError(Exception):
    """Raised in place of the operation that the machine did not live to see."""


@dataclass
class Inode:
    volatile: bytes = b""
    durable: bytes = b""


@dataclass
class SimDisk:
    entries: dict[Path, Inode] = field(default_factory=dict)
    durable_entries: dict[Path, Inode] = field(default_factory=dict)
    operations: int = 0
    die_at: int | None = None

    def _step(self) -> None:
        if self.die_at is not None and self.operations >= self.die_at:
            raise PowerCutError
        self.operations += 1

    def read(self, path: Path) -> bytes:
        if path not in self.entries:
            raise FileNotFoundError(path)
        return self.entries[path].volatile

    def exists(self, path: Path) -> bool:
        return path in self.entries or any(path in entry.parents for entry in self.entries)

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self.entries if path.parent == folder)

    def make_folder(self, folder: Path) -> None:
        pass

    def write(self, path: Path, data: bytes) -> None:
        self._step()
        self.entries.setdefault(path, Inode()).volatile = data

    def append(self, path: Path, data: bytes) -> None:
        self._step()
        self.entries.setdefault(path, Inode()).volatile += data

    def truncate(self, path: Path, size: int) -> None:
        self._step()
        self.entries[path].volatile = self.entries[path].volatile[:size]

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        self.entries[target] = self.entries.pop(source)

    def remove(self, path: Path) -> None:
        self._step()
        self.entries.pop(path, None)

    def sync_file(self, path: Path) -> None:
        self._step()
        self.entries[path].durable = self.entries[path].volatile

    def sync_folder(self, folder: Path) -> None:
        self._step()
        kept = {path: inode for path, inode in self.durable_entries.items() if path.parent != folder}
        self.durable_entries = kept | {path: inode for path, inode in self.entries.items() if path.parent == folder}

    def power_cut(self, seed: int) -> None:
        """Lose a random part of what was not synced, and come back up."""
        coin = random.Random(seed)
        paths = sorted({*self.entries, *self.durable_entries})
        after: dict[Path, Inode] = {}
        for path in paths:
            new, old = self.entries.get(path), self.durable_entries.get(path)
            kept = new if coin.random() < 0.5 else old
            if kept is not None:
                after[path] = kept
        for inode in {id(inode): inode for inode in after.values()}.values():
            inode.volatile = inode.durable = self._content(inode, coin)
        self.entries, self.durable_entries = dict(after), dict(after)
        self.die_at = None

    @staticmethod
    def _content(inode: Inode, coin: random.Random) -> bytes:
        if inode.volatile == inode.durable or coin.random() < 0.4:
            return inode.durable
        if inode.volatile.startswith(inode.durable):
            return inode.volatile[: coin.randint(len(inode.durable), len(inode.volatile))]
        return inode.volatile[: coin.randint(0, len(inode.volatile))]

    def killed(self) -> None:
        """The process died, the machine did not: nothing is lost."""
        self.die_at = None
