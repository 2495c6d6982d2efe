"""The first of many patterns, against trying each in turn with the standard library."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.errors import CheckpointError
from bitlane.resolver.entries import Entries
from bitlane.resolver.many import Globs

_PARTS = st.sampled_from(["model", "layers", "0", "1", "12", "q_proj", "mlp", "a", "ab"])
_NAMES = st.lists(_PARTS, min_size=1, max_size=4).map(".".join)
_WILD = st.sampled_from(["*", "?", "[ab]", "[!a]", "[0-9]", "[", "]", "**", "[]a]"])
_GLOBS = st.lists(st.one_of(_PARTS, _WILD, st.just(".")), min_size=1, max_size=6).map("".join)


@given(st.lists(_GLOBS, max_size=40), _NAMES)
def test_the_first_glob_is_the_first_that_fnmatch_finds(globs: list[str], name: str) -> None:
    wanted = next((i for i, g in enumerate(globs) if fnmatch.fnmatchcase(name, g)), -1)
    assert Globs(globs).first(name) == wanted
    assert Entries(globs).glob(name) == wanted


_SAFE = st.lists(
    st.one_of(_PARTS.map(re.escape), st.sampled_from([r"\.", ".*", ".+", r"\d+", "(a|0)", "[01]", "$", "^", "(?!x)"])),
    min_size=1,
    max_size=5,
).map("".join)


@given(st.lists(_SAFE, max_size=300), _NAMES)
def test_the_first_expression_is_the_first_that_matches(texts: list[str], name: str) -> None:
    entries = Entries([f"re:{t}" for t in texts])
    assert entries.regex(name) == next((i for i, t in enumerate(texts) if re.match(t, name)), -1)
    assert entries.regex_full(name) == next((i for i, t in enumerate(texts) if re.fullmatch(t, name)), -1)


def test_a_broken_expression_among_many_is_named_when_it_is_reached() -> None:
    entries = Entries([f"re:layers.{n}" for n in range(300)] + ["re:(", "re:model.*"])
    assert entries.regex("layers.7") == 7
    with pytest.raises(CheckpointError) as caught:
        entries.regex("model.x")
    assert caught.value.code == "BL251"


def test_expressions_that_cannot_be_joined_are_tried_alone() -> None:
    # The same group name twice, and a lookahead, which the joined form does not know.
    texts = [rf"re:(?P<n>layers)\.{n}$" for n in range(100)] + [r"re:(?!model)x\.1", "re:(a)\\1"]
    entries = Entries(texts)
    assert [entries.regex(n) for n in ("layers.42", "x.1", "aa", "model.1")] == [42, 100, 101, -1]
