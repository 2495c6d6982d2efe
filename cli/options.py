"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def checkpoint(function: F) -> F:
    """Take the CHECKPOINT argument and where rules and models are looked for."""
    for option in (
        click.option(
            "--models",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="More folders of org--name checkpoints.",
        ),
        click.option(
            "--rules",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Rule files that overlay the packaged ones.",
        ),
    ):
        function = option(function)
    return click.argument("checkpoint")(function)


def target(function: F) -> F:
    """Take the loader and the system."""
    function = click.option("--system", required=True, metavar="NAME", help="GPU system, such as gb200 or h200.")(
        function
    )
    return click.option(
        "--loader", required=True, metavar="NAME[@VERSION]", help="Engine and version, such as vllm@0.31.0."
    )(function)


def modes(function: F) -> F:
    """Take explicit algorithms that override the checkpoint."""
    function = click.option(
        "--moe-mode", metavar="ALGORITHM", help="Override: every routed-experts module runs at this algorithm."
    )(function)
    return click.option(
        "--gemm-mode", metavar="ALGORITHM", help="Override: every quantizable linear module runs at this algorithm."
    )(function)


def parallel(function: F) -> F:
    """Take the parallel sizes."""
    for option in (
        click.option(
            "--moe-tp",
            type=click.IntRange(0),
            default=0,
            help="Tensor split of the experts; by default what --ep leaves.",
        ),
        click.option("--dp", type=click.IntRange(1), default=1, help="Attention data parallel size."),
        click.option("--ep", type=click.IntRange(1), default=1, help="Expert parallel size."),
        click.option("--tp", type=click.IntRange(1), default=1, help="Tensor parallel size."),
    ):
        function = option(function)
    return function


as_json = click.option("--json", "as_json", is_flag=True, help="Print the JSON contract.")


def chosen_modes(gemm_mode: str | None, moe_mode: str | None) -> dict[str, str]:
    """Collect the explicit modes that were given."""
    return {k: v for k, v in (("gemm", gemm_mode), ("moe", moe_mode)) if v}
