"""What an editor asks about a rule file, as plain functions: findings, explanations, formatting."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from ..cachedir import private_dir, write_atomic
from ..grammar import words
from ..grammar.scan import Logical, pieces, statements
from ..resolver.entries import KINDS
from ..resolver.functions import FUNCTIONS
from ..resolver.vocabulary import TARGETS
from ..rules.library import find_usable

if TYPE_CHECKING:
    from pathlib import Path

    from ..grammar.diagnostics import Diagnostic
    from ..rules.library import Library


def findings(text: str, path: Path, rules: tuple[Path, ...] = ()) -> list[Diagnostic]:
    """Check the unsaved text of a file among the others in force."""
    from ..resolver.check import Source, check

    return list(check([Source(str(path), path, text)], find_usable(rules)).diagnostics)


def formatted(text: str, path: Path) -> str | None:
    """Return the formatted text; None when it does not parse."""
    from ..grammar.diagnostics import RuleSyntaxError
    from ..grammar.format import format_text

    try:
        return format_text(text, str(path))
    except RuleSyntaxError:
        return None


# --- hover ------------------------------------------------------------------------


def word_at(text: str, line: int, column: int) -> str:
    """Return the word (or comment) at a 0-based line and column."""
    for piece in pieces(text):
        if piece.line == line + 1 and piece.column - 1 <= column < piece.end_column - 1:
            return piece.text
        if piece.line > line + 1:
            break
    return ""


def hover(text: str, path: Path, line: int, column: int, counts: Counts | None = None) -> str:
    """Explain what is at a 0-based line and column, as Markdown; empty when there is nothing to say."""
    from ..grammar.codes import CODES

    word = word_at(text, line, column)
    if word.startswith("#"):
        named = [c for c in CODES if c in word]
        return "\n\n".join(f"**{c}: {CODES[c].title}**\n\n{CODES[c].meaning}" for c in named)
    here = next((s for s in statements(text)[0] if s.first <= line + 1 <= s.last), None)
    out = []
    statement = words.meaning(word)
    if here is not None and statement is not None and word == here.word:
        out.append(f"`{statement.syntax}`\n\n{statement.meaning}")
    elif word in TARGETS and here is not None and _after(here, line + 1, column + 1, ("on", "each")):
        out.append(f"target `{word}`: {TARGETS[word]}")
    elif word in KINDS and here is not None and _after(here, line + 1, column + 1, ("by",)):
        out.append(f"pattern kind `{word}`: {_sentence(KINDS[word].__doc__)}")
    elif word in FUNCTIONS and here is not None:
        out.append(
            f"function `{word}`" + (f": {_sentence(FUNCTIONS[word].__doc__)}" if FUNCTIONS[word].__doc__ else "")
        )
    if here is not None and counts is not None and word == here.word:
        told = counts.told(path, here.first)
        out += [told] if told else []
    return "\n\n".join(out)


def _sentence(doc: str | None) -> str:
    return (doc or "").strip().split("\n")[0]


def _after(here: Logical, line: int, column: int, before: tuple[str, ...]) -> bool:
    """Whether the last of the words of a clause before a place is one of ``before``."""
    clauses = ("by", "on", "for", "when", "as", "at", "use", "each", "named", "containing", "ending", "since", "until")
    seen = [p.text for p in here.pieces if (p.line, p.column) < (line, column) and p.text in clauses]
    return bool(seen) and seen[-1] in before


# --- how much a rule decides -----------------------------------------------------------


class Counts:
    """How many modules of the packaged checkpoints each rule decides; counted once, in the background, and kept."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._found: dict[str, list[int]] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin counting, unless it is done or known from before."""
        if self._known() is None and self._thread is None:
            self._thread = threading.Thread(target=self._count, daemon=True)
            self._thread.start()

    def told(self, path: Path, line: int) -> str:
        """Say what the rule on a line of a file decides; empty while nobody has counted."""
        known = self._known()
        if known is None:
            return ""
        file = next((f for f in self.library.files if os.path.realpath(f.path) == os.path.realpath(path)), None)
        numbers = known.get(f"{file.label}:{line}") if file is not None else None
        if numbers is None:
            return ""
        return f"decides {numbers[0]:,} modules of the packaged checkpoints, is asked in vain about {numbers[1]:,}"

    def _place(self) -> Path | None:
        folder = private_dir("coverage")
        return folder / f"{self.library.digest}.json" if folder is not None else None

    def _known(self) -> dict[str, list[int]] | None:
        place = self._place() if self._found is None else None
        if place is not None and place.is_file():
            try:
                value: Any = json.loads(place.read_bytes())
            except ValueError:
                return None
            self._found = value if isinstance(value, dict) else None
        return self._found

    def _count(self) -> None:
        from ..resolver.coverage import corpus, measure

        counted = measure(self.library, corpus())
        self._found = {c.place: [c.fired, c.lost] for c in counted.counts.values()}
        place = self._place()
        if place is not None:
            write_atomic(place, json.dumps(self._found).encode())
