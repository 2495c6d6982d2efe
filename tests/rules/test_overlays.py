"""What a user lays over the packaged rules: a rule, a definition, a loader, a family; strongest folder first."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bitlane import resolve
from bitlane.cli import main
from bitlane.errors import UsageError
from bitlane.resolver.api import resolve_with
from bitlane.resolver.checkpoint import from_dicts
from bitlane.rules.library import find

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    **{"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 4},
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
}
DOWN = "model.layers.1.mlp.down_proj"


def _folder(tmp_path: Path, name: str, text: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / f"{name}.rules").write_text("language 1\n" + text, encoding="utf-8")
    return folder


def _row(*folders: Path, config: dict = CONFIG, loader: str = "vllm@0.31.0"):
    return resolve_with(find(folders), from_dicts({"config.json": config}), loader, "gb200")[DOWN]


def test_without_an_overlay() -> None:
    """The ground that the others stand on."""
    assert _row().answer.algorithm == "fp8"


def test_one_rule_is_added_to_a_format_and_cited_by_its_own_file(tmp_path: Path) -> None:
    """The rule comes before those of the format, its place is the user's file; what it leaves is decided as before."""
    folder = _folder(tmp_path, "mine", 'extend loader vllm\nformat modelopt_fp8 {\n  exclude named "*.down_proj"\n}\n')
    row = _row(folder)
    assert (row.answer.algorithm, row.answer.rule) == ("bf16", 'exclude named "*.down_proj"')
    assert row.answer.rule_at == f"{folder / 'mine.rules'}:4"
    others = resolve_with(find((folder,)), from_dicts({"config.json": CONFIG}), "vllm@0.31.0", "gb200")
    up = others["model.layers.1.mlp.gate_up_proj"].answer
    assert up.algorithm == "fp8"
    assert up.rule_at.startswith("loaders/vllm.rules:")


def test_a_definition_is_replaced(tmp_path: Path) -> None:
    """A `let` of the overlay counts, for rules of the packaged file too."""
    folder = _folder(tmp_path, "mine", 'extend loader vllm\nlet algo = "FP8_PER_CHANNEL_PER_TOKEN"\n')
    assert _row(folder).answer.algorithm == "fp8_pc_pt"


def test_the_strongest_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--rules before BITLANE_RULES, and the first of several folders before the second."""
    text = 'extend loader vllm\nformat modelopt_fp8 {{\n  exclude named "*.down_proj" as {} none\n}}\n'
    one = _folder(tmp_path, "one", text.format("int4_wo"))
    two = _folder(tmp_path, "two", text.format("int8_wo"))
    assert _row(one, two).answer.algorithm == "int4_wo"
    assert _row(two, one).answer.algorithm == "int8_wo"
    monkeypatch.setenv("BITLANE_RULES", str(one))
    assert _row().answer.algorithm == "int4_wo"
    assert _row(two).answer.algorithm == "int8_wo"


def test_a_loader_is_replaced_whole(tmp_path: Path) -> None:
    """A file for the same loader takes the packaged one's place."""
    text = (
        'loader vllm "9.9"\nread config.json quantization_config\nformat all when found {\n  default mxfp8 dynamic\n}\n'
    )
    folder = _folder(tmp_path, "mine", text)
    assert _row(folder, loader="vllm@9.9").answer.algorithm == "mxfp8"
    with pytest.raises(UsageError) as caught:
        _row(folder, loader="vllm@0.31.0")
    assert caught.value.code == "BL222"


def test_a_family_is_added_or_takes_a_class_over(tmp_path: Path) -> None:
    """A new class is served by the user's file; one that a packaged family serves is taken over."""
    text = (
        "family mine for MineForCausalLM, LlamaForCausalLM\n"
        'stack layers of num_hidden_layers at "model.layers.{i}." {\n'
        "  linear mlp.down_proj [hidden_size, intermediate_size] row op down\n}\nnames vllm {\n}\n"
    )
    folder = _folder(tmp_path, "mine", text)
    for name in ("MineForCausalLM", "LlamaForCausalLM"):
        row = _row(folder, config={**CONFIG, "architectures": [name]})
        assert row.module.file == str(folder / "mine.rules")
        assert row.module.shape == [64, 128]


def test_lanes_are_extended(tmp_path: Path) -> None:
    """A lane rule of the user's comes before the packaged ones."""
    folder = _folder(tmp_path, "mine", 'extend lanes\nlane demo from fp8 when system is "gb200"\nweights demo = 1\n')
    assert _row(folder).lane.lane == "demo"
    assert _row(folder).lane.rule_at == f"{folder / 'mine.rules'}:3"


def test_a_head_may_go_over_lines(tmp_path: Path) -> None:
    """Finding files reads their heads as the parser does."""
    text = "\n# comment\nfamily mine\n    for AForCausalLM,  # one\n    BForCausalLM\nlet x = 1\n"
    folder = _folder(tmp_path, "mine", text)
    (file,) = [f for f in find((folder,)).families() if f.name == "mine"]
    assert file.architectures == ("AForCausalLM", "BForCausalLM")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Within one process, too."""
    text = 'extend loader vllm\nformat modelopt_fp8 {\n  exclude named "*.down_proj" as X none\n}\n'
    folder = _folder(tmp_path, "mine", text.replace("X", "int4_wo"))
    assert _row(folder).answer.algorithm == "int4_wo"
    (folder / "mine.rules").write_text("language 1\n" + text.replace("X", "int8_wo") + "\n", encoding="utf-8")
    assert _row(folder).answer.algorithm == "int8_wo"


def test_damaged_caches_are_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache entry that is torn or foreign is no answer; nothing in it is executed."""
    from bitlane.rules import library

    monkeypatch.setenv("BITLANE_CACHE", str(tmp_path / "cache"))
    library._cache_folder.cache_clear()
    library._load.cache_clear()
    text = 'extend loader vllm\nformat modelopt_fp8 {\n  exclude named "*.down_proj"\n}\n'
    folder = _folder(tmp_path, "mine", text)
    assert _row(folder).answer.algorithm == "bf16"
    entries = [p for p in (tmp_path / "cache").rglob("*.msgpack") if b"*.down_proj" in p.read_bytes()]
    entry = min(entries, key=lambda p: p.stat().st_size)
    for damage in (b"", b"\xc1", entry.read_bytes()[:40]):
        entry.write_bytes(damage)
        library._load.cache_clear()
        assert _row(folder).answer.algorithm == "bf16"
    library._cache_folder.cache_clear()
    library._load.cache_clear()


LIGHTNING = ["nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", "--loader", "vllm@0.31.0", "--system", "gb200"]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("extend loader vllm\nformat modelopt_mixed {\n  exclude by exat\n}\n", "BL110", ":4:14"),
        (
            'extend loader vllm\nformat modelopt_mixed {\n  exclude by exact when upper(path, path) is "a"\n}\n',
            "BL132",
            ":4:",
        ),
        ("extend loader vllm\nformat modelopt_mixed {\n  exclude by exact on pathh\n}\n", "BL110", ":4:"),
        ("extend loader vllm\nlet method = method\n", "BL116", ":3:"),
        ("extend loader vlm\n", "BL133", ":2:15"),
        ("extend loadr vllm\n", "BL1", ":2:"),
    ],
)
def test_an_overlay_with_an_error_answers_nothing(tmp_path: Path, text: str, code: str, place: str) -> None:
    (tmp_path / "a.rules").write_text("language 1\n" + text)
    for command in (["resolve", *LIGHTNING], ["price", *LIGHTNING, "--phase", "decode", "--mode", "SOL"]):
        result = CliRunner().invoke(main, [*command, "--rules", str(tmp_path)])
        assert result.exit_code == 3, result.output
        assert f"error[{code}" in result.stderr
        assert f"{tmp_path / 'a.rules'}{place}" in result.stderr


def test_a_place_in_an_overlay_of_a_family_is_the_overlays(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(
        'language 1\nextend family qwen3\n\nstack more of 1 at "more.{i}." {\n'
        "  linear a [hidden_size, vocab_size / 7] column op x\n}\n"
    )
    asked = ["resolve", "Qwen/Qwen3-0.6B", "--loader", "vllm", "--system", "gb200", "--rules", str(tmp_path)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 4
    assert f"{tmp_path / 'a.rules'}:5" in result.stderr  # 151,936 / 7 is no whole number


def test_an_answer_cites_the_file_that_replaced_the_packaged_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text('language 1\nloader vllm "0.31.0"\nread config.json quantization_config\n')
    answer = resolve("Qwen/Qwen3-0.6B", "vllm", "gb200", rules=(tmp_path,))
    assert {r.answer.rule_at for r in answer} == {str(file)}


def test_a_folder_without_rules_and_a_link_to_nowhere_are_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["rules", "list", "--rules", str(tmp_path)])
    assert (result.exit_code, "error[BL221]" in result.stderr) == (2, True)
    (tmp_path / "a.rules").symlink_to("a.rules")
    (tmp_path / "b.rules").symlink_to("nowhere")
    for command in (
        ["rules", "check", str(tmp_path)],
        ["rules", "fmt", str(tmp_path)],
        ["rules", "list", "--rules", str(tmp_path)],
    ):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 3, result.output
        assert "error[BL105]" in result.output


def test_files_beside_a_checked_file_count(tmp_path: Path) -> None:
    (tmp_path / "engine.rules").write_text(
        'language 1\nloader tinyserve "1.0"\nread config.json quantization_config\n'
        'format f when quant_method is "tiny" {\n  default fp8 static at quant_method\n}\n'
    )
    file = tmp_path / "families" / "llama.rules"
    file.parent.mkdir()
    file.write_text("language 1\nextend family llama\nnames tinyserve {\n  fuse gate_up_proj = gate_proj up_proj\n}\n")
    result = CliRunner().invoke(main, ["rules", "check", str(file)])
    assert (result.exit_code, result.output) == (0, "1 file checked: no errors, no warnings\n")
