"""Which rules decide anything: every rule counted over a corpus of checkpoints and the rules' own tests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import BitlaneError, CheckpointError, UsageError
from ..grammar import tree as t
from ..grammar.lines import statement
from .checkpoint import Checkpoint, from_dicts, from_folder, packaged
from .decide import Chooser
from .declarations import declarations
from .expressions import evaluate
from .family import compile_family
from .lanes import Lanes
from .loader import Rule, compile_loader
from .metadata import printable
from .reading import Reading, read
from .systems import known, system
from .vocabulary import Vocabulary
from .walk import modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..rules.library import Library
    from .loader import Loader, LoaderFormat

_GPU: Final = "gb200"
_OLDER_GPU: Final = "h200"
_BY: Final = re.compile(r"\(by (?P<place>.+:\d+)\)")
# These decide whenever they are asked; that they never lose says nothing.
_FINAL: Final = (t.Leave, t.Default, t.Refuse, t.Report, t.Format)


@dataclass(slots=True)
class Count:
    """How one rule fared.

    Attributes
    ----------
    place
        ``file:line``.
    rule
        As written.
    what
        ``step``, ``row`` (of algorithms or schemes), ``format``, ``check`` or ``lane``.
    fired, lost
        How many modules (checks and formats: checkpoints) it decided, and how many it was asked about in vain.
    final
        Whether it decides whenever it is asked.
    """

    place: str
    rule: str
    what: str
    fired: int = 0
    lost: int = 0
    final: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"at": self.place, "rule": self.rule, "what": self.what, "fired": self.fired, "lost": self.lost}


@dataclass(slots=True)
class Coverage:
    """The counts of every rule, by place; and what could not be read."""

    counts: dict[str, Count] = field(default_factory=dict)
    checkpoints: int = 0
    questions: int = 0
    skipped: list[str] = field(default_factory=list)

    def never_fired(self) -> list[Count]:
        """Rules that decided nothing."""
        return sorted((c for c in self.counts.values() if not c.fired), key=_by_line)

    def never_lost(self) -> list[Count]:
        """Rules that decided whatever they were asked, and more than once: maybe they are wider than meant."""
        found = (c for c in self.counts.values() if c.fired > 1 and not c.lost and not c.final and c.what == "step")
        return sorted(found, key=_by_line)

    @property
    def percent(self) -> float:
        """Share of the rules that decided something, in percent."""
        return 100.0 * (len(self.counts) - len(self.never_fired())) / max(1, len(self.counts))

    def add(self, place: str, fired: bool, times: int = 1) -> None:
        """Count one rule."""
        found = self.counts.get(place)
        if found is None:
            return
        if fired:
            found.fired += times
        else:
            found.lost += times


def _by_line(count: Count) -> tuple[str, int]:
    file, _, line = count.place.rpartition(":")
    return file, int(line)


def corpus(folders: Iterable[Path] = (), models: tuple[Path, ...] = ()) -> Iterator[Checkpoint]:
    """Yield the packaged checkpoints and those of folders (one checkpoint each, or many ``org--name`` in one)."""
    for name, folder in packaged(models).items():
        yield from_folder(folder, name)
    for folder in folders:
        if not folder.is_dir():
            raise UsageError("BL232", "the folder of models does not exist", place=str(folder), help="check --corpus")
        for config in sorted(folder.rglob("config.json")):
            yield from_folder(config.parent, str(config.parent))


def measure(
    library: Library, checkpoints: Iterable[Checkpoint], loaders: tuple[str, ...] = (), with_tests: bool = True
) -> Coverage:
    """Count every rule of some loaders (all of them by default) over checkpoints and the tests of rule files.

    Every checkpoint is put to every version that a loader file describes.
    """
    out = Coverage()
    names = loaders or tuple(library.loaders())
    compiled = [compile_loader(library, n, v) for n in names for v in library.loader(n)[0].versions]
    # Lane rules serve all loaders; over one of them alone, most are idle.
    places = _universe(compiled, library, out, not loaders)
    given = [(c, _GPU) for c in checkpoints]
    if with_tests:
        # Tests are few, and some are about older GPUs.
        given += [(c, gpu) for c in _tests(library) for gpu in (_GPU, _OLDER_GPU)]
    asked: set[tuple[str, str, str, str, str]] = set()
    for checkpoint, gpu in given:
        out.checkpoints += gpu == _GPU
        for loader in compiled:
            out.questions += 1
            try:
                _one(library, loader, checkpoint, gpu, places, out, asked)
            except BitlaneError as error:
                out.skipped.append(f"{printable(checkpoint.name)} under {loader.name} {loader.version}: {error.code}")
    _lanes(library, asked, out)
    return out


def _tests(library: Library) -> Iterator[Checkpoint]:
    for file, files in Vocabulary(library).givens:
        if all(isinstance(v, dict) for v in files.values()) and "config.json" in files:
            yield from_dicts(files, f"a test of {file.label}")


def _universe(compiled: list[Loader], library: Library, out: Coverage, with_lanes: bool) -> dict[int, str]:
    """List every rule that is in force in some version; return the place of every row."""
    places: dict[int, str] = {}

    def put(node: t.Node, file: str, what: str) -> None:
        place = f"{file}:{node.at.line}"
        places[id(node)] = place
        out.counts.setdefault(place, Count(place, statement(node), what, final=isinstance(node, _FINAL)))

    for loader in compiled:
        for check, file in loader.checks:
            put(check, file, "check")
        for format in loader.formats:
            _format_rules(format, put)
    for placed in library.lanes() if with_lanes else ():
        if isinstance(placed.item, t.Lane):
            put(placed.item, placed.file, "lane")
    return places


def _format_rules(format: LoaderFormat, put: Any) -> None:
    out = f"{format.file}:{format.line}"
    head = t.Format(name=format.name, when=format.when, items=(), at=t.Span(format.line))
    put(head, out.rpartition(":")[0], "format")
    for check, file in format.checks:
        put(check, file, "check")
    for row in (*format.algorithms, *format.schemes):
        put(row, format.file, "row")
    todo = list(format.rules)
    while todo:
        rule = todo.pop(0)
        put(rule.step, rule.file, "step")
        todo += rule.inner


def _one(
    library: Library,
    loader: Loader,
    checkpoint: Checkpoint,
    gpu: str,
    places: dict[int, str],
    out: Coverage,
    asked: set[tuple[str, str, str, str, str]],
) -> None:
    family = compile_family(library, checkpoint.architecture, loader.name, loader.version)
    hardware = system(gpu, None, library)
    try:
        reading = read(loader, checkpoint, {"sm": hardware.sm, "system": hardware.name})
    except CheckpointError as error:
        found = _BY.search(error.place)
        if found is None:
            raise
        out.add(found["place"], True)
        return
    _checks(loader, reading, out)
    if reading.format is None:
        return
    out.add(f"{reading.format.file}:{reading.format.line}", True)
    chooser = Chooser(reading, declarations(reading, family.renames), family.packed)
    chooser.watch = lambda tried, fired: out.add(
        tried.place if isinstance(tried, Rule) else places.get(id(tried), ""), fired
    )
    for module in modules(family, checkpoint.config, reading.asked):
        try:
            answer = chooser.decide(module)
        except CheckpointError:
            continue
        asked.add(
            (loader.name, loader.version, answer.algorithm, answer.activations, f"{module.kind} {reading.format.name}")
        )


def _checks(loader: Loader, reading: Reading, out: Coverage) -> None:
    format = reading.format
    for check, file in (*loader.checks, *(format.checks if format is not None else ())):
        holds = check.when is None or bool(evaluate(check.when, reading.scope))
        out.add(f"{file}:{check.at.line}", holds)


def _lanes(library: Library, asked: set[tuple[str, str, str, str, str]], out: Coverage) -> None:
    """Ask the lane rules for every answer that came up, on every GPU."""
    for name in sorted(known()):
        hardware = system(name, None, library)
        chosen: dict[tuple[str, str], Lanes] = {}
        for loader, version, algorithm, activations, where in sorted(asked):
            kind, _, format = where.partition(" ")
            key = (loader, version)
            if key not in chosen:
                chosen[key] = Lanes(library, loader, version, hardware.sm, hardware.name)
            try:
                answer = chosen[key].choose(algorithm, activations, kind, format)
            except CheckpointError:
                continue
            out.add(answer.rule_at, True)
