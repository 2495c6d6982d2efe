"""Algorithms that the user gives for kinds of modules: they override the checkpoint and are recorded as given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from .answers import Answer, activations
from .resolution import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .modules import Module
    from .resolution import Resolved

MODES: Final = {"gemm": ("linear",), "moe": ("experts",), "lm_head": ("lm_head",)}
RULE_AT: Final = "command line"
_ACTIVATIONS: Final = ("", "static", "dynamic", "none")


def checked(modes: Mapping[str, str]) -> dict[str, str]:
    """Return modes by their names.

    Raises
    ------
    UsageError
        BL224: an unknown mode, or one without an algorithm.
    """
    for key, word in modes.items():
        if key not in MODES:
            raise UsageError("BL224", f"unknown mode `{key}`", place="modes", help="gemm, moe or lm_head")
        algorithm, _, acts = word.partition(":")
        if not algorithm or acts not in _ACTIVATIONS:
            raise UsageError(
                "BL224",
                f"`{word}` is not ALGORITHM[:ACTIVATIONS]",
                place=f"--{key}-mode",
                help="such as nvfp4, or fp8:static",
            )
    return dict(modes)


def override(module: Module, modes: Mapping[str, str]) -> Answer | None:
    """Apply an explicit mode; modules that engines never quantize keep their precision."""
    if not modes or not module.configured:
        return None
    for mode, kinds in MODES.items():
        if mode in modes and module.kind in kinds:
            algorithm, _, acts = modes[mode].partition(":")
            return Answer(
                algorithm, acts or activations(algorithm), f"explicit --{mode}-mode", RULE_AT, (), "given by the user"
            )
    return None


def idle(modes: Mapping[str, str], rows: Sequence[Resolved]) -> list[Problem]:
    """Name the modes that no module of the model takes."""
    met = {r.module.kind for r in rows if r.answer.rule_at == RULE_AT}
    return [
        Problem("BL304", f"--{mode}-mode {word} changes nothing: the model has no such modules that can be quantized")
        for mode, word in modes.items()
        if not met & set(MODES[mode])
    ]
