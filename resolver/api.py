"""Resolve a checkpoint: the one function that everything else stands on."""

from __future__ import annotations

from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from .checkpoint import Checkpoint, open_checkpoint
from .decide import Chooser
from .declarations import Declarations, declarations
from .explicit import checked, idle, override
from .expressions import evaluate
from .family import Family, compile_family
from .inforce import in_force
from .lanes import Lanes
from .loader import compile_loader
from .reading import Reading, read
from .resolution import Problem, Resolution, Resolved
from .systems import system as find_system
from .values import present
from .versions import split_loader
from .walk import modules

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ..errors import CheckpointError
    from ..rules.library import Library
    from .answers import Answer
    from .loader import Loader
    from .modules import Module
    from .systems import System


def resolve(
    checkpoint: str | os.PathLike[str] | Checkpoint,
    loader: str,
    system: str,
    *,
    rules: tuple[str | os.PathLike[str], ...] = (),
    models: tuple[str | os.PathLike[str], ...] = (),
    perf_data: str | os.PathLike[str] | None = None,
    modes: Mapping[str, str] | None = None,
) -> Resolution:
    """Say at which precision every module of a checkpoint runs, and why.

    Parameters
    ----------
    checkpoint
        Packaged model id, folder, ``config.json`` path, or an opened checkpoint.
    loader
        ``vllm@0.31.0``; without a version, the newest that the rule file describes.
    system
        GPU system (``gb200``, ``h200``).
    rules
        Folders of rule files that overlay the packaged ones.
    models, perf_data
        More folders of checkpoints; a folder with its own ``systems.yaml``.
    modes
        Explicit algorithms that override the checkpoint: ``{"gemm": "fp8", "moe": "nvfp4"}``.

    Returns
    -------
    Resolution
        One row a module, in model order.

    Raises
    ------
    UsageError, RuleError, CheckpointError
        With a code, the place and a way out.

    Examples
    --------
    >>> import bitlane
    >>> answer = bitlane.resolve("nvidia/Gemma-4-26B-A4B-NVFP4", "vllm@0.31.0", "gb200")
    >>> answer["language_model.model.layers.0.experts"].answer.algorithm
    'nvfp4'
    """
    library = in_force(Path(r) for r in rules)
    opened = open_checkpoint(checkpoint, tuple(Path(m) for m in models))
    return resolve_with(
        library, opened, loader, system, Path(perf_data) if perf_data is not None else None, modes or {}
    )


def resolve_with(
    library: Library,
    opened: Checkpoint,
    loader: str,
    system: str,
    perf_data: Path | None = None,
    modes: Mapping[str, str] | None = None,
) -> Resolution:
    """Resolve with a given rule library and an opened checkpoint."""
    asked = ask(library, opened, loader, system, perf_data)
    chosen = checked(modes or {})
    rows = asked.rows() if not chosen else [asked.row(m, override(m, chosen)) for m in asked.modules]
    problems = [Problem(code, message) for code, message in asked.reading.findings]
    problems += idle(chosen, rows)
    problems += [_unread(name, error) for name, error in opened.damaged.items()]
    problems += [_duplicates(d.name, d.duplicates) for d in opened.files.values() if d.duplicates]
    once = {(p.code, p.message): p for p in problems}
    return Resolution(
        opened,
        asked.reading,
        asked.family,
        asked.hardware,
        rows,
        asked.chooser,
        _kv_cache(asked.reading),
        list(once.values()),
        chosen,
        lanes=asked.lanes,
    )


def _unread(name: str, error: CheckpointError) -> Problem:
    return Problem("BL303", f"{name} cannot be read and is not needed here: {error.message}")


def _duplicates(file: str, keys: tuple[str, ...]) -> Problem:
    return Problem("BL292", f"{file} holds keys twice, the last one counts: {', '.join(keys[:5])}")


def _prepared(opened: Checkpoint) -> dict[object, object]:
    return opened.files["config.json"].prepared


class Asked:
    """A checkpoint as one loader reads it for one system, with the answers given so far."""

    def __init__(
        self, library: Library, opened: Checkpoint, compiled: Loader, family: Family, hardware: System
    ) -> None:
        self.family, self.hardware = family, hardware
        self.reading: Reading = read(compiled, opened, {"sm": hardware.sm, "system": hardware.name})
        self.chooser = Chooser(self.reading, _declared(opened, self.reading, family), family.packed)
        self.lanes = Lanes(library, compiled.name, compiled.version, hardware.sm, hardware.name, family.name)
        self._format = self.reading.name
        self.modules = _modules(opened, family, self.reading.asked)
        self._rows: tuple[Resolved, ...] | None = None

    def row(self, module: Module, given: Answer | None = None) -> Resolved:
        """Return the row of a module, with an answer that the user gave or the rules'."""
        answer = given or self.chooser.decide(module)
        return Resolved(
            module, answer, self.lanes.choose(answer.algorithm, answer.activations, module.kind, self._format)
        )

    def rows(self) -> list[Resolved]:
        """Return the rows of all modules by the rules; rows cannot change, so they are decided once."""
        if self._rows is None:
            self._rows = tuple(self.row(m) for m in self.modules)
        return list(self._rows)


def ask(library: Library, opened: Checkpoint, loader: str, system: str, perf_data: Path | None = None) -> Asked:
    """Read and check the metadata, once per set of documents, loader, system and thread."""
    name, version = split_loader(loader)
    compiled = compile_loader(library, name, version)
    hardware = find_system(system, perf_data, library)
    family = compile_family(library, opened.architecture, compiled.name, compiled.version)
    cache, documents = _prepared(opened), (*opened.files.values(), *opened.damaged.values())
    key = ("asked", get_ident(), opened.name, id(compiled), id(family), hardware.name, hardware.sm)
    found = cache.get(key)
    if isinstance(found, tuple) and found[0] is compiled and found[1] is family and _same(found[2], documents):
        kept: Asked = found[3]
        return kept
    asked = Asked(library, opened, compiled, family, hardware)
    cache[key] = (compiled, family, documents, asked)
    return asked


def _same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _modules(opened: Checkpoint, family: Family, asked: Mapping[str, int | str]) -> list[Module]:
    """Build the module list, once per config document, family and what it may ask."""
    cache, key = _prepared(opened), ("modules", id(family), *asked.values())
    found = cache.get(key)
    if isinstance(found, tuple) and found[0] is family:
        kept: list[Module] = found[1]
        return kept
    built = modules(family, opened.config, asked)
    cache[key] = (family, built)
    return built


def _declared(opened: Checkpoint, reading: Reading, family: Family) -> Declarations:
    """Read and index the declarations, once per document, format and mapper."""
    cache, key = _prepared(opened), ("declared", reading.at, id(reading.format), id(family))
    found = cache.get(key)
    if isinstance(found, tuple) and found[0] is reading.format and found[1] is family and found[2] is reading.block:
        kept: Declarations = found[3]
        reading.findings += found[4]
        return kept
    before = len(reading.findings)
    declared = declarations(reading, family.renames)
    cache[key] = (reading.format, family, reading.block, declared, reading.findings[before:])
    return declared


def _kv_cache(reading: Reading) -> str:
    """KV-cache precision that the metadata declares; ``auto`` when it says nothing."""
    if reading.format is None:
        return "auto"
    for statement in reading.format.kv_cache:
        if statement.when is None or evaluate(statement.when, reading.scope):
            value = evaluate(statement.value, reading.scope)
            if present(value) and isinstance(value, str) and value:
                return value.lower()
    return "auto"
