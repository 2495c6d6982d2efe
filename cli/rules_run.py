"""``bitlane rules test``, ``coverage``, ``diff`` and ``list``: what runs rule files on checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import FINDINGS, UsageError
from . import printable
from .render import colour, table
from .rules_files import expand, paths_argument, rules_option, shown

if TYPE_CHECKING:
    from ..resolver.checkpoint import Checkpoint
    from ..resolver.coverage import Count
    from ..resolver.rulediff import Change, Difference, Side
    from ..resolver.ruletest import Failure, Result
    from ..rules.library import Library, RuleFile

_DIR = click.Path(path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def library_of(paths: tuple[Path, ...], rules: tuple[Path, ...]) -> tuple[Library, list[RuleFile]]:
    """Return the rules in force with PATHS laid over them, and the files that PATHS name (all without any)."""
    from ..resolver.check import laid_over, with_siblings
    from ..resolver.inforce import in_force
    from ..rules.library import opened

    library = in_force(rules)
    if not paths:
        return library, list(library.files)
    files = [opened(p, shown(p)) for p in expand(paths)]
    return laid_over(files, with_siblings([f.path for f in files], library)), files


@click.command("test", short_help="Run the tests that stand in rule files.")
@paths_argument
@rules_option
@click.option("--only", default="", metavar="TEXT", help="Run the tests whose name contains TEXT.")
@json_option
@click.pass_context
def test_command(
    context: click.Context, paths: tuple[Path, ...], rules: tuple[Path, ...], only: str, as_json: bool
) -> None:
    """Run the `test` blocks of rule files: PATHS, else all that are in force.

    Exit code 1 when a test fails, when a `todo` test passes, and when there is no test at all.
    """
    from ..resolver.ruletest import run_tests

    library, files = library_of(paths, rules)
    results = run_tests(files, library, only)
    failed = [r for r in results if not r.passed]
    if as_json:
        document = {"schema": "bitlane.rules_test/1", "failed": len(failed), "tests": [r.to_dict() for r in results]}
        click.echo(json.dumps(document, indent=1))
    else:
        for result in failed:
            _show_failed(result)
        todo = sum(r.todo for r in results)
        checked = sum(r.checked for r in results)
        counts = f"{_many(len(results), 'test')}, {_many(checked, 'expectation')}: {len(failed) or 'none'} failed"
        click.echo(counts + (f", {todo} todo" if todo else ""))
        if not results:
            click.echo("no test was found; a rule without a test is a guess")
    if failed or not results:
        context.exit(FINDINGS)


def _show_failed(result: Result) -> None:
    if result.todo:
        click.echo(f"{click.style('PASSED', fg='red')} {printable(result.name)}  {result.place}")
        click.echo("  it is marked `todo` and passes: remove the word\n")
        return
    click.echo(f"{click.style('FAILED', fg='red')} {printable(result.name)}  {result.place}")
    for failure in result.failures:
        _show_failure(failure)
    click.echo()


def _show_failure(failure: Failure) -> None:
    click.echo(f"  {printable(failure.subject)}  ({failure.place})")
    click.echo(f"    expected  {printable(failure.expected)}")
    click.echo(f"    actual    {printable(failure.actual)}")
    if failure.chain:
        rows = [[("✓ " if t.won else "✗ ") + printable(t.rule), printable(t.note), t.place] for t in failure.chain]
        click.echo("\n".join("    " + line for line in table(["rule", "what happened", "where"], rows).split("\n")))


@click.command("coverage", short_help="Which rules decide anything over a corpus.")
@rules_option
@click.option(
    "--corpus", multiple=True, type=_DIR, metavar="DIR", help="More checkpoints: folders that hold config.json files."
)
@click.option("--loader", "loaders", multiple=True, metavar="NAME", help="Count this loader's rules alone; repeatable.")
@click.option(
    "--fail-under", type=click.FloatRange(0, 100), default=0.0, metavar="PERCENT", help="Exit with 1 below this share."
)
@json_option
@click.pass_context
def coverage_command(
    context: click.Context,
    rules: tuple[Path, ...],
    corpus: tuple[Path, ...],
    loaders: tuple[str, ...],
    fail_under: float,
    as_json: bool,
) -> None:
    """Count what every rule decides over the packaged checkpoints, --corpus and the rules' own tests.

    Lists rules that never decided anything, and rules that decided whatever they were asked.
    """
    from ..resolver.coverage import corpus as checkpoints
    from ..resolver.coverage import measure
    from ..resolver.inforce import in_force

    library = in_force(rules)
    found = measure(library, checkpoints(corpus), loaders)
    if as_json:
        document = {
            "schema": "bitlane.rules_coverage/1",
            "checkpoints": found.checkpoints,
            "percent": round(found.percent, 2),
            "rules": [c.to_dict() for c in found.counts.values()],
            "never_fired": [c.place for c in found.never_fired()],
            "never_lost": [c.place for c in found.never_lost()],
            "skipped": found.skipped,
        }
        click.echo(json.dumps(document, indent=1))
    else:
        _show_counts("never decided anything", found.never_fired())
        _show_counts("decided whatever they were asked", found.never_lost())
        fired = len(found.counts) - len(found.never_fired())
        click.echo(
            f"{fired} of {len(found.counts)} rules ({found.percent:.1f} %) decided something over"
            f" {_many(found.checkpoints, 'checkpoint')}, {_many(found.questions, 'question')};"
            f" {len(found.skipped)} were skipped"
        )
    if found.percent < fail_under:
        click.echo(f"coverage is below {fail_under:g} %", err=True)
        context.exit(FINDINGS)


def _show_counts(title: str, counts: list[Count]) -> None:
    if counts:
        click.echo(f"{len(counts)} {title}:")
        rows = [[c.place, c.what, printable(c.rule[:90]), str(c.fired), str(c.lost)] for c in counts]
        click.echo(table(["where", "", "rule", "decided", "asked in vain"], rows, frozenset({3, 4})) + "\n")


@click.command("diff", short_help="Which modules answer differently under two versions or folders of rules.")
@click.argument("old")
@click.argument("new")
@click.argument("checkpoints", nargs=-1)
@rules_option
@click.option(
    "--loader", default="", metavar="NAME[@VERSION]", help="The loader, where OLD and NEW are folders of rules."
)
@click.option(
    "--system", default="gb200", show_default=True, metavar="NAME", help="GPU system whose lanes are compared."
)
@click.option("--models", multiple=True, type=_DIR, metavar="DIR", help="More folders of checkpoints.")
@click.option("--rules-too", is_flag=True, help="List also modules of which only the deciding rule changes.")
@json_option
@click.pass_context
def diff_command(
    context: click.Context,
    old: str,
    new: str,
    checkpoints: tuple[str, ...],
    rules: tuple[Path, ...],
    loader: str,
    system: str,
    models: tuple[Path, ...],
    rules_too: bool,
    as_json: bool,
) -> None:
    """List the modules whose answer changes from OLD to NEW, over CHECKPOINTS or all packaged ones.

    OLD and NEW are loaders with versions (vllm@0.30.0 vllm@0.32.0), or folders of rules for the loader of --loader.
    Exit code 1 when something changes.
    """
    from ..resolver.checkpoint import open_checkpoint
    from ..resolver.coverage import corpus
    from ..resolver.rulediff import difference

    sides = [_side(word, loader, rules) for word in (old, new)]
    given: Any = [open_checkpoint(c, models) for c in checkpoints] if checkpoints else corpus((), models)
    found = difference(sides[0], sides[1], _quantized(given, bool(checkpoints)), system, rules_too)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    else:
        _show_difference(found)
    if found:
        context.exit(FINDINGS)


def _quantized(given: Any, all_of_them: bool) -> list[Checkpoint]:
    """Leave out packaged checkpoints that declare nothing: no rule of a loader decides them."""
    return [c for c in given if all_of_them or len(c.files) > 1 or "quant" in " ".join(map(str, c.config))]


def _side(word: str, loader: str, rules: tuple[Path, ...]) -> Side:
    from ..resolver.inforce import in_force
    from ..resolver.rulediff import Side

    folder = Path(word)
    if folder.is_dir():
        if not loader:
            raise UsageError("BL229", "folders of rules need a loader", place=word, help="add `--loader vllm@0.32.0`")
        return Side(in_force((folder, *rules)), loader)
    return Side(in_force(rules), word)


def _show_difference(found: Difference) -> None:
    from ..resolver.rulediff import spans

    current = ""
    for change in found.changes:
        if change.checkpoint != current:
            current = change.checkpoint
            click.echo(click.style(current, bold=True))
        where = f"  layers {spans(change.layers)}" if change.layers else ""
        click.echo(f"  {printable(change.module)}{where}")
        click.echo(f"    {_told(change, 'old')}")
        click.echo(f"    {_told(change, 'new')}")
    for name, old, new in found.verdicts:
        click.echo(click.style(name, bold=True))
        click.echo(f"  - {printable(old)}\n  + {printable(new)}")
    modules = sum(len(c.layers) or 1 for c in found.changes)
    click.echo(
        f"{_many(found.compared, 'checkpoint')}, {_many(found.modules, 'module')}: {modules:,} changed"
        + (f"; refused by one side alone: {len(found.verdicts)}" if found.verdicts else "")
        + (f"; refused by both: {len(found.skipped)}" if found.skipped else "")
    )


def _told(change: Change, which: str) -> str:
    side = change.old if which == "old" else change.new
    mark = "-" if which == "old" else "+"
    if side is None:
        return f"{mark} no such module"
    algorithm, activations, lane, rule, place = side
    return f"{mark} {colour(algorithm, algorithm)} {activations}, lane {lane}, by {printable(rule)}  {place}"


@click.command("list", short_help="Which rule files are in force, and from where.")
@rules_option
@json_option
def list_command(rules: tuple[Path, ...], as_json: bool) -> None:
    """List the rule files in force, and where they lie: what is laid over comes first."""
    from ..rules.library import find

    library = find(rules)
    rows = [_row(f, "extends" if f.extends else "in force", library) for f in library.files]
    rows += [_row(f, "replaced", library) for f in library.shadowed]
    if as_json:
        keys = ("kind", "name", "state", "describes", "path")
        click.echo(
            json.dumps({"schema": "bitlane.rules_list/1", "files": [dict(zip(keys, r, strict=True)) for r in rows]})
        )
        return
    click.echo(table(["kind", "name", "state", "describes", "where"], [[printable(c) for c in r] for r in rows]))


def _row(file: RuleFile, state: str, library: Library) -> list[str]:
    describes = ", ".join(file.architectures)
    if file.kind == "loader" and not file.extends and state != "replaced":
        describes = ", ".join(library.loader(file.name)[0].versions)
    return [file.kind, file.name, state, describes if len(describes) <= 60 else describes[:57] + "...", str(file.path)]
