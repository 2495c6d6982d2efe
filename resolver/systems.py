"""GPU systems: names, aliases and plain facts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml

from .. import paths
from ..errors import MissingDataError, UsageError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..rules.library import Library, find

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class System:
    """One GPU system.

    Attributes
    ----------
    name
        As in the tables (``h200_sxm``).
    sm
        Compute capability times ten (100 for SM100); None when the facts give none.
    facts
        Peaks, bandwidths and sizes, with their units in the names.
    """

    name: str
    sm: int | None
    facts: Mapping[str, Any]


@lru_cache(maxsize=8)
def _load(path: Path, mtime_ns: int) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG001 - the stamp is the cache key
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise unusable(path, f"cannot be read: {str(error).splitlines()[0]}") from error
    return checked(document, path)


def checked(document: Any, path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the systems of a parsed ``systems.yaml``, when it describes any.

    Raises
    ------
    MissingDataError
        BL502: it does not.
    """
    systems = document.get("systems") if isinstance(document, dict) else None
    if not isinstance(systems, dict):
        raise unusable(path, "holds no `systems`")
    for name, facts in systems.items():
        sm = facts.get("sm_version") if isinstance(facts, dict) else "odd"
        if not isinstance(name, str) or not (sm is None or (isinstance(sm, int) and not isinstance(sm, bool))):
            raise unusable(path, f"describes `{name}` by no facts, or by an `sm_version` that is no whole number")
    return systems


def unusable(path: Path, what: str) -> MissingDataError:
    """Return the error for a ``systems.yaml`` that is no use."""
    return MissingDataError("BL502", f"the file of systems {what}", place=str(path), help="restore systems.yaml")


def known(perf_data: Path | None = None) -> Mapping[str, Mapping[str, Any]]:
    """Return every system's facts by name."""
    path = (perf_data or paths.PERF_DATA) / "systems.yaml"
    if not path.is_file():
        path = paths.PERF_DATA / "systems.yaml"
    return _load(path, path.stat().st_mtime_ns)


def system(name: str, perf_data: Path | None = None, library: Library | None = None) -> System:
    """Look a system up by its name or an alias from ``lanes.rules``.

    Raises
    ------
    UsageError
        BL223: unknown.
    """
    facts = known(perf_data)
    aliases = {p.item.alias: p.item.name for p in (library or find()).lanes() if isinstance(p.item, t.SystemAlias)}
    full = name if name in facts else aliases.get(name, name)
    if full not in facts:
        choices = sorted({*facts, *aliases})
        raise UsageError(
            "BL223",
            f"unknown system `{name}`",
            place="--system",
            help=nearest(name, choices) or "known: " + ", ".join(choices),
        )
    sm = facts[full].get("sm_version")
    return System(full, sm, facts[full])
