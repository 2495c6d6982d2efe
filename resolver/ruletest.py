"""Running the tests that stand in rule files: what was expected of which module, what came, and by which rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import BitlaneError, CheckpointError
from ..grammar import text as written
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from .api import ask, resolve_with
from .checkpoint import Checkpoint, from_dicts
from .expressions import Scope, evaluate
from .resolution import Resolved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..rules.library import Library, RuleFile
    from .answers import Tried
    from .decide import Chooser
    from .resolution import Resolution

DEFAULT_SYSTEM: Final = "gb200"
_CONFLICTS: Final = ("BL244", "BL245", "BL248")
_UNSUPPORTED: Final = ("BL241", "BL247", "BL260")


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met.

    Attributes
    ----------
    place
        ``file:line`` of the expectation.
    subject
        The module, or ``the checkpoint``.
    expected, actual
        In words.
    chain
        The rules that were tried on the module.
    """

    place: str
    subject: str
    expected: str
    actual: str
    chain: tuple[Tried, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        tried = [{"rule": r.rule, "at": r.place, "won": r.won, "note": r.note} for r in self.chain]
        row = {"at": self.place, "subject": self.subject, "expected": self.expected, "actual": self.actual}
        return {**row, "chain": tried}


@dataclass(slots=True)
class Result:
    """One test of a rule file."""

    name: str
    place: str
    todo: bool
    checked: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether it went as it should: a `todo` must fail, so that it is noticed when it no longer does."""
        return bool(self.failures) is self.todo

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        row = {"name": self.name, "at": self.place, "todo": self.todo, "passed": self.passed, "checked": self.checked}
        return {**row, "failures": [f.to_dict() for f in self.failures]}


def run_tests(files: Iterable[RuleFile], library: Library, part: str = "") -> list[Result]:
    """Run the tests of rule files whose name contains ``part``.

    Raises
    ------
    RuleError
        A file does not parse.
    """
    return [
        _run(item, file, library)
        for file in files
        for item in file.tree().items
        if isinstance(item, t.Test) and part.lower() in item.name.lower()
    ]


def _run(test: t.Test, file: RuleFile, library: Library) -> Result:
    result = Result(test.name, f"{file.label}:{test.at.line}", test.todo)
    files = {g.file: json.loads(g.text) for g in test.items if isinstance(g, t.Given)}
    loader = file.name if file.kind == "loader" else "spec"
    case = _Case(file, library, result, files, loader, DEFAULT_SYSTEM)
    for item in test.items:
        if isinstance(item, t.Under):
            version = f"@{item.version}" if item.version else ""
            case = _Case(file, library, result, files, item.loader + version, item.system or DEFAULT_SYSTEM)
        elif isinstance(item, t.Expect):
            case.module(item)
        elif isinstance(item, t.ExpectOutcome):
            case.outcome(item)
    if not result.checked:
        result.failures.append(Failure(result.place, "the test", "an expectation", "none is written down"))
    return result


class _Case:
    """One checkpoint under one loader and system; resolved on the first expectation."""

    def __init__(
        self, file: RuleFile, library: Library, result: Result, files: dict[str, Any], loader: str, system: str
    ) -> None:
        self.file, self.library, self.result = file, library, result
        self.files, self.loader, self.system = files, loader, system
        self._asked: tuple[Resolution | None, BitlaneError | None] | None = None
        self._rows: dict[str, Resolved | BitlaneError] | None = None
        self._chooser: Chooser | None = None

    # --- answers ------------------------------------------------------------------

    def _ask(self) -> tuple[Resolution | None, BitlaneError | None]:
        if self._asked is None:
            try:
                self._asked = resolve_with(self.library, self._opened(), self.loader, self.system), None
            except BitlaneError as error:
                self._asked = None, error
        return self._asked

    def _opened(self) -> Checkpoint:
        wrong = [n for n, v in self.files.items() if not isinstance(v, dict)]
        if wrong:
            raise CheckpointError(
                "BL203", f"`{wrong[0]}` holds no JSON object", place="given", help="begin it with `{`"
            )
        return from_dicts(self.files, "given")

    def _row(self, path: str) -> Resolved | BitlaneError | None:
        """Return a module's row, or what stops the loader there; what is refused elsewhere is no obstacle."""
        if self._rows is None:
            resolution, error = self._ask()
            if resolution is not None:
                self._chooser = resolution.chooser
                self._rows = {r.module.path: r for r in resolution.rows}
            elif isinstance(error, CheckpointError):
                self._rows = self._one_by_one(error)
            else:
                self._rows = {}
        return self._rows.get(path)

    def _one_by_one(self, stop: BitlaneError) -> dict[str, Resolved | BitlaneError]:
        try:
            asked = ask(self.library, self._opened(), self.loader, self.system)
        except BitlaneError:
            return {"": stop}
        self._chooser = asked.chooser
        out: dict[str, Resolved | BitlaneError] = {}
        for module in asked.modules:
            try:
                out[module.path] = asked.row(module)
            except CheckpointError as error:
                out[module.path] = error
        return out

    def _chain(self, row: Resolved | BitlaneError | None) -> tuple[Tried, ...]:
        if not isinstance(row, Resolved) or self._chooser is None:
            return ()
        trace: list[Tried] = []
        self._chooser.decide(row.module, trace)
        return tuple(tried for tried in trace if tried.won is not None)

    # --- expectations ------------------------------------------------------------------

    def _fail(self, item: t.Node, subject: str, expected: str, actual: str, chain: tuple[Tried, ...] = ()) -> None:
        self.result.failures.append(Failure(f"{self.file.label}:{item.at.line}", subject, expected, actual, chain))

    def module(self, item: t.Expect) -> None:
        """Check what a module runs at."""
        self.result.checked += 1
        row = self._row(item.module)
        wanted = _expected(item)
        if isinstance(row, BitlaneError):
            met = item.algorithm == "refusal" or (item.algorithm == "conflict" and row.code in _CONFLICTS)
            if not met or (item.by is not None and item.by not in row.message):
                self._fail(item, item.module, wanted, f"refused, {row.code}: {row.message}")
            return
        if row is None:
            self._fail(item, item.module, wanted, self._absent(item.module))
            return
        if _differs(item, row):
            self._fail(item, item.module, wanted, _actual(row), self._chain(row))

    def _absent(self, path: str) -> str:
        _, error = self._ask()
        if error is not None:
            return f"refused, {error.code}: {error.message}"
        known = list(self._rows or ())
        hint = nearest(path, known)
        return "no such module" + (f"; {hint}" if hint else f" among {len(known)}")

    def outcome(self, item: t.ExpectOutcome) -> None:
        """Check what becomes of the checkpoint as a whole."""
        self.result.checked += 1
        resolution, error = self._ask()
        wanted = item.outcome + (f" {written.quote(item.text)}" if item.text is not None else "")
        if item.outcome == "report":
            said = [(p.code, p.message) for p in resolution.problems] if resolution is not None else []
        else:
            codes = {"conflict": _CONFLICTS, "unsupported": _UNSUPPORTED}.get(item.outcome)
            said = [(error.code, error.message)] if error is not None and (not codes or error.code in codes) else []
        if not any(item.text is None or item.text == code or item.text in message for code, message in said):
            actual = f"refused, {error.code}: {error.message}" if error is not None else _accepted(resolution)
            self._fail(item, "the checkpoint", wanted, actual)


def _accepted(resolution: Resolution | None) -> str:
    problems = [] if resolution is None else [f"{p.code}: {p.message}" for p in resolution.problems]
    return "accepted" + (", with " + "; ".join(problems) if problems else "")


def _numbers(shape: tuple[t.Expr, t.Expr]) -> list[Any]:
    return [evaluate(e, Scope({})) for e in shape]


def _expected(item: t.Expect) -> str:
    shape = f" {_numbers(item.shape)}" if item.shape is not None else ""
    lane = f" in lane {item.lane}" if item.lane is not None else ""
    by = f" by `{item.by}`" if item.by is not None else ""
    return f"{item.algorithm}{shape}{lane}{by}"


def _actual(row: Resolved) -> str:
    shape = f" {row.module.shape}" if row.module.shape is not None else ""
    return f"{row.answer.algorithm}{shape} in lane {row.lane.lane} by `{row.answer.rule}`"


def _differs(item: t.Expect, row: Resolved) -> bool:
    return (
        item.algorithm != row.answer.algorithm
        or (item.shape is not None and _numbers(item.shape) != row.module.shape)
        or (item.lane is not None and item.lane != row.lane.lane)
        or (item.by is not None and item.by != row.answer.rule)
    )
