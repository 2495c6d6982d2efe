"""Which rules an earlier rule, or several of them together, leave nothing to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import tree as t
from .logic import constant, entails, implies
from .ranges import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# What an entry hits under the first kind, it also hits under the others. Paths and class names hold no `*`, `?` or `[`.
_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "exact": frozenset(
        {
            *("parent", "suffix", "infix", "within", "holds", "substring", "glob", "star", "tail", "held_or_starred"),
            "class_part",
        }
    ),
    "parent": frozenset({"infix", "substring"}),
    "suffix": frozenset({"infix", "substring"}),
    "within": frozenset({"holds"}),
    "holds": frozenset({"within"}),
    "regex_full": frozenset({"regex"}),
}
# Targets that every module has a name for.
_ALWAYS: Final = frozenset({"path", "spellings", "name", "ancestors", "parts", "class"})
# Quantifiers under which one name that is found is enough to decide, or to refuse.
_DECISIVE: Final = (None, "any", "all_or_refuse", "first", "agree", "listed_agree")
# Quantifiers under which an entry that is found besides changes whether a rule decides.
_TOUCHY: Final = ("alike", "complete_or_refuse")
# Quantifiers under which a name that is looked up besides may keep a rule from deciding.
_WHOLE: Final = ("all", "alike")


def in_range(earlier: t.Node, later: t.Node) -> bool:
    """Whether a statement is in force wherever a later one is."""
    first, last = limits(earlier)
    start, end = limits(later)
    return first <= start and end <= last


def wider(earlier: t.Node, later: t.Node) -> bool:
    """Whether a statement applies wherever a later one does: versions, module kinds and conditions."""
    kinds = set(_kinds(earlier))
    if not in_range(earlier, later) or (kinds and not (set(_kinds(later)) and set(_kinds(later)) <= kinds)):
        return False
    return implies(_when(later), _when(earlier))


def _kinds(node: t.Node) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(node, "kinds", ())
    return found


def _when(node: t.Node) -> t.Expr | None:
    found: t.Expr | None = getattr(node, "when", None)
    return found


def decides(earlier: t.Node, later: t.Node) -> bool:
    """Whether a step, where it applies, decides every module that a later one could decide."""
    if isinstance(earlier, (t.Leave, t.Refuse)):
        return True
    if isinstance(earlier, t.Default):
        return earlier.group is None
    if isinstance(earlier, t.Exclude) and everything(earlier):
        return True
    if isinstance(earlier, t.Exclude) and isinstance(later, t.Exclude):
        return not earlier.unlisted and not later.unlisted and _matches(earlier.match, later.match, _globs)
    if isinstance(earlier, t.Take) and isinstance(later, t.Take):
        # Groups are named by the wording of their targets.
        return earlier.source == later.source and _matches(earlier.match, later.match, str.__eq__)
    return False


def everything(step: t.Exclude) -> bool:
    """Whether the patterns of a step match every module."""
    return bool(_ALWAYS & set(step.match.on)) and any(p and not p.strip("*") for p in step.match.named)


def _matches(earlier: t.Match, later: t.Match, names: Callable[[str, str], bool]) -> bool:
    """Whether whatever the later matcher hits, the earlier one hits too; ``names`` says so of literal patterns."""
    if earlier.containing is not None and earlier.containing not in (later.containing or ""):
        return False
    if earlier.ending and not (later.ending and set(later.ending) <= set(earlier.ending)):
        return False
    if earlier.quantifier != later.quantifier and earlier.quantifier not in _DECISIVE:
        return False
    if bool(earlier.named) != bool(later.named) or not set(later.on) <= set(earlier.on):
        return False
    if earlier.quantifier in _WHOLE and set(earlier.on) != set(later.on):
        return False
    if earlier.named:
        return all(any(names(e, n) for e in earlier.named) for n in later.named)
    touchy = earlier.quantifier in _TOUCHY
    return all(k in earlier.by or (not touchy and _WIDER.get(k, frozenset()) & set(earlier.by)) for k in later.by)


def _globs(earlier: str, later: str) -> bool:
    """Whether a shell pattern matches whatever a later one does: `*.gate` and `model.*.gate`."""
    if earlier == later:
        return True
    if "?" in earlier or "[" in earlier or "[" in later:
        return False
    # Only a star of the earlier pattern can match a star of the later one.
    first, *rest = earlier.split("*")
    if not rest or not later.startswith(first):
        return False
    at = len(first)
    for piece in rest[:-1]:
        found = later.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(later) - at >= len(rest[-1]) and later.endswith(rest[-1])


def shadowed(steps: Sequence[t.Node], kinds: Sequence[str]) -> list[tuple[t.Node, t.Node]]:
    """Return (unreachable step, an earlier one that takes part in that), in order; ``kinds``: those of modules."""
    out: list[tuple[t.Node, t.Node]] = []
    for position, later in enumerate(steps):
        earlier = _covering(steps[:position], later, kinds)
        if earlier is not None:
            out.append((later, earlier))
    return out


def _covering(before: Sequence[t.Node], later: t.Node, kinds: Sequence[str]) -> t.Node | None:
    """Return a step that leaves nothing to a later one, or the first of several that do so together."""
    able = [s for s in before if in_range(s, later) and decides(s, later) and constant(_when(s)) is not False]
    single = {id(s) for s in able if implies(_when(later), _when(s))}
    first: t.Node | None = None
    for kind in _kinds(later) or kinds:
        mine = [s for s in able if kind in (_kinds(s) or kinds)]
        if not mine or not (
            any(id(s) in single for s in mine) or entails(_when(later), [_when(s) for s in mine if id(s) not in single])
        ):
            return None
        alone = [s for s in mine if id(s) in single]
        first = first or (alone or mine)[0]
    return first


def ends(steps: Sequence[t.Node], kinds: Sequence[str]) -> bool:
    """Whether a chain (of one version, `use` resolved) decides modules of all ``kinds``, whatever they are."""
    left = set(kinds)
    for step in steps:
        final = isinstance(step, (t.Default, t.Refuse, t.Leave)) or (isinstance(step, t.Exclude) and everything(step))
        if final and constant(_when(step)) is True:
            left -= set(_kinds(step) or kinds)
    return not left
