"""Routed experts that a list names one by one: whether it names all of them, and all alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .entries import Entries

_SHOWN = 4


def named_experts(entries: Entries, name: str, count: int) -> tuple[list[int], str]:
    """Return the positions of the entries below an experts module, and what is uneven about them.

    Parameters
    ----------
    name
        Path of the experts module; ``name.3.up_proj`` names a part of expert 3.
    count
        Number of experts.

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
    return positions, ""


def _list(leaves: set[str]) -> str:
    return ", ".join(sorted(x or "itself" for x in leaves))
