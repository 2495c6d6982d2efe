"""``bitlane resolve``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options, printable
from .render import colour, grouped, heat_map, table

if TYPE_CHECKING:
    from ..resolver.resolution import Resolution


@click.command("resolve")
@options.question
@options.as_json
@click.option("--all", "everything", is_flag=True, help="List vision towers and draft blocks too.")
@click.option("--map/--no-map", "with_map", default=True, help="Draw layers against modules (default).")
@click.option(
    "--compare-spec/--no-compare-spec",
    "with_spec",
    default=None,
    help="Tell where the engine departs from what the metadata means by its own format (default; off with --json).",
)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the map as an SVG picture.")
def command(
    asked: options.Question, as_json: bool, everything: bool, with_map: bool, with_spec: bool | None, svg: Path | None
) -> None:
    """At which precision every module of CHECKPOINT runs under a loader on a system, and by which rule."""
    answer = asked.resolve()
    if (not as_json if with_spec is None else with_spec) and answer.loader != "spec":
        from ..resolver.inforce import in_force
        from ..resolver.verdict import against_spec

        answer.problems += against_spec(answer, in_force(asked.rules))
    if svg is not None:
        from .picture import write_svg

        write_svg(answer, svg)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(answer.to_dict()).decode())
        return
    show(answer, everything, with_map)


def show(answer: Resolution, everything: bool = False, with_map: bool = True) -> None:
    """Print a resolution for people."""
    sm = f" (sm{answer.system.sm})" if answer.system.sm else ""
    where = f"{answer.loader} {answer.version} on {answer.system.name}{sm}"
    click.echo(f"{printable(answer.checkpoint.name)}   {_declared(answer)}   {where}\n")
    rows = [
        [
            name,
            str(count),
            colour(row.answer.algorithm, row.answer.algorithm),
            row.lane.lane,
            row.answer.rule,
            row.answer.rule_at,
        ]
        for name, count, row in grouped(answer, everything)
    ]
    click.echo(table(["module", "count", "algorithm", "lane", "decided by", ""], rows, frozenset({1})))
    if with_map:
        click.echo()
        click.echo(heat_map(answer, _width()))
    hidden = sum(1 for r in answer.rows if not r.module.priced and r.module.stack not in ("", "layers"))
    notes = [p.message for p in answer.problems]
    loose = answer.unmatched()
    if loose:
        shown = ", ".join(f"`{u['text']}`" for u in loose[:3])
        what = "declaration matches" if len(loose) == 1 else "declarations match"
        notes.append(f"{len(loose)} {what} no module of this family: {shown}{' ...' if len(loose) > 3 else ''}")
    if hidden and not everything:
        notes.append(f"{hidden} modules of vision towers or draft blocks are not shown (--all)")
    if notes:
        click.echo()
        for note in notes:
            click.echo(f"  note: {printable(note)}")


def _declared(answer: Resolution) -> str:
    declared = answer.chooser.declared
    parts = [answer.format]
    if len(declared.listing):
        parts.append(f"{len(declared.listing):,} listed")
    if len(declared.groups):
        parts.append(f"{len(declared.groups):,} targets")
    if len(declared.exclusions):
        parts.append(f"{len(set(declared.exclusion_at)):,} excluded")
    if answer.kv_cache != "auto":
        parts.append(f"KV cache {answer.kv_cache}")
    if answer.explicit:
        parts.append("explicit: " + ", ".join(f"{k} {v}" for k, v in answer.explicit.items()))
    return ", ".join(parts)


def _width() -> int:
    import shutil

    return shutil.get_terminal_size((110, 40)).columns if sys.stdout.isatty() else 110
