"""One thing to measure, and the list of them."""

from __future__ import annotations

import difflib
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..errors import BitlaneError, UsageError
from . import grids
from .provenance import case_plan_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PLAN_SCHEMA: Final = "bitlane.case_plan/1"

# Names in a case id -> table column, in the order in which an id spells them. The last one is the curve's axis.
AXES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gemm": MappingProxyType({"n": "n_out_features", "k": "k_in_features", "m": "m_tokens"}),
        "moe": MappingProxyType(
            {
                "hidden": "hidden_size",
                "inter": "inter_size",
                "topk": "topk",
                "experts": "num_experts",
                "tp": "moe_tp_size",
                "ep": "moe_ep_size",
                "routing": "routing_distribution",
                "tokens": "num_tokens",
            }
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Build:
    """How an engine builds the layer; what the row will not say.

    Attributes
    ----------
    module
        Path of a real module of this shape; engines match precision by it.
    export
        ``mixed`` (per-module listing) or ``uniform`` (one algorithm for all modules).
    gated
        Whether the experts have a gate projection (SwiGLU), or one up projection (ReLU squared).
    """

    module: str = ""
    export: str = "mixed"
    gated: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement.

    Attributes
    ----------
    table
        Table that the row belongs to.
    lane
        Lane name.
    shape
        Values of the table's axes, in the order of :data:`AXES`.
    build
        How to build the layer. Not part of the identity: two modules of one shape are one case.
    """

    table: str
    lane: str
    shape: tuple[int | str, ...]
    build: Build = field(default=Build(), compare=False)

    @property
    def id(self) -> str:
        """Stable name, for instance ``gemm/w4a16_nvfp4/n=464,k=2688,m=16``."""
        named = zip(AXES[self.table], self.shape, strict=True)
        return f"{self.table}/{self.lane}/{','.join(f'{name}={value}' for name, value in named)}"

    @property
    def group(self) -> str:
        """``<table>/<lane>``; failures are summed up by it."""
        return f"{self.table}/{self.lane}"

    @property
    def axes(self) -> dict[str, int | str]:
        """Axis values by short name."""
        return dict(zip(AXES[self.table], self.shape, strict=True))

    def integer(self, name: str) -> int:
        """An axis that is a number."""
        value = self.axes[name]
        if isinstance(value, str):
            raise BitlaneError("BL724", f"axis `{name}` of `{self.id}` is not a number", place=self.id)
        return value

    def key(self) -> dict[str, int | str]:
        """The row's key columns that the case decides; origin columns come from the run."""
        columns = AXES[self.table].values()
        return {"quant_mode": grids.lane(self.lane).label, **dict(zip(columns, self.shape, strict=True))}

    def sort_key(self) -> tuple[Any, ...]:
        """Order of a plan: by lane, then shape, then the curve's axis; numbers by value."""
        return (self.table, self.lane, tuple((isinstance(value, str), value) for value in self.shape))


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something that was asked for and is not in the plan.

    Attributes
    ----------
    what
        Operation or lane.
    reason
        Why, one sentence.
    cases
        How many cases that is; 0 where it cannot be counted.
    """

    what: str
    reason: str
    cases: int


@dataclass(frozen=True, slots=True)
class CasePlan:
    """Cases in a fixed order, for one system, backend and version.

    Attributes
    ----------
    system, backend, version
        Where the rows will belong.
    cases
        Sorted, each id once.
    dropped
        What is not in it, and why.
    """

    system: str
    backend: str
    version: str
    cases: tuple[Case, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of the sorted case ids."""
        return case_plan_hash(case.id for case in self.cases)

    def counts(self) -> dict[str, int]:
        """Cases per group, by name."""
        return dict(sorted(Counter(case.group for case in self.cases).items()))

    def select(self, filters: Sequence[str] = (), *, limit: int | None = None, shuffle: int | None = None) -> CasePlan:
        """A smaller plan.

        Parameters
        ----------
        filters
            A case stays when any filter is its id, or, if no case has that id, occurs in its id.
        limit
            At most so many cases.
        shuffle
            Seed; with a limit it draws the cases at random in place of the first.

        Raises
        ------
        UsageError
            ``BL723`` if a filter fits no case.
        """
        ids = {case.id for case in self.cases}
        chosen = list(self.cases)
        if filters:
            wanted = {case_id for text in filters for case_id in _matching(text, ids)}
            chosen = [case for case in chosen if case.id in wanted]
        if shuffle is not None:
            random.Random(shuffle).shuffle(chosen)  # noqa: S311  (a reproducible draw, nothing secret)
        if limit is not None:
            chosen = chosen[:limit]
        return replace(self, cases=tuple(sorted(chosen, key=Case.sort_key)))


def _matching(text: str, ids: set[str]) -> set[str]:
    found = {text} if text in ids else {case_id for case_id in ids if text in case_id}
    if not found:
        near = difflib.get_close_matches(text, sorted(ids), n=1, cutoff=0.5)
        raise UsageError(
            "BL723",
            f"no case of the plan has `{text}` in its id",
            place="--case-filter",
            help=f"did you mean `{near[0]}`?" if near else "list the ids with `--plan-only`",
        )
    return found


class _CaseRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    table: str
    lane: str
    shape: tuple[int | str, ...]
    module: str = ""
    export: str = "mixed"
    gated: bool = True


class _PlanRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    system: str
    backend: str
    version: str
    hash: str
    cases: tuple[_CaseRecord, ...]


def write_plan(plan: CasePlan, path: Path) -> None:
    """Write a plan as JSON, to be collected elsewhere."""
    records = tuple(
        _CaseRecord(case.table, case.lane, case.shape, case.build.module, case.build.export, case.build.gated)
        for case in plan.cases
    )
    record = _PlanRecord(PLAN_SCHEMA, plan.system, plan.backend, plan.version, plan.hash, records)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def read_plan(path: Path) -> CasePlan:
    """Read a plan written by :func:`write_plan`.

    Raises
    ------
    UsageError
        ``BL725`` if the file is no such plan, or its cases do not have the hash it states.
    """
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_PlanRecord)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _bad_plan(path, str(error)) from error
    if record.schema != PLAN_SCHEMA:
        raise _bad_plan(path, f"schema `{record.schema}`")
    for case in record.cases:
        if case.table not in AXES or len(case.shape) != len(AXES[case.table]):
            raise _bad_plan(path, f"a case of table `{case.table}` with {len(case.shape)} axes")
        grids.lane(case.lane)
    cases = [
        Case(entry.table, entry.lane, entry.shape, Build(entry.module, entry.export, entry.gated))
        for entry in record.cases
    ]
    plan = CasePlan(record.system, record.backend, record.version, tuple(sorted(cases, key=Case.sort_key)))
    if plan.hash != record.hash:
        raise _bad_plan(path, "the cases do not have the stated hash")
    return plan


def _bad_plan(path: Path, why: str) -> UsageError:
    return UsageError(
        "BL725", f"not a case plan: {why}", place=str(path), help="write one with `bitlane collect plan ... -o FILE`"
    )
