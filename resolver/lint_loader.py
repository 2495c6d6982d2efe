"""A loader file against the vocabulary of decisions, and the metadata that exists."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ..errors import CheckpointError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.format import children, walk
from ..grammar.reach import ends, shadowed, wider
from . import patterns
from .family import NO_CLASS, compile_family
from .lint_expressions import calls, expressions, heads, slip
from .versions import holds
from .vocabulary import (
    CLASS_PATTERNS,
    LOADER_ROOTS,
    LOADER_VALUES,
    METADATA_FILES,
    MODULE_KINDS,
    MODULE_NAMES,
    PATTERNS,
    TARGETS,
    Vocabulary,
    is_target,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..grammar.findings import Findings
    from ..rules.library import Placed, RuleFile

# Targets that are one name: asking for all of them, or for their agreement, says nothing.
_SINGLE: Final = frozenset({"path", "name", "parent", "class", "shard0", "checkpoint0"})
_OF_LISTING: Final = ("first", "agree", "listed_agree", "alike")
_ACTIVATIONS: Final = ("static", "dynamic", "none")
# Besides module kinds, `leave` and `refuse` may be about the groups themselves.
_KINDS: Final = (*MODULE_KINDS, "groups")


class LoaderLint:
    """Checks the statements of one loader file (or extension) in the loader that they belong to."""

    def __init__(self, file: RuleFile, vocabulary: Vocabulary, findings: Findings) -> None:
        self.file, self.vocabulary, self.findings = file, vocabulary, findings
        self.tree = file.tree()
        self.own = {id(n) for n in walk(self.tree)} | {id(r) for n in walk(self.tree) for r in children(n)}
        self.head, placed = vocabulary.library.loader(file.name)
        self.merged: list[Placed] = placed
        self.chains = {p.item.name: p.item for p in placed if isinstance(p.item, t.Chain)}
        self.formats = [p.item for p in placed if isinstance(p.item, t.Format)]

    def run(self) -> None:
        """Report everything."""
        for node in walk(self.tree):
            for expression in expressions(node):
                calls(expression, self.findings)
            self._statement(node)
        self._names()
        self._unused()
        self._unreachable()
        for node in self.formats:
            self._sources(node)
            if any(id(i) in self.own for i in node.items) or id(node) in self.own:
                self._default(node)

    # --- single statements -------------------------------------------------------------

    def _statement(self, node: t.Node) -> None:
        for kind in getattr(node, "kinds", ()):
            if kind not in _KINDS:
                self._unknown("module kind", kind, node, _KINDS)
        if isinstance(node, (t.Use, t.Each)) and node.chain not in self.chains:
            self._unknown("chain", node.chain, node, self.chains)
        if isinstance(node, t.Read) and node.file not in METADATA_FILES:
            self._unknown("metadata file", node.file, node, METADATA_FILES)
        for target in node.on if isinstance(node, t.Each) else ():
            if not is_target(target):
                self._unknown("target", target, node, TARGETS)
        if isinstance(node, (t.Exclude, t.Take)) and node.match is not None:
            self._match(node, node.match)
        outcome = getattr(node, "outcome", None)
        if isinstance(outcome, t.Outcome) and outcome.algorithm is not None:
            self._outcome(node, outcome)

    def _unknown(self, what: str, name: str, node: t.Node, known: Sequence[str] | Mapping[str, object]) -> None:
        hint = nearest(name, known) or "known: " + ", ".join(known)
        self.findings.add("BL110", f"unknown {what} `{name}`", node, name, hint)

    def _outcome(self, node: t.Node, outcome: t.Outcome) -> None:
        known = self.vocabulary.algorithms
        if outcome.algorithm not in known:
            self._unknown("algorithm", outcome.algorithm or "", node, sorted(known))
        if outcome.activations is not None and outcome.activations not in _ACTIVATIONS:
            self._unknown("way of activations", outcome.activations, node, _ACTIVATIONS)

    def _match(self, node: t.Exclude | t.Take, match: t.Match) -> None:
        for kind in match.by:
            if kind not in PATTERNS:
                self._unknown("pattern kind", kind, node, PATTERNS)
        for target in match.on:
            if not is_target(target):
                self._unknown("target", target, node, TARGETS)
        complaint = _misfit(node, match)
        if complaint:
            word, message, hint = complaint
            self.findings.add("BL115", message, node, word, hint)
        elif isinstance(node, t.Exclude) and match.named and match.on == ("path",):
            for pattern in match.named:
                if self._paths and not any(map(patterns.glob(pattern), self._paths)):
                    message = f"`{pattern}` matches no module of any family under {self.file.name}"
                    hint = "spell it as this loader spells its modules"
                    self.findings.add("BL120", message, node, pattern, hint)

    @cached_property
    def _paths(self) -> list[str]:
        """Every module path of every family in the newest version of this loader, for two layers."""
        version = self.vocabulary.versions(self.file.name)[-1]
        out: list[str] = []
        for architecture, file in self.vocabulary.library.architectures().items():
            told = {i.loader for i in file.tree().items if isinstance(i, t.Names)}
            if self.file.name not in told and self.file.name != "spec":
                continue
            try:
                family = compile_family(self.vocabulary.library, architecture, self.file.name, version)
            except CheckpointError as error:
                if error.code == NO_CLASS:
                    continue
                raise
            for path in (p.path for s in family.stacks for b in s.blocks for p in b.templates):
                out += [path.replace("{i}", str(i)) for i in (1, 10)]
        return out

    # --- names ---------------------------------------------------------------------------

    def _names(self) -> None:
        shared = {p.item.name for p in self.merged if isinstance(p.item, t.Let)}
        inner = {i.name for f in self.formats for i in f.items if isinstance(i, t.Let)}
        for item in self.tree.items:
            if isinstance(item, t.Format):
                merged = next((f for f in self.formats if f.name == item.name), item)
                lets = shared | {i.name for i in merged.items if isinstance(i, t.Let)}
                self._known([item, *item.items, *(r for i in item.items for r in children(i))], lets)
            else:
                # Lets and chains of the file are evaluated inside formats, whose own names they may use.
                self._known([item, *children(item)], shared | inner)

    @cached_property
    def _mentioned(self) -> Counter[str]:
        """How often the loaders in force mention a key."""
        out: Counter[str] = Counter()
        for file in self.vocabulary.library.files:
            if file.kind == "loader":
                nodes = [n for i in walk(file.tree()) for n in (i, *children(i))]
                out.update(k for p in {p for n in nodes for _, p in _paths(n)} for k in p.split("."))
        return out

    def _known(self, nodes: Sequence[t.Node], lets: set[str]) -> None:
        """Report keys that look misspelt: nobody else uses them, no metadata has them, and one that is known is near.

        Loaders also read formats of which no example is at hand, so that an unknown key alone says nothing.
        """
        known = self.vocabulary.metadata_keys | lets | {k for k, n in self._mentioned.items() if n > 1}
        for node in nodes:
            for where, path in _paths(node):
                head, *rest = path.split(".")
                names = rest if head in lets | LOADER_ROOTS | LOADER_VALUES | MODULE_NAMES else [head, *rest]
                for name in names:
                    near = next((k for k in sorted(known) if slip(name, k)), "") if name not in known else ""
                    if near:
                        message = f"no known metadata has the key `{name}`"
                        hint = f"did you mean `{near}`?"
                        self.findings.add("BL123", message, where, path, hint, severity="warning")

    # --- what is defined and used ----------------------------------------------------------

    def _all(self) -> Iterator[t.Node]:
        for placed in self.merged:
            yield placed.item
            for child in children(placed.item):
                yield child
                yield from children(child)

    def _unused(self) -> None:
        used = {h for n in self._all() for e in expressions(n) for _, h in heads(e)}
        used |= {p.partition(".")[0] for n in self._all() for p in (*getattr(n, "paths", ()), *_evidence(n))}
        chained = {n.chain for n in self._all() if isinstance(n, (t.Use, t.Each))}
        targets = {o for n in self._all() for o in _targets(n)}
        for node in walk(self.tree):
            if isinstance(node, t.Let) and node.name not in used:
                self.findings.add("BL127", f"`{node.name}` is never used", node, node.name, "remove it")
            elif isinstance(node, t.Chain) and node.name not in chained:
                hint = f"write `use {node.name}` in a format"
                self.findings.add("BL127", f"chain `{node.name}` is never used", node, node.name, hint)
            elif isinstance(node, t.Builtin) and not ({"builtin", node.name} & targets):
                hint = "look at it with `on builtin`"
                self.findings.add("BL127", f"`{node.name}` is never looked at", node, node.name, hint)

    def _sources(self, node: t.Format) -> None:
        steps = [s for s, _ in self._steps(node.items)]
        wants = {w for s in steps for w in _wants(s)}
        if any(h == "listed" for i in node.items for e in expressions(i) for _, h in heads(e)):
            wants.add("listing")
        has: set[str] = {i.kind for i in node.items if isinstance(i, t.Source)}
        has |= {type(i).__name__.lower() for i in node.items if isinstance(i, (t.Algorithms, t.Schemes))}
        groups = any(isinstance(s, t.Default) and s.group is not None for s in steps)
        for step in steps:
            missing = sorted(_wants(step) - has)
            # A chain that several formats share may look at lists that some of them lack.
            if missing and id(step) in self.own and any(step is i for i in node.items):
                hint = f"add `{missing[0]} ...` to the format"
                self.findings.add("BL128", f"format `{node.name}` has no `{missing[0]}`", step, help=hint)
        for item in node.items:
            if id(item) not in self.own:
                continue
            kind = item.kind if isinstance(item, t.Source) else type(item).__name__.lower()
            if isinstance(item, (t.Source, t.Algorithms, t.Schemes)) and kind not in wants:
                if kind == "schemes" and groups:
                    continue
                hint = "add the rule that should, or remove it"
                self.findings.add("BL127", f"no rule of format `{node.name}` looks at its `{kind}`", item, kind, hint)

    # --- chains --------------------------------------------------------------------------------

    def _steps(self, items: Sequence[t.Node], seen: tuple[str, ...] = ()) -> Iterator[tuple[t.Node, int]]:
        """Yield the steps of a chain, `use` and `each` resolved, each with the number of its run of names."""
        for item in items:
            if isinstance(item, (t.Use, t.Each)):
                chain = self.chains.get(item.chain)
                if chain is not None and item.chain not in seen:
                    run = id(item) if isinstance(item, t.Each) else 0
                    for step, deeper in self._steps(chain.steps, (*seen, item.chain)):
                        yield step, deeper or run
                if isinstance(item, t.Each):
                    yield item, 0
            elif isinstance(item, (t.Leave, t.Exclude, t.Take, t.Default)) or _about_modules(item, bool(seen)):
                yield item, 0

    def _unreachable(self) -> None:
        uses: dict[int, int] = {}
        hidden: dict[int, list[tuple[t.Node, t.Node]]] = {}
        for node in self.formats:
            steps = list(self._steps(node.items))
            for run in sorted({r for _, r in steps}):
                mine = [s for s, r in steps if r == run]
                for step in mine:
                    uses[id(step)] = uses.get(id(step), 0) + 1
                for pair in shadowed(mine):
                    hidden.setdefault(id(pair[0]), []).append(pair)
        rows = [i.rows for f in self.formats for i in f.items if isinstance(i, (t.Algorithms, t.Schemes))]
        pairs = [p for group in rows for p in _hidden_rows(group)] + _hidden_formats(self.formats)
        # A step that several formats share is unreachable when it is so in all of them.
        pairs += [found[0] for key, found in hidden.items() if len(found) == uses[key]]
        for later, earlier in pairs:
            if id(later) in self.own:
                related = (earlier, "this one decides before") if id(earlier) in self.own else None
                hint = "put it before, or remove it"
                self.findings.add("BL111", "no module is left for this rule", later, help=hint, related=related)

    def _default(self, node: t.Format) -> None:
        for version in self.head.versions:
            if not holds(node, version) or self._closes(node.items, version):
                continue
            message = f"format `{node.name}` may leave a module undecided in {version}"
            self.findings.add("BL121", message, node, node.name, "end its chain with `default`")
            return

    def _closes(self, items: Sequence[t.Node], version: str, seen: tuple[str, ...] = ()) -> bool:
        alive = [i for i in items if not isinstance(i, t.Statement) or holds(i, version)]
        for item in alive:
            if isinstance(item, (t.Use, t.Each)) and item.chain not in self.chains:
                return True
            if not isinstance(item, (t.Use, t.Each)) or item.chain in seen:
                continue
            guarded = isinstance(item, t.Each) and (item.when is not None or bool(item.kinds))
            if not guarded and self._closes(self.chains[item.chain].steps, version, (*seen, item.chain)):
                return True
        return ends(alive, MODULE_KINDS)


def _paths(node: t.Node) -> Iterator[tuple[t.Node, str]]:
    """Yield every path into metadata that a statement names, with the node that it stands in."""
    for expression in expressions(node):
        for ref, _ in heads(expression):
            yield ref, ref.path
    for path in (*_evidence(node), *(node.paths if isinstance(node, t.Source) else ())):
        yield node, path


def _evidence(node: t.Node) -> tuple[str, ...]:
    group = getattr(node, "group", None)
    found: tuple[str, ...] = getattr(node, "evidence", ())
    return (*found, group) if isinstance(group, str) else found


def _targets(node: t.Node) -> tuple[str, ...]:
    if isinstance(node, t.Each):
        return node.on
    match = getattr(node, "match", None)
    return match.on if isinstance(match, t.Match) else ()


def _about_modules(node: t.Node, in_chain: bool) -> bool:
    """Whether a `refuse` is a step of a chain: it stands in one, or speaks of modules."""
    if not isinstance(node, t.Refuse) or node.kinds == ("groups",):
        return False
    named = node.when is not None and any(h in MODULE_NAMES for _, h in heads(node.when))
    return in_chain or bool(node.kinds) or named


def _wants(step: t.Node) -> set[str]:
    """Return the parts of a format that a step looks at."""
    if isinstance(step, t.Exclude) and not step.match.named:
        return {"listing"} if step.unlisted else {"exclusions"}
    if isinstance(step, t.Take):
        return {"listing", "algorithms"} if step.source == "listing" else {"groups", "schemes"}
    return set()


def _misfit(node: t.Exclude | t.Take, match: t.Match) -> tuple[str, str, str] | None:
    """Return (word, message, help) for a matcher that its list or target cannot answer."""
    quantifier = match.quantifier
    if isinstance(node, t.Exclude) and quantifier in _OF_LISTING:
        return quantifier or "", f"exclusions cannot be asked for `{quantifier}`", "any, all or all_or_refuse"
    if match.named and (match.containing is not None or match.ending):
        word = "containing" if match.containing is not None else "ending"
        return word, f"`named` patterns take no `{word}`", "write it into the patterns"
    wrong = [k for k in match.by if (k in CLASS_PATTERNS) is not ("class" in match.on) and k in CLASS_PATTERNS]
    if wrong:
        return wrong[0], f"`{wrong[0]}` compares classes, not names", "add `on class`"
    dotted = [k for k in match.by if k in ("parent", "descendant", "suffix", "infix", "subtree", "dotted", "tail")]
    if dotted and set(match.on) == {"class"}:
        return dotted[0], f"a class has no `{dotted[0]}`", "exact or class_part"
    single = set(match.on) <= _SINGLE and not {"descendant", "within", "subtree"} & set(match.by)
    if single and quantifier in ("all", "all_or_refuse"):
        return quantifier or "", f"`{quantifier}` of a single name", "add `on shards`, or leave it out"
    return None


def _hidden_rows(rows: Sequence[t.Algorithm | t.Scheme]) -> list[tuple[t.Node, t.Node]]:
    """Rows of `algorithms` or `schemes` that an earlier row leaves nothing to."""
    out: list[tuple[t.Node, t.Node]] = []
    for position, later in enumerate(rows):
        for earlier in rows[:position]:
            words = getattr(earlier, "words", ())
            narrow = bool(words) and not (getattr(later, "words", ()) and set(later.words) <= set(words))  # type: ignore[union-attr]
            if not narrow and wider(earlier, later):
                out.append((later, earlier))
                break
    return out


def _hidden_formats(formats: Sequence[t.Format]) -> list[tuple[t.Node, t.Node]]:
    out: list[tuple[t.Node, t.Node]] = []
    for position, later in enumerate(formats):
        earlier = next((f for f in formats[:position] if f.name != later.name and wider(f, later)), None)
        if earlier is not None:
            out.append((later, earlier))
    return out
