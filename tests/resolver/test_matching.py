"""Matchers against the standard library and against plain loops over the entries."""

from __future__ import annotations

import fnmatch
import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from bitlane.errors import CheckpointError
from bitlane.resolver.entries import Entries
from bitlane.resolver.patterns import BadPatternError, glob, matcher

PART = st.sampled_from(
    [
        "model",
        "layers",
        "0",
        "1",
        "10",
        "mlp",
        "experts",
        "gate_proj",
        "up_proj",
        "self_attn",
        "q_proj",
        "lm_head",
        "a.b",
    ]
)
NAME = st.lists(PART, min_size=1, max_size=6).map(".".join)
GLOB = st.lists(
    st.sampled_from(
        ["model", "layers", ".", "1", "*", "?", "[0-3]", "[!a]", "[", "]", "mlp", "proj", "-", "[]a]", "[b-a]", "{"]
    ),
    max_size=7,
).map("".join)
ENTRIES = st.lists(st.one_of(NAME, GLOB), max_size=25)

PLAIN = {
    "exact": lambda e, s: e == s,
    "parent": lambda e, s: e == s or s.startswith(e + "."),
    "suffix": lambda e, s: s == e or s.endswith("." + e),
    "infix": lambda e, s: f".{e}." in f".{s}.",
    "within": lambda e, s: s in e,
    "substring": lambda e, s: e in s,
    "glob": lambda e, s: fnmatch.fnmatchcase(s, e),
    "descendant": lambda e, s: e.startswith(s + "."),
    "class_part": lambda e, s: e.lower() in s.lower(),
}


@pytest.mark.parametrize("kind", PLAIN)
@given(entries=ENTRIES, name=NAME)
def test_index_finds_what_a_plain_loop_finds(kind, entries, name):
    if kind in ("parent", "suffix", "infix"):
        # On dotted boundaries an entry is a module name: whole components, none empty.
        entries = [e for e in entries if all(e.split("."))]
    want = next((i for i, e in enumerate(entries) if PLAIN[kind](e, name)), -1)
    assert Entries(entries).find(kind, name) == want


@given(GLOB, st.one_of(NAME, GLOB))
def test_glob_is_fnmatch(pattern, name):
    assert glob(pattern)(name) == fnmatch.fnmatchcase(name, pattern)


def test_many_entries_take_the_filtered_path_and_agree():
    entries = [f"model.layers.{i}.mlp*" for i in range(40)] + [f"layers.{i}.self_attn" for i in range(40)]
    index = Entries(entries)
    name = "model.layers.17.mlp.gate_proj"
    assert index.find("glob", name) == 17
    assert index.find("substring", "x.layers.3.self_attn.q") == 43
    assert index.find("glob", "model.layers.99.x") == -1


@pytest.mark.parametrize(
    "pattern",
    [
        r".*q_proj$",
        r"model\.layers\.1\..*",
        r".*mlp\.(gate|up)_proj",
        r"^(?!.*experts).*$",
        r"model\.layers\.(?!0\.).*",
        r"lm_head",
        r"a+b",
        r".*\.experts\..*",
    ],
)
@given(name=NAME)
def test_regular_expressions_agree_with_the_engine_that_vllm_uses(pattern, name):
    assert matcher(pattern)(name) == (regex.match(pattern, name) is not None)
    assert matcher(pattern, full=True)(name) == (regex.fullmatch(pattern, name) is not None)


@given(
    st.lists(
        st.sampled_from(["a", "b", ".", "*", "+", "?", "(", ")", "|", "[ab]", "^", "$", r"\.", ".*"]), max_size=8
    ).map("".join),
    st.text("ab.", max_size=8),
)
def test_generated_regular_expressions_agree(pattern, name):
    try:
        want = re.match(pattern, name) is not None
    except re.error:
        return
    try:
        got = matcher(pattern)(name)
    except BadPatternError:
        # Syntax that the standard module allows and the loaders' own engine does not.
        with pytest.raises(regex.error):
            regex.compile(pattern)
        return
    assert got == want


@pytest.mark.parametrize(
    "pattern", [r"^(model\.)?(.*\.)*(.*_proj)$", "(a+)+$", ".*.*.*.*.*.*=.*", r"(?=(a+)+$)(a|aa)+$"]
)
def test_costly_patterns_answer_or_refuse(pattern):
    name = "model." + "layers.a." * 30 + "x!"
    try:
        answer = str(matcher(pattern)(name))
    except CheckpointError as error:
        answer = error.code
    assert answer in ("True", "False", "BL250")


def test_broken_pattern_is_a_coded_error():
    with pytest.raises(CheckpointError) as caught:
        Entries(["re:(unclosed"]).find("regex", "x")
    assert caught.value.code == "BL251"
