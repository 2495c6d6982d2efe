"""What to measure when a price has no rows: the missing keys, their nearest measured neighbours, and the command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import MissingDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .modes import Ladder
    from .pack import Pack
    from .plan import PlannedOp
    from .resolved import Missing
    from .store import Store

NEAREST: Final = 3
CHECKPOINT: Final = "CHECKPOINT"
# Shape words of a bucket that say the same as a key column.
SYNONYMS: Final = {
    "hidden": "hidden_size", "inter": "inter_size", "experts": "num_experts", "tp": "moe_tp_size", "ep": "moe_ep_size",
    "topk": "topk", "gated": "hidden_size", "kv_heads": "num_kv_heads", "window": "window_size_tokens",
    "heads": "num_heads", "groups": "n_groups", "chunk": "chunk_size", "k_heads": "num_k_heads", "gpus": "num_gpus",
    "v_heads": "num_v_heads", "k_head_dim": "head_k_dim", "v_head_dim": "head_v_dim",
}  # fmt: skip


class MissingRowsError(MissingDataError):
    """A strict price lacks rows.

    Attributes
    ----------
    missing
        Every missing key, GEMM first.
    """

    def __init__(
        self,
        missing: Sequence[Missing],
        store: Store,
        *,
        system: str,
        backend: str,
        version: str,
        phase: str,
        checkpoint: str = CHECKPOINT,
    ) -> None:
        order = {"gemm": 0, "moe": 1}
        self.missing = tuple(sorted(missing, key=lambda one: order.get(one.table, 2)))
        lines = [line(one) for one in self.missing]
        shown = [*dict.fromkeys(lines)]
        keys = [*dict.fromkeys(detail(one, store, system, backend, version) for one in self.missing)]
        super().__init__(
            "BL501",
            "; ".join(shown),
            place=f"{backend} {version} on {system}, {phase}",
            help="\n".join(
                [f"collect: {command(system, backend, version, checkpoint)}", *(f"         {key}" for key in keys)]
            ),
        )


def line(one: Missing) -> str:
    """Say in one clause what is missing."""
    if not one.table:
        return f"{one.label} has no measured rows anywhere (roofline only; --allow-roofline {one.op.gap} accepts it)"
    return f"{one.label} perf data missing" + (f" for quant '{one.quant}'" if one.quant else "")


def command(system: str, backend: str, version: str, checkpoint: str = CHECKPOINT) -> str:
    """Return the collector call that lists what a price of a checkpoint lacks."""
    return f"bitlane collect plan {shlex.quote(checkpoint)} --loader {backend}@{version} --system {system}"


def wanted(one: Missing) -> str:
    """Name the rows that a measurement of a missing key would add."""
    sizes = {
        k: v for k, v in {**one.key, **one.op.bucket.shape}.items() if k not in SYNONYMS or SYNONYMS[k] not in one.key
    }
    shape = " ".join(f"{k}={v}" for k, v in sizes.items())
    return " ".join(word for word in (one.table or one.label, one.quant, shape) if word)


def detail(one: Missing, store: Store, system: str, backend: str, version: str) -> str:
    """Name a missing key and the nearest measured ones."""
    text = f"{one.op.bucket.op} ({one.op.bucket.layers} layers): {wanted(one)}"
    pack = store.get(one.table) if one.table else None
    if pack is None:
        return text
    near = nearest(pack, {"system": system, "backend": backend, "backend_version": version} | dict(one.key), one.quant)
    return text + "".join(f"\n           nearest: {other}" for other in near)


def nearest(pack: Pack, key: Mapping[str, Any], quant: str) -> list[str]:
    """Return the measured keys that differ least from a missing one, as text.

    A different system counts most, then another lane, backend and version; sizes count by their log2 ratio.
    """
    spec, codes = pack.spec, pack.arrays["keys"]
    weights = {"system": 8.0, spec.lane: 4.0, "backend": 2.0, "backend_version": 1.0}
    wanted = dict(key) | ({spec.lane: quant} if spec.lane and quant else {})
    distance = np.zeros(len(codes))
    for at, column in enumerate(spec.keys):
        if column not in wanted:
            continue
        values = pack.vocab[column]
        if isinstance(wanted[column], str):
            step = np.array([0.0 if value == wanted[column] else weights.get(column, 1.0) for value in values])
        else:
            sizes = np.array([max(float(value), 0.5) for value in values])
            step = np.abs(np.log2(sizes / max(float(wanted[column]), 0.5)))
        distance += step[codes[:, at]]
    best = np.argsort(distance, kind="stable")[:NEAREST]
    shown = []
    for slab in best:
        found = pack.key(int(slab))
        differs = [f"{c}={found[c]}" for c in spec.keys if c not in wanted or found[c] != wanted[c]]
        shown.append(", ".join(differs) or "the same key")
    return shown


def advice(planned: Iterable[PlannedOp], ladder: Ladder) -> Iterator[tuple[PlannedOp, Missing]]:
    """Yield the operations that own rows do not price, each with the key that a measurement would add."""
    for one in planned:
        for found in one.parts:
            if found.part.table and found.rung not in ("own", "minus", "same"):
                yield one, ladder.missing(one.op, found.part)
