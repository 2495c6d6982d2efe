"""Which rule files are in force: packaged ones, overlaid by the user's, parsed once and cached as plain data."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from .. import paths
from ..cachedir import private_dir, write_atomic
from ..errors import RuleError, UsageError
from ..grammar import parsing
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.ranges import bounded
from ..grammar.scan import pieces

_DECODER: Final = msgspec.msgpack.Decoder(t.File)
_HEAD: Final = re.compile(r"^[ \t]*(?:loader|family|lanes|extend)\b", re.MULTILINE)
# In a list of statements the last definition of a name counts, for all others the first that applies.
_LAST_COUNTS: Final = (t.Let, t.Builtin, t.Chain, t.SystemAlias)
_MAX_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One rule file that is in force.

    Attributes
    ----------
    label
        How it is cited: ``loaders/vllm.rules`` for packaged files, the path for a user's.
    path
        Where it lies.
    kind, name
        ``loader vllm``, ``family nemotron_h``, ``lanes``, and ``extend ...`` for overlays.
    architectures
        For families, which model classes it serves.
    text
        Content that stands in for the file's: an editor's unsaved buffer, an example. None: what lies at ``path``.
    stamp
        When and how large the file was; tells two states of one file apart.
    """

    label: str
    path: Path
    kind: str
    name: str
    architectures: tuple[str, ...] = ()
    extends: bool = False
    text: str | None = None
    stamp: tuple[int, int] = (0, 0)

    @property
    def packaged(self) -> bool:
        """Whether the file is one of the package's own."""
        return self.path.is_relative_to(paths.RULES)

    def tree(self) -> t.File:
        """Return the parsed file."""
        return load(self.path, self.label) if self.text is None else _parsed(self.text, self.label)

    def source(self) -> str:
        """Return the file's text."""
        return self.path.read_text(encoding="utf-8") if self.text is None else self.text


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement together with the file that it stands in.

    Attributes
    ----------
    added
        For a format that overlays add to: how many of its first and last items each file put there, outermost first.
    """

    item: t.Item
    file: str
    added: tuple[tuple[int, int, str], ...] = ()

    def file_of(self, position: int) -> str:
        """Return the file of a format's item."""
        size = len(self.item.items) if isinstance(self.item, t.Format) else 0
        for first, last, file in self.added:
            if position < first or position >= size - last:
                return file
            position, size = position - first, size - first - last
        return self.file


@dataclass(frozen=True, slots=True)
class Library:
    """All rule files in force, found but not yet parsed."""

    files: tuple[RuleFile, ...]
    shadowed: tuple[RuleFile, ...] = ()

    def loaders(self) -> list[str]:
        """Names of the known loaders."""
        return sorted(f.name for f in self.files if f.kind == "loader" and not f.extends)

    def families(self) -> list[RuleFile]:
        """The family files."""
        return [f for f in self.files if f.kind == "family" and not f.extends]

    def architectures(self) -> dict[str, RuleFile]:
        """Model class to family file; the first family that names a class serves it."""
        out: dict[str, RuleFile] = {}
        for file in self.families():
            for name in file.architectures:
                out.setdefault(name, file)
        return out

    def loader(self, name: str) -> tuple[t.LoaderHead, list[Placed]]:
        """Return a loader's head and statements, overlays first.

        Raises
        ------
        UsageError
            BL220: no such loader.
        """
        found = next((f for f in self.files if f.kind == "loader" and f.name == name and not f.extends), None)
        if found is None:
            hint = nearest(name, self.loaders()) or "known: " + ", ".join(self.loaders())
            raise UsageError("BL220", f"unknown loader `{name}`", place="--loader", help=hint)
        head = found.tree().head
        if not isinstance(head, t.LoaderHead):
            raise RuleError(
                "BL104", "the file does not describe a loader", place=found.label, help="start it with `loader NAME`"
            )
        return head, self._statements(found)

    def family(self, file: RuleFile) -> tuple[t.FamilyHead, list[Placed]]:
        """Return a family's head and statements, overlays first."""
        head = file.tree().head
        if not isinstance(head, t.FamilyHead):
            raise RuleError(
                "BL104",
                "the file does not describe a family",
                place=file.label,
                help="start it with `family NAME for CLASS`",
            )
        return head, self._statements(file)

    def lanes(self) -> list[Placed]:
        """Return the lane statements, overlays first."""
        found = next((f for f in self.files if f.kind == "lanes" and not f.extends), None)
        return self._statements(found) if found is not None else []

    def _statements(self, file: RuleFile) -> list[Placed]:
        own = [Placed(i, file.label) for i in file.tree().items]
        # The strongest overlay comes first in the list and is laid on last.
        for other in reversed(self.files):
            if other.extends and other.kind == file.kind and other.name == file.name:
                own = merge([Placed(i, other.label) for i in other.tree().items], own)
        return own

    @property
    def digest(self) -> str:
        """Digest of every file in force."""
        state = hashlib.sha256()
        for file in self.files:
            state.update(file.label.encode() + b"\0" + file.source().encode())
        return state.hexdigest()[:16]


def merge(over: list[Placed], own: list[Placed]) -> list[Placed]:
    """Lay an overlay's statements over a file's, so that they count first; a format of the same name gets its items."""
    mine = {p.item.name for p in own if isinstance(p.item, t.Format)}
    extra = {p.item.name: p for p in over if isinstance(p.item, t.Format) and p.item.name in mine}
    loose = [p for p in over if not (isinstance(p.item, t.Format) and p.item.name in mine)]
    out = [p for p in loose if not isinstance(p.item, _LAST_COUNTS)]
    replaced = {(type(p.item), _defined(p.item)) for p in loose if _defined(p.item) and not bounded([p.item])}
    for placed in own:
        if (type(placed.item), _defined(placed.item)) in replaced:
            continue
        added = extra.get(placed.item.name) if isinstance(placed.item, t.Format) else None
        out.append(placed if added is None else _extended(placed, added))
    return out + [p for p in loose if isinstance(p.item, _LAST_COUNTS)]


def _defined(item: t.Item) -> str:
    """Name of a definition of which only one counts."""
    if isinstance(item, t.SystemAlias):
        return item.alias
    return item.name if isinstance(item, (t.Let, t.Builtin, t.Chain, t.Weights)) else ""


def _extended(own: Placed, over: Placed) -> Placed:
    if not isinstance(own.item, t.Format) or not isinstance(over.item, t.Format):
        return own
    last = tuple(i for i in over.item.items if isinstance(i, _LAST_COUNTS))
    first = tuple(i for i in over.item.items if not isinstance(i, _LAST_COUNTS))
    item = msgspec.structs.replace(own.item, items=(*first, *own.item.items, *last))
    return Placed(item, own.file, ((len(first), len(last), over.file), *own.added))


def _scan(path: Path, label: str) -> RuleFile | None:
    """Read a file's head line without parsing the file."""
    try:
        if path.stat().st_size > _MAX_FILE:
            raise RuleError("BL102", "a rule file of more than 1 MiB", place=label, help="split it")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RuleError(
            "BL105", f"cannot read the rule file: {error.strerror}", place=label, help="check its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise RuleError("BL105", "the rule file is not UTF-8", place=label, help="save it as UTF-8") from error
    file = read_head(text, path, label)
    if file is None:
        # Parsing names the mistake better than a guess would.
        load(path, label)
    return file


def read_head(text: str, path: Path, label: str, keep: bool = False) -> RuleFile | None:
    """Read what a rule file describes from its head, None when it has none; ``keep`` puts the text for the file."""
    found = _HEAD.search(text)
    if found is None:
        return None
    words = _head_words(text[found.start() :])
    kind, extends = words.pop(0), False
    if kind == "extend":
        kind, extends = (words.pop(0) if words else ""), True
    name = words[0] if words and kind != "lanes" else ""
    architectures = tuple(words[2:]) if kind == "family" and len(words) > 2 and words[1] == "for" else ()
    return RuleFile(label, path, kind, name, architectures, extends, text if keep else None)


def _head_words(text: str) -> list[str]:
    """Return the words of the first statement; like every statement it goes on after a comma and before `for`."""
    words: list[str] = []
    ended, comma = False, False
    for piece in pieces(text):
        if piece.kind == "newline":
            ended = not comma
        elif piece.kind != "comment":
            if ended and piece.text != "for":
                break
            ended, comma = False, piece.text == ","
            if piece.kind == "word":
                words.append(piece.text)
    return words


def find(folders: tuple[Path, ...] = ()) -> Library:
    """Find the rule files in force.

    Parameters
    ----------
    folders
        User folders, first one strongest; ``BITLANE_RULES`` (a path list) comes after them, then the packaged rules.
        A user's file for the same loader, family or architecture replaces the packaged one; ``extend`` files add to it.
    """
    stamps = tuple((root, _stamp(root)) for root in folders_in_force(folders))
    return _find(stamps)


def folders_in_force(folders: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return the folders whose rule files count, strongest first."""
    listed = tuple(Path(p) for p in os.environ.get("BITLANE_RULES", "").split(os.pathsep) if p)
    return (*folders, *listed, paths.RULES)


def find_usable(folders: tuple[Path, ...] = ()) -> Library:
    """Find the rule files in force, leaving out those that cannot be read at all; for tools that say what is wrong."""
    kept: list[RuleFile] = []
    for root in folders_in_force(folders):
        for name, mtime_ns, size in _stamp(root):
            try:
                file = opened(Path(name), _label(Path(name), root))
                file.tree()
            except RuleError:
                continue
            kept.append(replace(file, stamp=(mtime_ns, size)))
    return _ranked(kept)


def opened(path: Path, label: str) -> RuleFile:
    """Return one rule file.

    Raises
    ------
    RuleError
        It cannot be read, or does not say what it describes.
    """
    file = _scan(path, label)
    if file is None:
        raise RuleError(
            "BL100", "the file does not say what it describes", place=label, help="see docs/rule-language.md"
        )
    return file


def _label(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if root == paths.RULES else str(path)


def _stamp(root: Path) -> tuple[tuple[str, int, int], ...]:
    what = "does not exist" if not root.is_dir() else ""
    listed = sorted(root.rglob("*.rules")) if not what else []
    if not listed:
        what = what or "holds no `*.rules` file"
        raise UsageError("BL221", f"the rules folder {what}", place=str(root), help="check --rules and BITLANE_RULES")
    return tuple((str(path), *_state(path)) for path in listed)


def _state(path: Path) -> tuple[int, int]:
    """When a file was changed and how large it is; zeros for a link to nowhere, which reading reports."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=16)
def _find(stamps: tuple[tuple[Path, tuple[tuple[str, int, int], ...]], ...]) -> Library:
    kept = []
    for root, files in stamps:
        for name, mtime_ns, size in files:
            file = _scan(Path(name), _label(Path(name), root))
            if file is not None:
                kept.append(replace(file, stamp=(mtime_ns, size)))
    return _ranked(kept)


def _ranked(found: list[RuleFile]) -> Library:
    """Keep the first file of every loader, family and of the lanes, and every extension."""
    kept: list[RuleFile] = []
    shadowed: list[RuleFile] = []
    taken: set[tuple[str, str]] = set()
    for file in found:
        key = (file.kind, file.name)
        (shadowed if not file.extends and key in taken else kept).append(file)
        if not file.extends:
            taken.add(key)
    return Library(tuple(kept), tuple(shadowed))


@lru_cache(maxsize=256)
def _parsed(text: str, label: str) -> t.File:
    return parsing.parse(text, label)


@lru_cache(maxsize=1)
def _cache_folder() -> Path | None:
    return private_dir(f"rules-{parsing.grammar_digest()}")


@lru_cache(maxsize=256)
def _load(path: Path, label: str, mtime_ns: int, size: int) -> t.File:  # noqa: ARG001 - the stamps are the cache key
    data = path.read_bytes()
    folder = _cache_folder()
    cached = folder / (hashlib.sha256(data).hexdigest()[:32] + ".msgpack") if folder is not None else None
    if cached is not None:
        try:
            return _DECODER.decode(cached.read_bytes())
        except (OSError, msgspec.MsgspecError):
            # Absent, torn or foreign: parse again and write it anew.
            pass
    file = parsing.parse(data.decode("utf-8"), label)
    if cached is not None:
        write_atomic(cached, msgspec.msgpack.encode(file))
    return file


def load(path: Path, label: str) -> t.File:
    """Parse a rule file, or take it from the cache; cached trees are data, nothing in them is executed."""
    found = path.stat()
    return _load(path, label, found.st_mtime_ns, found.st_size)
