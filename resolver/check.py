"""Checking rule files: parse errors of all of them first, then what each says against the others in force."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import RuleError
from ..grammar import tree as t
from ..grammar.diagnostics import Diagnostic, RuleSyntaxError, nearest
from ..grammar.findings import Findings, ordered
from ..grammar.lint import kind_of, lint
from ..grammar.parsing import MAX_ERRORS, parse
from ..rules.library import Library, RuleFile, opened, read_head
from .lint_family import FamilyLint
from .lint_lanes import lint_lanes
from .lint_loader import LoaderLint
from .lint_tests import lint_tests
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_TOP = t.Span(1, 1, 1, 2)
_FOLDERS = ("loaders", "families")


@dataclass(frozen=True, slots=True)
class Source:
    """One file to check.

    Attributes
    ----------
    label
        How diagnostics cite it.
    path
        Where it lies; for texts that lie nowhere, a name.
    text
        Its content, or None to read the file.
    """

    label: str
    path: Path
    text: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked and found."""

    files: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> int:
        """Number of errors."""
        return sum(d.severity == "error" for d in self.diagnostics)

    @property
    def warnings(self) -> int:
        """Number of warnings."""
        return len(self.diagnostics) - self.errors

    def cut_short(self) -> list[str]:
        """Files with so many syntax errors that the parser stopped looking for more."""
        counts = Counter(d.file for d in self.diagnostics if d.label)
        return [file for file, number in counts.items() if number >= MAX_ERRORS]


def sources(library: Library) -> list[Source]:
    """Every rule file in force, as something to check."""
    return [Source(f.label, f.path, f.text) for f in library.files]


def check(found: Sequence[Source], library: Library, models: tuple[Path, ...] = ()) -> Report:
    """Check rule files.

    Parameters
    ----------
    found
        The files. Those that are not in force yet are checked as if they, and the files beside them, were laid over
        the others.
    library
        The rule files in force.
    models
        More folders of checkpoints whose configs tell which keys exist.
    """
    diagnostics: list[Diagnostic] = []
    good: list[RuleFile] = []
    for source in found:
        file = _opened(source, diagnostics)
        if file is not None:
            good.append(file)
    merged = laid_over(good, with_siblings([s.path for s in found], library))
    vocabulary = Vocabulary(merged, models)
    for file in good:
        # What a file extends may lie in a file that does not parse.
        if not diagnostics or _whole(file, merged):
            diagnostics += _checked(file, vocabulary)
    return Report(tuple(s.label for s in found), tuple(ordered(diagnostics)))


def laid_over(files: Iterable[RuleFile], library: Library) -> Library:
    """Return the library with files before it; those that are in it already are replaced by what was given."""
    over = list(files)
    given = {os.path.realpath(f.path) for f in over}
    names = {(f.kind, f.name) for f in over if not f.extends}
    others = [f for f in library.files if os.path.realpath(f.path) not in given]
    kept = [f for f in others if f.extends or (f.kind, f.name) not in names]
    return Library((*over, *kept), library.shadowed)


def with_siblings(given: Iterable[Path], library: Library) -> Library:
    """Return the library with the rule files that lie beside some files: they are meant to be used together.

    Beside a file are those of its folder, and of the folders ``loaders`` and ``families`` there.
    """
    files = [path for path in given if path.is_file()]
    known = {os.path.realpath(f.path) for f in library.files} | {os.path.realpath(p) for p in files}
    homes = dict.fromkeys(p.parent.parent if p.parent.name in _FOLDERS else p.parent for p in files)
    beside: list[RuleFile] = []
    for home in homes:
        for path in sorted(p for pattern in ("", *_FOLDERS) for p in home.joinpath(pattern).glob("*.rules")):
            if os.path.realpath(path) in known:
                continue
            known.add(os.path.realpath(path))
            try:
                file = opened(path, str(path))
                file.tree()
            except RuleError:  # it is not the one that is asked about, and says so when it is
                continue
            beside.append(file)
    return laid_over(beside, library) if beside else library


def _opened(source: Source, diagnostics: list[Diagnostic]) -> RuleFile | None:
    """Read, decode and parse one file; report what hinders it."""
    try:
        data = source.path.read_bytes() if source.text is None else source.text
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except OSError as error:
        message = f"cannot read the rule file: {(error.strerror or 'unknown reason').lower()}"
        diagnostics.append(Diagnostic("BL105", message, source.label, _TOP, "check its place and permissions"))
        return None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        at = t.Span(line, 1, line, 2)
        diagnostics.append(Diagnostic("BL105", "the rule file is not UTF-8", source.label, at, "save it as UTF-8"))
        return None
    file = read_head(text, source.path, source.label, keep=True)
    try:
        if file is None:
            parse(text, source.label)
            return None
        file.tree()
    except RuleSyntaxError as error:
        diagnostics += error.diagnostics
        return None
    return file


def _whole(file: RuleFile, library: Library) -> bool:
    return not file.extends or any(f.kind == file.kind and f.name == file.name and not f.extends for f in library.files)


def _checked(file: RuleFile, vocabulary: Vocabulary) -> list[Diagnostic]:
    findings = Findings(file.source(), file.label)
    tree = file.tree()
    lint(tree, findings)
    lint_tests(file, vocabulary, findings)
    try:
        _in_context(file, tree, vocabulary, findings)
    except RuleSyntaxError as error:
        # Another file in force does not parse.
        return [*findings.settled(), *error.diagnostics]
    except RuleError as error:
        # Compiling stops at what the checks above have named already, or names it itself.
        if not any(d.severity == "error" for d in findings.found):
            findings.add(error.code, error.message, tree.head, help=error.help)
    return findings.settled()


def _in_context(file: RuleFile, tree: t.File, vocabulary: Vocabulary, findings: Findings) -> None:
    kind = kind_of(tree.head)
    if kind == "lanes":
        lint_lanes(file, vocabulary, findings)
        return
    base = next((f for f in vocabulary.library.files if f.kind == kind and f.name == file.name and not f.extends), None)
    if base is None:
        known = sorted(f.name for f in vocabulary.library.files if f.kind == kind and not f.extends)
        hint = nearest(file.name, known) or "known: " + ", ".join(known)
        findings.add("BL133", f"no {kind} `{file.name}` to extend", tree.head, file.name, hint)
        return
    if kind == "loader":
        LoaderLint(file, base, vocabulary, findings).run()
    else:
        FamilyLint(file, base, vocabulary, findings).run()
