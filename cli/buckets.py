"""``bitlane buckets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..resolver.buckets import buckets
from ..resolver.weights import WeightBytes, weight_bytes
from . import options
from .render import colour, table

if TYPE_CHECKING:
    from ..resolver.parallel import Parallel
    from ..resolver.resolution import Resolution


@click.command("buckets")
@options.question
@options.parallel
@click.option("--weights", is_flag=True, help="Stored weight bytes per operation and GPU instead of shapes.")
@options.as_json
def command(asked: options.Question, split: Parallel, weights: bool, as_json: bool) -> None:
    """Group the layers of CHECKPOINT into priced operations: one bucket per operation, lane and shape on one rank."""
    answer = asked.resolve()
    if weights:
        _weights(answer, weight_bytes(answer, split), split, as_json)
        return
    found = buckets(answer, split)
    if as_json:
        import msgspec

        rows = [
            {
                "op": b.op,
                "kind": b.kind,
                "lane": b.lane,
                "algorithm": b.algorithm,
                "layers": b.layers,
                "shape": dict(b.shape),
                "rows": b.rows,
                "modules": list(b.modules),
            }
            for b in found
        ]
        click.echo(
            msgspec.json.encode(
                {"schema": "bitlane.buckets/1", "checkpoint": answer.checkpoint.name, "buckets": rows}
            ).decode()
        )
        return
    lines = [
        [b.op, b.kind, colour(b.lane, b.algorithm), str(b.layers), "  ".join(f"{k} {v}" for k, v in b.shape.items())]
        for b in found
    ]
    click.echo(table(["op", "kind", "lane", "layers", "shape per rank"], lines, frozenset({3})))


def _weights(answer: Resolution, found: list[WeightBytes], split: Parallel, as_json: bool) -> None:
    total = sum(w.bytes for w in found)
    if as_json:
        import msgspec

        rows = [
            {"op": w.op, "lane": w.lane, "modules": w.modules, "weights": w.weights, "bytes": w.bytes} for w in found
        ]
        click.echo(
            msgspec.json.encode(
                {"schema": "bitlane.weights/1", "checkpoint": answer.checkpoint.name, "bytes": total, "ops": rows}
            ).decode()
        )
        return
    lines = [[w.op, w.lane, str(w.modules), f"{w.weights:,}", f"{w.bytes / (1 << 30):.3f}"] for w in found]
    click.echo(table(["op", "lane", "modules", "weights", "GiB"], lines, frozenset({2, 3, 4})))
    click.echo(f"\n  {total / (1 << 30):.2f} GiB per GPU at tp {split.tp}, ep {split.moe_ep}, scales included")
