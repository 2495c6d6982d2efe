"""``bitlane lookup``: one subcommand per measured table, its options named after the table's key columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import MISSING_DATA, UsageError
from ..perfcore.specs import SPECS, TEXT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..perfcore.specs import TableSpec
    from ..perfcore.store import Store

_MODES = click.Choice(["SILICON", "HYBRID", "SOL"], case_sensitive=False)


@click.group("lookup")
def command() -> None:
    """Ask one measured table, for one key or for a file of keys.

    Options are the table's key columns. A key column with a single value in the table may be left out. An answer says
    whether it is measured, interpolated, extrapolated, or taken from another version of the backend (transferred).
    """


def _subcommand(spec: TableSpec) -> click.Command:
    @click.pass_context
    def run(
        context: click.Context,
        /,
        queries: Path | None,
        output: Path | None,
        mode: str,
        perf_data: tuple[Path, ...],
        as_json: bool,
        **key: Any,
    ) -> None:
        asked = {name: value for name, value in key.items() if value is not None}
        store = _store(perf_data)
        if queries is not None:
            if asked or output is None:
                raise UsageError("BL527", "a file of questions takes -o and no key options", place="--queries")
            context.exit(_file(store, spec, queries, output, mode.upper()))
        _single(store, spec, asked, mode.upper(), as_json)

    params: list[click.Parameter] = [
        click.Option(
            [f"--{column.replace('_', '-')}", column], type=str if column in TEXT_COLUMNS else click.IntRange(0)
        )
        for column in (*spec.columns, *spec.redundant)
    ]
    path = click.Path(path_type=Path, dir_okay=False)
    params += [
        click.Option(["--queries"], type=path, help="Parquet file of questions: one column per key column."),
        click.Option(["-o", "--output"], type=path, help="Where the answered file goes."),
        click.Option(["--mode"], type=_MODES, default="SILICON", show_default=True, help="HYBRID: else the roofline."),
        click.Option(["--perf-data"], multiple=True, type=click.Path(path_type=Path), help="More table folders."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
    ]
    text = f"Ask the {spec.label} table: milliseconds by {', '.join(a.column for a in spec.axes if a)}."
    return click.Command(spec.name, params=params, callback=run, help=text, short_help=f"The {spec.label} table.")


def _store(folders: tuple[Path, ...]) -> Store:
    from .. import paths
    from ..perfcore.store import Store

    return Store([paths.PERF_DATA, *folders])


def _file(store: Store, spec: TableSpec, queries: Path, output: Path, mode: Any) -> int:
    from ..perfcore.lookup import ask_file

    asked, lost = ask_file(store, spec.name, queries, output, mode=mode)
    click.echo(f"{asked:,} answers in {output}" + (f", {lost:,} missing" if lost else ""), err=True)
    return MISSING_DATA if lost else 0


def _single(store: Store, spec: TableSpec, asked: dict[str, Any], mode: Any, as_json: bool) -> None:
    from ..perfcore.lookup import NAMES, NOT_FOUND, ask, complete, missing_error
    from ..resolver.systems import system

    if "system" in asked:
        asked["system"] = system(asked["system"]).name
    asked = complete(store, spec.name, asked)
    answers = ask(store, spec.name, {name: [value] for name, value in asked.items()}, mode=mode)
    if answers.source[0] == NOT_FOUND:
        raise missing_error(store, spec.name, asked)
    source = NAMES[int(answers.source[0])]
    origin: dict[str, Any] = {name: asked[name] for name in ("system", "backend")}
    origin |= {"version": answers.version[0]} if answers.version[0] else {}
    origin |= {"kernel": answers.kernel[0]} if answers.kernel[0] else {}
    low, high = float(answers.low[0]), float(answers.high[0])
    if as_json:
        import json

        click.echo(
            json.dumps({
                "schema": "bitlane.lookup/1", "table": spec.name, "key": asked, "predicted_ms": float(answers.ms[0]),
                "source": source, "origin": origin, "band": [low, high],
            })
        )  # fmt: skip
        return
    click.echo(f"{answers.ms[0]:.6g} ms  {source}  [{low:.4g}, {high:.4g}]  {' '.join(map(str, origin.values()))}")


def _register(add: Callable[[click.Command], None]) -> None:
    for spec in SPECS.values():
        add(_subcommand(spec))


_register(command.add_command)
