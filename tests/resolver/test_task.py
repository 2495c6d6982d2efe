"""Task files: what is inferred stays null, and a round trip changes nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bitlane.cli import main
from bitlane.errors import UsageError
from bitlane.resolver import task as tasks

GEMMA = "nvidia/Gemma-4-26B-A4B-NVFP4"
WORD = st.one_of(st.none(), st.sampled_from(["fp8", "fp8:static", "nvfp4", "bf16"]))
SIZE = st.integers(1, 64)
TASK = st.builds(
    tasks.Task,
    checkpoint=st.text("abc/-.Ü \"':#\n", min_size=1, max_size=12),
    loader=st.sampled_from(["vllm@0.31.0", "sglang", "vllm"]),
    system=st.sampled_from(["gb200", "h200"]),
    parallel=st.builds(tasks.Split, tp=SIZE, ep=SIZE, dp=SIZE, pp=SIZE, moe_tp=st.one_of(st.none(), SIZE)),
    workload=st.lists(
        st.builds(tasks.Pass, phase=st.sampled_from(["prefill", "decode"]), batch=SIZE, isl=SIZE, prefix=st.just(0)),
        max_size=3,
    ).map(tuple),
    modes=st.builds(tasks.Modes, gemm=WORD, moe=WORD, lm_head=WORD),
    price=st.builds(
        tasks.Pricing,
        mode=st.sampled_from(["SILICON", "HYBRID", "SOL"]),
        routing=st.one_of(st.none(), st.just("balanced")),
    ),
)


@given(TASK)
def test_round_trip_changes_nothing(task):
    text = tasks.dumps(task)
    assert tasks.loads(text) == task
    assert tasks.dumps(tasks.loads(text)) == text


def test_inferred_modes_are_written_as_null_and_explicit_ones_as_given(tmp_path):
    file = tmp_path / "t.yaml"
    result = CliRunner().invoke(
        main, ["task", "new", str(file), GEMMA, "--loader", "vllm@0.31.0", "--system", "gb200", "--moe-mode", "fp8"]
    )
    assert result.exit_code == 0, result.output
    text = file.read_text()
    assert "gemm: null" in text
    assert "moe: fp8" in text
    shown = CliRunner().invoke(main, ["task", "show", str(file)])
    assert "moe fp8 (explicit)" in shown.output


def test_reloading_asks_the_checkpoint_again(tmp_path):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
    }
    config |= {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 256,
        "tie_word_embeddings": False,
    }
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    file = tmp_path / "t.yaml"
    CliRunner().invoke(main, ["task", "new", str(file), str(folder), "--loader", "vllm@0.31.0", "--system", "gb200"])
    before = CliRunner().invoke(main, ["task", "show", str(file)]).output
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    after = CliRunner().invoke(main, ["task", "show", str(file)]).output
    assert "fp8_static" not in before
    assert "fp8_static" in after


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("checkpoint: a\nloader: b\nsystem: c\ntp: 2\n", "tp"),
        ("checkpoint: a\nloader: b\n", "system"),
        ("checkpoint: a\nloader: b\nsystem: c\nparallel: {tp: two}\n", "$.parallel.tp"),
        ("checkpoint: [a]\nloader: b\nsystem: c\n", "$.checkpoint"),
        ("a: b: c", "task"),
    ],
)
def test_mistakes_name_the_field(text, what):
    with pytest.raises(UsageError) as caught:
        tasks.loads(text)
    assert what in str(caught.value)
    assert caught.value.exit_code == 2


def test_price_of_a_task_is_the_price_of_its_question(tmp_path):
    file = tmp_path / "t.yaml"
    target = ["--loader", "vllm@0.31.0", "--system", "gb200"]
    CliRunner().invoke(
        main, ["task", "new", str(file), GEMMA, *target, "--phase", "decode", "--batch", "8", "--isl", "512"]
    )
    (saved,) = json.loads(CliRunner().invoke(main, ["task", "price", str(file), "--json"]).output)
    asked = CliRunner().invoke(
        main,
        ["price", GEMMA, *target, "--phase", "decode", "--batch", "8", "--isl", "512", "--mode", "HYBRID", "--json"],
    )
    assert saved == json.loads(asked.output)
