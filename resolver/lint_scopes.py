"""The names that a loader's expressions use: misspelt ones, and definitions that nothing uses."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ..grammar import tree as t
from ..grammar.format import children, walk
from .lint_expressions import expressions, heads, slip
from .lint_merged import evidence, paths
from .lint_values import SPELLINGS
from .vocabulary import LOADER_ROOTS, LOADER_VALUES, MODULE_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .lint_merged import Merged

_LANGUAGE: Final = LOADER_ROOTS | LOADER_VALUES | MODULE_NAMES


def lint_scopes(here: Merged) -> None:
    """Check the names of a loader file."""
    _names(here)
    _unused(here)


# --- names that look misspelt ---------------------------------------------------------


def _names(here: Merged) -> None:
    mentioned = _mentioned(here)
    shared = {p.item.name for p in here.merged if isinstance(p.item, t.Let)}
    inner = {i.name for f in here.formats for i in f.items if isinstance(i, t.Let)}
    for item in here.tree.items:
        if isinstance(item, t.Format):
            merged = next((f for f in here.formats if f.name == item.name), item)
            lets = shared | {i.name for i in merged.items if isinstance(i, t.Let)}
            _known(here, [item, *item.items, *(r for i in item.items for r in children(i))], lets, mentioned)
        else:
            # Lets and chains of the file are evaluated inside formats, whose own names they may use.
            _known(here, [item, *children(item)], shared | inner, mentioned)


def _mentioned(here: Merged) -> set[str]:
    """Return the keys that the loaders in force mention more than once."""
    out: Counter[str] = Counter()
    for file in here.vocabulary.library.files:
        if file.kind == "loader":
            nodes = [n for i in walk(file.tree()) for n in (i, *children(i))]
            out.update(k for p in {p for n in nodes for _, p in paths(n)} for k in p.split("."))
    return {k for k, n in out.items() if n > 1}


def _known(here: Merged, nodes: Sequence[t.Node], lets: set[str], mentioned: set[str]) -> None:
    """Report keys that look misspelt: nobody else uses them, no metadata has them, and one that is known is near.

    Loaders also read formats of which no example is at hand, so that an unknown key alone says nothing.
    """
    known = here.vocabulary.metadata_keys | lets | mentioned
    for node in nodes:
        for where, path in paths(node):
            head, *rest = path.split(".")
            names = rest if head in lets | _LANGUAGE else [head, *rest]
            for name in names if path not in SPELLINGS else ():
                if name in known:
                    continue
                words = sorted(_LANGUAGE) if name is head else []
                near = next((k for k in words if _near_word(name, k)), "")
                near = near or next((k for k in sorted(known) if slip(name, k)), "")
                if near:
                    here.suggested.add(near)
                    message = f"no known metadata has the key `{name}`"
                    here.findings.add("BL123", message, where, path, f"did you mean `{near}`?", severity="warning")


def _near_word(name: str, word: str) -> bool:
    """Whether a name is a misspelt word of the language: a short one with a letter more or less, or two exchanged."""
    if name == word + "s" or len(name) < 3 or len(word) < 3:
        return False
    exchanged = len(name) == len(word) and sorted(name) == sorted(word)
    return slip(name, word, 3) and (len(name) != len(word) or exchanged or len(word) >= 5)


# --- what is defined and used ----------------------------------------------------------


def _unused(here: Merged) -> None:
    used = {h for n in here.every() for e in expressions(n) for _, h in heads(e)}
    used |= {p.partition(".")[0] for n in here.every() for p in (*getattr(n, "paths", ()), *evidence(n))}
    chained = {n.chain for n in here.every() if isinstance(n, (t.Use, t.Each))}
    targets = {o for n in here.every() for o in _targets(n)}
    for node in walk(here.tree):
        if getattr(node, "name", "") in here.suggested:
            continue
        if isinstance(node, t.Let) and node.name not in used:
            here.findings.add("BL127", f"`{node.name}` is never used", node, node.name, "remove it")
        elif isinstance(node, t.Chain) and node.name not in chained:
            hint = f"write `use {node.name}` in a format"
            here.findings.add("BL127", f"chain `{node.name}` is never used", node, node.name, hint)
        elif isinstance(node, t.Builtin) and not (_users(node.name) & targets):
            hint = "look at it with `on builtin`"
            here.findings.add("BL127", f"`{node.name}` is never looked at", node, node.name, hint)


def _users(builtin: str) -> set[str]:
    """Targets that look at a builtin: all names of expert 0's matrices serve `any_expert`."""
    return {"builtin", builtin, *(["any_expert"] if builtin.startswith("expert0") else [])}


def _targets(node: t.Node) -> tuple[str, ...]:
    if isinstance(node, t.Each):
        return node.on
    match = getattr(node, "match", None)
    return match.on if isinstance(match, t.Match) else ()
