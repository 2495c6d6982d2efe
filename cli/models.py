"""``bitlane models``."""

from __future__ import annotations

from pathlib import Path

import click

from ..resolver.checkpoint import packaged


@click.command("models")
@click.argument("part", default="")
@click.option(
    "--models",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="More folders of org--name checkpoints.",
)
def command(part: str, models: tuple[Path, ...]) -> None:
    """List the packaged checkpoints whose id contains PART."""
    for name in packaged(models):
        if part.lower() in name.lower():
            click.echo(name)
