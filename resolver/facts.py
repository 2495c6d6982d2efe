"""What the metadata says about one module beyond its algorithm: group sizes, blocks, zero points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .resolution import Resolution, Resolved

_NONE: Final[Mapping[str, Any]] = {"metadata": {}, "entry": {}}


class Facts:
    """Looks up what decided a module, for the rules of stored bytes and of splits."""

    def __init__(self, resolution: Resolution) -> None:
        self._files = {name: d.value for name, d in resolution.checkpoint.files.items()}
        self._block = resolution.reading.block
        self._known: dict[str, Mapping[str, Any]] = {}

    def of(self, row: Resolved) -> Mapping[str, Any]:
        """Return the names ``metadata`` (the block that the loader read) and ``entry`` (the statement that decided).

        Both are empty for an algorithm that the user gave: the metadata does not speak of it.
        """
        if row.answer.rule_at == "command line" or self._block is None:
            return _NONE
        where = row.answer.evidence[0] if row.answer.evidence else ""
        if where not in self._known:
            self._known[where] = {"metadata": self._block, "entry": self._entry(where)}
        return self._known[where]

    def _entry(self, evidence: str) -> Mapping[str, Any]:
        """Return the innermost object around a JSON pointer that is not a whole block of metadata."""
        file, _, pointer = evidence.partition("#")
        at: Any = self._files.get(file, {})
        objects: list[Mapping[str, Any]] = []
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(at, dict):
                at = at.get(key)
            elif isinstance(at, list) and key.isdigit() and int(key) < len(at):
                at = at[int(key)]
            else:
                break
            if isinstance(at, dict):
                objects.append(at)
        return objects[-1] if objects and objects[-1] is not self._block else {}
