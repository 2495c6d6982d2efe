"""The chain of one module: every rule tried, what it matched, why the winner won."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from ..grammar.diagnostics import nearest
from .answers import RefusalError, Tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answers import Answer
    from .resolution import Resolution, Resolved


# What tensors of one module are called, after its name.
_TENSORS: Final = (".weight", ".qweight", ".weight_scale", ".weight_scale_2", ".weight_scale_inv", ".input_scale")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one module runs as it does."""

    row: Resolved
    answer: Answer | None
    tried: tuple[Tried, ...]
    nearest_listed: tuple[tuple[str, str], ...]
    refusal: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema": "bitlane.explanation/1",
            **self.row.to_dict(),
            "chain": [{"rule": t.rule, "at": t.place, "won": t.won, "note": t.note} for t in self.tried],
            "nearest_listed": [{"name": n, "algorithm": a} for n, a in self.nearest_listed],
        }


def find_module(resolution: Resolution, name: str) -> list[Resolved]:
    """Find modules by loader-side path, checkpoint-side path, or any dotted tail of either.

    Raises
    ------
    UsageError
        BL229: none of that name.
    """
    rows = resolution.rows
    found = [r for r in rows if name in (r.module.path, *r.module.checkpoint)]
    found = found or [r for r in rows if any(p.endswith("." + name) for p in (r.module.path, *r.module.checkpoint))]
    found = found or _of_experts(rows, name)
    if found:
        return found
    tensor = name.rpartition(".")[0]
    if name.endswith(_TENSORS) and tensor:
        return find_module(resolution, tensor)
    names = [r.module.path for r in rows]
    hint = (
        nearest(name, names)
        or nearest(name, [n.partition(".layers.")[2] for n in names])
        or "`bitlane resolve` lists the modules"
    )
    raise UsageError("BL229", f"no module `{name}`", place=resolution.checkpoint.name, help=hint)


def _of_experts(rows: Sequence[Resolved], name: str) -> list[Resolved]:
    """The experts module that ``experts.7.up_proj`` is a part of: engines decide all of them together."""
    head, sep, tail = name.rpartition(".experts.")
    number = tail.partition(".")[0]
    if not sep or not (number.isascii() and number.isdigit()):
        return []
    wanted = f"{head}.experts"
    experts = [r for r in rows if r.module.kind == "experts" and int(number) < r.module.attributes.get("count", 0)]
    exact = [r for r in experts if wanted in (r.module.path, *r.module.checkpoint)]
    return exact or [r for r in experts if any(p.endswith("." + wanted) for p in (r.module.path, *r.module.checkpoint))]


def explain(resolution: Resolution, name: str) -> list[Explanation]:
    """Explain one module, or all that share a name."""
    return [_one(resolution, row) for row in find_module(resolution, name)]


def _one(resolution: Resolution, row: Resolved) -> Explanation:
    trace: list[Tried] = []
    refusal = ""
    answer: Answer | None = None
    if row.answer.rule_at == "command line":
        return Explanation(row, row.answer, (Tried(row.answer.rule, "command line", True, row.answer.note),), ())
    try:
        answer = resolution.chooser.decide(row.module, trace)
    except RefusalError as error:
        refusal = error.message
    return Explanation(row, answer, tuple(trace), _neighbours(resolution, row), refusal)


def _neighbours(resolution: Resolution, row: Resolved) -> tuple[tuple[str, str], ...]:
    """Listed names under the same parent: what a reader expected to find."""
    declared = resolution.chooser.declared
    if row.answer.rule.startswith("take") or not len(declared.listing):
        return ()
    parents = {p.rpartition(".")[0] for p in resolution.reading.loader.spellings(row.module.path)}
    out = []
    for parent in sorted(p for p in parents if p):
        out += [(declared.listing.texts[i], str(declared.listed[i])) for i in declared.listing.descendants(parent)[:6]]
    return tuple(out[:6])
