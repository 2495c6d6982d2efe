"""Which release has which model class: the releases' own registries against the `lacks` statements of family files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitlane.errors import CheckpointError
from bitlane.resolver.family import compile_family
from bitlane.resolver.versions import split_loader
from bitlane.rules import library

FACTS = json.loads((Path(__file__).parents[1] / "data" / "model_classes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("engine", FACTS["absent"])
def test_a_class_that_a_release_lacks_is_refused_and_no_other(engine: str) -> None:
    rules = library.find()
    name, version = split_loader(engine)
    codes = {a: _code(rules, a, name, version) for a in FACTS["asked"]}
    # Where nobody wrote down an engine's names, it is refused as well, whether it has the class or not.
    told = {a for a, code in codes.items() if code != "BL231"}
    assert {a for a in told if codes[a] == "BL234"} == told & set(FACTS["absent"][engine])
    assert {codes[a] for a in told} <= {"", "BL234"}


def _code(rules: library.Library, architecture: str, name: str, version: str) -> str:
    try:
        compile_family(rules, architecture, name, version)
    except CheckpointError as error:
        return error.code
    return ""


def test_every_class_of_the_family_files_was_asked_about() -> None:
    assert set(library.find().architectures()) == set(FACTS["asked"])
