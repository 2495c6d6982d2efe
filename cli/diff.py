"""``bitlane diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import FINDINGS, CheckpointError, UsageError
from . import options, printable
from .render import colour, table

if TYPE_CHECKING:
    from ..resolver.diff import Diff
    from ..resolver.resolution import Resolution


@click.command("diff")
@click.argument("checkpoints", nargs=-1, required=True, metavar="A [B]")
@click.option("--loader", "loaders", multiple=True, required=True, metavar="NAME[@VERSION]", help="Engine; repeatable.")
@click.option("--system", "systems", multiple=True, required=True, metavar="NAME", help="GPU system; repeatable.")
@click.option("--fusion", is_flag=True, help="List also modules that agree in precision but are fused differently.")
@click.option(
    "--rules",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Rule files that overlay the packaged ones.",
)
@click.option(
    "--models",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="More folders of org--name checkpoints.",
)
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    checkpoints: tuple[str, ...],
    loaders: tuple[str, ...],
    systems: tuple[str, ...],
    fusion: bool,
    rules: tuple[Path, ...],
    models: tuple[Path, ...],
    as_json: bool,
) -> None:
    """What differs between two checkpoints A and B, or for one under several loaders, versions or systems.

    The first side is compared with every other one. Modules meet through their names in the checkpoint, since engines
    name and fuse differently. Exit code 1 when something differs.
    """
    from ..resolver.diff import diff

    sides = [_ask(side, rules, models) for side in _sides(checkpoints, loaders, systems)]
    answers = [s for s in sides if not isinstance(s, CheckpointError)]
    refusals = [
        (side, error)
        for side, error in zip(_sides(checkpoints, loaders, systems), sides, strict=True)
        if isinstance(error, CheckpointError)
    ]
    if not answers:
        raise refusals[0][1]
    found = [diff(answers[0], other, fusion=fusion) for other in answers[1:]]
    if as_json:
        _json(found, refusals)
    else:
        _show(found, refusals)
    if refusals or any(found):
        context.exit(FINDINGS)


def _sides(
    checkpoints: tuple[str, ...], loaders: tuple[str, ...], systems: tuple[str, ...]
) -> list[tuple[str, str, str]]:
    """Pair what was given; a single value counts for every side."""
    count = max(len(checkpoints), len(loaders), len(systems))
    given = {"checkpoint": checkpoints, "--loader": loaders, "--system": systems}
    if count < 2:
        raise UsageError(
            "BL233", "nothing to compare", place="diff", help="give two checkpoints, or --loader or --system twice"
        )
    odd = next((name for name, values in given.items() if len(values) not in (1, count)), None)
    if odd is not None:
        raise UsageError(
            "BL233",
            f"{len(given[odd])} values of {odd} do not pair with {count} sides",
            place=odd,
            help="give one, or one a side",
        )
    wide = [values * count if len(values) == 1 else values for values in given.values()]
    return list(zip(*wide, strict=True))


def _ask(side: tuple[str, str, str], rules: tuple[Path, ...], models: tuple[Path, ...]) -> Resolution | CheckpointError:
    from ..resolver.api import resolve

    try:
        return resolve(*side, rules=rules, models=models)
    except CheckpointError as error:
        return error


def _json(found: list[Diff], refusals: list[tuple[tuple[str, str, str], CheckpointError]]) -> None:
    import msgspec

    from ..resolver.diff import SCHEMA

    document = {
        "schema": SCHEMA,
        "diffs": [{k: v for k, v in d.to_dict().items() if k != "schema"} for d in found],
        "refused": [
            {"checkpoint": c, "loader": lo, "system": s, "code": e.code, "message": e.message, "place": e.place}
            for (c, lo, s), e in refusals
        ],
    }
    click.echo(msgspec.json.encode(document).decode())


def _show(found: list[Diff], refusals: list[tuple[tuple[str, str, str], CheckpointError]]) -> None:
    for number, change in enumerate(found):
        if number:
            click.echo()
        click.echo(f"{_title(change.a, change.b)}   |   {_title(change.b, change.a)}")
        rows = [_row(name, count, difference) for name, count, difference in change.folded()]
        if rows:
            click.echo(
                table(
                    ["module", "layers", "first", "second", "first decided by", "second decided by"],
                    rows,
                    frozenset({1}),
                )
            )
        if change.kv_cache:
            click.echo("  KV cache: " + " | ".join(change.kv_cache))
        only = [
            f"{len(names)} only in the {which}"
            for which, names in (("first", change.only_a), ("second", change.only_b))
            if names
        ]
        differ = sum(len(d.matrices) for d in change.differences)
        click.echo(f"  {change.same} matrices agree, {differ} differ" + "".join(f", {o}" for o in only))
    for (checkpoint, loader, system), error in refusals:
        place = f" ({error.place})" if error.place else ""
        click.echo(printable(f"\n{loader} on {system} refuses {checkpoint}: {error.message}{place} [{error.code}]"))


def _title(mine: Resolution, other: Resolution) -> str:
    name = mine.checkpoint.name if mine.checkpoint.name != other.checkpoint.name else ""
    system = f" on {mine.system.name}" if mine.system.name != other.system.name else ""
    return printable(f"{name} {mine.loader} {mine.version}{system}".strip())


def _row(name: str, count: int, difference: Any) -> list[str]:
    a, b = difference.a, difference.b
    words = [s.algorithm if difference.what != "lane" else f"{s.algorithm} ({s.lane})" for s in (a, b)]
    if difference.what == "fusion":
        words = [s.module.rpartition(".")[2] for s in (a, b)]
    return [
        printable(name),
        str(count),
        colour(words[0], a.algorithm),
        colour(words[1], b.algorithm),
        printable(f"{a.rule}  {a.rule_at}"),
        printable(f"{b.rule}  {b.rule_at}"),
    ]
