"""What a model is made of: modules with names, kinds and shapes, as a family file describes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Member:
    """One checkpoint-side matrix inside a loader-side module.

    Attributes
    ----------
    out, into
        Sizes at tensor parallel 1.
    style
        ``column`` splits the output, ``row`` the input, ``replicated`` nothing.
    heads
        For a column split in units of heads: how many; replicated when tensor parallel exceeds them.
    head_rows
        How many rows of ``out`` the heads are, where others stand beside them: keys and values under the queries in
        one stored matrix, groups under a Mamba projection. The others are split evenly.
    """

    name: str
    out: int
    into: int
    style: str
    heads: int = 0
    head_rows: int = 0


@dataclass(slots=True)
class Module:
    """One loader-side module.

    Attributes
    ----------
    path
        Loader-side name (``model.layers.0.self_attn.qkv_proj``).
    checkpoint
        Checkpoint-side names behind it.
    kind
        ``linear``, ``experts``, ``embed`` or ``lm_head``.
    cls
        The engine's class name, for targets that name classes.
    layer
        Index in its stack, -1 outside one.
    configured
        Whether the engine passes its quantization config to this module.
    asked
        The name under which the engine looks it up, where that is not its path.
    """

    path: str
    checkpoint: tuple[str, ...]
    kind: str
    cls: str
    op: str
    layer: int = -1
    stack: str = ""
    part: str = ""
    configured: bool = True
    priced: bool = True
    members: tuple[Member, ...] = ()
    attributes: Mapping[str, int] = field(default_factory=dict)
    file: str = ""
    line: int = 0
    asked: str | None = None

    @property
    def name(self) -> str:
        """Last component of the path."""
        return self.path.rpartition(".")[2]

    @property
    def shape(self) -> list[int] | None:
        """``[out, in]`` at tensor parallel 1; None for experts."""
        if not self.members:
            return None
        return [sum(m.out for m in self.members), self.members[0].into]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation that no weight-bearing module stands for: attention, a scan, a collective, a norm."""

    name: str
    kind: str
    layer: int
    stack: str
    part: str
    attributes: Mapping[str, int | str]
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class OverlapGroup:
    """Operations of one part that an engine runs side by side."""

    name: str
    part: str
    stack: str
    phase: str | None
    sides: tuple[tuple[str, ...], tuple[str, ...]]
