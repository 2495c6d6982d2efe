"""``bitlane explain``."""

from __future__ import annotations

import click

from ..resolver.explain import Explanation, explain
from . import options, printable
from .render import colour, table


@click.command("explain")
@options.question
@click.argument("module")
@options.as_json
def command(asked: options.Question, module: str, as_json: bool) -> None:
    """Why MODULE of CHECKPOINT runs as it does: every rule tried, what it matched, why the winner won.

    MODULE is a loader-side or checkpoint-side path, or the end of one (`layers.0.mlp.gate_up_proj`).
    """
    found = explain(asked.resolve(), module)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode([e.to_dict() for e in found]).decode())
        return
    for number, explanation in enumerate(found[:5]):
        if number:
            click.echo()
        show(explanation)
    if len(found) > 5:
        click.echo(f"\n  ... and {len(found) - 5} more modules of that name; give a longer path")


def show(explanation: Explanation) -> None:
    """Print one chain."""
    row = explanation.row
    module = row.module
    made_of = " = " + " + ".join(c.rpartition(".")[2] for c in module.checkpoint) if len(module.checkpoint) > 1 else ""
    if len(module.checkpoint) == 1 and module.checkpoint[0] != module.path:
        made_of = f" = {module.checkpoint[0]} in the checkpoint"
    shape = f" {module.shape}" if module.shape else f" ({module.attributes.get('count', '?')} experts)"
    click.echo(
        printable(f"{module.path}{made_of}{shape}")
        + "  -> "
        + colour(row.answer.algorithm, row.answer.algorithm)
        + f", lane {row.lane.lane}"
    )
    mark = {True: click.style("✓", fg="green"), False: "✗", None: "·"}
    lines = [[f"{mark[t.won]} {t.rule}", printable(t.note), t.place] for t in explanation.tried if t.won is not None]
    click.echo(table(["rule", "what happened", "where"], lines))
    skipped = sum(1 for t in explanation.tried if t.won is None)
    if skipped:
        click.echo(f"    {skipped} rules do not apply to this module")
    click.echo(f"    lane {row.lane.lane} by {row.lane.rule_at}")
    if row.answer.evidence:
        click.echo("    evidence: " + printable(", ".join(row.answer.evidence)))
    if explanation.nearest_listed:
        click.echo("    listed beside it: " + printable(", ".join(f"{n} ({a})" for n, a in explanation.nearest_listed)))
