"""``bitlane buckets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..resolver.buckets import buckets
from ..resolver.fold import Folded, by_name, fold, shared
from ..resolver.splits import stages
from ..resolver.weights import WeightBytes, weight_bytes
from . import options
from .render import colour, table

if TYPE_CHECKING:
    from ..resolver.bucket import Bucket
    from ..resolver.parallel import Parallel
    from ..resolver.resolution import Resolution

_GIB = 1 << 30


@click.command("buckets")
@options.question
@options.parallel
@click.option("--weights", is_flag=True, help="Stored weight bytes per operation and GPU instead of shapes.")
@options.folding
@options.as_json
def command(asked: options.Question, split: Parallel, weights: bool, folding: options.Folding, as_json: bool) -> None:
    """Group the layers of CHECKPOINT into priced operations: one bucket per operation, lane and shape on one rank."""
    answer = asked.resolve()
    if weights:
        _weights(answer, split, folding, as_json)
        return
    found = buckets(answer, split)
    if as_json:
        rows = [_folded(f, folding.parts) for f in fold(found)] if folding.fold else [_row(b) for b in found]
        _print({"schema": "bitlane.buckets/1", "checkpoint": answer.checkpoint.name, **split.values, "buckets": rows})
        return
    lines: list[list[str]] = []
    for line in fold(found) if folding.fold else found:
        lines.append(_line(line))
        if isinstance(line, Folded) and folding.parts and len(line.parts) > 1:
            lines += [_line(part, "  ") for part in line.parts]
    click.echo(table(["op", "kind", "lane", "layers", "shape per rank"], lines, frozenset({3})))


def _line(bucket: Bucket | Folded, indent: str = "") -> list[str]:
    shape = "  ".join(f"{k} {v}" for k, v in bucket.shape.items())
    lane = colour(bucket.lane, bucket.algorithm)
    return [indent + bucket.op, bucket.kind, lane, str(bucket.layers), shape]


def _row(b: Bucket) -> dict[str, Any]:
    return {
        "op": b.op, "kind": b.kind, "lane": b.lane, "algorithm": b.algorithm, "layers": b.layers,
        "shape": dict(b.shape), "rows": b.rows, "modules": list(b.modules),
    }  # fmt: skip


def _folded(f: Folded, parts: bool) -> dict[str, Any]:
    out = {
        "op": f.op, "kind": f.kind, "lane": f.lane, "algorithm": f.algorithm, "layers": f.layers,
        "shape": dict(f.shape),
    }  # fmt: skip
    return out | ({"parts": [_row(b) for b in f.parts]} if parts else {})


def _print(document: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(document).decode())


# --- stored weights -----------------------------------------------------------


def _weights(answer: Resolution, split: Parallel, folding: options.Folding, as_json: bool) -> None:
    """Show the stage whose GPUs hold most."""
    per_stage = [weight_bytes(answer, split, s) for s in stages(answer, split)]
    totals = [sum(w.bytes for w in found) for found in per_stage]
    heaviest = max(range(split.pp), key=totals.__getitem__)
    found = per_stage[heaviest]
    groups = by_name(found, lambda w: w.op) if folding.fold else [[w] for w in found]
    if as_json:
        rows = [
            _weight_row(_sum(g)) | ({"parts": [_weight_row(w) for w in g]} if folding.parts else {}) for g in groups
        ]
        staged = {"stage_bytes": totals, "heaviest_stage": heaviest} if split.pp > 1 else {}
        head = {"schema": "bitlane.weights/1", "checkpoint": answer.checkpoint.name, **split.values}
        _print({**head, "bytes": totals[heaviest], **staged, "ops": rows})
        return
    lines: list[list[str]] = []
    for group in groups:
        lines.append(_weight_line(_sum(group)))
        if folding.parts and len(group) > 1:
            lines += [_weight_line(w, "  ") for w in group]
    click.echo(table(["op", "lane", "modules", "weights", "GiB"], lines, frozenset({2, 3, 4})))
    where = f", on stage {heaviest} of 0 to {split.pp - 1}, the heaviest" if split.pp > 1 else ""
    click.echo(f"\n  {totals[heaviest] / _GIB:.2f} GiB per GPU at {split.text}{where}, scales included")


def _sum(group: list[WeightBytes]) -> WeightBytes:
    lane = shared(w.lane for w in group)
    sums = (sum(getattr(w, name) for w in group) for name in ("modules", "weights", "bytes"))
    return WeightBytes(group[0].op, lane, *sums)


def _weight_row(w: WeightBytes) -> dict[str, Any]:
    return {"op": w.op, "lane": w.lane, "modules": w.modules, "weights": w.weights, "bytes": w.bytes}


def _weight_line(w: WeightBytes, indent: str = "") -> list[str]:
    return [indent + w.op, w.lane, str(w.modules), f"{w.weights:,}", f"{w.bytes / _GIB:.3f}"]
