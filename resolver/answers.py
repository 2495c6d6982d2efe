"""Answers for single modules: what was decided, by which rule, on which evidence, and what else was tried."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import CheckpointError

UNQUANTIZED: Final = "bf16"
# The reading of metadata by its own format, which belongs to no engine.
SPEC: Final = "spec"
_MISS: Final = -1


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a module runs as it does.

    Attributes
    ----------
    algorithm
        Word of the loader's world (``nvfp4``, ``bf16``), before any hardware is considered.
    activations
        ``static``, ``dynamic`` or ``none``.
    rule, rule_at
        The deciding rule as written, and file:line.
    evidence
        Declarations behind it, as file#pointer.
    note
        What matched what, in words.
    declared
        The declaration itself (a group, a listed word); None where nothing was said.
    """

    algorithm: str
    activations: str
    rule: str
    rule_at: str
    evidence: tuple[str, ...] = ()
    note: str = ""
    declared: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Tried:
    """One rule of a chain as `explain` tells it: ``won`` None means that it did not apply to this module."""

    rule: str
    place: str
    won: bool | None
    note: str


class RefusalError(CheckpointError):
    """The loader stops at this module."""


@dataclass(slots=True)
class Hit:
    """What a matcher found: positions in the entries, and the texts that were tried."""

    positions: list[int]
    tried: tuple[str, ...]

    @property
    def first(self) -> int:
        """Position of the first entry, -1 when nothing matched."""
        return self.positions[0] if self.positions else _MISS


def said(answer: Answer | None) -> str:
    """What a declaration says, keys that only say where it counts or say nothing left out."""
    if answer is None or answer.declared is None or answer.algorithm == UNQUANTIZED:
        return ""
    return json.dumps(_spoken(answer.declared), sort_keys=True)


def _spoken(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _spoken(v) for k, v in value.items() if v is not None and k != "targets"}
    return [_spoken(v) for v in value] if isinstance(value, list) else value


def shown(hits: list[Hit]) -> str:
    """Name what was hit, in words."""
    names = [h.tried[0] for h in hits]
    return f"`{names[0]}`" if len(names) == 1 else ", ".join(f"`{n.rpartition('.')[2]}`" for n in names)


_WEIGHT_ONLY: Final = ("w4a16_nvfp4", "int4_wo", "int8_wo", "mxfp4", "w8a16_fp8", UNQUANTIZED)


def activations(algorithm: str) -> str:
    """Activation attribute where the rule gives none: weight-only words have none, the others are dynamic."""
    return "none" if algorithm in _WEIGHT_ONLY else "dynamic"
