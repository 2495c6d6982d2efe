"""The rule files in force; a user's own are checked before any answer stands on them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..cachedir import private_dir, write_atomic
from ..rules.library import Library, RuleFile, find

if TYPE_CHECKING:
    from collections.abc import Iterable


# What is missing without changing an answer: a family whose test is still to be written can be tried.
_NO_OBSTACLE: Final = frozenset({"BL124"})


def in_force(folders: Iterable[Path] = ()) -> Library:
    """Find the rule files in force.

    Parameters
    ----------
    folders
        User folders, first one strongest; those of ``BITLANE_RULES`` and the packaged rules come after them.

    Raises
    ------
    RuleSyntaxError
        BL1xx: a user's file has errors; all of them are in its ``diagnostics``.
    """
    library = find(tuple(folders))
    _checked(library.files, library.shadowed)
    return library


@lru_cache(maxsize=16)
def _checked(files: tuple[RuleFile, ...], shadowed: tuple[RuleFile, ...]) -> None:
    mine = [f for f in files if not f.packaged]
    if not mine:
        return
    library = Library(files, shadowed)
    folder = private_dir("checked-rules")
    mark = folder / _digest(library) if folder is not None else None
    if mark is not None and mark.exists():
        return
    from ..grammar.diagnostics import RuleSyntaxError
    from .check import Source, check

    found = check([Source(f.label, f.path, f.text) for f in mine], library)
    wrong = [d for d in found.diagnostics if d.severity == "error" and d.code not in _NO_OBSTACLE]
    if wrong:
        raise RuleSyntaxError(wrong)
    if mark is not None:
        write_atomic(mark, b"")


def _digest(library: Library) -> str:
    """Name the rules together with the code that judges them."""
    state = hashlib.sha256(library.digest.encode())
    for part in ("grammar", "resolver"):
        for file in sorted(Path(__file__).parents[1].joinpath(part).glob("*.*")):
            if file.suffix in (".py", ".lark"):
                state.update(file.read_bytes())
    return state.hexdigest()[:32]
