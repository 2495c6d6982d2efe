"""Families build the modules that the real engines build, and their operations hold under every split.

Expected values come from the engines' goldens in ``../shared`` (skipped without it) and from hand calculations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compare_modules import compare, goldens

from bitlane.errors import BitlaneError
from bitlane.resolver import checkpoint
from bitlane.resolver.bucket import SHAPE_KEYS
from bitlane.resolver.family import compile_family
from bitlane.resolver.walk import modules, operations
from bitlane.rules import library

_CLASSES = json.loads((Path(__file__).parents[1] / "data" / "model_classes.json").read_text(encoding="utf-8"))
ABSENT = set(_CLASSES["absent"]["vllm@0.32.0"])
# What must be found at least, so that a moved folder does not pass as agreement (goldens at hand, counted).
_LEAST = {"vllm": 180, "sglang": 40, "trtllm": 25}


def _small(architecture: str = "LlamaForCausalLM", **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "vocab_size": 1024,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        **more,
    }


def _paths(rules: tuple[Path, ...], config: dict[str, Any], loader: str, version: str) -> dict[str, Any]:
    family = compile_family(library.find(rules), config["architectures"][0], loader, version)
    return {m.path: m for m in modules(family, config)}


@pytest.mark.parametrize("loader", sorted(_LEAST))
def test_families_build_what_the_engines_build(shared: Path, loader: str) -> None:
    """Every module: path, kind, [out, in], number of experts, class, and whether it gets a quantization config."""
    lib = library.find()
    reports = [compare(g, lib) for g in goldens(shared, (f"{loader}@",))]
    wrong = [f"{r.golden.name} {r.golden.version}: {what} {text}" for r in reports for what, text in r.differences]
    assert wrong == []
    assert sum(1 for r in reports if r.checked) >= _LEAST[loader]


@pytest.mark.parametrize(("tp", "dp", "ep"), [(1, 1, 1), (2, 1, 1), (4, 1, 4), (1, 8, 8)])
def test_operations_of_every_packaged_checkpoint_have_whole_sizes(tp: int, dp: int, ep: int) -> None:
    """Every key that the operation's kind needs is there, and it is a positive rank-local number."""
    lib = library.find()
    values = {"tp": tp, "dp": dp, "ep": ep, "moe_tp": tp * dp // ep, "pp": 1}
    seen = 0
    for folder in checkpoint.packaged().values():
        opened = checkpoint.open_checkpoint(folder)
        if opened.architecture in ABSENT:
            continue
        family = compile_family(lib, opened.architecture, "vllm", "0.32.0")
        if opened.config.get("model_type") == "deepseek_ref":  # known to no library; the family refuses it
            continue
        found, _ = operations(family, opened.config, values)
        for op in found:
            sizes = {k: v for k, v in op.attributes.items() if isinstance(v, int)}
            assert set(op.attributes) >= set(SHAPE_KEYS[op.kind]), (folder.name, op.name)
            assert all(v > 0 for k, v in sizes.items() if k in {"heads", "kv_heads", "head_dim", "elements"}), op
        seen += len(found)
    assert seen > 1000


def test_sharded_attention_sizes() -> None:
    """8 heads and 2 key/value heads on 4 ranks: 2 heads and one replicated key/value head each; head size 256/8."""
    family = compile_family(library.find(), "LlamaForCausalLM", "vllm", "0.31.0")
    found, _ = operations(family, _small(), {"tp": 4, "dp": 1, "ep": 1, "moe_tp": 4, "pp": 1})
    attention = [dict(o.attributes) for o in found if o.kind == "attention"]
    assert attention == [{"heads": 2, "kv_heads": 1, "head_dim": 32, "window": 0}] * 2
    reduces = [o.attributes["gpus"] for o in found if o.kind == "allreduce"]
    assert reduces == [4] * 4


def test_a_tied_head_is_a_gemm_in_sglang() -> None:
    """SGLang has no head module where the embedding is shared, but computes 1024 logits from 256 numbers."""
    tied = _small(tie_word_embeddings=True)
    assert "lm_head" in _paths((), tied, "vllm", "0.32.0")
    assert "lm_head" not in _paths((), tied, "sglang", "0.5.23")
    family = compile_family(library.find(), "LlamaForCausalLM", "sglang", "0.5.23")
    found, _ = operations(family, tied, {"tp": 2, "dp": 1, "ep": 1, "moe_tp": 2, "pp": 1})
    assert [dict(o.attributes) for o in found if o.kind == "gemm"] == [{"n": 512, "k": 256, "rows": "sequences"}]


_TOY = """language 1
family toy for ToyVision, ToyText
stack layers of 1 at "model.language_model.layers.{i}." {
  linear attn.q_proj [32, 16] column
  linear attn.k_proj [8, 16] column
  part alone {
    linear other.q_proj [32, 16] column class OldLinear
  }
}
names checkpoint {
  prefix "model.language_model." as "model." when architecture is "ToyText"
}
names vllm {
  prefix "model.language_model." as "language_model." when architecture is "ToyVision"
  class "OldLinear" as "NewLinear" since "0.30"
  fuse qk_proj = q_proj k_proj
}
"""


@pytest.fixture
def toy(tmp_path: Path) -> tuple[Path, ...]:
    """A rules folder with one invented family."""
    (tmp_path / "toy.rules").write_text(_TOY)
    return (tmp_path,)


def test_a_class_may_spell_its_checkpoint_its_own_way(toy: tuple[Path, ...]) -> None:
    vision = _paths(toy, {"architectures": ["ToyVision"]}, "vllm", "0.31.0")
    text = _paths(toy, {"architectures": ["ToyText"]}, "vllm", "0.31.0")
    assert vision["language_model.layers.0.attn.qk_proj"].checkpoint == (
        "model.language_model.layers.0.attn.q_proj",
        "model.language_model.layers.0.attn.k_proj",
    )
    assert text["model.layers.0.attn.qk_proj"].checkpoint == (
        "model.layers.0.attn.q_proj",
        "model.layers.0.attn.k_proj",
    )


def test_a_shard_alone_is_not_fused(toy: tuple[Path, ...]) -> None:
    found = _paths(toy, {"architectures": ["ToyText"]}, "vllm", "0.31.0")
    assert sorted(found) == ["model.layers.0.attn.qk_proj", "model.layers.0.other.q_proj"]
    assert found["model.layers.0.attn.qk_proj"].shape == [40, 16]


@pytest.mark.parametrize(("version", "name"), [("0.24.0", "OldLinear"), ("0.30.0", "NewLinear")])
def test_an_engine_class_changes_its_name_between_releases(toy: tuple[Path, ...], version: str, name: str) -> None:
    found = _paths(toy, {"architectures": ["ToyText"]}, "vllm", version)
    assert found["model.layers.0.other.q_proj"].cls == name


def test_a_loader_without_names_is_refused(toy: tuple[Path, ...]) -> None:
    """Checkpoint names must not pass for the names of an engine that nobody has looked at."""
    with pytest.raises(BitlaneError, match="does not say how sglang names") as caught:
        _paths(toy, {"architectures": ["ToyText"]}, "sglang", "0.5.23")
    assert caught.value.code == "BL231"
    assert list(_paths(toy, {"architectures": ["ToyText"]}, "spec", "1"))
