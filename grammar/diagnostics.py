"""One mistake in a rule file: a stable code, a span, one sentence and a way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RuleError
from .tree import Span

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A finding in a rule file.

    Attributes
    ----------
    code
        ``BL1##``; ``bitlane rules explain`` describes it.
    message
        One sentence, lower case, user text in backticks.
    file
        Name of the file.
    span
        Where, 1-based.
    help
        What to write instead.
    severity
        ``error`` makes the file unusable, ``warning`` does not.
    label
        For parse errors: which situation of ``messages.LABELS`` it is.
    related
        Another place that the message speaks of, and what is there.
    """

    code: str
    message: str
    file: str
    span: Span
    help: str = ""
    severity: str = "error"
    label: str = ""
    related: tuple[tuple[Span, str], ...] = ()

    @classmethod
    def at_token(cls, code: str, message: str, token: Any, file: str, help: str = "") -> Diagnostic:
        """Build one from a lark token."""
        line, column = token.line or 1, token.column or 1
        width = max(1, len(str(token).split("\n", 1)[0]))
        return cls(code, message, file, Span(line, column, line, column + width), help)

    def __str__(self) -> str:
        text = f"{self.severity}[{self.code}]: {self.message}\n  --> {self.file}:{self.span.line}:{self.span.column}"
        return text + (f"\n  = help: {self.help}" if self.help else "")


class RuleSyntaxError(RuleError):
    """A rule file that cannot be parsed; ``diagnostics`` holds every mistake found."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        first = diagnostics[0]
        place = f"{first.file}:{first.span.line}:{first.span.column}"
        super().__init__(first.code, first.message, place=place, help=first.help)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.diagnostics)


def closest(name: str, choices: Iterable[str]) -> str:
    """Return the closest of ``choices``, or an empty string."""
    # Only mistakes need it, and it costs as much as the rest of this module.
    from difflib import get_close_matches

    close = get_close_matches(name[:200], sorted(choices), n=1, cutoff=0.6)
    return close[0] if close else ""


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``did you mean `x`?`` for the closest of ``choices``, or an empty string."""
    close = closest(name, choices)
    return f"did you mean `{close}`?" if close else ""
