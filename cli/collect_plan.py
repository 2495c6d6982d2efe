"""The plan behind ``bitlane collect``: a plan file, a checkpoint's operations, or the base grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import MissingDataError, UsageError
from ..paths import PERF_DATA
from .options import Question, _gather

if TYPE_CHECKING:
    from ..collector.case import CasePlan
    from ..collector.engine import Engine
    from ..collector.grids import Grids
    from ..resolver.bucket import Bucket
    from ..resolver.resolution import Resolution

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything on the command line that decides which cases are planned."""

    target: str | None
    loader: str | None
    system: str | None
    rules: tuple[Path, ...]
    models: tuple[Path, ...]
    perf_data: tuple[Path, ...]
    tp: str
    expert_parallel: bool
    all_topologies: bool
    lane: tuple[str, ...]
    routing: str
    need: str | None
    base_grid: bool
    case_filter: tuple[str, ...]
    limit: int | None
    shuffle: int | None


_FOLDER = click.Path(path_type=Path)
_OPTIONS = (
    click.argument("target", required=False, metavar="[CHECKPOINT|PLAN]"),
    click.option("--loader", metavar="NAME[@VERSION]", help="Engine, such as vllm@0.31.0."),
    click.option("--system", metavar="NAME", help="GPU system, such as gb200."),
    click.option("--tp", default="1", show_default=True, metavar="N[,N...]", help="Tensor parallel sizes to cover."),
    click.option("--expert-parallel", is_flag=True, help="Split experts by expert over the same ranks."),
    click.option("--all-topologies", is_flag=True, help="Experts at every split of the base grid."),
    click.option("--lane", multiple=True, metavar="LANE", help="Only these lanes, or the base grid's."),
    click.option("--routing", default="", metavar="NAME|all", help="Expert routing; default is what prices read."),
    click.option(
        "--need",
        type=click.Choice(["strict", "exact"]),
        help="strict: what a strict price refuses for want of rows; exact: every row of the model's own shapes.",
    ),
    click.option("--base-grid", is_flag=True, help="The whole GEMM grid instead of a checkpoint; needs --lane."),
    click.option("--case-filter", multiple=True, metavar="TEXT", help="Only cases of this id, or with this in it."),
    click.option("--limit", type=click.IntRange(1), help="At most so many cases."),
    click.option("--shuffle", type=int, metavar="SEED", help="Draw the limited cases at random."),
    click.option("--rules", multiple=True, type=_FOLDER, metavar="DIR", help="Rule files that overlay the packaged."),
    click.option("--models", multiple=True, type=_FOLDER, metavar="DIR", help="More folders of checkpoints."),
    click.option("--perf-data", multiple=True, type=_FOLDER, metavar="DIR", help="More tables that count as measured."),
)
_NAMES = tuple(Wanted.__dataclass_fields__)


def plan_options(function: F) -> F:
    """Take all options of a plan as one argument ``wanted``."""
    wrapped: F = _gather(function, "wanted", Wanted, _NAMES)
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def build(wanted: Wanted, engine: Engine | None) -> CasePlan:
    """Make the plan.

    Parameters
    ----------
    wanted
        The command line.
    engine
        A local engine whose system, version and lanes the plan is for; ``None`` plans for ``--loader`` on ``--system``.

    Raises
    ------
    UsageError
        ``BL745`` if too little is given, and what planning and resolving refuse.
    """
    plan = _whole(wanted, engine)
    if not plan.cases:
        return plan
    return plan.select(wanted.case_filter, limit=wanted.limit, shuffle=wanted.shuffle)


def _whole(wanted: Wanted, engine: Engine | None) -> CasePlan:
    from ..collector.case import read_plan

    if wanted.target is not None and wanted.target.endswith(".json") and _is_plan(Path(wanted.target)):
        return read_plan(Path(wanted.target))
    if wanted.base_grid:
        return _base(wanted, engine)
    if wanted.target is None:
        raise UsageError(
            "BL745", "nothing to plan from", place="collect", help="name a checkpoint or a plan, or give --base-grid"
        )
    if wanted.loader is None or wanted.system is None:
        raise UsageError(
            "BL745", "a checkpoint needs a loader and a system", place="--loader", help="--loader vllm --system gb200"
        )
    question = Question(wanted.target, wanted.loader, wanted.system, wanted.rules, wanted.models)
    return _from_checkpoint(wanted, question.resolve(), engine)


def _is_plan(path: Path) -> bool:
    """Whether a JSON file is a case plan; a checkpoint's config.json is JSON too."""
    with path.open("rb") as file:
        return b"bitlane.case_plan/" in file.read(200)


def _base(wanted: Wanted, engine: Engine | None) -> CasePlan:
    from ..collector.coverage import Coverage
    from ..collector.plan import base_plan
    from ..resolver.systems import system as find_system
    from ..resolver.versions import split_loader

    if not wanted.lane:
        raise UsageError("BL745", "the base grid needs a lane", place="--lane", help="--lane bf16")
    if engine is not None:
        origin = engine.origin()
        place, sm = (origin.system, origin.backend, origin.version), origin.sm
    elif wanted.loader is None or wanted.system is None:
        raise UsageError("BL745", "the base grid needs a loader and a system", place="--loader", help="or --engine")
    else:
        name, version = split_loader(wanted.loader)
        if not version:
            raise UsageError("BL745", "the base grid needs a version", place="--loader", help=f"--loader {name}@0.31.0")
        hardware = find_system(wanted.system)
        place, sm = (hardware.name, name, version), hardware.sm
    system, backend, version = place
    coverage = Coverage((PERF_DATA, *wanted.perf_data), *place)
    return base_plan(
        system=system,
        backend=backend,
        version=version,
        grid=_grid(wanted, engine),
        has=coverage.has,
        sm=sm,
        lanes=wanted.lane,
    )


def _from_checkpoint(wanted: Wanted, answer: Resolution, engine: Engine | None) -> CasePlan:
    from ..collector.coverage import Coverage
    from ..collector.plan import plan

    origin = engine.origin() if engine is not None else None
    place = (
        (origin.system, origin.backend, origin.version)
        if origin is not None
        else (answer.system.name, answer.loader, answer.version)
    )
    need = wanted.need or ("strict" if origin is None else "exact")
    coverage = Coverage((PERF_DATA, *wanted.perf_data), *place)
    return plan(
        _operations(wanted, answer),
        system=place[0],
        backend=place[1],
        version=place[2],
        grid=_grid(wanted, engine),
        has=coverage.has,
        sm=origin.sm if origin is not None else answer.system.sm,
        answered=_strict(wanted, place) if need == "strict" else None,
        lanes=wanted.lane,
        export="mixed" if answer.format.endswith("_mixed") else "uniform",
        buildable=engine.lanes() if engine is not None else None,
    )


def _operations(wanted: Wanted, answer: Resolution) -> list[Bucket]:
    """Operations of every parallel size and phase that is asked for."""
    from ..collector import grids
    from ..collector.plan import over_topologies
    from ..resolver.buckets import Parallel, buckets

    try:
        sizes = [int(text) for text in wanted.tp.split(",")]
    except ValueError:
        raise UsageError("BL745", f"`{wanted.tp}` is no list of sizes", place="--tp", help="--tp 1,4,8") from None
    splits = [Parallel.of(tp=size, ep=size if wanted.expert_parallel else 1) for size in sizes]
    found = [b for split in splits for phase in ("prefill", "decode") for b in buckets(answer, split, phase)]
    if wanted.all_topologies:
        found += over_topologies(buckets(answer, Parallel.of(), "decode"), grids.packaged().moe.topologies)
    return found


def _grid(wanted: Wanted, engine: Engine | None) -> Grids:
    import msgspec

    from ..collector import grids
    from ..perfcore import policy

    grid = grids.packaged()
    if engine is not None and engine.origin().sm is None:
        grid = grid.for_cpu()
    if wanted.routing == "all":
        return grid
    if wanted.routing and wanted.routing not in grid.moe.routings:
        raise UsageError(
            "BL745",
            f"unknown routing `{wanted.routing}`",
            place="--routing",
            help="known: " + ", ".join((*grid.moe.routings, "all")),
        )
    routing = wanted.routing or policy.load().routing
    return grids.Grids(grid.gemm, msgspec.structs.replace(grid.moe, routings=(routing,)))


def _strict(wanted: Wanted, place: tuple[str, str, str]) -> Callable[[Bucket], bool]:
    """Whether a strict price of an operation has rows already; the pricing core itself is asked."""
    from ..perfcore import Store, compile_plan

    store = Store((PERF_DATA, *wanted.perf_data))
    routing = "" if wanted.routing == "all" else wanted.routing

    def answered(bucket: Bucket) -> bool:
        try:
            compile_plan(
                [bucket],
                "prefill",
                system=place[0],
                backend=place[1],
                version=place[2],
                mode="SILICON",
                store=store,
                routing=routing,
            )
        except MissingDataError:
            return False
        return True

    return answered


def show(plan: CasePlan, *, ids: bool) -> None:
    """Print a plan for people."""
    if ids:
        for case in plan.cases:
            click.echo(case.id)
        return
    from .render import table

    sites: dict[tuple[str, str], int] = {}
    for case in plan.cases:
        site = (case.group, case.id.rpartition(",")[0].removeprefix(f"{case.group}/"))
        sites[site] = sites.get(site, 0) + 1
    click.echo(f"{len(plan.cases):,} cases for {plan.backend} {plan.version} on {plan.system}, plan {plan.hash[:12]}\n")
    if sites:
        click.echo(table(["lane", "shape", "cases"], [[*site, str(n)] for site, n in sites.items()], frozenset({2})))
    for entry in plan.dropped:
        count = f" ({entry.cases:,} cases)" if entry.cases else ""
        click.echo(f"  not planned: {entry.what}{count}: {entry.reason}")


def document(plan: CasePlan) -> dict[str, Any]:
    """Return the JSON form of a plan and of what it leaves out."""
    return {
        "schema": "bitlane.collect_plan/1",
        "system": plan.system,
        "backend": plan.backend,
        "version": plan.version,
        "hash": plan.hash,
        "cases": [{"id": case.id, "module": case.build.module, **case.key()} for case in plan.cases],
        "counts": plan.counts(),
        "not_planned": [{"what": e.what, "reason": e.reason, "cases": e.cases} for e in plan.dropped],
    }
