"""One module, one chain: the first rule that decides wins, and says by which line of the metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError
from ..grammar import tree as t
from .answers import UNQUANTIZED, Answer, RefusalError, Tried, said
from .declarations import evidence_at
from .expressions import evaluate
from .grouped import default_group, group_scope, take_group
from .listed import exclude, take_listed
from .question import Question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .declarations import Declarations
    from .loader import Rule
    from .modules import Module
    from .reading import Reading

    Outcome = tuple[Answer | None, str]
    Action = Callable[["Chooser", Rule, Any, Module], Outcome]
    Plan = list[tuple[Rule, Callable[[], Any] | None, Action]]


class Chooser(Question):
    """Applies a format's chain to modules."""

    __slots__ = ("_plans",)

    def __init__(self, reading: Reading, declared: Declarations, packed: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(reading, declared, packed)
        self._plans: dict[tuple[int, str], Plan] = {}

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
            where = self.reading.loader.file
            return Answer(UNQUANTIZED, "none", "no quantization metadata", where, (), "nothing is declared")
        if not module.configured:
            what, place = "built without a quantization config", f"{module.file}:{module.line}"
            if trace is not None:
                told = f"the family says that {self.reading.loader.name} never quantizes it"
                trace.append(Tried(what, place, True, told))
            return Answer(UNQUANTIZED, "none", what, place)
        asked = module if module.asked is None else replace(module, path=module.asked)
        self.enter(asked)
        found = self.run(chosen.rules, asked) if trace is None else self._traced(chosen.rules, asked, trace)
        if found is not None:
            return found
        raise CheckpointError(
            "BL249",
            f"no rule of format `{chosen.name}` decides `{module.path}`",
            place=f"{chosen.file}:{chosen.line}",
            help="end the chain with `default`",
        )

    def run(self, rules: tuple[Rule, ...], module: Module) -> Answer | None:
        """Return what the first of some rules says that decides a module that was entered."""
        for rule, test, action in self._plan(rules, module.kind):
            if test is None or test():
                answer, _ = self._try(action, rule, module)
                if answer is not None:
                    return answer
        return None

    def _plan(self, rules: tuple[Rule, ...], kind: str) -> Plan:
        """The rules that speak of a kind of module, each with its condition and what it does."""
        key = (id(rules), kind)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = [
                (rule, self._condition(rule.step), _ACTIONS[type(rule.step)])
                for rule in rules
                if _speaks_of(rule.step, kind)
            ]
        return plan

    def _condition(self, step: t.Step) -> Callable[[], Any] | None:
        when = getattr(step, "when", None)
        return None if when is None else self.test(when)

    def _try(self, action: Action, rule: Rule, module: Module) -> Outcome:
        if self.watch is None:
            return action(self, rule, rule.step, module)
        try:
            answer, note = action(self, rule, rule.step, module)
        except RefusalError:
            self.watch(rule, True)
            raise
        self.watch(rule, answer is not None)
        return answer, note

    def _traced(self, rules: tuple[Rule, ...], module: Module, trace: list[Tried]) -> Answer | None:
        for rule in rules:
            test = self._condition(rule.step)
            if not _speaks_of(rule.step, module.kind) or not (test is None or test()):
                trace.append(Tried(self.name(rule), rule.place, None, "does not apply here"))
                continue
            answer, note = self._try(_ACTIONS[type(rule.step)], rule, module)
            told = answer.note if answer is not None else note
            trace.append(Tried(self.name(rule), rule.place, answer is not None, told))
            if answer is not None:
                return answer
        return None


def _speaks_of(step: t.Step, kind: str) -> bool:
    kinds: tuple[str, ...] = getattr(step, "kinds", ())
    return not kinds or kind in kinds


# --- the steps ----------------------------------------------------------------


def _leave(chooser: Chooser, rule: Rule, _step: t.Leave, module: Module) -> Outcome:
    return chooser.answer(rule, UNQUANTIZED, "none", (), f"{module.kind} modules are left alone"), ""


def _take(chooser: Chooser, rule: Rule, step: t.Take, module: Module) -> Outcome:
    take = take_group if step.source == "group" else take_listed
    return take(chooser, rule, step.match, module)


def _default(chooser: Chooser, rule: Rule, step: t.Default, module: Module) -> Outcome:
    if step.group is not None:
        return default_group(chooser, rule, step.group, module)
    outcome = step.outcome
    if outcome.refusal is not None:
        raise chooser.refusal(rule, module, outcome.refusal)
    places = tuple(evidence_at(chooser.reading, step.evidence))
    algorithm = outcome.algorithm or UNQUANTIZED
    return chooser.answer(rule, algorithm, outcome.activations, places, "no rule before it decided"), ""


def _refuse(chooser: Chooser, rule: Rule, step: t.Refuse, module: Module) -> Outcome:
    raise chooser.refusal(rule, module, step.message, step.code or "BL240")


def _each(chooser: Chooser, rule: Rule, step: t.Each, module: Module) -> Outcome:
    """One name at a time: every name goes through the inner chain, and all must come out alike."""
    names = chooser.names(module, step.on)
    if not names:
        return None, "no such names for this module"
    answers, identities = [], []
    for name in names:
        part = replace(module, path=name)
        chooser.enter(part)
        answer = chooser.run(rule.inner, part)
        answers.append(answer)
        identities.append(_identity(chooser, step, answer))
    chooser.enter(module)
    if any(i != identities[0] for i in identities):
        # One name for every outcome says it; hundreds of experts would drown it.
        shown: dict[str, str] = {}
        for name, answer in zip(names, answers, strict=True):
            shown.setdefault(UNQUANTIZED if answer is None else answer.algorithm, name)
        if len(names) <= _ALL_SHOWN:
            outcomes = [UNQUANTIZED if a is None else a.algorithm for a in answers]
            told = [f"{n.rpartition('.')[2]} {o}" for n, o in zip(names, outcomes, strict=True)]
        else:
            told = [f"{n.removeprefix(module.path + '.')} {o}" for o, n in shown.items()]
        pairs = ", ".join(told)
        places = tuple(e for a in answers if a is not None for e in a.evidence)
        raise chooser.refusal(
            rule, module, f"`{module.path}` is declared in more than one way: {pairs}", "BL245", places
        )
    decided = next((a for a in answers if a is not None), None)
    return decided, f"no rule of `{step.chain}` decides its {len(names)} names"


def _identity(chooser: Chooser, step: t.Each, answer: Answer | None) -> list[Any]:
    """What must be the same for every name of `each`."""
    if not step.comparing:
        return [UNQUANTIZED if answer is None else answer.algorithm, said(answer)]
    group = answer.declared if answer is not None else None
    scope = group_scope(chooser, group if isinstance(group, dict) else {}, chooser.reading.scope.place)
    return [evaluate(e, scope) for e in step.comparing]


_ALL_SHOWN: Final = 6
_ACTIONS: Final[Mapping[type, Action]] = {
    t.Leave: _leave,
    t.Exclude: exclude,
    t.Take: _take,
    t.Each: _each,
    t.Default: _default,
    t.Refuse: _refuse,
}
