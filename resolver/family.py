"""A family file compiled for one model class, loader and version."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from .expressions import Scope, evaluate
from .naming import Mapper, mapper
from .templates import Builder, StackPlan, check_shapes
from .values import descend
from .versions import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..rules.library import Library, RuleFile

_INDEX = frozenset({"i"})
NO_CLASS: Final = "BL234"


@dataclass(frozen=True, slots=True)
class Family:
    """A family file compiled for one loader and version."""

    name: str
    file: str
    loader: str
    version: str
    scope_paths: tuple[str, ...]
    stacks: tuple[StackPlan, ...]
    requires: tuple[t.Require, ...]
    lets: Mapping[str, t.Expr]
    renames: Mapper
    path_renames: Mapper
    packed: Mapping[str, tuple[str, ...]]
    architecture: str = ""
    varies: dict[tuple[str, int], bool] = field(default_factory=dict)
    _overlaid: Mapping[int, str] = field(default_factory=dict)

    def file_of(self, node: t.Node) -> str:
        """Return the file that a statement of the family, or a part of one, stands in."""
        return self._overlaid.get(id(node), self.file)

    def place(self, node: t.Node) -> str:
        """Return the file and line of a statement of the family, or of a part of one."""
        return f"{self.file_of(node)}:{node.at.line}"

    def scope(self, config: Mapping[str, Any]) -> Scope:
        """Return the expression scope of a config: the text model's keys bare, the whole file as ``config``."""
        base: Any = config
        for path in self.scope_paths:
            found = config if path == "root" else descend(config, path)
            if isinstance(found, dict):
                base = found
                break
        return Scope(base, {"config": config}, self.lets, volatile=_INDEX)


def find_file(library: Library, architecture: str) -> RuleFile:
    """Return the family file that serves a model class.

    Raises
    ------
    CheckpointError
        BL230: no family file names the class.
    """
    known = library.architectures()
    if architecture not in known:
        raise CheckpointError(
            "BL230",
            f"no family file describes `{architecture}`",
            place="config.json#/architectures",
            help=nearest(architecture, known)
            or "write one: docs/new-family.md; `bitlane rules list` shows the known ones",
        )
    return known[architecture]


def compile_family(library: Library, architecture: str, loader: str, version: str) -> Family:
    """Compile the family file of a model class for a loader and version; cached per library.

    Raises
    ------
    CheckpointError
        BL230 no family file names the class, BL231 none says how the loader names its modules, BL234 this version of
        the loader has no such class.
    """
    return _compiled(library.files, find_file(library, architecture), architecture, loader, version, _Lib(library))


class _Lib:
    """Carries a library past ``lru_cache`` without taking part in the key."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lib)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=128)
def _compiled(
    files: tuple[RuleFile, ...],  # noqa: ARG001 - the files key the cache
    file: RuleFile,
    architecture: str,
    loader: str,
    version: str,
    lib: _Lib,
) -> Family:
    head, placed = lib.library.family(file)
    items = [p.item for p in placed if not isinstance(p.item, t.Statement) or holds(p.item, version)]
    _check_names(items, head.name, file.label, loader)
    _check_class(items, file, architecture, loader, version)
    check_shapes(placed)
    known = Scope({"architecture": architecture, "loader": loader})
    rules = _naming(items, loader, version, known)
    renames = [r for r in rules if isinstance(r, t.Rename)]
    spelling = mapper([r for r in _naming(items, "checkpoint", version, known) if isinstance(r, t.Rename)], file.label)
    declared = mapper(renames, file.label)
    paths = mapper(renames, file.label, "path_")
    fuses = [r for r in rules if isinstance(r, t.Fuse)]
    nevers = [r for r in rules if isinstance(r, t.Never)]
    packed = {f.name: f.shards for f in fuses if not f.unmapped}
    classes = {r.old: r.new for r in renames if r.kind == "class"}
    asked = [r for r in rules if isinstance(r, t.Asked)]
    builder = Builder(spelling, declared, paths, fuses, nevers, asked, classes, version)
    stacks: list[StackPlan] = []
    loose: list[t.Item] = []
    for item in items:
        if isinstance(item, t.Stack):
            stacks += builder.outside(loose)
            loose = []
            stacks.append(builder.stack(item))
        elif isinstance(item, (t.Module, t.Operation, t.Overlap, t.Part)):
            loose.append(item)
    stacks += builder.outside(loose)
    scopes = next((i.paths for i in items if isinstance(i, t.ConfigScope)), ("root",))
    lets = {i.name: i.value for i in items if isinstance(i, t.Let)}
    lets.update({r.name: r.value for r in rules if isinstance(r, t.Let)})
    requires = tuple(i for i in items if isinstance(i, t.Require))
    return Family(
        head.name,
        file.label,
        loader,
        version,
        scopes,
        tuple(stacks),
        requires,
        lets,
        declared,
        paths,
        packed,
        architecture,
        _overlaid={i: p.file for p in placed if p.file != file.label for i in _identities(p.item)},
    )


def _identities(node: t.Node) -> Iterator[int]:
    """Yield the identity of a statement and of everything inside it; the library keeps them alive."""
    yield id(node)
    for name in node.__struct_fields__:
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, t.Node):
                yield from _identities(part)


def _check_names(items: list[t.Item], family: str, label: str, loader: str) -> None:
    """Refuse a loader whose names for this family nobody has written down: checkpoint names would pass for its own."""
    told = sorted({n.loader for n in items if isinstance(n, t.Names)} - {"checkpoint"})
    if told and loader not in (*told, "spec"):
        raise CheckpointError(
            "BL231",
            f"family `{family}` does not say how {loader} names and fuses its modules",
            place=label,
            help=f"add `names {loader}` in an overlay (`extend family {family}`); told: {', '.join(told)}",
        )


def _check_class(items: list[t.Item], file: RuleFile, architecture: str, loader: str, version: str) -> None:
    """Refuse a model class that this version of the loader does not have."""
    lacking = (
        r
        for n in items
        if isinstance(n, t.Names) and n.loader == loader and holds(n, version)
        for r in n.rules
        if isinstance(r, t.Lacks) and holds(r, version) and architecture in r.architectures
    )
    rule = next(lacking, None)
    if rule is not None:
        raise CheckpointError(
            NO_CLASS,
            f"{loader} {version} has no model class `{architecture}`: it refuses the checkpoint, or builds a general "
            "class that no rule describes",
            place=f"{file.label}:{rule.at.line}",
            help="choose a version that has it, or ask what the metadata means with `--loader spec`",
        )


def _naming(
    items: list[t.Item], loader: str, version: str, known: Scope
) -> list[t.Rename | t.Fuse | t.Never | t.Asked | t.Let]:
    """Return the rules of a loader's ``names`` blocks; conditions on them know the model class, not the config."""
    rules = [
        r
        for n in items
        if isinstance(n, t.Names) and n.loader == loader and holds(n, version)
        for r in n.rules
        if not isinstance(r, t.Lacks) and holds(r, version)
    ]
    return [r for r in rules if not isinstance(r, (t.Rename, t.Fuse)) or r.when is None or evaluate(r.when, known)]
