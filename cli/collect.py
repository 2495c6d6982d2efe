"""``bitlane collect``: plan what to measure, measure it, merge the rows."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import FINDINGS, UsageError
from ..paths import PERF_DATA
from . import collect_plan, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..collector.engine import Engine
    from ..collector.merge import MergeReport
    from ..collector.pool import Outcome, Pool
    from ..collector.run import RunReport
    from .collect_plan import Wanted

INTERRUPTED = 130
# Engines whose kernels can end the process.
_ISOLATED = frozenset({"vllm", "torch_cuda"})
RAY = "ray"


class _RunByDefault(click.Group):
    """``bitlane collect --engine ...`` is ``bitlane collect run --engine ...``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("collect", cls=_RunByDefault)
def command() -> None:
    """Measure kernels through the engine's own dispatcher, and add the rows to the tables.

    Three steps: `plan` says what is missing, `run` measures it into a folder, `merge` adds the folder to the tables.
    """


@command.command("plan")
@collect_plan.plan_options
@click.option("--engine", "engine_name", metavar="NAME", help="Plan for this machine (numpy_cpu, torch_cpu, ...).")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the plan, to be collected elsewhere.")
@click.option("--ids", is_flag=True, help="Print one case id a line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan_command(wanted: Wanted, engine_name: str | None, output: Path | None, ids: bool, as_json: bool) -> None:
    """List the cases that a strict price of CHECKPOINT is missing."""
    from ..collector.case import write_plan

    plan = collect_plan.build(wanted, _here(engine_name or "", _options(wanted, ())))
    if output is not None:
        write_plan(plan, output)
    if as_json:
        click.echo(json.dumps(collect_plan.document(plan), indent=1))
    else:
        collect_plan.show(plan, ids=ids)


@command.command("run")
@collect_plan.plan_options
@click.option("--engine", "engine_name", required=True, metavar="NAME", help="vllm, torch_cuda, torch_cpu, ... or ray.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--retry-failed", is_flag=True, help="With --resume: try failed cases again.")
@click.option("--plan-only", is_flag=True, help="Print the cases and the hash of the plan; measure nothing.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of synthetic weights and inputs.")
@click.option("--isolate/--no-isolate", default=None, help="Measure in a process that may die; GPU engines do.")
@click.option("--engine-option", multiple=True, metavar="NAME=VALUE", help="image, image_digest, source_commit, ...")
@click.option("--on", "worker_engine", default="vllm", show_default=True, help="With --engine ray: what workers run.")
@click.option("--ray-address", metavar="ADDRESS", help="With --engine ray: the cluster; default starts a local one.")
@click.option("--workers", type=click.IntRange(1), help="With --engine ray: how many; default one per GPU.")
@click.pass_context
def run_command(
    context: click.Context,
    /,
    wanted: Wanted,
    engine_name: str,
    out: Path | None,
    resume: bool,
    retry_failed: bool,
    plan_only: bool,
    seed: int,
    **how: Any,
) -> None:
    """Measure the cases of PLAN, or of a checkpoint, into a folder.

    Every row is on disk within seconds; Ctrl-C loses nothing, --resume goes on. Exit code 1 if a lane has no success
    at all, 130 if interrupted.
    """
    from ..collector.run import collect

    options = _options(wanted, how["engine_option"])
    measuring = how["worker_engine"] if engine_name == RAY else engine_name
    plan = collect_plan.build(wanted, _here(measuring, options))
    if plan_only:
        collect_plan.show(plan, ids=True)
        click.echo(f"{len(plan.cases)} cases, plan {plan.hash}", err=True)
        return
    if out is None:
        raise UsageError("BL745", "a run needs a folder", place="--out", help="--out DIR")
    name = f"{RAY}:{how['worker_engine']}" if engine_name == RAY else engine_name
    pool = _pool(engine_name, options, how)
    try:
        with _progress(len(plan.cases)) as on_outcome:
            report = collect(
                plan,
                pool,
                out,
                engine_name=name,
                seed=seed,
                resume=resume,
                retry_failed=retry_failed,
                on_outcome=on_outcome,
            )
    finally:
        pool.close()
    _show_run(report, out)
    context.exit(INTERRUPTED if report.interrupted else 0 if report.succeeded else FINDINGS)


def _here(engine_name: str, options: dict[str, str]) -> Engine | None:
    """The engine that a plan is made for; none for a serving engine, which is planned for by loader and system."""
    from ..collector.engine import load

    serving = not engine_name or (engine_name == "vllm" and options.get("device") != "cpu")
    return None if serving else load(engine_name, options)


def _pool(engine_name: str, options: dict[str, str], how: dict[str, Any]) -> Pool:
    """Where the cases run."""
    if engine_name == RAY:
        try:
            from ..collector.ray_pool import RayPool
        except ModuleNotFoundError as error:
            raise UsageError(
                "BL727", "`ray` is not installed", place="--engine ray", help="pip install 'bitlane[ray]'"
            ) from error
        return RayPool(how["worker_engine"], options, address=how["ray_address"], workers=how["workers"])
    isolate = how["isolate"] if how["isolate"] is not None else engine_name in _ISOLATED
    if isolate:
        from ..collector.worker import ProcessPool

        return ProcessPool(engine_name, options)
    from ..collector.engine import load
    from ..collector.pool import LocalPool

    return LocalPool(load(engine_name, options))


def _options(wanted: Wanted, given: tuple[str, ...]) -> dict[str, str]:
    """Options of the engine: what was given, and the system that was named."""
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise UsageError("BL745", f"`{name}` is no option", place="--engine-option", help="write NAME=VALUE")
    options = {name: value for name, _, value in pairs}
    if wanted.system is not None:
        from ..resolver.systems import system as find_system

        options.setdefault("system", find_system(wanted.system).name)
    return options


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[Outcome], None]]:
    """A bar with rate and time left on standard error; plain silence where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, rate="")

        def on_outcome(outcome: Outcome) -> None:
            bar.advance(task)
            state = bar.tasks[0]
            rate = f"{state.completed / state.elapsed:.1f} cases/s" if state.elapsed else ""
            bar.update(task, rate=f"{rate}  {outcome.case.group}")

        yield on_outcome


def _show_run(report: RunReport, out: Path) -> None:
    for text in report.notices:
        click.echo(text, err=True)
    click.echo(f"{report.done:,} of {report.planned:,} cases have a row in {out}")
    for (group, kind), count in report.failures_by_group().items():
        first = next(f for f in report.failures.values() if (f.group, f.kind) == (group, kind))
        click.echo(f"  {count} failed: {group}, {kind}: {printable(first.message)}")
    for group in report.empty:
        click.echo(f"  {group}: not one case succeeded")
    if report.interrupted:
        click.echo("  interrupted; nothing measured is lost, --resume goes on")


@command.command("status")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--failures", is_flag=True, help="List every failed case.")
def status_command(folder: Path, failures: bool) -> None:
    """Say how far the run in FOLDER came; safe while it goes on."""
    from ..collector.runfile import read_identity, read_progress

    identity = read_identity(folder)
    if identity is None:
        raise UsageError("BL717", "no run in this folder", place=str(folder), help="bitlane collect run ... --out DIR")
    progress = read_progress(folder)
    click.echo(f"{identity.engine} {identity.backend_version} on {identity.system} ({printable(identity.device)})")
    click.echo(f"{len(progress.done):,} of {identity.planned:,} cases have a row, {len(progress.failed):,} failed")
    for failure in progress.failed.values() if failures else ():
        click.echo(f"  {failure.case}: {failure.kind}: {printable(failure.message)}")


@command.command("merge")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Folder of tables; default packaged.")
@click.option("--allow-synthetic", is_flag=True, help="Accept rows that are marked synthetic: tests only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def merge_command(folders: tuple[Path, ...], into: Path | None, allow_synthetic: bool, as_json: bool) -> None:
    """Add the rows of runs, or of other folders of tables, to the tables.

    Existing rows stay; a row gives way only to a newer measurement of its full key, and is then archived and named.
    """
    from ..collector.merge import merge

    report = merge(folders, into or PERF_DATA, allow_synthetic=allow_synthetic)
    if as_json:
        click.echo(json.dumps(_merge_document(report), indent=1))
        return
    for text in report.notices:
        click.echo(text, err=True)
    for entry in report.merged:
        click.echo(
            f"{entry.table}: {entry.added:,} rows added, {entry.replaced:,} replaced, {entry.outdated:,} left out as "
            f"older ({entry.event.system}, {entry.event.backend} {entry.event.backend_version})"
        )
        for example in entry.examples:
            key = " ".join(f"{name}={value}" for name, value in example.key.items() if name != "op_kind")
            click.echo(f"  replaced {key}: {example.older_ms:.6g} -> {example.newer_ms:.6g} ms")
        if entry.replaced > len(entry.examples):
            click.echo(f"  ... and {entry.replaced - len(entry.examples):,} more")
    for name in report.known:
        click.echo(f"{name}: nothing new")


def _merge_document(report: MergeReport) -> dict[str, Any]:
    import msgspec

    return {
        "schema": "bitlane.merge/1",
        "merged": [
            {
                "table": entry.table,
                "added": entry.added,
                "replaced": entry.replaced,
                "outdated": entry.outdated,
                "event": msgspec.to_builtins(entry.event),
            }
            for entry in report.merged
        ],
        "known": list(report.known),
        "notices": list(report.notices),
    }
