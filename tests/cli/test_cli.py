"""The command line: outputs, errors with a code and a way out, exit codes, and what is never imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bitlane.cli import COMMANDS, main

LIGHTNING = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
TARGET = ["--loader", "vllm@0.31.0", "--system", "gb200"]


def run(*args):
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    return result


def small(folder, **changes):
    config = {
        "architectures": ["NemotronHForCausalLM"],
        "hybrid_override_pattern": "M*E-",
        "hidden_size": 64,
        "intermediate_size": 128,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 64,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 16,
        "conv_kernel": 4,
        "chunk_size": 128,
        "vocab_size": 512,
    }
    config.update(changes)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


def test_json_contract_of_resolve():
    document = json.loads(run("resolve", LIGHTNING, *TARGET, "--json").stdout)
    assert document["schema"] == "bitlane.resolution/1"
    assert document["loader"] == "vllm"
    assert document["loader_version"] == "0.31.0"
    assert document["system"] == "gb200"
    assert document["family"] == "nemotron_h"
    row = next(m for m in document["modules"] if m["module"] == "model.layers.0.mixer.in_proj")
    assert row["checkpoint_modules"] == ["backbone.layers.0.mixer.in_proj"]
    # Mamba input projection of Lightning: 2 x 4096 + 2 x 8 x 128 + 64 outputs.
    assert row["shape"] == [10304, 2688]
    assert (row["kind"], row["layer"], row["algorithm"], row["activations"], row["lane"]) == (
        "linear",
        0,
        "fp8",
        "static",
        "fp8_static",
    )
    assert set(document) >= {"checkpoint", "modules", "unmatched", "problems"}


def test_table_and_map_fit_on_a_screen():
    text = run("resolve", LIGHTNING, *TARGET).stdout
    assert "mixer.experts" in text
    assert "w4a16_nvfp4" in text
    assert "loaders/vllm.rules:" in text
    assert "layer  0         10" in text


def test_svg_has_a_cell_a_module_and_no_script(tmp_path):
    run("resolve", LIGHTNING, *TARGET, "--svg", tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    # 173 modules stand in layers: all of 175 but the embedding and the head.
    assert text.count("<title>") == 173
    assert "<script" not in text


def test_explain_prints_the_chain_and_the_winner():
    text = run("explain", "nvidia/Qwen3.6-35B-A3B-NVFP4", "layers.0.linear_attn.in_proj_ba", *TARGET).stdout
    assert "in_proj_b + in_proj_a" in text
    assert "✗ take listing by exact" in text
    assert "✓ default bf16" in text
    assert "in_proj_qkv (FP8)" in text


def test_explain_json_lists_every_rule():
    (one,) = json.loads(run("explain", LIGHTNING, "backbone.layers.0.mixer.in_proj", *TARGET, "--json").stdout)
    assert one["algorithm"] == "fp8"
    assert [step["won"] for step in one["chain"]].count(True) == 1


def test_buckets_json():
    document = json.loads(run("buckets", LIGHTNING, *TARGET, "--json").stdout)
    by_op = {b["op"]: b for b in document["buckets"]}
    assert by_op["mamba_in_proj"]["layers"] == 23
    assert by_op["mamba_in_proj"]["shape"] == {"n": 10304, "k": 2688}
    assert by_op["experts"]["shape"]["experts"] == 128


def test_weights_per_gpu():
    document = json.loads(run("buckets", LIGHTNING, *TARGET, "--weights", "--json").stdout)
    experts = next(o for o in document["ops"] if o["op"] == "experts")
    # 23 layers x 128 experts x two matrices of 2688 x 1856: 4 bits, one fp8 scale per 16, one fp32 scale a matrix.
    weights = 23 * 128 * 2 * 2688 * 1856
    assert experts["weights"] == weights
    assert experts["bytes"] == weights * 9 / 16 + 23 * 128 * 2 * 4


def test_explicit_modes_are_told_apart_from_inferred():
    document = json.loads(
        run("resolve", LIGHTNING, *TARGET, "--gemm-mode", "fp8:static", "--moe-mode", "nvfp4", "--json").stdout
    )
    rows = {m["module"]: m for m in document["modules"]}
    assert rows["model.layers.5.mixer.qkv_proj"]["algorithm"] == "fp8"
    assert rows["model.layers.5.mixer.qkv_proj"]["rule"] == "explicit --gemm-mode"
    assert rows["model.layers.1.mixer.experts"]["algorithm"] == "nvfp4"
    assert rows["model.layers.1.mixer.gate"]["algorithm"] == "bf16"
    assert document["explicit"] == {"gemm": "fp8:static", "moe": "nvfp4"}


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code", "hint"),
    [
        (["resolve", "nvidia/NVIDIA-Nemotron", *TARGET], "BL200", 2, "did you mean"),
        (["resolve", "no/such-model", *TARGET], "BL200", 2, "help:"),
        (["resolve", LIGHTNING, "--loader", "vlm", "--system", "gb200"], "BL220", 2, "did you mean `vllm`?"),
        (["resolve", LIGHTNING, "--loader", "vllm@9.9.9", "--system", "gb200"], "BL222", 2, "0.31.0"),
        (["resolve", LIGHTNING, "--loader", "vllm@0.31.0", "--system", "gb2000"], "BL223", 2, "did you mean `gb200`?"),
        (["explain", LIGHTNING, "layers.0.mixer.in_prj", *TARGET], "BL229", 2, "in_proj"),
        (["buckets", LIGHTNING, *TARGET, "--tp", "3"], "BL225", 2, "divide by tp"),
        (["buckets", LIGHTNING, *TARGET, "--tp", "2", "--ep", "3"], "BL225", 2, "ep must divide"),
        (["resolve", LIGHTNING, *TARGET, "--rules", "/no/such/folder"], "BL221", 2, "--rules"),
        (["resolve", LIGHTNING, *TARGET, "--models", "/no/such/folder"], "BL232", 2, "--models"),
        (["price", LIGHTNING, *TARGET, "--phase", "decode", "--allow-roofline", "mamba"], "BL526", 2, "`mamba2`"),
        (["collect", "plan", LIGHTNING, *TARGET, "--routing", "odd"], "BL745", 2, "balanced"),
    ],
)
def test_usage_errors_name_the_code_and_a_way_out(arguments, code, exit_code, hint):
    result = run(*arguments)
    assert result.exit_code == exit_code
    assert f"error[{code}]" in result.stderr
    assert hint in result.stderr
    assert "Traceback" not in result.output


def test_checkpoint_errors(tmp_path):
    folder = small(tmp_path / "ok")
    assert run("resolve", folder, *TARGET).exit_code == 0
    cases = {
        "BL206": tmp_path / "empty",
        "BL203": small(tmp_path / "broken"),
        "BL205": small(tmp_path / "nameless", architectures=None),
        "BL230": small(tmp_path / "stranger", architectures=["NemotronForFlying"]),
        "BL210": small(tmp_path / "short", mamba_head_dim=None),
        "BL213": small(tmp_path / "kindless", hybrid_override_pattern=None),
    }
    cases["BL206"].mkdir()
    (cases["BL203"] / "config.json").write_text('{"architectures": [')
    for code, where in cases.items():
        result = run("resolve", where, *TARGET)
        assert result.exit_code == 4, (code, result.output)
        assert f"error[{code}]" in result.stderr
        assert "help:" in result.stderr


def test_refused_metadata_exits_4_with_the_engines_reason(lightning_original):
    result = run("resolve", lightning_original, *TARGET)
    assert result.exit_code == 4
    assert "Unknown ModelOpt quant algo" in result.stderr


def test_unquantized_checkpoint_is_bf16_throughout(tmp_path):
    document = json.loads(run("resolve", small(tmp_path / "plain"), *TARGET, "--json").stdout)
    assert {m["algorithm"] for m in document["modules"]} == {"bf16"}
    assert document["checkpoint"]["format"] == "unquantized"


def test_control_characters_never_reach_the_terminal(tmp_path):
    folder = small(
        tmp_path / "odd",
        quantization_config={"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["a\x1b[31mb", "no\nsuch"]},
    )
    result = run("resolve", folder, *TARGET, "--no-map")
    assert result.exit_code == 0
    assert "\x1b[31m" not in result.output


def test_unknown_command_suggests_the_nearest():
    result = run("resovle")
    assert result.exit_code == 2
    assert "Did you mean `resolve`?" in result.output


def test_every_listed_command_has_its_module():
    for name in main.list_commands(None):
        assert main.get_command(None, name) is not None
    assert set(main.list_commands(None)) <= set(COMMANDS)


HEAVY = "numba", "pyarrow", "torch", "vllm", "numpy", "pandas", "rich"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["resolve", LIGHTNING, *TARGET, "--json"],
        ["explain", LIGHTNING, "lm_head", *TARGET],
        ["buckets", LIGHTNING, *TARGET],
    ],
)
def test_resolving_imports_nothing_heavy(arguments):
    code = (
        "import sys\n"
        "from bitlane.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        f"print('HEAVY', sorted(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stderr


def test_help_imports_no_command():
    code = (
        "import sys; from bitlane.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "found = [m for m in sys.modules if m.startswith('bitlane.resolver') or m == 'lark']\n"
        "print('GOT', found, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "GOT []" in done.stderr


def test_with_json_an_error_is_an_object_on_standard_output():
    result = run("resolve", LIGHTNING, "--loader", "vllm@9.9.9", "--system", "gb200", "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert (told["schema"], told["code"], told["exit_code"]) == ("bitlane.error/1", "BL222", 2)
    assert told["message"]
    assert "0.31.0" in told["help"]
    assert "error[BL222]" in result.stderr
    assert run("resolve", LIGHTNING, "--loader", "vllm@9.9.9", "--system", "gb200").stdout == ""


def test_a_closed_standard_output_is_no_fault():
    command = f"{sys.executable} -m bitlane.cli models >&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_prices_of_passes_that_cannot_be_run_say_so():
    asked = ["price", "moonshotai/Kimi-K2.5", "--loader", "vllm@0.31.0", "--system", "gb200", "--phase", "decode"]
    told = json.loads(run(*asked, "--mode", "SOL", "--isl", 300_000, "--json").stdout)
    notes = {p["code"]: p["message"] for p in told["problems"]}
    # 189,471 MiB as nvidia-smi reports it; 262,144 positions in the published config.
    assert "a gb200 has 185 GiB" in notes["BL301"]
    assert "300,000 tokens are more than the model's max_position_embeddings of 262,144" in notes["BL302"]
    told = json.loads(run(*asked, "--mode", "SOL", "--isl", 1024, "--tp", 8, "--json").stdout)
    assert not {"BL301", "BL302"} & {p["code"] for p in told["problems"]}


def test_a_damaged_file_of_systems_is_named(tmp_path):
    asked = ["price", LIGHTNING, *TARGET, "--phase", "decode", "--mode", "SOL", "--perf-data", tmp_path]
    for text in ("systems: [", "systems: 3", "- a", "systems: {x: 3}", "systems: {x: {sm_version: ten}}", "\x00"):
        (tmp_path / "systems.yaml").write_text(text)
        result = run(*asked)
        assert result.exit_code == 5, (text, result.output)
        assert "error[BL502]" in result.stderr
        assert str(tmp_path / "systems.yaml") in result.stderr


def test_a_task_file_is_not_replaced_unasked(tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text("mine")
    result = run("task", "new", file, LIGHTNING, *TARGET)
    assert (result.exit_code, "error[BL279]" in result.stderr, file.read_text()) == (2, True, "mine")
    assert run("task", "new", file, LIGHTNING, *TARGET, "--force").exit_code == 0
    assert "mine" not in file.read_text()


def test_a_mode_that_nothing_takes_is_told_and_an_empty_one_refused():
    dense = ["resolve", "Qwen/Qwen3-0.6B", "--loader", "vllm", "--system", "b200", "--json"]
    told = json.loads(run(*dense, "--moe-mode", "nvfp4").stdout)
    assert [p["code"] for p in told["problems"]] == ["BL304"]
    for word in ("", ":static", "fp8:sometimes"):
        result = run(*dense, "--gemm-mode", word)
        assert (result.exit_code, "error[BL224]" in result.stderr) == (2, True)


def test_an_explicit_weight_only_word_keeps_activations_alone():
    asked = ["resolve", "openai/gpt-oss-120b", "--loader", "vllm", "--system", "b200", "--json"]
    lanes = [
        {m["lane"] for m in json.loads(run(*asked, *more).stdout)["modules"] if m["kind"] == "experts"}
        for more in ([], ["--moe-mode", "mxfp4"])
    ]
    assert lanes == [{"mxfp4_wo"}, {"mxfp4_wo"}]
