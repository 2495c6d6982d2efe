"""`bitlane rules`: exit codes, formats, and what is printed."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bitlane.cli import main
from bitlane.grammar.codes import CODES

LOADER = """language 1
loader demo "1.0" "2.0"
read config.json quantization_config

format demo when quant_method is "demo" {
  exclusions ignore
  exclude by exact
  default fp8 static
}
"""
TEST = """
test "an excluded projection" {
  given config.json {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
    "quantization_config": {"quant_method": "demo", "ignore": ["model.layers.0.mlp.down_proj"]}
  }
  under demo "1.0" on h200
  expect model.layers.0.mlp.down_proj bf16 [64, 128] by "exclude by exact"
  expect model.layers.0.mlp.gate_up_proj fp8 [256, 64] lane fp8_static by "default fp8 static"
}
"""
NAMES = "language 1\nextend family llama\nnames demo {\n  fuse gate_up_proj = gate_proj up_proj\n}\n"


def bitlane(*arguments: object, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["rules", *map(str, arguments)], input=input)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a loader of its own, its test, and the names of one family under it."""
    (tmp_path / "demo.rules").write_text(LOADER + TEST, encoding="utf-8")
    (tmp_path / "llama.rules").write_text(NAMES, encoding="utf-8")
    return tmp_path


# --- check ------------------------------------------------------------------------


def test_clean_files_end_with_0(folder: Path) -> None:
    """Nothing to say but how many files were looked at."""
    result = bitlane("check", folder)
    assert (result.exit_code, result.output) == (0, "2 files checked: no errors, no warnings\n")


def test_a_finding_looks_like_a_compilers(tmp_path: Path) -> None:
    """Code, place, source line, carets under the word (wide characters and tabs counted), help; then the sum."""
    path = tmp_path / "x.rules"
    text = LOADER.replace("  exclude by exact\n", '\t exclude by exact, exat when quant_method is "日本" # é\n')
    path.write_text(text, encoding="utf-8")
    result = bitlane("check", path)
    assert result.exit_code == 3
    lines = result.output.split("\n")
    assert lines[0] == "error[BL110]: unknown pattern kind `exat`"
    assert lines[1] == f" --> {path}:7:21"
    assert lines[3] == '7 |      exclude by exact, exat when quant_method is "日本" # é'
    assert lines[4] == "  |                        ^^^^"
    assert lines[3].index("exat") == lines[4].index("^^^^")
    assert lines[5] == "  = help: did you mean `exact`?"
    assert lines[-2] == "1 file checked: 1 error, no warnings"


def test_carets_stand_under_wide_characters(tmp_path: Path) -> None:
    """Two columns for each wide character before the caret."""
    path = tmp_path / "x.rules"
    path.write_text(LOADER.replace('is "demo"', 'is "日本" or uper(quant_method) is "A"'), encoding="utf-8")
    lines = bitlane("check", path).output.split("\n")
    assert lines[4].index("^") == lines[3].index("uper") + 2


def test_a_related_place_is_shown(tmp_path: Path) -> None:
    """An unreachable rule shows the rule before it that decides."""
    path = tmp_path / "x.rules"
    path.write_text(LOADER.replace("  exclusions", "  default bf16\n  exclusions"), encoding="utf-8")
    output = bitlane("check", path).output
    assert re.search(r"::: .*x\.rules:6:3", output)
    assert "----" in output
    assert "this one decides before" in output


def test_warnings_alone_end_with_0_unless_strict(tmp_path: Path) -> None:
    """`--strict` turns warnings into findings."""
    path = tmp_path / "x.rules"
    path.write_text(LOADER.replace("  exclude by exact\n", ""), encoding="utf-8")
    assert bitlane("check", path).exit_code == 0
    assert bitlane("check", "--strict", path).exit_code == 1


def test_json_github_and_sarif_say_the_same(tmp_path: Path) -> None:
    """Machine formats carry code, place and message of every finding."""
    path = tmp_path / "x.rules"
    path.write_text(LOADER.replace("exact", "exat"), encoding="utf-8")
    found = json.loads(bitlane("check", path, "--format", "json").output)
    assert (found["schema"], found["errors"], found["warnings"]) == ("bitlane.rules_check/1", 1, 0)
    (one,) = found["diagnostics"]
    assert (one["code"], one["line"], one["column"], one["end_column"]) == ("BL110", 7, 14, 18)
    github = bitlane("check", path, "--format", "github").output
    assert github.startswith("::error file=")
    assert "line=7,col=14,endLine=7,endColumn=18,title=BL110::" in github
    assert "%0Ahelp: did you mean `exact`?" in github
    log = json.loads(bitlane("check", path, "--format", "sarif").output)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "BL110"
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 7, "startColumn": 14, "endLine": 7, "endColumn": 18}


def test_many_files_many_errors_one_run(tmp_path: Path) -> None:
    """Files that do not parse do not hide what is wrong in the others."""
    (tmp_path / "a.rules").write_text(LOADER.replace("exact", "exat"), encoding="utf-8")
    (tmp_path / "b.rules").write_text("language 1\nlanes\nlane a frm b\nlane c from\n", encoding="utf-8")
    (tmp_path / "c.rules").write_bytes(b"language 1\nlanes\n# \xff\n")
    (tmp_path / "d.rules").write_text("", encoding="utf-8")
    found = json.loads(bitlane("check", tmp_path, "--format", "json").output)["diagnostics"]
    assert [(Path(d["file"]).name, d["code"]) for d in found] == [
        ("a.rules", "BL110"),
        ("b.rules", "BL100"),
        ("b.rules", "BL100"),
        ("c.rules", "BL105"),
        ("d.rules", "BL100"),
    ]


def test_standard_input(folder: Path) -> None:
    """`-` is the file that an editor has not saved."""
    result = bitlane("check", "-", "--stdin-name", "mine.rules", input=LOADER.replace("exact", "exat"))
    assert result.exit_code == 3
    assert "--> mine.rules:7:14" in result.output


def test_paths_that_are_not_there() -> None:
    """A wrong path is a usage error with a code."""
    result = bitlane("check", "no/such/file.rules")
    assert result.exit_code == 2
    assert "BL221" in result.output


def test_the_packaged_rules_have_no_error() -> None:
    """What is shipped is sound; warnings name branches that no checkpoint and no test reaches."""
    found = json.loads(bitlane("check", "--format", "json").output)
    assert [d for d in found["diagnostics"] if d["severity"] == "error"] == []


# --- fmt -----------------------------------------------------------------------------


def test_fmt_writes_once_and_keeps_permissions(tmp_path: Path) -> None:
    """Formatting changes the file, formatting again does not; the mode stays."""
    path = tmp_path / "x.rules"
    path.write_text("language   1\nlanes\nlane a   from b  # c\n", encoding="utf-8")
    path.chmod(0o640)
    assert bitlane("fmt", "--check", path).exit_code == 1
    assert path.read_text(encoding="utf-8").startswith("language   1")
    assert bitlane("fmt", path).exit_code == 0
    assert path.read_text(encoding="utf-8") == "language 1\nlanes\nlane a from b  # c\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert bitlane("fmt", "--check", path).exit_code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["x.rules"]


def test_fmt_diff_writes_nothing(tmp_path: Path) -> None:
    """`--diff` prints what would change."""
    path = tmp_path / "x.rules"
    path.write_text("language 1\nlanes\nlane a   from b\n", encoding="utf-8")
    result = bitlane("fmt", "--diff", path)
    assert "-lane a   from b\n+lane a from b\n" in result.output
    assert "lane a   from b" in path.read_text(encoding="utf-8")


def test_fmt_of_standard_input_and_of_broken_files(tmp_path: Path) -> None:
    """`-` goes to standard output; a file that does not parse is reported and left as it is."""
    assert (
        bitlane("fmt", "-", input="language 1\nlanes\nlane a  from b\n").stdout == "language 1\nlanes\nlane a from b\n"
    )
    path = tmp_path / "x.rules"
    path.write_text("language 1\nlanes\nlane a frm b\n", encoding="utf-8")
    result = bitlane("fmt", path)
    assert result.exit_code == 3
    assert "did you mean `from`?" in result.stderr
    assert path.read_text(encoding="utf-8") == "language 1\nlanes\nlane a frm b\n"
    assert bitlane("fmt").exit_code == 2


# --- test ------------------------------------------------------------------------------


def test_tests_that_pass(folder: Path) -> None:
    """Precision, shape, lane and deciding rule are compared."""
    result = bitlane("test", folder)
    assert (result.exit_code, result.output) == (0, "1 test, 2 expectations: none failed\n")


def test_a_failure_shows_module_expected_actual_and_chain(folder: Path) -> None:
    """The report is enough to find the rule."""
    path = folder / "demo.rules"
    path.write_text(path.read_text(encoding="utf-8").replace("down_proj bf16", "down_proj fp8"), encoding="utf-8")
    result = bitlane("test", folder)
    assert result.exit_code == 1
    lines = [line.strip() for line in result.output.split("\n")]
    assert lines[0].startswith("FAILED an excluded projection")
    assert lines[1].startswith("model.layers.0.mlp.down_proj")
    assert lines[2] == "expected  fp8 [64, 128] by `exclude by exact`"
    assert lines[3] == "actual    bf16 [64, 128] in lane bf16 by `exclude by exact`"
    assert any(line.startswith("✓ exclude by exact") and "demo.rules:7" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        (("[64, 128]", "[64, 129]"), "bf16 [64, 128] in lane bf16"),
        (('"exclude by exact"', '"exclude by glob"'), "by `exclude by exact`"),
        (("lane fp8_static", "lane fp8_wo"), "in lane fp8_static"),
        (("mlp.down_proj bf16", "mlp.down_prj bf16"), "no such module; did you mean `model.layers.0.mlp.down_proj`?"),
        (
            ("expect model.layers.0.mlp.down_proj bf16 [64, 128]", "expect model.layers.0.mlp.down_proj conflict"),
            "bf16",
        ),
    ],
)
def test_every_part_of_an_expectation_counts(folder: Path, change: tuple[str, str], actual: str) -> None:
    """A wrong shape, rule, lane or module fails, and the report says what came."""
    path = folder / "demo.rules"
    text = path.read_text(encoding="utf-8")
    assert change[0] in text
    path.write_text(text.replace(change[0], change[1]), encoding="utf-8")
    (test,) = json.loads(bitlane("test", folder, "--json").output)["tests"]
    assert len(test["failures"]) == 1
    assert actual in test["failures"][0]["actual"]


@pytest.mark.parametrize(
    ("rule", "expected", "passes"),
    [
        ('refuse "not today"', 'expect refusal "not today"', True),
        ('refuse "not today"', 'expect refusal "tomorrow"', False),
        ('refuse "not today" for linear', "expect model.layers.0.mlp.down_proj refusal", True),
        ('refuse "not today" for linear', "expect model.embed_tokens fp8", True),
        ('refuse "not today" code BL245 for linear', "expect conflict", True),
        ('report "look here" code BL290', 'expect report "look here"', True),
        ('report "look here" code BL290', "expect report BL290", False),
        ('report "look here" when false', "expect report", False),
        ("leave embed", "expect unsupported", False),
    ],
)
def test_outcomes_of_the_whole_checkpoint(folder: Path, rule: str, expected: str, passes: bool) -> None:
    """Refusals, conflicts and reports can be expected; a module is judged even where another one is refused."""
    path = folder / "demo.rules"
    expected = expected.replace("BL290", '"BL299"')
    text = (LOADER + TEST).replace("  exclusions ignore\n", f"  exclusions ignore\n  {rule}\n")
    head, _, _ = text.partition("  expect ")
    path.write_text(f"{head}  {expected}\n}}\n", encoding="utf-8")
    result = bitlane("test", folder)
    assert result.exit_code == (0 if passes else 1), result.output


def test_todo_tests_must_fail(folder: Path) -> None:
    """A known gap is recorded; when it closes, the word has to go."""
    path = folder / "demo.rules"
    text = path.read_text(encoding="utf-8").replace('projection" {', 'projection" todo {')
    path.write_text(text, encoding="utf-8")
    assert bitlane("test", folder).exit_code == 1
    path.write_text(text.replace("down_proj bf16", "down_proj fp8"), encoding="utf-8")
    result = bitlane("test", folder)
    assert result.exit_code == 0
    assert "1 todo" in result.output


def test_no_test_at_all_is_a_failure(tmp_path: Path) -> None:
    """Rules without a test do not pass."""
    (tmp_path / "demo.rules").write_text(LOADER, encoding="utf-8")
    assert bitlane("test", tmp_path).exit_code == 1
    assert bitlane("test", "--only", "no test is called so").exit_code == 1


# --- coverage ----------------------------------------------------------------------------


def test_coverage_lists_idle_rules_and_has_a_threshold(folder: Path) -> None:
    """Over its own test the loader's rules all decide; one more that nothing reaches is listed and counted."""
    result = bitlane("coverage", "--rules", folder, "--loader", "demo", "--json")
    found = json.loads(result.output)
    mine = [r for r in found["rules"] if "demo.rules" in r["at"]]
    assert [(r["at"].rpartition(":")[2], r["what"], r["fired"] > 0) for r in mine] == [
        ("5", "format", True),
        ("7", "step", True),
        ("8", "step", True),
    ]
    path = folder / "demo.rules"
    path.write_text(LOADER.replace("  default", "  exclude by glob\n  default") + TEST, encoding="utf-8")
    again = bitlane("coverage", "--rules", folder, "--loader", "demo", "--fail-under", 100)
    assert again.exit_code == 1
    assert re.search(r"demo\.rules:8 +step +exclude by glob +0", again.output)


# --- diff -----------------------------------------------------------------------------------

WEIGHT_ONLY = {
    "architectures": ["LlamaForCausalLM"],
    **{"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 4},
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"input_activations": None, "weights": {"num_bits": 4}, "targets": ["Linear"]}},
    },
}


def test_diff_of_two_versions(tmp_path: Path) -> None:
    """vLLM reads groups without activations as weight-only from 0.30 on (seen by running it): every layer changes."""
    (tmp_path / "config.json").write_text(json.dumps(WEIGHT_ONLY), encoding="utf-8")
    result = bitlane("diff", "vllm@0.24.0", "vllm@0.30.0", tmp_path, "--json")
    found = json.loads(result.output)
    assert result.exit_code == 1
    assert (found["compared"], found["verdicts"]) == (1, [])
    assert {c["module"] for c in found["changes"]} == {
        f"model.layers.{{i}}.{m}"
        for m in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
    }
    assert all(c["layers"] == [0, 1, 2] for c in found["changes"])
    assert {(c["old"]["algorithm"], c["new"]["algorithm"]) for c in found["changes"]} == {("nvfp4", "w4a16_nvfp4")}
    shown = bitlane("diff", "vllm@0.24.0", "vllm@0.30.0", tmp_path).output
    assert "model.layers.{i}.mlp.down_proj  layers 0-2" in shown
    assert bitlane("diff", "vllm@0.31.0", "vllm@0.31.0", tmp_path).exit_code == 0


def test_diff_of_two_folders(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two folders of rules are compared under one loader."""
    other = tmp_path_factory.mktemp("other")
    (other / "demo.rules").write_text(LOADER.replace("fp8 static", "fp8 dynamic"), encoding="utf-8")
    (other / "llama.rules").write_text(NAMES, encoding="utf-8")
    model = tmp_path_factory.mktemp("model")
    quantized = {**WEIGHT_ONLY, "quantization_config": {"quant_method": "demo"}}
    (model / "config.json").write_text(json.dumps(quantized), encoding="utf-8")
    found = json.loads(bitlane("diff", folder, other, model, "--loader", "demo@1.0", "--json").output)
    assert found["changes"]
    assert {(c["old"]["activations"], c["new"]["activations"]) for c in found["changes"]} == {("static", "dynamic")}
    assert bitlane("diff", folder, other, model).exit_code == 2


# --- list and explain ---------------------------------------------------------------------------


def test_list_says_what_is_in_force_and_what_is_replaced(folder: Path) -> None:
    """A user's file comes first; the packaged one that it replaces is still listed."""
    (folder / "vllm.rules").write_text(LOADER.replace("loader demo", "loader vllm"), encoding="utf-8")
    files = json.loads(bitlane("list", "--rules", folder, "--json").output)["files"]
    states = {(f["kind"], f["name"], f["state"], Path(f["path"]).parent == folder) for f in files}
    assert ("loader", "demo", "in force", True) in states
    assert ("family", "llama", "extends", True) in states
    assert ("loader", "vllm", "in force", True) in states
    assert ("loader", "vllm", "replaced", False) in states
    assert "demo.rules" in bitlane("list", "--rules", folder).output


def test_explain_knows_every_code_and_suggests() -> None:
    """Any code in any case; near misses are told."""
    for code in CODES:
        assert bitlane("explain", code.lower()).output.startswith(f"## {code}")
    result = bitlane("explain", "BL1111")
    assert result.exit_code == 2
    assert "did you mean `BL111`?" in result.output


def test_places_in_sarif_are_addresses(tmp_path: Path) -> None:
    """RFC 3986 leaves no blank, and no percent sign of its own, in an address."""
    file = tmp_path / "a b%.rules"
    file.write_text("language 1\n")
    result = CliRunner().invoke(main, ["rules", "check", str(file), "--format", "sarif"])
    (found,) = json.loads(result.stdout)["runs"][0]["results"]
    uri = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("/a%20b%25.rules")


def test_coverage_lists_rules_by_file_and_line() -> None:
    document = json.loads(CliRunner().invoke(main, ["rules", "coverage", "--loader", "trtllm", "--json"]).stdout)
    lines = [(p.rpartition(":")[0], int(p.rpartition(":")[2])) for p in document["never_fired"]]
    assert lines == sorted(lines)
    assert "<test>" not in "".join(document["skipped"])
