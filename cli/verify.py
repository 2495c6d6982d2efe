"""``bitlane verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import FINDINGS
from ..resolver.api import resolve
from ..resolver.checkpoint import open_checkpoint
from ..resolver.tensors import read_stored
from ..resolver.verify import verify
from . import options, printable

if TYPE_CHECKING:
    from ..resolver.checkpoint import Checkpoint
    from ..resolver.contradictions import Finding, Verification
    from ..resolver.tensors import Tensors

_SHOWN = 3


@click.command("verify")
@options.checkpoint
@options.target
@click.option(
    "--tensors",
    "where",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Folder, safetensors file or weight index to read instead of the checkpoint's own folder.",
)
@click.option("--hub", is_flag=True, help="CHECKPOINT is a repository of the model hub: read headers there, by ranges.")
@click.option("--revision", default="main", show_default=True, help="Branch, tag or commit of the repository.")
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    checkpoint: str,
    rules: tuple[Path, ...],
    models: tuple[Path, ...],
    loader: str,
    system: str,
    where: Path | None,
    hub: bool,
    revision: str,
    as_json: bool,
) -> None:
    """Where the tensors that CHECKPOINT stores contradict the precision that a loader builds.

    Reads safetensors headers, or the weight index alone; never weights. Exit code 1 when something contradicts.
    """
    opened, stored = _read(checkpoint, models, where, hub, revision)
    found = verify(resolve(opened, loader, system, rules=rules, models=models), stored)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found.to_dict()).decode())
    else:
        show(found)
    if found.findings:
        context.exit(FINDINGS)


def _read(
    name: str, models: tuple[Path, ...], where: Path | None, hub: bool, revision: str
) -> tuple[Checkpoint, Tensors]:
    if hub:
        from ..resolver.hub import open_repository

        return open_repository(name, revision)
    opened = open_checkpoint(name, models)
    return opened, read_stored(where or opened.folder)


def show(found: Verification) -> None:
    """Print what contradicts, for people."""
    r, t = found.resolution, found.tensors
    what = f"{len(t):,} tensors of {len(t.files)} files" if t.files else f"{len(t):,} names of an index"
    click.echo(f"{printable(r.checkpoint.name)}   {r.loader} {r.version} on {r.system.name}   {what}")
    click.echo(f"{found.compared} of {len(r)} modules compared\n")
    for finding in found.findings:
        for line in _lines(finding):
            click.echo(line)
    for note in found.notes:
        click.echo(f"  note: {printable(note)}")
    if not found.findings:
        click.echo("  nothing contradicts" if found.compared else "  nothing was compared")


def _lines(finding: Finding) -> list[str]:
    lines = [f"  {click.style(finding.kind, fg='red')}[{finding.code}]: {printable(finding.message)}"]
    if finding.modules and finding.modules[0] not in finding.message:
        shown = ", ".join(finding.modules[:_SHOWN]) + (" ..." if len(finding.modules) > _SHOWN else "")
        lines.append(f"      {printable(shown)}")
    if finding.evidence:
        lines.append(f"      declared at {printable(', '.join(finding.evidence[:_SHOWN]))}")
    return lines
