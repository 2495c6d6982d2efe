"""Agreement with recorded answers of real engines, module by module, with both reasons where the two differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import BitlaneError, CheckpointError, UsageError
from .api import resolve_with
from .family import NO_CLASS
from .goldens import Checkpoints, Golden, find_goldens, read_golden
from .inforce import in_force
from .systems import known
from .systems import system as find_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..rules.library import Library
    from .resolution import Resolution, Resolved

SCHEMA: Final = "bitlane.conformance/1"
KINDS: Final = ("linear", "experts", "lm_head", "embed")
What = Literal["algorithm", "shape", "missing", "extra", "refusal"]
Status = Literal["compared", "refused", "unsupported", "skipped"]

# Refusals of ours that say nothing about the engine: no rules for it, or rules that do not reach this checkpoint.
_UNSUPPORTED: Final = frozenset({"BL220", "BL222", "BL230", "BL231", "BL249", "BL260"})

# The engine refuses, or builds what no rule describes: its own method, or a general class in place of a missing one.
_EITHER: Final = frozenset({NO_CLASS, "BL253"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One module on which the two disagree, and why each says what it says."""

    module: str
    what: What
    engine: str
    ours: str
    engine_why: str = ""
    our_why: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return {
            "module": self.module,
            "what": self.what,
            "engine": self.engine,
            "ours": self.ours,
            "engine_why": self.engine_why,
            "our_why": self.our_why,
        }


@dataclass(slots=True)
class Agreement:
    """One golden against our answer.

    Attributes
    ----------
    status
        ``compared`` module by module; ``refused`` by the engine (then only our refusal counts); ``unsupported``: our
        rules do not describe it; ``skipped``: nothing to compare with.
    modules, agree
        Modules of the golden, and those whose algorithm (and number of experts) is ours.
    shapes, shapes_agree
        Modules of which the golden knows the shape, and those where ours is the same.
    reason
        Why it is unsupported or skipped, or how the engine refuses.
    our_reason
        Where both refuse: how bitlane does, so that a reader can see whether it is for the same cause.
    """

    golden: Golden
    status: Status = "compared"
    modules: int = 0
    agree: int = 0
    shapes: int = 0
    shapes_agree: int = 0
    reason: str = ""
    our_reason: str = ""
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing differs; true of what could not be compared as well."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        g = self.golden
        return {
            "checkpoint": g.label,
            "loader": g.loader,
            "loader_version": g.version,
            "sm": g.sm,
            "status": self.status,
            "modules": self.modules,
            "agree": self.agree,
            "shapes": self.shapes,
            "shapes_agree": self.shapes_agree,
            "reason": self.reason,
            "our_reason": self.our_reason,
            "differences": [d.to_dict() for d in self.differences],
        }


@dataclass(slots=True)
class Totals:
    """Sums over goldens."""

    goldens: int = 0
    equal: int = 0
    modules: int = 0
    agree: int = 0
    shapes: int = 0
    shapes_agree: int = 0
    refusals: int = 0
    refusals_agree: int = 0
    unsupported: int = 0
    unsupported_modules: int = 0
    skipped: int = 0
    differences: int = 0

    def add(self, found: Agreement) -> None:
        """Count one golden."""
        self.goldens += 1
        self.differences += len(found.differences)
        if found.status == "unsupported":
            self.unsupported += 1
            self.unsupported_modules += found.modules
            return
        if found.status == "skipped":
            self.skipped += 1
            return
        self.equal += found.equal
        self.modules += found.modules
        self.agree += found.agree
        self.shapes += found.shapes
        self.shapes_agree += found.shapes_agree
        if found.status == "refused":
            self.refusals += 1
            self.refusals_agree += found.equal

    @property
    def compared(self) -> int:
        """Goldens of which something was compared."""
        return self.goldens - self.unsupported - self.skipped

    def to_dict(self) -> dict[str, int]:
        """Return the JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}


def totals(found: list[Agreement]) -> dict[str, Totals]:
    """Sum per ``loader@version``, in order of first appearance; the last entry, ``all``, sums everything."""
    out: dict[str, Totals] = {}
    whole = Totals()
    for one in found:
        out.setdefault(f"{one.golden.loader}@{one.golden.version}", Totals()).add(one)
        whole.add(one)
    return {**out, "all": whole}


def conform(
    goldens: tuple[Path, ...],
    checkpoints: tuple[Path, ...] = (),
    *,
    rules: tuple[Path, ...] = (),
    only: tuple[str, ...] = (),
    system: str = "",
) -> Iterator[Agreement]:
    """Compare every golden below some folders with what bitlane answers.

    Parameters
    ----------
    goldens
        Folders of ``VERSION/CHECKPOINT.json.gz``, or of ``CASE/golden.json.gz`` beside ``config.json``.
    checkpoints
        Folders of ``org--model`` checkpoints, searched before the packaged ones.
    rules
        Folders of rule files that overlay the packaged ones.
    only
        Keep goldens whose ``loader@version checkpoint`` contains one of these words; all when empty.
    system
        GPU system to resolve for; by default one with the compute capability that the engine was shown.

    Yields
    ------
    Agreement
        One a golden, in name order.

    Raises
    ------
    UsageError
        BL280 no golden there, BL223 unknown system.
    CheckpointError
        BL281 a file that is no golden.
    """
    library, homes = in_force(rules), Checkpoints(checkpoints)
    if system:
        find_system(system, library=library)
    for path in find_goldens(goldens):
        golden = read_golden(path)
        text = f"{golden.loader}@{golden.version} {golden.label}"
        if not only or any(word in text for word in only):
            yield compare(golden, library, homes, system)


def compare(golden: Golden, library: Library, homes: Checkpoints, system: str = "") -> Agreement:
    """Compare one golden with what bitlane answers for its checkpoint."""
    out = Agreement(golden, modules=len(_wanted(golden)))
    if "mtp" in golden.variants:
        return _aside(out, "skipped", "the draft model is another model class, which no family file builds on its own")
    try:
        opened = homes.open(golden)
    except CheckpointError as error:
        return _refused(out, error)
    if opened is None:
        return _aside(out, "skipped", f"no checkpoint `{golden.name}` is at hand (--checkpoints)")
    chosen = system or _system(golden.sm)
    try:
        answer = resolve_with(library, opened, f"{golden.loader}@{golden.version}", chosen)
    except (CheckpointError, UsageError) as error:
        return _refused(out, error)
    if golden.refusal:
        out.status, out.reason = "refused", golden.refusal
        out.differences.append(
            Difference(
                "", "refusal", "refuses", "resolves", golden.refusal, f"format {answer.format}, {len(answer)} modules"
            )
        )
        return out
    _modules(out, answer)
    return out


def _wanted(golden: Golden) -> dict[str, Mapping[str, Any]]:
    """Return the modules that carry weights and whose algorithm the golden knows."""
    return {p: m for p, m in golden.modules.items() if m.get("kind") in KINDS and m.get("algo") not in (None, "?")}


def _aside(out: Agreement, status: Status, reason: str) -> Agreement:
    out.status, out.reason = status, reason
    return out


def _refused(out: Agreement, error: BitlaneError) -> Agreement:
    if error.code in _UNSUPPORTED or (error.code in _EITHER and not out.golden.refusal):
        return _aside(out, "unsupported", f"{error.code}: {error.message}")
    why = f"{error.code}: {error.message}" + (f" ({error.place})" if error.place else "")
    if out.golden.refusal:
        out.our_reason = why
        return _aside(out, "refused", out.golden.refusal)
    out.differences.append(Difference("", "refusal", f"{out.modules} modules", "refused", "", why))
    return out


def _system(sm: int) -> str:
    """Return the first system of the facts that has a compute capability.

    Raises
    ------
    UsageError
        BL282: none has it.
    """
    for name, facts in known().items():
        if facts.get("sm_version") == sm:
            return name
    raise UsageError(
        "BL282",
        f"no system of compute capability {sm / 10} is known",
        place="systems.yaml",
        help="name one with --system",
    )


def _modules(out: Agreement, answer: Resolution) -> None:
    rows = {row.module.path: row for row in answer.rows}
    golden = out.golden
    for path, want in _wanted(golden).items():
        row = rows.pop(path, None)
        why = str(want.get("why") or want.get("method") or "")
        if row is None:
            out.differences.append(Difference(path, "missing", _word(want), "no such module", why))
            continue
        _module(out, path, want, row, why)
    if golden.partial:
        return
    out.differences += [
        Difference(path, "extra", "no such module", row.answer.algorithm, "", f"{row.module.file}:{row.module.line}")
        for path, row in rows.items()
        if path not in golden.modules
    ]


def _word(want: Mapping[str, Any]) -> str:
    """Return the golden's algorithm; older oracles name the weight-only integer method by its class."""
    algo = str(want["algo"])
    return "int4_wo" if "WNA16" in algo else algo


def _module(out: Agreement, path: str, want: Mapping[str, Any], row: Resolved, why: str) -> None:
    engine, ours = _word(want), row.answer.algorithm
    shown = f"{row.answer.rule} ({row.answer.rule_at})" + (f": {row.answer.note}" if row.answer.note else "")
    experts, our_experts = want.get("n_experts"), row.module.attributes.get("count")
    if experts is not None and our_experts is not None and experts != our_experts:
        engine, ours = f"{engine} x {experts} experts", f"{ours} x {our_experts} experts"
    if engine == ours:
        out.agree += 1
    else:
        out.differences.append(Difference(path, "algorithm", engine, ours, why, shown))
    shape = want.get("shape")
    if isinstance(shape, list):
        out.shapes += 1
        if shape == row.module.shape:
            out.shapes_agree += 1
        else:
            out.differences.append(
                Difference(
                    path,
                    "shape",
                    str(shape),
                    str(row.module.shape),
                    str(want.get("cls") or ""),
                    f"{row.module.file}:{row.module.line}",
                )
            )


def folded(differences: list[Difference]) -> list[tuple[Difference, int]]:
    """Fold differences that only the layer or expert tells apart; most frequent first, ties in order."""
    counts: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], Difference] = {}
    for d in differences:
        key = (_fold(d.module), d.what, d.engine, d.ours)
        counts[key] += 1
        first.setdefault(key, d)
    return [
        (Difference(key[0], d.what, d.engine, d.ours, d.engine_why, d.our_why), n)
        for key, n in counts.most_common()
        for d in (first[key],)
    ]


def _fold(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
