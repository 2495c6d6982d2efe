"""Steps that look names up among the targets of groups, and the schemes that say what a group is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers import UNQUANTIZED, Answer, Hit
from .declarations import locate
from .expressions import Scope, evaluate
from .listed import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..grammar import tree as t
    from .loader import Rule
    from .modules import Module
    from .question import Question


def take_group(question: Question, rule: Rule, match: t.Match, module: Module) -> tuple[Answer | None, str]:
    """Try a `take group` step: the scheme of the group whose target names the module."""
    declared = question.declared
    entries = declared.groups
    names = question.names(module, match.on)
    if not names:
        return None, "no such names for this module"
    if match.named:
        # Targets that count by their own wording, whatever module it is.
        hits = [Hit([p] if (p := entries.exact(n)) >= 0 else [], (n,)) for n in match.named]
    elif match.by == ("descendant",) and match.quantifier == "agree":
        hits = [Hit([p], (entries.texts[p],)) for n in names for p in entries.descendants(n)]
    else:
        hits = find(match, entries, names)
    found = [h for h in hits if h.positions]
    if not found:
        return None, f"no target matches ({len(entries)} targets)"
    quantifier = match.quantifier or "any"
    if quantifier in ("all", "all_or_refuse", "agree") and len(found) < len(hits):
        if quantifier == "all":
            return None, f"{len(found)} of {len(hits)} shards have a target"
        raise question.refusal(
            rule,
            module,
            f"some but not all shards of `{module.path}` have a target",
            "BL244",
            tuple(declared.group_at[h.first] for h in found),
        )
    counting = found if quantifier in ("agree", "all_or_refuse") else found[:1]
    answers = [
        _classified(
            question,
            rule,
            module,
            declared.group_of[h.first],
            declared.group_at[h.first],
            entries.texts[h.first],
        )
        for h in counting
    ]
    if len({(a.algorithm, a.activations) for a in answers}) > 1:
        pairs = ", ".join(f"{h.tried[0].rpartition('.')[2]} {a.algorithm}" for h, a in zip(found, answers, strict=True))
        raise question.refusal(
            rule,
            module,
            f"`{module.path}` is declared with more than one scheme: {pairs}",
            "BL245",
            tuple(declared.group_at[h.first] for h in found),
        )
    question.matched.update(("groups", h.first) for h in found)
    return answers[0], ""


def default_group(question: Question, rule: Rule, path: str, module: Module) -> tuple[Answer | None, str]:
    """Try a `default group` step: the scheme of the object that stands at a path of the metadata."""
    group, place = locate(question.reading, path)
    if not isinstance(group, dict):
        return None, f"no object at {place}"
    return _classified(question, rule, module, group, place, ""), ""


def group_scope(question: Question, group: Mapping[str, Any], place: str) -> Scope:
    """Names for an expression about a group: its own keys bare, the metadata block as ``block``."""
    outer = question.reading.scope
    scope = Scope(group, {**outer.roots, "block": question.reading.block or {}}, outer.lets, place)
    scope.values = outer.values
    return scope


def _classified(
    question: Question, rule: Rule, module: Module, group: Mapping[str, Any], place: str, target: str
) -> Answer:
    row = _row(question, group, place, target, module.kind)
    if row is None:
        raise question.refusal(rule, module, "no scheme fits the group that targets it", "BL247", (place,))
    if row.outcome.refusal is not None:
        raise question.refusal(rule, module, row.outcome.refusal, "BL247", (place,))
    note = f"target `{target}`" if target else "no rule before it decided"
    algorithm = row.outcome.algorithm or UNQUANTIZED
    return question.answer(rule, algorithm, row.outcome.activations, (place,), note, group)


def _row(question: Question, group: Mapping[str, Any], place: str, target: str, kind: str) -> t.Scheme | None:
    """Return the first scheme that fits; remembered per group and kind where none looks at the module."""
    key = (place, kind)
    if key in question.rows:
        found = question.rows[key]
    else:
        scope = group_scope(question, group, place)
        scope.values = {**scope.values, "target": target}
        found, static = None, True
        for row in question.reading.format.schemes if question.reading.format is not None else ():
            if row.kinds and kind not in row.kinds:
                continue
            if row.when is not None:
                static = static and id(row.when) not in question.volatile
                if not evaluate(row.when, scope):
                    continue
            found = row
            break
        if static:
            question.rows[key] = found
    if found is not None and question.watch is not None:
        question.watch(found, True)
    return found
