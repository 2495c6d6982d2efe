"""Lane rules: names that conditions may use, rules that nothing reaches, lanes without a size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.format import walk
from ..grammar.logic import constant
from ..grammar.reach import wider
from .lint_expressions import calls, expressions, heads
from .lint_values import SPELLINGS, comparisons, literals
from .vocabulary import ACTIVATIONS, LANE_VALUES, MODULE_KINDS, Vocabulary

if TYPE_CHECKING:
    from ..grammar.findings import Findings
    from ..rules.library import RuleFile

# What is always a number; `experts`, `stage` and the sizes of a module are there only where a split is judged.
_NUMBERS: Final = frozenset({"sm", "tp", "ep", "dp", "pp", "moe_tp", "layers"})
_WORDS: Final = {
    "kind": (*MODULE_KINDS, "model"),
    "activations": ("", *ACTIVATIONS),
    "phase": ("prefill", "decode"),
}


def lint_lanes(file: RuleFile, vocabulary: Vocabulary, findings: Findings) -> None:
    """Check one lanes file, or an extension of it."""
    tree = file.tree()
    own = {id(n) for n in tree.items}
    merged = [p.item for p in vocabulary.library.lanes()]
    known = LANE_VALUES | {i.name for i in merged if isinstance(i, t.Let)}
    for node in walk(tree):
        for expression in expressions(node):
            calls(expression, findings)
            literals(expression, findings)
            comparisons(expression, findings, _NUMBERS, _WORDS)
            for ref, head in heads(expression):
                if head not in known and ref.path not in SPELLINGS:
                    hint = nearest(head, known) or "known: " + ", ".join(sorted(known))
                    findings.add("BL110", f"unknown name `{head}`", ref, ref.path, hint)
        for kind in getattr(node, "kinds", ()):
            if kind not in (*MODULE_KINDS, "model"):
                hint = nearest(kind, MODULE_KINDS) or "known: " + ", ".join(MODULE_KINDS)
                findings.add("BL110", f"unknown module kind `{kind}`", node, kind, hint)
    rules = [i for i in merged if isinstance(i, (t.Lane, t.Refuse))]
    for position, later in enumerate(rules):
        earlier = next((r for r in rules[:position] if _covers(r, later)), None)
        if constant(later.when) is False:
            continue
        if earlier is not None and id(later) in own:
            related = (earlier, "this one decides before") if id(earlier) in own else None
            findings.add("BL111", "nothing is left for this rule", later, help="put it before", related=related)
    sized = {i.name for i in merged if isinstance(i, t.Weights)}
    for item in tree.items:
        if isinstance(item, t.Lane) and item.name not in sized:
            message = f"no `weights {item.name}` gives its bytes per weight"
            findings.add("BL129", message, item, item.name, "add `weights LANE = BYTES`, scales included")


def _covers(earlier: t.Lane | t.Refuse, later: t.Lane | t.Refuse) -> bool:
    if isinstance(earlier, t.Lane):
        asked = set(later.algorithms) if isinstance(later, t.Lane) else set()
        if not asked or not asked <= set(earlier.algorithms):
            return False
    return wider(earlier, later)
