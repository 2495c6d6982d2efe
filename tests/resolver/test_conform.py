"""conform: what counts as agreement, what as difference, and what is kept apart; on goldens with a known change."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bitlane.errors import BitlaneError
from bitlane.resolver.conform import Agreement, conform, folded, totals
from bitlane.resolver.goldens import Checkpoints, find_goldens, read_golden

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDENS = Path(__file__).resolve().parents[1] / "data" / "goldens"
GPT_OSS = GOLDENS / "vllm" / "0.32.0" / "openai--gpt-oss-120b.json.gz"
EXPERTS = "model.layers.0.mlp.experts"
HEAD = "lm_head"


def write(path: Path, golden: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(golden).encode()))
    return path


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Agreement:
    """Compare a changed copy of one golden."""
    golden = json.loads(gzip.decompress(GPT_OSS.read_bytes()))
    change(golden)
    write(folder / "0.32.0" / GPT_OSS.name, golden)
    (found,) = conform((folder,))
    return found


def test_the_committed_goldens_agree_in_full() -> None:
    """The floor that every checkout keeps: no module, shape or refusal differs, and nothing is left out."""
    found = list(conform((GOLDENS,)))
    assert [(a.golden.label, d.to_dict()) for a in found for d in a.differences] == []
    whole = totals(found)["all"]
    # Counted in the files themselves: 19 goldens, two of them refusals, and 5,000 modules of which most have a shape.
    assert (whole.goldens, whole.compared, whole.equal, whole.unsupported, whole.skipped) == (19, 19, 19, 0, 0)
    assert (whole.refusals, whole.refusals_agree) == (2, 2)
    files = [json.loads(gzip.decompress(p.read_bytes())) for p in find_goldens((GOLDENS,))]
    modules = [m for f in files for m in (f.get("modules") or {}).values() if m["kind"] != "attn"]
    assert whole.modules == whole.agree == len(modules) > 4000
    assert whole.shapes == whole.shapes_agree == sum(m.get("shape") is not None for m in modules) > 4000
    assert sum(p.stat().st_size for p in GOLDENS.rglob("*")) < 200_000


def test_a_module_of_another_algorithm(tmp_path: Path) -> None:
    found = changed(tmp_path, lambda g: g["modules"][EXPERTS].update(algo="nvfp4", why="because"))
    assert (found.status, found.modules, found.agree) == ("compared", 146, 145)
    (difference,) = found.differences
    assert (difference.module, difference.what, difference.engine, difference.ours) == (
        EXPERTS,
        "algorithm",
        "nvfp4",
        "mxfp4",
    )
    assert difference.engine_why == "because"
    assert "loaders/vllm.rules:" in difference.our_why


def test_a_module_of_another_shape_or_number_of_experts(tmp_path: Path) -> None:
    def change(golden: dict[str, Any]) -> None:
        golden["modules"][HEAD] = {**golden["modules"][HEAD], "shape": [1, 2]}
        golden["modules"][EXPERTS]["n_experts"] = 7

    found = changed(tmp_path, change)
    assert [(d.module, d.what) for d in found.differences] == [(EXPERTS, "algorithm"), (HEAD, "shape")]
    assert found.differences[0].engine == "mxfp4 x 7 experts"
    assert found.shapes - found.shapes_agree == 1


def test_modules_that_only_one_side_has(tmp_path: Path) -> None:
    def change(golden: dict[str, Any]) -> None:
        golden["modules"]["model.new"] = golden["modules"].pop(HEAD)

    found = changed(tmp_path, change)
    assert [(d.module, d.what) for d in found.differences] == [("model.new", "missing"), (HEAD, "extra")]
    # A golden that says of itself that it leaves modules out is not blamed for those that it lacks.
    partial = changed(tmp_path, lambda g: (g["modules"].pop(HEAD), g["meta"].update(left_out=["the head"])))
    assert partial.equal


def test_integers_are_named_by_their_method_in_older_goldens(tmp_path: Path) -> None:
    found = changed(tmp_path, lambda g: g["modules"][EXPERTS].update(algo="ct:CompressedTensorsWNA16"))
    assert found.differences[0].engine == "int4_wo"


def test_an_algorithm_that_the_oracle_could_not_name_is_not_compared(tmp_path: Path) -> None:
    found = changed(tmp_path, lambda g: g["modules"][EXPERTS].update(algo="?"))
    assert (found.modules, found.agree) == (145, 145)


def test_a_refusal_that_we_do_not_share(tmp_path: Path) -> None:
    def change(golden: dict[str, Any]) -> None:
        del golden["modules"]
        golden["raises"] = "ValueError: no"

    found = changed(tmp_path, change)
    assert (found.status, found.equal) == ("refused", False)
    (difference,) = found.differences
    assert (difference.what, difference.engine, difference.ours) == ("refusal", "refuses", "resolves")
    # A server that would not start has no modules, whatever its loader alone decides.
    assert not changed(tmp_path, lambda g: g["meta"].update(server_refuses="ValueError: no")).equal


def test_a_refusal_that_the_engine_does_not_share(tmp_path: Path) -> None:
    golden = json.loads(gzip.decompress(GPT_OSS.read_bytes()))
    case = write(tmp_path / "case" / "golden.json.gz", golden).parent
    (case / "config.json").write_text(
        '{"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "new"}}'
    )
    (found,) = conform((tmp_path,))
    assert (found.status, found.modules, found.agree) == ("compared", 146, 0)
    assert found.differences[0].what == "refusal"
    assert "BL241" in found.differences[0].our_why


def test_a_shared_refusal_shows_both_reasons() -> None:
    found = next(a for a in conform((GOLDENS,), only=("042",)))
    assert (found.status, found.equal) == ("refused", True)
    assert "some but not all shards" in found.reason
    assert "some but not all shards" in found.our_reason


def test_what_no_rule_describes_is_unsupported_and_counted_apart(tmp_path: Path) -> None:
    golden = json.loads(gzip.decompress(GPT_OSS.read_bytes()))
    case = write(tmp_path / "case" / "golden.json.gz", golden).parent
    (case / "config.json").write_text('{"architectures": ["NewForCausalLM"]}')
    (tmp_path / "old").mkdir()
    write(tmp_path / "old" / GPT_OSS.name, {**golden, "meta": {**golden["meta"], "vllm": "0.1.0"}})
    found = list(conform((tmp_path,)))
    assert [(a.status, a.reason[:5]) for a in found] == [("unsupported", "BL230"), ("unsupported", "BL222")]
    whole = totals(found)["all"]
    assert (whole.unsupported, whole.unsupported_modules, whole.modules, whole.compared) == (2, 292, 0, 0)


def test_what_is_not_at_hand_is_skipped(tmp_path: Path) -> None:
    golden = json.loads(gzip.decompress(GPT_OSS.read_bytes()))
    write(tmp_path / "0.32.0" / "org--unknown.json.gz", golden)
    write(tmp_path / "0.32.0" / "openai--gpt-oss-120b__mtp.json.gz", golden)
    assert [a.status for a in conform((tmp_path,))] == ["skipped", "skipped"]


def test_checkpoints_are_found_beside_given_then_packaged(tmp_path: Path) -> None:
    golden = read_golden(GPT_OSS)
    packaged = Checkpoints().open(golden)
    assert packaged is not None
    assert packaged.config["architectures"] == ["GptOssForCausalLM"]
    mine = tmp_path / "openai--gpt-oss-120b"
    mine.mkdir()
    (mine / "config.json").write_text('{"mine": 1}')
    given = Checkpoints((tmp_path,)).open(golden)
    assert given is not None
    assert given.config == {"mine": 1}


def test_inline_moves_the_file_into_the_config(tmp_path: Path) -> None:
    golden = json.loads(gzip.decompress(GPT_OSS.read_bytes()))
    path = write(tmp_path / "0.32.0" / "org--model__inline.json.gz", golden)
    home = tmp_path / "org--model"
    home.mkdir()
    (home / "config.json").write_text('{"hidden_size": 1}')
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (home / "hf_quant_config.json").write_text(
        json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization})
    )
    opened = Checkpoints((tmp_path,)).open(read_golden(path))
    assert opened is not None
    assert list(opened.files) == ["config.json"]
    # As the oracle does: the flat form that newer ModelOpt releases write.
    assert opened.config == {
        "hidden_size": 1,
        "quantization_config": {
            "quant_algo": "FP8",
            "ignore": ["lm_head"],
            "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
            "quant_method": "modelopt",
        },
    }


def test_differences_fold_over_layers(tmp_path: Path) -> None:
    def change(golden: dict[str, Any]) -> None:
        for i in range(36):
            golden["modules"][f"model.layers.{i}.mlp.experts"]["algo"] = "fp8"
        golden["modules"][HEAD]["algo"] = "fp8"

    found = changed(tmp_path, change)
    assert [(d.module, n) for d, n in folded(found.differences)] == [("model.layers.*.mlp.experts", 36), (HEAD, 1)]


def code(function: Callable[[], object]) -> str:
    with pytest.raises(BitlaneError) as caught:
        function()
    assert caught.value.help
    return caught.value.code


def test_places_and_files_that_are_no_goldens(tmp_path: Path) -> None:
    assert code(lambda: list(conform((tmp_path,)))) == "BL280"
    assert code(lambda: list(conform((tmp_path / "none",)))) == "BL280"
    for number, bad in enumerate(
        ({}, {"meta": {"vllm": "0.32.0"}}, {"meta": []}, {"meta": {"vllm": 1}, "modules": {}})
    ):
        path = write(tmp_path / f"{number}.json.gz", bad)
        assert code(lambda path=path: read_golden(path)) == "BL281"  # type: ignore[misc]
    broken = tmp_path / "broken.json.gz"
    for data in (b"", b"no gzip", gzip.compress(b"{}" * 100)[:-9], gzip.compress(b"\0" * ((64 << 20) + 1))):
        broken.write_bytes(data)
        assert code(lambda: read_golden(broken)) in ("BL281", "BL203")
    golden = json.loads(gzip.decompress(GPT_OSS.read_bytes()))
    golden["meta"]["posed_gpu"] = [1, 1]
    one = write(tmp_path / "one" / "0.32.0" / GPT_OSS.name, golden)
    assert code(lambda: list(conform((one.parent,)))) == "BL282"
    assert code(lambda: list(conform((one.parent,), system="unheard-of"))) == "BL223"
    assert [a.equal for a in conform((one.parent,), system="gb200")] == [True]
