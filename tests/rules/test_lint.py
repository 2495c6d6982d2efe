"""The semantic checks beyond their examples: what each must catch, and what it must leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.grammar import tree as t
from bitlane.grammar.parsing import parse
from bitlane.grammar.ranges import empty, holds, padded
from bitlane.grammar.reach import implies
from bitlane.paths import RULES
from bitlane.resolver.check import Source, check
from bitlane.resolver.expressions import Scope, evaluate
from bitlane.resolver.lint_expressions import slip
from bitlane.rules.library import find

HEAD = 'language 1\nloader demo "1.0" "2.0" "3.0"\nread config.json quantization_config\n'


def found(text: str, *others: str) -> list[tuple[str, int]]:
    """Codes and lines that check reports for the first text, the others lying beside it."""
    texts = [text, *others]
    listed = [Source(f"{n}.rules", Path(f"{n}.rules"), s) for n, s in enumerate(texts)]
    report = check(listed, find())
    return [(d.code, d.span.line) for d in report.diagnostics if d.file == "0.rules"]


def form(*lines: str, head: str = "") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f'{HEAD}{head}format demo when quant_method is "demo" {{\n{body}}}\n'


# --- unreachable rules -----------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "unreachable"),
    [
        ("default fp8", "default bf16", True),
        ("default fp8 for linear", "default bf16", False),
        ("default fp8 for linear", "default bf16 for linear", True),
        ("default fp8 for linear, experts", "default bf16 for linear", True),
        ('default fp8 since "2.0"', "default bf16", False),
        ('default fp8 since "1.0"', 'default bf16 since "2.0"', True),
        ('default fp8 until "2.0"', 'default bf16 since "2.0"', False),
        ("default fp8 when bits > 4", "default bf16 when bits > 8", True),
        ("default fp8 when bits > 8", "default bf16 when bits > 4", False),
        ("default fp8 when bits >= 4", "default bf16 when bits > 4", True),
        ("default fp8 when bits > 4", "default bf16 when bits >= 4", False),
        ('default fp8 when algo in ("A", "B")', 'default bf16 when algo is "A"', True),
        ('default fp8 when algo is "A"', 'default bf16 when algo in ("A", "B")', False),
        ("default fp8 when fused", "default bf16 when fused and listed", True),
        ("default fp8 when fused and listed", "default bf16 when fused", False),
        ("default fp8 when fused or listed", "default bf16 when listed", True),
        ("default fp8 when not fused", "default bf16 when fused", False),
        ("leave linear", "exclude by exact for linear", True),
        ("leave linear", "exclude by exact", False),
        ("exclude by exact, glob", "exclude by glob", True),
        ("exclude by glob", "exclude by exact, glob", True),
        ("exclude by glob", "exclude by regex, glob", False),
        ("exclude by exact on shards all", "exclude by exact on shards", False),
        ("exclude by exact on shards", "exclude by exact on shards all", True),
        ('exclude by exact containing "x"', "exclude by exact", False),
        ("exclude by exact", 'exclude by exact containing "x"', True),
        ("exclude by exact on path", "exclude by exact on shards", False),
        ('refuse "no" for linear', "exclude by exact for linear", True),
    ],
)
def test_shadowed_steps(before: str, after: str, unreachable: bool) -> None:
    """A step is unreachable exactly when an earlier one decides all that it could."""
    codes = found(form("exclusions ignore", before, after, "default bf16", head='let algo = "x"\nlet listed = true\n'))
    assert (("BL111", 9) in codes) is unreachable, codes


def test_rows_formats_and_lanes_are_shadowed_too() -> None:
    """Rows of algorithms and schemes, formats, and lanes have an order as well."""
    rows = form(
        *("exclusions ignore", "exclude by exact", "listing layers algorithm algo", "algorithms {", '  "A" -> fp8'),
        *("  otherwise -> bf16", '  "B" -> fp8', "}", "take listing by exact", "default bf16"),
    )
    assert found(rows) == [("BL111", 11)]
    formats = HEAD + 'format a {\n  default bf16\n}\nformat b when quant_method is "x" {\n  default bf16\n}\n'
    assert found(formats) == [("BL111", 7)]
    lanes = "language 1\nextend lanes\nlane a from x when sm >= 90\nlane b from x when sm >= 100\n"
    assert found(lanes + "weights a = 1\nweights b = 1\n") == [("BL111", 4)]


def test_a_shared_step_counts_only_where_it_is_hidden_everywhere() -> None:
    """A chain that one of two formats cannot reach is no mistake; one that neither reaches is."""
    chain = "chain shared {\n  exclude by exact\n}\n"
    first = 'format a when quant_method is "a" {\n  exclusions ignore\n  use shared\n  default bf16\n}\n'
    second = 'format b when quant_method is "b" {\n  exclusions ignore\n  default bf16\n  use shared\n}\n'
    assert found(HEAD + chain + first + second) == []
    assert ("BL111", 5) in found(HEAD + chain + second)


expressions = st.recursive(
    st.sampled_from(["a", "b", 'c is "x"', 'c in ("x", "y")', "n > 4", "n >= 8", "n < 4", "n <= 8"]),
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)


@given(expressions, expressions)
def test_implication_is_sound(later: str, earlier: str) -> None:
    """Where implies() says so, no assignment of the names makes the first true and the second false."""
    one, other = (
        i.when for i in parse(f"language 1\nlanes\nlane x from y when {later}\nlane x from y when {earlier}\n").items
    )
    if not implies(one, other):
        return
    for a in (True, False):
        for b in (True, False):
            for c in ("x", "y", "z"):
                for n in (3, 4, 5, 8, 9):
                    scope = Scope({"a": a, "b": b, "c": c, "n": n})
                    assert not evaluate(one, scope) or evaluate(other, scope)


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
