"""The matchers that single engines brought along, each against the few lines of plain Python that describe it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.errors import CheckpointError
from bitlane.resolver.entries import Entries
from bitlane.resolver.experts import named_experts

PART = st.sampled_from(
    ["model", "layers", "0", "1", "10", "mlp", "experts", "gate", "gate_proj", "q_a_proj", "lm_head"]
)
NAME = st.lists(PART, min_size=1, max_size=5).map(".".join)
PIECES = ["model", "layers", ".", "1", "*", "mlp", "proj", "-", "_", "[01]"]
STARRED = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


def star(entry: str, name: str) -> bool:
    return re.fullmatch(entry.replace(".", r"\.").replace("*", ".*"), name) is not None


def subtree(entry: str, name: str) -> bool:
    return entry.endswith(".*") and fnmatch.fnmatchcase(name, entry[:-2])


def tail(entry: str, name: str) -> bool:
    return entry.split(".")[-1] in name


def signed(entry: str, name: str) -> bool:
    return re.match(entry[2:] if entry[:2] in ("+:", "-:") else entry, name) is not None


def pattern_full(entry: str, name: str) -> bool:
    return any(c in entry for c in "*+?^$()[]{}|\\") and re.fullmatch(entry, name) is not None


CASES: dict[str, tuple[Callable[[str, str], bool], st.SearchStrategy[str]]] = {
    "star": (star, st.one_of(NAME, STARRED)),
    "subtree": (subtree, st.one_of(NAME, NAME.map("{}.*".format), STARRED)),
    "tail": (tail, st.one_of(NAME, STARRED)),
    "signed": (
        signed,
        st.builds("{}{}".format, st.sampled_from(["", "+:", "-:"]), NAME.map(lambda n: n.replace("layers", ".*"))),
    ),
    "pattern_full": (
        pattern_full,
        st.one_of(NAME, NAME.map(lambda n: n.replace("layers", ".*")), NAME.map("({})".format)),
    ),
}


@pytest.mark.parametrize("kind", sorted(CASES))
@given(data=st.data())
def test_the_first_entry_that_matches(kind: str, data: st.DataObject) -> None:
    plain, one = CASES[kind]
    entries, name = data.draw(st.lists(one, max_size=15)), data.draw(NAME)
    want = next((i for i, e in enumerate(entries) if plain(e, name)), -1)
    assert Entries(entries).find(kind, name) == want


@given(st.lists(NAME, max_size=8), NAME, st.integers(0, 2))
def test_dots_at_the_end_of_an_entry_do_not_count(entries: list[str], name: str, dots: int) -> None:
    assert Entries([e + "." * dots for e in entries]).find("infix", name) == Entries(entries).find("infix", name)


@given(st.lists(NAME, max_size=12), NAME, st.sets(PART, max_size=3), st.one_of(st.none(), PART))
def test_entries_that_take_part(entries: list[str], name: str, ending: set[str], containing: str | None) -> None:
    """Others are no match, and positions stay those of the whole list."""
    found = Entries(entries).find("infix", name, containing, tuple(ending))
    part = [
        i
        for i, e in enumerate(entries)
        if (not ending or e.split(".")[-1] in ending) and (containing is None or containing in e)
    ]
    assert found == next((i for i in part if f".{entries[i]}." in f".{name}."), -1)


def test_an_invalid_expression_is_nothing_to_some_engines_and_an_error_to_others() -> None:
    entries = ["(unclosed", "mlp.*"]
    assert Entries(entries).find("pattern_full", "mlp.gate") == 1
    with pytest.raises(CheckpointError) as refused:
        Entries(entries).find("signed", "mlp.gate")
    assert refused.value.code == "BL251"


# --- experts that are named one by one -----------------------------------------------

E = "model.layers.1.mlp.experts"


MATRICES = (("up_proj", "down_proj"), ("w1", "w3", "w2"))


def leaves(*experts: int, parts: tuple[str, ...] = ("up_proj", "down_proj")) -> list[str]:
    return [f"{E}.{i}.{p}" for i in experts for p in parts]


def test_all_experts_named_alike() -> None:
    entries = [*leaves(0, 1, 2), "lm_head", "model.layers.10.mlp.experts.0.gate_proj"]
    assert named_experts(Entries(entries), E, 3, MATRICES) == ([0, 1, 2, 3, 4, 5], "")


def test_no_expert_by_number() -> None:
    assert named_experts(Entries(["lm_head", f"{E}.gate_up_proj"]), E, 3) == ([1], "")
    assert named_experts(Entries(["lm_head"]), E, 3) == ([], "")


@pytest.mark.parametrize(
    ("entries", "count", "complaint"),
    [
        (leaves(0, 2), 3, "2 of 3 experts are named; not 1"),
        (leaves(7), 8, "1 of 8 experts are named; not 0, 1, 2, 3, ..."),
        ([*leaves(0, 1), f"{E}.1.gate_proj"], 2, "expert 1 is named with down_proj, gate_proj, up_proj, others with"),
        ([f"{E}.0", *leaves(1)], 2, "expert 1 is named with down_proj, up_proj, others with itself"),
        (
            leaves(0, 1, parts=("w1", "w2")),
            2,
            "of every expert only w1, w2 is named, not w3",
        ),
        (leaves(0, 1, parts=("w1", "w3")), 2, "of every expert only w1, w3 is named, not w2"),
        (leaves(0, 1, parts=("up_proj",)), 2, "of every expert only up_proj is named, not down_proj"),
    ],
)
def test_experts_named_in_part(entries: list[str], count: int, complaint: str) -> None:
    positions, said = named_experts(Entries(entries), E, count, MATRICES)
    assert len(positions) == len(entries)
    assert said.startswith(complaint)


@given(st.integers(1, 6), st.data())
def test_order_does_not_matter(count: int, data: st.DataObject) -> None:
    entries = data.draw(st.permutations(leaves(*range(count))))
    assert named_experts(Entries(entries), E, count, MATRICES) == (list(range(2 * count)), "")
