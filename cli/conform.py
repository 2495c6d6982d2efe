"""``bitlane conform``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import FINDINGS
from ..resolver.conform import SCHEMA, conform, folded, totals
from . import printable
from .render import table

if TYPE_CHECKING:
    from ..resolver.conform import Agreement, Totals

_FOLDER = click.Path(path_type=Path)


@click.command("conform")
@click.option(
    "--golden",
    "goldens",
    multiple=True,
    required=True,
    type=_FOLDER,
    metavar="DIR",
    help="Recorded answers: VERSION/CHECKPOINT.json.gz, or CASE/golden.json.gz beside config.json.",
)
@click.option(
    "--checkpoints",
    multiple=True,
    type=_FOLDER,
    metavar="DIR",
    help="Folders of org--name checkpoints, searched before the packaged ones.",
)
@click.option("--rules", multiple=True, type=_FOLDER, metavar="DIR", help="Rule files that overlay the packaged ones.")
@click.option(
    "--only", multiple=True, metavar="WORD", help="Keep goldens whose `loader@version checkpoint` contains a word."
)
@click.option(
    "--system",
    default="",
    metavar="NAME",
    help="GPU system; by default one with the compute capability that the engine was shown.",
)
@click.option(
    "--show", type=click.IntRange(0), default=10, show_default=True, help="Folded differences to print per checkpoint."
)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON contract, every difference included.")
@click.pass_context
def command(
    context: click.Context,
    goldens: tuple[Path, ...],
    checkpoints: tuple[Path, ...],
    rules: tuple[Path, ...],
    only: tuple[str, ...],
    system: str,
    show: int,
    as_json: bool,
) -> None:
    """Compare bitlane with answers recorded from real engines, module by module.

    Exit code 1 when anything differs, or when nothing could be compared. Checkpoints that no rule describes are
    `unsupported` and counted apart.
    """
    found: list[Agreement] = []
    for one in conform(goldens, checkpoints, rules=rules, only=only, system=system):
        found.append(one)
        if not as_json:
            click.echo(_line(one))
            for line in _differences(one, show):
                click.echo(line)
    sums = totals(found)
    if as_json:
        import msgspec

        document = {
            "schema": SCHEMA,
            "goldens": [a.to_dict() for a in found],
            "totals": {k: t.to_dict() for k, t in sums.items()},
        }
        click.echo(msgspec.json.encode(document).decode())
    else:
        click.echo("\n" + _totals(sums))
    whole = sums["all"]
    if whole.differences or not whole.compared:
        context.exit(FINDINGS)


def _line(one: Agreement) -> str:
    golden = one.golden
    name = f"{golden.loader}@{golden.version} {printable(golden.label)}"
    if one.status in ("unsupported", "skipped"):
        return click.style(f"  {one.status:>11}", fg="yellow") + f"  {name}: {printable(one.reason)[:200]}"
    mark = click.style("equal", fg="green") if one.equal else click.style("differs", fg="red")
    pad = " " * (11 - (5 if one.equal else 7))
    if golden.refusal:
        return f"  {pad}{mark}  {name}: refused, {printable(golden.refusal.partition(chr(10))[0])[:120]}"
    share = f"{one.agree / one.modules:.2%}" if one.modules else "none"
    counts = f"{one.agree} of {one.modules} modules ({share}), {one.shapes_agree} of {one.shapes} shapes"
    return f"  {pad}{mark}  {name}: {counts}"


def _differences(one: Agreement, limit: int) -> list[str]:
    lines = []
    shown = folded(one.differences)
    for difference, count in shown[:limit]:
        where = printable(difference.module) or "the checkpoint"
        lines.append(f"        {where} x {count}: {difference.what}")
        lines.append(
            f"            engine   {difference.engine}"
            + (f"   {printable(difference.engine_why)[:160]}" if difference.engine_why else "")
        )
        lines.append(
            f"            bitlane  {difference.ours}"
            + (f"   {printable(difference.our_why)[:160]}" if difference.our_why else "")
        )
    if len(shown) > limit:
        lines.append(f"        ... and {len(shown) - limit} more kinds of difference (--show, --json)")
    return lines


def _totals(sums: dict[str, Totals]) -> str:
    head = [
        "loader",
        "goldens",
        "equal",
        "modules",
        "agree",
        "shapes",
        "agree",
        "refusals",
        "agree",
        "unsupported",
        "skipped",
    ]
    rows = [
        [
            name,
            *(
                f"{n:,}"
                for n in (
                    t.goldens,
                    t.equal,
                    t.modules,
                    t.agree,
                    t.shapes,
                    t.shapes_agree,
                    t.refusals,
                    t.refusals_agree,
                    t.unsupported,
                    t.skipped,
                )
            ),
        ]
        for name, t in sums.items()
    ]
    return table(head, rows, frozenset(range(1, len(head))))
