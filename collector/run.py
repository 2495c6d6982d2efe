"""Collect a plan: measure, keep every row at once, go on where a run stopped."""

from __future__ import annotations

import contextlib
import secrets
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from filelock import FileLock, Timeout

from ..errors import UsageError
from . import provenance, runfile
from .durable import REAL_DISK, sweep_temporaries
from .journal import Journal
from .parts import JOURNAL, PARTS, append_part
from .runfile import Failure, RunIdentity
from .schema import KERNEL, VALUE, table_schema, without_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .case import Case, CasePlan
    from .engine import Measurement, Origin
    from .pool import Outcome, Pool

# A kill loses at most the measurements since the last flush; an interrupt loses none.
FLUSH_ROWS: Final = 64
FLUSH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run stands.

    Attributes
    ----------
    planned, done
        Cases of the plan, and those of them that have a row.
    failures
        Cases without a row, by case id.
    resumed
        Cases that an earlier session had settled.
    empty
        Groups (``<table>/<lane>``) of which every case failed.
    interrupted
        Whether the session was stopped; nothing measured was lost.
    notices
        What opening the run found.
    """

    planned: int
    done: int
    failures: dict[str, Failure]
    resumed: int
    empty: tuple[str, ...]
    interrupted: bool
    notices: tuple[str, ...]

    @property
    def succeeded(self) -> bool:
        """Whether every group has rows and no case is left."""
        return not self.empty and not self.interrupted

    def failures_by_group(self) -> dict[tuple[str, str], int]:
        """Failures per group and exception type."""
        return dict(sorted(Counter((entry.group, entry.kind) for entry in self.failures.values()).items()))


def collect(
    plan: CasePlan,
    pool: Pool,
    folder: Path,
    *,
    engine_name: str,
    seed: int = 0,
    resume: bool = False,
    retry_failed: bool = False,
    on_outcome: Callable[[Outcome], None] | None = None,
    flush_rows: int = FLUSH_ROWS,
    flush_s: float = FLUSH_S,
) -> RunReport:
    """Measure the cases of a plan into a run folder.

    Parameters
    ----------
    plan
        What to measure.
    pool
        Where; it is not closed here.
    folder
        The run's folder.
    engine_name
        Engine as named on the command line, part of the identity.
    seed
        Seed of synthetic weights and inputs.
    resume
        Continue the run in `folder`; without it an existing run is refused.
    retry_failed
        When continuing, try failed cases again.
    on_outcome
        Called after each case.
    flush_rows, flush_s
        Rows are made durable at least this often.

    Raises
    ------
    UsageError
        ``BL714`` another identity, ``BL728`` the folder holds a run, ``BL729`` another process is collecting into it,
        ``BL730`` the engine is not that of the plan, ``BL734`` the plan is empty, ``BL735`` the engine cannot build
        one of its lanes.
    """
    _refuse_foreign_lanes(plan, pool)
    identity = _identity(plan, pool.origin(), engine_name, seed)
    lock = FileLock(folder / runfile.LOCK, timeout=0)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire()
    except Timeout as error:
        raise UsageError(
            "BL729", "another process is collecting into this folder", place=str(folder), help="wait, or take another"
        ) from error
    try:
        _open(folder, identity, resume)
        session = _Session(folder, Journal(folder / JOURNAL), plan, pool.origin(), flush_rows, flush_s)
        return session.measure(pool, seed, retry_failed, on_outcome)
    finally:
        lock.release()


def _refuse_foreign_lanes(plan: CasePlan, pool: Pool) -> None:
    known = pool.lanes()
    foreign = sorted({case.group for case in plan.cases if (case.table, case.lane) not in known})
    if foreign:
        raise UsageError(
            "BL735",
            f"the engine cannot build {', '.join(foreign)}",
            place="--engine",
            help=f"it builds {', '.join(sorted('/'.join(pair) for pair in known))}; choose cases with `--case-filter`",
        )


def _identity(plan: CasePlan, origin: Origin, engine_name: str, seed: int) -> RunIdentity:
    if not plan.cases:
        raise UsageError(
            "BL734", "there is nothing to collect: the plan has no cases", place="plan", help="see what it dropped"
        )
    wanted, found = (plan.system, plan.backend, plan.version), (origin.system, origin.backend, origin.version)
    if wanted != found:
        raise UsageError(
            "BL730",
            f"the plan is for {' '.join(wanted)}, the engine measures {' '.join(found)}",
            place="--engine",
            help="rows keep the name of what really ran; make a plan for this machine and engine",
        )
    return RunIdentity(
        engine=engine_name,
        system=origin.system,
        backend=origin.backend,
        backend_version=origin.version,
        device=origin.device,
        runtime=origin.runtime,
        collector_ref=provenance.collector_ref(),
        collector_hash=provenance.collector_hash(),
        plan_hash=plan.hash,
        planned=len(plan.cases),
        seed=seed,
        run_id=secrets.token_hex(8),
        provenance=_tier(origin.provenance),
    )


def _tier(text: str) -> runfile.Tier:
    if text == "collected":
        return "collected"
    return "local" if text == "local" else "synthetic"


def _open(folder: Path, identity: RunIdentity, resume: bool) -> None:
    found = runfile.read_identity(folder)
    if found is None:
        runfile.write_identity(folder, identity)
        return
    if not resume:
        raise UsageError(
            "BL728",
            "this folder holds a run already",
            place=str(folder),
            help="continue it with `--resume`, or collect into another folder",
        )
    runfile.refuse_other_identity(folder, found, identity)


@dataclass(slots=True)
class _Session:
    folder: Path
    log: Journal
    plan: CasePlan
    origin: Origin
    flush_rows: int
    flush_s: float
    waiting: dict[str, list[tuple[Case, Measurement]]] = field(default_factory=dict)
    last_flush: float = field(default_factory=time.monotonic)

    def measure(
        self, pool: Pool, seed: int, retry_failed: bool, on_outcome: Callable[[Outcome], None] | None
    ) -> RunReport:
        notices = [f"ignored {len(self.log.torn)} bytes of an unfinished record"] if self.log.torn else []
        for place in (self.folder, self.folder / PARTS):
            sweep_temporaries(REAL_DISK, place)
        before = runfile.progress_of(self.log.records)
        settled = before.done if retry_failed else before.attempted
        cases = [case for case in self.plan.cases if case.id not in settled]
        interrupted = False
        with _interrupts() as guard:
            try:
                for outcome in pool.run(cases, seed):
                    with guard.held():
                        self.take(outcome)
                    if on_outcome is not None:
                        on_outcome(outcome)
            except KeyboardInterrupt:
                interrupted = True
            # A second interrupt during the last flush is too late to stop anything.
            with contextlib.suppress(KeyboardInterrupt), guard.held():
                self.flush()
        return self.report(len(self.plan.cases) - len(cases), interrupted, notices)

    def take(self, outcome: Outcome) -> None:
        """Keep an outcome: failures at once, rows with the next flush."""
        if isinstance(outcome.result, Failure):
            failure = outcome.result
            self.log.append(
                {
                    "kind": "failure",
                    "case": failure.case,
                    "type": failure.kind,
                    "message": failure.message,
                    "group": failure.group,
                    "detail": failure.detail,
                    "at": _now(),
                }
            )
        else:
            self.waiting.setdefault(outcome.case.table, []).append((outcome.case, outcome.result))
        count = sum(len(rows) for rows in self.waiting.values())
        if count >= self.flush_rows or (count and time.monotonic() - self.last_flush >= self.flush_s):
            self.flush()

    def flush(self) -> None:
        """Make all waiting rows durable."""
        for table, rows in sorted(self.waiting.items()):
            note = {"cases": [case.id for case, _ in rows], "at": _now()}
            append_part(self.log, self.folder, table, self.rows(table, rows), note)
        self.waiting.clear()
        self.last_flush = time.monotonic()

    def rows(self, table: str, measured: list[tuple[Case, Measurement]]) -> pa.Table:
        """Rows of the table's schema, without a source number."""
        lead = {
            "system": self.origin.system,
            "backend": self.origin.backend,
            "backend_version": self.origin.version,
            "op_kind": table,
        }
        plain = [{**lead, **case.key(), KERNEL: row.kernel, VALUE: row.latency_ms} for case, row in measured]
        return pa.Table.from_pylist(plain, schema=without_source(table_schema(table)))

    def report(self, resumed: int, interrupted: bool, notices: list[str]) -> RunReport:
        """Standing of the whole run, earlier sessions included."""
        progress = runfile.progress_of(self.log.records)
        ids = {case.id: case.group for case in self.plan.cases}
        done = progress.done & ids.keys()
        with_rows = {ids[case_id] for case_id in done}
        tried = {group for case_id, group in ids.items() if case_id in progress.attempted}
        return RunReport(
            planned=len(ids),
            done=len(done),
            failures={case_id: entry for case_id, entry in sorted(progress.failed.items()) if case_id in ids},
            resumed=resumed,
            empty=tuple(sorted(tried - with_rows)),
            interrupted=interrupted,
            notices=tuple(notices),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Guard:
    """Holds an interrupt back while a row is being kept."""

    def __init__(self) -> None:
        self._depth = 0
        self._asked = False

    def interrupt(self, *_: object) -> None:
        """Signal handler."""
        if self._depth:
            self._asked = True
        else:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Deliver an interrupt only when the body is through."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt


@contextlib.contextmanager
def _interrupts() -> Iterator[_Guard]:
    guard = _Guard()
    if threading.current_thread() is not threading.main_thread():
        yield guard
        return
    before = signal.signal(signal.SIGINT, guard.interrupt)
    try:
        yield guard
    finally:
        signal.signal(signal.SIGINT, before)
