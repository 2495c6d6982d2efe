"""A family file against the loaders, the operations that can be priced, and the configs that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import BitlaneError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from ..grammar.format import children, walk
from .bucket import SHAPE_KEYS
from .family import NO_CLASS, Family, compile_family
from .lint_expressions import calls, expressions, heads
from .lint_keys import KeyLint
from .lint_modules import lint_modules
from .lint_renames import RenameLint
from .lint_values import comparisons, literals
from .lint_versions import lint_family_versions
from .naming import Mapper
from .vocabulary import OPERATION_VALUES, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..grammar.findings import Findings
    from ..rules.library import RuleFile

_EXPERTS = ("count", "topk", "hidden", "inter", "gated")
# `heads` and `head_rows` split a column in units of heads, a `tied` head shares the embedding's matrix; experts carry
# the whole model's numbers.
_MODULE_OPTIONS = ("heads", "head_rows", "tied", *_EXPERTS)
# `window` where only part of the context counts; `rows = "sequences"` where one row a sequence is computed.
_OPTIONAL = ("window", "rows")
# Reported where the module stands.
_UNSIZED: Final = "BL136"
_NUMBERS: Final = frozenset({"i", *OPERATION_VALUES}) - {"phase"}
_WORDS: Final = {"phase": ("prefill", "decode")}


class FamilyLint:
    """Checks the statements of one family file (or extension); ``base`` is the family that they belong to."""

    def __init__(self, file: RuleFile, base: RuleFile, vocabulary: Vocabulary, findings: Findings) -> None:
        self.file, self.base, self.vocabulary, self.findings = file, base, vocabulary, findings
        self.tree = file.tree()
        self.placed = vocabulary.library.family(base)[1]
        self.merged = [p.item for p in self.placed]
        self.architectures = base.architectures
        self.renames = RenameLint(vocabulary, findings)

    def run(self) -> None:
        """Report everything."""
        for node in walk(self.tree):
            for expression in expressions(node):
                calls(expression, self.findings)
                literals(expression, self.findings)
                comparisons(expression, self.findings, _NUMBERS, _WORDS)
            if isinstance(node, t.Operation):
                self._operation(node)
            elif isinstance(node, t.Module):
                self._module(node)
            elif isinstance(node, t.Names):
                self._loader(node)
        lint_modules(self.placed, {id(n) for n in walk(self.tree)}, self.file.extends, self.findings)
        self._overlaps()
        keys = KeyLint(self.merged, self.vocabulary, self.findings)
        keys.run(self.tree.items, self.architectures)
        self._lets(keys.suggested)
        lint_family_versions(self.tree, self.merged, self.vocabulary, self.findings)
        self._architectures()
        self._spellings()
        if isinstance(self.tree.head, t.FamilyHead) and not any(isinstance(i, t.Test) for i in self.merged):
            message = f"family `{self.file.name}` has no test"
            self.findings.add("BL124", message, self.tree.head, self.file.name, "give one toy config and its shapes")

    # --- operations and modules -----------------------------------------------------

    def _operation(self, node: t.Operation) -> None:
        if node.kind not in SHAPE_KEYS:
            hint = nearest(node.kind, SHAPE_KEYS) or "known: " + ", ".join(SHAPE_KEYS)
            self.findings.add("BL110", f"unknown kind of operation `{node.kind}`", node, node.kind, hint)
            return
        given = [o.name for o in node.options]
        for option in node.options:
            if option.name not in (*SHAPE_KEYS[node.kind], *_OPTIONAL):
                hint = nearest(option.name, SHAPE_KEYS[node.kind]) or "known: " + ", ".join(SHAPE_KEYS[node.kind])
                message = f"`{node.kind}` has no size `{option.name}`"
                self.findings.add("BL126", message, option, option.name, hint)
        missing = [k for k in SHAPE_KEYS[node.kind] if k not in given]
        # A misspelt size has been named above; it is not missing besides.
        if missing and all(o.name in (*SHAPE_KEYS[node.kind], *_OPTIONAL) for o in node.options):
            names = ", ".join(f"`{m}`" for m in missing)
            self.findings.add("BL126", f"`{node.kind}` needs {names}", node, node.kind, "give every size")

    def _module(self, node: t.Module) -> None:
        for option in node.options:
            if option.name not in _MODULE_OPTIONS:
                hint = nearest(option.name, _MODULE_OPTIONS) or "known: " + ", ".join(_MODULE_OPTIONS)
                self.findings.add("BL126", f"a module has no `{option.name}`", option, option.name, hint)
        missing = [k for k in _EXPERTS if k not in [o.name for o in node.options]] if node.kind == "experts" else []
        if missing:
            names = ", ".join(f"`{m}`" for m in missing)
            self.findings.add("BL126", f"experts need {names}", node, node.path, "give every size")

    def _loader(self, node: t.Names) -> None:
        known = [*self.vocabulary.library.loaders(), "checkpoint"]
        if node.loader not in known:
            hint = nearest(node.loader, known) or "known: " + ", ".join(known)
            self.findings.add("BL110", f"unknown loader `{node.loader}`", node, node.loader, hint)

    def _overlaps(self) -> None:
        for place in _places(self.tree.items):
            ops = {n.op or n.path.rpartition(".")[2] for n in place if isinstance(n, t.Module)}
            ops |= {n.name for n in place if isinstance(n, t.Operation)}
            for node in place:
                if not isinstance(node, t.Overlap):
                    continue
                for name in (*node.left, *node.right):
                    if name not in ops:
                        hint = nearest(name, ops) or "known here: " + ", ".join(sorted(ops))
                        message = f"no operation `{name}` here to overlap"
                        self.findings.add("BL110", message, node, name, hint)

    # --- names of configs ---------------------------------------------------------------

    def _lets(self, suggested: set[str]) -> None:
        used = {h for n in _all(self.merged) for e in expressions(n) for _, h in heads(e)}
        for node in walk(self.tree):
            if isinstance(node, t.Let) and node.name not in used | suggested:
                self.findings.add("BL127", f"`{node.name}` is never used", node, node.name, "remove it")

    def _architectures(self) -> None:
        if self.file.extends:
            return
        for name in self.file.architectures:
            others = [f for f in self.vocabulary.library.families() if name in f.architectures and f != self.file]
            for other in others:
                # A user's family may take single classes over from a packaged one.
                over = other.packaged and not self.file.packaged
                message = f"`{name}` is {'taken over from' if over else 'also served by'} {other.label}"
                hint = "silence this with `# ignore BL130` where it is meant" if over else "leave it to one of them"
                self.findings.add("BL130", message, self.tree.head, name, hint, severity="warning" if over else "")

    # --- spellings ------------------------------------------------------------------------

    def _spellings(self) -> None:
        mine = [n for n in self.tree.items if isinstance(n, t.Names)]
        compiled = list(self._compiled(mine))
        if isinstance(self.tree.head, t.FamilyHead) and not any(
            b.templates for f in self._any() for s in f.stacks for b in s.blocks
        ):
            message = f"family `{self.file.name}` builds no module"
            self.findings.add("BL118", message, self.tree.head, self.file.name, "add `stack` and module statements")
            return
        for names in mine:
            families = [f for n, f in compiled if n is names]
            for rule in names.rules:
                if families or isinstance(rule, t.Lacks):
                    self._rule(rule, families)

    def _any(self) -> Iterator[Family]:
        for architecture in self.architectures[:1]:
            yield self._compile(architecture, "spec", "")

    def _compile(self, architecture: str, loader: str, version: str) -> Family:
        return compile_family(self.vocabulary.library, architecture, loader, version)

    def _compiled(self, mine: list[t.Names]) -> Iterator[tuple[t.Names, Family]]:
        """Yield every `names` block with the family as compiled for each class and version of its loader."""
        for names in mine:
            loader = "spec" if names.loader == "checkpoint" else names.loader
            for version in self.vocabulary.versions(loader):
                for architecture in self.architectures:
                    try:
                        yield names, self._compile(architecture, loader, version)
                    except BitlaneError as error:
                        if error.code == NO_CLASS:
                            continue
                        if error.code == _UNSIZED:
                            return
                        node = next((r for r in names.rules if isinstance(r, t.Rename) and r.kind == "regex"), names)
                        word = node.old if isinstance(node, t.Rename) else names.loader
                        self.findings.add("BL117", error.message, node, word, error.help)
                        return

    def _rule(self, rule: t.Node, families: list[Family]) -> None:
        if isinstance(rule, t.Fuse):
            known = {n.rpartition(".")[2] for f in families for n in _loader_names(f)}
            missing = [s for s in rule.shards if s not in known]
            # An engine's packed map may name modules that this model lacks altogether; half of one is a mistake.
            for shard in missing if len(missing) < len(rule.shards) else ():
                hint = nearest(shard, known) or "spell it as this loader does"
                self.findings.add("BL114", f"the family has no module `{shard}`", rule, shard, hint)
        elif isinstance(rule, (t.Never, t.Asked)):
            known = {t_.path for f in families for s in f.stacks for b in s.blocks for t_ in b.templates}
            for path in rule.paths if isinstance(rule, t.Never) else (rule.path,):
                if not any(k == path or k.endswith("." + path) for k in known):
                    hint = nearest(path, {k.rpartition("}.")[2] for k in known}) or "spell it as this loader does"
                    self.findings.add("BL120", f"no module of the family ends with `{path}`", rule, path, hint)
        elif isinstance(rule, t.Lacks):
            for name in rule.architectures:
                if name not in self.architectures:
                    hint = nearest(name, self.architectures) or "name a class of the family"
                    self.findings.add("BL120", f"the family does not serve `{name}`", rule, name, hint)
        elif isinstance(rule, t.Rename) and rule.kind in ("prefix", "suffix", "substring", "regex"):
            self.renames.rename(rule, families)
        elif isinstance(rule, t.Rename) and rule.kind.startswith("path_") and not self._renames(rule, families):
            message = f"no module of the family is renamed by `{rule.old}`"
            self.findings.add("BL120", message, rule, rule.old, "spell it as the names before it left them")

    @staticmethod
    def _renames(rule: t.Rename, families: list[Family]) -> bool:
        alone = Mapper(((rule.kind.removeprefix("path_"), rule.old, "\0"),))
        return any(alone.apply(name) != name for family in families for name in _stages(family))


def _checkpoint_names(family: Family) -> Iterator[str]:
    for stack in family.stacks:
        for block in stack.blocks:
            for template in block.templates:
                yield from template.checkpoint


def _loader_names(family: Family) -> Iterator[str]:
    for name in _checkpoint_names(family):
        yield family.path_renames.apply(family.renames.apply(name))


def _stages(family: Family) -> Iterator[str]:
    """Yield the names that each rename of paths sees."""
    for checkpoint in _checkpoint_names(family):
        name = family.renames.apply(checkpoint)
        for rule in family.path_renames.rules:
            yield name
            yield name.replace("{i}", "0")
            name = Mapper((rule,)).apply(name)


def _places(nodes: Sequence[t.Node]) -> Iterator[Sequence[t.Node]]:
    """Yield the statements of every place that may hold an overlap."""
    yield nodes
    for node in nodes:
        if isinstance(node, (t.Stack, t.Part)):
            yield from _places(children(node))


def _all(nodes: Sequence[t.Node]) -> Iterator[t.Node]:
    for node in nodes:
        yield node
        yield from _all(children(node))
