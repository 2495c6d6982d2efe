"""The names that a loader's expressions use: misspelt ones, definitions that nothing uses, and versions without one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ..grammar import tree as t
from ..grammar.format import children, walk
from .lint_expressions import expressions, heads, slip
from .lint_merged import evidence, paths
from .lint_values import SPELLINGS
from .versions import holds
from .vocabulary import LOADER_ROOTS, LOADER_VALUES, MODULE_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .lint_merged import Merged

_LANGUAGE: Final = LOADER_ROOTS | LOADER_VALUES | MODULE_NAMES


def lint_scopes(here: Merged) -> None:
    """Check the names of a loader file."""
    _names(here)
    _unused(here)
    _versions(here)


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
        elif isinstance(node, t.Builtin) and not ({"builtin", node.name} & targets):
            hint = "look at it with `on builtin`"
            here.findings.add("BL127", f"`{node.name}` is never looked at", node, node.name, hint)


def _targets(node: t.Node) -> tuple[str, ...]:
    if isinstance(node, t.Each):
        return node.on
    match = getattr(node, "match", None)
    return match.on if isinstance(match, t.Match) else ()


# --- definitions that some versions lack -------------------------------------------------


def _versions(here: Merged) -> None:
    """Report names that are defined in some versions only and used in others: there they are keys of the metadata."""
    outer = [p.item for p in here.merged if isinstance(p.item, t.Let) and _ever(here, p.item)]
    loose = [p.item for p in here.merged if isinstance(p.item, (t.Read, t.Refuse, t.Report))]
    told: set[int] = set()
    for version in here.head.versions:
        places: list[tuple[list[t.Let], list[t.Node]]] = [(outer, [n for n in loose if holds(n, version)])]
        for form in here.formats:
            if holds(form, version):
                inner = [i for i in form.items if isinstance(i, t.Let) and _ever(here, i)]
                places.append(([*outer, *inner], [form, *here.in_force(form.items, version)]))
        for lets, nodes in places:
            for ref, name in _lacking(lets, nodes, version):
                if id(ref) in told or name in here.vocabulary.metadata_keys:
                    continue
                told.add(id(ref))
                if _stands_in(here, ref):
                    message = f"`{name}` is not defined in {version}, where it is used"
                    hint = f"there it is a key of the metadata; define it for {version} too"
                    here.findings.add("BL135", message, ref, name, hint)


def _ever(here: Merged, node: t.Let) -> bool:
    """Whether a definition is in force in some version; one that never is has been named already."""
    return any(holds(node, v) for v in here.head.versions)


def _lacking(lets: Sequence[t.Let], nodes: Sequence[t.Node], version: str) -> list[tuple[t.Ref, str]]:
    """Return the references, straight or through definitions, to names that only other versions define."""
    ever = {i.name for i in lets}
    now = {i.name: i for i in lets if holds(i, version)}
    todo = [e for n in nodes for e in expressions(n)]
    out: list[tuple[t.Ref, str]] = []
    followed: set[str] = set()
    while todo:
        for ref, name in heads(todo.pop()):
            if name in now and name not in followed:
                followed.add(name)
                todo.append(now[name].value)
            elif name in ever and name not in now:
                out.append((ref, name))
    return out


def _stands_in(here: Merged, ref: t.Ref) -> bool:
    return any(
        r is ref for n in walk(here.tree) for m in (n, *children(n)) for e in expressions(m) for r, _ in heads(e)
    )
