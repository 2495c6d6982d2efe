"""A set of buckets, resolved to rows once and evaluated for any number of passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from . import bands, reference, sol
from . import workload as wl
from .explain import CHECKPOINT, MissingRowsError, advice, command, detail, wanted
from .lower import Context, Coordinate, Op, lower
from .modes import Ladder
from .overlap import Joint, joints
from .policy import Policy
from .policy import load as load_policy
from .resolved import (
    EXTRAPOLATED,
    INTERPOLATED,
    MEASURED,
    ROOFLINE,
    TRANSFERRED,
    Missing,
    Mode,
    Resolved,
    Term,
)  # fmt: skip
from .specs import SITE_EDGE, X_EDGE
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..resolver.bucket import Bucket
    from .pack import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class PlannedOp:
    """An operation with the rows behind each of its parts."""

    op: Op
    parts: tuple[Resolved, ...]


@dataclass(slots=True)
class Evaluation:
    """Prices of every operation for every pass.

    Attributes
    ----------
    ms
        Milliseconds of one layer, shape [ops, passes].
    source
        Position in ``SOURCES``, same shape.
    low, high
        Band of `ms`, same shape.
    """

    ms: FloatArray
    source: IntArray
    low: FloatArray
    high: FloatArray


@dataclass(slots=True)
class Plan:
    """Buckets of one phase on one system, ready to be priced.

    Attributes
    ----------
    phase, system, backend, version, mode
        What it was compiled for.
    ops
        Operations in bucket order.
    joints
        How overlapped operations share their time.
    """

    phase: wl.Phase
    system: str
    backend: str
    version: str
    mode: Mode
    ops: tuple[PlannedOp, ...]
    joints: tuple[Joint, ...]
    store: Store
    policy: Policy
    checkpoint: str = CHECKPOINT

    @property
    def collect(self) -> str:
        """The collector call that lists what own rows do not price."""
        return command(self.system, self.backend, self.version, self.checkpoint)

    def lacks(self) -> dict[int, str]:
        """Return, per operation that own rows do not price, the rows that a measurement would add."""
        places = {id(planned): number for number, planned in enumerate(self.ops)}
        return {places[id(planned)]: wanted(one) for planned, one in advice(self.ops, self._ladder)}

    def advice(self) -> list[str]:
        """Say, per operation that own rows do not price, what is missing and which measured keys lie nearest."""
        found = advice(self.ops, self._ladder)
        return [detail(one, self.store, self.system, self.backend, self.version) for _, one in found]

    @property
    def _ladder(self) -> Ladder:
        machine = sol.machine(self.store.systems, self.system)
        return Ladder(self.store, self.policy, machine, self.backend, self.version, self.mode)

    @property
    def layers(self) -> FloatArray:
        """Layers of every operation, shape [ops]."""
        return np.array([float(planned.op.bucket.layers) for planned in self.ops])

    def evaluate(self, table: FloatArray) -> Evaluation:
        """Price every operation with numpy.

        Parameters
        ----------
        table
            Workload table of :func:`bitlane.perfcore.workload.variables`.
        """
        shape = (len(self.ops), table.shape[1])
        out = Evaluation(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape))
        for number, planned in enumerate(self.ops):
            low2, high2 = np.zeros(shape[1]), np.zeros(shape[1])
            for resolved in planned.parts:
                ms, source, band = self._part(resolved, table, planned.op.bucket.kind)
                sign = resolved.part.sign
                out.ms[number] += sign * ms
                out.source[number] = np.maximum(out.source[number], source)
                low2 += (ms * (1.0 - band[:, 0])) ** 2
                high2 += (ms * (band[:, 1] - 1.0)) ** 2
            if any(resolved.part.sign < 0 for resolved in planned.parts):
                self._difference(planned, table, out, number)
            out.low[number] = np.maximum(out.ms[number] - np.sqrt(low2), 0.0)
            out.high[number] = out.ms[number] + np.sqrt(high2)
        return out

    def _difference(self, planned: PlannedOp, table: FloatArray, out: Evaluation, number: int) -> None:
        """Bound a difference of rows: at least the roofline of what is new, and no row is that difference."""
        new = np.zeros(table.shape[1])
        for resolved in planned.parts:
            new += resolved.part.sign * _bound(resolved.part.roofline, resolved.part, table)
        floors = [self.smallest(resolved) for resolved in planned.parts]
        out.ms[number] = np.maximum(out.ms[number], np.maximum(new, max(floors)))
        out.source[number] = np.maximum(out.source[number], INTERPOLATED)

    def _part(self, resolved: Resolved, table: FloatArray, kind: str) -> tuple[FloatArray, IntArray, FloatArray]:
        part, passes = resolved.part, table.shape[1]
        bound = _bound(part.roofline, part, table)
        active = np.ones(passes, bool)
        if part.sign < 0:
            active = _size(part.x, table) > 0  # no cached prefix: nothing to take off
        if not resolved.terms:
            flat = np.tile((1.0, 1.0) if self.mode == "SOL" else self._bound_band(kind), (passes, 1))
            least = 0.0 if self.mode == "SOL" else part.least
            constant = 0.0 if self.mode == "SOL" else part.constant
            source = np.where(active, resolved.least, MEASURED)
            return np.where(active, np.maximum(bound, least) + constant, 0.0), source, flat
        ms, source, band = self._terms(resolved, table)
        if resolved.scale is not None:
            ms, band = self._scaled(resolved, ms, bound, table)
        if len(resolved.terms) > 1:
            ms = np.maximum(ms, bound)
        return np.where(active, ms, 0.0), np.where(active, source, MEASURED), band

    def _bound_band(self, kind: str) -> tuple[float, float]:
        """Return the band of a price that no row is behind."""
        if kind == "mamba2_ssm":
            return self.policy.band(kind, self.phase)
        return self.policy.band("", "formula" if kind in ("elementwise", "embedding", "p2p") else "roofline")

    def _terms(self, resolved: Resolved, table: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
        total = np.zeros(table.shape[1])
        source = np.full(table.shape[1], resolved.least, np.int64)
        low2, high2 = np.zeros(table.shape[1]), np.zeros(table.shape[1])
        for term in resolved.terms:
            answer = self.lookup(term, table)
            total += term.sign * answer.ms
            edge = (answer.status & (X_EDGE | SITE_EDGE)) != 0
            made = np.where(edge, EXTRAPOLATED, np.where(answer.status != 0, INTERPOLATED, MEASURED))
            if self.mode == "EMPIRICAL":
                made = np.maximum(made, INTERPOLATED)
            source = np.maximum(source, made)
            slab = np.full(table.shape[1], term.slab, np.int64)
            spread = bands.factors(
                term.pack, slab, answer.status, _size(term.x, table), version=resolved.least == TRANSFERRED
            )
            low2 += (answer.ms * (1.0 - spread[:, 0])) ** 2
            high2 += (answer.ms * (spread[:, 1] - 1.0)) ** 2
        if resolved.rung == "backend":
            return total, source, np.tile(self.policy.band(resolved.part.table, "backend"), (table.shape[1], 1))
        safe = np.where(total > 0, total, 1.0)
        return total, source, np.stack([1.0 - np.sqrt(low2) / safe, 1.0 + np.sqrt(high2) / safe], axis=1)

    def _scaled(
        self, resolved: Resolved, donor_ms: FloatArray, bound: FloatArray, table: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Turn a donor's latency into the target's: above the launch floor it scales with the roofline."""
        scale = resolved.scale
        if scale is None:
            raise ValueError("not a scaled part")
        floor = np.full(table.shape[1], scale.floor)
        if scale.floor_term is not None:
            floor = self.lookup(scale.floor_term, table).ms
        floor = np.minimum(floor, donor_ms)
        base = reference.roof(scale.donor, scale.a0, _size(scale.a1, table), _size(scale.x, table))
        target = reference.roof(
            scale.target, resolved.part.a0, _size(resolved.part.a1, table), _size(resolved.part.x, table)
        )
        ratio = target / np.where(base > 0, base, 1.0)
        ms = np.maximum(floor + (donor_ms - floor) * ratio, np.maximum(floor, bound))
        return ms, np.tile(self.policy.band(resolved.part.table, resolved.rung), (table.shape[1], 1))

    @staticmethod
    def smallest(resolved: Resolved) -> float:
        """Return the smallest latency that the rows behind a part hold, in milliseconds."""
        if not resolved.terms:
            return 0.0
        term = resolved.terms[0]
        return float(np.nanmin(term.pack.arrays["values"][term.pack.cells(term.slab)]))

    def lookup(self, term: Term, table: FloatArray) -> reference.Answer:
        """Look one term up for every pass."""
        passes = table.shape[1]
        return reference.evaluate(
            term.pack,
            np.full(passes, term.slab, np.int64),
            np.full(passes, term.a0),
            _size(term.a1, table),
            np.maximum(_size(term.x, table), 1.0),
            lambda slab: slab_rows(self.store, self.policy, term, slab),
            efficiency=self.mode == "EMPIRICAL",
        )


def slab_rows(store: Store, policy: Policy, term: Term, slab: int) -> list[sol.Row]:
    """Return the roofline rows of a slab, in its own axes."""
    key = term.pack.key(slab)
    return sol.table_rows(term.pack.spec.name, key, sol.machine(store.systems, str(key["system"])), policy)


def _size(coordinate: Coordinate, table: FloatArray) -> FloatArray:
    size: FloatArray = coordinate.scale * table[coordinate.variable]
    return size


def _bound(rows: list[sol.Row], part: Any, table: FloatArray) -> FloatArray:
    return reference.roof(rows, part.a0, _size(part.a1, table), _size(part.x, table))


def compile_plan(
    buckets: Iterable[Bucket],
    phase: wl.Phase,
    *,
    system: str,
    backend: str,
    version: str,
    mode: Mode = "SILICON",
    store: Store | None = None,
    allow_roofline: Sequence[str] = (),
    routing: str = "",
    prefixed: bool = False,
    checkpoint: str = CHECKPOINT,
) -> Plan:
    """Resolve every bucket to the rows that price it.

    Parameters
    ----------
    buckets
        What the resolver made of a checkpoint.
    phase
        ``prefill`` or ``decode``.
    system
        Name in ``systems.yaml`` (``gb200``, ``h200_sxm``).
    backend, version
        Serving engine and version whose rows count as own.
    mode
        ``SILICON`` measured rows of this lane only; ``HYBRID`` declared donors and rooflines where those are missing;
        ``EMPIRICAL`` as HYBRID with efficiency instead of latency blended; ``SOL`` rooflines only.
    store
        Tables; the packaged ones by default.
    allow_roofline
        SILICON accepts the roofline for these table-less operations: ``mamba2``, ``roofline``, or an operation's name.
    routing
        Routing distribution of the MoE rows; the policy's by default.
    prefixed
        Prefill attention is built as full minus prefix.
    checkpoint
        Name of the checkpoint, for the collector's command in errors and advice.

    Raises
    ------
    MissingRowsError
        BL501 (exit 5): a SILICON price lacks rows; every missing key is in the error.
    UsageError
        BL520 to BL525: unknown lane, system, mode, phase or a malformed bucket.
    """
    store = store or Store()
    policy = load_policy()
    machine = sol.machine(store.systems, system)
    if phase not in wl.PHASE_PREFIX:
        raise UsageError("BL523", f"unknown phase `{phase}`", place="--phase", help="prefill or decode")
    context = Context(phase, machine, policy, routing or policy.routing, prefixed)
    ladder = Ladder(store, policy, machine, backend, version, mode)
    planned: list[PlannedOp] = []
    missing: list[Missing] = []
    for bucket in buckets:
        op = lower(bucket, context)
        parts = [ladder.resolve(part) for part in op.parts]
        if mode == "SILICON" and op.gap and not {op.gap, bucket.op, bucket.kind} & set(allow_roofline):
            missing.append(Missing(op, "", bucket.kind, "", dict(bucket.shape)))
        missing += [ladder.missing(op, part) for part, found in zip(op.parts, parts, strict=True) if found is None]
        planned.append(PlannedOp(op, tuple(part for part in parts if part is not None)))
    if missing:
        raise MissingRowsError(
            missing, store, system=system, backend=backend, version=version, phase=phase, checkpoint=checkpoint
        )
    groups = joints(planned_buckets(planned))
    return Plan(phase, system, backend, version, mode, tuple(planned), groups, store, policy, checkpoint)


def planned_buckets(planned: Iterable[PlannedOp]) -> list[Bucket]:
    """Return the buckets behind planned operations."""
    return [one.op.bucket for one in planned]


def describe(resolved: Iterable[Resolved], mode: Mode) -> Mapping[str, Any]:
    """Merge the origins of an operation's parts into one, for the JSON."""
    parts = [dict(one.origin) | {"rung": one.rung} for one in resolved]
    if not parts:
        return {}
    first = parts[0]
    if mode == "EMPIRICAL":
        first["blend"] = "efficiency"
    rest = [part for part in parts[1:] if part != first]
    return first | ({"and": rest} if rest else {})


__all__ = ["ROOFLINE", "Evaluation", "Plan", "PlannedOp", "compile_plan", "describe"]
