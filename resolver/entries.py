"""Entries of a list or listing, indexed so that one name is looked up without walking them."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError
from . import patterns
from .many import Expressions, Globs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_WILD: Final = frozenset("*?[")
_SPECIAL: Final = frozenset("*+?^$()[]{}|\\")
_PLAIN: Final = re.compile(r"[\w./ -]*")
_LINEAR: Final = 12


def ancestors(name: str) -> Iterator[str]:
    """Yield a dotted name and every ancestor, longest first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def suffixes(name: str) -> Iterator[str]:
    """Yield a dotted name and every tail of it at a dot, longest first."""
    while name:
        yield name
        name = name.partition(".")[2]


class Entries:
    """The texts of a list in order; every lookup returns the position of the first entry that matches, or -1."""

    __slots__ = ("_cache", "_first", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self._first: dict[str, int] = {}
        for position in range(len(self.texts) - 1, -1, -1):
            self._first[self.texts[position]] = position
        self._cache: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def find(self, kind: str, name: str, containing: str | None = None, ending: tuple[str, ...] = ()) -> int:
        """Look one name up.

        Parameters
        ----------
        kind
            A key of :data:`KINDS`.
        containing
            Only entries that contain this text take part.
        ending
            Only entries whose last component is one of these take part.
        """
        if containing is not None or ending:
            return self._narrowed(containing or "", ending, kind, name)
        return KINDS[kind](self, name)

    def _narrowed(self, containing: str, ending: tuple[str, ...], kind: str, name: str) -> int:
        key = f"containing:{containing}:{ending}"
        if key not in self._cache:
            kept = [i for i, e in enumerate(self.texts) if containing in e]
            positions = [i for i in kept if not ending or self.texts[i].rpartition(".")[2] in ending]
            self._cache[key] = (Entries([self.texts[i] for i in positions]), positions)
        inner, positions = self._cache[key]
        found: int = inner.find(kind, name)
        return positions[found] if found >= 0 else -1

    def exact(self, name: str) -> int:
        """The entry is the name."""
        return self._first.get(name, -1)

    def _least(self, names: Iterator[str]) -> int:
        found = [p for p in map(self._first.get, names) if p is not None]
        return min(found, default=-1)

    def parent(self, name: str) -> int:
        """The entry is the name or a dotted ancestor of it."""
        return self._least(ancestors(name))

    def suffix(self, name: str) -> int:
        """The entry is the name or a dotted tail of it."""
        return self._least(suffixes(name))

    def infix(self, name: str) -> int:
        """The entry, trailing dots aside, occurs in the name on dotted boundaries."""
        if "bare" not in self._cache:
            bare: dict[str, int] = {}
            for position, text in enumerate(self.texts):
                bare.setdefault(text.rstrip("."), position)
            self._cache["bare"] = bare
        index: dict[str, int] = self._cache["bare"]
        found = [p for s in suffixes(name) for a in ancestors(s) if (p := index.get(a)) is not None]
        return min(found, default=-1)

    def subtree(self, name: str) -> int:
        """The entry ends in ``.*`` and matches, as a shell pattern without that end, the whole name."""
        if "subtree" not in self._cache:
            kept = [i for i, e in enumerate(self.texts) if e.endswith(".*")]
            self._cache["subtree"] = (Entries([self.texts[i][:-2] for i in kept]), kept)
        inner, kept = self._cache["subtree"]
        found: int = inner.glob(name)
        return kept[found] if found >= 0 else -1

    def tail(self, name: str) -> int:
        """The entry's last component occurs in the name, with no boundary."""
        return next((i for i, e in enumerate(self.texts) if e.rpartition(".")[2] in name), -1)

    def dotted(self, name: str) -> int:
        """An entry with a trailing dot names a module and what is below it: ``layers.0.`` occurs in ``name.``."""
        found = [p for p in (self.substring(name + "."),) if p >= 0 and self.texts[p].endswith(".")]
        return min(found, default=-1)

    def within(self, name: str) -> int:
        """The name occurs in the entry, with no boundary."""
        return self._position_in_blob(name)

    def holds(self, name: str) -> int:
        """Same as :meth:`within`: the first entry that contains the name."""
        return self._position_in_blob(name)

    def _position_in_blob(self, name: str) -> int:
        if "blob" not in self._cache:
            starts, total = [], 0
            for text in self.texts:
                starts.append(total)
                total += len(text) + 1
            self._cache["blob"] = ("\n".join(self.texts), starts)
        blob, starts = self._cache["blob"]
        if not self.texts:
            return -1
        at = blob.find(name)
        return bisect_left(starts, at + 1) - 1 if at >= 0 else -1

    def substring(self, name: str) -> int:
        """The entry occurs in the name, with no boundary."""
        if len(self.texts) > _LINEAR and not self._filter("substring", self._literals)(name):
            return -1
        return next((i for i, e in enumerate(self.texts) if e in name), -1)

    def _literals(self) -> Callable[[str], bool]:
        return patterns.any_of([re.escape(e) for e in self._first])

    def _filter(self, key: str, build: Callable[[], Callable[[str], bool]]) -> Callable[[str], bool]:
        if key not in self._cache:
            self._cache[key] = build()
        found: Callable[[str], bool] = self._cache[key]
        return found

    def glob(self, name: str) -> int:
        """The entry matches the whole name as a shell pattern."""
        if "wild" not in self._cache:
            places = [i for i, e in enumerate(self.texts) if _WILD & set(e)]
            self._cache["wild"] = (places, Globs([self.texts[i] for i in places]))
        literal = self._first.get(name, -1)
        if literal >= 0 and _WILD & set(self.texts[literal]):
            literal = -1
        found = self._at("wild", name)
        return found if literal < 0 or 0 <= found < literal else literal

    def regex(self, name: str) -> int:
        """A ``re:`` entry matches from the start of the name."""
        return self._regex("re:", False, name)

    def regex_full(self, name: str) -> int:
        """A ``re:`` entry matches the whole name."""
        return self._regex("re:", True, name)

    def pattern(self, name: str) -> int:
        """Every entry is a regular expression, matched from the start of the name."""
        return self._regex("", False, name)

    def star(self, name: str) -> int:
        """Every entry is a regular expression in which ``.`` means a dot and ``*`` any text, matched in full."""
        if "star" not in self._cache:
            special = [(i, e) for i, e in enumerate(self.texts) if not _PLAIN.fullmatch(e)]
            tests = [(i, _compiled(e.replace(".", r"\.").replace("*", ".*"), True)) for i, e in special]
            plain = {e: i for i, e in reversed(list(enumerate(self.texts))) if _PLAIN.fullmatch(e)}
            self._cache["star"] = (plain, tests, {})
        plain, tests, known = self._cache["star"]
        # Components of paths come again and again.
        if name not in known:
            literal = plain.get(name, -1)
            found = next((i for i, test in tests if test(name)), -1)
            known[name] = found if literal < 0 or 0 <= found < literal else literal
        position: int = known[name]
        return position

    def signed(self, name: str) -> int:
        """Every entry is a regular expression, matched from the start, after an optional ``+:`` or ``-:``."""
        if "signed" not in self._cache:
            bare = [e[2:] if e.startswith(("+:", "-:")) else e for e in self.texts]
            self._cache["signed"] = Expressions(bare, False, _compiled)
        found: Expressions = self._cache["signed"]
        return found.first(name)

    def pattern_full(self, name: str) -> int:
        """An entry with a special character is an expression for the whole name; a broken one matches nothing."""
        if "pattern_full" not in self._cache:
            places = [i for i, e in enumerate(self.texts) if _SPECIAL & set(e)]
            self._cache["pattern_full"] = (places, Expressions([self.texts[i] for i in places], True, _lenient))
        return self._at("pattern_full", name)

    def _regex(self, lead: str, full: bool, name: str) -> int:
        key = f"regex:{lead}:{full}"
        if key not in self._cache:
            places = [i for i, e in enumerate(self.texts) if e.startswith(lead)]
            self._cache[key] = (places, Expressions([self.texts[i][len(lead) :] for i in places], full, _compiled))
        return self._at(key, name)

    def _at(self, key: str, name: str) -> int:
        """Position of the first of some entries, kept as their positions and a search, that matches."""
        places, among = self._cache[key]
        at: int = among.first(name)
        found: int = places[at] if at >= 0 else -1
        return found

    def held_or_starred(self, name: str) -> int:
        """An entry with a ``*`` is a shell pattern for the whole name; any other entry holds the name."""
        for position, entry in enumerate(self.texts):
            if patterns.glob(entry)(name) if "*" in entry else name in entry:
                return position
        return -1

    def search(self, name: str) -> int:
        """An entry with a special character is an expression searched in the name; a broken one matches nothing."""
        if "search" not in self._cache:
            places = [i for i, e in enumerate(self.texts) if _SPECIAL & set(e)]
            texts = [_searched(self.texts[i]) for i in places]
            self._cache["search"] = (places, Expressions(texts, False, _lenient))
        return self._at("search", name)

    def class_part(self, name: str) -> int:
        """The entry occurs in the class name, letter case aside."""
        lowered = name.lower()
        return next((i for i, e in enumerate(self.texts) if e.lower() in lowered), -1)

    def descendants(self, name: str) -> list[int]:
        """Positions of the entries below a name, in list order."""
        if "sorted" not in self._cache:
            order = sorted(range(len(self.texts)), key=self.texts.__getitem__)
            self._cache["sorted"] = ([self.texts[i] for i in order], order)
        keys, order = self._cache["sorted"]
        low = bisect_left(keys, name + ".")
        high = bisect_left(keys, name + "/", low)
        return sorted(order[low:high])

    def descendant(self, name: str) -> int:
        """The first entry below the name."""
        found = self.descendants(name)
        return found[0] if found else -1


def _compiled(pattern: str, full: bool) -> Callable[[str], bool]:
    try:
        return patterns.matcher(pattern, full)
    except patterns.BadPatternError as error:
        raise CheckpointError(
            "BL251",
            f"pattern `{pattern[:80]}` is no regular expression: {error}",
            help="the engine fails on it too; repair the checkpoint",
        ) from error


def _searched(pattern: str) -> str:
    return pattern if pattern.startswith(("^", ".*")) else f"(?s:.*?)(?:{pattern})"


def _lenient(pattern: str, full: bool = True) -> Callable[[str], bool] | None:
    try:
        return patterns.matcher(pattern, full)
    except patterns.BadPatternError:
        return None


KINDS: Final[dict[str, Callable[[Entries, str], int]]] = {
    "exact": Entries.exact,
    "parent": Entries.parent,
    "suffix": Entries.suffix,
    "infix": Entries.infix,
    "dotted": Entries.dotted,
    "within": Entries.within,
    "holds": Entries.holds,
    "substring": Entries.substring,
    "glob": Entries.glob,
    "regex": Entries.regex,
    "regex_full": Entries.regex_full,
    "pattern": Entries.pattern,
    "star": Entries.star,
    "subtree": Entries.subtree,
    "tail": Entries.tail,
    "signed": Entries.signed,
    "pattern_full": Entries.pattern_full,
    "held_or_starred": Entries.held_or_starred,
    "search": Entries.search,
    "class_part": Entries.class_part,
    "descendant": Entries.descendant,
}
