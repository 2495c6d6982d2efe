"""Words that repeat or exclude one another, versions and codes that are none, and layers without a number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..error_codes import known as error_codes
from . import tree as t
from .codes import CODES
from .logic import constant
from .ranges import padded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .findings import Findings

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z./+_-]*")
# A branch comes after every release, so that a release with a letter before it is none of them.
_LETTERED: Final = re.compile(r"[vVrR]\.?\d")
_CODE: Final = re.compile(r"BL\d{3}")
_STYLES: Final = ("column", "row", "replicated")
_BRACES: Final = re.compile(r"\{[^{}]*\}|[{}]")


def words(node: t.Node, findings: Findings) -> None:
    """Check the words of one statement or row."""
    for what, listed in _lists(node):
        for position, word in enumerate(listed):
            if word in listed[:position]:
                findings.add("BL138", f"{what} `{word}` stands here twice", node, word, "remove one")
    if isinstance(node, t.Module):
        styles = [f for f in dict.fromkeys(node.flags) if f in _STYLES]
        if len(styles) > 1:
            both = " and ".join(f"`{s}`" for s in styles)
            hint = "a matrix is split in one way"
            findings.add("BL138", f"{both} exclude one another", node, styles[1], hint, severity="error")
    if isinstance(node, t.Statement):
        for limit in (node.since, node.until):
            if limit is not None:
                _version(limit, node, findings)
    code = node.code if isinstance(node, (t.Refuse, t.Report)) else None
    if code is not None and code not in error_codes() and code not in CODES:
        # Somebody's own code works, but nothing explains it.
        severity = "warning" if _CODE.fullmatch(code) else "error"
        findings.add("BL110", f"unknown code `{code}`", node, code, "see docs/errors.md", severity=severity)
    if constant(getattr(node, "when", None)) is False:
        message = "the condition of this rule never holds"
        findings.add("BL111", message, node, help="put it right, or remove the rule", severity="warning")


def head(node: t.Head, findings: Findings) -> None:
    """Check the versions that a loader describes."""
    if not isinstance(node, t.LoaderHead):
        return
    for position, version in enumerate(node.versions):
        _version(version, node, findings)
        other = next((v for v in node.versions[:position] if v == version or _same(v, version)), None)
        if other is not None:
            also = "" if other == version else f" as `{other}`"
            findings.add("BL138", f"version `{version}` stands here twice{also}", node, version, "remove one")


def _same(left: str, right: str) -> bool:
    """Whether two releases are one; branches are told apart by their names."""
    return all(re.fullmatch(r"[\d.]+", v) for v in (left, right)) and padded(left) == padded(right)


def is_version(text: str) -> bool:
    """Whether a text can be a release or a branch."""
    return _VERSION.fullmatch(text) is not None


def _version(text: str, node: t.Node, findings: Findings) -> None:
    if not is_version(text):
        findings.add(
            "BL112", f"`{text}` is no version", node, text, 'write it like "1.2.0", or like a branch: "main-0a1b"'
        )
    elif _LETTERED.match(text):
        message = f"`{text}` counts as a branch, later than every release"
        hint = f'write "{text.lstrip("vVrR.")}"'
        findings.add("BL112", message, node, text, hint, severity="warning")


def _lists(node: t.Node) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield every list of words in which each counts once, with what they are."""
    match node:
        case t.Algorithm():
            yield "word", node.words
        case t.Module() | t.Source() | t.Stack():
            yield "flag", node.flags
        case t.Lane():
            yield "algorithm", node.algorithms
        case t.Exclude() | t.Take():
            yield "pattern kind", node.match.by
            yield "pattern", node.match.named
            yield "target", node.match.on
            yield "ending", node.match.ending
        case t.Each():
            yield "target", node.on
        case t.Fuse() | t.Builtin():
            yield "shard", node.shards
        case t.Never():
            yield "path", node.paths
        case t.Lacks():
            yield "class", node.architectures
        case t.FamilyHead():
            yield "class", node.architectures
    yield "module kind", getattr(node, "kinds", ())


def stack(node: t.Stack, findings: Findings) -> None:
    """Check that every layer of a stack has paths of its own."""
    odd = [b for b in _BRACES.findall(node.prefix) if b != "{i}"]
    if odd:
        hint = "the number of the layer is `{i}`"
        findings.add("BL137", f"`{odd[0]}` in the path of a layer stands for nothing", node, node.prefix, hint)
    elif "{i}" not in node.prefix and not (isinstance(node.count, t.Constant) and node.count.value == 1):
        hint = f"write `{node.prefix.rstrip('.').rpartition('.')[0] or node.prefix.rstrip('.')}.{{i}}.`"
        message = f"every layer of `{node.name}` has the same path `{node.prefix}`"
        findings.add("BL137", message, node, node.prefix, hint)
