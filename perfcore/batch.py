"""Many passes, and many single lookups, in one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from . import kernels, overlap, program
from . import workload as wl
from .plan import compile_plan, slab_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..resolver.bucket import Bucket
    from .pack import FloatArray, IntArray, Pack
    from .plan import Plan
    from .policy import Policy
    from .store import Store

Engine = Literal["auto", "numpy", "numba"]
# Below this many operation prices the numpy path is done before numba has started.
WORTH_COMPILING: Final = 50_000


@dataclass(slots=True)
class ManyPrices:
    """Prices of many passes of one plan.

    Attributes
    ----------
    total_ms
        Milliseconds of every pass, shape [passes].
    ms
        Milliseconds of one layer of every operation, shape [passes, ops].
    source
        Position in ``SOURCES`` of every operation's price, shape [passes, ops], small integers.
    """

    total_ms: FloatArray
    ms: FloatArray
    source: npt.NDArray[np.int8]


class Pricer:
    """A plan compiled for speed: one call prices one pass or a hundred thousand.

    Parameters
    ----------
    plan
        The plan.
    engine
        ``numba``, ``numpy``, or ``auto``: numba for large batches or when it is loaded already.
    """

    def __init__(self, plan: Plan, engine: Engine = "auto") -> None:
        if engine not in ("auto", "numpy", "numba"):
            raise UsageError("BL526", f"unknown engine `{engine}`", help="auto, numpy or numba")
        self.plan, self.engine = plan, engine
        self._program: program.Program | None = None
        self._phase = 0 if plan.phase == "prefill" else 1
        self._blend = plan.mode == "EMPIRICAL"
        self._call: tuple[Any, ...] = ()

    @property
    def program(self) -> program.Program:
        """The plan as flat arrays."""
        if self._program is None:
            plan = self.plan
            self._program = program.build(plan, lambda term: slab_rows(plan.store, plan.policy, term, term.slab))
        return self._program

    def total(self, batch: int, isl: int, prefix: int = 0) -> float:
        """Price one pass, in milliseconds, by the kernels; sizes are trusted, and one thread at a time may ask."""
        if not self._call:
            room = np.empty((len(self.plan.ops), 1), np.int8)
            self._call = kernels.compiled().total, room, (*self.program, self._phase, self._blend)
        function, room, fixed = self._call
        milliseconds: float = function(*fixed, float(batch), float(isl), float(prefix), room)
        return milliseconds

    def many(self, batch: Any, isl: Any, prefix: Any = 0) -> ManyPrices:
        """Price passes.

        Parameters
        ----------
        batch, isl, prefix
            Whole numbers, scalars or arrays that broadcast against each other.

        Raises
        ------
        UsageError
            BL523: a size below 1 or not whole.
        """
        table = wl.variables(self.plan.phase, batch, isl, prefix)
        passes, ops = table.shape[1], len(self.plan.ops)
        if self.engine == "numpy" or (
            self.engine == "auto" and not kernels.loaded() and passes * ops < WORTH_COMPILING
        ):
            found = self.plan.evaluate(table)
            counted = overlap.visible(found.ms, self.plan.layers, self.plan.joints)
            return ManyPrices(counted.sum(axis=0), found.ms.T, found.source.astype(np.int8).T)
        total_ms, ms, source = np.empty(passes), np.empty((ops, passes)), np.empty((ops, passes), np.int8)
        kernels.compiled().run(
            *self.program, self._blend, table, total_ms, ms, source, np.empty(passes), np.zeros(passes, np.int64)
        )
        return ManyPrices(total_ms, ms.T, source.T)


class Lookups:
    """Single lookups of one table, by the million.

    Parameters
    ----------
    store, policy
        Tables, and lane costs for the rooflines past the ends of the axes.
    table
        Its name.
    """

    def __init__(self, store: Store, policy: Policy, table: str) -> None:
        self.pack: Pack = store.table(table)
        self.store, self.policy = store, policy
        self.tables = program.whole(self.pack)
        self._known = np.zeros(len(self.pack.slabs), np.int64)

    def __call__(
        self, slab: IntArray, a0: FloatArray, a1: FloatArray, x: FloatArray, *, efficiency: bool = False
    ) -> tuple[FloatArray, IntArray]:
        """Price queries: milliseconds and status bits.

        Parameters
        ----------
        slab
            Slab of every query (``pack.find_many``), -1 for none, int64.
        a0, a1, x
            Coordinates, float64; zeros where the table lacks the axis.
        efficiency
            Blend efficiency instead of latency between sites.
        """
        self._fill(slab)
        ms, status = np.empty(len(slab)), np.empty(len(slab), np.int64)
        arrays = (np.ascontiguousarray(a, np.float64) for a in (a0, a1, x))
        kernels.compiled().lookup(self.tables, np.ascontiguousarray(slab, np.int64), *arrays, efficiency, ms, status)
        return ms, status

    def _fill(self, slab: IntArray) -> None:
        from .sol import machine, table_rows

        name = self.pack.spec.name

        def rows_of(one: int) -> Any:
            key = self.pack.key(one)
            return table_rows(name, key, machine(self.store.systems, str(key["system"])), self.policy)

        program.fill_roofs(self.tables, self._known, slab, rows_of)


def price_many(
    buckets: Iterable[Bucket],
    phase: wl.Phase,
    batch: Any,
    isl: Any,
    prefix: Any = 0,
    *,
    engine: Engine = "auto",
    **options: Any,
) -> ManyPrices:
    """Price many passes of the same buckets in one call.

    Parameters
    ----------
    buckets, phase
        As in :func:`bitlane.perfcore.price`.
    batch, isl, prefix
        Scalars or arrays that broadcast against each other.
    engine
        ``numba``, ``numpy`` or ``auto``.
    options
        ``system``, ``backend``, ``version``, ``mode``, ``store``, ``allow_roofline``, ``routing`` of
        :func:`bitlane.perfcore.compile_plan`.

    Returns
    -------
    ManyPrices
        Totals, operation prices and sources as arrays.
    """
    plan = compile_plan(buckets, phase, prefixed=bool(np.any(np.asarray(prefix) > 0)), **options)
    return Pricer(plan, engine).many(batch, isl, prefix)
