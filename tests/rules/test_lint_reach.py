"""Rules that nothing reaches, and the logic of conditions that finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linting import HEAD, form, found, told

from bitlane.grammar.logic import constant, entails, implies
from bitlane.grammar.parsing import parse
from bitlane.resolver.expressions import Scope, evaluate


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
        ("exclude by exact on shards all_or_refuse", "exclude by exact on shards", True),
        ("exclude by exact on shards all_or_refuse when fused", "exclude by exact on shards", False),
        ("exclude by substring", "exclude by exact", True),
        ("exclude by substring", "exclude by parent", True),
        ("exclude by parent", "exclude by exact", True),
        ("exclude by exact", "exclude by substring", False),
        ("exclude by substring", "exclude by glob", False),
        ('exclude by substring containing "x"', "exclude by exact", False),
        ('exclude by substring containing "x"', 'exclude by exact containing "xy"', True),
        ("exclude by substring on path", "exclude by exact on shards", False),
        ("exclude by exact on path, shards all", "exclude by exact on shards all", False),
        ('exclude named "*.gate"', 'exclude named "model.*.gate"', True),
        ('exclude named "model.*.gate"', 'exclude named "*.gate"', False),
        ('exclude named "*"', "exclude by exact", True),
        ('exclude named "*" on shards', "exclude by exact", False),
        ('exclude named "*" when fused', "exclude by exact", False),
        ('refuse "always"', "exclude by exact", True),
        ('refuse "always" until "2.0"', "exclude by exact", False),
        ("default fp8 for linear, experts, embed, lm_head", "exclude by exact", True),
        ("default fp8 for linear, experts, embed", "exclude by exact", False),
        ("default fp8 when true", "exclude by exact", True),
        ("default fp8 when false", "exclude by exact", False),
    ],
)
def test_shadowed_steps(before: str, after: str, unreachable: bool) -> None:
    """A step is unreachable exactly when an earlier one decides all that it could."""
    codes = found(form("exclusions ignore", before, after, "default bf16", head='let algo = "x"\nlet listed = true\n'))
    assert (("BL111", 9) in codes) is unreachable, codes


@pytest.mark.parametrize(
    ("before", "after", "unreachable"),
    [
        (("exclude by glob when fused", "exclude by glob when not fused"), "exclude by glob", True),
        (("exclude by glob when fused", "exclude by glob when not fused"), "exclude by exact when listed", True),
        (("exclude by glob when fused", "exclude by glob when not fused and listed"), "exclude by glob", False),
        (("exclude by glob when fused", "exclude by exact when not fused"), "exclude by glob", False),
        (('default fp8 when algo is "A"', 'default fp8 when algo is not "A"'), "exclude by exact", True),
        (
            ('default fp8 when algo is "A"', 'default fp8 when algo is "B"'),
            'exclude by exact when algo in ("A", "B")',
            True,
        ),
        (("default fp8 when bits exists", "default fp8 when bits absent"), "exclude by exact", True),
        (("default fp8 when bits > 4", "default fp8 when bits <= 4"), "exclude by exact", False),
        (("leave linear, embed", "default fp8 for experts, lm_head"), "exclude by exact", True),
        (("leave linear, embed", "default fp8 for experts"), "exclude by exact", False),
    ],
)
def test_several_steps_together_leave_nothing(before: tuple[str, str], after: str, unreachable: bool) -> None:
    """Two conditions that cover every case, or two lists of kinds; what is absent is neither large nor small."""
    head = 'let algo = "x"\nlet listed = true\n'
    codes = found(form("exclusions ignore", *before, after, "default bf16", head=head))
    assert (("BL111", 10) in codes) is unreachable, codes


def test_formats_that_nothing_reaches() -> None:
    """A condition that always holds; a format without one is for metadata that was found; a loader that refuses all."""
    later = 'format b when quant_method is "b" {\n  default bf16\n}\n'
    assert found(HEAD + "format a when true {\n  default bf16\n}\n" + later) == [("BL111", 7)]
    unfound = later.replace('quant_method is "b"', "not found")
    assert found(HEAD + "format a {\n  default bf16\n}\n" + unfound) == []
    assert found(HEAD + "format a when true {\n  default bf16\n}\n" + unfound) == [("BL111", 7)]
    assert found(HEAD + 'refuse "never"\n' + later) == [("BL111", 5)]


@pytest.mark.parametrize("never", ["false", "1 is 2", "fused and false", "not (true or fused)", '"a" in ("b", "c")'])
def test_conditions_that_never_hold(never: str) -> None:
    """They are told once, as a warning: somebody may have switched a rule off."""
    lines = ("exclusions ignore", f"exclude by exact when {never}", "exclude by exact", "default bf16")
    assert told(form(*lines)) == [("BL111", "warning", "put it right, or remove the rule")]


def test_one_mistake_is_one_report() -> None:
    """An unreachable rule is not blamed for its list; what a suggestion names is not left over."""
    assert found(form("default bf16", "exclude by exact")) == [("BL111", 6)]
    chain = 'chain unused {\n  exclude named "*.gate"\n}\n'
    assert found(form("use unusedd", "default bf16", head=chain)) == [("BL110", 8)]
    assert found(form("default bf16", head="let algorithm_word = quant_algo\n", when="algoritm_word")) == [("BL123", 5)]


def test_a_file_is_not_blamed_for_what_an_overlay_puts_before_it() -> None:
    """An overlay decides first, on purpose; what it adds too late is its own mistake."""
    base = form("use late", "default fp8", head='chain late {\n  exclude named "*.gate"\n}\n')
    before = "language 1\nextend loader demo\nformat demo {\n  default bf16\n}\n"
    assert found(base, before) == []
    after = 'language 1\nextend loader demo\nchain late {\n  exclude named "*.gate"\n  exclude named "*.mlp.gate"\n}\n'
    assert found(after, base) == [("BL111", 5)]


def test_groups_that_are_left_out_are_no_step() -> None:
    """`leave groups` drops declarations, wherever it stands."""
    lines = ("groups layers", "take group by exact", "schemes {", "  fp8", "}", "default bf16", "leave groups when odd")
    assert found(form(*lines)) == []


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


@given(expressions, st.lists(expressions, min_size=1, max_size=3))
def test_entailment_is_sound(later: str, choices: list[str]) -> None:
    """Where entails() says so, no assignment of the names makes the first true and all of the others false."""
    lanes = "".join(f"lane x from y when {e}\n" for e in (later, *choices))
    first, *others = (i.when for i in parse(f"language 1\nlanes\n{lanes}").items)
    surely = entails(first, others)
    known = constant(first)
    for a in (True, False):
        for b in (True, False):
            for c in ("x", "y", "z"):
                for n in (3, 4, 5, 8, 9):
                    scope = Scope({"a": a, "b": b, "c": c, "n": n})
                    holds_here = bool(evaluate(first, scope))
                    assert known is None or known is holds_here
                    assert not surely or not holds_here or any(evaluate(o, scope) for o in others)
