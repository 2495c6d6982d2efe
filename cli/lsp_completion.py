"""What may stand at a place of a rule file, for an editor: statements of the block, names, versions, algorithms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..grammar import tree as t
from ..grammar.expected import keywords, of_kind, spelled, starts
from ..grammar.messages import BLOCK_RULES
from ..grammar.scan import Logical, statements
from ..resolver.entries import KINDS
from ..resolver.functions import FUNCTIONS
from ..resolver.vocabulary import (
    FAMILY_VALUES,
    LANE_VALUES,
    LOADER_ROOTS,
    LOADER_VALUES,
    MODULE_KINDS,
    MODULE_NAMES,
    TARGETS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..rules.library import Library

_AFTER: Final = {
    "by": tuple(KINDS),
    "on": tuple(TARGETS),
    "each": tuple(TARGETS),
    "for": MODULE_KINDS,
    "leave": MODULE_KINDS,
}
# A value begins after one of these.
_VALUE: Final = frozenset(
    {"when", "and", "or", "not", "if", "else", "is", "=", "+", "-", "*", "/", "%", "(", "contains"}
)
_VERSION: Final = re.compile(r'"([^"]*)"')


def completions(text: str, line: int, column: int, library: Library | None = None) -> list[str]:
    """Return the words that may stand at a 0-based line and column, sorted.

    Parameters
    ----------
    library
        The rule files in force, for what this file does not say itself: versions, algorithms, chains it adds to.
    """
    lines = text.split("\n")
    current = lines[line][:column] if line < len(lines) else ""
    typed = current[len(current.rstrip("abcdefghijklmnopqrstuvwxyz_0123456789.ABCDEFGHIJKLMNOPQRSTUVWXYZ")) :]
    before = "\n".join([*lines[:line], current[: len(current) - len(typed)]])
    return sorted({c for c in _choices(text, before, library) if c.startswith(typed)})


def _choices(text: str, before: str, library: Library | None) -> Iterable[str]:
    logicals, _ = statements(before)
    last = logicals[-1] if logicals else None
    fresh = last is None or not before.rstrip(" \t").split("\n")[-1].strip()
    if fresh or last is None:
        return _starters(logicals)
    clause = [p.text for p in last.pieces if p.text in _AFTER]
    ends = last.pieces[-1].text
    if clause and ends in (clause[-1], ","):
        return _AFTER[clause[-1]]
    if ends == "use":
        return _chains(text, library)
    if ends in ("since", "until"):
        return [f'"{v}"' for v in _versions(text, library)]
    if ends in ("default", "as", "->"):
        return [*_algorithms(library), "refuse"]
    if ends in _VALUE and (ends == "when" or any(p.text in ("when", "let") for p in last.pieces)):
        return [*_names(logicals), *_lets(text, library), *FUNCTIONS, "not"]
    return _accepted(before) or list(keywords())


def _head(text: str) -> list[str]:
    """The words of the head without `extend`: kind and name."""
    heads = [p.text for logical in statements(text)[0][1:2] for p in logical.pieces[:3]]
    return heads[1:] if heads[:1] == ["extend"] else heads


def _items(text: str, library: Library | None) -> Sequence[t.Item]:
    """Statements of the file that this one adds to or replaces."""
    head = _head(text)
    if library is None or len(head) < 2:
        return ()
    found = next((f for f in library.files if (f.kind, f.name) == (head[0], head[1]) and not f.extends), None)
    return found.tree().items if found is not None else ()


def _chains(text: str, library: Library | None) -> list[str]:
    mine = [s.pieces[1].text for s in statements(text)[0] if s.word == "chain" and len(s.pieces) > 1]
    return [*mine, *(i.name for i in _items(text, library) if isinstance(i, t.Chain))]


def _lets(text: str, library: Library | None) -> list[str]:
    mine = [s.pieces[1].text for s in statements(text)[0] if s.word == "let" and len(s.pieces) > 1]
    return [*mine, *(i.name for i in _items(text, library) if isinstance(i, t.Let))]


def _names(logicals: list[Logical]) -> list[str]:
    """Values that the language itself gives in this kind of file."""
    kind = next((p.text for logical in logicals[1:2] for p in logical.pieces[:2] if p.text != "extend"), "")
    if kind == "family":
        return sorted({*FAMILY_VALUES, "config"})
    if kind == "lanes":
        return sorted(LANE_VALUES)
    return sorted({*MODULE_NAMES, *LOADER_ROOTS, *LOADER_VALUES})


def _versions(text: str, library: Library | None) -> list[str]:
    head = _head(text)
    mine = _VERSION.findall(text.split("\n")[statements(text)[0][1].first - 1]) if len(statements(text)[0]) > 1 else []
    if head[:1] == ["loader"] and mine:
        return mine
    if library is None:
        return mine
    names = [head[1]] if head[:1] == ["loader"] and len(head) > 1 else library.loaders()
    return [v for n in names if n in library.loaders() for v in library.loader(n)[0].versions]


def _algorithms(library: Library | None) -> list[str]:
    if library is None:
        return ["bf16"]
    return sorted({a for p in library.lanes() if isinstance(p.item, t.Lane) for a in p.item.algorithms})


def _starters(logicals: list[Logical]) -> list[str]:
    opened: list[Logical] = []
    for logical in logicals:
        if logical.opens:
            opened.append(logical)
        elif logical.closes and opened:
            opened.pop()
    if opened:
        return [*starts(BLOCK_RULES.get(opened[-1].word, "step")), "}"]
    if len(logicals) < 2:
        return ["language"] if not logicals else sorted(starts("header"))
    kind = next((p.text for p in logicals[1].pieces[:2] if p.text != "extend"), "")
    return of_kind(sorted(starts("statement")), kind)


def _accepted(before: str) -> list[str]:
    """Ask the parser what it would take next."""
    from lark.exceptions import UnexpectedInput

    from ..grammar.parsing import JoinedError, TokenError, parser

    try:
        # No token begins with `@`, so that the parser stops here at the latest.
        parser().parse(before + " @")
    except UnexpectedInput as error:
        state = getattr(error, "interactive_parser", None)
        if state is None:
            return []
        return [w for name in state.accepts() for w in spelled(name)]
    except (TokenError, JoinedError):
        pass
    return []
