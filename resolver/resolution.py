"""The answer for a whole checkpoint: one row a module, and what was noticed on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .answers import Answer
    from .checkpoint import Checkpoint
    from .decide import Chooser
    from .family import Family
    from .lanes import LaneAnswer, Lanes
    from .modules import Module
    from .reading import Reading
    from .systems import System

SCHEMA = "bitlane.resolution/1"


@dataclass(frozen=True, slots=True)
class Resolved:
    """One module with its answer and lane."""

    module: Module
    answer: Answer
    lane: LaneAnswer

    def to_dict(self) -> dict[str, Any]:
        """Return the row of the JSON contract."""
        m, a = self.module, self.answer
        row: dict[str, Any] = {
            "module": m.path,
            "checkpoint_modules": list(m.checkpoint),
            "layer": m.layer if m.layer >= 0 else None,
            "kind": m.kind,
            "op": m.op,
            "shape": m.shape,
            "algorithm": a.algorithm,
            "activations": a.activations,
            "lane": self.lane.lane,
            "rule": a.rule,
            "rule_at": a.rule_at,
            "lane_rule_at": self.lane.rule_at,
            "evidence": list(a.evidence),
        }
        if m.kind == "experts":
            row["n_experts"] = m.attributes.get("count")
        if a.note:
            row["note"] = a.note
        return row


@dataclass(slots=True)
class Problem:
    """Something worth telling that does not change an answer."""

    code: str
    message: str
    modules: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"code": self.code, "message": self.message, "modules": list(self.modules)}


@dataclass(slots=True)
class Resolution:
    """What every module of a checkpoint runs at, under one loader, version and system."""

    checkpoint: Checkpoint
    reading: Reading
    family: Family
    system: System
    rows: list[Resolved]
    chooser: Chooser
    kv_cache: str = "auto"
    problems: list[Problem] = field(default_factory=list)
    explicit: Mapping[str, str] = field(default_factory=dict)
    lanes: Lanes = field(kw_only=True)

    def __iter__(self) -> Iterator[Resolved]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, path: str) -> Resolved:
        """Return the row of a loader-side module path."""
        for row in self.rows:
            if row.module.path == path:
                return row
        raise KeyError(path)

    @property
    def loader(self) -> str:
        """Loader name."""
        return self.reading.loader.name

    @property
    def version(self) -> str:
        """Loader version."""
        return self.reading.loader.version

    @property
    def format(self) -> str:
        """Name of the metadata format, ``unquantized`` when there is none."""
        return self.reading.name

    def unmatched(self) -> list[dict[str, Any]]:
        """Declarations that meet no module of the family."""
        from .unmatched import unmatched

        return unmatched(self.chooser, [r.module for r in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract ``bitlane.resolution/1``."""
        loose = self.unmatched()
        problems = [p.to_dict() for p in self.problems]
        return {
            "schema": SCHEMA,
            "checkpoint": {
                "name": self.checkpoint.name,
                "architecture": self.checkpoint.architecture,
                "files": sorted(self.checkpoint.files),
                "digest": self.checkpoint.digest,
                "read": self.reading.at if self.reading.block is not None else None,
                "format": self.format,
            },
            "loader": self.loader,
            "loader_version": self.version,
            "system": self.system.name,
            "sm": self.system.sm,
            "family": self.family.name,
            "kv_cache": self.kv_cache,
            "explicit": dict(self.explicit),
            "modules": [r.to_dict() for r in self.rows],
            "unmatched": loose,
            "problems": problems,
        }
