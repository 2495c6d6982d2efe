"""Comparisons, words, versions and codes that mean nothing; what must be caught, and what must be left alone."""

from __future__ import annotations

import pytest
from linting import HEAD, family, form, told


def _when(condition: str) -> list[tuple[str, str, str]]:
    return told(form("exclusions ignore", f"exclude by exact when {condition}", "default bf16"))


@pytest.mark.parametrize(
    ("condition", "help"),
    [
        ('kind is "linaer"', "did you mean `linear`?"),
        ('kind in ("linear", "expert")', "did you mean `experts`?"),
        ('kind is not "heads"', "did you mean `lm_head`?"),
        ('type(ignore) is "dct"', "did you mean `dict`?"),
        ('type(ignore) not in ("list", "strng")', "did you mean `string`?"),
        ('"lst" is type(ignore)', "did you mean `list`?"),
        ('all_are(ignore, "strng")', "did you mean `string`?"),
        ('every(ignore, "bits", "exist")', "did you mean `exists`?"),
        ('len(ignore) > "3"', "write `3`"),
        ('len(ignore) is "3"', "write `3`"),
        ('sm >= "100"', "write `100`"),
        ("bits > true", "compare with a number"),
        ("path starts_with 3", 'write `"3"`'),
        ("path ends_with null", 'write `"null"`'),
    ],
)
def test_comparisons_that_cannot_come_out_both_ways(condition: str, help: str) -> None:
    """A word that the value never is, or a value of another type."""
    assert _when(condition) == [("BL134", "error", help)]


@pytest.mark.parametrize(
    "condition",
    [
        *('kind in ("linear", "experts")', 'type(ignore) in ("list", "null", "absent")', "len(ignore) > 3"),
        *(
            'bits is "4"',
            'path starts_with "model."',
            "ignore contains 3",
            'quant_method is "linaer"',
            "bits > group_size",
        ),
        *('every(ignore, "bits", "exists")', 'all_are(ignore, "string")', "sm - 10 >= 90", "bits is null"),
    ],
)
def test_comparisons_that_may_hold(condition: str) -> None:
    """Metadata may hold anything."""
    assert _when(condition) == []


def test_a_kind_of_the_metadata_is_no_kind_of_module() -> None:
    """Outside of steps `kind` is a key of the block; a definition of that name is what it says."""
    assert told(form("default bf16", when='kind is "linaer"')) == []
    assert told(form("default fp8 when kind is 3", "default bf16", head="let kind = block.kind\n")) == []
    assert told(form("default bf16", head='refuse "odd" when kind is "linaer"\n')) == []
    assert [c for c, _, _ in told(form('refuse "odd" when kind is "linaer"', "default bf16"))] == ["BL134"]


@pytest.mark.parametrize(("word", "meant"), [("True", "true"), ("FALSE", "false"), ("None", "null"), ("nil", "null")])
def test_literals_of_other_languages(word: str, meant: str) -> None:
    """Everywhere, once."""
    expected = [("BL110", "error", f"did you mean `{meant}`?")]
    assert _when(f"bits is {word}") == expected
    module = f"linear up [intermediate_size, hidden_size] column op up when tie_word_embeddings is {word}"
    assert told(family(module)) == expected
    assert told(f"language 1\nextend lanes\nlane x from y when entry is {word}\nweights x = 1\n") == expected


def test_words_of_lanes_and_operations() -> None:
    """`phase`, `activations` and `kind` have few values there."""
    lane = 'language 1\nextend lanes\nlane x from y when activations is "dynmic"\nweights x = 1\n'
    assert told(lane) == [("BL134", "error", "did you mean `dynamic`?")]
    assert told(lane.replace("dynmic", "none")) == []
    norm = 'op norm elementwise bytes = 2 when phase is "prefil"'
    up = "linear up [intermediate_size, hidden_size] column op up"
    assert told(family(up, norm)) == [("BL134", "error", "did you mean `prefill`?")]
    assert told(family(up, norm.replace("prefil", "prefill"))) == []


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ('"1.0" "2.0"', []),
        ('"1.0" "main-008e0af" "release/2.x"', []),
        ('"1.0" "1.0.0"', [("BL138", "warning")]),
        ('"1.0" "2.0" "1.0"', [("BL138", "warning")]),
        ('"1.0" "foo bar"', [("BL112", "error")]),
        ('"1.0" ""', [("BL112", "error")]),
        ('"1.0" "v2.0"', [("BL112", "warning")]),
    ],
)
def test_versions_of_a_loader(versions: str, expected: list[tuple[str, str]]) -> None:
    """Versions are told apart by their numbers; a branch is a name without spaces."""
    text = form("default bf16").replace('"1.0" "2.0" "3.0"', versions)
    assert [(c, s) for c, s, _ in told(text)] == expected


def test_ranges_with_a_version_that_is_none() -> None:
    """It is named once."""
    assert [c for c, _, _ in told(form('default fp8 until "1.0 "', "default bf16"))] == ["BL112"]
    assert told(form('default fp8 until "v2.0"', "default bf16")) == [("BL112", "warning", 'write "2.0"')]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('report "y" code BL9999', [("BL110", "error")]),
        ('report "y" code ABC', [("BL110", "error")]),
        ('refuse "y" code BL777 when odd', [("BL110", "warning")]),
        ('report "y" code BL294', []),
        ('refuse "y" code BL253 when odd', []),
    ],
)
def test_codes_of_reports(line: str, expected: list[tuple[str, str]]) -> None:
    """`rules explain` should know them."""
    assert [(c, s) for c, s, _ in told(form(line, "default bf16"))] == expected


def test_words_that_stand_twice() -> None:
    """In rows, flags, kinds and patterns; a place that is read twice."""
    rows = ("listing layers algorithm algo", "algorithms {", '  "FP8", "FP8" -> fp8', "}", "take listing by exact")
    twice = [("BL138", "warning", "remove one")]
    assert told(form(*rows, "default bf16")) == twice
    assert told(form("default fp8 for linear, linear", "default bf16")) == twice
    assert told(form("exclusions ignore merged merged", "exclude by exact", "default bf16")) == twice
    assert told(form('exclude named "*.gate", "*.gate"', "default bf16")) == twice
    again = "read config.json quantization_config\n"
    once = [("BL122", "warning", "remove one: the first that finds something counts")]
    assert told(form("default bf16", head=again)) == once
    assert told(form("default bf16", head=again.replace("\n", " when found\n"))) == []
    assert HEAD.count(again) == 1
