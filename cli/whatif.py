"""``bitlane whatif``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..perfcore.whatif import Option, PassChange, Tables, compare, rank
from ..resolver.overrides import Override, apply
from . import options, printable
from .render import table

if TYPE_CHECKING:
    from ..perfcore.workload import Phase
    from ..resolver.buckets import Parallel
    from ..resolver.resolution import Resolution


@click.command("whatif")
@options.plain_question
@options.parallel
@click.option("--set", "sets", multiple=True, metavar="PATTERN=ALGORITHM", help="Matching modules run so; repeatable.")
@click.option("--rank", "with_rank", is_flag=True, help="For every bucket: what the other recipes would save or cost.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Sequences in a decode step.")
@click.option("--prefill-batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts in a prefill.")
@click.option(
    "--isl", type=click.IntRange(1), default=1024, show_default=True, help="Prompt length, and tokens cached."
)
@click.option("--mode", type=options.price_mode, default="HYBRID", show_default=True)
@click.option("--routing", default="", metavar="NAME", help="Expert routing, as in `bitlane price`.")
@click.option(
    "--perf-data", multiple=True, type=click.Path(path_type=Path), metavar="DIR", help="More tables; their rows win."
)
@options.as_json
def command(
    asked: options.Question,
    split: Parallel,
    sets: tuple[str, ...],
    with_rank: bool,
    batch: int,
    prefill_batch: int,
    isl: int,
    mode: Any,
    routing: str,
    perf_data: tuple[Path, ...],
    as_json: bool,
) -> None:
    """What another precision of some modules of CHECKPOINT would save or cost, in prefill and in decode."""
    if not sets and not with_rank:
        raise UsageError("BL283", "nothing to change", place="--set", help='--set "mlp.experts=nvfp4", or --rank')
    answer = asked.resolve()
    lanes = answer.lanes
    mode = mode.upper()
    work: tuple[tuple[Phase, int], ...] = (("prefill", prefill_batch), ("decode", batch))
    changed = apply(answer, [Override.parse(s) for s in sets], lanes) if sets else None
    tables = Tables(perf_data, routing)
    changes = [compare(answer, changed, p, b, isl, split, mode, tables) for p, b in work] if changed is not None else []
    ranks = [rank(answer, lanes, p, b, isl, split, mode, tables) for p, b in work] if with_rank else []
    if as_json:
        _json(answer, changes, ranks)
        return
    click.echo(
        printable(answer.checkpoint.name)
        + f"   {answer.loader} {answer.version} on {answer.system.name}, {mode}, tp {split.tp}"
    )
    for change in changes:
        _show_change(change)
    for (phase, count), found in zip(work, ranks, strict=False):
        click.echo(f"\n{phase} {count} x {isl}: each bucket at another precision, everything else as it is")
        _show_rank(found)
    for problem in changed.problems if changed is not None else ():
        if problem.code == "BL286":
            click.echo(f"\n  note: {printable(problem.message)}")


def _json(answer: Resolution, changes: list[PassChange], ranks: list[list[Option]]) -> None:
    import msgspec

    document = {
        "schema": "bitlane.whatif/1",
        "checkpoint": answer.checkpoint.name,
        "passes": [c.to_dict() for c in changes],
        "rank": [
            {"phase": phase, "options": [{**msgspec.to_builtins(o), "delta_ms": o.delta_ms} for o in found]}
            for phase, found in zip(("prefill", "decode"), ranks, strict=False)
        ],
    }
    click.echo(msgspec.json.encode(document).decode())


def _show_change(change: PassChange) -> None:
    w = change.before.workload
    before, after = change.before.total_ms, change.after.total_ms
    share = f"{change.delta_ms / before:+.1%}" if before else ""
    click.echo(f"\n{w.phase} {w.batch} x {w.isl}:  {before:.3f} -> {after:.3f} ms   {change.delta_ms:+.3f} ms  {share}")
    rows = [
        [o.op, o.before, o.after, f"{o.before_ms:.3f}", f"{o.after_ms:.3f}", f"{o.delta_ms:+.3f}", ", ".join(o.sources)]
        for o in change.ops
        if o.before != o.after or abs(o.delta_ms) > 1e-12
    ]
    click.echo(table(["op", "now", "then", "ms", "ms then", "change", "source then"], rows, frozenset({3, 4, 5})))
    (low, high), (then_low, then_high) = change.before.band, change.after.band
    click.echo(f"  90 % bands: now [{low:.3f}, {high:.3f}], then [{then_low:.3f}, {then_high:.3f}] ms")
    if any(op.counted_ms < op.ms for op in (*change.before.ops, *change.after.ops)):
        click.echo("  operations that run side by side count once in the totals, as the longer of the two sides")


def _show_rank(found: list[Option]) -> None:
    rows = []
    for o in found:
        if o.refused:
            rows.append([o.op, o.lane, o.other, str(o.layers), "", "", "", o.refused])
        else:
            rows.append(
                [
                    o.op,
                    o.lane,
                    o.other,
                    str(o.layers),
                    f"{o.before_ms:.3f}",
                    f"{o.after_ms:.3f}",
                    f"{o.delta_ms:+.3f}",
                    o.source,
                ]
            )
    click.echo(
        table(
            ["op", "lane", "other", "layers", "ms", "ms then", "change", "source then"], rows, frozenset({3, 4, 5, 6})
        )
    )
