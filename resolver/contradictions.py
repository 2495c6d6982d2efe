"""What `verify` answers: contradictions between stored tensors and precision, folded over layers and experts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .entries import ancestors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .resolution import Resolution
    from .tensors import Tensors

SCHEMA: Final = "bitlane.verification/1"


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction, for every module of one kind.

    Attributes
    ----------
    code, kind
        BL601 ``index_disagrees``: stored at another precision than the engine builds.
        BL602 ``declared_disagrees``: stored at another precision than the listing says.
        BL603 ``scale_missing``: scales that the precision needs are not stored, or tensors do not fit one another.
        BL604 ``not_stored``: the engine builds a module that has no tensor.
        BL605 ``shape``: stored at another size than the config says.
        BL606 ``declared_unknown``: the listing names modules that have no tensor.
        BL607 ``files``: the files contradict one another.
    message
        One sentence.
    module
        The module's path with every index as ``*``.
    modules
        Loader-side paths (or declared names), in model order.
    resolved, stored
        The two precisions; empty where they are not the point.
    evidence
        Declarations behind the resolved precision.
    """

    code: str
    kind: str
    message: str
    module: str = ""
    modules: tuple[str, ...] = ()
    resolved: str = ""
    stored: str = ""
    evidence: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "code": self.code,
            "kind": self.kind,
            "message": self.message,
            "module": self.module,
            "count": len(self.modules),
            "modules": list(self.modules),
            "resolved": self.resolved,
            "stored": self.stored,
            "evidence": list(self.evidence),
        }


@dataclass(slots=True)
class Verification:
    """What was compared, and what contradicts; iterates over its findings."""

    resolution: Resolution
    tensors: Tensors
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract ``bitlane.verification/1``."""
        r = self.resolution
        return {
            "schema": SCHEMA,
            "checkpoint": r.checkpoint.name,
            "loader": r.loader,
            "loader_version": r.version,
            "system": r.system.name,
            "read": self.tensors.where,
            "files": list(self.tensors.files),
            "names_only": self.tensors.names_only,
            "tensors": len(self.tensors),
            "modules": len(r),
            "compared": self.compared,
            "findings": [f.to_dict() for f in self.findings],
            "notes": list(self.notes),
        }


def fold(path: str) -> str:
    """Write every index of a path as ``*``."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def below(parts: Mapping[str, Any], containers: set[str]) -> dict[str, list[str]]:
    """Return the modules stored at or below each container, in stored order."""
    out: dict[str, list[str]] = {}
    for owner in parts:
        for name in ancestors(owner):
            if name in containers:
                out.setdefault(name, []).append(owner)
    return out
