"""A loader file against the vocabulary of decisions, and the metadata that exists."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ..errors import CheckpointError
from ..grammar import tree as t
from ..grammar.diagnostics import closest
from ..grammar.format import walk
from . import patterns
from .family import NO_CLASS, compile_family
from .lint_chains import lint_chains
from .lint_expressions import calls, expressions
from .lint_merged import Merged
from .lint_scopes import lint_scopes
from .lint_values import comparisons, literals
from .lint_versions import lint_loader_versions
from .vocabulary import (
    ACTIVATIONS,
    CLASS_PATTERNS,
    METADATA_FILES,
    MODULE_KINDS,
    PATTERNS,
    TARGETS,
    Vocabulary,
    is_target,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..grammar.findings import Findings
    from ..rules.library import RuleFile

# Targets that are one name: asking for all of them, or for their agreement, says nothing.
_SINGLE: Final = frozenset({"path", "name", "parent", "class", "shard0", "checkpoint0"})
_OF_LISTING: Final = ("first", "agree", "listed_agree", "alike")
# Besides module kinds, `leave` and `refuse` may be about the groups themselves.
_KINDS: Final = (*MODULE_KINDS, "groups")
_ABOUT_MODULES: Final = (t.Algorithm, t.Scheme, t.Leave, t.Exclude, t.Take, t.Default, t.Each)
_WORDS: Final[Mapping[str, Sequence[str]]] = {"kind": MODULE_KINDS}


class LoaderLint:
    """Checks the statements of one loader file (or extension); ``base`` is the loader that they belong to."""

    def __init__(self, file: RuleFile, base: RuleFile, vocabulary: Vocabulary, findings: Findings) -> None:
        self.file, self.base, self.vocabulary, self.findings = file, base, vocabulary, findings
        self.tree = file.tree()
        self.here = Merged(file, vocabulary, findings)

    def run(self) -> None:
        """Report everything."""
        lets = {n.name for n in self.here.every() if isinstance(n, t.Let)}
        numbers = frozenset({"sm"}) - lets
        words = {k: v for k, v in _WORDS.items() if k not in lets}
        for node in walk(self.tree):
            for expression in expressions(node):
                calls(expression, self.findings)
                literals(expression, self.findings)
                comparisons(expression, self.findings, numbers, words if self._of_modules(node) else {})
            self._statement(node)
        self._extended()
        lint_chains(self.here, self._formats() if self.file.extends else frozenset())
        lint_scopes(self.here)
        lint_loader_versions(self.here)

    def _of_modules(self, node: t.Node) -> bool:
        """Whether the names of a module mean one in a statement, not keys of the metadata."""
        inner = isinstance(node, t.Refuse) and node.kinds != ("groups",) and all(node is not i for i in self.tree.items)
        return inner or isinstance(node, _ABOUT_MODULES)

    def _formats(self) -> frozenset[str]:
        """Return the names of the formats that an extension may add to."""
        return frozenset(i.name for i in self.base.tree().items if isinstance(i, t.Format))

    def _extended(self) -> None:
        """A format that is added to keeps its own condition; one that is repeated in an extension would be lost."""
        known = self._formats() if self.file.extends else frozenset()
        for item in self.tree.items:
            if isinstance(item, t.Format) and item.name in known and item.when is not None:
                message = f"format `{item.name}` keeps the condition of {self.base.label}"
                self.findings.add("BL133", message, item, item.name, "leave `when` out, or name the format otherwise")

    # --- single statements -------------------------------------------------------------

    def _statement(self, node: t.Node) -> None:
        for kind in getattr(node, "kinds", ()):
            if kind not in _KINDS:
                self.here.unknown("module kind", kind, node, _KINDS)
        if isinstance(node, (t.Use, t.Each)) and node.chain not in self.here.chains:
            self.here.unknown("chain", node.chain, node, self.here.chains)
        if isinstance(node, t.Read) and node.file not in METADATA_FILES:
            self.here.unknown("metadata file", node.file, node, METADATA_FILES)
        for target in node.on if isinstance(node, t.Each) else ():
            if not is_target(target):
                self.here.unknown("target", target, node, TARGETS)
        if isinstance(node, (t.Exclude, t.Take)) and node.match is not None:
            self._match(node, node.match)
        outcome = getattr(node, "outcome", None)
        if isinstance(outcome, t.Outcome) and outcome.algorithm is not None:
            self._outcome(node, outcome)

    def _outcome(self, node: t.Node, outcome: t.Outcome) -> None:
        known = self.vocabulary.algorithms
        if outcome.algorithm not in known:
            self.here.unknown("algorithm", outcome.algorithm or "", node, sorted(known))
        if outcome.activations is not None and outcome.activations not in ACTIVATIONS:
            self.here.unknown("way of activations", outcome.activations, node, ACTIVATIONS)

    def _match(self, node: t.Exclude | t.Take, match: t.Match) -> None:
        for kind in match.by:
            if kind not in PATTERNS:
                self.here.unknown("pattern kind", kind, node, PATTERNS)
        for target in match.on:
            if not is_target(target):
                self.here.unknown("target", target, node, TARGETS)
        complaint = _misfit(node, match)
        if complaint:
            word, message, hint = complaint
            self.findings.add("BL115", message, node, word, hint)
        elif isinstance(node, t.Exclude) and match.named and match.on == ("path",):
            for pattern in match.named:
                if self._paths and not any(map(patterns.glob(pattern), self._paths)):
                    message = f"`{pattern}` matches no module of any family under {self.file.name}"
                    hint = self._meant(pattern) or "spell it as this loader spells its modules"
                    self.findings.add("BL120", message, node, pattern, hint)

    def _meant(self, pattern: str) -> str:
        """Return a suggestion: the pattern with every word that no path has put right, when that matches something."""
        known = {part for path in self._paths for part in path.split(".")}
        other = re.sub(r"[A-Za-z_]\w*", lambda m: m[0] if m[0] in known else closest(m[0], known) or m[0], pattern)
        return f"did you mean `{other}`?" if any(map(patterns.glob(other), self._paths)) else ""

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
