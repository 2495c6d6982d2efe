"""The first of many patterns that a name matches, without trying each: checkpoints bring tens of thousands."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from . import patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Test = Callable[[str], bool]

# So many are tried one by one; more are joined first.
FEW: Final = 12
_CHUNK: Final = 250
_SPECIAL: Final = re.compile(r"[*?\[]")


class Expressions:
    """Regular expressions in order.

    Parameters
    ----------
    texts
        The expressions.
    full
        Whether they match the whole name, else its beginning.
    compiled
        Turns one of them into a test; what it raises for a broken one is raised when that one is reached.
    """

    def __init__(self, texts: Sequence[str], full: bool, compiled: Callable[[str, bool], Test | None]) -> None:
        self.texts = list(texts)
        self.full = full
        self._compiled = compiled
        self._tests: dict[int, Test | None] = {}
        self._joined: dict[int, Test | None] = {}

    def first(self, name: str) -> int:
        """Return the position of the first that matches, -1 when none does."""
        for start in range(0, len(self.texts), _CHUNK):
            end = min(start + _CHUNK, len(self.texts))
            joined = self._join(start, end) if len(self.texts) > FEW else None
            if joined is not None and not joined(name):
                continue
            for position in range(start, end):
                if position not in self._tests:
                    self._tests[position] = self._compiled(self.texts[position], self.full)
                test = self._tests[position]
                if test is not None and test(name):
                    return position
        return -1

    def _join(self, start: int, end: int) -> Test | None:
        """Whether a name matches any of a chunk; None where they cannot be joined."""
        if start not in self._joined:
            tail = r"\z" if self.full else ""
            self._joined[start] = patterns.joined([f"^(?:{t}){tail}" for t in self.texts[start:end]])
        return self._joined[start]


class Globs:
    """Shell patterns in order, found by the literal text at their beginning or end, whichever singles out more."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        heads = [_SPECIAL.split(t, maxsplit=1)[0] for t in self.texts]
        # A `]` may close a set or be a letter; text behind it is literal either way.
        tails = [re.split(r"[*?\]]", t)[-1] for t in self.texts]
        shared_head, shared_tail = Counter(heads), Counter(tails)
        self._heads: dict[str, list[int]] = {}
        self._tails: dict[str, list[int]] = {}
        for position, (head, tail) in enumerate(zip(heads, tails, strict=True)):
            by_tail = tail and (not head or shared_tail[tail] < shared_head[head])
            chosen, key = (self._tails, tail) if by_tail else (self._heads, head)
            chosen.setdefault(key, []).append(position)
        self._head_sizes = sorted({len(h) for h in self._heads})
        self._tail_sizes = sorted({len(t) for t in self._tails})
        self._any: dict[int, Test | None] = {}

    def first(self, name: str) -> int:
        """Return the position of the first that matches, -1 when none does."""
        best = -1
        for bucket in self._buckets(name):
            if len(bucket) > FEW and not self._possible(bucket, name):
                continue
            for position in bucket:
                if 0 <= best < position:
                    break
                if patterns.glob(self.texts[position])(name):
                    best = position
                    break
        return best

    def _buckets(self, name: str) -> Iterator[list[int]]:
        for size in self._head_sizes:
            found = self._heads.get(name[:size]) if size <= len(name) else None
            if found:
                yield found
        for size in self._tail_sizes:
            found = self._tails.get(name[len(name) - size :]) if size <= len(name) else None
            if found:
                yield found

    def _possible(self, bucket: list[int], name: str) -> bool:
        key = bucket[0]
        if key not in self._any:
            self._any[key] = patterns.joined([f"^{patterns.glob_to_regex(self.texts[p])}\\z" for p in bucket])
        test = self._any[key]
        return test is None or test(name)
