"""A loader put to a checkpoint: which metadata it reads, which format that is, and what it refuses at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError
from ..grammar import tree as t
from .checkpoint import QUANT_FILES, Checkpoint
from .expressions import Scope, evaluate
from .loader import MODULE_NAMES, Loader, LoaderFormat
from .metadata import json_kind, pointer
from .values import ABSENT, descend

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Reading:
    """A checkpoint as one loader reads it."""

    loader: Loader
    block: Mapping[str, Any] | None
    at: str
    format: LoaderFormat | None
    scope: Scope
    findings: list[tuple[str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the metadata format, ``unquantized`` when there is none."""
        return self.format.name if self.format is not None else "unquantized"

    @property
    def asked(self) -> dict[str, int | str]:
        """What a family's conditions may ask of the reading."""
        return {"format": self.name, "sm": int(self.scope.values.get("sm", 0))}


def _scope(
    loader: Loader,
    checkpoint: Checkpoint,
    block: Mapping[str, Any] | None,
    file: str,
    chosen: LoaderFormat | None,
    facts: Mapping[str, Any],
) -> Scope:
    roots: dict[str, Any] = {"config": checkpoint.config, "block": block if block is not None else {}}
    for name in QUANT_FILES:
        document = checkpoint.files.get(name)
        value = document.value if document is not None else checkpoint.damaged.get(name, ABSENT)
        roots[name.removesuffix(".json")] = value
    base = block if block is not None else {}
    place = f"{checkpoint.name}: {file}"
    if chosen is None:
        scope = Scope(base, roots, loader.lets, place)
    else:
        scope = Scope(base, roots, {**loader.lets, **chosen.lets}, place, MODULE_NAMES, chosen.volatile_lets)
    scope.values.update({**facts, "file": file, "found": block is not None, "loader": loader.name})
    return scope


def read(loader: Loader, checkpoint: Checkpoint, facts: Mapping[str, Any] = MappingProxyType({})) -> Reading:
    """Decide which metadata counts and which format it is.

    ``facts`` are further names that rules may use (``sm``: the GPU's compute capability).

    A `read` without condition applies while nothing was found; one with a condition, which sees what was found so far,
    replaces it.

    Raises
    ------
    CheckpointError
        BL240 the loader refuses the metadata (its own words in the message), BL241 no format of this loader fits.
    """
    block: Mapping[str, Any] | None = None
    file, at = "config.json", "config.json#"
    for statement in loader.reads:
        if statement.when is None:
            if block is not None:
                continue
        elif not evaluate(statement.when, _scope(loader, checkpoint, block, file, None, facts)):
            continue
        document = checkpoint.files.get(statement.file)
        if statement.file in checkpoint.damaged:
            raise checkpoint.damaged[statement.file]
        found = descend(document.value, statement.path or "") if document is not None else ABSENT
        if found is ABSENT or found is None:
            continue
        if not isinstance(found, dict):
            raise CheckpointError(
                "BL242",
                f"`{statement.path}` is {json_kind(found)}, not an object",
                place=f"{checkpoint.name}: {statement.file}#{pointer(*(statement.path or '').split('.'))}",
                help="repair the checkpoint's metadata",
            )
        block, file = found, statement.file
        at = statement.file + "#" + (pointer(*statement.path.split(".")) if statement.path else "")
    scope = _scope(loader, checkpoint, block, file, None, facts)
    reading = Reading(loader, block, at, None, scope)
    check(reading, loader.checks)
    chosen = next(
        (
            f
            for f in loader.formats
            if (f.when is None or evaluate(f.when, scope)) and (block is not None or f.when is not None)
        ),
        None,
    )
    if chosen is None:
        if block is None:
            return reading
        method = block.get("quant_method")
        raise CheckpointError(
            "BL241",
            f"{loader.name} {loader.version} knows no quantization method `{method}`"
            if method
            else f"{loader.name} {loader.version} does not recognise the quantization metadata",
            place=f"{checkpoint.name}: {at}",
            help="`bitlane rules list` shows the formats; a new one is a `format` block in the loader file",
        )
    chosen = loader.marked(chosen)
    reading.format = chosen
    reading.scope = _scope(loader, checkpoint, block, file, chosen, facts)
    check(reading, chosen.checks)
    return reading


def check(reading: Reading, checks: tuple[tuple[t.Refuse | t.Report, str], ...]) -> None:
    """Run `refuse` and `report` statements that look at the metadata as a whole."""
    for statement, file in checks:
        if not _holds(statement, reading):
            continue
        if isinstance(statement, t.Report):
            reading.findings.append((statement.code or "BL290", f"{statement.message}"))
            continue
        raise CheckpointError(
            statement.code or "BL240",
            statement.message,
            place=f"{reading.scope.place} (by {file}:{statement.at.line})",
            help=f"{reading.loader.name} {reading.loader.version} refuses this checkpoint; "
            "compare other loaders with `bitlane diff`",
        )


def _holds(statement: t.Refuse | t.Report, reading: Reading) -> bool:
    """Whether a check applies; a remark about a file that cannot be read is none."""
    if statement.when is None:
        return True
    try:
        return bool(evaluate(statement.when, reading.scope))
    except CheckpointError as error:
        if isinstance(statement, t.Report) and error in reading.scope.roots.values():
            return False
        raise
