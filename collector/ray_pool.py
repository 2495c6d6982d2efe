"""Cases spread over the workers of a Ray cluster; a case whose worker is lost goes to another one."""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import ray

from ..errors import UsageError
from .pool import Description, Outcome, Refusal, attempt, lost, start, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .case import Case
    from .engine import Origin

ATTEMPTS: Final = 3
START_TIMEOUT_S: Final = 300.0
_log: Final = logging.getLogger("bitlane.collector")


class _Worker:
    """Actor body: an engine on one device."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self._engine, self._answer = start(name, options)

    def describe(self) -> Description | Refusal:
        """Where it measures and what it can build, or why it does not."""
        return self._answer

    def measure(self, case: Case, seed: int) -> Outcome:
        """Measure one case."""
        if self._engine is None:
            return Outcome(case, lost(case, f"its worker could not start the engine: {self._answer[1]}"))
        return attempt(self._engine, case, seed)


@dataclass(slots=True)
class _Queue:
    """Cases still to run, and who works on what."""

    waiting: deque[Case]
    running: dict[Any, tuple[Any, Case]] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)


class RayPool:
    """One actor per device.

    Parameters
    ----------
    name, options
        The engine, as :func:`~.engine.load` takes it; its libraries must be installed on every node.
    address
        Address of the cluster; ``None`` starts one on this machine. A connection that the caller made is used.
    workers
        Number of actors; default is one per GPU of the cluster, or per CPU where it has none.

    Raises
    ------
    UsageError
        ``BL736`` if the workers are not all alike: rows of unlike machines have no place in one run. ``BL733`` if no
        worker starts.
    """

    def __init__(
        self, name: str, options: Mapping[str, str], *, address: str | None = None, workers: int | None = None
    ) -> None:
        self._mine = not ray.is_initialized()
        if self._mine:
            ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        count = workers or gpus or int(resources.get("CPU", 1))
        per_worker = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        actor = ray.remote(**per_worker, max_restarts=0)(_Worker)
        self._start: Callable[[], Any] = lambda: actor.remote(name, dict(options))
        self._actors = [self._start() for _ in range(count)]
        self._origin, self._lanes = self._describe(name)

    def origin(self) -> Origin:
        """Where the workers measure."""
        return self._origin

    def lanes(self) -> frozenset[tuple[str, str]]:
        """What the engine can build."""
        return self._lanes

    def run(self, cases: Iterable[Case], seed: int) -> Iterator[Outcome]:
        """Outcomes as they come."""
        queue = _Queue(deque(cases))
        idle = list(self._actors)
        while queue.waiting or queue.running:
            while idle and queue.waiting:
                actor, case = idle.pop(), queue.waiting.popleft()
                queue.running[actor.measure.remote(case, seed)] = (actor, case)
            ready, _ = ray.wait(list(queue.running), num_returns=1)
            actor, case = queue.running.pop(ready[0])
            try:
                yield ray.get(ready[0])
                idle.append(actor)
            except ray.exceptions.RayError as error:
                idle.append(self._replace(actor))
                outcome = self._again(queue, case, error)
                if outcome is not None:
                    yield outcome

    def close(self) -> None:
        """Stop the actors, and the cluster if it was started here."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        if self._mine:
            ray.shutdown()

    def _again(self, queue: _Queue, case: Case, error: Exception) -> Outcome | None:
        queue.tries[case.id] += 1
        reason = str(error).strip().splitlines()[0][:300]
        if queue.tries[case.id] < ATTEMPTS:
            _log.warning("a worker was lost in %s (%s); the case goes to another one", case.id, reason)
            queue.waiting.append(case)
            return None
        return Outcome(case, lost(case, f"its worker was lost {ATTEMPTS} times: {reason}"))

    def _replace(self, actor: Any) -> Any:
        """Start another actor; calls to it wait until it is up, on whatever node has room."""
        self._actors.remove(actor)
        self._actors.append(self._start())
        return self._actors[-1]

    def _describe(self, name: str) -> Description:
        try:
            found = ray.get([actor.describe.remote() for actor in self._actors], timeout=START_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            self.close()
            raise UsageError(
                "BL733",
                f"the workers of engine `{name}` did not start: {str(error).strip().splitlines()[-1][:300]}",
                place="--engine ray",
                help="bitlane and the engine's library must be installed on every node",
            ) from error
        if any(entry != found[0] for entry in found):
            self.close()
            raise UsageError(
                "BL736",
                f"the workers are not alike: {'; '.join(sorted({str(entry[0]) for entry in found}))}",
                place="--engine ray",
                help="collect each kind in a run of its own, and merge all of them",
            )
        try:
            return started(found[0])
        except UsageError:
            self.close()
            raise
