"""From what a loader builds to what a GPU runs: the lane rules, and the rules of splits that stand beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError, RuleError, UsageError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from .expressions import Scope, evaluate, names_used
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.library import Library, Placed


# A refusal that names one of these is about a split: it is asked when the split is known, not when a lane is chosen.
SPLIT: Final = frozenset({"tp", "ep", "dp", "pp", "moe_tp"})


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """A lane and the rule that chose it."""

    lane: str
    rule_at: str
    approximates: bool = False


class Lanes:
    """Chooses lanes for one loader, version and system; memoised, since few questions differ."""

    def __init__(
        self, library: Library, loader: str, version: str, sm: int | None, system: str, family: str = ""
    ) -> None:
        self._lanes: list[tuple[t.Lane | t.Refuse, Placed]] = []
        self._weights: dict[str, t.Weights] = {}
        self._splits: list[tuple[t.Refuse, Placed]] = []
        statements = library.lanes()
        self._lets: dict[str, t.Expr] = {}
        for placed in statements:
            item = placed.item
            if isinstance(item, t.Let) and holds(item, version):
                self._lets.setdefault(item.name, item.value)
        for placed in statements:
            item = placed.item
            if isinstance(item, t.Refuse) and holds(item, version) and self._about_splits(item):
                self._splits.append((item, placed))
            elif isinstance(item, (t.Lane, t.Refuse)) and holds(item, version):
                self._lanes.append((item, placed))
            elif isinstance(item, t.Weights) and holds(item, version):
                self._weights.setdefault(item.name, item)
        self._base = {"loader": loader, "version": version, "sm": sm, "system": system, "family": family}
        self._memo: dict[tuple[str, str, str, str], LaneAnswer] = {}

    def _about_splits(self, rule: t.Refuse) -> bool:
        return rule.when is not None and bool(names_used(rule.when, self._lets) & SPLIT)

    def _scope(self, values: Mapping[str, Any]) -> Scope:
        scope = Scope({}, {}, self._lets, "lanes.rules")
        scope.values.update(self._base, **values)
        return scope

    def choose(
        self, algorithm: str, activations: str, kind: str, format: str, extra: Mapping[str, Any] | None = None
    ) -> LaneAnswer:
        """Return the lane of an algorithm.

        Parameters
        ----------
        kind
            Module kind (``linear``, ``experts``, ``lm_head``, ``embed``).
        format
            Name of the metadata format, since some kernels depend on it.

        Raises
        ------
        UsageError
            BL262: no lane is known for an algorithm of that name on any hardware.
        CheckpointError
            BL260: the hardware or the engine cannot run it, or no lane rule covers it.
        """
        key = (algorithm, activations, kind, format)
        if extra is None and key in self._memo:
            return self._memo[key]
        known = {a for rule, _ in self._lanes if isinstance(rule, t.Lane) for a in rule.algorithms}
        if algorithm not in known:
            raise UsageError(
                "BL262",
                f"unknown algorithm `{algorithm}`",
                place="lanes.rules",
                help=nearest(algorithm, known) or "known: " + ", ".join(sorted(known)),
            )
        scope = self._scope(
            {"algorithm": algorithm, "activations": activations, "kind": kind, "format": format, **(extra or {})}
        )
        for rule, placed in self._lanes:
            if rule.kinds and kind not in rule.kinds:
                continue
            if isinstance(rule, t.Lane) and algorithm not in rule.algorithms:
                continue
            if rule.when is not None and not evaluate(rule.when, scope):
                continue
            place = f"{placed.file}:{rule.at.line}"
            if isinstance(rule, t.Refuse):
                raise CheckpointError(
                    rule.code or "BL260",
                    rule.message,
                    place=f"{algorithm} {kind} on {self._base['system']} (by {place})",
                    help="choose another system or loader",
                )
            answer = LaneAnswer(rule.name, place, rule.approximates)
            if extra is None:
                self._memo[key] = answer
            return answer
        raise CheckpointError(
            "BL260",
            f"no lane is known for `{algorithm}` {kind} modules under {self._base['loader']} on sm{self._base['sm']}",
            place="lanes.rules",
            help="add a `lane NAME from ALGORITHM` rule",
        )

    def check_split(self, kind: str, values: Mapping[str, Any], what: str) -> None:
        """Refuse a split that the engine refuses.

        Parameters
        ----------
        kind
            ``model`` for the whole model, else a module kind.
        values
            Names that the rules may use: the parallel sizes, and what is split.
        what
            The thing that cannot be split, for the message.

        Raises
        ------
        UsageError
            BL225: a rule about splits holds; the message is the engine's reason.
        """
        scope = self._scope({"kind": kind, **values})
        for rule, placed in self._splits:
            if rule.kinds and kind not in rule.kinds:
                continue
            if rule.when is not None and evaluate(rule.when, scope):
                sizes = ", ".join(f"{n} {values[n]}" for n in ("tp", "ep", "dp", "pp") if values.get(n, 1) > 1)
                raise UsageError(
                    rule.code or "BL225",
                    f"{self._base['loader']} {self._base['version']} refuses {sizes} for {what}: {rule.message}",
                    place=f"{placed.file}:{rule.at.line}",
                    help="choose another split",
                )

    def number(self, name: str, values: Mapping[str, Any]) -> int:
        """Evaluate a ``let`` of the lane files that must come out as a whole number.

        Raises
        ------
        RuleError
            BL262: there is no such ``let``, or its value is no whole number.
        """
        if name not in self._lets:
            raise RuleError("BL262", f"no `let {name}`", place="lanes.rules", help="an overlay of lanes may define it")
        found = evaluate(self._lets[name], self._scope(values))
        if isinstance(found, bool) or not isinstance(found, (int, float)) or found != int(found) or found < 0:
            raise RuleError("BL262", f"`{name}` is {found}", place="lanes.rules", help="it must be a whole number")
        return int(found)

    def bytes_per_weight(self, lane: str, values: Mapping[str, Any]) -> float:
        """Return stored bytes per weight of a lane, scales included.

        Parameters
        ----------
        values
            Names that the rules may use: ``out`` and ``into`` of the stored matrix, ``activations``, and what the
            metadata says about groups and blocks (``declared``).

        Raises
        ------
        CheckpointError
            BL261: no `weights` rule for the lane.
        """
        rule = self._weights.get(lane)
        if rule is None:
            raise CheckpointError(
                "BL261",
                f"no stored size is known for lane `{lane}`",
                place="lanes.rules",
                help="add `weights LANE = BYTES`",
            )
        return float(evaluate(rule.bytes_per_weight, self._scope(values)))
