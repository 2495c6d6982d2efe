"""Splits and folding on the command line: stages, attention groups, refusals with reasons, mixed lines with parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from bitlane.cli import main

NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
QWEN = "Qwen/Qwen3-30B-A3B"
TARGET = ["--loader", "vllm@0.31.0", "--system", "gb200"]


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(main, [*arguments, *TARGET])


def _json(*arguments: str) -> Any:
    result = _run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _price(checkpoint: str, *arguments: str) -> Any:
    return _json("price", checkpoint, "--phase", "decode", "--mode", "HYBRID", *arguments)


def _ops(document: Any) -> dict[str, Any]:
    return {op["op"]: op for op in document["ops"]}


# --- pipeline stages ----------------------------------------------------------


def test_stages_add_up_and_the_slowest_sets_the_interval():
    document = _price(NANO, "--batch", "16", "--tp", "2", "--pp", "3")
    staged = document["stages"]
    # 52 layers: vLLM gives what is left over to the stages before the last.
    assert [(s["first_layer"], s["layers"]) for s in staged] == [(0, 17), (17, 18), (35, 17)]
    assert sum(s["ms"] for s in staged) == pytest.approx(document["total_ms"])
    slowest = max(staged, key=lambda s: s["ms"])
    assert (document["slowest_stage"], document["interval_ms"]) == (slowest["stage"], slowest["ms"])
    ops = _ops(document)
    # Hidden state and residual of 2688 each, halved over two ranks, and gathered again; two hops.
    assert (ops["stage_send"]["layers"], ops["stage_send"]["kind"]) == (2, "p2p")
    assert ops["stage_send"]["shape"] == {"rows": 16, "elements": 2688}
    assert ops["stage_gather"]["shape"]["elements"] == 16 * 2 * 2688
    assert ops["stage_gather"]["shape"]["gpus"] == 2


def test_one_stage_sends_nothing_and_names_no_stages():
    document = _price(NANO, "--batch", "16")
    assert "stages" not in document
    assert "stage_send" not in _ops(document)
    assert document["pp"] == 1


def test_stages_for_people():
    result = _run("price", NANO, "--phase", "decode", "--mode", "HYBRID", "--pp", "2")
    assert "slowest" in result.output
    assert "0..25" in result.output
    assert "with all of them busy" in result.output


def test_more_stages_than_layers_are_refused():
    result = _run("buckets", NANO, "--weights", "--pp", "53")
    assert result.exit_code == 2
    assert "53 stages for 52 layers" in result.output


def test_weights_name_the_heaviest_stage():
    document = _json("buckets", NANO, "--weights", "--pp", "4")
    assert document["bytes"] == max(document["stage_bytes"]) == document["stage_bytes"][document["heaviest_stage"]]
    assert sum(document["stage_bytes"]) == _json("buckets", NANO, "--weights")["bytes"]


# --- attention groups ---------------------------------------------------------


def test_experts_see_the_tokens_of_every_attention_group():
    """Four groups of 8 sequences bring the experts of ep 4 what one group of 32 does."""
    grouped = _ops(_price(QWEN, "--batch", "8", "--dp", "4", "--ep", "4"))
    single = _ops(_price(QWEN, "--batch", "32", "--tp", "4", "--ep", "4"))
    assert grouped["experts"]["shape"]["tokens"] == single["experts"]["shape"]["tokens"] == 32
    assert grouped["experts"]["ms"] == single["experts"]["ms"]
    assert grouped["router"]["shape"]["m"] == 8
    assert {"moe_dispatch", "moe_combine"} <= set(grouped)
    assert "allreduce" not in grouped


def test_without_expert_parallelism_tokens_are_gathered_and_sums_scattered():
    ops = _ops(_price(QWEN, "--batch", "8", "--dp", "4"))
    assert ops["experts"]["shape"]["tp"] == 4
    for name, collective in (("moe_gather", "all_gather"), ("moe_scatter", "reduce_scatter")):
        assert ops[name]["kind"] == "nccl"
        assert ops[name]["layers"] == 48
        assert ops[name]["shape"]["collective"] == collective
        # Tokens of all four groups, 2048 wide.
        assert ops[name]["shape"]["elements"] == 8 * 4 * 2048
    assert "moe_dispatch" not in ops


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        # Each was refused by the real vLLM 0.32 on the meta device (tests/data/splits).
        (["Qwen/Qwen3-32B-FP8", "--tp", "3"], "its attention heads do not divide by tp"),
        (["Qwen/Qwen3-32B-FP8", "--tp", "16"], "whole blocks of the weight scales"),
        (["Qwen/Qwen3-32B-FP8", "--tp", "4", "--ep", "4"], "needs a model with routed experts"),
        (["openai/gpt-oss-120b", "--tp", "16"], "larger than the number of key heads"),
        (["nvidia/Nemotron-H-56B-Base-8K", "--tp", "16"], "Mamba groups do not divide by tp"),
        # vLLM knows experts on all ranks or on none.
        ([QWEN, "--tp", "4", "--ep", "2"], "over all ranks or over none"),
    ],
)
def test_a_split_that_the_engine_refuses_is_an_error_with_its_reason(arguments, reason):
    result = _run("buckets", *arguments)
    assert result.exit_code == 2
    assert "error[BL225]" in result.output
    assert reason in result.output
    assert ".rules:" in result.output


def test_another_engine_may_take_what_one_refuses():
    arguments = ["buckets", QWEN, "--system", "gb200", "--tp", "4", "--ep", "2", "--loader"]
    assert CliRunner().invoke(main, [*arguments, "vllm"]).exit_code == 2
    assert CliRunner().invoke(main, [*arguments, "sglang"]).exit_code == 0


# --- folding ------------------------------------------------------------------


def test_same_name_buckets_fold_into_a_mixed_line():
    plain = _json("buckets", NANO)["buckets"]
    folded = _json("buckets", NANO, "--fold")["buckets"]
    parts = [b for b in plain if b["op"] == "mamba_in_proj"]
    assert {b["lane"] for b in parts} == {"nvfp4", "bf16"}
    (line,) = [b for b in folded if b["op"] == "mamba_in_proj"]
    assert (line["lane"], line["algorithm"], line["layers"]) == ("mixed", "mixed", sum(b["layers"] for b in parts))
    assert line["shape"] == parts[0]["shape"]
    assert "parts" not in line
    (line,) = [b for b in _json("buckets", NANO, "--parts")["buckets"] if b["op"] == "mamba_in_proj"]
    assert line["parts"] == parts


def test_folded_prices_keep_the_total_and_say_mixed():
    asked = ["--batch", "32", "--allow-roofline", "mamba2"]
    plain, folded = _price(NANO, *asked), _price(NANO, *asked, "--parts")
    assert folded["total_ms"] == plain["total_ms"]
    assert len({op["op"] for op in folded["ops"]}) == len(folded["ops"]) < len(plain["ops"])
    line = _ops(folded)["mamba_in_proj"]
    parts = [op for op in plain["ops"] if op["op"] == "mamba_in_proj"]
    assert line["lane"] == "mixed"
    assert line["ms"] == pytest.approx(sum(p["ms"] for p in parts))
    assert line["layers"] == 23
    assert line["ms_per_layer"] == pytest.approx(line["ms"] / 23)
    assert line["parts"] == parts
    assert _ops(folded)["o_proj"]["lane"] == "bf16"


def test_a_source_is_mixed_where_parts_have_different_ones():
    """At 8 tokens a width of the grid is measured, another interpolated: fold says neither."""
    from bitlane.perfcore.fold import fold
    from bitlane.perfcore.pricing import OpPrice

    def one(lane: str, source: str) -> OpPrice:
        origin = {"system": "gb200", "version": "0.31.0" if source == "measured" else "0.24.0"}
        return OpPrice("context_x", "x", "gemm", lane, 2, {"m": 8}, 1.0, 2.0, source, origin, (1.5, 2.5), 2.0)

    (line,) = fold([one("fp8_static", "measured"), one("bf16", "roofline")])
    assert (line.source, line.lane, line.layers, line.ms, line.band) == ("mixed", "mixed", 4, 4.0, (3.0, 5.0))
    assert line.origin == {"system": "gb200", "version": "mixed"}
    (line,) = fold([one("fp8_static", "measured"), one("bf16", "measured")])
    assert line.source == "measured"


def test_folding_for_people():
    result = _run("buckets", NANO, "--parts")
    lines = [line.split() for line in result.output.splitlines() if "mamba_in_proj" in line]
    assert [line[2] for line in lines] == ["mixed", "nvfp4", "bf16"]
    result = _run("price", NANO, "--phase", "decode", "--mode", "HYBRID", "--fold")
    assert [line.split()[2] for line in result.output.splitlines() if "mamba_in_proj" in line] == ["mixed"]


def test_weights_fold_too():
    document = _json("buckets", NANO, "--weights", "--parts")
    (line,) = [op for op in document["ops"] if op["op"] == "mamba_in_proj"]
    assert line["lane"] == "mixed"
    assert line["bytes"] == sum(p["bytes"] for p in line["parts"])
