"""Plain tables and the precision map, for terminals of any width."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..resolver.resolution import Resolution, Resolved

_COLOURS = {
    "bf16": "bright_black",
    "fp8": "yellow",
    "fp8_pc_pt": "yellow",
    "fp8_block": "bright_yellow",
    "mxfp8": "bright_yellow",
    "nvfp4": "green",
    "w4a16_nvfp4": "cyan",
    "mxfp4": "magenta",
    "int4_wo": "blue",
}
_LETTERS = {
    "bf16": ".",
    "fp8": "8",
    "fp8_pc_pt": "c",
    "fp8_block": "b",
    "mxfp8": "x",
    "nvfp4": "4",
    "w4a16_nvfp4": "w",
    "mxfp4": "m",
    "int4_wo": "i",
}


def colour(text: str, algorithm: str) -> str:
    """Colour a word by its algorithm; click drops it where output is no terminal."""
    return click.style(text, fg=_COLOURS.get(algorithm, "bright_red"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Align columns; ``right`` lists the columns of numbers. Cells must be printable: escape strangers' names first."""
    cells = [list(row) for row in [list(head), *rows]]
    widths = [max(len(_bare(r[i])) for r in cells) for i in range(len(head))]
    lines = []
    for row in cells:
        parts = []
        for i, cell in enumerate(row):
            pad = " " * (widths[i] - len(_bare(cell)))
            parts.append(pad + cell if i in right else cell + pad)
        lines.append("  " + "  ".join(parts).rstrip())
    return "\n".join(lines)


def _bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def fold(row: Resolved) -> str:
    """Name a module without its layer: what stands behind the layer index."""
    path = row.module.path
    if row.module.layer >= 0:
        return path.partition(f".{row.module.layer}.")[2] or path
    return path


def grouped(resolution: Resolution, everything: bool = False) -> list[tuple[str, int, Resolved]]:
    """Fold modules that share name, algorithm, lane and rule; vision and draft stacks only with ``everything``."""
    counts: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], Resolved] = {}
    for row in resolution.rows:
        if not everything and not row.module.priced and row.module.stack not in ("", "layers"):
            continue
        key = (fold(row), row.answer.algorithm, row.lane.lane, row.answer.rule)
        counts[key] += 1
        first.setdefault(key, row)
    return [(key[0], counts[key], first[key]) for key in first]


def heat_map(resolution: Resolution, width: int = 100) -> str:
    """Draw layers (left to right) against modules (top to bottom), one letter a cell."""
    stacks = [s.name for s in resolution.family.stacks if s.priced and s.count is not None]
    out: list[str] = []
    used: set[str] = set()
    for stack in stacks:
        rows = [r for r in resolution.rows if r.module.stack == stack]
        layers = max((r.module.layer for r in rows), default=-1) + 1
        if not layers:
            continue
        names = list(dict.fromkeys(fold(r) for r in rows))
        grid = {(fold(r), r.module.layer): r.answer.algorithm for r in rows}
        label = max(len(n) for n in names)
        step = max(1, width - label - 4)
        for start in range(0, layers, step):
            stop = min(layers, start + step)
            ruler = "".join(str(i)[-2:].ljust(10) if i % 10 == 0 else "" for i in range(start, stop))
            out.append(
                f"  {'layer'.rjust(label)}  {' ' * ((10 - start % 10) % 10) if start % 10 else ''}{ruler}".rstrip()
            )
            for name in names:
                cells = [grid.get((name, i), "") for i in range(start, stop)]
                used.update(c for c in cells if c)
                out.append(
                    f"  {name.rjust(label)}  " + "".join(colour(_LETTERS.get(c, "?"), c) if c else " " for c in cells)
                )
    key = "   ".join(colour(f"{_LETTERS.get(a, '?')} {a}", a) for a in sorted(used))
    return "\n".join([*out, "", "  " + key])
