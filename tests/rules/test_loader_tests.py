"""The tests that stand in the loader files of SGLang, TensorRT-LLM and the plain reading; no rule lacks one."""

from __future__ import annotations

import pytest

from bitlane.resolver.coverage import measure
from bitlane.resolver.ruletest import run_tests
from bitlane.rules import library

LOADERS = ("sglang", "trtllm", "spec")


@pytest.mark.parametrize("loader", LOADERS)
def test_the_tests_of_a_loader_pass(loader: str) -> None:
    lib = library.find()
    (file,) = [f for f in lib.files if f.kind == "loader" and f.name == loader]
    results = run_tests((file,), lib)
    assert [(r.name, r.place, [f.to_dict() for f in r.failures]) for r in results if not r.passed] == []
    assert len(results) == len({r.name for r in results}) > 50


# SGLang's rules are reached by its recorded answers too: tests/conformance/test_sglang_cases.py.
@pytest.mark.slow
@pytest.mark.parametrize("loader", ["trtllm", "spec"])
def test_every_rule_decides_something_in_the_tests(loader: str) -> None:
    """A rule that no test reaches is a guess; formats that do nothing but refuse are counted by their refusals."""
    found = measure(library.find(), (), (loader,))
    idle = [c for c in found.never_fired() if c.place.startswith(f"loaders/{loader}.rules:") and c.what != "format"]
    assert [(c.place, c.rule) for c in idle] == []
