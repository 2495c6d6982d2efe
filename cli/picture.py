"""The precision map as one SVG file, no script inside."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..errors import UsageError
from .render import fold

if TYPE_CHECKING:
    from pathlib import Path

    from ..resolver.resolution import Resolution

_FILL = {
    "bf16": "#c8ccd0",
    "fp8": "#f2c14e",
    "fp8_pc_pt": "#e6a93a",
    "fp8_block": "#d98e2b",
    "mxfp8": "#c97b2a",
    "nvfp4": "#3a9d5d",
    "w4a16_nvfp4": "#2a9fb0",
    "mxfp4": "#9b5fb5",
    "int4_wo": "#4a6fc3",
}
_CELL, _ROW, _LEFT, _TOP = 12, 18, 260, 48


def svg(answer: Resolution) -> str:
    """Draw layers against modules."""
    shown = {s.name for s in answer.family.stacks if s.priced}
    rows = [r for r in answer.rows if r.module.stack in shown and r.module.layer >= 0]
    names = list(dict.fromkeys(fold(r) for r in rows))
    layers = max((r.module.layer for r in rows), default=-1) + 1
    used = list(dict.fromkeys(r.answer.algorithm for r in rows))
    width, height = _LEFT + layers * _CELL + 20, _TOP + len(names) * _ROW + 60
    title = f"{answer.checkpoint.name}: {answer.loader} {answer.version} on {answer.system.name}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' font-family="monospace" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    parts += [f'<text x="{_LEFT + i * _CELL}" y="{_TOP - 6}" fill="#555">{i}</text>' for i in range(0, layers, 10)]
    y = {name: _TOP + n * _ROW for n, name in enumerate(names)}
    parts += [f'<text x="{_LEFT - 8}" y="{at + 13}" text-anchor="end">{escape(name)}</text>' for name, at in y.items()]
    for row in rows:
        x, at = _LEFT + row.module.layer * _CELL, y[fold(row)]
        fill = _FILL.get(row.answer.algorithm, "#d0455b")
        tip = escape(f"{row.module.path}: {row.answer.algorithm}, {row.answer.rule}")
        parts.append(
            f'<rect x="{x}" y="{at}" width="{_CELL - 1}" height="{_ROW - 2}" fill="{fill}"><title>{tip}</title></rect>'
        )
    x = _LEFT
    for algorithm in used:
        parts.append(
            f'<rect x="{x}" y="{height - 36}" width="14" height="14" fill="{_FILL.get(algorithm, "#d0455b")}"/>'
        )
        parts.append(f'<text x="{x + 19}" y="{height - 25}">{escape(algorithm)}</text>')
        x += 34 + 8 * len(algorithm)
    return "\n".join([*parts, "</svg>", ""])


def write_svg(answer: Resolution, path: Path) -> None:
    """Write the map to a file."""
    try:
        path.write_text(svg(answer), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "BL228", f"cannot write the picture: {error.strerror}", place=str(path), help="choose another place"
        ) from error
