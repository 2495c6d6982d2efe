"""A worker process: the engine lives there, and when a kernel kills it another one takes over."""

from __future__ import annotations

import multiprocessing
import signal
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from .pool import Description, Outcome, attempt, lost, start, started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from .case import Case
    from .engine import Origin

ATTEMPTS: Final = 2
# A first case may compile kernels for minutes; a hang lasts longer than that.
TIMEOUT_S: Final = 1800.0


def _serve(connection: Connection, name: str, options: dict[str, str]) -> None:
    """Body of the worker: say who we are, then answer cases until the pipe closes."""
    # An interrupt reaches the whole process group; the parent keeps what was measured and then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    engine, answer = start(name, options)
    connection.send(answer)
    while engine is not None:
        try:
            case, seed = connection.recv()
        except EOFError:
            return
        connection.send(attempt(engine, case, seed))


class ProcessPool:
    """One worker process at a time; a case that kills it is tried once more in a fresh one.

    Parameters
    ----------
    name, options
        The engine, as :func:`~.engine.load` takes it.
    timeout_s
        A case that takes longer is taken to hang: its worker is killed, as if it had died by itself.

    Raises
    ------
    UsageError
        What the engine refuses at its start; ``BL733`` if the worker dies there.
    """

    def __init__(self, name: str, options: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self._name, self._options, self._timeout_s = name, dict(options), timeout_s
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._origin, self._lanes = self._start()

    def origin(self) -> Origin:
        """Where the engine measures."""
        return self._origin

    def lanes(self) -> frozenset[tuple[str, str]]:
        """What the engine can build."""
        return self._lanes

    def run(self, cases: Iterable[Case], seed: int) -> Iterator[Outcome]:
        """Outcomes in the order of cases."""
        for case in cases:
            yield self._measure(case, seed)

    def close(self) -> None:
        """End the worker."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join(timeout=5)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._process = self._connection = None

    def _measure(self, case: Case, seed: int) -> Outcome:
        why = ""
        for _ in range(ATTEMPTS):
            if self._connection is None:
                self._start()
            connection, process = self._connection, self._process
            if connection is None or process is None:
                break
            try:
                connection.send((case, seed))
                if not connection.poll(self._timeout_s):
                    process.kill()
                outcome: Outcome = connection.recv()
            except (EOFError, OSError):
                process.join(timeout=5)
                why = f"the worker process ended with code {process.exitcode} in this case, {ATTEMPTS} times"
                self.close()
            else:
                return outcome
        return Outcome(case, lost(case, why))

    def _start(self) -> Description:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._name, self._options), daemon=True)
        process.start()
        theirs.close()
        try:
            answer = mine.recv()
        except EOFError:
            process.join(timeout=5)
            raise UsageError(
                "BL733",
                f"the worker of engine `{self._name}` ended with code {process.exitcode} before it was ready",
                place="--engine",
                help="its last words stand above; try `--no-isolate` to see the error itself",
            ) from None
        description = started(answer)
        self._process, self._connection = process, mine
        return description
