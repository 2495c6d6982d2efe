"""What is wrong with a file whatever other files say: shape, versions, names, patterns, tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from . import lint_words, ranges
from . import tree as t
from .belongs import BELONGS
from .format import children, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .findings import Findings

# `layers.1*`: an index that the star lets go on. `a.b` in a regular expression: a dot that means any character.
_OPEN_INDEX: Final = re.compile(r"(?:^|\.)\d+\*")
_OPEN_END: Final = re.compile(r"(?:^|\.)\d+$")
_OPEN_DOT: Final = re.compile(r"(?<!\\)(?:\\\\)*(?<=\w)\.(?=\w)")


def kind_of(head: t.Head) -> str:
    """``loader``, ``family`` or ``lanes``."""
    if isinstance(head, t.ExtensionHead):
        return head.kind
    return "loader" if isinstance(head, t.LoaderHead) else "family" if isinstance(head, t.FamilyHead) else "lanes"


def lint(file: t.File, findings: Findings) -> None:
    """Check one file by itself."""
    _places(file, findings)
    _ranges(file, findings)
    _duplicates(file.items, (), findings)
    lint_words.head(file.head, findings)
    lint_words.words(file.head, findings)
    _circles(file.items, findings)
    for node in walk(file):
        if isinstance(node, (t.Format, t.Stack, t.Part)):
            _circles(node.items, findings)
        _patterns(node, findings)
        lint_words.words(node, findings)
        if isinstance(node, t.Stack):
            lint_words.stack(node, findings)
    for item in file.items:
        if isinstance(item, t.Test):
            _test(item, findings)


# --- place and versions -----------------------------------------------------------


def _places(file: t.File, findings: Findings) -> None:
    kind = kind_of(file.head)
    for item in file.items:
        if not isinstance(item, BELONGS[kind]):
            homes = [k for k, types in BELONGS.items() if isinstance(item, types)]
            word = type(item).__name__.lower()
            hint = f"it belongs into a {' or '.join(homes)} file"
            findings.add("BL104", f"a {kind} file has no use for `{word}`", item, help=hint)


def _nested(nodes: Sequence[t.Node], above: tuple[t.Node, ...] = ()) -> Iterator[tuple[t.Node, ...]]:
    """Yield every statement with the blocks around it, outermost first."""
    for node in nodes:
        yield (*above, node)
        yield from _nested(children(node), (*above, node))


def _ranges(file: t.File, findings: Findings) -> None:
    versions = file.head.versions if isinstance(file.head, t.LoaderHead) else ()
    for path in _nested(file.items):
        node = path[-1]
        if not isinstance(node, t.Statement) or not ranges.bounded([node]):
            continue
        if not all(lint_words.is_version(v) for v in (node.since, node.until) if v is not None):
            continue
        if ranges.empty(*path):
            findings.add("BL112", "no version lies in this range", node, _limit(node), "`until` excludes its version")
        elif versions and not any(
            all(ranges.holds(n, v) for n in path if isinstance(n, t.Statement)) for v in versions
        ):
            known = ", ".join(versions)
            findings.add("BL112", "no described version lies in this range", node, _limit(node), f"described: {known}")


def _limit(node: t.Statement) -> str:
    return node.since or node.until or ""


# --- duplicates ---------------------------------------------------------------------


def _identity(node: t.Node) -> tuple[str, str] | None:
    """What a definition defines, for those of which only one counts."""
    match node:
        case t.Let() | t.Builtin() | t.Chain() | t.Format() | t.Weights() | t.Part() | t.Stack() | t.Test():
            return type(node).__name__.lower(), node.name
        case t.SystemAlias():
            return "system", node.alias
        case t.Fuse() if node.when is None and not node.unmapped:
            # An engine may fuse other shards in other layers; its quantization config knows one list for a name.
            return "fuse", node.name
        case t.Alias():
            return "alias", f"{node.path} as {node.other}"
        case t.Read() if node.when is None:
            return "read", " ".join(filter(None, (node.file, node.path)))
        case t.Module() if node.when is None:
            return node.kind, node.path
        case t.Option():
            return "option", node.name
    return None


def _duplicates(nodes: Sequence[t.Node], above: tuple[t.Node, ...], findings: Findings) -> None:
    seen: dict[tuple[str, str], list[t.Node]] = {}
    for node in nodes:
        name = _identity(node)
        for other in seen.get(name, ()) if name is not None else ():
            if ranges.overlap((*above, other), (*above, node)):
                _duplicate(name or ("", ""), other, node, findings)
                break
        if name is not None:
            seen.setdefault(name, []).append(node)
        inner = node.options if isinstance(node, (t.Module, t.Operation)) else children(node)
        _duplicates(inner, (*above, node), findings)


def _duplicate(name: tuple[str, str], other: t.Node, node: t.Node, findings: Findings) -> None:
    what, word = name
    related = (other, "the other one")
    target = word if what not in ("alias", "read") else ""
    if isinstance(node, t.Read):
        message = f"`{word}` is read twice"
        hint = "remove one: the first that finds something counts"
        findings.add("BL122", message, node, target, hint, related, severity="warning")
        return
    if isinstance(node, t.Let) and ranges.bounded([node, other]) and ranges.bounded([other]):
        message = f"`{word}` is defined twice for the same versions"
        findings.add("BL113", message, node, target, "let one range end where the other begins", related)
    elif ranges.bounded([node, other]):
        message = f"{what} `{word}` is defined twice for the same versions"
        findings.add("BL113", message, node, target, "let one range end where the other begins", related)
    else:
        findings.add("BL122", f"{what} `{word}` is defined twice", node, target, "rename or remove one", related)


# --- circles ----------------------------------------------------------------------------


def references(node: t.Expr) -> Iterator[t.Ref]:
    """Yield every reference in an expression."""
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, t.Ref):
            yield current
        todo += reversed(parts(current))


def parts(node: t.Expr) -> tuple[t.Expr, ...]:
    """Return the direct sub-expressions."""
    match node:
        case t.Binary():
            return (node.left, node.right)
        case t.Not() | t.Minus() | t.Presence():
            return (node.value,)
        case t.Member():
            return (node.value, *node.choices)
        case t.Index():
            return (node.base, node.index)
        case t.Call():
            return node.arguments
        case t.Conditional():
            return (node.then, node.test, node.otherwise)
    return ()


def _circles(nodes: Sequence[t.Node], findings: Findings) -> None:
    lets = {n.name: n for n in nodes if isinstance(n, t.Let)}
    needs = {n: {r.path.partition(".")[0] for r in references(i.value)} for n, i in lets.items()}
    chains = {n.name: n for n in nodes if isinstance(n, t.Chain)}
    used = {n: {s.chain for s in c.steps if isinstance(s, (t.Use, t.Each))} for n, c in chains.items()}
    for name in _looping(needs):
        findings.add("BL116", f"`{name}` is defined by itself", lets[name], name, "break the circle")
    for name in _looping(used):
        findings.add("BL116", f"chain `{name}` uses itself", chains[name], name, "break the circle")


def _looping(needs: Mapping[str, set[str]]) -> list[str]:
    """Return one name of every circle, the first in the file."""
    out: list[str] = []
    covered: set[str] = set()
    for name in needs:
        reached: set[str] = set()
        todo = sorted(needs[name])
        while todo:
            current = todo.pop()
            if current not in reached:
                reached.add(current)
                todo += sorted(needs.get(current, ()))
        if name in reached and name not in covered:
            out.append(name)
            covered |= {n for n in reached if n in needs}
    return out


# --- patterns -----------------------------------------------------------------------------


def _patterns(node: t.Node, findings: Findings) -> None:
    if isinstance(node, (t.Exclude, t.Take)) and node.match is not None:
        for pattern in node.match.named:
            if _OPEN_INDEX.search(pattern):
                hint = f"write `{_OPEN_INDEX.sub(lambda m: m.group()[:-1] + '.*', pattern)}` for that layer alone"
                findings.add("BL119", f"`{pattern}` also matches longer indexes", node, pattern, hint)
        if node.match.containing is not None and _OPEN_END.search(node.match.containing):
            _open_end(node.match.containing, node, findings)
    if isinstance(node, t.Rename):
        if node.kind == "regex" and _OPEN_DOT.search(node.old):
            hint = "write `\\\\.` for a dot"
            findings.add("BL119", f"a dot in `{node.old}` matches any character", node, node.old, hint)
        elif node.kind.endswith("substring") and _OPEN_END.search(node.old):
            _open_end(node.old, node, findings)


def _open_end(text: str, node: t.Node, findings: Findings) -> None:
    findings.add("BL119", f"`{text}` also occurs in longer indexes", node, text, f"write `{text}.`")


# --- tests ----------------------------------------------------------------------------------


def _test(node: t.Test, findings: Findings) -> None:
    givens = [i for i in node.items if isinstance(i, t.Given)]
    if not any(g.file == "config.json" for g in givens):
        hint = 'begin it with `given config.json {"architectures": ["..."]}`'
        findings.add("BL125", f"test `{node.name}` gives no `config.json`", node, node.name, hint)
    if not any(isinstance(i, (t.Expect, t.ExpectOutcome)) for i in node.items):
        findings.add("BL125", f"test `{node.name}` expects nothing", node, node.name, "add an `expect`")
    seen: dict[str, t.Node] = {}
    for item in node.items:
        if isinstance(item, t.Under):
            seen = {}
        elif isinstance(item, t.Expect):
            if item.module in seen:
                related = (seen[item.module], "the other one")
                message = f"`{item.module}` is expected twice"
                findings.add("BL125", message, item, item.module, "remove one", related)
            seen[item.module] = item
    files: dict[str, t.Node] = {}
    for given in givens:
        if given.file in files:
            message = f"`{given.file}` is given twice"
            findings.add("BL125", message, given, given.file, "merge them", (files[given.file], "the other one"))
        files[given.file] = given
