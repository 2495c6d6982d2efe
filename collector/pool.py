"""Where cases run: in this process, in a worker process that may die, or on the workers of a Ray cluster.

A pool turns cases into outcomes, one each. It never raises for a case: what went wrong is an outcome too.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import BitlaneError, UsageError
from .engine import Engine, Measurement, Origin, case_seed, load
from .runfile import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .case import Case

_DETAIL_CHARACTERS: Final = 4000
WORKER_LOST: Final = "WorkerLost"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: a measurement or a failure."""

    case: Case
    result: Measurement | Failure


class Pool(Protocol):
    """Runs cases on one engine, or on several equal ones."""

    def origin(self) -> Origin:
        """Where the engine measures."""
        ...

    def lanes(self) -> frozenset[tuple[str, str]]:
        """What the engine can build."""
        ...

    def run(self, cases: Iterable[Case], seed: int) -> Iterator[Outcome]:
        """Outcomes as they come; the order of cases need not be kept."""
        ...

    def close(self) -> None:
        """Stop all workers."""
        ...


def attempt(engine: Engine, case: Case, seed: int) -> Outcome:
    """Measure one case; an exception becomes a failure."""
    try:
        return Outcome(case, engine.measure(case, case_seed(seed, case)))
    except Exception as error:
        # Any exception of an engine is about its case: a kernel that is missing, memory that does not suffice.
        return Outcome(case, failure_of(case, error))


def failure_of(case: Case, error: BaseException) -> Failure:
    """An exception as data."""
    text = str(error).strip() or repr(error)
    detail = "".join(traceback.format_exception(error))[-_DETAIL_CHARACTERS:]
    return Failure(case.id, type(error).__name__, text.splitlines()[0][:500], case.group, detail)


def lost(case: Case, why: str) -> Failure:
    """Failure of a case whose worker died under it, every time it was tried."""
    return Failure(case.id, WORKER_LOST, why, case.group)


Description = tuple[Origin, frozenset[tuple[str, str]]]
Refusal = tuple[str, str, str, str]


def start(name: str, options: Mapping[str, str]) -> tuple[Engine | None, Description | Refusal]:
    """Start an engine in a worker; what it refuses travels as plain text, since such errors do not pickle."""
    try:
        engine = load(name, options)
        return engine, (engine.origin(), engine.lanes())
    except BitlaneError as error:
        return None, (error.code, error.message, error.place, error.help)


def started(answer: Description | Refusal) -> Description:
    """What a worker said at its start, on the other side.

    Raises
    ------
    UsageError
        If it refused.
    """
    if len(answer) == 2:
        return answer
    code, message, place, hint = answer
    raise UsageError(code, message, place=place, help=hint)


class LocalPool:
    """Cases one after the other in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def origin(self) -> Origin:
        """Where the engine measures."""
        return self._engine.origin()

    def lanes(self) -> frozenset[tuple[str, str]]:
        """What the engine can build."""
        return self._engine.lanes()

    def run(self, cases: Iterable[Case], seed: int) -> Iterator[Outcome]:
        """Outcomes in the order of cases."""
        for case in cases:
            yield attempt(self._engine, case, seed)

    def close(self) -> None:
        """Nothing to stop."""
