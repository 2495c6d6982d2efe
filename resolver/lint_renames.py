"""Renames of a family's `names` blocks that nothing which is known could meet."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..errors import BitlaneError
from ..grammar import tree as t
from ..grammar.diagnostics import closest
from .family import compile_family
from .naming import Mapper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..grammar.findings import Findings
    from .family import Family
    from .vocabulary import Vocabulary

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
# What stands in a regular expression and is no text: groups, classes, escapes of letters.
_SYNTAX: Final = re.compile(r"\(\?[^)]*?[>:=!]|\[[^\]]*\]|\\[A-Za-z]|\\")
# An index of layers for regular expressions that ask for digits.
_INDEX: Final = "10"
# Ends of tensor names: renames are about tensors too.
_TENSORS: Final = frozenset({"weight", "bias", "blocks", "scale", "scales", "log", "qweight", "qzeros"})


class RenameLint:
    """Checks renames of modules and declarations.

    Names that only some checkpoint lists cannot be known, so that a rename is reported only where it meets no name of
    the family and one of its words is known from nowhere.
    """

    def __init__(self, vocabulary: Vocabulary, findings: Findings) -> None:
        self.vocabulary, self.findings = vocabulary, findings

    def rename(self, rule: t.Rename, families: list[Family]) -> None:
        """Check one rename of the `names` block that ``families`` were compiled from."""
        alone = Mapper(((rule.kind, rule.old, "\0"),))
        if any(alone.apply(name) != name for family in families for name in names(family)):
            return
        text = _SYNTAX.sub(" ", rule.old) if rule.kind == "regex" else rule.old
        for word in _WORD.findall(text):
            if len(word) > 2 and not self._known(word, rule.old):
                near = closest(word, self.words)
                hint = f"did you mean `{near}`?" if near else "spell it as the checkpoint or the names before it do"
                message = f"nothing is known that `{rule.old}` would rename"
                self.findings.add("BL120", message, rule, rule.old, hint)
                return

    def _known(self, word: str, old: str) -> bool:
        parts = {p for w in self.words for p in w.split("_")} | _TENSORS
        if word in self.words | _TENSORS or ("_" in word and all(p in parts for p in word.split("_"))):
            return True
        # A text may begin or end within a word.
        edge = old.startswith(word) or old.endswith(word)
        return edge and any(word in w for w in self.words)

    @property
    def words(self) -> frozenset[str]:
        """The parts of every known module path and declaration, and of renames that several statements share."""
        return _words(self.vocabulary)


@lru_cache(maxsize=1)
def _words(vocabulary: Vocabulary) -> frozenset[str]:
    out = set(_published(vocabulary))
    given = (v for _, files in vocabulary.givens for v in files.values())
    for text in (*(text for value in given for text in _texts(value)), *_paths(vocabulary)):
        out.update(_WORD.findall(text))
    shared: Counter[str] = Counter()
    for file in vocabulary.library.families():
        for rule in (r for i in file.tree().items if isinstance(i, t.Names) for r in i.rules):
            if isinstance(rule, t.Rename):
                shared.update(set(_WORD.findall(rule.old)))
                out.update(_WORD.findall(rule.new) if rule.old != rule.new else ())
            elif isinstance(rule, t.Fuse):
                out.update((rule.name, *rule.shards))
    return frozenset(out | {w for w, n in shared.items() if n > 1})


# Words of the packaged checkpoints, which do not change, by the folders that were asked for besides.
_PUBLISHED: Final[dict[tuple[Path, ...], frozenset[str]]] = {}


def _published(vocabulary: Vocabulary) -> frozenset[str]:
    if vocabulary.models not in _PUBLISHED:
        values = (v for files in vocabulary.documents for v in files.values())
        texts = {text for value in values for text in _texts(value)}
        _PUBLISHED[vocabulary.models] = frozenset(w for text in texts for w in _WORD.findall(text))
    return _PUBLISHED[vocabulary.models]


def names(family: Family) -> Iterator[str]:
    """Yield the names that renames of modules and declarations see, every rename applied in turn."""
    for stack in family.stacks:
        for block in stack.blocks:
            for template in block.templates:
                for checkpoint in template.checkpoint:
                    name = checkpoint.replace("{i}", _INDEX)
                    yield name
                    for rule in family.renames.rules:
                        name = Mapper((rule,)).apply(name)
                        yield name


def _paths(vocabulary: Vocabulary) -> Iterator[str]:
    for file in vocabulary.library.families():
        for architecture in file.architectures[:1]:
            try:
                family = compile_family(vocabulary.library, architecture, "spec", "")
            except BitlaneError:
                continue
            for stack in family.stacks:
                for block in stack.blocks:
                    for template in block.templates:
                        yield from (*template.checkpoint, template.path)


def _texts(value: Any) -> Iterator[str]:
    """Yield what may name a module: texts and keys with a dot, and members of lists."""
    todo = [value]
    while todo:
        current = todo.pop()
        members: Iterable[Any] = ()
        if isinstance(current, dict):
            yield from (k for k in current if "." in k)
            members = current.values()
        elif isinstance(current, list):
            yield from (m for m in current if isinstance(m, str))
            members = current
        todo += members
        if isinstance(current, str) and "." in current:
            yield current
