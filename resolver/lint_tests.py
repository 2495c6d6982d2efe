"""Tests of rule files: whether they can be run at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..errors import BitlaneError
from ..grammar import tree as t
from ..grammar.diagnostics import nearest
from .versions import known_version
from .vocabulary import METADATA_FILES, Vocabulary

if TYPE_CHECKING:
    from ..grammar.findings import Findings
    from ..rules.library import RuleFile

# Besides algorithms, what a module may be expected to meet.
OUTCOMES = ("conflict", "refusal")


def lint_tests(file: RuleFile, vocabulary: Vocabulary, findings: Findings) -> None:
    """Check the tests of one file."""
    for item in file.tree().items:
        for node in item.items if isinstance(item, t.Test) else ():
            if isinstance(node, t.Given):
                _given(node, findings)
            elif isinstance(node, t.Under):
                _under(node, vocabulary, findings)
            elif isinstance(node, t.Expect):
                known = sorted({*vocabulary.algorithms, *OUTCOMES})
                if node.algorithm not in known:
                    hint = nearest(node.algorithm, known) or "known: " + ", ".join(known)
                    findings.add("BL110", f"unknown algorithm `{node.algorithm}`", node, node.algorithm, hint)


def _given(node: t.Given, findings: Findings) -> None:
    if node.file not in METADATA_FILES:
        hint = nearest(node.file, METADATA_FILES) or "known: " + ", ".join(METADATA_FILES)
        findings.add("BL110", f"unknown metadata file `{node.file}`", node, node.file, hint)
    if not isinstance(json.loads(node.text), dict):
        findings.add("BL125", f"`{node.file}` must be an object", node, node.file, "begin it with `{`")


def _under(node: t.Under, vocabulary: Vocabulary, findings: Findings) -> None:
    loaders = vocabulary.library.loaders()
    if node.loader not in loaders:
        hint = nearest(node.loader, loaders) or "known: " + ", ".join(loaders)
        findings.add("BL110", f"unknown loader `{node.loader}`", node, node.loader, hint)
        return
    if node.system is not None and node.system not in vocabulary.systems:
        hint = nearest(node.system, vocabulary.systems) or "known: " + ", ".join(sorted(vocabulary.systems))
        findings.add("BL110", f"unknown system `{node.system}`", node, node.system, hint)
    try:
        known_version(node.loader, node.version or "", vocabulary.versions(node.loader))
    except BitlaneError as error:
        findings.add("BL110", error.message, node, node.version or "", error.help)
