"""The list of source files behind imported tables (``sources.json`` beside them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ..errors import BitlaneError

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "sources.json"


class SourceTable(msgspec.Struct, frozen=True):
    """One imported table: its file digest and row count at import."""

    sha256: str
    rows: int


class SourceEvent(msgspec.Struct, frozen=True):
    """One collection inside a source file; only its date is used."""

    collected_at: str | None = None


class Source(msgspec.Struct, frozen=True):
    """One source file; rows name it by ``source_id``."""

    source_id: int
    table: str
    system: str
    backend: str
    version_dir: str
    collections: tuple[SourceEvent, ...] = ()

    @property
    def newest(self) -> str:
        """Date of the newest collection in it, empty when the source does not say."""
        return max((event.collected_at or "" for event in self.collections), default="")


class Sources(msgspec.Struct, frozen=True):
    """The whole list."""

    tables: dict[str, SourceTable] = {}
    sources: tuple[Source, ...] = ()


def read(root: Path) -> Sources:
    """The list beside a folder of tables; empty when there is none.

    Raises
    ------
    BitlaneError
        ``BL716`` if the file is not such a list.
    """
    path = root / FILE
    if not path.exists():
        return Sources()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Sources)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BitlaneError(
            "BL716", f"the source list cannot be read: {error}", place=str(path), help="restore it from the package"
        ) from error
