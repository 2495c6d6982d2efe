"""A run's folder: who collects what, and how far it came.

The identity is written once. A run is continued only by the same collector, plan, engine and machine: rows of two
different set-ups under one provenance event would be a lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ..errors import BitlaneError, UsageError
from . import journal
from .durable import REAL_DISK, Disk, write_durably
from .parts import JOURNAL, committed
from .sidecar import Runtime  # noqa: TC001  (msgspec reads the annotation)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

IDENTITY: Final = "run.json"
LOCK: Final = "lock"
SCHEMA: Final = "bitlane.run/1"
Tier = Literal["collected", "local", "synthetic"]


class RunIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that must be equal for two sessions to belong to one run.

    Attributes
    ----------
    plan_hash, planned
        Digest of the sorted case ids of the plan, and how many cases it has.
    seed
        Seed of all synthetic weights and inputs.
    run_id
        Name of the run, drawn when it starts; a session that continues it does not know it.
    provenance
        ``collected`` on a named system, ``local`` on this very machine, ``synthetic`` when nothing was measured.

    The other fields are those of :class:`~bitlane.collector.sidecar.Event`.
    """

    engine: str
    system: str
    backend: str
    backend_version: str
    device: str
    runtime: Runtime
    collector_ref: str
    collector_hash: str
    plan_hash: str
    planned: int
    seed: int
    run_id: str
    provenance: Tier = "collected"
    schema: str = SCHEMA


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that gave no row.

    Attributes
    ----------
    case
        Case id.
    kind
        Exception type, or ``WorkerLost``.
    message
        First line of what it said.
    group
        ``<table>/<lane>``; failures are summed up by it.
    detail
        Traceback, shortened.
    """

    case: str
    kind: str
    message: str
    group: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run's journal says.

    Attributes
    ----------
    done
        Cases with a committed row.
    failed
        The last failure of each case that has no row.
    torn
        Bytes of an unfinished last record.
    """

    done: frozenset[str]
    failed: dict[str, Failure]
    torn: int

    @property
    def attempted(self) -> frozenset[str]:
        """Cases with an outcome."""
        return self.done | frozenset(self.failed)


def progress_of(records: Iterable[journal.Record], torn: int = 0) -> Progress:
    """Fold journal records into outcomes; a later success of a case cancels its failure."""
    records = list(records)
    done = frozenset(case for part in committed(records) for case in part.record.get("cases", ()))
    failed = {
        record["case"]: Failure(record["case"], record["type"], record["message"], record["group"], record["detail"])
        for record in records
        if record.get("kind") == "failure" and record["case"] not in done
    }
    return Progress(done, failed, torn)


def read_progress(folder: Path, disk: Disk = REAL_DISK) -> Progress:
    """Outcomes of a run without opening it for writing; safe while the run goes on."""
    state = journal.read(folder / JOURNAL, disk)
    return progress_of(state.records, len(state.torn))


def write_identity(folder: Path, identity: RunIdentity, disk: Disk = REAL_DISK) -> None:
    """Start a run's folder."""
    disk.make_folder(folder)
    data = msgspec.json.format(msgspec.json.encode(identity), indent=1)
    write_durably(disk, folder / IDENTITY, data + b"\n")


def read_identity(folder: Path, disk: Disk = REAL_DISK) -> RunIdentity | None:
    """Identity of a run's folder, ``None`` if it holds no run.

    Raises
    ------
    BitlaneError
        ``BL713`` if the file is not a run identity of this schema.
    """
    path = folder / IDENTITY
    if not disk.exists(path):
        return None
    try:
        identity = msgspec.json.decode(disk.read(path), type=RunIdentity)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BitlaneError(
            "BL713",
            f"not a run of this collector: {error}",
            place=str(path),
            help="collect into another folder; rows of this one can be merged only by the version that wrote it",
        ) from error
    if identity.schema != SCHEMA:
        raise BitlaneError(
            "BL713", f"a run of schema `{identity.schema}`", place=str(path), help=f"this version reads {SCHEMA}"
        )
    return identity


def refuse_other_identity(folder: Path, found: RunIdentity, wanted: RunIdentity) -> None:
    """Refuse to continue a run whose identity differs.

    Raises
    ------
    UsageError
        ``BL714``, naming each field that differs; the run's name and the commit do not count.
    """
    was, now = msgspec.structs.asdict(found), msgspec.structs.asdict(wanted)
    # Committing the very same source changes collector_ref and nothing that was measured; collector_hash decides.
    fields = [name for name in was if name not in ("run_id", "collector_ref") and was[name] != now[name]]
    changed = [f"{name} was `{_short(was[name])}`, is `{_short(now[name])}`" for name in fields]
    if changed:
        raise UsageError(
            "BL714",
            f"this run cannot be continued: {'; '.join(changed)}",
            place=str(folder / IDENTITY),
            help="collect into another folder and merge both; or restore the set-up that started the run",
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
