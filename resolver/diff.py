"""Two resolutions side by side: modules meet through the checkpoint-side names behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .contradictions import fold

if TYPE_CHECKING:
    from .resolution import Resolution, Resolved

SCHEMA: Final = "bitlane.diff/1"

# What the wrappers of one model call the same text stack; the longest prefix counts.
_WRAPPERS: Final = ("model.language_model.", "language_model.model.", "language_model.", "backbone.", "model.")


def bare(name: str) -> str:
    """Return a checkpoint-side name without the wrapper in front of the model's own parts."""
    for prefix in _WRAPPERS:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


@dataclass(frozen=True, slots=True)
class Side:
    """What one resolution says about a module, and why."""

    module: str
    algorithm: str
    activations: str
    lane: str
    rule: str
    rule_at: str
    evidence: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "module": self.module,
            "algorithm": self.algorithm,
            "activations": self.activations,
            "lane": self.lane,
            "rule": self.rule,
            "rule_at": self.rule_at,
            "evidence": list(self.evidence),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Checkpoint-side matrices that the two answers treat differently.

    Attributes
    ----------
    matrices
        Their names, as the first checkpoint spells them.
    what
        ``algorithm``, ``lane`` (same algorithm, another kernel) or ``fusion`` (same precision, other neighbours).
    a_matrices
        How many matrices the first side's module holds in all.
    """

    matrices: tuple[str, ...]
    kind: str
    what: str
    a: Side
    b: Side
    a_matrices: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "checkpoint_modules": list(self.matrices),
            "kind": self.kind,
            "what": self.what,
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
        }


@dataclass(slots=True)
class Diff:
    """What differs between two resolutions.

    Attributes
    ----------
    differences
        In the first resolution's model order.
    only_a, only_b
        Checkpoint-side names that one side alone builds.
    same
        Number of matrices that agree in algorithm and lane.
    """

    a: Resolution
    b: Resolution
    differences: list[Difference] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    same: int = 0

    def __bool__(self) -> bool:
        return bool(self.differences or self.kv_cache)

    @property
    def kv_cache(self) -> tuple[str, str] | None:
        """KV-cache precisions where the two answers differ."""
        pair = (self.a.kv_cache, self.b.kv_cache)
        return pair if pair[0] != pair[1] else None

    def folded(self) -> list[tuple[str, int, Difference]]:
        """Differences that say the same about the layers of one kind of module, with how many there are."""
        counts: Counter[tuple[str, ...]] = Counter()
        first: dict[tuple[str, ...], Difference] = {}
        for d in self.differences:
            names = fold(d.a.module), fold(d.b.module)
            key = (*names, d.what, d.a.algorithm, d.b.algorithm, d.a.lane, d.b.lane, d.a.rule, d.b.rule)
            counts[key] += 1
            first.setdefault(key, d)
        return [(key[0], counts[key], first[key]) for key in first]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract ``bitlane.diff/1``."""
        return {
            "schema": SCHEMA,
            "a": _head(self.a),
            "b": _head(self.b),
            "same": self.same,
            "kv_cache": list(self.kv_cache) if self.kv_cache else None,
            "differences": [d.to_dict() for d in self.differences],
            "only_a": self.only_a,
            "only_b": self.only_b,
        }


def _head(resolution: Resolution) -> dict[str, Any]:
    return {
        "checkpoint": resolution.checkpoint.name,
        "loader": resolution.loader,
        "loader_version": resolution.version,
        "system": resolution.system.name,
        "format": resolution.format,
        "kv_cache": resolution.kv_cache,
    }


def _matrices(resolution: Resolution) -> dict[str, tuple[str, Resolved]]:
    """Map every checkpoint-side matrix, wrapper aside, to its name and the row that holds it."""
    return {bare(name): (name, row) for row in resolution.rows for name in row.module.checkpoint}


def _side(row: Resolved) -> Side:
    a = row.answer
    return Side(row.module.path, a.algorithm, a.activations, row.lane.lane, a.rule, a.rule_at, a.evidence)


def diff(a: Resolution, b: Resolution, *, fusion: bool = False) -> Diff:
    """Compare two resolutions matrix by matrix.

    Engines name and fuse modules differently, so a module of one side is compared with every module of the other that
    holds a matrix of it; matrices of one pair of modules are told together.

    Parameters
    ----------
    fusion
        Report also modules that agree in precision but hold other matrices.

    Returns
    -------
    Diff
        Differences in the model order of ``a``.
    """
    out = Diff(a, b)
    mine, theirs = _matrices(a), _matrices(b)
    pairs: dict[tuple[int, int], list[str]] = {}
    rows: dict[tuple[int, int], tuple[Resolved, Resolved]] = {}
    for key, (name, row) in mine.items():
        if key not in theirs:
            out.only_a.append(name)
            continue
        other = theirs[key][1]
        pair = (id(row), id(other))
        pairs.setdefault(pair, []).append(name)
        rows[pair] = (row, other)
    out.only_b = [name for key, (name, _) in theirs.items() if key not in mine]
    for pair, names in pairs.items():
        row, other = rows[pair]
        what = _what(row, other, fusion)
        if what:
            sides = _side(row), _side(other)
            held = len(row.module.checkpoint)
            out.differences.append(Difference(tuple(names), row.module.kind, what, *sides, held))
        else:
            out.same += len(names)
    return out


def _what(a: Resolved, b: Resolved, fusion: bool) -> str:
    if a.answer.algorithm != b.answer.algorithm:
        return "algorithm"
    if a.lane.lane != b.lane.lane:
        return "lane"
    if fusion and {bare(n) for n in a.module.checkpoint} != {bare(n) for n in b.module.checkpoint}:
        return "fusion"
    return ""
