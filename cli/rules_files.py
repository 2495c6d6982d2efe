"""``bitlane rules check``, ``fmt`` and ``explain``: what works on the text of rule files."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import FINDINGS, INVALID_RULES, RuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..grammar.diagnostics import Diagnostic
    from ..resolver.check import Source

STDIN = "-"
_STYLES = {"error": "red", "warning": "yellow", "place": "blue", "help": "cyan"}
rules_option = click.option(
    "--rules",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Rule files that are laid over the packaged ones.",
)
paths_argument = click.argument("paths", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))


def style(text: str, kind: str) -> str:
    """Colour a part of a diagnostic; click drops it where output is no terminal."""
    return click.style(text, fg=_STYLES.get(kind), bold=kind in ("error", "warning"))


def expand(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield rule files, each once: files as they are, folders for every ``*.rules`` in them, sorted."""
    seen: set[str] = set()
    for path in _expanded(paths):
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            yield path


def _expanded(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob("*.rules"))
            if not found:
                raise UsageError(
                    "BL221", "the folder holds no `*.rules` file", place=str(path), help="name another one"
                )
            yield from found
        elif str(path) == STDIN or os.path.lexists(path):
            yield path
        else:
            raise UsageError("BL221", "no such file or folder", place=str(path), help="check the path")


def shown(path: Path) -> str:
    """Return a path as a reader finds it: relative where that is shorter."""
    try:
        return Path(os.path.abspath(path)).relative_to(Path.cwd()).as_posix()  # noqa: PTH100 - links keep their names
    except ValueError:
        return str(path)


def _read(path: Path) -> str | bytes | None:
    return sys.stdin.buffer.read() if str(path) == STDIN else None


def _sources(paths: tuple[Path, ...], rules: tuple[Path, ...], stdin_name: str) -> list[Source]:
    from .. import paths as places
    from ..resolver.check import Source
    from ..rules.library import folders_in_force

    if not paths:
        paths = tuple(root for root in folders_in_force(rules) if root != places.RULES) or (places.RULES,)
    return [
        Source(stdin_name if str(p) == STDIN else shown(p), Path(stdin_name) if str(p) == STDIN else p, _read(p))
        for p in expand(paths)
    ]


def tell(found: list[Diagnostic], texts: dict[str, str], err: bool = False) -> None:
    """Print diagnostics for people; the renderer has replaced what cannot be printed."""
    from ..grammar.render import pretty

    for diagnostic in found:
        click.echo(pretty(diagnostic, texts.get(diagnostic.file), style) + "\n", err=err)


@click.command("check", short_help="What is wrong with rule files: code, place, caret, and a way out.")
@paths_argument
@rules_option
@click.option(
    "--models", multiple=True, type=click.Path(path_type=Path), metavar="DIR", help="More folders of checkpoints."
)
@click.option("--format", "format_", type=click.Choice(["pretty", "json", "github", "sarif"]), default="pretty")
@click.option("--strict", is_flag=True, help="Exit with 1 when there are warnings.")
@click.option("--stdin-name", default="stdin.rules", metavar="NAME", help="What to call the file that is given as `-`.")
@click.pass_context
def check_command(
    context: click.Context,
    paths: tuple[Path, ...],
    rules: tuple[Path, ...],
    models: tuple[Path, ...],
    format_: str,
    strict: bool,
    stdin_name: str,
) -> None:
    """Check rule files: PATHS, else those of --rules and BITLANE_RULES, else the packaged ones.

    Every file is checked together with the others in force. Exit code 3 when a file is unusable, 0 otherwise; with
    --strict 1 when there are warnings.
    """
    from ..grammar.parsing import MAX_ERRORS
    from ..grammar.render import render
    from ..resolver.check import check
    from ..rules.library import find_usable

    listed = _sources(paths, rules, stdin_name)
    report = check(listed, find_usable(rules), models)
    texts = {s.label: _text(s) for s in listed}
    if format_ == "pretty":
        tell(list(report.diagnostics), texts)
        files = f"{len(listed)} file{'s' if len(listed) != 1 else ''}"
        click.echo(f"{files} checked: {_counted(report.errors, 'error')}, {_counted(report.warnings, 'warning')}")
        for name in report.cut_short():
            click.echo(f"{name}: only the first {MAX_ERRORS} mistakes are told; there may be more")
    else:
        from .. import __version__

        text = render(format_, report.diagnostics, texts, report.files, __version__)
        if text:
            click.echo(text)
    if report.errors:
        context.exit(INVALID_RULES)
    if report.warnings and strict:
        context.exit(FINDINGS)


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _text(source: Source) -> str:
    if isinstance(source.text, str):
        return source.text
    try:
        data = source.text if source.text is not None else source.path.read_bytes()
    except OSError:
        return ""
    return data.decode("utf-8", "replace")


@click.command("fmt", short_help="Format rule files; comments stay, the meaning is checked.")
@paths_argument
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit with 1 when a file is not formatted.")
@click.option("--diff", "only_diff", is_flag=True, help="Write nothing; print what would change.")
@click.pass_context
def fmt_command(context: click.Context, paths: tuple[Path, ...], only_check: bool, only_diff: bool) -> None:
    """Format rule files in place: PATHS are files or folders; `-` formats standard input to standard output.

    Comments are kept, the meaning is checked to be the same, and formatting twice changes nothing.
    """
    from ..grammar.diagnostics import RuleSyntaxError
    from ..grammar.format import format_text

    if not paths:
        raise UsageError("BL229", "no file to format", place="PATHS", help="name rule files or folders")
    changed = same = 0
    broken = False
    for path in expand(paths):
        data = _read(path)
        try:
            before = (data if isinstance(data, bytes) else path.read_bytes()).decode("utf-8")
            after = format_text(before, shown(path))
        except OSError as error:
            raise RuleError(
                "BL105", f"cannot read the rule file: {error.strerror}", place=shown(path), help="check its place"
            ) from error
        except UnicodeDecodeError as error:
            raise RuleError(
                "BL105", "the rule file is not UTF-8", place=shown(path), help="save it as UTF-8"
            ) from error
        except RuleSyntaxError as error:
            broken = True
            tell(error.diagnostics, {shown(path): before}, err=True)
            continue
        changed, same = changed + (before != after), same + (before == after)
        _formatted(path, before, after, only_check, only_diff)
    if str(paths[0]) != STDIN:
        word = "would be formatted" if only_check or only_diff else "formatted"
        click.echo(f"{_counted(changed, 'file')} {word}, {same} unchanged", err=only_diff)
    if broken:
        context.exit(INVALID_RULES)
    if changed and only_check:
        context.exit(FINDINGS)


def _formatted(path: Path, before: str, after: str, only_check: bool, only_diff: bool) -> None:
    name = shown(path)
    if only_diff:
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), name, f"{name} (formatted)"
        )
        click.echo("".join(line if line.endswith("\n") else line + "\n" for line in lines), nl=False)
    elif str(path) == STDIN:
        if not only_check:
            click.echo(after, nl=False)
    elif before != after:
        click.echo(("would format " if only_check else "formatted ") + name)
        if not only_check:
            _replace(path, after)


def _replace(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new one; its permissions stay."""
    from ..cachedir import write_atomic

    real = Path(os.path.realpath(path))
    mode = real.stat().st_mode & 0o7777
    if not write_atomic(real, text.encode("utf-8")):
        raise UsageError("BL228", "cannot write the file", place=shown(path), help="check its permissions")
    real.chmod(mode)


@click.command("explain", short_help="What a code means; for rule files with a bad and a good example.")
@click.argument("code")
def explain_command(code: str) -> None:
    """Explain a CODE. For rule files (BL1xx): what it means, why it matters, a bad and a good example."""
    from ..error_codes import known
    from ..error_codes import page as line
    from ..grammar.codes import CODES, page
    from ..grammar.diagnostics import nearest

    name = code.upper()
    if name in CODES:
        click.echo(page(CODES[name]))
        return
    others = known()
    if name not in others:
        hint = nearest(name, [*CODES, *others]) or "docs/errors.md and docs/rule-errors.md list the codes"
        raise UsageError("BL229", f"`{code}` is no code of bitlane", place="CODE", help=hint)
    click.echo(line(name))
