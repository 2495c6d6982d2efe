"""Which experts each token goes to, for a given routing distribution; the rank that is timed carries the most load.

``balanced`` gives every expert the same load, to within one token. ``power_law_A`` draws expert loads from a density
that falls as ``x**-A``; no expert gets more than every token once. With expert parallelism the experts are numbered so
that the first rank is the busiest one: the others wait for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

BALANCED: Final = "balanced"
POWER_LAW: Final = "power_law_"
Integers = npt.NDArray[np.int64]


def expert_loads(tokens: int, topk: int, experts: int, ep: int, routing: str, seed: int) -> Integers:
    """Tokens per expert, shape (experts,); they sum to ``tokens * topk`` and none is above `tokens`.

    Parameters
    ----------
    tokens, topk, experts
        Tokens entering the layer, experts per token, experts in all.
    ep
        Expert-parallel ranks; divides `experts`.
    routing
        ``balanced`` or ``power_law_<exponent>``.
    seed
        Seed of the draw.

    Raises
    ------
    UsageError
        ``BL731`` for an unknown routing, or more experts per token than there are.
    """
    if topk > experts:
        raise UsageError("BL731", f"{topk} experts per token of {experts}", place="topk", help="correct the shape")
    total = tokens * topk
    rng = np.random.default_rng(seed)
    if routing == BALANCED:
        loads = np.full(experts, total // experts, np.int64)
        loads[rng.permutation(experts)[: total % experts]] += 1
    else:
        loads = _filled(_power_law(experts, _exponent(routing), tokens, rng), total, tokens, rng)
    ranks = loads.reshape(ep, experts // ep)
    busiest = int(ranks.sum(axis=1).argmax())
    ranks[[0, busiest]] = ranks[[busiest, 0]]
    return ranks.reshape(experts)


def _exponent(routing: str) -> float:
    try:
        if not routing.startswith(POWER_LAW):
            raise ValueError(routing)
        return float(routing.removeprefix(POWER_LAW))
    except ValueError:
        raise UsageError(
            "BL731", f"unknown routing `{routing}`", place="routing", help=f"{BALANCED} or {POWER_LAW}1.2"
        ) from None


def _power_law(experts: int, exponent: float, tokens: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draws from a density proportional to ``x**-exponent`` on 1 .. tokens, by inverting its distribution."""
    uniform, top = rng.random(experts), float(max(tokens, 2))
    if abs(exponent - 1.0) < 1e-9:
        drawn = top**uniform
    else:
        power = 1.0 - exponent
        drawn = (1.0 + uniform * (top**power - 1.0)) ** (1.0 / power)
    return np.asarray(drawn, dtype=np.float64)


def _filled(weights: npt.NDArray[np.float64], total: int, most: int, rng: np.random.Generator) -> Integers:
    """Integers in proportion to `weights` that sum to `total`, none above `most`; cut-off load goes to the others."""
    loads = np.zeros(len(weights), np.int64)
    while (left := total - int(loads.sum())) > 0:
        open_ = np.flatnonzero(loads < most)
        share = weights[open_] / weights[open_].sum() * left
        more = np.minimum(np.floor(share).astype(np.int64), most - loads[open_])
        if not more.any():
            # Less than one token each: give them to the experts with the largest share, ties by chance.
            order = np.lexsort((rng.random(len(open_)), -share))
            more[order[: min(left, len(open_))]] = 1
        loads[open_] += more
    return loads


def assignments(loads: Integers, tokens: int, topk: int) -> Integers:
    """Experts of every token, shape (tokens, topk), distinct within a token, with exactly the given loads.

    Experts are dealt out one after the other round the tokens: at most `tokens` cards of one expert, so none lands on
    a token twice.
    """
    dealt = np.repeat(np.arange(len(loads)), loads)
    return np.ascontiguousarray(dealt.reshape(topk, tokens).T)
