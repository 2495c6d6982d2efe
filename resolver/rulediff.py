"""Which modules answer differently under two versions of a loader, two loaders, or two folders of rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import BitlaneError
from .api import resolve_with
from .loader import compile_loader
from .metadata import printable
from .versions import split_loader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..rules.library import Library
    from .checkpoint import Checkpoint
    from .resolution import Resolved


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: rules and a loader with its version."""

    library: Library
    loader: str


@dataclass(frozen=True, slots=True)
class Change:
    """Modules of one name and kind of change, in several layers of one checkpoint.

    Attributes
    ----------
    checkpoint
        Its name.
    module
        Path with ``{i}`` for the layer.
    layers
        Which layers; empty outside layers.
    old, new
        Algorithm, activations, lane and rule on either side; None where the module is not there.
    """

    checkpoint: str
    module: str
    layers: tuple[int, ...]
    old: tuple[str, ...] | None
    new: tuple[str, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("algorithm", "activations", "lane", "rule", "rule_at")
        sides = {
            k: dict(zip(names, v, strict=True)) if v is not None else None
            for k, v in (("old", self.old), ("new", self.new))
        }
        return {"checkpoint": self.checkpoint, "module": self.module, "layers": list(self.layers), **sides}


@dataclass(slots=True)
class Difference:
    """What changes over a corpus."""

    compared: int = 0
    modules: int = 0
    changes: list[Change] = field(default_factory=list)
    verdicts: list[tuple[str, str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.changes or self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract ``bitlane.rules_diff/1``."""
        return {
            "schema": "bitlane.rules_diff/1",
            "compared": self.compared,
            "modules": self.modules,
            "changes": [c.to_dict() for c in self.changes],
            "verdicts": [{"checkpoint": n, "old": a, "new": b} for n, a, b in self.verdicts],
            "skipped": [{"checkpoint": n, "reason": r} for n, r in self.skipped],
        }


def difference(
    old: Side, new: Side, checkpoints: Iterable[Checkpoint], system: str, rules_too: bool = False
) -> Difference:
    """Compare two sides over checkpoints.

    Parameters
    ----------
    system
        GPU system on which lanes are compared.
    rules_too
        Also list modules whose answer stays and whose deciding rule changes.
    """
    out = Difference()
    for side in (old, new):
        compile_loader(side.library, *split_loader(side.loader))
    for checkpoint in checkpoints:
        left, right = _ask(old, checkpoint, system), _ask(new, checkpoint, system)
        name = printable(checkpoint.name)
        if isinstance(left, str) or isinstance(right, str):
            if left == right:
                out.skipped.append((name, str(left)))
            else:
                sides = [s if isinstance(s, str) else "resolved" for s in (left, right)]
                out.verdicts.append((name, sides[0], sides[1]))
            continue
        out.compared += 1
        out.modules += len(left)
        out.changes += _changes(name, left, right, rules_too)
    return out


def _ask(side: Side, checkpoint: Checkpoint, system: str) -> dict[str, Resolved] | str:
    """Return the rows by path, or why there are none."""
    try:
        answer = resolve_with(side.library, checkpoint, side.loader, system)
    except BitlaneError as error:
        return f"refused, {error.code}: {error.message}"
    return {r.module.path: r for r in answer.rows}


def _changes(checkpoint: str, left: dict[str, Resolved], right: dict[str, Resolved], rules_too: bool) -> list[Change]:
    grouped: dict[tuple[str, Any, Any], list[int]] = {}
    for path in dict.fromkeys([*left, *right]):
        a, b = left.get(path), right.get(path)
        old, new = _answer(a), _answer(b)
        if old is not None and new is not None:
            # A rule's place moves with every line put before it; its text is what counts.
            same = old[:4] == new[:4] if rules_too else old[:3] == new[:3]
            if same:
                continue
        row = a or b
        layer = row.module.layer if row is not None else -1
        name = path.replace(f".{layer}.", ".{i}.", 1) if layer >= 0 else path
        grouped.setdefault((name, old, new), []).append(layer)
    return [
        Change(checkpoint, name, tuple(i for i in layers if i >= 0), old, new)
        for (name, old, new), layers in grouped.items()
    ]


def _answer(row: Resolved | None) -> tuple[str, ...] | None:
    if row is None:
        return None
    a = row.answer
    return a.algorithm, a.activations, row.lane.lane, a.rule, a.rule_at


def spans(layers: Iterable[int]) -> str:
    """Write layer numbers as ranges: ``0-3, 7``."""
    out: list[list[int]] = []
    for layer in sorted(set(layers)):
        if out and layer == out[-1][1] + 1:
            out[-1][1] = layer
        else:
            out.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)
