"""Base grids and lanes as they stand in ``collector/cases``."""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from ..errors import UsageError
from . import casefile

TABLES: Final = ("gemm", "moe")


class CpuGrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The smaller grid for the processor of this machine."""

    tokens: tuple[int, ...]
    widths: tuple[int, ...] = ()


class GemmGrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grid of linear layers.

    Attributes
    ----------
    tokens
        Rows of the input, m.
    widths
        Values of n and of k.
    left_out
        Pairs (n, k) that are not measured.
    """

    tokens: tuple[int, ...]
    widths: tuple[int, ...]
    left_out: tuple[tuple[int, int], ...] = ()
    cpu: CpuGrid | None = None

    @property
    def sites(self) -> tuple[tuple[int, int], ...]:
        """All pairs (n, k) of the base grid."""
        return tuple((n, k) for n in self.widths for k in self.widths if (n, k) not in self.left_out)


class MoeGrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grid of routed experts.

    Attributes
    ----------
    tokens
        Tokens entering the layer, before routing.
    routings
        How tokens are spread over experts.
    topologies
        Pairs (tensor parallel, expert parallel).
    """

    tokens: tuple[int, ...]
    routings: tuple[str, ...]
    topologies: tuple[tuple[int, int], ...]
    cpu: CpuGrid | None = None


class Grids(msgspec.Struct, frozen=True):
    """Both grids; derive another with ``msgspec.structs.replace``."""

    gemm: GemmGrid
    moe: MoeGrid

    def for_cpu(self) -> Grids:
        """The processor's grid in place of the GPU's."""
        small_gemm, small_moe = self.gemm.cpu, self.moe.cpu
        if small_gemm is None or small_moe is None:
            return self
        gemm = msgspec.structs.replace(self.gemm, tokens=small_gemm.tokens, widths=small_gemm.widths, left_out=())
        return Grids(gemm, msgspec.structs.replace(self.moe, tokens=small_moe.tokens))


@functools.cache
def packaged() -> Grids:
    """The grids of ``gemm.yaml`` and ``moe.yaml``."""
    return Grids(casefile.load("gemm.yaml", GemmGrid), casefile.load("moe.yaml", MoeGrid))


class Lane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One lane of ``lanes.yaml``; the file explains the fields."""

    label: str
    tables: tuple[str, ...]
    min_sm: int = 0
    below_sm: int | None = None
    algorithm: str | None = None
    weight_only: bool = False
    copies: int = 6

    def refusal(self, sm: int | None) -> str:
        """Why a GPU of compute capability `sm` cannot run the lane; empty if it can, or is no GPU."""
        if sm is None:
            return ""
        if sm < self.min_sm:
            return f"needs SM{self.min_sm}, this is SM{sm}"
        if self.below_sm is not None and sm >= self.below_sm:
            return f"exists below SM{self.below_sm} only, this is SM{sm}"
        return ""


@functools.cache
def lanes() -> dict[str, Lane]:
    """All lanes by name."""
    return casefile.load("lanes.yaml", dict[str, Lane])


def lane(name: str) -> Lane:
    """A lane by its name, or by its table label where that is unambiguous.

    Raises
    ------
    UsageError
        ``BL722`` for an unknown name.
    """
    known = lanes()
    if name in known:
        return known[name]
    raise UsageError(
        "BL722", f"the collector has no lane `{name}`", place="--lane", help=f"it has {', '.join(sorted(known))}"
    )


def lane_name(text: str) -> str:
    """Name of a lane given by name or table label (``fp8`` is the label of ``fp8_dynamic``)."""
    by_label = {entry.label: name for name, entry in lanes().items()}
    name = text if text in lanes() else by_label.get(text, text)
    lane(name)
    return name
