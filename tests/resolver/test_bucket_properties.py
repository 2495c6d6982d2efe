"""Properties of buckets, weights and stages on generated checkpoints of every family.

A checkpoint is a family's toy config (from the tests in its rule file, or a published one shrunk) with a random
precision for every module that can have one, listed as ModelOpt lists mixed precision.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bitlane
from bitlane.errors import CheckpointError, UsageError
from bitlane.grammar import tree as t
from bitlane.perfcore.fold import fold as fold_prices
from bitlane.perfcore.pricing import price as price_buckets
from bitlane.perfcore.workload import Workload
from bitlane.resolver.bucket import Bucket
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.fold import fold
from bitlane.resolver.parallel import Parallel
from bitlane.resolver.splits import stages
from bitlane.resolver.walk import depths, operations
from bitlane.resolver.weights import weight_bytes
from bitlane.rules import library

_SMALL = Path(__file__).resolve().parents[1] / "data" / "small_configs.json"
_ALGORITHMS = ("FP8", "NVFP4", "W4A16_NVFP4", "")
_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 9 / 16, "w4a16_nvfp4": 9 / 16}


def _bare(config: dict[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(config)
    for place in (out, out.get("text_config")):
        if isinstance(place, dict):
            place.pop("quantization_config", None)
    return out


def _configs() -> dict[str, dict[str, Any]]:
    """Toy configs by name: one of every family that vLLM loads, and the shrunk published ones."""
    out: dict[str, dict[str, Any]] = {}
    for file in library.find().families():
        told = [i for i in file.tree().items if isinstance(i, t.Names) and i.loader == "vllm"]
        loads = told and not any(isinstance(r, t.Lacks) and r.until is None for names in told for r in names.rules)
        tests = [i for i in file.tree().items if isinstance(i, t.Test)]
        given_ = [g for test in tests for g in test.items if isinstance(g, t.Given) and g.file == "config.json"]
        if loads and given_:
            out[file.name] = _bare(given_[0].value())
    return out | {f"small {n}": _bare(c) for n, c in json.loads(_SMALL.read_text()).items()}


_CONFIGS = _configs()


def _resolve(config: dict[str, Any], modes: dict[str, str] | None = None) -> bitlane.Resolution:
    return bitlane.resolve(from_dicts({"config.json": config}), "vllm@0.32.0", "b200", modes=modes)


@st.composite
def _checkpoints(draw: st.DrawFn, name: str) -> bitlane.Resolution:
    """Resolve a toy config with a drawn algorithm for every module; shards of one module have one algorithm."""
    config = copy.deepcopy(_CONFIGS[name])
    plain = _resolve(config)
    words = draw(st.lists(st.sampled_from(_ALGORITHMS), min_size=len(plain.rows), max_size=len(plain.rows)))
    listed = {}
    for row, word in zip(plain.rows, words, strict=True):
        if word and row.module.configured and row.module.kind in ("linear", "experts"):
            entry = {"quant_algo": word} | ({"group_size": 16} if "NVFP4" in word else {})
            listed.update(dict.fromkeys(row.module.checkpoint, entry))
    assume(listed)
    config["quantization_config"] = {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": [], "quantized_layers": listed,
    }  # fmt: skip
    try:
        return _resolve(config)
    except CheckpointError:
        # A family whose class vLLM does not let ModelOpt quantize, or names that only some spellings meet.
        return plain


def _single(answer: bitlane.Resolution, path: str) -> list[Bucket]:
    """The buckets of one module alone."""
    return [b for b in bitlane.buckets(replace(answer, rows=[answer[path]])) if b.modules]


def _cost(answer: bitlane.Resolution, found: list[Bucket]) -> float:
    work = Workload("decode", 4, 256)
    return price_buckets(
        found, work, system=answer.system.name, backend=answer.loader, version=answer.version, mode="SOL"
    ).total_ms


_names = pytest.mark.parametrize("name", sorted(_CONFIGS))
_few = settings(max_examples=4)


@_names
@_few
@given(data=st.data())
def test_same_name_buckets_add_up_to_the_layers(name: str, data: st.DataObject) -> None:
    answer = data.draw(_checkpoints(name))
    found = bitlane.buckets(answer)
    rows = [r for r in answer.rows if r.module.priced]
    layers = Counter(r.module.op for r in rows)
    values = {**Parallel().values, "phase": "prefill"}
    layers.update(op.name for op in operations(answer.family, answer.checkpoint.config, values)[0])
    mine: Counter[str] = Counter()
    for bucket in found:
        mine[bucket.op] += bucket.layers
    assert mine == layers
    assert {m for b in found for m in b.modules} == {r.module.path for r in rows}
    for bucket in found:
        assert {answer[m].lane.lane for m in bucket.modules} <= {bucket.lane}
    # What a pass costs is what its modules cost one by one.
    whole = _cost(answer, [b for b in found if b.modules])
    singles = [b for r in rows for b in _single(answer, r.module.path)]
    assert sum(b.layers for b in singles) == len(rows)
    assert _cost(answer, singles) == pytest.approx(whole, rel=1e-12)


@_names
@_few
@given(data=st.data())
def test_folding_loses_nothing(name: str, data: st.DataObject) -> None:
    answer = data.draw(_checkpoints(name))
    found = bitlane.buckets(answer)
    folded = fold(found)
    assert [f.op for f in folded] == list(dict.fromkeys(b.op for b in found))
    assert [b for f in folded for b in f.parts] == sorted(found, key=lambda b: [f.op for f in folded].index(b.op))
    for line in folded:
        lanes = {b.lane for b in line.parts}
        assert line.lane == (lanes.pop() if len(lanes) == 1 else "mixed")
        assert line.layers == sum(b.layers for b in line.parts)
    work = Workload("prefill", 1, 64)
    priced = price_buckets(
        found, work, system=answer.system.name, backend=answer.loader, version=answer.version, mode="SOL"
    )
    lines = fold_prices(priced.ops)
    assert sum(f.counted_ms for f in lines) == pytest.approx(priced.total_ms, rel=1e-12)
    assert sum(f.layers for f in lines) == sum(b.layers for b in found)


@_names
@_few
@given(data=st.data(), tp=st.sampled_from([1, 2, 4]))
def test_weight_bytes_are_weights_times_their_lanes_bytes(name: str, data: st.DataObject, tp: int) -> None:
    """Weights exactly; bytes up to the scalars of a matrix and the scales of a group that a row does not fill."""
    answer = data.draw(_checkpoints(name))
    try:
        found = weight_bytes(answer, Parallel.of(tp))
    except UsageError:
        assume(False)
    algorithms = {(r.module.op, r.lane.lane): r.answer.algorithm for r in answer.rows}
    for w in found:
        ideal = w.weights * _BYTES[algorithms[w.op, w.lane]]
        assert ideal <= w.bytes <= 1.2 * ideal + 4096 * w.modules
    one = {(w.op, w.lane): w for w in weight_bytes(answer)}
    for w in found:
        alone = one[w.op, w.lane]
        assert w.modules == alone.modules
        # A rank holds at least its share, and never more than the whole (a padded vocabulary aside).
        assert w.weights * tp >= alone.weights
        assert w.weights <= alone.weights + 64 * 8192 * (w.op in ("embedding", "lm_head"))


@_names
@_few
@given(data=st.data(), tp=st.sampled_from([2, 4]))
def test_tensor_parallelism_divides_every_split_matrix(name: str, data: st.DataObject, tp: int) -> None:
    answer = data.draw(_checkpoints(name))
    try:
        found = bitlane.buckets(answer, Parallel.of(tp))
    except UsageError:
        assume(False)
    for bucket in found:
        if bucket.kind != "gemm" or not bucket.modules or bucket.op == "lm_head":
            continue
        module = answer[bucket.modules[0]].module
        n, k = int(bucket.shape["n"]), int(bucket.shape["k"])
        out, into = module.shape or [0, 0]
        styles = {m.style for m in module.members}
        if styles == {"replicated"}:
            assert (n, k) == (out, into)
        elif styles == {"row"}:
            assert (n, k * tp) == (out, into)
        elif styles == {"column"} and all(not m.heads or m.heads >= tp for m in module.members):
            assert (n * tp, k) == (out, into)
        else:
            # Heads fewer than ranks are copied: more than a share, less than the whole.
            assert out / tp <= n <= out
            assert k == into


@_names
@_few
@given(data=st.data(), tp=st.sampled_from([1, 2]))
def test_stages_are_a_partition(name: str, data: st.DataObject, tp: int) -> None:
    answer = data.draw(_checkpoints(name))
    layers = sum(depths(answer.family, answer.checkpoint.config).values())
    if layers < 2:
        pytest.skip("a toy of one layer")
    split = Parallel.of(tp, pp=data.draw(st.integers(2, min(4, layers))))
    try:
        parts = stages(answer, split)
        whole = bitlane.buckets(answer, split, "decode")
    except UsageError:
        assume(False)
    assert parts[0].first == 0
    assert all(a.last == b.first for a, b in pairwise(parts))
    assert max(p.last - p.first for p in parts) - min(p.last - p.first for p in parts) <= 1
    staged = [bitlane.buckets(answer, split, "decode", p) for p in parts]
    count: Counter[str] = Counter()
    for found in staged:
        count.update({b.op: 0 for b in found})
        for b in found:
            count[b.op] += b.layers
    assert count == Counter({f.op: f.layers for f in fold(whole)})
    assert sum(_cost(answer, found) for found in staged) == pytest.approx(_cost(answer, whole), rel=1e-9)


@_names
def test_explicit_modes_give_one_bucket(name: str) -> None:
    """Under explicit modes every operation that can be quantized has one lane, whatever the checkpoint says."""
    answer = _resolve(_CONFIGS[name], {"gemm": "fp8:static", "moe": "nvfp4"})
    free = {r.module.op for r in answer.rows if r.module.priced and r.module.configured and r.module.kind != "embed"}
    bound = {r.module.op for r in answer.rows if r.module.priced and not r.module.configured}
    for line in fold(bitlane.buckets(answer)):
        kinds = {answer[m].module.kind for b in line.parts for m in b.modules}
        if line.op not in free - bound or kinds == {"lm_head"} or not kinds:
            continue
        assert line.lane == ("nvfp4" if kinds == {"experts"} else "fp8_static")
        shapes = {tuple(b.shape.items()) for b in line.parts}
        assert len(line.parts) == len(shapes)


@pytest.mark.parametrize("name", [n for n in sorted(_CONFIGS) if n.startswith("small")])
def test_most_modules_of_the_generated_checkpoints_are_quantized(name: str) -> None:
    """The properties above would hold of unquantized models too: show that the listing is met."""
    config = copy.deepcopy(_CONFIGS[name])
    plain = _resolve(config)
    listed = [c for r in plain.rows if r.module.configured and r.module.kind == "linear" for c in r.module.checkpoint]
    if not listed:
        pytest.skip("every linear module of this model is built without a quantization config")
    config["quantization_config"] = {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": [],
        "quantized_layers": {name: {"quant_algo": "FP8"} for name in listed},
    }  # fmt: skip
    lanes = Counter(r.lane.lane for r in _resolve(config).rows if r.module.kind == "linear" and r.module.configured)
    assert lanes["fp8_static"] > 0.5 * lanes.total()
