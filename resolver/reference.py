"""The tables of docs/rule-language.md, written from the code: statements, patterns, targets, functions, the grammar.

``python -m bitlane.resolver.reference docs/rule-language.md`` writes them anew between their marks.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..grammar.parsing import GRAMMAR
from ..grammar.words import STATEMENTS
from .bucket import SHAPE_KEYS
from .entries import KINDS
from .functions import FUNCTIONS
from .vocabulary import FAMILY_VALUES, LANE_VALUES, LOADER_ROOTS, LOADER_VALUES, MODULE_NAMES, OPERATION_VALUES, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HEADINGS: Final[Mapping[str, str]] = {
    "header": "What a file is about (its second statement)",
    "statement": "Statements of a file",
    "format_item": "Inside `format` (steps and `let`, `refuse`, `report` besides)",
    "step": "Steps, inside `chain` and `format`",
    "name_rule": "Inside `names`",
    "test_item": "Inside `test`",
}
QUANTIFIERS: Final[Mapping[str, str]] = {
    "any": "one name that is found is enough (for exclusions the default)",
    "all": "every name must be found, or the rule does not decide",
    "all_or_refuse": "every name or none; some of them is a refusal that names the missing ones",
    "complete_or_refuse": "experts that are listed one by one must be listed completely and alike",
    "first": "of several entries the first in the list counts",
    "agree": "every name must be found, and all entries must say the same, else a refusal",
    "listed_agree": "the names that are found must say the same, others are not asked (for listings the default)",
    "alike": "decides when every name is found and all say the same, otherwise the next rule is asked",
}
FLAGS: Final[Mapping[str, str]] = {
    "unmapped": "entries are looked up as they are written, without the family's renames",
    "dotted_only": "only entries with a dot are renamed",
    "split_stars": "`X*` counts as `X` and `X.*`, where the model class has a mapper",
    "upper": "algorithm words are read in capitals",
    "merged": "the lists of all paths are put together; without it the first that is there counts",
    "sorted": "targets are tried in sorted order, patterns last",
    "commas": "a text is read as entries between commas",
    "letters": "a text is read as its letters, one entry each",
}
MODULE_FLAGS: Final[Mapping[str, str]] = {
    "column": "tensor parallelism splits the output",
    "row": "tensor parallelism splits the input",
    "replicated": "every rank holds the whole matrix",
    "unpriced": "resolved, but no part of a price: vision towers, draft blocks",
    "plain": "no engine passes its quantization config to this module",
}
# What functions without a docstring give.
_GIVES: Final[Mapping[str, str]] = {
    "max": "the largest of the numbers among its values",
    "min": "the smallest of the numbers among its values",
    "ceil": "the next whole number above",
    "round_up": "the next multiple of the second value",
    "len": "the number of members or letters; 0 for what has none",
    "count": "how often the second value occurs",
    "upper": "the text (or the texts of a list) in capitals",
    "lower": "the text (or the texts of a list) in small letters",
    "type": "`dict`, `list`, `string`, `number`, `boolean`, `null` or `absent`",
    "first": "the first member",
    "keys": "the names of an object's members",
    "any_starts": "whether a text of the list begins with one of the other values",
    "front": "a list without its last member",
    "gcd": "the greatest common divisor",
    "unknown_keys": "the names of an object's members that are not among the other values",
}


def _row(*cells: str) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([_row(*head), _row(*("---" for _ in head)), *(_row(*r) for r in rows)])


def sentence(doc: str | None) -> str:
    """Return a docstring's first line as the end of a sentence."""
    line = (doc or "").strip().split("\n")[0].rstrip(".").replace("``", "`")
    line = re.sub(r":(?:meth|data|func):`[.~]*(\w+)`", r"`\1`", line)
    return line[:1].lower() + line[1:]


def statements() -> str:
    """Write the reference of statements."""
    out = []
    for rule, listed in STATEMENTS.items():
        rows = [(f"`{s.syntax}`", s.meaning) for s in listed.values()]
        out.append(f"**{HEADINGS[rule]}**\n\n{_table(('statement', 'meaning'), rows)}")
    return "\n\n".join(out)


def functions() -> str:
    """Write the table of functions."""
    rows = []
    for name, function in sorted(FUNCTIONS.items()):
        names = [
            ("..." if p.kind is inspect.Parameter.VAR_POSITIONAL else "") + p.name.strip("_")
            for p in inspect.signature(function).parameters.values()
        ]
        rows.append((f"`{name}({', '.join(names)})`", _GIVES.get(name) or sentence(function.__doc__)))
    return _table(("function", "gives"), rows)


def _pairs(listed: Mapping[str, str], head: str) -> str:
    return _table((head, "meaning"), ((f"`{k}`", v) for k, v in listed.items()))


def _names() -> str:
    rows = [
        ("loader files", LOADER_VALUES | LOADER_ROOTS, "and the keys of the block that was read"),
        ("steps, besides", MODULE_NAMES, "of the module that is decided"),
        ("schemes", frozenset(), "the keys of the group; `block` is the whole block"),
        ("family files", FAMILY_VALUES | {"config"}, "and the keys of the config"),
        ("operations, besides", OPERATION_VALUES, "how the model is split"),
        ("lanes", LANE_VALUES, ""),
    ]
    listed = [(where, ", ".join(f"`{n}`" for n in sorted(names)), what) for where, names, what in rows]
    return _table(("where", "names", ""), listed)


def parts() -> dict[str, str]:
    """Return every generated part by the name of its mark."""
    grammar = GRAMMAR.read_text(encoding="utf-8").rstrip("\n")
    operations = ((f"`{k}`", ", ".join(f"`{x}`" for x in v)) for k, v in SHAPE_KEYS.items())
    return {
        "statements": statements(),
        "patterns": _pairs({k: sentence(v.__doc__) for k, v in KINDS.items()}, "pattern kind"),
        "targets": _pairs(TARGETS, "target"),
        "quantifiers": _pairs(QUANTIFIERS, "quantifier"),
        "flags": _pairs(FLAGS, "flag"),
        "module-flags": _pairs(MODULE_FLAGS, "flag"),
        "functions": functions(),
        "names": _names(),
        "operations": _table(("kind", "sizes"), operations),
        "grammar": f"```lark\n{grammar}\n```",
    }


def filled(text: str) -> str:
    """Return a page with every generated part written anew between its marks."""
    for name, content in parts().items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        before, found, rest = text.partition(begin)
        if found:
            text = f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        page = Path(argument)
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
