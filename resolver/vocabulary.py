"""What rule files may talk about: names, functions, targets, kinds, and the keys that real metadata has."""

from __future__ import annotations

import inspect
import json
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..grammar import tree as t
from .checkpoint import QUANT_FILES, from_folder, packaged
from .entries import KINDS
from .functions import FUNCTIONS
from .loader import MODULE_NAMES
from .systems import known as known_systems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ..rules.library import Library, RuleFile

MODULE_KINDS: Final = ("linear", "experts", "embed", "lm_head")
# What `type(x)` gives.
TYPE_WORDS: Final = ("dict", "list", "string", "number", "boolean", "null", "absent")
ACTIVATIONS: Final = ("static", "dynamic", "none")
PATTERNS: Final = tuple(KINDS)
# Targets of `on`, with what each names.
TARGETS: Final[Mapping[str, str]] = {
    "path": "the module's loader-side path",
    "spellings": "that path and the other spellings that `alias` gives it",
    "name": "the last part of the path",
    "shards": "the paths of the shards, for a name that the family's `fuse` knows",
    "shard0": "the first of them",
    "tail_shards": "the shards, with what stands after the fused name",
    "builtin": "the paths of the shards, for a name that the loader's `builtin` knows",
    "checkpoint": "the checkpoint-side names",
    "checkpoint0": "the first of them",
    "parent": "the path without its last part",
    "ancestors": "the path and every ancestor, longest first",
    "parts": "the parts of the path",
    "expert0": "the leaves of the first expert, as `builtin expert0` names them",
    "any_expert": "those leaves of the first and the last expert, and of every expert whose number an entry names",
    "class": "the engine's class of the module",
}
# Kinds that need something else than names to look at.
CLASS_PATTERNS: Final = ("class_part",)
# `listed`: the names of the listing in the loader's spelling, known once a format is chosen.
LOADER_VALUES: Final = frozenset({"file", "found", "listed", "loader", "sm"})
LOADER_ROOTS: Final = frozenset({"config", "block", *(f.removesuffix(".json") for f in QUANT_FILES)})
FAMILY_VALUES: Final = frozenset({"loader", "architecture", "format", "sm", "i"})
OPERATION_VALUES: Final = frozenset({"tp", "ep", "dp", "pp", "moe_tp", "phase"})
# Lanes and sizes of stored weights; then what rules about splits see of a model and of one module.
LANE_VALUES: Final = frozenset(
    {
        *("loader", "version", "sm", "system", "family", "algorithm", "activations", "kind", "format"),
        *("entry", "metadata"),
        *("tp", "ep", "dp", "pp", "moe_tp", "phase", "layers", "stage", "hidden", "inter", "experts"),
        *("out", "into", "heads", "head_rows", "style", "merged", "text"),
    }
)
METADATA_FILES: Final = ("config.json", *QUANT_FILES)


def is_target(name: str) -> bool:
    """Whether `on` knows the name; a loader may have several `expert0...` lists."""
    return name in TARGETS or name.startswith("expert0")


def arguments(function: str) -> tuple[int, int | None]:
    """Return how many values a function takes at least and at most (None: any number)."""
    least, most = 0, 0
    for parameter in inspect.signature(FUNCTIONS[function]).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return least, None
        most += 1
        least += parameter.default is inspect.Parameter.empty
    return least, most


class Vocabulary:
    """What the rule files in force and the packaged checkpoints know; everything is found on first use.

    Parameters
    ----------
    library
        The rule files in force.
    models
        More folders of checkpoints.
    """

    def __init__(self, library: Library, models: tuple[Path, ...] = ()) -> None:
        self.library = library
        self.models = models

    @cached_property
    def givens(self) -> list[tuple[RuleFile, dict[str, Any]]]:
        """The metadata that tests give: one dictionary of files per test, with the rule file that holds it."""
        out = []
        for file in self.library.files:
            for item in file.tree().items:
                if isinstance(item, t.Test):
                    files = {g.file: json.loads(g.text) for g in item.items if isinstance(g, t.Given)}
                    out.append((file, files))
        return out

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The metadata of every packaged checkpoint: one dictionary of files each."""
        return _documents(self.models)

    def configs(self, architectures: Iterable[str]) -> list[dict[str, Any]]:
        """Every known ``config.json`` of some model classes, packaged ones first."""
        wanted = set(architectures)
        files = [*self.documents, *(f for _, f in self.givens)]
        configs = [f["config.json"] for f in files if isinstance(f.get("config.json"), dict)]
        return [c for c in configs if wanted & _listed(c)]

    @cached_property
    def metadata_keys(self) -> frozenset[str]:
        """Every key of every known metadata file, at any depth, but not the names of modules."""
        given = {k for _, files in self.givens for value in files.values() for k in _keys(value)}
        return _document_keys(self.models) | given

    @cached_property
    def algorithms(self) -> frozenset[str]:
        """Algorithm words that some lane is made from."""
        return frozenset(a for p in self.library.lanes() if isinstance(p.item, t.Lane) for a in p.item.algorithms)

    @cached_property
    def systems(self) -> frozenset[str]:
        """Names and aliases of the known GPU systems."""
        aliases = {p.item.alias for p in self.library.lanes() if isinstance(p.item, t.SystemAlias)}
        return frozenset({*known_systems(), *aliases})

    def versions(self, loader: str) -> tuple[str, ...]:
        """Versions that a loader's file describes; none for an unknown loader."""
        if loader not in self.library.loaders():
            return ()
        return self.library.loader(loader)[0].versions


@lru_cache(maxsize=4)
def _documents(models: tuple[Path, ...]) -> list[dict[str, Any]]:
    return [
        {n: d.value for n, d in from_folder(folder, name).files.items()} for name, folder in packaged(models).items()
    ]


@lru_cache(maxsize=4)
def _document_keys(models: tuple[Path, ...]) -> frozenset[str]:
    return frozenset(k for files in _documents(models) for value in files.values() for k in _keys(value))


def _listed(config: Mapping[str, Any]) -> set[str]:
    found = config.get("architectures")
    return {a for a in found if isinstance(a, str)} if isinstance(found, list) else set()


def _keys(value: Any) -> Iterator[str]:
    """Yield every key at any depth, but not the names of modules."""
    todo = [value]
    while todo:
        current = todo.pop()
        if isinstance(current, dict):
            yield from (k for k in current if "." not in k)
            todo += current.values()
        elif isinstance(current, list):
            todo += current


__all__ = ["MODULE_NAMES", "PATTERNS", "TARGETS", "Vocabulary", "arguments", "is_target"]
