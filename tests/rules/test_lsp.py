"""What an editor is told; the server itself is spoken to where pygls is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bitlane.cli import lsp, lsp_features
from bitlane.cli.lsp_completion import completions
from bitlane.rules.library import find

TEXT = """language 1
loader demo "1.0"
read config.json quantization_config

chain shared {
  exclude by exact on shards all when fused
}

format demo when lower(quant_method) is "demo" {
  exclusions ignore
  use shared
  default fp8 static  # ignore BL111
}
"""


def _at(text: str, word: str) -> tuple[int, int]:
    line = next(n for n, row in enumerate(text.split("\n")) if word in row)
    return line, text.split("\n")[line].index(word)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("exclusions", "where the list of excluded modules stands"),
        ("exact", "The entry is the name"),
        ("shards", "the paths of the shards"),
        ("lower", "function `lower`"),
        ("# ignore", "an unreachable rule"),
        ("demo when", ""),
    ],
)
def test_hover_says_what_it_is(word: str, told: str) -> None:
    """Statements, pattern kinds, targets, functions and codes are explained; names of the author's are not."""
    found = lsp_features.hover(TEXT, Path("demo.rules"), *_at(TEXT, word))
    assert (told in found) if told else found == ""


@pytest.mark.parametrize(
    ("typed", "some", "none"),
    [
        ("", {"let", "format", "read"}, {"exclude", "when", "stack", "lane"}),
        ("format f {\n  ", {"exclude", "default", "algorithms", "}"}, {"stack"}),
        ("format f {\n  exclude by ex", {"exact"}, {"glob"}),
        ("format f {\n  exclude by exact, ", {"glob", "regex"}, {"when"}),
        ("format f {\n  exclude by exact on ", {"shards", "path"}, {"when"}),
        ("format f {\n  default bf16 f", {"for"}, {"when"}),
        ("format f {\n  default bf16 for ", {"linear", "experts"}, {"when"}),
        ("chain c {\n}\nformat f {\n  use ", {"c"}, {"when"}),
        ("let mine = 1\nformat f {\n  exclude by exact when ", {"kind", "path", "mine", "upper", "config"}, {"tp"}),
        ("format f {\n  default ", {"nvfp4", "bf16", "refuse"}, {"when"}),
        ("format f {\n  exclude by exact since ", {'"1.0"'}, {"when"}),
    ],
)
def test_completion_offers_what_may_stand_there(typed: str, some: set[str], none: set[str]) -> None:
    """At the start of a line the block's statements, else what the parser or the clause takes."""
    text = 'language 1\nloader demo "1.0"\n' + typed
    lines = text.split("\n")
    found = set(completions(text, len(lines) - 1, len(lines[-1]), find()))
    assert some <= found
    assert not none & found


def test_completion_in_an_extension_knows_what_it_extends() -> None:
    head = "language 1\nextend loader vllm\nformat modelopt_mixed {\n  "
    for typed, some in (("use ", {"modelopt_exclusions"}), ("exclude by exact since ", {'"0.30.0"', '"0.32.0"'})):
        text = head + typed
        assert some <= set(completions(text, 3, 2 + len(typed), find()))


def test_findings_are_those_of_check() -> None:
    """The unsaved text is checked among the rules in force."""
    found = lsp_features.findings(TEXT.replace("by exact", "by exat"), Path("demo.rules"))
    assert [(d.code, d.span.line) for d in found] == [("BL110", 6), ("BL131", 12)]


def test_formatting_leaves_broken_files_alone() -> None:
    """A file that does not parse is not touched."""
    assert (
        lsp_features.formatted("language 1\nlanes\nlane  a from b\n", Path("x")) == "language 1\nlanes\nlane a from b\n"
    )
    assert lsp_features.formatted("language 1\nlanes\nlane a frm b\n", Path("x")) is None


def test_columns_are_counted_in_utf16() -> None:
    """The protocol counts UTF-16 units: one for e-acute, two for what lies beyond the basic plane."""
    assert lsp.units("é😀x", 2) == 3
    assert lsp.characters("é😀x", 3) == 2


def test_counts_are_told_where_a_rule_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hover on a rule tells how many modules it decides, once somebody has counted."""
    monkeypatch.setenv("BITLANE_CACHE", str(tmp_path))
    library = find()
    file = next(f for f in library.files if f.name == "vllm")
    counts = lsp_features.Counts(library)
    text = file.source()
    line = next(n for n, row in enumerate(text.split("\n")) if row.startswith("  exclude by"))
    assert counts.told(file.path, line + 1) == ""
    place = counts._place()
    assert place is not None
    place.write_text(json.dumps({f"{file.label}:{line + 1}": [1234, 5]}), encoding="utf-8")
    assert "decides 1,234 modules" in lsp_features.hover(text, file.path, line, 2, counts)


def _message(body: dict) -> bytes:
    data = json.dumps({"jsonrpc": "2.0", **body}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


@pytest.mark.skipif(find_spec("pygls") is None, reason="needs the extra `lsp` (pygls)")
def test_the_server_speaks(tmp_path: Path) -> None:
    """Initialise, open a file with a mistake, hover, complete, format, leave."""
    uri = (tmp_path / "demo.rules").as_uri()
    text = TEXT.replace("by exact", "by  exat")
    document = {"uri": uri, "languageId": "bitlane-rules", "version": 1, "text": text}
    place = {"textDocument": {"uri": uri}, "position": {"line": 9, "character": 3}}
    requests = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": document}},
        {"id": 2, "method": "textDocument/hover", "params": place},
        {"id": 3, "method": "textDocument/completion", "params": place},
        {
            "id": 4,
            "method": "textDocument/formatting",
            "params": {**place, "options": {"tabSize": 2, "insertSpaces": True}},
        },
        {"id": 5, "method": "shutdown"},
        {"method": "exit"},
    ]
    run = subprocess.run(
        [sys.executable, "-m", "bitlane.cli", "rules", "lsp"],
        input=b"".join(_message(r) for r in requests),
        capture_output=True,
        timeout=120,
        check=False,
    )
    answers = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in run.stdout.split(b"Content-Length: ")[1:]]
    byid = {a["id"]: a.get("result") for a in answers if "id" in a}
    published = next(a["params"] for a in answers if a.get("method") == "textDocument/publishDiagnostics")
    assert {d["code"] for d in published["diagnostics"]} == {"BL110", "BL131"}
    assert "excluded modules" in byid[2]["contents"]["value"]
    assert "exclusions" in [i["label"] for i in byid[3]["items"]]
    assert "  exclude by exat on shards" in byid[4][0]["newText"]
