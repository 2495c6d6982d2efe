"""The config keys that a family names, against those that published configs and its tests have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..grammar import tree as t
from ..grammar.diagnostics import closest
from ..grammar.format import children
from ..grammar.lint import parts
from ..grammar.logic import split
from .lint_expressions import expressions, heads, slip
from .lint_values import SPELLINGS
from .values import descend
from .vocabulary import FAMILY_VALUES, OPERATION_VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..grammar.findings import Findings
    from .vocabulary import Vocabulary

_ARITHMETIC: Final = ("+", "-", "*", "/", "//", "%")


class Missing(NamedTuple):
    """A part of a dotted name that no config has: the name to its end, and the keys that stand beside it."""

    name: str
    beside: set[str]


@dataclass(frozen=True, slots=True)
class Keys:
    """Which names of a config are known.

    Attributes
    ----------
    bases
        Dictionaries whose keys are used bare.
    roots
        First names that lead into other dictionaries, with those dictionaries.
    """

    bases: Sequence[Mapping[str, Any]]
    roots: Mapping[str, Sequence[Mapping[str, Any]]]

    def unknown(self, path: str, lets: Mapping[str, t.Expr]) -> Missing | None:
        """Return the part of a dotted name that no dictionary has; None when all is known or cannot be told."""
        head, _, rest = path.partition(".")
        if head in lets:
            value = lets[head]
            if not rest or not isinstance(value, t.Ref) or value.path.partition(".")[0] == head:
                return None
            # `vision.depth` where `vision` is a key of the config: look the key up through its definition.
            found = self.unknown(f"{value.path}.{rest}", lets)
            # What the definition itself lacks is told where that stands.
            if found is None or not found.name.startswith(value.path + "."):
                return None
            return Missing(head + found.name[len(value.path) :], found.beside)
        if head in self.roots:
            found = _missing(self.roots[head], rest.split(".")) if rest else None
            return Missing(f"{head}.{found.name}", found.beside) if found is not None else None
        return _missing(self.bases, path.split("."))


def _missing(documents: Sequence[Any], keys: list[str]) -> Missing | None:
    current = list(documents)
    for depth, key in enumerate(keys):
        following = [d[key] for d in current if isinstance(d, dict) and key in d]
        if not following:
            return Missing(".".join(keys[: depth + 1]), {k for d in current if isinstance(d, dict) for k in d})
        if any(not isinstance(v, dict) for v in following):
            return None
        current = following
    return None


def needed(node: t.Expr, bare: bool = True) -> Iterator[t.Ref]:
    """Yield the references whose absence would break an expression that must give a number or a text.

    Comparisons, tests and conditions take an absent key for what it is; arithmetic and values cannot. ``bare``: whether
    the expression's own value is such a number or text.
    """
    todo = [(node, bare)]
    while todo:
        current, must = todo.pop()
        if isinstance(current, t.Ref):
            if must:
                yield current
        elif isinstance(current, t.Conditional):
            todo += [(current.then, must), (current.otherwise, must)]
        elif isinstance(current, t.Minus) or (isinstance(current, t.Binary) and current.operator in _ARITHMETIC):
            todo += [(p, True) for p in parts(current)]
        elif isinstance(current, t.Call) and current.function in ("ceil", "round_up"):
            todo += [(a, True) for a in current.arguments]


def chains(node: t.Expr) -> Iterator[list[t.Expr]]:
    """Yield the alternatives of every `one or other` in an expression."""
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, t.Binary) and current.operator == "or":
            alternatives = split(current, "or")
            yield alternatives
            todo += alternatives
        else:
            todo += parts(current)


def asked(node: t.Expr) -> Iterator[str]:
    """Yield the names that an expression asks whether they are there, or of which it takes nothing for an answer."""
    todo = [node]
    while todo:
        current = todo.pop()
        todo += parts(current)
        about = current.value if isinstance(current, t.Presence) else None
        if isinstance(current, t.Call) and current.function in ("type", "len"):
            about = current.arguments[0]
        if isinstance(about, t.Ref):
            yield about.path


class KeyLint:
    """Checks the keys that one family file names; ``merged`` are the family's statements, overlays included.

    Attributes
    ----------
    suggested
        Names that a finding asks whether they were meant.
    """

    def __init__(self, merged: Sequence[t.Node], vocabulary: Vocabulary, findings: Findings) -> None:
        self.merged, self.vocabulary, self.findings = merged, vocabulary, findings
        self.suggested: set[str] = set()
        self.keys = Keys((), {})
        self.sized: set[str] = set()

    def run(self, nodes: Sequence[t.Node], architectures: Sequence[str]) -> None:
        """Report unknown keys in some of the family's statements."""
        configs = self.vocabulary.configs(architectures)
        if not configs:
            return
        paths = next((i.paths for i in self.merged if isinstance(i, t.ConfigScope)), ("root",))
        self.keys = Keys([_base(c, paths) for c in configs], {"config": configs})
        outer = {n.name: n.value for n in self.merged if isinstance(n, t.Let)}
        for node in self.merged:
            if isinstance(node, t.Names):
                outer.update({r.name: r.value for r in node.rules if isinstance(r, t.Let)})
        self.sized = _sized(self.merged)
        self._scope(nodes, outer)

    def _scope(self, nodes: Sequence[t.Node], lets: Mapping[str, t.Expr]) -> None:
        inner = {**lets, **{n.name: n.value for n in nodes if isinstance(n, t.Let)}}
        for node in nodes:
            # Modules are whole; only what runs on one GPU knows how the model is split.
            known = FAMILY_VALUES if isinstance(node, t.Module) else FAMILY_VALUES | OPERATION_VALUES
            for expression in expressions(node):
                self._expression(node, expression, inner, known)
            if isinstance(node, (t.Stack, t.Part, t.Names)):
                self._scope(children(node), inner)

    def _expression(self, node: t.Node, whole: t.Expr, lets: Mapping[str, t.Expr], values: frozenset[str]) -> None:
        bare = not isinstance(node, t.Let) or node.name in self.sized
        must = set() if whole is getattr(node, "when", None) else {id(r) for r in needed(whole, bare)}
        unknown = {id(r): m for r, h in heads(whole) if (m := self._missing(r, h, lets, values)) is not None}
        tested = set(asked(whole))
        optional: set[int] = set()
        silent: set[int] = set()
        for chain in chains(whole):
            here = [id(a) for a in chain if id(a) in unknown]
            # One that is known provides for the others; where none is, the first speaks for all.
            optional.update(here if len(here) < len(chain) else ())
            silent.update(here[1:] if len(here) == len(chain) else ())
        told: set[str] = set()
        for ref, _ in heads(whole):
            missing = unknown.get(id(ref))
            if missing is None or id(ref) in silent:
                continue
            key = missing.name.rpartition(".")[2]
            others = missing.beside | ({*lets, *values} if "." not in missing.name else set())
            slipped = next((k for k in sorted(others) if slip(key, k)), "")
            # Where its absence breaks nothing, a branch is merely untested, and other families have more keys.
            elsewhere = key in self.vocabulary.metadata_keys
            expected = not slipped and (id(ref) in optional or ref.path in tested)
            if id(ref) not in must and (elsewhere or expected or key in told):
                continue
            told.add(key)
            self._report(ref, missing, slipped or closest(key, others), id(ref) in must)

    def _missing(self, ref: t.Ref, head: str, lets: Mapping[str, t.Expr], values: frozenset[str]) -> Missing | None:
        if head in values or ref.path in SPELLINGS:
            return None
        return self.keys.unknown(ref.path, lets)

    def _report(self, ref: t.Ref, missing: Missing, near: str, must: bool) -> None:
        self.suggested.add(near)
        path = ".".join([*missing.name.split(".")[:-1], near])
        hint = f"did you mean `{path}`?" if near else "spell it as the checkpoint does, or put it into a test"
        message = f"no known config of this family has `{missing.name}`"
        self.findings.add("BL123", message, ref, ref.path, hint, severity="" if must else "warning")


def _sized(nodes: Sequence[t.Node]) -> set[str]:
    """Return the definitions that sizes and numbers are made of."""
    lets: dict[str, list[t.Expr]] = {}
    todo: list[t.Expr] = []
    for node in _all(nodes):
        if isinstance(node, t.Let):
            lets.setdefault(node.name, []).append(node.value)
        else:
            todo += [e for e in expressions(node) if e is not getattr(node, "when", None)]
    out: set[str] = set()
    while todo:
        for ref in needed(todo.pop()):
            if ref.path in lets and ref.path not in out:
                out.add(ref.path)
                todo += lets[ref.path]
    return out


def _all(nodes: Sequence[t.Node]) -> Iterator[t.Node]:
    for node in nodes:
        yield node
        yield from _all(children(node))


def _base(config: Mapping[str, Any], paths: Sequence[str]) -> Mapping[str, Any]:
    for path in paths:
        found = config if path == "root" else descend(config, path)
        if isinstance(found, dict):
            return found
    return config
