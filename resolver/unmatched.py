"""Declarations that meet no module: reported, never fatal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..grammar import tree as t

if TYPE_CHECKING:
    from .decide import Chooser
    from .modules import Module


def unmatched(chooser: Chooser, modules: list[Module]) -> list[dict[str, Any]]:
    """List exclusions, listed names and targets that meet no module, in file order.

    A declaration counts as met when any rule of the chain could apply it to a module's name, a shard's, or its class,
    whether or not an earlier rule decided the module.
    """
    names = _names(chooser, modules)
    out = _exclusions(chooser, names)
    out += _listing(chooser, names)
    return out


def _names(chooser: Chooser, modules: list[Module]) -> dict[str, None]:
    names: dict[str, None] = {}
    for module in modules:
        for on in ("path", "shards", "builtin", "checkpoint", "expert0", "class"):
            for name in chooser.targets(module, on):
                names[name] = None
                for other in chooser.reading.loader.spellings(name):
                    names[other] = None
    return names


def _exclusions(chooser: Chooser, names: dict[str, None]) -> list[dict[str, Any]]:
    declared = chooser.declared
    if not declared.exclusions.texts or chooser.reading.format is None:
        return []
    kinds = {k for r in chooser.reading.format.rules if isinstance(r.step, t.Exclude) for k in r.step.match.by}
    blob = "\n" + "\n".join(names) + "\n"
    used = {declared.exclusion_at[p] for kind, p in chooser.matched if kind == "exclusions"}
    met: dict[str, bool] = {}
    for text, place in zip(declared.exclusions.texts, declared.exclusion_at, strict=True):
        met[place] = met.get(place, False) or place in used or any(_meets(kind, text, names, blob) for kind in kinds)
    texts = dict(zip(reversed(declared.exclusion_at), reversed(declared.exclusions.texts), strict=True))
    return [{"declaration": place, "text": texts[place], "kind": "exclusion"} for place, hit in met.items() if not hit]


def _meets(kind: str, text: str, names: dict[str, None], blob: str) -> bool:
    from .entries import Entries

    if kind == "exact":
        return text in names
    if kind in ("substring", "infix", "parent", "suffix", "within"):
        return bool(text) and text in blob
    if kind == "glob":
        core = max(text.replace("?", "*").replace("[", "*").split("*"), key=len)
        if core not in blob:
            return False
    one = Entries([text])
    return any(one.find(kind, name) >= 0 for name in names)


def _listing(chooser: Chooser, names: dict[str, None]) -> list[dict[str, Any]]:
    declared = chooser.declared
    known: dict[str, bool] = dict.fromkeys(names, True)

    def meets(name: str) -> bool:
        found = known.get(name)
        if found is None:
            parent = name.rpartition(".")[0]
            found = known[name] = meets(parent) if parent else False
        return found

    return [
        {"declaration": declared.listing_at[n], "text": text, "kind": "listing"}
        for n, text in enumerate(declared.listing.texts)
        if not meets(text)
    ]
