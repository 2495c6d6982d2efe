"""``bitlane perf-data``: check, compare and audit measured tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import FINDINGS
from .perf_data_checks import check_command, diff_command

if TYPE_CHECKING:
    from ..perfcore.audit import TableAudit


# Anomalies shown per table.
SHOWN = 12


@click.group("perf-data")
def command() -> None:
    """Check, compare and audit measured tables."""


@command.command("audit")
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Only this table; may be repeated.")
@click.option("--perf-data", multiple=True, type=click.Path(path_type=Path), metavar="DIR", help="More table folders.")
@click.option("--exact", is_flag=True, help="Also look every row up and compare bit for bit.")
@click.option("--all", "everything", is_flag=True, help="List every anomaly, not the largest of each table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def audit_command(
    context: click.Context,
    tables: tuple[str, ...],
    perf_data: tuple[Path, ...],
    exact: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Report what the tables hold, how well they predict themselves, and what looks wrong.

    Errors are leave-one-out: each row predicted from its neighbours. Anomalies are reported, never corrected. Exit
    code 1 when a row does not come back exactly.
    """
    from .. import paths
    from ..perfcore.audit import audit
    from ..perfcore.store import Store

    found = audit(Store([paths.PERF_DATA, *perf_data]), tables, exact=exact)
    if as_json:
        import dataclasses
        import json

        click.echo(
            json.dumps(
                {"schema": "bitlane.perf_audit/1", "tables": [dataclasses.asdict(one) for one in found]}, indent=1
            )
        )
    else:
        for one in found:
            _show(one, None if everything else SHOWN)
    if any(one.inexact > 0 for one in found):
        context.exit(FINDINGS)


def _show(one: TableAudit, limit: int | None) -> None:
    from .render import table

    exact = "" if one.inexact < 0 else f", {one.inexact} not exact" if one.inexact else ", all exact"
    click.echo(click.style(f"{one.name}", bold=True) + f"   {one.rows:,} rows{exact}")
    cover = {name: (rows, slabs, holes) for name, rows, slabs, holes in one.coverage}
    lines: dict[tuple[str, ...], dict[str, str]] = {name: {} for name in cover}
    for line in one.errors:
        lines[line.group][line.method] = f"{100 * line.median:.1f} / {100 * line.p95:.1f}"
    methods = [m for m in ("along x", "gap", "along a0", "along a1") if any(m in line for line in lines.values())]
    rows = [
        [" ".join(name), f"{cover[name][0]:,}", f"{cover[name][1]:,}", f"{100 * cover[name][2]:.1f} %"]
        + [line.get(method, "-") for method in methods]
        for name, line in lines.items()
    ]
    head = ["group", "rows", "slabs", "filled", *(f"{method}, %" for method in methods)]
    click.echo(table(head, rows, frozenset(range(1, len(head)))))
    ranked = sorted(one.anomalies, key=lambda anomaly: -anomaly.share)
    for anomaly in ranked[:limit]:
        where = " ".join(anomaly.group)
        click.echo(f"  {anomaly.count:6d} ({100 * anomaly.share:4.1f} %)  {where}: {anomaly.kind}; {anomaly.example}")
    if len(ranked) > len(ranked[:limit]):
        click.echo(f"  ... {len(ranked) - len(ranked[:limit]):,} more kinds of anomaly (--all)")
    click.echo()


command.add_command(check_command)
command.add_command(diff_command)
