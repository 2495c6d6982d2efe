"""The semantic checks beyond their examples: what each must catch, and what it must leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linting import HEAD, form, found, told

from bitlane.grammar import tree as t
from bitlane.grammar.ranges import empty, holds, padded
from bitlane.paths import RULES
from bitlane.resolver.check import Source, check, sources
from bitlane.resolver.lint_expressions import slip
from bitlane.rules.library import find

# --- versions -----------------------------------------------------------------------

versions = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(lambda v: ".".join(map(str, v)))


@given(versions, versions, versions)
def test_ranges_hold_what_they_say(since: str, until: str, version: str) -> None:
    """A version is in a range when it is not before `since` and before `until`; an empty range holds none."""
    node = t.Let(name="x", value=t.Ref(path="y"), since=since, until=until)
    inside = padded(since) <= padded(version) < padded(until)
    assert holds(node, version) is inside
    if inside:
        assert not empty(node)


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (('let x = 1 since "4.0"', "let y = x"), ["BL112"]),
        (('let x = 1 since "1.5" until "1.8"',), ["BL112"]),
        (('let x = 1 until "2.0"', 'let x = 2 since "2.0"'), []),
        (('let x = 1 until "3.0"', 'let x = 2 since "2.0"'), ["BL113"]),
        (("let x = 1", "let x = 2"), ["BL122"]),
        (("let x = 1", 'let x = 2 since "2.0"'), ["BL113"]),
    ],
)
def test_ranges_of_definitions(lines: tuple[str, ...], codes: list[str]) -> None:
    """Empty ranges, and two definitions in force at once."""
    text = (
        HEAD
        + "\n".join(lines)
        + '\nformat demo when quant_method is "demo" and x is 1 and y is 1 {\n  default bf16\n}\n'
    )
    text = text.replace(" and y is 1", "") if not any("let y" in line for line in lines) else text
    assert [c for c, _ in found(text)] == codes


@pytest.mark.parametrize(
    ("head", "lines", "codes"),
    [
        ('let b = 1 until "2.0"\n', ("default fp8 when b is 1", "default bf16"), [("BL135", 6)]),
        ('let b = 1 until "2.0"\n', ('default fp8 when b is 1 until "2.0"', "default bf16"), []),
        ('let b = 1 until "2.0"\nlet b = 2 since "2.0"\n', ("default fp8 when b is 1", "default bf16"), []),
        ('let b = 1 until "2.0"\nlet c = b\n', ("default fp8 when c is 1", "default bf16"), [("BL135", 5)]),
        ('let b = 1 until "2.0"\nlet c = b\n', ('default fp8 when c is 1 until "1.5"', "default bf16"), []),
        # A key that metadata has is looked up there on purpose.
        ('let bits = 1 until "2.0"\n', ("default fp8 when bits is 1", "default bf16"), []),
        ("", ('exclusions ignore since "2.0"', "exclude by exact", "default bf16"), [("BL128", 6)]),
        ("", ('exclusions ignore since "2.0"', 'exclude by exact since "2.0"', "default bf16"), []),
        ("", ('exclusions ignore since "2.0"', 'exclusions skip until "2.0"', "exclude by exact", "default bf16"), []),
    ],
)
def test_versions_without_a_definition(head: str, lines: tuple[str, ...], codes: list[tuple[str, int]]) -> None:
    """A name or a list that is there in some versions only, used in others."""
    assert found(form(*lines, head=head)) == codes


def test_a_default_in_every_version() -> None:
    """A chain that ends in one version only is reported; kinds may be shared out between defaults and refusals."""
    assert [c for c, _ in found(form('default fp8 since "2.0"'))] == ["BL121"]
    assert found(form('default fp8 since "2.0"', 'default bf16 until "2.0"')) == []
    assert found(form("leave embed", "default fp8 for linear, lm_head", 'refuse "none" for experts')) == []
    assert found(form('refuse "never"')) == []
    each = form("each checkpoint use one", head="chain one {\n  default bf16\n}\n")
    assert found(each) == []


# --- names and patterns ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "open_ended"),
    [
        ("model.layers.1*", True),
        ("model.layers.1.*", False),
        ("*.layers.12*.mlp", True),
        ("*mlp*", False),
        ("*fc1*", False),
        ("model.layers.[0-9]*", False),
    ],
)
def test_open_ended_indexes(pattern: str, open_ended: bool) -> None:
    """A digit that a star lets go on, as a part of its own; digits inside names are names."""
    codes = [c for c, _ in found(form(f'exclude named "{pattern}"', "default fp8"))]
    assert ("BL119" in codes) is open_ended


@pytest.mark.parametrize(
    ("word", "other", "near"),
    [
        ("quant_mehtod", "quant_method", True),
        ("quant_metod", "quant_method", True),
        ("quant_methodd", "quant_method", True),
        ("quant_methot", "quant_method", True),
        ("load_in_4bit", "load_in_8bit", False),
        ("quant_method", "quant_method", False),
        ("bits", "bit", False),
        ("group_size", "q_group_size", False),
    ],
)
def test_slips_of_the_pen(word: str, other: str, near: bool) -> None:
    """One letter too many, too few, wrong, or two exchanged; digits mean something."""
    assert slip(word, other) is near


def test_misspelt_metadata_keys_of_loaders() -> None:
    """A key one letter away from a known one is asked about; one that nothing resembles is a format of its own."""
    near = form("default bf16").replace("quant_method", "quant_mehtod")
    assert found(near) == [("BL123", 4)]
    assert found(form("default bf16").replace("quant_method", "wholly_other_key")) == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("kindd", "kind"), ("nam", "name"), ("pathh", "path"), ("clas", "class"), ("layr", "layer")),
        *(("shape_inn", "shape_in"), ("shap_out", "shape_out"), ("targt", "target"), ("fusedd", "fused")),
        *(("blcok.bits", "block"), ("confg.bits", "config"), ("nmae", "name")),
    ],
)
def test_misspelt_words_of_the_language(word: str, meant: str) -> None:
    """Names that the language gives are short, and looked for none the less."""
    text = form("exclusions ignore", f"exclude by exact when {word} is 1", "default bf16")
    assert told(text) == [("BL123", "warning", f"did you mean `{meant}`?")]


@pytest.mark.parametrize("word", ["names", "paths", "parts", "mind", "bath", "lists"])
def test_words_that_are_merely_like_one_of_the_language(word: str) -> None:
    """Plurals and other words with another letter are keys of some metadata."""
    assert found(form("exclusions ignore", f"exclude by exact when {word} is 1", "default bf16")) == []


def test_names_in_comparing_are_names() -> None:
    """What `each ... comparing` names is used, and its functions must exist."""
    head = "let bits_of = weight.bits\nchain one {\n  default fp8\n}\n"
    assert found(form("each shards use one comparing bits_of", "default bf16", head=head)) == []
    assert found(form("each shards use one comparing lenn(bits_of)", "default bf16", head=head)) == [("BL110", 9)]


def test_a_module_shape_that_uses_a_split_is_asked_about() -> None:
    """Modules are whole; only operations know `tp`."""
    family = (
        "language 1\nfamily demo for DemoForCausalLM\n"
        'stack layers of num_hidden_layers at "model.layers.{i}." {\n'
        "  linear up [hidden_size / tp, hidden_size] column op up\n}\n"
        'test "t" {\n  given config.json {\n'
        '    "architectures": ["DemoForCausalLM"], "num_hidden_layers": 1, "hidden_size": 8\n  }\n'
        "  expect refusal\n}\n"
    )
    assert found(family) == [("BL123", 4)]
    assert found(family.replace(" / tp", "")) == []


def test_overlaps_and_operations() -> None:
    """An overlap names operations of its own part."""
    family = (
        "language 1\nextend family llama\npart extra when tie_word_embeddings {\n  op one elementwise bytes = 1\n"
        "  overlap side { one } with { tow }\n  op two elementwise bytes = 1\n}\n"
    )
    assert found(family) == [("BL110", 5)]


def test_the_packaged_files_have_no_findings() -> None:
    """Neither errors nor warnings: what an author's own file brings is all that he reads."""
    assert [str(d) for d in check(sources(find()), find()).diagnostics] == []


# --- one file among others -----------------------------------------------------------------


def test_an_extension_is_not_blamed_for_what_it_extends() -> None:
    """Findings of the packaged file are not repeated at the user's."""
    assert found("language 1\nextend loader vllm\n") == []


def test_an_extension_of_a_broken_file_is_checked_when_that_parses() -> None:
    """One mistake in the loader is one finding, not a wave of unknown names in its extensions."""
    loader = HEAD + "chain shared {\n  exclude by exact\n}\nformat f whn x {\n  default bf16\n}\n"
    extension = 'language 1\nextend loader demo\nformat g when quant_method is "g" {\n  use shared\n  default bf16\n}\n'
    assert found(extension, loader) == []
    assert found(loader, extension) == [("BL100", 7)]


def test_a_format_that_is_nearly_one_that_can_be_added_to() -> None:
    """Without a condition it was meant to add; with one it is new, and the other is only hinted at."""
    typo = 'language 1\nextend loader vllm\nformat modelopt_mixd {\n  exclude named "*.self_attn.indexer.*"\n}\n'
    assert told(typo) == [("BL133", "error", "did you mean `modelopt_mixed`?")]
    assert found(typo.replace("mixd", "mixed")) == []
    new = typo.replace("mixd", 'mixd when quant_method is "mine"')
    assert told(new) == [("BL121", "error", "did you mean `modelopt_mixed`? otherwise end its chain with `default`")]
    assert found(new.replace("}", "  default bf16\n}")) == []


def test_a_literal_pattern_is_put_right() -> None:
    """The nearest pattern that matches something is suggested."""
    text = 'language 1\nextend loader vllm\nformat modelopt_mixed {\n  exclude named "modle.layers.1.*"\n}\n'
    assert told(text) == [("BL120", "warning", "did you mean `model.layers.1.*`?")]


def test_two_extensions_and_their_base_are_seen_together() -> None:
    """What one file defines, another may use."""
    base = form("exclusions ignore", "exclude by exact", "default fp8")
    one = "language 1\nextend loader demo\nchain mine {\n  exclude by glob\n}\n"
    two = "language 1\nextend loader demo\nformat demo {\n  use mine\n}\n"
    assert found(two, base, one) == []
    assert found(two, base) == [("BL110", 4)]


def test_ignoring() -> None:
    """Behind the statement or above it; several codes; only that statement; a reason may follow."""
    line = 'exclude named "model.layers.1*"'
    ignored = found(form(f"{line}  # ignore BL119: the engine does so", "default fp8"))
    assert ignored == []
    assert found(form("# ignore BL119", line, "default fp8")) == []
    assert found(form("# ignore BL119, BL127", line, "default fp8")) == [("BL131", 5)]
    assert found(form(line, "default fp8  # ignore BL119")) == [("BL119", 5), ("BL131", 6)]
    assert found(form(line + "  # ignore BL119 BL127", "default fp8")) == [("BL131", 5)]
    assert found(form(line + "  # ignore BL119, BL119: once more", "default fp8")) == []
    assert found(form(line + "  # ignore BL119 for the engine asks for BL127", "default fp8")) == []
    assert found(form(line, "default fp8  # ignore BL11")) == [("BL119", 5), ("BL131", 6)]
    assert found(form(line + "  # ignore bl119", "default fp8")) == [("BL119", 5), ("BL131", 5)]
    assert found(form(line + "  # ignore", "default fp8")) == [("BL119", 5), ("BL131", 5)]
    assert found(form("# ignore the next line, it is a comment", "default fp8")) == []


def test_a_class_that_an_engine_lacks_must_be_one_of_the_family() -> None:
    packaged = (RULES / "families" / "step3p7.rules").read_text(encoding="utf-8")
    line = "lacks Step3p7FlashForCausalLM"
    assert packaged.count(line) == 1
    changed = packaged.replace(line, "lacks Step3p7FlushForCausalLM")
    report = check([Source("f.rules", Path("f.rules"), changed)], find())
    (told,) = [d for d in report.diagnostics if d.code == "BL120"]
    assert told.message == "the family does not serve `Step3p7FlushForCausalLM`"
    assert told.help == "did you mean `Step3p7FlashForCausalLM`?"
