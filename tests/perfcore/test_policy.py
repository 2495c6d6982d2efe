"""The policy file knows every lane that the rules can build, and donors are used only as it declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pricing_cases import gemm, lightning, write_gemm

from bitlane import paths
from bitlane.errors import UsageError
from bitlane.perfcore import Store, Workload, compile_plan, price
from bitlane.perfcore.policy import load, version_key
from bitlane.resolver.bucket import Bucket

GB200 = {"system": "gb200", "backend": "vllm", "version": "0.31.0"}


def test_every_lane_of_the_rules_has_a_price_and_a_cost() -> None:
    lanes = set(re.findall(r"^lane ([a-z0-9_]+)", (paths.RULES / "lanes.rules").read_text(), re.M))
    assert len(lanes) > 15
    policy = load()
    for lane in lanes:
        assert policy.lane("gemm", lane)
        assert policy.lane("moe", lane)
        assert policy.cost(lane).weight > 0
    with pytest.raises(UsageError):
        policy.lane("gemm", "fp5")


def test_versions_sort_as_releases_do() -> None:
    names = ["0.9.0", "0.31.0", "0.24.0", "1.3.0rc20", "1.3.0", "1.3.0rc3", "0.31.0.1"]
    assert sorted(names, key=version_key) == ["0.9.0", "0.24.0", "0.31.0", "0.31.0.1", "1.3.0rc3", "1.3.0rc20", "1.3.0"]
    assert load().versions("0.27.0", ["0.24.0", "0.25.0", "0.31.0", "0.30.0"]) == [
        "0.25.0",
        "0.24.0",
        "0.30.0",
        "0.31.0",
    ]


def test_another_backend_serves_in_hybrid_only(store: Store) -> None:
    conv = lightning()[2]
    (op,) = price([conv], Workload("decode", 8, 100), **GB200, mode="HYBRID", store=store).ops
    assert (op.source, op.origin["backend"]) == ("transferred", "trtllm")
    wide = Bucket(conv.op, conv.kind, conv.lane, 1, {**conv.shape, "tp": 2})
    (half,) = price([wide], Workload("decode", 8, 100), **GB200, mode="HYBRID", store=store).ops
    assert half.source == "transferred"


def test_another_system_serves_in_hybrid_only(store: Store) -> None:
    bucket = gemm("x", "nvfp4", 1, 4096, 4096)
    (own,) = price([bucket], Workload("decode", 64, 1), **GB200, store=store).ops
    other = GB200 | {"system": "gb300"}
    (lent,) = price([bucket], Workload("decode", 64, 1), **other, mode="HYBRID", store=store).ops
    assert (lent.source, lent.origin["system"]) == ("transferred", "gb200")
    assert lent.ms == pytest.approx(own.ms, rel=0.2)  # the same bandwidth, 1.5 times the FP4 peak
    with pytest.raises(Exception, match="GEMM perf data missing for quant 'nvfp4'"):
        price([bucket], Workload("decode", 64, 1), **other, store=store)


def test_a_nearest_shape_is_read_at_equal_tokens_per_expert(store: Store) -> None:
    experts = next(bucket for bucket in lightning() if bucket.kind == "moe")
    plan = compile_plan([experts], "decode", **GB200, mode="HYBRID", store=store)
    (found,) = plan.ops[0].parts
    donor = found.terms[0]
    key = donor.pack.key(donor.slab)
    assert key["quant_mode"] == "int4_wo"
    load_here, load_there = 6 / 128, int(key["topk"]) / int(key["num_experts"])
    assert donor.x.scale == pytest.approx(load_here / load_there, rel=1e-15)


def test_advice_names_key_neighbours_and_command(store: Store) -> None:
    plan = compile_plan(lightning(), "decode", **GB200, mode="HYBRID", store=store, checkpoint="org/model")
    text = "\n".join(plan.advice())
    assert "shared_up (23 layers): gemm w4a16_nvfp4 n=3712 k=2688" in text
    assert "nearest: quant_mode=" in text
    assert plan.collect == "bitlane collect plan org/model --loader vllm@0.31.0 --system gb200"
    found = price(lightning(), Workload("decode", 1, 1), **GB200, mode="HYBRID", store=store, checkpoint="org/model")
    lacking = {op.op for op in found.ops if op.lacks}
    assert lacking == {"experts", "shared_up", "shared_down", "lm_head", "mamba_conv", "attention"}
    assert found.to_dict()["collect"] == plan.collect


def test_collected_rows_end_the_advice(tmp_path: Path) -> None:
    rows = [("w4a16_nvfp4", m, 3712, 2688, 0.01) for m in (1, 2, 4)]
    found = price([gemm("x", "w4a16_nvfp4", 1, 3712, 2688)], Workload("decode", 2, 1), **GB200, mode="HYBRID",
                  store=Store([write_gemm(tmp_path / "t", rows).folders[0]]))  # fmt: skip
    assert found.ops[0].source == "measured"
    assert not found.ops[0].lacks
    assert not found.to_dict()["collect"]
