"""Errors as part of the interface: one code, one sentence, the place, and a way out."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FINDINGS: Final = 1
USAGE: Final = 2
INVALID_RULES: Final = 3
UNRESOLVABLE: Final = 4
MISSING_DATA: Final = 5
INTERNAL: Final = 70


def _one_line(text: str) -> str:
    """Escape line breaks and control characters: names in errors come from strangers."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class BitlaneError(Exception):
    """A refusal that a user can act on.

    Parameters
    ----------
    code
        Stable identifier, ``BL###``; ``bitlane rules explain BL###`` and ``docs/errors.md`` describe it.
    message
        One sentence, lower case, user text in backticks.
    place
        File, JSON pointer, option or module that caused it.
    help
        What to do about it.
    exit_code
        Process exit code: 2 usage, 3 invalid rules, 4 unresolvable or conflicting checkpoint, 5 missing data.
    """

    exit_code: int = UNRESOLVABLE

    def __init__(
        self, code: str, message: str, *, place: str = "", help: str = "", exit_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place
        self.help = help
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        lines = [f"error[{self.code}]: {_one_line(self.message)}"]
        if self.place:
            lines.append(f"  --> {_one_line(self.place)}")
        if self.help:
            lines.append(f"  = help: {self.help}")
        return "\n".join(lines)


class UsageError(BitlaneError):
    """The question itself is wrong: unknown option value, loader, version or system."""

    exit_code = USAGE


class RuleError(BitlaneError):
    """A rule file cannot be used."""

    exit_code = INVALID_RULES


class CheckpointError(BitlaneError):
    """The checkpoint cannot be read, or the loader refuses it, or it contradicts itself."""

    exit_code = UNRESOLVABLE


class MissingDataError(BitlaneError):
    """No measured row answers a price that must be measured."""

    exit_code = MISSING_DATA
