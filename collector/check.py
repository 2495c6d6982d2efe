"""Is a folder of measured tables sound? Every finding is listed; nothing stops at the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BitlaneError, UsageError
from . import casefile, root, sidecar, sources
from .durable import digest
from .parts import parquet_rows
from .provenance import EMPTY_PLAN_HASH
from .schema import KERNEL, LEAD, SHAPES, SOURCE, TAIL, VALUE, differences, key_columns, sort_by_key, table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Severity = Literal["error", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a table, or worth knowing.

    Attributes
    ----------
    rule
        Which check found it (``provenance``, ``hash``, ``rows``, ``keys``, ``values``, ``kernels``, ``schema``,
        ``events``, ``recovery``).
    severity
        ``error`` makes the check fail, ``note`` does not.
    table
        Table name, empty for the folder.
    message
        One sentence.
    """

    rule: str
    severity: Severity
    table: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Outcome of :func:`check`.

    Attributes
    ----------
    tables
        Rows per table looked at.
    findings
        All findings, in table order.
    """

    tables: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether there is no finding of severity ``error``."""
        return all(finding.severity != "error" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Subject:
    name: str
    rows: pa.Table
    sha256: str
    meta: sidecar.Sidecar | None
    listed: sources.Sources


def check(folder: Path) -> CheckReport:
    """Check every table of a folder.

    Parameters
    ----------
    folder
        Folder with ``<table>.parquet`` files. It is only read.

    Raises
    ------
    UsageError
        ``BL717`` if there is no table in it.
    """
    names = sorted(path.name.removesuffix(".parquet") for path in folder.glob("*.parquet"))
    if not names:
        raise UsageError("BL717", "no tables in this folder", place=str(folder), help="give a folder with *.parquet")
    findings: list[Finding] = []
    if root.pending(folder):
        message = "a merge was interrupted after its commit; the next `bitlane collect merge` into it finishes it"
        findings.append(Finding("recovery", "error", "", message))
    counts: dict[str, int] = {}
    try:
        listed = sources.read(folder)
    except BitlaneError as error:
        listed = sources.Sources()
        findings.append(Finding("provenance", "error", "", error.message))
    for name in names:
        data = (folder / f"{name}.parquet").read_bytes()
        try:
            rows = parquet_rows(data, name)
            meta = sidecar.read(folder, name)
        except BitlaneError as error:
            findings.append(Finding("provenance", "error", name, error.message))
            continue
        counts[name] = rows.num_rows
        findings += _check_table(_Subject(name, rows, digest(data), meta, listed))
    return CheckReport(counts, tuple(findings))


def _check_table(subject: _Subject) -> Iterator[Finding]:
    wrong = _schema_faults(subject)
    if wrong:
        yield Finding("schema", "error", subject.name, "; ".join(wrong))
        return
    if subject.rows.num_rows == 0:
        yield Finding("rows", "error", subject.name, "the table has no rows")
        return
    yield from _check_provenance(subject)
    yield from _check_values(subject)
    yield from _check_keys(subject)
    yield from _check_kernels(subject)
    yield from _check_origins(subject)


def _schema_faults(subject: _Subject) -> list[str]:
    if subject.name in SHAPES:
        return differences(table_schema(subject.name), subject.rows.schema)
    return [f"column `{name}` is missing" for name in (*LEAD, *TAIL) if name not in subject.rows.column_names]


def _check_provenance(subject: _Subject) -> Iterator[Finding]:
    meta, imported = subject.meta, subject.listed.tables.get(subject.name)
    if meta is None:
        if imported is None:
            message = f"no provenance: neither {subject.name}{sidecar.SUFFIX} nor {sources.FILE} describes it"
            yield Finding("provenance", "error", subject.name, message)
        elif (imported.sha256, imported.rows) != (subject.sha256, subject.rows.num_rows):
            yield Finding("hash", "error", subject.name, f"the file is not the one that {sources.FILE} describes")
        return
    if meta.table != subject.name:
        yield Finding("provenance", "error", subject.name, f"the sidecar is that of a table `{meta.table}`")
    if meta.sha256 != subject.sha256:
        yield Finding("hash", "error", subject.name, "the file and its sidecar do not belong together")
    if meta.rows != subject.rows.num_rows:
        message = f"the sidecar says {meta.rows} rows, the file has {subject.rows.num_rows}"
        yield Finding("rows", "error", subject.name, message)
    base = meta.base
    if base is not None and (imported is None or (imported.sha256, imported.rows) != (base.sha256, base.rows)):
        message = f"the sidecar builds on a table that {sources.FILE} does not describe"
        yield Finding("hash", "error", subject.name, message)
    expected = (base.rows if base else 0) + sum(event.rows - event.replaced for event in meta.collections)
    if expected != subject.rows.num_rows:
        message = f"base and events add up to {expected} rows, the file has {subject.rows.num_rows}"
        yield Finding("rows", "error", subject.name, message)
    for event in meta.collections:
        yield from _check_event(subject.name, event)


def _check_event(table: str, event: sidecar.Event) -> Iterator[Finding]:
    where = f"event {event.id[:12]} ({event.system}, {event.backend} {event.backend_version})"
    if event.rows <= 0:
        yield Finding("events", "error", table, f"{where} brought no rows")
    if event.case_plan_hash == EMPTY_PLAN_HASH:
        yield Finding("events", "error", table, f"{where} has rows and the hash of an empty plan")
    if sum(event.kernels.values()) != event.rows:
        yield Finding("events", "error", table, f"{where} names kernels for {sum(event.kernels.values())} rows")
    if event.provenance == sidecar.SYNTHETIC:
        yield Finding("events", "note", table, f"{where} is synthetic: its {event.rows} rows were not measured")
    if event.status == "partial":
        message = f"{where} is partial: {event.failures} of its cases failed, others may not have been tried"
        yield Finding("events", "note", table, message)


def _check_values(subject: _Subject) -> Iterator[Finding]:
    empty = [name for name in subject.rows.column_names if subject.rows[name].null_count]
    if empty:
        yield Finding("values", "error", subject.name, f"null values in {', '.join(empty)}")
    latency = pc.cast(subject.rows[VALUE], pa.float64())
    bad = subject.rows.num_rows - (pc.sum(pc.and_(pc.is_finite(latency), pc.greater(latency, 0.0))).as_py() or 0)
    if bad:
        yield Finding("values", "error", subject.name, f"{bad} latencies are not finite and positive")
    kinds = pc.unique(subject.rows["op_kind"]).to_pylist()
    if kinds != [subject.name]:
        yield Finding("values", "error", subject.name, f"op_kind holds {', '.join(map(str, sorted(kinds)))}")


def _check_keys(subject: _Subject) -> Iterator[Finding]:
    keys = key_columns(subject.name, subject.rows.column_names)
    rows = sort_by_key(subject.name, subject.rows.select(keys))
    same = pa.array([True] * max(rows.num_rows - 1, 0))
    for name in keys:
        column = rows[name].combine_chunks()
        same = pc.and_(same, pc.equal(column.slice(0, len(column) - 1), column.slice(1)))
    repeated = pc.sum(same).as_py() or 0
    if repeated:
        yield Finding("keys", "error", subject.name, f"{repeated} rows repeat the key of another row")


def known_kernels() -> dict[str, frozenset[str]]:
    """Kernel names that may stand in each table."""
    listed = casefile.load("kernel_sources.yaml", dict[str, list[str]])
    return {table: frozenset(names) for table, names in listed.items()}


def _check_kernels(subject: _Subject) -> Iterator[Finding]:
    known = known_kernels().get(subject.name, frozenset())
    unknown = sorted(set(pc.unique(subject.rows[KERNEL]).to_pylist()) - known)
    if unknown:
        message = f"unknown kernels {', '.join(unknown)}; if they are right, add them to kernel_sources.yaml"
        yield Finding("kernels", "error", subject.name, message)


def _check_origins(subject: _Subject) -> Iterator[Finding]:
    """Each row's source number leads to a source of the same table, system, backend and version."""
    known = {
        source.source_id: (source.system, source.backend, source.version_dir)
        for source in subject.listed.sources
        if source.table == subject.name
    }
    limits: dict[int, int] = {}
    for event in subject.meta.collections if subject.meta else ():
        known[event.source_id] = (event.system, event.backend, event.backend_version)
        limits[event.source_id] = event.rows
    groups = subject.rows.group_by([SOURCE, *LEAD[:3]]).aggregate([([], "count_all")]).to_pylist()
    for group in sorted(groups, key=lambda group: (group[SOURCE], group["system"])):
        number, origin, count = group[SOURCE], tuple(group[name] for name in LEAD[:3]), group["count_all"]
        if number not in known:
            message = f"{count} rows have source {number}, which is nowhere described"
        elif known[number] != origin:
            message = f"{count} rows of {' '.join(origin)} claim source {number} of {' '.join(known[number])}"
        elif count > limits.get(number, count):
            message = f"{count} rows claim source {number}, which brought {limits[number]}"
        else:
            continue
        yield Finding("provenance", "error", subject.name, message)
