"""``bitlane perf-data check`` and ``bitlane perf-data diff``; ``cli.perf_data`` mounts both."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import FINDINGS
from ..paths import PERF_DATA

if TYPE_CHECKING:
    from rich.console import Console

    from ..collector.diff import TableDiff


def _console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


@click.command("check")
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def check_command(context: click.Context, folder: Path | None, as_json: bool) -> None:
    """Check that measured tables are sound: provenance, hashes, keys, values, kernels.

    FOLDER holds the tables; without it the packaged ones are checked. Exit code 1 when something is wrong.
    """
    from ..collector.check import check

    report = check(folder or PERF_DATA)
    if as_json:
        found = [dataclasses.asdict(finding) for finding in report.findings]
        click.echo(
            json.dumps(
                {"schema": "bitlane.perf_check/1", "sound": report.sound, "tables": report.tables, "findings": found},
                indent=1,
            )
        )
    else:
        for finding in report.findings:
            click.echo(f"{finding.severity}[{finding.rule}] {finding.table or folder}: {finding.message}")
        rows = sum(report.tables.values())
        errors = sum(finding.severity == "error" for finding in report.findings)
        click.echo(f"{len(report.tables)} tables, {rows:,} rows: {f'{errors} errors' if errors else 'sound'}")
    if not report.sound:
        context.exit(FINDINGS)


@click.command("diff")
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path, exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def diff_command(context: click.Context, old: Path, new: Path, as_json: bool) -> None:
    """Show the rows that were added, removed or changed between two folders of tables, by key.

    OLD and NEW are folders, or two parquet files of one table. Exit code 1 when they differ.
    """
    from ..collector.diff import diff

    found = diff(old, new)
    if as_json:
        tables = [dataclasses.asdict(entry) for entry in found]
        click.echo(json.dumps({"schema": "bitlane.perf_diff/1", "tables": tables}, indent=1))
    elif not found:
        click.echo("no difference")
    else:
        _print_diff(found)
    if found:
        context.exit(FINDINGS)


def _print_diff(found: list[TableDiff]) -> None:
    from rich.table import Table

    console = _console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("table", "system", "backend", "lane"):
        table.add_column(name)
    for name in ("added", "removed", "changed", "same", "median", "worst"):
        table.add_column(name, justify="right")
    for entry in found:
        for text in entry.schema:
            console.print(f"{entry.table}: {text}", markup=False)
        for group in entry.groups:
            table.add_row(
                entry.table,
                group.system,
                f"{group.backend} {group.backend_version}",
                group.lane,
                *(f"{count:,}" if count else "-" for count in (group.added, group.removed, group.changed, group.same)),
                _percent(group.median_percent),
                _percent(group.worst_percent),
            )
    if table.row_count:
        console.print(table)
    for entry in found:
        for change in entry.examples[:5]:
            console.print(f"{entry.table}: {_change(change)}", markup=False)


def _percent(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:+.1f} %"


def _change(change: Any) -> str:
    key = " ".join(f"{name}={value}" for name, value in change.key.items() if name != "op_kind")
    kernel = "" if change.old_kernel == change.new_kernel else f", {change.old_kernel} -> {change.new_kernel}"
    return f"{key}: {change.old_ms:.6g} -> {change.new_ms:.6g} ms{kernel}"
