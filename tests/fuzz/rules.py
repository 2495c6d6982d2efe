"""Mutated rule files: parser, checker and formatter must end in documented diagnostics, never in anything else.

``python tests/fuzz/rules.py --count 1000000 --jobs 2`` prints what came; a failing input is printed whole.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bitlane.grammar.codes import CODES
from bitlane.grammar.diagnostics import Diagnostic, RuleSyntaxError
from bitlane.grammar.expected import keywords
from bitlane.grammar.findings import Findings
from bitlane.grammar.format import format_text
from bitlane.grammar.lint import lint
from bitlane.grammar.parsing import MAX_ERRORS, parse
from bitlane.grammar.scan import Logical, pieces, statements
from bitlane.paths import RULES
from bitlane.resolver.check import Source, check
from bitlane.rules.library import find

# Every so many inputs that parse are also checked against all the files in force.
FULL_CHECK = 1
ODD = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    '"',
    "#",
    "\n",
    "\t",
    "\r",
    "=",
    "==",
    ",",
    "->",
    "-",
    "not ",
    "\\",
    "é",
    "日",
    "\u2028",
    "\x00",
    "\ufeff",
    "0",
    "9" * 30,
]


def seeds() -> list[str]:
    """Cut every packaged rule file into short pieces: its header, and a few statements with the block around them."""
    out = []
    for path in sorted(RULES.rglob("*.rules")):
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        logicals, _ = statements(text)
        head = "\n".join(lines[logicals[0].first - 1 : logicals[1].last])
        if len(head) > 200:
            head = "language 1\nlanes"
        out += [f"{head}\n{piece}\n" for piece in _pieces(logicals[2:], lines)]
    # Long pieces (tests with a whole config) would take most of the time and teach little.
    return [s for s in out if len(s) < 700]


def _pieces(logicals: list[Logical], lines: list[str]) -> list[str]:
    """Every top-level statement; of blocks, every two statements between the block's braces."""
    out: list[str] = []
    opened: list[str] = []
    inside: list[str] = []
    for logical in logicals:
        text = "\n".join(lines[logical.first - 1 : logical.last])
        if logical.opens:
            opened.append(text)
        elif logical.closes and opened:
            out.append("\n".join([*opened, *inside[-2:], *["}"] * len(opened)]))
            opened.pop()
            inside = []
        elif opened:
            inside.append(text)
            if len(inside) % 2 == 0:
                out.append("\n".join([*opened, *inside[-2:], *["}"] * len(opened)]))
        else:
            out.append(text)
    return out


def mutate(text: str, rng: random.Random, pool: list[str]) -> str:
    """Change a text in one to four places: characters, tokens or lines."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        kind = rng.randrange(9)
        if kind < 3:
            at = rng.randrange(len(text) + 1)
            size = rng.choice([0, 1, 1, 3])
            text = text[:at] + (rng.choice(ODD) if kind else "") + text[at + size :]
        elif kind < 7:
            text = _token(text, rng, pool)
        else:
            lines = text.split("\n")
            at, to = rng.randrange(len(lines)), rng.randrange(len(lines) + 1)
            moved = lines.pop(at) if kind == 7 else lines[at]
            lines.insert(to, moved)
            text = "\n".join(lines)
    return text


def _token(text: str, rng: random.Random, pool: list[str]) -> str:
    found = [p for p in pieces(text) if p.kind != "newline"]
    if not found:
        return text
    piece = rng.choice(found)
    lines = text.split("\n")
    line = lines[piece.line - 1]
    other = rng.choice([rng.choice(pool), rng.choice(found).text, "", piece.text + " " + piece.text])
    lines[piece.line - 1] = line[: piece.column - 1] + other + line[piece.column - 1 + len(piece.text) :]
    return "\n".join(lines)


def sound(found: list[Diagnostic], text: str) -> None:
    """Every diagnostic is documented, has words, and stands inside the text."""
    last = text.count("\n") + 2
    assert len(found) <= 400
    for diagnostic in found:
        assert diagnostic.code in CODES, diagnostic
        assert diagnostic.message, diagnostic
        assert diagnostic.severity in ("error", "warning"), diagnostic
        assert 1 <= diagnostic.span.line <= last, diagnostic
        assert diagnostic.span.column >= 1, diagnostic


def one(text: str, full: bool, told: Counter[str]) -> None:
    """Put one input through everything."""
    try:
        tree, refused = parse(text, "fuzz.rules"), []
    except RuleSyntaxError as error:
        tree, refused = None, error.diagnostics
    if tree is None:
        assert 1 <= len(refused) <= MAX_ERRORS
        sound(refused, text)
        told["refused"] += 1
        told.update(d.label or d.code for d in refused)
        return
    told["parsed"] += 1
    written = format_text(text, "fuzz.rules")
    assert format_text(written, "fuzz.rules") == written
    findings = Findings(text, "fuzz.rules")
    lint(tree, findings)
    sound(findings.settled(), text)
    if full:
        report = check([Source("fuzz.rules", Path("fuzz.rules"), text)], find())
        sound(list(report.diagnostics), text)
        told["checked in full"] += 1
        told.update(d.code for d in report.diagnostics)


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run ``count`` inputs; return what came, and the inputs that failed with their traceback."""
    rng = random.Random(seed)
    corpus = seeds()
    pool = [*keywords(), *ODD, "x", "1", '"a"', "a.b", "0.30", '"0.30"', "true"]
    told: Counter[str] = Counter()
    failed: list[str] = []
    for _ in range(count):
        text = mutate(rng.choice(corpus), rng, pool)
        told["inputs"] += 1
        try:
            one(text, told["parsed"] % FULL_CHECK == 0, told)
        except Exception:  # whatever comes is what is looked for
            failed.append(f"{text!r}\n{traceback.format_exc()}")
            if len(failed) >= 5:
                break
    return told, failed


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    start = time.process_time(), time.perf_counter()
    chunk = min(5_000, max(1, options.count // options.jobs))
    chunks = [min(chunk, options.count - at) for at in range(0, options.count, chunk)]
    told: Counter[str] = Counter()
    failed: list[str] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for some, bad in pool.map(run, chunks, range(options.seed, options.seed + len(chunks))):
            told += some
            failed += bad
            print("".join(bad[:5]), end="", flush=True)
            print(f"{told['inputs']:,} inputs, {len(failed)} failed", file=sys.stderr, flush=True)
    for what, number in told.most_common():
        print(f"{number:>10,}  {what}")
    print(f"{told['inputs']:,} inputs, {len(failed)} failed, {time.perf_counter() - start[1]:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
