"""What-if: only what was named changes, totals agree with pricing the changed checkpoint, mistakes are told."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bitlane.cli import main
from bitlane.resolver.api import resolve
from bitlane.resolver.lanes import Lanes
from bitlane.resolver.overrides import Override, apply
from bitlane.rules.library import find

LIGHTNING = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"

GEMMA = "nvidia/Gemma-4-26B-A4B-NVFP4"
TARGET = ["--loader", "vllm@0.31.0", "--system", "gb200"]


def run(*args):
    return CliRunner().invoke(main, ["whatif", GEMMA, *TARGET, *args])


def test_only_the_named_modules_change():
    answer = resolve(GEMMA, "vllm@0.31.0", "gb200")
    lanes = Lanes(find(), "vllm", "0.31.0", 100, "gb200")
    changed = apply(answer, [Override.parse("mlp.*=fp8:static")], lanes)
    for old, new in zip(answer, changed, strict=True):
        named = ".mlp." in old.module.path and "vision" not in old.module.path
        assert new.answer.algorithm == ("fp8" if named else old.answer.algorithm), old.module.path


def test_both_phases_are_priced_and_the_total_is_that_of_the_ops():
    document = json.loads(run("--set", "experts=bf16", "--json").output)
    assert [p["phase"] for p in document["passes"]] == ["prefill", "decode"]
    for found in document["passes"]:
        assert found["delta_ms"] == pytest.approx(found["after_ms"] - found["before_ms"])
        moved = [o["op"] for o in found["ops"] if o["before"] != o["after"]]
        assert moved == ["experts"]


def test_rank_lists_every_recipe_but_the_present_one():
    document = json.loads(run("--rank", "--json").output)
    experts = [o for o in document["rank"][1]["options"] if o["op"] == "experts"]
    assert {o["other"] for o in experts} == {"bf16", "fp8_static", "w4a16_nvfp4"}
    deltas = [o["delta_ms"] for o in document["rank"][1]["options"] if not o["refused"]]
    assert deltas == sorted(deltas)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "BL283"),
        (["--set", "mlp.*"], "BL283"),
        (["--set", "mlp.*=fp8:sometimes"], "BL283"),
        (["--set", "no_such_module=fp8"], "BL284"),
        (["--set", "router.proj=fp8"], "BL284"),
        (["--set", "experts=martian"], "BL262"),
    ],
)
def test_mistakes_have_a_code_and_a_way_out(arguments, code):
    result = run(*arguments)
    assert result.exit_code in (2, 4)
    assert f"error[{code}]" in result.output
    assert "help:" in result.output


def test_bands_routing_and_more_tables(tmp_path):
    asked = ["whatif", LIGHTNING, "--loader", "vllm@0.31.0", "--system", "gb200", "--set", "mixer.experts=nvfp4"]
    told = CliRunner().invoke(main, [*asked, "--json"])
    for one in json.loads(told.stdout)["passes"]:
        for which in ("before", "after"):
            low, high = one[f"{which}_band_ms"]
            assert low < one[f"{which}_ms"] < high
    other = CliRunner().invoke(main, [*asked, "--json", "--routing", "power_law_1.2"])
    assert json.loads(other.stdout)["passes"][0]["after_ms"] != json.loads(told.stdout)["passes"][0]["after_ms"]
    for more, code in ((["--routing", "odd"], "BL526"), (["--perf-data", str(tmp_path / "none")], "BL511")):
        result = CliRunner().invoke(main, [*asked, *more])
        assert (result.exit_code, f"error[{code}]" in result.stderr) == (2, True)
