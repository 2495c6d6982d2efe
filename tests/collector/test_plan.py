"""Plans: the grids of the reference, the six shared-expert sites, floors, filters, ids and hashes."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import gemm_rows, write_run

from bitlane.collector import case, grids
from bitlane.collector.case import Build, Case, read_plan, write_plan
from bitlane.collector.coverage import Coverage
from bitlane.collector.merge import merge
from bitlane.collector.plan import base_plan, over_topologies, plan
from bitlane.errors import BitlaneError, UsageError
from bitlane.paths import PERF_DATA
from bitlane.resolver.bucket import Bucket

GB200 = {"system": "gb200", "backend": "vllm", "version": "0.31.0", "grid": grids.packaged(), "sm": 100}
INTER, HIDDEN = 3712, 2688  # shared_expert width and hidden size in Lightning's config.json


def nothing(table, key):
    return False


def gemm(op, n, k, lane="w4a16_nvfp4", **more):
    return Bucket(op, "gemm", lane, 23, {"n": n, "k": k}, **more)


def moe(lane="w4a16_nvfp4", **shape):
    base = {"hidden": 2688, "inter": 1856, "topk": 6, "experts": 128, "tp": 1, "ep": 1, "gated": 0}
    return Bucket("experts", "moe", lane, 23, {**base, **shape}, modules=("backbone.layers.1.mixer.experts",))


def shared_experts(tp):
    """Up and down projection of Lightning's shared expert, per rank."""
    return [gemm("shared_up", INTER // tp, HIDDEN), gemm("shared_down", HIDDEN, INTER // tp)]


def lightning_buckets():
    return [bucket for tp in (1, 4, 8) for bucket in shared_experts(tp)]


def test_the_grids_have_the_sizes_of_the_reference():
    grid = grids.packaged()
    assert len(grid.gemm.tokens) == 74
    assert len(grid.gemm.sites) == 22 * 22 - 1
    assert (len(grid.moe.tokens), len(grid.moe.routings), len(grid.moe.topologies)) == (27, 3, 14)
    found = base_plan(**GB200, has=nothing, lanes=["bf16"])
    assert len(found.cases) == 35_742


def test_the_six_shared_expert_sites_are_444_cases():
    found = plan(lightning_buckets(), **GB200, has=nothing)
    assert len(found.cases) == 444
    sites = {(c.integer("n"), c.integer("k")) for c in found.cases}
    assert sites == {(3712, 2688), (928, 2688), (464, 2688), (2688, 3712), (2688, 928), (2688, 464)}
    assert not found.dropped


def test_case_ids_and_plan_hash_are_what_they_were():
    """Ids are written into run folders and sidecars: a change of spelling would orphan them."""
    found = plan([gemm("shared_up", 464, 2688)], **GB200, has=nothing)
    assert found.cases[0].id == "gemm/w4a16_nvfp4/n=464,k=2688,m=1"
    lines = sorted(f"gemm/w4a16_nvfp4/n=464,k=2688,m={m}" for m in grids.packaged().gemm.tokens)
    assert found.hash == hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    experts = plan([moe()], **GB200, has=nothing)
    name = "moe/w4a16_nvfp4/hidden=2688,inter=1856,topk=6,experts=128,tp=1,ep=1,routing=balanced,tokens=1"
    assert experts.cases[0].id == name
    assert len(experts.cases) == 27 * 3


def test_two_modules_of_one_shape_are_one_case():
    found = plan([gemm("a", 64, 64, modules=("x",)), gemm("b", 64, 64, modules=("y",))], **GB200, has=nothing)
    assert len(found.cases) == 74
    assert found.cases[0].build.module == "x"


def test_measured_rows_are_left_out(tmp_path):
    rows = gemm_rows([(1, 464, 2688, 0.1), (2, 464, 2688, 0.2)], lane="w4a16_nvfp4", kernel="torch.mm")
    merge([write_run(tmp_path / "run", [rows])], tmp_path / "root")
    coverage = Coverage([tmp_path / "root"], "cpu_test", "numpy_cpu", "1.0")
    origin = {**GB200, "system": "cpu_test", "backend": "numpy_cpu", "version": "1.0"}
    found = plan([gemm("shared_up", 464, 2688)], **origin, has=coverage.has)
    assert {c.integer("m") for c in found.cases} == set(grids.packaged().gemm.tokens) - {1, 2}
    other = Coverage([tmp_path / "root"], "gb200", "vllm", "0.31.0")
    assert len(plan([gemm("shared_up", 464, 2688)], **GB200, has=other.has).cases) == 74


def test_none_of_the_six_sites_is_in_the_packaged_tables():
    if not (PERF_DATA / "gemm.parquet").exists():
        pytest.skip("no packaged tables in this checkout")
    coverage = Coverage([PERF_DATA], "gb200", "vllm", "0.31.0")
    assert len(plan(lightning_buckets(), **GB200, has=coverage.has).cases) == 444
    grid_site = plan([gemm("x", 4096, 4096, lane="bf16")], **GB200, has=coverage.has)
    assert len(grid_site.cases) < 5, "of a packaged site only held-back rows are missing"


def test_operations_with_an_answer_are_left_out():
    found = plan(lightning_buckets(), **GB200, has=nothing, answered=lambda bucket: bucket.op == "shared_up")
    assert len(found.cases) == 222


@pytest.mark.parametrize(
    ("lane", "sm", "reason"),
    [
        ("nvfp4", 90, "needs SM100, this is SM90"),
        ("fp8_static", 80, "needs SM89, this is SM80"),
        ("fp8_block", 80, "needs SM89, this is SM80"),
        ("w4a16_nvfp4", 75, "needs SM80, this is SM75"),
        ("bf16", 75, "needs SM80, this is SM75"),
        ("nvfp4_wo", 100, "exists below SM100 only, this is SM100"),
    ],
)
def test_capability_floors(lane, sm, reason):
    found = plan([gemm("x", 64, 64, lane=lane)], **{**GB200, "sm": sm}, has=nothing)
    assert not found.cases
    assert found.dropped[0].reason == reason
    assert base_plan(**{**GB200, "sm": sm}, has=nothing, lanes=[lane]).dropped[0].cases == 35_742


@pytest.mark.parametrize(("lane", "floor"), [("w4a16_nvfp4", 80), ("bf16", 80), ("fp8", 89), ("nvfp4", 100)])
def test_at_the_floor_a_lane_is_planned(lane, floor):
    found = plan([gemm("x", 64, 64, lane=grids.lane_name(lane))], **{**GB200, "sm": floor}, has=nothing)
    assert len(found.cases) == 74


def test_what_cannot_be_measured_is_said():
    attention = Bucket("attn", "attention", "bf16", 6, {"heads": 32, "kv_heads": 2, "head_dim": 128, "window": 0})
    odd = Bucket("x", "gemm", "int4_wo", 1, {"n": 64, "k": 64})
    found = plan([attention, odd, moe(tp=2, ep=2), moe(tp=3), moe(ep=3)], **GB200, has=nothing)
    assert not found.cases
    reasons = " | ".join(entry.reason for entry in found.dropped)
    assert "does not measure attention" in reasons
    assert "cannot build lane int4_wo" in reasons
    assert "not by both" in reasons
    assert "does not divide the experts' width 1856" in reasons
    assert "does not divide 128 experts" in reasons


def test_a_lane_that_the_experts_do_not_have_is_refused():
    with pytest.raises(UsageError, match="no operation of this model runs in lane `nvfp4`") as caught:
        plan([moe()], **GB200, has=nothing, lanes=["nvfp4"])
    assert "w4a16_nvfp4" in caught.value.help
    assert caught.value.exit_code == 2
    assert len(plan([moe(), gemm("x", 64, 64)], **GB200, has=nothing, lanes=["w4a16_nvfp4"]).cases) == 81 + 74


def test_experts_at_every_split():
    """14 splits, of which EP 256 does not divide 128 experts; 1856 is 58 times 32."""
    everywhere = over_topologies([moe(), gemm("x", 64, 64)], grids.packaged().moe.topologies)
    found = plan(everywhere, **GB200, has=nothing)
    assert {(c.axes["tp"], c.axes["ep"]) for c in found.cases} == {
        *((tp, 1) for tp in (1, 2, 4, 8, 16, 32)),
        *((1, ep) for ep in (2, 4, 8, 16, 32, 64, 128)),
    }
    assert [entry.reason for entry in found.dropped] == ["expert parallelism 256 does not divide 128 experts"]
    assert len(found.cases) == 13 * 27 * 3


def test_a_latent_width_is_the_experts_input():
    """Nemotron Super and Ultra project to 1024 and 2048 before the experts; the bucket carries that width."""
    found = plan([moe(hidden=1024, inter=2688, topk=22, experts=512)], **GB200, has=nothing)
    assert {c.key()["hidden_size"] for c in found.cases} == {1024}
    assert found.cases[0].build == Build("backbone.layers.1.mixer.experts", "mixed", gated=False)


def test_filters():
    found = plan(lightning_buckets(), **GB200, has=nothing)
    one = found.select(["gemm/w4a16_nvfp4/n=464,k=2688,m=1"])
    assert [c.id for c in one.cases] == ["gemm/w4a16_nvfp4/n=464,k=2688,m=1"], "an exact id is not a prefix"
    assert len(found.select(["n=464,k=2688,m=1"]).cases) > 1
    assert len(found.select(["n=464,", "n=928,"]).cases) == 148
    assert one.hash != found.hash
    assert len(found.select(limit=5).cases) == 5
    drawn = found.select(limit=5, shuffle=42)
    assert drawn == found.select(limit=5, shuffle=42)
    assert drawn.cases != found.cases[:5]
    with pytest.raises(UsageError, match="no case of the plan"):
        found.select(["n=465,"])


def test_a_plan_travels_as_a_file(tmp_path):
    found = plan([moe(), *lightning_buckets()], **GB200, has=nothing)
    write_plan(found, tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again == found
    assert [c.build for c in again.cases] == [c.build for c in found.cases]
    damaged = (tmp_path / "plan.json").read_text().replace("464", "465", 1)
    (tmp_path / "plan.json").write_text(damaged)
    with pytest.raises(UsageError, match="do not have the stated hash"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "x"}', "[1]", '{"schema":"bitlane.case_plan/1"}'])
def test_a_broken_plan_file_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_plan(tmp_path / "plan.json")
    assert caught.value.code == "BL725"


def test_every_lane_has_an_algorithm_where_it_quantizes():
    for name, lane in grids.lanes().items():
        assert (lane.algorithm is None) == (name in {"bf16", "fp32"})
        assert set(lane.tables) <= set(grids.TABLES)
        assert not (lane.weight_only and lane.algorithm is None)


def test_unknown_lane():
    with pytest.raises(UsageError) as caught:
        base_plan(**GB200, has=nothing, lanes=["nvfp5"])
    assert caught.value.code == "BL722"


def test_a_broken_case_file_is_refused(monkeypatch, tmp_path):
    from bitlane.collector import casefile

    monkeypatch.setattr(casefile, "FOLDER", tmp_path)
    (tmp_path / "broken.yaml").write_text("tokens: [a]\n")
    with pytest.raises(BitlaneError) as caught:
        casefile.load("broken.yaml", dict[str, list[int]])
    assert caught.value.code == "BL721"


SHAPES = st.tuples(st.integers(1, 99), st.integers(1, 99))


@given(st.lists(SHAPES, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_operations_does_not_matter(shapes, shuffle):
    grid = msgspec.structs.replace(grids.packaged(), gemm=grids.GemmGrid((1, 2, 10), ()))
    options = {**GB200, "grid": grid, "has": nothing}
    buckets = [gemm("x", n, k) for n, k in shapes]
    before = plan(buckets, **options)
    shuffle.shuffle(buckets)
    assert plan(buckets, **options) == before
    assert len(before.cases) == 3 * len(set(shapes))
    assert list(before.cases) == sorted(before.cases, key=Case.sort_key)


@given(st.text(max_size=12), st.lists(SHAPES, min_size=1, max_size=4))
def test_a_filter_keeps_exactly_the_ids_that_contain_it(text, shapes):
    found = base_plan(**GB200, has=nothing, lanes=["bf16"], sites=shapes)
    ids = {c.id for c in found.cases}
    expected = {text} & ids or {name for name in ids if text in name}
    if expected:
        assert {c.id for c in found.select([text]).cases} == expected
    else:
        with pytest.raises(UsageError):
            found.select([text])


def test_axes_name_every_shape_column():
    from bitlane.collector.schema import SHAPES as COLUMNS

    for table, axes in case.AXES.items():
        assert {"quant_mode", *axes.values()} == set(COLUMNS[table])
