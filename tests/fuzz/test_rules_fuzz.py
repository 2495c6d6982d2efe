"""A short run of the fuzz driver; the long one is `python tests/fuzz/rules.py --count 1000000 --jobs 2`."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from pathlib import Path

from bitlane.grammar.diagnostics import RuleSyntaxError
from bitlane.grammar.parsing import parse
from bitlane.grammar.scan import pieces
from bitlane.paths import RULES

_SPEC = importlib.util.spec_from_file_location("fuzz_rules", Path(__file__).with_name("rules.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
fuzz = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fuzz)


def test_mutated_rule_files_end_in_diagnostics() -> None:
    """A thousand inputs, some of which parse and some do not; none ends in anything but documented diagnostics."""
    told, failed = fuzz.run(1000, seed=20261129)
    assert not failed, failed[0]
    assert told["inputs"] == 1000
    assert told["parsed"] > 50
    assert told["refused"] > 300
    assert told["checked in full"] >= 1


def test_one_mistake_is_one_report() -> None:
    """A token deleted or replaced in a whole packaged file is reported once; a cascade would show here."""
    rng = random.Random(7)
    texts = [p.read_text(encoding="utf-8") for p in sorted(RULES.rglob("*.rules")) if p.stat().st_size < 9000]
    counts: Counter[int] = Counter()
    for _ in range(120):
        text = rng.choice(texts)
        piece = rng.choice([p for p in pieces(text) if p.kind not in ("newline", "comment")])
        lines = text.split("\n")
        line = lines[piece.line - 1]
        other = rng.choice(["", "", "frobnicate", "{", "}", "(", "3", '"x"'])
        lines[piece.line - 1] = line[: piece.column - 1] + other + line[piece.column - 1 + len(piece.text) :]
        try:
            parse("\n".join(lines))
        except RuleSyntaxError as error:
            counts[len(error.diagnostics)] += 1
    assert counts[1] > 80
    assert sum(n for reports, n in counts.items() if reports > 1) <= 5, counts
    assert max(counts) <= 2, counts
