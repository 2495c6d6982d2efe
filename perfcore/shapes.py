"""The measured shape that is most like one that was not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import layout as lay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .lower import Part
    from .pack import Pack
    from .resolved import Origin


def nearest(
    pack: Pack, part: Part, origin: Origin, rows: str, excluding: npt.NDArray[np.int64] | None
) -> tuple[int, float, float]:
    """Find the nearest measured shape of some rows.

    Parameters
    ----------
    pack, part
        The table, and what is to be priced.
    origin
        System, backend and version of the rows.
    rows
        Their lane label.
    excluding
        Slabs that must not serve.

    Returns
    -------
    tuple
        Slab or -1; the factor on x that keeps the work per unit equal (MoE: tokens per expert); the distance, in
        octaves summed over the sizes on one rank.
    """
    spec, keys = pack.spec, pack.arrays["keys"]
    fixed: dict[str, Any] = dict(zip(("system", "backend", "backend_version"), origin, strict=True))
    if spec.lane and part.kind:
        fixed[spec.lane] = rows
    fixed |= {
        c: v for c, v in part.key.items() if isinstance(v, str) or (isinstance(v, list) and isinstance(v[0], str))
    }
    member = pack.slabs[:, lay.A0_N] * pack.slabs[:, lay.A1_N] * pack.slabs[:, lay.X_N] >= 2
    for column, wanted in fixed.items():
        # A list names alternatives in order of preference; the first that has rows counts.
        choices = wanted if isinstance(wanted, list) else [wanted]
        tried = [member & (keys[:, spec.keys.index(column)] == pack.codes(column).get(v, -1)) for v in choices]
        member = next((t for t in tried if t.any()), tried[0])
    if excluding is not None:
        member[excluding] = False
    candidates = np.flatnonzero(member)
    if not len(candidates):
        return -1, 1.0, np.inf
    free = [c for c in spec.keys if c not in fixed]
    mine = _features(pack, {c: part.key[c] for c in (*free, "tp") if c in part.key})
    theirs = _features(
        pack, {c: np.array([pack.vocab[c][k] for k in keys[candidates, spec.keys.index(c)]]) for c in free}
    )
    distance = sum(np.abs(np.log2(theirs[name] / mine[name])) for name in mine)
    at = int(np.argmin(distance))
    best, far = int(candidates[at]), float(distance[at])
    if spec.name != "moe":
        return best, 1.0, far
    key = pack.key(best)
    load = part.key["topk"] / part.key["num_experts"]
    return best, load / (int(key["topk"]) / int(key["num_experts"])), far


def _features(pack: Pack, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes two shapes alike: the sizes on one rank, as positive numbers."""
    if pack.spec.name == "moe":
        return {
            "hidden": columns["hidden_size"] * 1.0,
            "inter": columns["inter_size"] / columns["moe_tp_size"],
            "experts": columns["num_experts"] / columns["moe_ep_size"],
            "load": columns["topk"] / columns["num_experts"],
        }
    if pack.spec.name == "mamba2":  # a convolution sees channels only
        channels = columns["num_heads"] * columns["head_dim"] + 2 * columns["n_groups"] * columns["d_state"]
        return {"channels": channels / columns.get("tp", 1)}
    return {c: np.maximum(_first(v), 1) * 1.0 for c, v in columns.items() if c != "tp"}


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value
