"""What the parser says about mistakes: one diagnostic each, at the right place, in every situation it tells apart."""

from __future__ import annotations

import json
import re

import pytest

from bitlane.grammar.diagnostics import RuleSyntaxError
from bitlane.grammar.expected import keywords, starts
from bitlane.grammar.messages import LABELS
from bitlane.grammar.parsing import GRAMMAR, MAX_DEPTH, MAX_ERRORS, parse
from bitlane.grammar.scan import BLOCKS, CONTINUES, NAMING, STARTERS, statements

HEAD = "language 1\nlanes\n"
FAMILY = 'language 1\nfamily f for F\nstack l of n at "l.{i}." {\n'
LOADER = 'language 1\nloader x "1"\n'

# label -> (text, line, column, part of the help)
SITUATIONS = {
    "unclosed-string": (LOADER + 'read "abc\n', 3, 6, 'close it with `"`'),
    "unclosed-bracket": (HEAD + "let a = max(1, 2\nlet b = 3\n", 3, 12, "add `)`"),
    "unclosed-block": (LOADER + "format f {\n  default bf16\n", 3, 10, "add `}`"),
    "stray-close": (HEAD + "weights a = 1\n}\n", 4, 1, "remove it"),
    "no-language": ('loader x "1"\n', 1, 1, "first line"),
    "no-header": ("language 1\nfamly x for Y\n", 2, 1, "did you mean `family`?"),
    "foreign-character": (HEAD + "lane a from b when c is 'd'\n", 3, 25, "double quotes"),
    "foreign-operator": (HEAD + "lane a from b when c == 3\n", 3, 22, "write `is`"),
    "unquoted-version": (LOADER + "let a = 1 since 0.30\n", 3, 17, 'write `"0.30"`'),
    "json-value": (HEAD + 'test "t" {\n  given config.json {"a": True}\n}\n', 4, 27, "write `true`"),
    "json-comma": (HEAD + 'test "t" {\n  given config.json {"a": 1,}\n}\n', 4, 29, "remove the comma"),
    "misplaced-statement": (LOADER + "exclude by exact\n", 3, 1, "it belongs in `chain` or in `format`"),
    "unknown-statement": (
        LOADER + "format f {\n  exlude by exact\n  default bf16\n}\n",
        4,
        3,
        "did you mean `exclude`?",
    ),
    "missing-comma": (LOADER + "format f {\n  exclude by exact glob\n  default bf16\n}\n", 4, 20, "commas"),
    "joined-words": (
        LOADER + "format f {\n  exclude by exact whenx\n  default bf16\n}\n",
        4,
        20,
        "did you mean `when`?",
    ),
    "ends-early": (HEAD + "lane a from\n", 3, 12, "expected a name"),
    "misspelt-word": (HEAD + "lane a frm b\n", 3, 8, "did you mean `from`?"),
    "unexpected": (HEAD + 'let "a" = 3\n', 3, 5, "expected a name"),
}


def _errors(text: str) -> list:
    with pytest.raises(RuleSyntaxError) as caught:
        parse(text, "t.rules")
    return caught.value.diagnostics


@pytest.mark.parametrize("label", sorted(LABELS))
def test_every_situation_is_told_apart(label: str) -> None:
    """Each situation is reached, once, at the place of the mistake, with a way out."""
    text, line, column, help = SITUATIONS[label]
    found = _errors(text)
    assert [d.label for d in found] == [label]
    assert (found[0].span.line, found[0].span.column) == (line, column)
    assert help in found[0].help
    assert found[0].code in ("BL100", "BL101")


MISTAKES = """language 1
loader x "1"
let a = = 2
read config.json
chain c {
  exclude by exat glob
  exclude by exact
}

format f whn a {
  default bf16 since 0.3
  take lsting by exact
  default bf16
}
format g {
  default "bf16"
}
let z = (1 + 2
let y = 1
test "t" {
  given config.json {
    "a": 1,
    "b" 2
  }
  expect a.b
}
"""


def test_many_mistakes_one_report_each_none_echoed() -> None:
    """Ten mistakes in one file are ten diagnostics, in order, and the sound lines between them are left alone."""
    assert [d.span.line for d in _errors(MISTAKES)] == [3, 6, 10, 11, 12, 16, 18, 23, 25]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "let a = " + "(" * 5000 + "1" + ")" * 5000 + "\n",
        HEAD + "let a = " + "not " * 5000 + "1\n",
        HEAD + "let a = (" + "not\n" * 5000 + "1)\n",
        HEAD + "let a = b" + "[0]" * 5000 + "\n",
        HEAD + "let a = " + "-" * 5000 + "1\n",
        HEAD + "let a = " + "1 if 2 else " * 5000 + "3\n",
        HEAD + 'test "t" {\n  given a.json ' + "[" * 5000 + "]" * 5000 + "\n}\n",
        HEAD + 'test "t" {\n  given a.json ' + '{"a":' * 5000 + "1" + "}" * 5000 + "\n}\n",
        HEAD + "#" * (1 << 20),
    ],
)
def test_depth_and_size_are_refused_with_a_code(text: str) -> None:
    """5,000-deep nesting of any kind, and a file beyond 1 MiB, end in BL102 and nothing else."""
    assert [d.code for d in _errors(text)] == ["BL102"]


def test_depth_up_to_the_limit_is_read() -> None:
    """The bound is the documented one: as many brackets as allowed parse."""
    parse(HEAD + "let a = " + "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH + "\n")


def test_the_number_of_errors_is_bounded() -> None:
    """A file of nothing but mistakes is reported as far as the limit."""
    assert len(_errors(HEAD + "lett a = 1\n" * 100)) == MAX_ERRORS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('let a = "\\ud800"', "bad escape"),
        ('let a = "\\q"', "bad escape"),
        ("let a = " + "9" * 5000, "beyond 64 bits"),
        ("let a = 9223372036854775808", "beyond 64 bits"),
        ("let a = " + "9" * 400 + ".0", "beyond 64 bits"),
    ],
)
def test_values_that_cannot_be(line: str, message: str) -> None:
    """Escapes and numbers that no reader agrees on are refused where they stand."""
    found = _errors(HEAD + line + "\n")
    assert [(d.code, d.span.line) for d in found] == [("BL103", 3)]
    assert message in found[0].message


def test_statements_go_on() -> None:
    """After a comma, before guards and options, inside brackets; with comments and empty lines between."""
    text = (
        HEAD
        + 'lane a from b,\n    # why\n    c\n\n    when x is 1\n    and (y\n  or z)\n    since "1"\nlane d from e\n'
    )
    items = parse(text).items
    assert [(i.name, i.algorithms, i.since) for i in items] == [("a", ("b", "c"), "1"), ("d", ("e",), None)]


def test_the_scanner_agrees_with_the_grammar() -> None:
    """The words that the scanner knows by heart are those of the grammar."""
    text = GRAMMAR.read_text(encoding="utf-8")
    listed = re.search(r"CONTINUATION\.9: .*\(\?=\(([a-z|]+)\)", text)
    naming = re.search(r"CONTINUATION\.9: .*\(\?!\(([a-z|]+)\)\[", text)
    assert listed is not None
    assert naming is not None
    assert tuple(naming.group(1).split("|")) == NAMING
    assert set(BLOCKS) == set(re.findall(r'^[a-z]+: "([a-z]+)" .*"\{" _NL', text, re.MULTILINE))
    assert tuple(listed.group(1).split("|")) == CONTINUES
    rules = ("start", "header", "statement", "step", "format_item", "stack_item", "part_item", "name_rule", "test_item")
    assert set().union(*(starts(r) for r in rules)) == STARTERS
    assert set(CONTINUES) <= set(keywords())


def test_words_inside_comments_and_strings_are_no_statements() -> None:
    """Braces and brackets in comments and strings do not confuse the split into statements."""
    logicals, loose = statements('let a = "{("  # }\n# ) {\nlet b = 1\n')
    assert [(s.first, s.last, s.opens) for s in logicals] == [(1, 1, False), (3, 3, False)]
    assert [c.text for c in loose] == ["# ) {"]


def test_json_numbers_are_those_of_json() -> None:
    text = '{"a": 1e-05, "b": -1.5E+3, "c": 2e3, "d": 12, "e": 1.5, "f": -3}'
    tree = parse(f'language 1\nfamily x for Y\n\ntest "a" {{\n  given config.json {text}\n}}\n')
    (given_,) = tree.items[0].items
    assert json.loads(given_.text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "line", "column", "help"),
    [
        ("# only a comment\n\n", 1, 1, "make that its first line"),
        ('// a comment\nlanguage 1\nloader x "1"\n', 1, 1, "comments start with `#`"),
        ('LANGUAGE 1\nloader x "1"\n', 1, 1, "in small letters"),
        ("language 1\nloader demo\n", 2, 12, 'write `loader demo "1.0"`'),
        (LOADER + "format a\n{\n  default fp8\n}\n", 3, 9, "write the `{` at the end of this line"),
        (LOADER + "format a { exclusions ignore\n  default fp8\n}\n", 3, 12, "on lines of their own"),
        (LOADER + "format a {\n  default fp8\n}}\n", 5, 2, "`}` stands on a line of its own"),
        (LOADER + "let a = b && c\n", 3, 11, "write `and`"),
        (LOADER + 'let a = b startswith "c"\n', 3, 11, "did you mean `starts_with`?"),
        (LOADER + "let a = \u201cb\u201d\n", 3, 9, "double quotes"),
        (LOADER + "let a\u00a0= b\n", 3, 6, "no space"),
        (LOADER + "format a {\n  exclude by exact and glob\n}\n", 4, 20, "by commas"),
        (LOADER + "format a {\n  EXCLUDE by exact\n}\n", 4, 3, "did you mean `exclude`?"),
        (FAMILY + "  linear x [n, n] colum op up\n}\n", 4, 19, "`column`"),
    ],
)
def test_habits_of_other_languages_are_one_report_with_what_to_write(
    text: str, line: int, column: int, help: str
) -> None:
    (found,) = _errors(text)
    assert (found.span.line, found.span.column) == (line, column)
    assert help in found.help


def test_an_unknown_statement_is_offered_those_of_its_kind_of_file() -> None:
    (found,) = _errors('language 1\nloader x "1"\nfrobnicate\n')
    assert "`format`" in found.help
    assert "`embed`" not in found.help
    assert "`lane`" not in found.help


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("given config.json {", "given config.json 3", 6),
        ('"a": 1,', '"a": 1}', 6),
        ('test "x" {', '} "x" {', 4),
    ],
)
def test_a_block_that_a_mistake_closes_early_spills_no_reports(old: str, new: str, line: int) -> None:
    text = (
        'language 1\nfamily f for F\n\ntest "x" {\n  given config.json {\n    "a": 1,\n    "b": {"c": 2}\n  }\n'
        '  under vllm "0.32.0"\n  expect x bf16\n  expect y bf16\n}\n\ntest "y" {\n  under vllm\n}\n'
    )
    assert old in text
    (found,) = _errors(text.replace(old, new))
    assert abs(found.span.line - line) <= 1
