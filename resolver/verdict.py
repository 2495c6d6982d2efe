"""Where an engine's answer differs from what the metadata means: a checkpoint that is loaded wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import CheckpointError
from .answers import SPEC
from .contradictions import fold
from .diff import diff
from .resolution import Problem

if TYPE_CHECKING:
    from ..rules.library import Library
    from .diff import Difference
    from .resolution import Resolution

CODE: Final = "BL299"

# Words for one storage format; whether activations are quantized on top is the engine's choice of lane.
_ALIKE: Final = (frozenset({"mxfp4", "mxfp4_a4"}), frozenset({"nf4", "bnb_nf4"}), frozenset({"int8_bnb", "bnb_int8"}))


def findings(resolution: Resolution, spec_resolution: Resolution) -> list[Problem]:
    """List where an engine's answer differs from the meaning of the metadata.

    Parameters
    ----------
    resolution
        What the engine does.
    spec_resolution
        The same checkpoint under the loader ``spec``.

    Returns
    -------
    list of Problem
        One per kind of module (code BL299), with every module of that kind; then one for the KV cache.
    """
    engine = f"{resolution.loader} {resolution.version}"
    grouped: dict[tuple[str, ...], list[Difference]] = {}
    for found in diff(resolution, spec_resolution).differences:
        if found.what != "algorithm" or _alike(found.a.algorithm, found.b.algorithm):
            continue
        key = (fold(found.a.module), found.a.algorithm, found.b.algorithm, found.a.rule, found.b.rule)
        grouped.setdefault(key, []).append(found)
    out = [_problem(engine, same) for same in grouped.values()]
    means = spec_resolution.kv_cache
    if means not in ("auto", resolution.kv_cache):
        does = resolution.kv_cache
        text = f"{engine} leaves the KV cache's precision open" if does == "auto" else f"{engine} keeps it in {does}"
        out.append(Problem(CODE, f"the metadata means a KV cache in {means}; {text}"))
    return out


def _alike(a: str, b: str) -> bool:
    return any(a in words and b in words for words in _ALIKE)


def _problem(engine: str, same: list[Difference]) -> Problem:
    first = same[0]
    modules = tuple(dict.fromkeys(d.a.module for d in same))
    name = fold(first.a.module) if len(modules) > 1 else first.a.module
    many = f" ({len(modules)} modules)" if len(modules) > 1 else ""
    shards = tuple(m.rpartition(".")[2] for m in first.matrices)
    part = f", shards {', '.join(shards)}," if 0 < len(shards) < first.a_matrices else ""
    return Problem(
        CODE,
        f"`{name}`{many}{part} is {first.a.algorithm} in {engine} by `{first.a.rule}` ({first.a.rule_at}), "
        f"but the metadata means {first.b.algorithm}: `{first.b.rule}` ({first.b.rule_at})",
        modules,
    )


def against_spec(resolution: Resolution, library: Library) -> list[Problem]:
    """Resolve the same checkpoint as its metadata means it, and list the differences.

    Returns
    -------
    list of Problem
        As :func:`findings`; where the metadata means nothing without contradiction, one finding that says so.
    """
    from .api import resolve_with

    try:
        means = resolve_with(library, resolution.checkpoint, SPEC, resolution.system.name)
    except CheckpointError as error:
        where = f" ({error.place})" if error.place else ""
        return [Problem(CODE, f"the metadata contradicts itself or is not understood: {error.message}{where}")]
    return findings(resolution, means) + means.problems
