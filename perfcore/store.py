"""Measured tables: parquet of record in, packed memory-mapped arrays out, compiled once per content."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import paths
from ..errors import MissingDataError, UsageError
from ..resolver.systems import checked, unusable
from . import bands, cache, pack
from .specs import SPECS, TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAGIC: Final = b"BITLANE1"
_PREFIX: Final = struct.Struct("<8sQIQ")  # magic, header bytes, header crc, file bytes


class Store:
    """Tables of one or several folders.

    Parameters
    ----------
    folders
        Folders with ``<table>.parquet`` and, optionally, part files ``<table>/*.parquet``. Rows of a later folder win
        over those of an earlier one with the same key. Default: the packaged tables.
    """

    def __init__(self, folders: Iterable[Path] | None = None) -> None:
        self.folders: tuple[Path, ...] = tuple(folders) if folders is not None else (paths.PERF_DATA,)
        for folder in self.folders:
            if not folder.is_dir():
                raise UsageError(
                    "BL511",
                    f"no such table folder `{folder}`",
                    place="--perf-data",
                    help="name a folder of parquet tables",
                )
        self._packs: dict[str, pack.Pack | None] = {}
        self._systems: Mapping[str, Mapping[str, Any]] | None = None

    def files(self, table: str) -> list[Path]:
        """Return the table's files, earlier folders first."""
        found: list[Path] = []
        for folder in self.folders:
            single = folder / f"{table}.parquet"
            found += [single] if single.is_file() else []
            found += sorted((folder / table).glob("*.parquet"))
        return found

    def table(self, name: str) -> pack.Pack:
        """Return a packed table, compiling it when no cached copy of exactly this content exists.

        Raises
        ------
        UsageError
            BL512: there is no table of this name.
        MissingDataError
            BL513: the table has no file.
        """
        spec = SPECS.get(name)
        if spec is None:
            raise UsageError("BL512", f"unknown table `{name}`", help=f"one of {', '.join(SPECS)}")
        found = self.get(name)
        if found is None:
            raise MissingDataError("BL513", f"no file holds table `{name}`", place=str(self.folders[-1]))
        return found

    def get(self, name: str) -> pack.Pack | None:
        """Return a packed table, or None when no folder has it."""
        if name not in self._packs:
            files = self.files(name)
            self._packs[name] = _load(SPECS[name], files) if files else None
        return self._packs[name]

    @property
    def systems(self) -> Mapping[str, Mapping[str, Any]]:
        """Facts of every GPU system, from ``systems.yaml`` of the folders."""
        if self._systems is None:
            self._systems = _systems([f / "systems.yaml" for f in (paths.PERF_DATA, *self.folders)])
        return self._systems


@functools.cache
def code_digest(*modules: str) -> str:
    """Name the code that shapes a compiled form, so that an edit never meets an older one."""
    whole = hashlib.sha256(np.__version__.encode())
    for name in modules:
        whole.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return whole.hexdigest()[:24]


def _digest(spec: TableSpec, files: Iterable[Path]) -> str:
    """Name the content and everything that shapes the packed form."""
    whole = hashlib.sha256((code_digest("layout", "specs", "pack", "gaps", "bands", "store") + spec.name).encode())
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:24]


def _load(spec: TableSpec, files: list[Path]) -> pack.Pack:
    digest = _digest(spec, files)
    folder = cache.root()
    path = folder / f"{spec.name}-{digest}.pack"
    loaded = _read(spec, path, digest)
    if loaded is not None:
        return loaded
    with _building(folder / f"{spec.name}.lock"):
        loaded = _read(spec, path, digest, quiet=True)
        if loaded is not None:
            return loaded
        built = bands.annotate(pack.build(spec, read_columns(spec, files)))
        try:
            cache.write_atomic(path, _encode(built, digest))
        except OSError as error:
            cache.log.warning("bitlane: cannot keep the compiled table %s: %s", path, error)
            return built
    return _read(spec, path, digest) or built


@contextlib.contextmanager
def _building(lock: Path) -> Iterator[None]:
    """Let one process compile while the others wait; without a lock two compile the same bytes, which is harmless."""
    import filelock

    held = filelock.FileLock(lock)
    try:
        held.acquire(timeout=60)
    except (OSError, filelock.Timeout, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        held.release()


def read_columns(spec: TableSpec, files: Iterable[Path]) -> pack.Columns:
    """Read the table's files into plain columns.

    Raises
    ------
    MissingDataError
        BL514: a file cannot be read or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [*dict.fromkeys((*spec.columns, "kernel_source", "latency_ms", "source_id"))]
    data: dict[str, list[Any]] = {}
    text: dict[str, list[pack.Coded]] = {}
    for path in files:
        try:
            present = pq.read_schema(path).names
            table = pq.read_table(path, columns=[column for column in wanted if column in present])
        except (OSError, pa.ArrowException) as error:
            raise MissingDataError("BL514", f"table file cannot be read: {error}", place=str(path)) from error
        missing = [column for column in (*spec.columns, "latency_ms") if column not in table.column_names]
        if missing:
            raise MissingDataError("BL514", f"table file lacks column `{missing[0]}`", place=str(path))
        for column in wanted:
            read = _column(table, column)
            if isinstance(read, pack.Coded):
                text.setdefault(column, []).append(read)
            else:
                data.setdefault(column, []).append(read)
    return pack.Columns(
        {column: np.concatenate(parts) for column, parts in data.items()},
        {column: pack.Coded.join(parts) for column, parts in text.items()},
    )


def _column(table: Any, column: str) -> Any:
    import pyarrow as pa

    if column not in table.column_names:  # optional: a user's own rows may lack it
        if column == "source_id":
            return np.full(len(table), -1, np.int64)
        return pack.Coded([""], np.zeros(len(table), np.int64))
    data = table[column].combine_chunks()
    if pa.types.is_string(data.type) or pa.types.is_large_string(data.type):
        data = data.dictionary_encode()
        data = data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data
    if pa.types.is_dictionary(data.type):
        names = data.dictionary.to_pylist()
        return pack.Coded([str(name) for name in names], data.indices.to_numpy(zero_copy_only=False).astype(np.int64))
    return data.to_numpy(zero_copy_only=False)


def _encode(built: pack.Pack, digest: str) -> list[bytes | memoryview]:
    layout: dict[str, Any] = {}
    offset = 0
    chunks: list[bytes | memoryview] = []
    for name, array in built.arrays.items():
        data = np.ascontiguousarray(array)
        layout[name] = {"dtype": data.dtype.str, "shape": data.shape, "offset": offset, "bytes": data.nbytes}
        pad = -data.nbytes % 64
        chunks += [data.tobytes(), b"\0" * pad]
        layout[name]["sum"] = _sum(b"".join(chunks[-2:]))
        offset += data.nbytes + pad
    header = json.dumps(
        {"digest": digest, "vocab": built.vocab, "kernels": built.kernels, "notes": built.notes, "arrays": layout}
    ).encode()
    header += b" " * (-(len(header) + _PREFIX.size) % 64)
    prefix = _PREFIX.pack(MAGIC, len(header), zlib.crc32(header), _PREFIX.size + len(header) + offset)
    return [prefix, header, *chunks]


def _read(spec: TableSpec, path: Path, digest: str, *, quiet: bool = False) -> pack.Pack | None:
    """Map a cached table; None when absent, and with a notice when damaged or not ours."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if hasattr(os, "getuid") and facts.st_uid != os.getuid():
                raise ValueError("belongs to another user")
            size, crc, total = _head(file.read(_PREFIX.size))
            text = file.read(size)
            if total != facts.st_size or zlib.crc32(text) != crc:
                raise ValueError("damaged header or wrong size")
            head = json.loads(text)
            if head["digest"] != digest:
                raise ValueError("other content")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        if not quiet:
            cache.log.warning("bitlane: compiled table %s is unusable (%s); compiling it again", path, error)
        return None
    arrays: dict[str, Any] = {}
    for name, part in head["arrays"].items():
        start = _PREFIX.size + size + part["offset"]
        raw = memoryview(data)[start : start + part["bytes"]]
        if _sum(memoryview(data)[start : start + part["bytes"] + -part["bytes"] % 64]) != part["sum"]:
            if not quiet:
                cache.log.warning("bitlane: compiled table %s is damaged (%s); compiling it again", path, name)
            return None
        arrays[name] = np.frombuffer(raw, np.dtype(part["dtype"])).reshape(part["shape"])
    return pack.Pack(spec, head["vocab"], head["kernels"], arrays, head["notes"])


def _sum(raw: bytes | memoryview) -> int:
    """Add up 8-byte words, modulo 2^64: five times faster than a CRC, and enough to notice damage."""
    return int(np.add.reduce(np.frombuffer(raw, np.uint64), dtype=np.uint64))


def _head(prefix: bytes) -> tuple[int, int, int]:
    if len(prefix) < _PREFIX.size:
        raise ValueError("too short")
    magic, size, crc, total = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ValueError("not a compiled table")
    return size, crc, total


def parsed_yaml(path: Path) -> Any:
    """Read one of our YAML files through a parsed copy in the cache: YAML costs tens of milliseconds, JSON one."""
    text = path.read_bytes()
    copy = cache.root() / f"{path.stem}-{hashlib.sha256(text).hexdigest()[:24]}.json"
    try:
        return json.loads(copy.read_bytes())
    except (OSError, ValueError):
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            data = yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader either way
        except yaml.YAMLError as error:
            raise ValueError(f"no YAML: {error}") from error
        with contextlib.suppress(OSError, TypeError, ValueError):  # what JSON cannot hold is read again each time
            cache.write_atomic(copy, [json.dumps(data).encode()])
        return data


def _systems(files: list[Path]) -> dict[str, Mapping[str, Any]]:
    merged: dict[str, Mapping[str, Any]] = {}
    for path in dict.fromkeys(files):
        if path.is_file():
            try:
                document = parsed_yaml(path)
            except (OSError, ValueError, RecursionError) as error:
                raise unusable(path, f"cannot be read: {str(error).splitlines()[0]}") from error
            merged.update(checked(document, path))
    return merged
