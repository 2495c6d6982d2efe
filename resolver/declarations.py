"""What the chosen metadata declares: exclusions, listed names and groups, in loader spelling, with their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from ..errors import CheckpointError
from .entries import Entries
from .expressions import Scope, evaluate
from .metadata import json_kind, pointer, sane_name, sane_names
from .values import ABSENT, descend

if TYPE_CHECKING:
    from ..grammar import tree as t
    from .naming import Mapper
    from .reading import Reading


@dataclass(slots=True)
class Declarations:
    """What the chosen metadata says, in loader-side spelling.

    Attributes
    ----------
    exclusions, listing, groups
        Indexed texts; ``exclusion_at``, ``listing_at`` and ``group_at`` hold the JSON pointer of each.
    listed
        The raw algorithm word of each listing entry.
    group_of
        The group of each target.
    """

    exclusions: Entries
    exclusion_at: list[str]
    listing: Entries
    listing_at: Sequence[str]
    listed: list[Any]
    groups: Entries
    group_at: list[str]
    group_of: list[Mapping[str, Any]]


def _source_value(reading: Reading, kind: str) -> tuple[t.Source | None, Any, str]:
    """Return the source statement in force, the value it names and the value's place."""
    chosen = reading.format
    if chosen is None or reading.block is None:
        return None, ABSENT, reading.at
    for source in chosen.sources:
        if source.kind != kind or (source.when is not None and not evaluate(source.when, reading.scope)):
            continue
        for path in source.paths:
            value, at = locate(reading, path)
            if value is not ABSENT and (value or len(source.paths) == 1):
                return source, value, at
        return source, ABSENT, reading.at
    return None, ABSENT, reading.at


def _merged(reading: Reading, source: t.Source) -> tuple[list[Any], list[str]]:
    """Return the entries of every list that a source names, each with its place."""
    entries: list[Any] = []
    places: list[str] = []
    for path in source.paths:
        value, at = locate(reading, path)
        if isinstance(value, list):
            entries += value
            places += [f"{at}/{n}" for n in range(len(value))]
    return entries, places


def locate(reading: Reading, path: str) -> tuple[Any, str]:
    """Return what a path names and where it stands; first names of roots leave the block."""
    head, _, rest = path.partition(".")
    roots = reading.scope.roots
    below = pointer(*rest.split(".")) if rest else ""
    if head == "block":
        return descend(reading.block or {}, rest), reading.at + below
    if head in roots:
        return descend(roots[head], rest), f"{head}.json#{below}"
    return descend(reading.block or {}, path), reading.at + pointer(*path.split("."))


def evidence_at(reading: Reading, paths: tuple[str, ...]) -> list[str]:
    """Return pointers of those paths that are there; the block itself when none is."""
    found = [at for value, at in (locate(reading, p) for p in paths) if value is not ABSENT]
    return found[:1] or [reading.at]


def declarations(reading: Reading, mapper: Mapper) -> Declarations:
    """Read the lists of the chosen format and rename their entries as the loader does."""
    texts, places = _exclusions(reading, mapper)
    listing, listing_at, listed = _listing(reading, mapper)
    reading.scope.values["listed"] = listing
    targets, group_at, group_of = _groups(reading, mapper)
    return Declarations(
        Entries(texts), places, Entries(listing), listing_at, listed, Entries(targets), group_at, group_of
    )


def _rename(text: str, source: t.Source, mapper: Mapper) -> str:
    if "unmapped" in source.flags or ("dotted_only" in source.flags and ("." not in text or text.startswith("re:"))):
        return text
    return mapper.apply(text)


def _spelled(text: str, source: t.Source, mapper: Mapper) -> list[str]:
    """Rename an entry and add the other spellings under which it counts.

    `also` comes with the renames: a model class that has none has none of these spellings; `also_raw` always counts.
    """
    renamed = _rename(text, source, mapper)
    out = [renamed]
    for other in source.also:
        if other.raw and text.startswith(other.old):
            out.append(_rename(other.new + text[len(other.old) :], source, mapper))
        elif not other.raw and mapper and renamed.startswith(other.old):
            out.append(other.new + renamed[len(other.old) :])
    return list(dict.fromkeys(out))


def _from_text(value: Any, source: t.Source) -> Any:
    """Return the entries that an engine reads out of a text where a list belongs; other values as they are."""
    if isinstance(value, str):
        if "commas" in source.flags:
            return value.split(",")
        if "letters" in source.flags:
            return list(value)
    return value


def _exclusions(reading: Reading, mapper: Mapper) -> tuple[list[str], list[str]]:
    source, value, at = _source_value(reading, "exclusions")
    if source is None or value is ABSENT or value is None:
        return [], []
    value = list(value) if isinstance(value, dict) else _from_text(value, source)
    at_entry = [f"{at}/{n}" for n in range(len(value))] if isinstance(value, list) else []
    if "merged" in source.flags:
        value, at_entry = _merged(reading, source)
    if not isinstance(value, list):
        raise CheckpointError(
            "BL243",
            f"the exclusion list is {json_kind(value)}, not a list",
            place=at,
            help="repair the checkpoint's metadata",
        )
    texts: list[str] = []
    places: list[str] = []
    for number, entry in enumerate(value):
        if not sane_name(entry):
            reading.findings.append(
                (
                    "BL291",
                    f"the exclusion at {at_entry[number]} is no printable text; it matches nothing",
                )
            )
            continue
        split = (
            "split_stars" in source.flags
            and bool(mapper)
            and len(entry) >= 2
            and entry.endswith("*")
            and entry[-2] != "."
        )
        for text in (entry[:-1], entry[:-1] + ".*") if split else (entry,):
            for spelled in _spelled(text, source, mapper):
                texts.append(spelled)
                places.append(at_entry[number])
    return texts, places


def _listing(reading: Reading, mapper: Mapper) -> tuple[list[str], Sequence[str], list[Any]]:
    source, value, at = _source_value(reading, "listing")
    if source is None or value is ABSENT or value is None:
        return [], [], []
    value = _from_text(value, source)
    if isinstance(value, list):
        # A list of names, in blocks or flat: listed is all that it says.
        flat = _flat(value)
        names = [n for n in flat if sane_name(n)]
        if len(names) < len(flat):
            told = f"{len(flat) - len(names)} entries of the list at {at} are no printable texts; they match nothing"
            reading.findings.append(("BL291", told))
        texts = names if "unmapped" in source.flags else mapper.apply_all(names)
        return texts, [at] * len(texts), ["listed"] * len(texts)
    if not isinstance(value, dict):
        raise CheckpointError(
            "BL243",
            f"the listing is {json_kind(value)}, not an object",
            place=at,
            help="repair the checkpoint's metadata",
        )
    names = list(value)
    if not sane_names(names):
        odd = sum(not sane_name(n) for n in names)
        reading.findings.append(
            (
                "BL291",
                f"{odd} keys of the listing at {at} are no printable texts; they match nothing",
            )
        )
        names = [n for n in names if sane_name(n)]
    texts = names if "unmapped" in source.flags else mapper.apply_all(names)
    key, upper = source.key or "", "upper" in source.flags
    words = [entry.get(key, ABSENT) if isinstance(entry, dict) else entry for entry in map(value.__getitem__, names)]
    if upper:
        words = [w.upper() if isinstance(w, str) else w for w in words]
    if len(set(texts)) < len(texts):
        # Two names that become one: the later entry counts, at the place of the first.
        merged = {t: (w, n) for t, w, n in zip(texts, words, names, strict=True)}
        texts, words, names = list(merged), [m[0] for m in merged.values()], [m[1] for m in merged.values()]
    return texts, Places(at, names), words


def _flat(value: list[Any]) -> list[Any]:
    return [item for member in value for item in (_flat(member) if isinstance(member, list) else [member])]


class Places(Sequence[str]):
    """JSON pointers of the keys of one object, written only when asked for."""

    __slots__ = ("at", "names")

    def __init__(self, at: str, names: list[str]) -> None:
        self.at = at
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return the pointer of one key, or of several."""
        if isinstance(index, slice):
            return [self.at + pointer(n) for n in self.names[index]]
        return self.at + pointer(self.names[index])


def _counts(reading: Reading, group: Any, place: str) -> bool:
    """Return whether a group takes part; groups that the format refuses stop here."""
    chosen = reading.format
    if chosen is None or not (chosen.dropped_groups or chosen.group_checks):
        return True
    outer = reading.scope
    scope = Scope(
        group if isinstance(group, dict) else {}, {**outer.roots, "block": reading.block or {}}, outer.lets, place
    )
    scope.values = outer.values
    if any(d.when is None or evaluate(d.when, scope) for d in chosen.dropped_groups):
        return False
    for refuse, file in chosen.group_checks:
        if refuse.when is None or evaluate(refuse.when, scope):
            loader = reading.loader
            raise CheckpointError(
                refuse.code or "BL240",
                refuse.message,
                place=f"{place} (by {file}:{refuse.at.line})",
                help=f"{loader.name} {loader.version} refuses this group; compare other loaders with `bitlane diff`",
            )
    return True


def _groups(reading: Reading, mapper: Mapper) -> tuple[list[str], list[str], list[Mapping[str, Any]]]:
    source, value, at = _source_value(reading, "groups")
    if source is None or value is ABSENT or value is None:
        return [], [], []
    if isinstance(value, list):
        value = {str(n): g for n, g in enumerate(value)}
    if not isinstance(value, dict):
        raise CheckpointError(
            "BL243",
            f"the groups are {json_kind(value)}, not an object",
            place=at,
            help="repair the checkpoint's metadata",
        )
    where: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, group in value.items():
        if not _counts(reading, group, f"{at}{pointer(name)}"):
            continue
        if source.key is None:
            # A pattern whose group says nothing (`{}`, null, true) still matches.
            said = group if isinstance(group, dict) else {}
            if sane_name(name):
                where.setdefault(_rename(name, source, mapper), (f"{at}{pointer(name)}", said))
            else:
                told = f"a pattern at {at} is no printable text; it matches nothing"
                reading.findings.append(("BL291", told))
            continue
        targets = _from_text(group.get(source.key), source) if isinstance(group, dict) else None
        if not isinstance(targets, list):
            raise CheckpointError(
                "BL243",
                f"group `{name}` has no list of targets",
                place=f"{at}{pointer(name)}",
                help="repair the checkpoint's metadata",
            )
        for number, target in enumerate(targets):
            if not sane_name(target):
                reading.findings.append(
                    ("BL291", f"target {number} of group `{name}` is no printable text; it matches nothing")
                )
                continue
            # A repeated target keeps its place in the order and takes the later group.
            where[_rename(target, source, mapper)] = (f"{at}{pointer(name, source.key, number)}", group)
    order = sorted(where, key=lambda x: (x.startswith("re:"), x)) if "sorted" in source.flags else list(where)
    return order, [where[x][0] for x in order], [where[x][1] for x in order]
