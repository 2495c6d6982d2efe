"""From a checkpoint to the price of its forward pass: resolve, group, price."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import paths
from ..errors import UsageError
from ..grammar.diagnostics import nearest
from ..resolver.api import resolve
from ..resolver.bucket import SHAPE_KEYS
from ..resolver.buckets import buckets
from ..resolver.parallel import Parallel
from ..resolver.resolution import Resolution
from ..resolver.splits import stages

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ..resolver.bucket import Bucket
    from ..resolver.checkpoint import Checkpoint
    from .modes import Mode
    from .pricing import PassPrice
    from .store import Store
    from .workload import Phase


# Expert loads that measured rows exist for.
ROUTINGS: Final = ("balanced", "power_law_1.01", "power_law_1.2")


def price(
    checkpoint: str | os.PathLike[str] | Checkpoint | Resolution,
    loader: str = "",
    system: str = "",
    *,
    phase: Phase = "prefill",
    batch: int = 1,
    isl: int = 1024,
    prefix: int = 0,
    parallel: Parallel | None = None,
    mode: Mode = "SILICON",
    allow_roofline: Sequence[str] = (),
    routing: str = "",
    rules: tuple[str | os.PathLike[str], ...] = (),
    models: tuple[str | os.PathLike[str], ...] = (),
    perf_data: Sequence[str | os.PathLike[str]] = (),
    modes: Mapping[str, str] | None = None,
) -> PassPrice:
    """Price one forward pass of a checkpoint.

    Parameters
    ----------
    checkpoint, loader, system, rules, models, modes
        As for :func:`bitlane.resolve`; a ready resolution makes ``loader`` and ``system`` unnecessary.
    phase, batch, isl, prefix
        The pass: ``prefill`` of ``batch`` prompts of ``isl`` tokens, or one ``decode`` step with ``isl`` tokens cached.
        With attention data parallelism every group runs such a batch, and the experts see the tokens of all groups.
    parallel
        The split over GPUs; one rank by default. With pipeline stages the total runs through all of them once.
    mode
        ``SILICON``, ``HYBRID``, ``EMPIRICAL`` or ``SOL``.
    allow_roofline
        Operation kinds that SILICON may price by roofline (``mamba2``).
    perf_data
        More table folders; their rows win over the packaged ones.

    Returns
    -------
    PassPrice
        Milliseconds per operation with source, origin and band.

    Raises
    ------
    MissingDataError
        BL501 (exit 5): SILICON lacks rows; the message names every missing key.

    Examples
    --------
    >>> import bitlane
    >>> model = "nvidia/Gemma-4-26B-A4B-NVFP4"
    >>> found = bitlane.price(model, "vllm@0.31.0", "gb200", phase="decode", batch=8, mode="HYBRID")
    >>> found.total_ms > 0
    True
    """
    from .pricing import StagePrice
    from .pricing import price as price_buckets
    from .workload import Workload

    answer = (
        checkpoint
        if isinstance(checkpoint, Resolution)
        else resolve(checkpoint, loader, system, rules=rules, models=models, modes=modes)
    )
    store = store_of(perf_data)
    split = parallel or Parallel()
    whole = buckets(answer, split, phase)
    _check_words(allow_roofline, whole)
    ask: dict[str, Any] = {
        "system": answer.system.name,
        "backend": answer.loader,
        "version": answer.version,
        "mode": mode,
        "store": store,
        "allow_roofline": allow_roofline,
        "routing": known_routing(routing),
    }
    work = Workload(phase, batch, isl, prefix)
    found = price_buckets(whole, work, **ask)
    if split.pp == 1:
        return found
    parts = [
        StagePrice(s.number, s.first, s.last, price_buckets(buckets(answer, split, phase, s), work, **ask).total_ms)
        for s in stages(answer, split)
    ]
    return replace(found, stages=tuple(parts))


def _check_words(allowed: Sequence[str], whole: Sequence[Bucket]) -> None:
    """Refuse a word of ``allow_roofline`` that names no kind of operation, and none of this model."""
    known = {"mamba2", "roofline", *SHAPE_KEYS, *(b.op for b in whole)}
    for word in allowed:
        if word not in known:
            raise UsageError(
                "BL526",
                f"unknown kind of operation `{word}`",
                place="--allow-roofline",
                help=nearest(word, known) or "known: " + ", ".join(sorted(known)),
            )


def known_routing(routing: str) -> str:
    """Return a routing that tables have, or the empty text for the policy's own.

    Raises
    ------
    UsageError
        BL526: another.
    """
    if routing and routing not in ROUTINGS:
        raise UsageError(
            "BL526", f"unknown routing `{routing}`", place="--routing", help="known: " + ", ".join(ROUTINGS)
        )
    return routing


def store_of(perf_data: Sequence[str | os.PathLike[str]]) -> Store | None:
    """Return the packaged tables with more folders over them; None for the packaged ones alone."""
    from .store import Store

    return Store([paths.PERF_DATA, *map(Path, perf_data)]) if perf_data else None
