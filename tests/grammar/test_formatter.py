"""The formatter: what it writes means the same, says the same again, and keeps every comment."""

from __future__ import annotations

import msgspec
import pytest
import rule_trees as strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from bitlane.grammar import tree as t
from bitlane.grammar.compare import same, stripped
from bitlane.grammar.format import comments, format_text, format_tree, walk
from bitlane.grammar.layout import WIDTH
from bitlane.grammar.lines import statement
from bitlane.grammar.parsing import parse


@given(strategies.files())
@settings(max_examples=150)
def test_what_is_written_is_what_was_meant(tree: t.File) -> None:
    """parse(format(tree)) == tree, places aside, and the second formatting changes nothing."""
    written = format_tree(tree)
    assert stripped(parse(written)) == stripped(tree)
    assert format_text(written) == written


@given(strategies.files(), st.lists(st.sampled_from(["", "", "behind", "above", "empty"]), max_size=30))
@settings(max_examples=100)
def test_every_comment_stays(tree: t.File, kinds: list[str]) -> None:
    """Comments put at the ends of lines and between them are all there afterwards, and stay where they are."""
    lines = format_tree(tree).rstrip("\n").split("\n")
    out: list[str] = []
    for number, line in enumerate(lines):
        kind = kinds[number] if number < len(kinds) else ""
        if kind == "above":
            out.append(f"   # above {number}")
        if kind == "empty":
            out += ["", ""]
        out.append(line + ("#behind " + str(number) if kind == "behind" else ""))
    source = "\n".join(out)
    once = format_text(source)
    assert comments(once) == comments(source)
    assert format_text(once) == once
    assert same(parse(once), tree)


def test_every_statement_class_has_its_line() -> None:
    """A class added to the tree without a printer would make the formatter fail on the first file that uses it."""
    plain = (t.File, t.Option, t.Match, t.Outcome, t.Also)
    concrete = [
        c for c in vars(t).values() if isinstance(c, type) and issubclass(c, t.Node) and c.__module__ == t.__name__
    ]
    bases = (t.Node, t.Statement, t.Guarded)
    expressions = t.Expr.__args__
    for cls in concrete:
        if cls in plain or cls in bases or cls in expressions:
            continue
        assert statement.dispatch(cls) is not statement.dispatch(object), cls.__name__


SOURCE = """# first
language 1   # one
# about
loader   vllm "0.30.0"    "0.31.0" # versions



read config.json  quantization_config   # where
format f   when a   is "b"  {   # opened

  # inside

  exclude by exact,
     glob     # two lines
  default bf16 # last

  # before the brace
}   # closed
test "t" {
  given config.json {  # json
    "a":1,"b":[1,2,
      # three
      3], # after b
    "c":{"d":null}
    # tail
  }
  expect a.b bf16
}
# end
"""

FORMATTED = """# first
language 1  # one
# about
loader vllm "0.30.0" "0.31.0"  # versions

read config.json quantization_config  # where
format f when a is "b" {  # opened
  # inside

  exclude by exact, glob  # two lines
  default bf16  # last

  # before the brace
}  # closed
test "t" {
  given config.json {
    # json
    "a": 1, "b": [
      1, 2,
      # three
      3
    ],  # after b
    "c": {"d": null}
    # tail
  }
  expect a.b bf16
}
# end
"""


def test_one_file_in_full() -> None:
    """A written-out pair: places of comments, blank lines, JSON."""
    assert format_text(SOURCE) == FORMATTED


def test_long_statements_go_on_before_their_guards() -> None:
    """A line that is too wide breaks before `when`, options and members, and parses to the same."""
    condition = " and ".join(f'quantization_config.some_key_{n} is "value"' for n in range(6))
    source = f'language 1\nlanes\nlane a from b, c for experts when {condition} since "0.30"\n'
    lines = format_text(source).splitlines()
    assert lines[2] == "lane a from b, c for experts"
    assert lines[3].startswith("    when quantization_config.some_key_0")
    assert all(len(line) <= WIDTH for line in lines)


def test_parentheses_that_help_reading_stay() -> None:
    """Mixed `and`/`or` and tests inside conditionals keep theirs; needless ones go."""
    source = "language 1\nlanes\nlet a = ((b and c) or d)\nlet e = (f is 1) if (g) else (h)\n"
    assert format_text(source).splitlines()[2:] == ["let a = (b and c) or d", "let e = (f is 1) if g else h"]


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_line_endings_and_marks(ending: str) -> None:
    """Windows line ends and a byte order mark are read, and written as plain lines."""
    source = "\ufeff" + ending.join(["language 1", "lanes", "lane a from b  # c", ""])
    assert format_text(source) == "language 1\nlanes\nlane a from b  # c\n"


def test_trees_survive_the_cache_encoding() -> None:
    """A tree comes back from MessagePack equal, so that cached and parsed files cannot differ."""
    tree = parse(SOURCE)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(tree), type=t.File) == tree
    assert len(list(walk(tree))) == 7


def test_names_that_read_like_statements_may_begin_a_line() -> None:
    """Inside brackets `experts` and `system` are names; the formatter's own breaks may put them first."""
    listed = ", ".join(f'"{n}" * 20' for n in range(12))
    inside = f"experts, system,\n    {listed}, experts"
    source = f"language 1\nlanes\nlane a from b\n    when kind in (\n    {inside})\nlane c from d\n"
    once = format_text(source)
    assert format_text(once) == once
    assert same(parse(once), parse(source))
