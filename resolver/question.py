"""One module put to one loader's reading: the names it goes by, the conditions that hold, how answers are worded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grammar import text
from ..grammar import tree as t
from .answers import SPEC, Answer, RefusalError, activations
from .bound import Binder
from .entries import Entries
from .experts import numbers
from .targets import named
from .values import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .declarations import Declarations
    from .loader import Rule
    from .modules import Module
    from .reading import Reading


class Question:
    """What every step of a chain is asked with: the metadata as it is read, and the module in question.

    Parameters
    ----------
    packed
        Fused names that the loader's quantization config knows, with their shards.

    Attributes
    ----------
    matched
        Kind and position of every declaration that decided something.
    watch
        Called with each rule or row that was tried, and whether it decided.
    """

    __slots__ = (
        "_binder",
        "_experts",
        "_named",
        "_names",
        "_rule_texts",
        "_spelled",
        "_tests",
        "declared",
        "matched",
        "packed",
        "reading",
        "rows",
        "volatile",
        "watch",
    )

    def __init__(self, reading: Reading, declared: Declarations, packed: Mapping[str, tuple[str, ...]]) -> None:
        self.reading = reading
        self.declared = declared
        self.packed = packed
        self.volatile = reading.format.volatile if reading.format is not None else frozenset()
        self.matched: set[tuple[str, int]] = set()
        self.watch: Callable[[Rule | t.Node, bool], None] | None = None
        self.rows: dict[tuple[str, str], t.Scheme | None] = {}
        self._binder = Binder(reading.scope)
        self._tests: dict[int, Callable[[], Any]] = {}
        self._named: dict[int, Entries] = {}
        self._names: dict[tuple[str, ...], list[str]] = {}
        self._experts: dict[tuple[str, int, bool], list[str]] = {}
        self._spelled: dict[str, tuple[str, ...]] = {}
        self._rule_texts: dict[int, str] = {}

    def enter(self, module: Module) -> None:
        """Make a module the one that rules speak of."""
        self._names.clear()
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

    # --- conditions ---------------------------------------------------------

    def test(self, when: t.Expr) -> Callable[[], Any]:
        """Return a condition as a call; what names no property of modules is worked out once."""
        key = id(when)
        if key not in self._tests:
            self._tests[key] = self._binder.bind(when)
        return self._tests[key]

    # --- names --------------------------------------------------------------

    def targets(self, module: Module, on: str) -> list[str]:
        """Return the texts that ``on`` names for a module; empty when it has none."""
        return named(module, on, self.packed, self.reading.loader)

    def names(self, module: Module, on: tuple[str, ...]) -> list[str]:
        """Return the texts that a rule is tried on, for the module that was entered."""
        found = self._names.get(on)
        if found is None:
            found = self._names[on] = [n for o in on for n in self._named_on(module, o)]
        return found

    def _named_on(self, module: Module, on: str) -> list[str]:
        return self._any_expert(module) if on == "any_expert" else self.targets(module, on)

    def _any_expert(self, module: Module) -> list[str]:
        if module.kind != "experts":
            return []
        count, gated = module.attributes.get("count", 1), bool(module.attributes.get("gated"))
        key = module.name, count, gated
        if key not in self._experts:
            texts = [*self.declared.exclusions.texts, *self.declared.groups.texts]
            known = self.matrices(module)
            # The names that the checkpoint uses, where it says any.
            leaves = next((m for m in known if any(leaf in text for text in texts for leaf in m)), (known or [()])[0])
            self._experts[key] = [f"{n}.{leaf}" for n in numbers(texts, module.name, count) for leaf in leaves]
        return [f"{module.path}.{tail}" for tail in self._experts[key]]

    def matrices(self, module: Module) -> list[tuple[str, ...]]:
        """The matrices of one expert, as each `builtin expert0...` names them: the gate, where there is one, first."""
        known = [m for name, m in self.reading.loader.builtin.items() if name.startswith("expert0")]
        return known if module.attributes.get("gated") else [m[1:] for m in known]

    def spellings(self, path: str) -> tuple[str, ...]:
        """Return a path and the other spellings under which listings are searched, in order."""
        found = self._spelled.get(path)
        if found is None:
            found = self._spelled[path] = self.reading.loader.spellings(path)
        return found

    def own_entries(self, step: t.Exclude) -> Entries:
        """The patterns that a rule names itself."""
        found = self._named.get(id(step))
        if found is None:
            found = self._named[id(step)] = Entries(step.match.named)
        return found

    # --- words --------------------------------------------------------------

    def name(self, rule: Rule) -> str:
        """The rule as it is written, without its conditions."""
        key = id(rule.step)
        if key not in self._rule_texts:
            self._rule_texts[key] = text.step(rule.step, bare=True)
        return self._rule_texts[key]

    def answer(
        self,
        rule: Rule,
        algorithm: str,
        acts: str | None,
        evidence: tuple[str, ...],
        note: str,
        declared: object = None,
    ) -> Answer:
        """Return the answer that a rule gives."""
        return Answer(algorithm, acts or activations(algorithm), self.name(rule), rule.place, evidence, note, declared)

    def refusal(
        self, rule: Rule, module: Module, message: str, code: str = "BL240", evidence: tuple[str, ...] = ()
    ) -> RefusalError:
        """Return the error with which a loader stops at a module."""
        loader = self.reading.loader
        place = f"{module.path} ({rule.place}" + (f"; {', '.join(evidence[:3])})" if evidence else ")")
        return RefusalError(
            code,
            message,
            place=place,
            help="make the declarations of this module agree"
            if loader.name == SPEC
            else f"{loader.name} {loader.version} stops here; make the declarations of this module agree, "
            f"or compare with `--loader {SPEC}`",
        )
