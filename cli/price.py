"""``bitlane price``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..perfcore.fold import FoldedPrice, fold
from ..perfcore.forward import price
from ..resolver.plausible import doubts
from . import options, printable
from .render import colour, table

if TYPE_CHECKING:
    from ..perfcore.pricing import OpPrice, PassPrice
    from ..resolver.buckets import Parallel
    from ..resolver.resolution import Problem, Resolution

_SOURCES = {
    "measured": "green",
    "interpolated": "cyan",
    "extrapolated": "yellow",
    "transferred": "magenta",
    "roofline": "red",
}


@click.command("price")
@options.question
@options.parallel
@click.option(
    "--phase", type=click.Choice(["prefill", "decode"]), required=True, help="Whole prompts, or one decode step."
)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences in the pass.")
@click.option(
    "--isl", type=click.IntRange(1), default=1024, show_default=True, help="Prompt length; in decode tokens cached."
)
@click.option(
    "--prefix", type=click.IntRange(0), default=0, help="Cached tokens at the start of each prompt (prefill)."
)
@click.option("--mode", type=options.price_mode, default="SILICON", show_default=True)
@click.option(
    "--allow-roofline", multiple=True, metavar="KIND", help="Let SILICON price this kind by roofline (mamba2)."
)
@click.option(
    "--routing", default="", metavar="NAME", help="Expert routing: balanced, power_law_1.01 or power_law_1.2."
)
@click.option(
    "--perf-data", multiple=True, type=click.Path(path_type=Path), metavar="DIR", help="More tables; their rows win."
)
@options.folding
@options.as_json
def command(
    asked: options.Question, split: Parallel, mode: Any, folding: options.Folding, as_json: bool, **workload: Any
) -> None:
    """Price one forward pass of CHECKPOINT from measured kernel tables, with source and origin of every number.

    \b
    SILICON    rows of the lane, the engine's declared other versions included; missing ones are an error (exit 5)
    HYBRID     as SILICON, else transferred from a declared donor, else roofline
    EMPIRICAL  as HYBRID, with efficiency blended between sites instead of latency; never called measured
    SOL        roofline only
    """  # noqa: D301 - click's own marker for text that keeps its lines
    answer = asked.resolve()
    found = price(answer, parallel=split, mode=mode.upper(), **workload)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(document(answer, found, split, folding)).decode())
        return
    show(answer, found, split, folding)


def document(
    answer: Resolution, found: PassPrice, split: Parallel, folding: options.Folding | None = None
) -> dict[str, Any]:
    """Return the JSON contract ``bitlane.price/1``; folded operations keep its keys."""
    asked = {"checkpoint": answer.checkpoint.name, "loader": answer.loader, "loader_version": answer.version}
    out = {**found.to_dict(), **asked, **split.values}
    out["problems"] = [p.to_dict() for p in _problems(answer, found, split)]
    if folding is not None and folding.fold:
        out["ops"] = [f.to_dict(folding.parts) for f in fold(found.ops)]
    return out


def show(answer: Resolution, found: PassPrice, split: Parallel, folding: options.Folding | None = None) -> None:
    """Print a priced pass for people."""
    w = found.workload
    low, high = found.band
    parts = [click.style(f"{s} {ms / found.total_ms:.0%}", fg=_SOURCES[s]) for s, ms in found.by_source_ms.items()]
    total = f"{click.style(f'{found.total_ms:.3f} ms', bold=True)}  [{low:.3f}, {high:.3f}]"
    where = f"{answer.loader} {answer.version} on {answer.system.name}, {found.mode}"
    click.echo(f"{printable(answer.checkpoint.name)}   {where}")
    click.echo(f"{w.phase} {w.batch} x {w.isl}, {split.text}   {total}   {'   '.join(parts)}\n")
    rows: list[list[str]] = []
    folded = folding is not None and folding.fold
    for op in fold(found.ops) if folded else found.ops:
        rows.append(_line(op))
        if isinstance(op, FoldedPrice) and folding is not None and folding.parts and len(op.parts) > 1:
            rows += [_line(part, "  ") for part in op.parts]
    click.echo(table(["op", "kind", "lane", "layers", "ms/layer", "ms", "source", "from"], rows, frozenset({3, 4, 5})))
    for problem in _problems(answer, found, split):
        click.echo(f"\n  note: {printable(problem.message)}")
    if any(op.counted_ms < op.ms for op in found.ops):
        click.echo("\n  operations that run side by side count once, as the longer of the two sides")
    if split.dp > 1:
        click.echo(f"\n  {w.batch} sequences in each of {split.dp} attention groups")
    if found.stages:
        _show_stages(found)


def _problems(answer: Resolution, found: PassPrice, split: Parallel) -> list[Problem]:
    return [*answer.problems, *doubts(answer, split, found.workload.isl)]


def _show_stages(found: PassPrice) -> None:
    slowest = found.slowest
    rows = [
        [str(s.number), f"{s.first}..{s.last - 1}", f"{s.ms:.3f}", "slowest" if s is slowest else ""]
        for s in found.stages
    ]
    click.echo("\n" + table(["stage", "layers", "ms", ""], rows, frozenset({0, 1, 2})))
    if slowest is not None:
        click.echo(
            f"\n  the total runs through all stages once; with all of them busy, a pass every {slowest.ms:.3f} ms"
        )


def _line(op: OpPrice | FoldedPrice, indent: str = "") -> list[str]:
    return [
        indent + op.op,
        op.kind,
        colour(op.lane, answer_algorithm(op)),
        str(op.layers),
        f"{op.ms_per_layer:.4f}",
        f"{op.ms:.3f}",
        click.style(op.source, fg=_SOURCES.get(op.source)),
        _origin(op),
    ]


def answer_algorithm(op: OpPrice | FoldedPrice) -> str:
    """Word by which a lane is coloured."""
    return (
        op.lane.removesuffix("_wo").removesuffix("_static").removesuffix("_dynamic")
        if op.lane not in ("int4_wo", "int8_wo")
        else op.lane
    )


def _origin(op: OpPrice | FoldedPrice) -> str:
    origin = op.origin
    named = " ".join(str(origin[k]) for k in ("system", "backend", "version") if origin.get(k))
    notes = [str(origin["method"])] if origin.get("method") else []
    if origin.get("rows_of"):
        notes.append(f"{origin['rows_of']} rows")
    if isinstance(origin.get("shape"), dict):
        sizes = [f"{k.replace('_size', '')} {v}" for k, v in origin["shape"].items() if isinstance(v, int)]
        notes.append("of " + ", ".join(sizes[:4]))
    minus = origin.get("minus")
    if isinstance(minus, dict) and minus.get("version"):
        notes.append(f"less quantization of {minus['version']}")
    return f"{named} ({'; '.join(notes)})" if named and notes else named or "; ".join(notes)
