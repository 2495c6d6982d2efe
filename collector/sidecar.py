"""The provenance file beside a measured table: which runs its rows came from, with what software, on what machine.

``<table>.meta.yaml`` holds one event per merge of a run. Events are only ever added. A table imported from a package
keeps its own source list (``sources.json``); the sidecar then names that list as its base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import yaml

from ..errors import BitlaneError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 2
SUFFIX: Final = ".meta.yaml"
SYNTHETIC: Final = "synthetic"


class Runtime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The software that ran the kernels.

    Attributes
    ----------
    framework
        Serving engine or library (``vllm``, ``torch``, ``numpy``).
    version
        Its version as it reports it itself.
    image, image_digest
        Container image, when the run was in one.
    source_commit
        Commit of the framework, when it was built from source.
    libraries
        Versions of libraries below it that hold kernels (``cuda``, ``flashinfer``, ``openblas``).
    """

    framework: str
    version: str
    image: str | None = None
    image_digest: str | None = None
    source_commit: str | None = None
    libraries: dict[str, str] = {}


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One collection whose rows were added to the table.

    Attributes
    ----------
    id
        Digest of the run and of the part files merged; the same collection is never added twice.
    source_id
        What the table's ``source_id`` column holds for these rows.
    system, backend, backend_version, device
        Where it ran.
    runtime
        With what.
    collector_ref, collector_hash
        Commit of this program, and digest of the collector's source files.
    case_plan_hash
        Digest of the sorted ids of the cases attempted.
    collected_at
        UTC time of the last row, ISO 8601.
    rows
        Rows that the event brought into the table. Later events may since have superseded some.
    replaced
        Rows of earlier events that these rows superseded.
    status
        ``partial`` when planned cases are without a row.
    failures
        Cases attempted that gave no row.
    run, parts
        Name of the run, and content names of the part files merged from it.
    kernels
        Rows per kernel that ran.
    """

    id: str
    source_id: int
    system: str
    backend: str
    backend_version: str
    device: str
    runtime: Runtime
    collector_ref: str
    collector_hash: str
    case_plan_hash: str
    collected_at: str
    rows: int
    status: Literal["complete", "partial"]
    replaced: int = 0
    failures: int = 0
    provenance: Literal["collected", "local", "synthetic"] = "collected"
    run: str = ""
    parts: tuple[str, ...] = ()
    kernels: dict[str, int] = {}
    note: str = ""


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The imported table that the events were added to."""

    sources: str
    sha256: str
    rows: int


class Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Provenance of one table.

    Attributes
    ----------
    schema_version
        2; a file of another version is refused.
    table
        Name of the table (``gemm``).
    rows, sha256
        Row count and digest of the parquet file that this sidecar belongs to.
    base
        The imported table it grew from; ``None`` when every row has an event.
    collections
        All events, oldest first.
    """

    schema_version: int
    table: str
    rows: int
    sha256: str
    base: Base | None = None
    collections: tuple[Event, ...] = ()


def path_of(root: Path, table: str) -> Path:
    """Where the sidecar of a table lies."""
    return root / f"{table}{SUFFIX}"


def dump(sidecar: Sidecar) -> bytes:
    """The file's bytes; the same sidecar always gives the same bytes."""
    plain = msgspec.to_builtins(sidecar)
    # Fields that say nothing are left out, so that the file reads like a form filled in by hand.
    plain["collections"] = [_without_empty(event) for event in plain["collections"]]
    text: str = yaml.safe_dump(_without_empty(plain), sort_keys=False, allow_unicode=False, width=120)
    return text.encode()


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in mapping.items() if value not in (None, "", (), [], {})}
    runtime = kept.get("runtime")
    if isinstance(runtime, dict):
        kept["runtime"] = _without_empty(runtime)
    return kept


def parse(data: bytes, place: str) -> Sidecar:
    """Read a sidecar.

    Raises
    ------
    BitlaneError
        ``BL705`` for a legacy sidecar, ``BL706`` for one that cannot be read.
    """
    try:
        plain = yaml.load(data, Loader=_PlainLoader)  # noqa: S506  (a safe loader without dates and aliases)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _unreadable(place, str(error).splitlines()[0]) from error
    if isinstance(plain, dict):
        _refuse_legacy(plain, place)
    try:
        return msgspec.convert(plain, Sidecar)
    except msgspec.ValidationError as error:
        raise _unreadable(place, str(error)) from error


def read(root: Path, table: str) -> Sidecar | None:
    """Sidecar of a table, ``None`` if it has none."""
    path = path_of(root, table)
    return parse(path.read_bytes(), str(path)) if path.exists() else None


def _refuse_legacy(plain: dict[str, Any], place: str) -> None:
    version = plain.get("schema_version")
    if plain.get("provenance") == "legacy" or version != SCHEMA_VERSION:
        why = "is marked legacy" if plain.get("provenance") == "legacy" else f"has schema_version {version!r}"
        raise BitlaneError(
            "BL705",
            f"the sidecar {why}: it does not say which runs its rows came from",
            place=place,
            help=f"rows are merged only where every row has an event (schema_version {SCHEMA_VERSION}); "
            "collect them again, or keep that table apart",
        )


def _unreadable(place: str, reason: str) -> BitlaneError:
    return BitlaneError(
        "BL706", f"the sidecar cannot be read: {reason}", place=place, help="restore it; do not edit it by hand"
    )


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, dates and octal numbers: what :func:`dump` writes, and nothing cleverer."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
