"""One module, one chain: the first rule that decides wins, and says by which line of the metadata."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError
from ..grammar import text
from ..grammar import tree as t
from .answers import UNQUANTIZED, Answer, Hit, RefusalError, Tried, activations, said, shown
from .declarations import Declarations, evidence_at, locate
from .entries import Entries
from .experts import named_experts
from .expressions import ABSENT, Scope, evaluate
from .targets import named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .loader import Reading, Rule
    from .modules import Module

_UNSEEN: Any = object()


@dataclass(slots=True)
class Chooser:
    """Applies a format's chain to modules.

    Parameters
    ----------
    packed
        Fused names that the loader's quantization config knows, with their shards.
    """

    reading: Reading
    declared: Declarations
    packed: Mapping[str, tuple[str, ...]]
    _volatile: frozenset[int] = field(init=False, default=frozenset())
    _static: dict[int, bool | None] = field(default_factory=dict)
    _named: dict[int, Entries] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)
    _rows: dict[tuple[str, str], t.Scheme | None] = field(default_factory=dict)
    matched: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.reading.format is not None:
            self._volatile = self.reading.format.volatile

    # --- the chain ----------------------------------------------------------

    def decide(self, module: Module, trace: list[Tried] | None = None) -> Answer:
        """Return the answer for one module.

        Raises
        ------
        RefusalError
            The loader refuses the checkpoint at this module (a conflict, an unsupported algorithm).
        CheckpointError
            BL249: no rule of the chain decides.
        """
        chosen = self.reading.format
        if chosen is None:
            return Answer(
                UNQUANTIZED,
                "none",
                "no quantization metadata",
                f"loaders/{self.reading.loader.name}.rules",
                (),
                "nothing is declared",
            )
        if not module.configured:
            if trace is not None:
                trace.append(
                    Tried(
                        "built without a quantization config",
                        f"{module.file}:{module.line}",
                        True,
                        f"the family says that {self.reading.loader.name} never quantizes it",
                    )
                )
            return Answer(UNQUANTIZED, "none", "built without a quantization config", f"{module.file}:{module.line}")
        self._enter(module)
        found = self._run(chosen.rules, module, trace)
        if found is not None:
            return found
        raise CheckpointError(
            "BL249",
            f"no rule of format `{chosen.name}` decides `{module.path}`",
            place=f"{chosen.file}:{chosen.line}",
            help="end the chain with `default`",
        )

    def _run(self, rules: tuple[Rule, ...], module: Module, trace: list[Tried] | None) -> Answer | None:
        for rule in rules:
            if not self._applies(rule.step, module):
                if trace is not None:
                    trace.append(Tried(self.name(rule), rule.place, None, "does not apply here"))
                continue
            answer, note = self._try(rule, module)
            if trace is not None:
                told = answer.note if answer is not None else note
                trace.append(Tried(self.name(rule), rule.place, answer is not None, told))
            if answer is not None:
                return answer
        return None

    def name(self, rule: Rule) -> str:
        """The rule as it is written, without its conditions."""
        key = id(rule.step)
        if key not in self._texts:
            self._texts[key] = text.step(rule.step, bare=True)
        return self._texts[key]

    def _enter(self, module: Module) -> None:
        shape = module.shape or [0, 0]
        self.reading.scope.values.update(
            {
                "path": module.path,
                "name": module.name,
                "kind": module.kind,
                "class": module.cls,
                "fused": module.name in self.packed,
                "layer": module.layer,
                "part": module.part,
                "stack": module.stack,
                "shape_out": shape[0],
                "shape_in": shape[1],
                "outs": [m.out for m in module.members],
                "expert_hidden": module.attributes.get("hidden", ABSENT),
                "expert_inter": module.attributes.get("inter", ABSENT),
            }
        )

    def _applies(self, step: t.Step, module: Module) -> bool:
        kinds = step.kinds if isinstance(step, (t.Leave, t.Exclude, t.Take, t.Default, t.Refuse, t.Each)) else ()
        if kinds and module.kind not in kinds:
            return False
        when = getattr(step, "when", None)
        return when is None or self._holds(when)

    def _holds(self, when: t.Expr) -> bool:
        """Evaluate a condition; once for all modules when it names none of their properties."""
        key = id(when)
        known = self._static.get(key, _UNSEEN)
        if known is _UNSEEN:
            volatile = key in self._volatile
            known = self._static[key] = None if volatile else bool(evaluate(when, self.reading.scope))
        return bool(evaluate(when, self.reading.scope)) if known is None else known

    def _try(self, rule: Rule, module: Module) -> tuple[Answer | None, str]:
        step = rule.step
        if isinstance(step, t.Leave):
            return self._answer(rule, UNQUANTIZED, "none", (), f"{module.kind} modules are left alone"), ""
        if isinstance(step, t.Exclude):
            return self._exclude(rule, step, module)
        if isinstance(step, t.Take):
            return self._take(rule, step, module)
        if isinstance(step, t.Each):
            return self._each(rule, step, module)
        if isinstance(step, t.Default):
            if step.group is not None:
                return self._default_group(rule, step.group, module)
            if step.outcome.refusal is not None:
                raise self._refusal(rule, module, step.outcome.refusal)
            places = tuple(evidence_at(self.reading, step.evidence))
            return self._answer(
                rule,
                step.outcome.algorithm or UNQUANTIZED,
                step.outcome.activations,
                places,
                "no rule before it decided",
            ), ""
        if isinstance(step, t.Refuse):
            raise self._refusal(rule, module, step.message, step.code or "BL240")
        return None, ""

    def _answer(self, rule: Rule, algorithm: str, acts: str | None, evidence: tuple[str, ...], note: str) -> Answer:
        return Answer(algorithm, acts or activations(algorithm), self.name(rule), rule.place, evidence, note)

    def _refusal(
        self, rule: Rule, module: Module, message: str, code: str = "BL240", evidence: tuple[str, ...] = ()
    ) -> RefusalError:
        loader = self.reading.loader
        place = f"{module.path} ({rule.place}" + (f"; {', '.join(evidence[:3])})" if evidence else ")")
        return RefusalError(
            code,
            message,
            place=place,
            help=f"{loader.name} {loader.version} stops here; make the declarations of this module agree, "
            "or compare with `--loader spec`",
        )

    # --- matching -----------------------------------------------------------

    def targets(self, module: Module, on: str) -> list[str]:
        """Return the texts that ``on`` names for a module; empty when it has none."""
        return named(module, on, self.packed, self.reading.loader)

    def find(self, match: t.Match, entries: Entries, names: list[str]) -> list[Hit]:
        """Look up each name under every pattern kind; the entry that comes first in the list counts."""
        out = []
        for name in names:
            found = [
                p for p in (entries.find(kind, name, match.containing, match.ending) for kind in match.by) if p >= 0
            ]
            out.append(Hit([min(found)] if found else [], (name,)))
        return out

    def _exclude(self, rule: Rule, step: t.Exclude, module: Module) -> tuple[Answer | None, str]:
        match = step.match
        entries = self.declared.listing if step.unlisted else self.declared.exclusions
        at = self.declared.listing_at if step.unlisted else self.declared.exclusion_at
        if match.named:
            entries = self._named.setdefault(id(step), Entries(match.named))
            match = t.Match(by=("glob",), on=match.on)
        names = [n for on in match.on for n in self.targets(module, on)]
        if not names:
            return None, "no such names for this module"
        if match.quantifier == "complete_or_refuse":
            hits = self._experts(rule, module, entries, at, names)
        else:
            hits = self.find(match, entries, names)
        found = [h for h in hits if h.positions]
        if step.unlisted and not found:
            return self._answer(rule, UNQUANTIZED, "none", (), "no listed name occurs in it"), ""
        if not found:
            return None, f"no entry matches ({len(entries)} entries)"
        quantifier = match.quantifier or "any"
        if step.unlisted and (quantifier == "any" or len(found) == len(hits)):
            return None, f"`{entries.texts[found[0].first]}` matches {shown(found)}"
        if quantifier not in ("any", "complete_or_refuse") and len(found) < len(hits):
            if quantifier == "all":
                return None, f"{len(found)} of {len(hits)} shards are listed"
            places = tuple(at[h.first] for h in found)
            missing = ", ".join(h.tried[0].rpartition(".")[2] for h in hits if not h.positions)
            listed = ", ".join(h.tried[0].rpartition(".")[2] for h in found)
            raise self._refusal(
                rule,
                module,
                f"some but not all shards of `{module.path}` are excluded: {listed} listed, {missing} not",
                "BL244",
                places,
            )
        outcome = step.outcome
        if outcome is not None and outcome.refusal is not None:
            raise self._refusal(rule, module, outcome.refusal)
        note = f"`{entries.texts[found[0].first]}` matches {shown(found)}"
        if step.match.named:
            evidence: tuple[str, ...] = ()
        else:
            evidence = tuple(dict.fromkeys(self.declared.exclusion_at[h.first] for h in found))
            self.matched.update(("exclusions", h.first) for h in found)
        algorithm = outcome.algorithm if outcome is not None and outcome.algorithm else UNQUANTIZED
        return self._answer(rule, algorithm, outcome.activations if outcome is not None else None, evidence, note), ""

    def _take(self, rule: Rule, step: t.Take, module: Module) -> tuple[Answer | None, str]:
        match = step.match
        names = [n for on in match.on for n in self.targets(module, on)]
        if not names:
            return None, "no such names for this module"
        if step.source == "group":
            return self._take_group(rule, match, module, names)
        if match.quantifier == "complete_or_refuse":
            names = [s for n in names for s in self.reading.loader.spellings(n)]
            hits = self._experts(rule, module, self.declared.listing, self.declared.listing_at, names)
        else:
            hits = self._listed_together(match, names)
        found = [h for h in hits if h.positions]
        if not found:
            return None, f"not listed ({len(self.declared.listing)} entries)" if len(
                names
            ) == 1 else f"0 of {len(names)} shards listed"
        quantifier = match.quantifier or "listed_agree"
        if quantifier in ("all", "all_or_refuse") and len(found) < len(hits):
            if quantifier == "all":
                return None, f"{len(found)} of {len(hits)} shards listed"
            listed = tuple(self.declared.listing_at[h.first] for h in found)
            raise self._refusal(rule, module, f"some but not all shards of `{module.path}` are listed", "BL244", listed)
        positions = [p for h in found for p in h.positions]
        if quantifier == "first":
            positions = positions[:1]
        words = [self._word(rule, module, p) for p in positions]
        if quantifier == "agree" and len(found) < len(hits):
            words.append("unlisted")
        if quantifier == "alike" and (len(set(words)) > 1 or len(found) < len(hits)):
            return None, f"{len(found)} of {len(hits)} shards listed, as {', '.join(dict.fromkeys(words))}"
        if len(set(words)) > 1:
            places = tuple(self.declared.listing_at[p] for p in positions)
            pairs = ", ".join(
                f"{self.declared.listing.texts[p].rpartition('.')[2]} {w}"
                for p, w in zip(positions, words, strict=False)
            )
            raise self._refusal(
                rule, module, f"`{module.path}` is declared with more than one algorithm: {pairs}", "BL245", places
            )
        self.matched.update(("listing", p) for p in positions)
        evidence = tuple(self.declared.listing_at[p] for p in positions[:4])
        return self._classified(
            rule, module, words[0], evidence, f"`{self.declared.listing.texts[positions[0]]}` is {words[0]}"
        ), ""

    def _experts(self, rule: Rule, module: Module, entries: Entries, at: Sequence[str], names: list[str]) -> list[Hit]:
        """Entries below an experts module, under the first spelling that has some; all experts must be named alike."""
        for name in names:
            positions, complaint = named_experts(entries, name, module.attributes.get("count", 0))
            if complaint:
                places = tuple(at[p] for p in positions[:3])
                raise self._refusal(rule, module, f"`{module.path}` is named in part: {complaint}", "BL248", places)
            if positions:
                return [Hit(positions, (name,))]
        return [Hit([], tuple(names))]

    def _listed_together(self, match: t.Match, names: list[str]) -> list[Hit]:
        """Search the listing for names; a parent has no other spelling.

        `listed_agree` hears every spelling of every name. Without a quantifier, all names are looked for under one
        spelling: the first that finds any of them.
        """
        if match.on == ("parent",):
            return [self._listed(match, (n,)) for n in names]
        spelled = [self.reading.loader.spellings(n) for n in names]
        if match.quantifier is not None or len({len(s) for s in spelled}) > 1:
            return [self._listed(match, s) for s in spelled]
        hits: list[Hit] = []
        for together in zip(*spelled, strict=True):
            hits = [self._listed(match, (s,)) for s in together]
            if any(h.positions for h in hits):
                break
        return hits

    def _listed(self, match: t.Match, spelled: tuple[str, ...]) -> Hit:
        """Search the listing under every spelling of a name; the first that hits counts, for `listed_agree` all."""
        entries = self.declared.listing
        if match.quantifier == "listed_agree":
            every = [entries.find(k, s, match.containing, match.ending) for k in match.by for s in spelled]
            return Hit([p for p in every if p >= 0], spelled)
        for kind in match.by:
            for spelling in spelled:
                if kind == "descendant":
                    below = entries.descendants(spelling)
                    if below:
                        return Hit(below if match.quantifier == "agree" else below[:1], spelled)
                    continue
                found = entries.find(kind, spelling, match.containing, match.ending)
                if found >= 0:
                    return Hit([found], spelled)
        return Hit([], spelled)

    def _word(self, rule: Rule, module: Module, position: int) -> str:
        word = self.declared.listed[position]
        if not isinstance(word, str):
            what = "no algorithm" if word is ABSENT else f"a {type(word).__name__} as its algorithm"
            raise self._refusal(
                rule,
                module,
                f"entry `{self.declared.listing.texts[position]}` has {what}",
                "BL246",
                (self.declared.listing_at[position],),
            )
        return word

    def _algorithm_row(self, word: str, kind: str) -> t.Algorithm | None:
        """Return the first row of `algorithms` that fits a word for a kind of module."""
        for row in self.reading.format.algorithms if self.reading.format is not None else ():
            if row.kinds and kind not in row.kinds:
                continue
            if (not row.words or word in row.words) and (row.when is None or self._holds(row.when)):
                return row
        return None

    def _classified(self, rule: Rule, module: Module, word: str, evidence: tuple[str, ...], note: str) -> Answer:
        row = self._algorithm_row(word, module.kind)
        if row is None:
            message = f"algorithm `{word}` is not supported for {module.kind} modules"
            raise self._refusal(rule, module, message, "BL247", evidence)
        if row.outcome.refusal is not None:
            raise self._refusal(rule, module, row.outcome.refusal, "BL247", evidence)
        algorithm = row.outcome.algorithm or UNQUANTIZED
        answer = self._answer(rule, algorithm, row.outcome.activations, evidence, note)
        return replace(answer, declared=word) if algorithm != UNQUANTIZED else answer

    # --- groups -------------------------------------------------------------

    def _take_group(self, rule: Rule, match: t.Match, module: Module, names: list[str]) -> tuple[Answer | None, str]:
        entries = self.declared.groups
        if match.named:
            # Targets that count by their own wording, whatever module it is.
            hits = [Hit([p] if (p := entries.exact(n)) >= 0 else [], (n,)) for n in match.named]
        else:
            hits = self.find(match, entries, names)
        if match.by == ("descendant",) and match.quantifier == "agree":
            hits = [Hit([p], (entries.texts[p],)) for n in names for p in entries.descendants(n)]
        found = [h for h in hits if h.positions]
        if not found:
            return None, f"no target matches ({len(entries)} targets)"
        quantifier = match.quantifier or "any"
        if quantifier in ("all", "all_or_refuse", "agree") and len(found) < len(hits):
            if quantifier == "all":
                return None, f"{len(found)} of {len(hits)} shards have a target"
            raise self._refusal(
                rule,
                module,
                f"some but not all shards of `{module.path}` have a target",
                "BL244",
                tuple(self.declared.group_at[h.first] for h in found),
            )
        answers = [
            self._scheme(rule, module, h.first, entries)
            for h in (found if quantifier in ("agree", "all_or_refuse") else found[:1])
        ]
        if len({(a.algorithm, a.activations) for a in answers}) > 1:
            pairs = ", ".join(
                f"{h.tried[0].rpartition('.')[2]} {a.algorithm}" for h, a in zip(found, answers, strict=True)
            )
            raise self._refusal(
                rule,
                module,
                f"`{module.path}` is declared with more than one scheme: {pairs}",
                "BL245",
                tuple(self.declared.group_at[h.first] for h in found),
            )
        self.matched.update(("groups", h.first) for h in found)
        return answers[0], ""

    def _scheme(self, rule: Rule, module: Module, position: int, entries: Entries) -> Answer:
        target = entries.texts[position]
        group, place = self.declared.group_of[position], self.declared.group_at[position]
        return self._classified_group(rule, module, group, place, target)

    def _default_group(self, rule: Rule, path: str, module: Module) -> tuple[Answer | None, str]:
        group, place = locate(self.reading, path)
        if not isinstance(group, dict):
            return None, f"no object at {place}"
        return self._classified_group(rule, module, group, place, ""), ""

    def _classified_group(
        self, rule: Rule, module: Module, group: Mapping[str, Any], place: str, target: str
    ) -> Answer:
        outer = self.reading.scope
        scope = Scope(group, {**outer.roots, "block": self.reading.block or {}}, outer.lets, place)
        scope.values = {**outer.values, "target": target}
        row = self._scheme_row(scope, module.kind, (place, module.kind))
        if row is None:
            raise self._refusal(rule, module, "no scheme fits the group that targets it", "BL247", (place,))
        if row.outcome.refusal is not None:
            raise self._refusal(rule, module, row.outcome.refusal, "BL247", (place,))
        note = f"target `{target}`" if target else "no rule before it decided"
        algorithm = row.outcome.algorithm or UNQUANTIZED
        answer = self._answer(rule, algorithm, row.outcome.activations, (place,), note)
        return replace(answer, declared=group)

    def _scheme_row(self, scope: Scope, kind: str, key: tuple[str, str]) -> t.Scheme | None:
        """Return the first scheme that fits; remembered per group and kind where none looks at the module."""
        if key in self._rows:
            return self._rows[key]
        found, static = None, True
        for row in self.reading.format.schemes if self.reading.format is not None else ():
            if row.kinds and kind not in row.kinds:
                continue
            if row.when is not None:
                static = static and id(row.when) not in self._volatile
                if not evaluate(row.when, scope):
                    continue
            found = row
            break
        if static:
            self._rows[key] = found
        return found

    # --- one name at a time -------------------------------------------------

    def _each(self, rule: Rule, step: t.Each, module: Module) -> tuple[Answer | None, str]:
        names = [n for on in step.on for n in self.targets(module, on)]
        if not names:
            return None, "no such names for this module"
        answers, identities = [], []
        for name in names:
            part = replace(module, path=name)
            self._enter(part)
            answer = self._run(rule.inner, part, None)
            answers.append(answer)
            identities.append(self._identity(step, answer))
        self._enter(module)
        outcomes = [UNQUANTIZED if a is None else a.algorithm for a in answers]
        if any(i != identities[0] for i in identities):
            pairs = ", ".join(f"{n.rpartition('.')[2]} {o}" for n, o in zip(names, outcomes, strict=True))
            places = tuple(e for a in answers if a is not None for e in a.evidence)
            raise self._refusal(
                rule, module, f"`{module.path}` is declared in more than one way: {pairs}", "BL245", places
            )
        decided = next((a for a in answers if a is not None), None)
        return decided, f"no rule of `{step.chain}` decides its {len(names)} names"

    def _identity(self, step: t.Each, answer: Answer | None) -> list[Any]:
        """What must be the same for every name of `each`."""
        group = answer.declared if answer is not None else None
        if not step.comparing:
            return [UNQUANTIZED if answer is None else answer.algorithm, said(answer)]
        outer = self.reading.scope
        group = group if isinstance(group, dict) else {}
        scope = Scope(group, {**outer.roots, "block": self.reading.block or {}}, outer.lets, outer.place)
        scope.values = outer.values
        return [evaluate(e, scope) for e in step.comparing]
