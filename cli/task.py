"""``bitlane task``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..resolver import task as tasks
from ..resolver.api import resolve
from . import options
from .resolve import show as show_resolution

if TYPE_CHECKING:
    from ..resolver.buckets import Parallel
    from ..resolver.resolution import Resolution


@click.group("task")
def command() -> None:
    """Questions about a checkpoint, saved in a file and asked again."""


@command.command("new")
@click.argument("file", type=click.Path(dir_okay=False))
@options.question
@options.parallel
@click.option("--phase", type=click.Choice(["prefill", "decode", "both"]), default="both", show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--isl", type=click.IntRange(1), default=1024, show_default=True)
@click.option("--mode", type=options.price_mode, default="HYBRID", show_default=True)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def new(
    file: str, asked: options.Question, split: Parallel, phase: str, batch: int, isl: int, mode: Any, force: bool
) -> None:
    """Write FILE with a question about CHECKPOINT; modes that are not given stay null."""
    phases: tuple[Any, ...] = ("prefill", "decode") if phase == "both" else (phase,)
    task = tasks.Task(
        checkpoint=asked.checkpoint,
        loader=asked.loader,
        system=asked.system,
        parallel=tasks.Split(tp=split.tp, ep=split.moe_ep, dp=split.dp, pp=split.pp),
        workload=tuple(tasks.Pass(phase=p, batch=batch, isl=isl) for p in phases),
        modes=tasks.Modes(gemm=asked.gemm_mode, moe=asked.moe_mode),
        price=tasks.Pricing(mode=mode.upper()),
    )
    _resolved(task)
    tasks.save(task, file, replace=force)
    click.echo(f"wrote {file}")


@command.command("show")
@click.argument("file", type=click.Path())
def show(file: str) -> None:
    """Resolve the checkpoint of FILE anew and print its precisions."""
    task = tasks.load(file)
    answer = _resolved(task)
    show_resolution(answer)
    given = task.modes.given()
    click.echo("\n  modes: " + (", ".join(f"{k} {v} (explicit)" for k, v in given.items()) or "all inferred"))


@command.command("price")
@click.argument("file", type=click.Path())
@options.as_json
def price(file: str, as_json: bool) -> None:
    """Resolve the checkpoint of FILE anew and price its passes."""
    from ..perfcore.forward import price as price_pass
    from .price import document
    from .price import show as show_price

    task = tasks.load(file)
    answer = _resolved(task)
    found = [
        price_pass(
            answer,
            phase=w.phase,
            batch=w.batch,
            isl=w.isl,
            prefix=w.prefix,
            parallel=task.parallel.parallel(),
            mode=task.price.mode,
            allow_roofline=task.price.allow_roofline,
            routing=task.price.routing or "",
        )
        for w in task.workload
    ]
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode([document(answer, f, task.parallel.parallel()) for f in found]).decode())
        return
    for number, one in enumerate(found):
        if number:
            click.echo()
        show_price(answer, one, task.parallel.parallel())


def _resolved(task: tasks.Task) -> Resolution:
    task.parallel.parallel()
    return resolve(task.checkpoint, task.loader, task.system, modes=task.modes.given())
