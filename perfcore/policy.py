"""The declared donors and lane costs of policy.yaml, checked and typed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH: Final = Path(__file__).with_name("policy.yaml")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a lane moves and computes: bytes per weight, bytes per activation element, name of its peak."""

    weight: float
    activation: float
    peak: str


@dataclass(frozen=True, slots=True)
class Donor:
    """Rows of another mode that may be scaled; ``nearest`` allows another model shape."""

    rows: str
    nearest: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """How a table answers for one lane.

    Attributes
    ----------
    rows
        Mode of the lane's own rows.
    minus
        (base mode, difference table), or None.
    same_as
        Mode whose rows time the same kernel, or empty.
    donors
        Other modes in order.
    """

    rows: str
    minus: tuple[str, str] | None = None
    same_as: str = ""
    donors: tuple[Donor, ...] = ()


class Policy:
    """The policy file as lookups."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.routing: str = data["routing_distribution"]
        self.costs = {name: Cost(c["weight"], c["activation"], c["peak"]) for name, c in data["costs"].items()}
        self.lanes = {
            kind: {name: _lane(name, entry) for name, entry in lanes.items()} for kind, lanes in data["lanes"].items()
        }
        self.costs.setdefault("bf16", self.costs["bfloat16"])
        self.costs.setdefault("fp8_dynamic", self.costs["fp8"])

    def lane(self, kind: str, name: str) -> Lane:
        """Return a lane's entry.

        Raises
        ------
        UsageError
            BL520: the policy does not know the lane.
        """
        lanes = self.lanes[kind]
        if name not in lanes:
            raise UsageError(
                "BL520",
                f"unknown lane `{name}` for {kind}",
                place="perfcore/policy.yaml",
                help=f"known: {', '.join(sorted(lanes))}; a new lane is an entry there",
            )
        return lanes[name]

    def cost(self, name: str) -> Cost:
        """Return a lane's or table mode's cost.

        Raises
        ------
        UsageError
            BL520: the policy does not know it.
        """
        if name not in self.costs:
            raise UsageError("BL520", f"no cost is declared for lane `{name}`", place="perfcore/policy.yaml")
        return self.costs[name]

    def band(self, table: str, rung: str) -> tuple[float, float]:
        """Return the 5 % and 95 % factors of prices made by a rung of the ladder."""
        bands = self.data["transfer_bands"]
        low, high = bands.get(f"{table}/{rung}") or bands[rung]
        return float(low), float(high)

    def versions(self, asked: str, present: list[str]) -> list[str]:
        """Order the other versions: older ones nearest first, then newer ones nearest first."""
        mine = version_key(asked)
        older = sorted((v for v in present if version_key(v) < mine), key=version_key, reverse=True)
        newer = sorted((v for v in present if version_key(v) > mine), key=version_key)
        ways = {"older_nearest": older, "newer_nearest": newer}
        return [version for way in self.data["versions"]["order"] for version in ways[way]]


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key of a version: numbers by value, a pre-release before its release."""
    parts: list[tuple[int, int, str]] = []
    for field in version.replace("-", ".").split("."):
        digits = field[: len(field) - len(field.lstrip("0123456789"))]
        rest = field[len(digits) :]
        parts.append((1, int(digits or 0), ""))
        if rest:
            word = rest.rstrip("0123456789")
            parts += [(0, 0, word), (0, int(rest[len(word) :] or 0), "")]
    return (*parts, (0, 1, ""))


def _lane(name: str, entry: Mapping[str, Any] | None) -> Lane:
    entry = entry or {}
    minus = entry.get("minus")
    return Lane(
        rows=entry.get("rows", name),
        minus=(minus["base"], minus["table"]) if minus else None,
        same_as=entry.get("same_as", ""),
        donors=tuple(Donor(d["rows"], d.get("shape") == "nearest") for d in entry.get("donors", ())),
    )


@functools.cache
def load() -> Policy:
    """Read the packaged policy."""
    from .store import parsed_yaml

    return Policy(parsed_yaml(PATH))
