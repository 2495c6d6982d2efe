"""Steps that look names up in lists: exclusions, and the listing with its algorithm words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grammar import tree as t
from .answers import UNQUANTIZED, Answer, Hit, shown
from .experts import named_experts
from .metadata import json_kind
from .values import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .entries import Entries
    from .loader import Rule
    from .modules import Module
    from .question import Question

Tried = tuple[Answer | None, str]


def find(match: t.Match, entries: Entries, names: list[str]) -> list[Hit]:
    """Look up each name under every pattern kind; the entry that comes first in the list counts."""
    out = []
    for name in names:
        first = -1
        for kind in match.by:
            found = entries.find(kind, name, match.containing, match.ending)
            if found >= 0 and (first < 0 or found < first):
                first = found
        out.append(Hit([first] if first >= 0 else [], (name,)))
    return out


# --- exclusions ---------------------------------------------------------------


def exclude(question: Question, rule: Rule, step: t.Exclude, module: Module) -> Tried:
    """Try an `exclude` step: an answer, or what it did not find."""
    match, declared = step.match, question.declared
    entries = declared.listing if step.unlisted else declared.exclusions
    at = declared.listing_at if step.unlisted else declared.exclusion_at
    names = question.names(module, match.on)
    if not names:
        return None, "no such names for this module"
    if match.named:
        entries = question.own_entries(step)
        hits = find(t.Match(by=("glob",), on=match.on), entries, names)
    elif match.quantifier == "complete_or_refuse":
        hits = _experts(question, rule, module, entries, at, names)
    else:
        hits = find(match, entries, names)
    found = [h for h in hits if h.positions]
    if step.unlisted and not found:
        return question.answer(rule, UNQUANTIZED, "none", (), "no listed name occurs in it"), ""
    if not found:
        return None, f"no entry matches ({len(entries)} entries)"
    quantifier = match.quantifier if match.quantifier is not None and not match.named else "any"
    if step.unlisted and (quantifier == "any" or len(found) == len(hits)):
        return None, f"`{entries.texts[found[0].first]}` matches {shown(found)}"
    if quantifier not in ("any", "complete_or_refuse") and len(found) < len(hits):
        if quantifier == "all":
            return None, f"{len(found)} of {len(hits)} shards are listed"
        places = tuple(at[h.first] for h in found)
        missing = ", ".join(h.tried[0].rpartition(".")[2] for h in hits if not h.positions)
        listed = ", ".join(h.tried[0].rpartition(".")[2] for h in found)
        raise question.refusal(
            rule,
            module,
            f"some but not all shards of `{module.path}` are excluded: {listed} listed, {missing} not",
            "BL244",
            places,
        )
    outcome = step.outcome
    if outcome is not None and outcome.refusal is not None:
        raise question.refusal(rule, module, outcome.refusal)
    note = f"`{entries.texts[found[0].first]}` matches {shown(found)}"
    if match.named:
        evidence: tuple[str, ...] = ()
    else:
        evidence = tuple(dict.fromkeys(declared.exclusion_at[h.first] for h in found))
        question.matched.update(("exclusions", h.first) for h in found)
    algorithm = outcome.algorithm if outcome is not None and outcome.algorithm else UNQUANTIZED
    return question.answer(rule, algorithm, outcome.activations if outcome is not None else None, evidence, note), ""


# --- the listing --------------------------------------------------------------


def take_listed(question: Question, rule: Rule, match: t.Match, module: Module) -> Tried:
    """Try a `take listing` step: the algorithm of what is listed, or what it did not find."""
    declared = question.declared
    listing = declared.listing
    names = question.names(module, match.on)
    if not names:
        return None, "no such names for this module"
    if match.quantifier == "complete_or_refuse":
        spelled = [s for n in names for s in question.spellings(n)]
        hits = _experts(question, rule, module, listing, declared.listing_at, spelled)
    else:
        hits = _together(question, match, names)
    found = [h for h in hits if h.positions]
    if not found:
        many = len(spelled if match.quantifier == "complete_or_refuse" else names)
        return None, f"not listed ({len(listing)} entries)" if many == 1 else f"0 of {many} shards listed"
    quantifier = match.quantifier or "listed_agree"
    if quantifier in ("all", "all_or_refuse") and len(found) < len(hits):
        if quantifier == "all":
            return None, f"{len(found)} of {len(hits)} shards listed"
        places = tuple(declared.listing_at[h.first] for h in found)
        raise question.refusal(rule, module, f"some but not all shards of `{module.path}` are listed", "BL244", places)
    positions = [p for h in found for p in h.positions]
    if quantifier == "first":
        positions = positions[:1]
    words = [_word(question, rule, module, p) for p in positions]
    if quantifier == "agree" and len(found) < len(hits):
        words.append("unlisted")
    different = len(set(words)) > 1
    if quantifier == "alike" and (different or len(found) < len(hits)):
        return None, f"{len(found)} of {len(hits)} shards listed, as {', '.join(dict.fromkeys(words))}"
    if different:
        pairs = ", ".join(f"{listing.texts[p].rpartition('.')[2]} {w}" for p, w in zip(positions, words, strict=False))
        raise question.refusal(
            rule,
            module,
            f"`{module.path}` is declared with more than one algorithm: {pairs}",
            "BL245",
            tuple(declared.listing_at[p] for p in positions),
        )
    question.matched.update(("listing", p) for p in positions)
    evidence = tuple(declared.listing_at[p] for p in positions[:4])
    note = f"`{listing.texts[positions[0]]}` is {words[0]}"
    return _classified(question, rule, module, words[0], evidence, note), ""


def _experts(
    question: Question, rule: Rule, module: Module, entries: Entries, at: Sequence[str], names: list[str]
) -> list[Hit]:
    """Entries below an experts module, under the first spelling that has some; all experts must be named alike."""
    for name in names:
        positions, complaint = named_experts(
            entries, name, module.attributes.get("count", 0), question.matrices(module)
        )
        if complaint:
            places = tuple(at[p] for p in positions[:3])
            raise question.refusal(rule, module, f"`{module.path}` is named in part: {complaint}", "BL248", places)
        if positions:
            return [Hit(positions, (name,))]
    return [Hit([], tuple(names))]


def _together(question: Question, match: t.Match, names: list[str]) -> list[Hit]:
    """Search the listing for names; a parent has no other spelling.

    `listed_agree` hears every spelling of every name. Without a quantifier, all names are looked for under one
    spelling: the first that finds any of them.
    """
    listing = question.declared.listing
    if match.on == ("parent",):
        return [_listed(listing, match, (n,)) for n in names]
    spelled = [question.spellings(n) for n in names]
    if match.quantifier is not None or len({len(s) for s in spelled}) > 1:
        return [_listed(listing, match, s) for s in spelled]
    hits: list[Hit] = []
    for together in zip(*spelled, strict=True):
        hits = [_listed(listing, match, (s,)) for s in together]
        if any(h.positions for h in hits):
            break
    return hits


def _listed(entries: Entries, match: t.Match, spelled: tuple[str, ...]) -> Hit:
    """Search the listing under every spelling of a name; the first that hits counts, for `listed_agree` all."""
    if match.quantifier == "listed_agree":
        every = [entries.find(k, s, match.containing, match.ending) for k in match.by for s in spelled]
        return Hit([p for p in every if p >= 0], spelled)
    for kind in match.by:
        for spelling in spelled:
            if kind == "descendant":
                below = entries.descendants(spelling)
                if below:
                    return Hit(below if match.quantifier == "agree" else below[:1], spelled)
                continue
            found = entries.find(kind, spelling, match.containing, match.ending)
            if found >= 0:
                return Hit([found], spelled)
    return Hit([], spelled)


def _word(question: Question, rule: Rule, module: Module, position: int) -> str:
    word = question.declared.listed[position]
    if isinstance(word, str):
        return word
    what = "no algorithm" if word is ABSENT else f"{json_kind(word)} as its algorithm"
    raise question.refusal(
        rule,
        module,
        f"entry `{question.declared.listing.texts[position]}` has {what}",
        "BL246",
        (question.declared.listing_at[position],),
    )


# --- algorithm words ----------------------------------------------------------


def _row(question: Question, word: str, kind: str) -> t.Algorithm | None:
    """Return the first row of `algorithms` that fits a word for a kind of module."""
    for row in question.reading.format.algorithms if question.reading.format is not None else ():
        if row.kinds and kind not in row.kinds:
            continue
        if (not row.words or word in row.words) and (row.when is None or question.test(row.when)()):
            if question.watch is not None:
                question.watch(row, True)
            return row
    return None


def _classified(
    question: Question, rule: Rule, module: Module, word: str, evidence: tuple[str, ...], note: str
) -> Answer:
    row = _row(question, word, module.kind)
    if row is None:
        message = f"algorithm `{word}` is not supported for {module.kind} modules"
        raise question.refusal(rule, module, message, "BL247", evidence)
    if row.outcome.refusal is not None:
        raise question.refusal(rule, module, row.outcome.refusal, "BL247", evidence)
    algorithm = row.outcome.algorithm or UNQUANTIZED
    declared = word if algorithm != UNQUANTIZED else None
    return question.answer(rule, algorithm, row.outcome.activations, evidence, note, declared)
