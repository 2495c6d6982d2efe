"""Checkpoint names to loader names: the renames of an engine's model class, and its fused modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..grammar import tree as t

_ORDER = ("regex", "substring", "prefix", "suffix")


@dataclass(frozen=True, slots=True)
class Mapper:
    """Renames in the order in which engines apply them: regex, substring (first hit once), prefix, suffix."""

    rules: tuple[tuple[str, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def apply(self, name: str) -> str:
        """Rename one name; every rule that matches applies in turn."""
        for kind, old, new in self.rules:
            if kind == "prefix":
                if name.startswith(old):
                    name = new + name[len(old) :]
            elif kind == "substring":
                if old in name:
                    name = name.replace(old, new, 1)
            elif kind == "suffix":
                if name.endswith(old):
                    name = name[: len(name) - len(old)] + new
            else:
                import regex

                name = regex.sub(old, new, name)
        return name

    def apply_all(self, names: list[str]) -> list[str]:
        """Rename many names."""
        if any(kind != "prefix" for kind, _, _ in self.rules):
            return [self.apply(n) for n in names]
        for _, old, new in self.rules:
            size = len(old)
            names = [new + n[size:] if n.startswith(old) else n for n in names]
        return names

    @property
    def literal(self) -> bool:
        """Whether no rule is a regular expression, so that names with ``{i}`` may be renamed as they stand."""
        return all(kind != "regex" for kind, _, _ in self.rules)


def mapper(renames: Iterable[t.Rename], family: str, prefix: str = "") -> Mapper:
    """Collect renames whose kind starts with ``prefix`` (empty: those that also map declarations)."""
    chosen = []
    for kind in _ORDER:
        for rename in renames:
            if rename.kind == prefix + kind:
                if kind == "regex":
                    import regex

                    try:
                        regex.compile(rename.old)
                    except regex.error as error:
                        raise RuleError(
                            "BL117",
                            f"bad regular expression `{rename.old}`: {error}",
                            place=family,
                            help="escape it, or use `substring`",
                        ) from error
                chosen.append((kind, rename.old, rename.new))
    return Mapper(tuple(chosen))
