"""From a small checkpoint to a strict price, on measurements of this machine; Lightning after 444 synthetic rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from synthetic_444 import SITES, latency_ms, write_fixture

import bitlane
from bitlane.cli import main
from bitlane.collector import grids, sidecar
from bitlane.collector.check import check
from bitlane.collector.engine import cpu_system, load
from bitlane.collector.merge import merge
from bitlane.errors import BitlaneError
from bitlane.paths import PERF_DATA
from bitlane.perfcore import Store, Workload, compile_plan, price

LIGHTNING = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
SMALL = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 256,
}
# Figures that no processor reaches, so that no roofline is in the way of a measured row.
CPU_FACTS = """schema: 1
systems:
  {system}:
    memory_bandwidth_bytes_per_s: 1.0e+15
    memory_bandwidth_usable_fraction_guess: 1.0
    memory_op_constant_s_guess: 0.0
    peak_flops_bfloat16_dense: 1.0e+18
    gpus_per_node: 1
"""


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL))
    return folder


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("engine", ["numpy_cpu", "torch_cpu"])
def test_plan_collect_merge_price(tmp_path, checkpoint, engine):
    if engine == "torch_cpu":
        pytest.importorskip("torch", reason="torch is not installed: the end-to-end run uses numpy only")
    target = [checkpoint, "--loader", "vllm@0.31.0", "--system", "gb200"]
    planned = json.loads(run("collect", "plan", *target, "--engine", engine, "--json", "-o", tmp_path / "plan.json"))
    tokens = len(grids.packaged().for_cpu().gemm.tokens)
    # qkv, o, router and lm_head are four widths; one shape of experts at one routing.
    assert planned["counts"] == {"gemm/bf16": 4 * tokens, "moe/bf16": tokens}
    output = run("collect", "run", tmp_path / "plan.json", "--engine", engine, "--out", tmp_path / "run")
    assert f"{5 * tokens} of {5 * tokens} cases have a row" in output
    root = tmp_path / "root"
    assert "rows added" in run("collect", "merge", tmp_path / "run", "--into", root)
    tables = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    assert "nothing new" in run("collect", "merge", tmp_path / "run", "--into", root)
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == tables
    assert "sound" in run("perf-data", "check", root) if "perf-data" in main.list_commands(None) else check(root).sound
    (root / "systems.yaml").write_text(CPU_FACTS.format(system=cpu_system()))
    strictly_exact(checkpoint, root, engine)
    more = run("collect", "plan", *target, "--engine", engine, "--perf-data", root, "--json")
    assert json.loads(more)["cases"] == [], "nothing is missing any more"


def strictly_exact(checkpoint, root, engine):
    """Every matrix and every expert layer costs what its row says, at every token count that was measured."""
    answer = bitlane.resolve(checkpoint, "vllm@0.31.0", "gb200")
    buckets = [found for found in bitlane.buckets(answer) if found.kind in ("gemm", "moe")]
    rows = {name: pq.read_table(root / f"{name}.parquet").to_pylist() for name in ("gemm", "moe")}
    gemm = {(r["n_out_features"], r["k_in_features"], r["m_tokens"]): r["latency_ms"] for r in rows["gemm"]}
    moe = {r["num_tokens"]: r["latency_ms"] for r in rows["moe"]}
    version = load(engine, {}).origin().version
    for tokens in grids.packaged().for_cpu().gemm.tokens:
        found = price(
            buckets,
            Workload("decode", tokens, 16, 0),
            system=cpu_system(),
            backend=engine,
            version=version,
            mode="SILICON",
            store=Store([root]),
        )
        assert {op.source for op in found.ops} == {"measured"}
        for op, bucket in zip(found.ops, buckets, strict=True):
            want = gemm[bucket.shape["n"], bucket.shape["k"], tokens] if bucket.kind == "gemm" else moe[tokens]
            assert op.ms_per_layer == want
            assert op.ms == want * bucket.layers


needs_tables = pytest.mark.skipif(not (PERF_DATA / "gemm.parquet").exists(), reason="no packaged tables here")


@needs_tables
def test_the_fixture_is_444_rows_and_says_that_it_is_synthetic(tmp_path):
    write_fixture(tmp_path / "fixture")
    assert pq.read_table(tmp_path / "fixture/gemm.parquet").num_rows == 444
    meta = sidecar.read(tmp_path / "fixture", "gemm")
    assert meta is not None
    assert [event.provenance for event in meta.collections] == ["synthetic"]
    with pytest.raises(BitlaneError) as caught:
        merge([tmp_path / "fixture"], tmp_path / "root")
    assert caught.value.code == "BL719"


@needs_tables
def test_a_strict_price_of_lightnings_shared_experts_after_the_444_rows(tmp_path):
    """16 of 16 queries: both projections, two parallel sizes, four batches; each is its row, bit for bit."""
    from bitlane.resolver.buckets import Parallel, buckets

    write_fixture(tmp_path / "fixture")
    merge([tmp_path / "fixture"], tmp_path / "root", allow_synthetic=True)
    answer = bitlane.resolve(LIGHTNING, "vllm@0.31.0", "gb200")
    origin = {"system": "gb200", "backend": "vllm", "version": "0.31.0", "mode": "SILICON"}
    exact = 0
    for tp in (4, 8):
        shared = [
            b for b in buckets(answer, Parallel.of(tp=tp), "decode") if b.kind == "gemm" and b.op.startswith("shared_")
        ]
        assert [b.lane for b in shared] == ["w4a16_nvfp4"] * 2
        with pytest.raises(BitlaneError, match="GEMM perf data missing for quant 'w4a16_nvfp4'"):
            compile_plan(shared, "decode", **origin, store=Store([PERF_DATA]))
        for batch in (1, 16, 257, 4096):
            found = price(
                shared, Workload("decode", batch, 1024, 0), **origin, store=Store([PERF_DATA, tmp_path / "root"])
            )
            for op, bucket in zip(found.ops, shared, strict=True):
                n, k = int(bucket.shape["n"]), int(bucket.shape["k"])
                assert (n, k) in SITES
                assert (op.source, op.ms_per_layer) == ("measured", latency_ms(n, k, batch))
                exact += 1
    assert exact == 16


@needs_tables
def test_all_444_rows_come_back_exactly(tmp_path):
    from bitlane.perfcore import workload
    from bitlane.resolver.buckets import Parallel, buckets

    write_fixture(tmp_path / "fixture")
    merge([tmp_path / "fixture"], tmp_path / "root", allow_synthetic=True)
    answer, store = bitlane.resolve(LIGHTNING, "vllm@0.31.0", "gb200"), Store([PERF_DATA, tmp_path / "root"])
    tokens = np.array(grids.packaged().gemm.tokens)
    table = workload.variables("decode", tokens, 1024, 0)
    exact = 0
    for tp in (1, 4, 8):
        split = Parallel.of(tp=tp)
        shared = [b for b in buckets(answer, split, "decode") if b.kind == "gemm" and b.op.startswith("shared_")]
        compiled = compile_plan(shared, "decode", system="gb200", backend="vllm", version="0.31.0", store=store)
        found = compiled.evaluate(table)
        for number, bucket in enumerate(shared):
            n, k = int(bucket.shape["n"]), int(bucket.shape["k"])
            exact += sum(found.ms[number] == [latency_ms(n, k, int(m)) for m in tokens])
            assert set(found.source[number]) == {0}, "measured"
    assert exact == 444


@needs_tables
def test_the_plan_of_lightnings_shared_experts_is_the_fixture(tmp_path):
    command = ["collect", "plan", LIGHTNING, "--loader", "vllm@0.31.0", "--system", "gb200", "--tp", "1,4,8", "--json"]
    cases = json.loads(run(*command))["cases"]
    shared = [c for c in cases if "shared_experts" in c["module"]]
    assert len(shared) == 444
    assert {(c["n_out_features"], c["k_in_features"]) for c in shared} == set(SITES)
    write_fixture(tmp_path / "fixture")
    merge([tmp_path / "fixture"], tmp_path / "root", allow_synthetic=True)
    after = json.loads(run(*command, "--perf-data", tmp_path / "root"))["cases"]
    assert not [c for c in after if "shared_experts" in c["module"]]


def test_what_the_command_refuses(tmp_path, checkpoint):
    assert "BL745" in run("collect", "plan", code=2)
    assert "BL745" in run("collect", "plan", checkpoint, code=2)
    assert "BL745" in run("collect", "plan", "--base-grid", "--loader", "vllm@0.31.0", "--system", "gb200", code=2)
    target = [checkpoint, "--loader", "vllm@0.31.0", "--system", "gb200"]
    assert "BL745" in run("collect", "plan", *target, "--tp", "x", code=2)
    assert "BL722" in run("collect", "plan", *target, "--lane", "nvfp4", code=2)
    assert "BL723" in run("collect", "plan", *target, "--engine", "numpy_cpu", "--case-filter", "zz", code=2)
    assert "BL745" in run("collect", "run", *target, "--engine", "numpy_cpu", code=2)
    assert "BL726" in run("collect", "plan", *target, "--engine", "cuda", code=2)
    assert "BL717" in run("collect", "status", tmp_path, code=2)
    assert "BL717" in run("collect", "merge", checkpoint, "--into", tmp_path / "root", code=2)
    assert "BL745" in run(
        "collect", "run", *target, "--engine", "numpy_cpu", "--out", tmp_path / "r", "--engine-option", "x", code=2
    )


def test_run_is_the_default_and_plan_only_measures_nothing(tmp_path, checkpoint):
    target = ["--engine", "numpy_cpu", checkpoint, "--loader", "vllm@0.31.0", "--system", "gb200"]
    output = run("collect", *target, "--plan-only", "--limit", "3")
    assert output.startswith("gemm/bf16/n=")
    assert not (tmp_path / "run").exists()
    run("collect", *target, "--limit", "3", "--out", tmp_path / "run")
    assert "3 of 3 cases have a row" in run("collect", "status", tmp_path / "run")
    assert "BL728" in run("collect", *target, "--limit", "3", "--out", tmp_path / "run", code=2)
    run("collect", *target, "--limit", "3", "--out", tmp_path / "run", "--resume")
    assert "BL714" in run("collect", *target, "--limit", "4", "--out", tmp_path / "run", "--resume", code=2)


def test_the_base_grid(tmp_path):
    ids = run("collect", "plan", "--base-grid", "--lane", "fp32", "--engine", "numpy_cpu", "--ids").split()
    small = grids.packaged().for_cpu().gemm
    assert len(ids) == len(small.tokens) * len(small.widths) ** 2
    dropped = run("collect", "plan", "--base-grid", "--lane", "nvfp4", "--loader", "vllm@0.31.0", "--system", "h200")
    assert "needs SM100, this is SM90" in dropped


def test_the_commands_of_the_documentation(tmp_path, monkeypatch):
    """The block under "Try it here" in docs/collector.md, line by line."""
    text = (Path(__file__).parents[2] / "docs/collector.md").read_text(encoding="utf-8")
    block = text.partition("## Try it here")[2].partition("```bash\n")[2].partition("```")[0]
    lines = block.splitlines()
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = line.split()
        assert words[0] == "bitlane"
        if words[1] in main.list_commands(None):
            output = run(*words[1:])
    assert "sound" in output or "perf-data" not in main.list_commands(None)
