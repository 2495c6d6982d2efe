"""Which keys are measured already, read from the parquet tables of one system, backend and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from .case import AXES
from .schema import key_tuples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class Coverage:
    """Rows that several folders of tables hold for one origin.

    Parameters
    ----------
    folders
        Folders with ``<table>.parquet``.
    system, backend, version
        Origin of the rows; rows of another origin do not count.
    """

    def __init__(self, folders: Iterable[Path], system: str, backend: str, version: str) -> None:
        self._folders = tuple(folders)
        self._origin = [("system", "=", system), ("backend", "=", backend), ("backend_version", "=", version)]
        self._keys: dict[str, frozenset[tuple[object, ...]]] = {}

    def has(self, table: str, key: Mapping[str, int | str]) -> bool:
        """Whether a row with these key columns is there; the signature that :func:`~.plan.plan` asks for."""
        return tuple(key[name] for name in ("quant_mode", *AXES[table].values())) in self._of(table)

    def _of(self, table: str) -> frozenset[tuple[object, ...]]:
        if table not in self._keys:
            columns = ["quant_mode", *AXES[table].values()]
            found: set[tuple[object, ...]] = set()
            for folder in self._folders:
                path = folder / f"{table}.parquet"
                if path.exists():
                    found.update(key_tuples(pq.read_table(path, columns=columns, filters=self._origin), columns))
            self._keys[table] = frozenset(found)
        return self._keys[table]
