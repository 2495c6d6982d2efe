"""From what a loader builds to what a GPU runs: the lane rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError
from ..grammar import tree as t
from .expressions import Scope, evaluate
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ..rules.library import Library, Placed


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """A lane and the rule that chose it."""

    lane: str
    rule_at: str
    approximates: bool = False


class Lanes:
    """Chooses lanes for one loader, version and system; memoised, since few questions differ."""

    def __init__(self, library: Library, loader: str, version: str, sm: int | None, system: str) -> None:
        self._lanes: list[tuple[t.Lane | t.Refuse, Placed]] = []
        self._weights: dict[str, t.Weights] = {}
        for placed in library.lanes():
            item = placed.item
            if isinstance(item, (t.Lane, t.Refuse)) and holds(item, version):
                self._lanes.append((item, placed))
            elif isinstance(item, t.Weights) and holds(item, version):
                self._weights.setdefault(item.name, item)
        self._base = {"loader": loader, "version": version, "sm": sm, "system": system}
        self._memo: dict[tuple[str, str, str, str], LaneAnswer] = {}

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
        CheckpointError
            BL260: the hardware or the engine cannot run it, or no lane rule covers it.
        """
        key = (algorithm, activations, kind, format)
        if extra is None and key in self._memo:
            return self._memo[key]
        scope = Scope({}, {}, {}, "lanes.rules")
        scope.values.update(
            self._base, algorithm=algorithm, activations=activations, kind=kind, format=format, **(extra or {})
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

    def bytes_per_weight(self, lane: str) -> float:
        """Return stored bytes per weight of a lane, scales included.

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
        value = evaluate(rule.bytes_per_weight, Scope({}, {}, {}, "lanes.rules"))
        return float(value)
