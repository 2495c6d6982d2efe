"""The texts that a rule may be tried on: a module's path, its shards, its ancestors, its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import RuleError
from .entries import ancestors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .loader import Loader
    from .modules import Module


def _shards(module: Module, packed: Mapping[str, tuple[str, ...]]) -> list[str]:
    name = module.name
    return [module.path.replace(name, s) for s in packed[name]] if name in packed else []


def _tail_shards(module: Module, packed: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Shards of the first fused name that the path ends with, whatever stands before it."""
    tail = next((f for f in packed if module.path.endswith(f)), None)
    return [module.path.replace(tail, s) for s in packed[tail]] if tail is not None else []


_NAMED: Final[Mapping[str, Callable[[Module, Mapping[str, tuple[str, ...]], Loader], list[str]]]] = {
    "path": lambda m, _p, _l: [m.path],
    "spellings": lambda m, _p, loader: list(loader.spellings(m.path)),
    "name": lambda m, _p, _l: [m.name],
    "shards": lambda m, packed, _l: _shards(m, packed),
    "shard0": lambda m, packed, _l: _shards(m, packed)[:1],
    "tail_shards": lambda m, packed, _l: _tail_shards(m, packed),
    "builtin": lambda m, _p, loader: _shards(m, loader.builtin),
    "checkpoint": lambda m, _p, _l: list(m.checkpoint),
    "checkpoint0": lambda m, _p, _l: list(m.checkpoint[:1]),
    "parent": lambda m, _p, _l: [m.path.rpartition(".")[0]],
    "ancestors": lambda m, _p, _l: list(ancestors(m.path)),
    "parts": lambda m, _p, _l: m.path.split("."),
    # Which experts these are depends on what is declared: the question knows.
    "any_expert": lambda _m, _p, _l: [],
    "class": lambda m, _p, _l: [m.cls],
}


def named(module: Module, on: str, packed: Mapping[str, tuple[str, ...]], loader: Loader) -> list[str]:
    """Return the texts that ``on`` names for a module; empty when it has none.

    Parameters
    ----------
    on
        A key of :data:`resolver.vocabulary.TARGETS`, or ``expert0...``: expert 0's leaves in the `builtin` so named.
    packed
        Fused names that the loader's quantization config knows, with their shards.

    Raises
    ------
    RuleError
        BL110: an unknown target.
    """
    found = _NAMED.get(on)
    if found is not None:
        return found(module, packed, loader)
    if on.startswith("expert0"):
        leaves = loader.builtin.get(on, ())
        return [f"{module.path}.0.{leaf}" for leaf in leaves] if module.kind == "experts" else []
    raise RuleError("BL110", f"unknown target `{on}`", help=f"{', '.join(_NAMED)} or expert0")
