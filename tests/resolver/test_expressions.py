"""Expressions: values worked out by hand, and Python's own arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.errors import CheckpointError, RuleError
from bitlane.grammar import parse
from bitlane.resolver.expressions import Scope, evaluate
from bitlane.resolver.values import ABSENT

METADATA = {
    "a": {"b": 3, "none": None},
    "list": ["x", "y"],
    "word": "MIXED_Precision",
    "n": 7,
    "flag": True,
    "text": "MEM*",
    "zero": 0,
}


def value(text, metadata=METADATA, **values):
    item = parse(f"language 1\nlanes\nlet it = {text}\n").items[0]
    scope = Scope(metadata, {"config": {"deep": {"key": 5}}})
    scope.values.update(values)
    return evaluate(item.value, scope)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a.b + 2 * n", 17),
        ("(a.b + 2) * n", 35),
        ("n // 2", 3),
        ("n % 4", 3),
        ("n / 2", 3.5),
        ("6 / 2", 3),
        ("-n + 1", -6),
        ("10 - 3 - 2", 5),
        ("config.deep.key", 5),
        ("list[1]", "y"),
        ('text[2] is "M"', True),
        ("list[i]", "x"),
        ("a.missing or n", 7),
        ("a.none or n", 7),
        ("zero or n", 7),
        ("a.none exists", False),
        ("a.none absent", True),
        ("a.b exists and a.c absent", True),
        ('upper(word) is "MIXED_PRECISION"', True),
        ('word starts_with "MIXED"', True),
        ('lower(word) ends_with "precision"', True),
        ('list contains "y"', True),
        ('word contains "_P"', True),
        ("n in (1, 7) and n not in (2, 3)", True),
        ("missing < 3", False),
        ('missing is "x"', False),
        ('missing is not "x"', True),
        ("flag is 1", False),
        ("1 if a.b > 2 else 0", 1),
        ("max(n, 9, 2)", 9),
        ("min(n, missing)", 7),
        ("round_up(n, 4)", 8),
        ('count(text, "M")', 2),
        ('type(list) is "list" and type(nothing) is "absent" and type(a.none) is "null"', True),
        ("not a.b is 3", False),
    ],
)
def test_worked_by_hand(text, want):
    assert value(text, i=0) == want


def test_absent_names_are_falsy_and_equal_to_nothing():
    assert value("nowhere.at.all") is ABSENT
    assert not ABSENT


def test_arithmetic_on_a_missing_key_names_the_key():
    with pytest.raises(CheckpointError, match="`hidden`") as caught:
        value("hidden * 2")
    assert caught.value.code == "BL210"


@pytest.mark.parametrize("text", ["word * 2", "flag + 1", "a * 2"])
def test_arithmetic_on_no_number_is_refused(text):
    with pytest.raises(CheckpointError) as caught:
        value(text)
    assert caught.value.code == "BL210"


def test_infinity_is_no_number_in_a_shape():
    with pytest.raises(CheckpointError):
        value("top * 2", {"top": math.inf})


def test_division_by_zero_is_refused():
    with pytest.raises(CheckpointError) as caught:
        value("n / zero")
    assert caught.value.code == "BL211"


def test_unknown_function_lists_the_known_ones():
    with pytest.raises(RuleError, match="unknown function `log`"):
        value("log(n)")


def test_a_let_that_needs_itself_is_refused():
    items = parse("language 1\nlanes\nlet a = b + 1\nlet b = a + 1\n").items
    scope = Scope({}, lets={i.name: i.value for i in items})
    with pytest.raises(RuleError) as caught:
        scope.lookup("a")
    assert caught.value.code == "BL116"


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9))
def test_integer_arithmetic_is_pythons(a, b, c):
    got = value("x * y + x // z - y % z", {"x": a, "y": b, "z": c})
    assert got == a * b + a // c - b % c
