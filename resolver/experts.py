"""Routed experts that a list names one by one: whether it names all of them, and all alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .entries import Entries

_SHOWN = 4
# Experts that are looked at one by one; more are singled out by no published checkpoint.
_LOOKED_AT: Final = 200
_NUMBER: Final = re.compile(r"(?<![0-9])[0-9]{1,5}(?![0-9])")


def named_experts(
    entries: Entries, name: str, count: int, matrices: Sequence[Sequence[str]] = ()
) -> tuple[list[int], str]:
    """Return the positions of the entries below an experts module, and what is uneven about them.

    Parameters
    ----------
    name
        Path of the experts module; ``name.3.up_proj`` names a part of expert 3.
    count
        Number of experts.
    matrices
        The matrices of one expert, under every set of names that checkpoints give them.

    Returns
    -------
    tuple
        Positions in list order; a complaint, empty when no expert is named by number or all are named alike.
    """
    positions = entries.descendants(name)
    leaves: dict[int, set[str]] = {}
    for position in positions:
        number, _, leaf = entries.texts[position][len(name) + 1 :].partition(".")
        if number.isascii() and number.isdigit() and len(number) < 8:
            leaves.setdefault(int(number), set()).add(leaf)
    if not leaves:
        return positions, ""
    missing = [i for i in range(count) if i not in leaves]
    if missing:
        shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        return positions, f"{len(leaves)} of {count} experts are named; not {shown}"
    first = next(iter(leaves.values()))
    odd = next((i for i, found in leaves.items() if found != first), None)
    if odd is not None:
        return positions, f"expert {odd} is named with {_list(leaves[odd])}, others with {_list(first)}"
    whole = next((set(m) for m in matrices if first & set(m)), first)
    if first < whole:
        return positions, f"of every expert only {_list(first)} is named, not {_list(whole - first)}"
    return positions, ""


def numbers(texts: Sequence[str], word: str, count: int) -> list[int]:
    """Return experts to look at where entries may single some out: the first, the last, and those around each number.

    Parameters
    ----------
    texts
        Entries, names or patterns of any kind.
    word
        What the module is called: numbers count behind it.
    count
        Number of experts.
    """
    found = {0, count - 1}
    for text in texts:
        at = text.find(word)
        if at >= 0:
            for digits in _NUMBER.findall(text, at):
                found |= {int(digits) - 1, int(digits), int(digits) + 1}
            if len(found) > _LOOKED_AT:
                break
    return sorted(n for n in found if 0 <= n < count)


def _list(leaves: set[str]) -> str:
    return ", ".join(sorted(x or "itself" for x in leaves))
