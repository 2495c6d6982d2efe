"""Real model configurations made small: few layers, all kinds of layers kept, sizes and structure varied on demand.

On the meta device only the number of modules costs time, so widths stay as published unless a variant changes them.
"""

from __future__ import annotations

import copy
import json
import random
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = dict[str, Any]

_DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
_QUANT = ("quantization_config", "compression_config", "quantization", "auto_map")
_VISION = re.compile(r"vision|audio|visual")
# Widths that may take any value as long as all users agree, so that alignment rules have something to refuse.
_WIDTHS = re.compile(r"^(dense_|shared_|moe_|shared_expert_|moe_shared_expert_)?(intermediate_size|ffn_hidden_size)$")
_SIZES = (64, 96, 128, 160, 192, 256, 320, 352, 384, 448, 512, 608, 704, 768, 896, 1024, 1408, 1536, 2112, 2880)

# Structure that published files do not all have; keys are those of the text model.
STRUCTURES: dict[str, tuple[JSON, ...]] = {
    "DeepseekV3ForCausalLM": (
        {"q_lora_rank": None},
        {"n_shared_experts": 2},
        {"first_k_dense_replace": 0},
        {"moe_layer_freq": 2},
    ),
    "DeepseekV2ForCausalLM": ({"q_lora_rank": 1536}, {"n_shared_experts": 1}, {"first_k_dense_replace": 2}),
    "GlmMoeDsaForCausalLM": ({"n_shared_experts": 2}, {"first_k_dense_replace": 0}, {"q_lora_rank": None}),
    "KimiK25ForConditionalGeneration": ({"first_k_dense_replace": 2}, {"n_shared_experts": 2}, {"q_lora_rank": None}),
    "Qwen3MoeForCausalLM": ({"mlp_only_layers": [0, 2]}, {"decoder_sparse_step": 2}, {"attention_bias": True}),
    "Qwen3VLMoeForConditionalGeneration": ({"mlp_only_layers": [1]},),
    "Qwen3NextForCausalLM": (
        {"mlp_only_layers": [0]},
        {"shared_expert_intermediate_size": 0},
        {"decoder_sparse_step": 2},
    ),
    "Qwen3_5MoeForConditionalGeneration": ({"shared_expert_intermediate_size": 0}, {"attn_output_gate": False}),
    "Qwen3_5MoeForCausalLM": ({"shared_expert_intermediate_size": 0}, {"attn_output_gate": False}),
    "Qwen3_5ForConditionalGeneration": ({"attn_output_gate": False},),
    "NemotronHForCausalLM": ({"n_shared_experts": 0}, {"moe_latent_size": 1024}, {"moe_latent_size": None}),
    "Gemma4ForConditionalGeneration": (
        {"enable_moe_block": False},
        {"attention_k_eq_v": False},
        {"num_kv_shared_layers": 2},
        {"hidden_size_per_layer_input": 256},
        {"use_double_wide_mlp": True, "num_kv_shared_layers": 2, "enable_moe_block": False},
    ),
    "MiniMaxM3SparseForConditionalGeneration": ({"n_shared_experts": 0}, {"n_shared_experts": 2}),
    "LlamaForCausalLM": ({"attention_bias": True}, {"mlp_bias": True}, {"head_dim": 64}),
    "Llama4ForConditionalGeneration": ({"interleave_moe_layer_step": 1}, {"interleave_moe_layer_step": 3}),
    "LagunaForCausalLM": ({"gating": False}, {"shared_expert_intermediate_size": 0}, {"gating": "per-head"}),
    "PhiMoEForCausalLM": ({"lm_head_bias": True},),
    "MixtralForCausalLM": ({"sliding_window": 4096}, {"num_local_experts": 4}),
    "GptOssForCausalLM": ({"num_local_experts": 32},),
    "DeepseekV4ForCausalLM": ({"expert_dtype": "fp8"}, {"n_shared_experts": 2}, {"num_hash_layers": 0}),
}


def _text(config: JSON) -> JSON:
    return next(
        (config[k] for k in ("text_config", "language_config", "llm_config") if isinstance(config.get(k), dict)), config
    )


def _kinds(scope: JSON, total: int) -> int:
    """Fewest leading layers that show every kind of layer."""
    need = 1
    for value in _per_layer(scope, total):
        marks = [json.dumps(v) for v in value] if isinstance(value, list) else list(value)
        first = {m: i for i, m in reversed(list(enumerate(marks)))}
        if len(first) <= 6:
            need = max(need, max(first.values()) + 1)
    return need


def _per_layer(scope: JSON, total: int) -> Iterator[Any]:
    for value in scope.values():
        if (isinstance(value, list) and total <= len(value) <= total + 3) or (
            isinstance(value, str) and len(value) == total
        ):
            yield value
        elif isinstance(value, dict):
            yield from _per_layer(value, total)


def _cut(scope: JSON, total: int, layers: int) -> None:
    for key, value in scope.items():
        if isinstance(value, list) and total <= len(value) <= total + 3 and total > 4:
            scope[key] = value[:layers] + value[total:]
        elif isinstance(value, str) and len(value) == total and total > 8:
            scope[key] = value[:layers]
        elif (
            isinstance(value, list)
            and key.endswith(("_indexes", "_layers", "_layer_ids"))
            and value
            and all(isinstance(v, int) for v in value)
        ):
            scope[key] = [v for v in value if v < layers] or [layers - 1]
        elif isinstance(value, dict) and not any(d in value for d in _DEPTH):
            _cut(value, total, layers)


def shrink(config: JSON, layers: int) -> JSON:
    """Return a copy with at least ``layers`` layers (more where the kinds of layers need it), unquantized."""
    out: JSON = copy.deepcopy(config)
    for scope in [out, *[v for v in out.values() if isinstance(v, dict)]]:
        for key in _QUANT:
            scope.pop(key, None)
    for name, scope in [("", out), *[(k, v) for k, v in out.items() if isinstance(v, dict)]]:
        total = next((scope[d] for d in _DEPTH if isinstance(scope.get(d), int)), None)
        if total is None and isinstance(scope.get("layers_block_type"), list):
            total = len(scope["layers_block_type"])
        if total is None:
            continue
        want = 2 if _VISION.search(name) else min(total, max(layers, min(_kinds(scope, total), 14)))
        _cut(scope, total, want)
        for depth in _DEPTH:
            if scope.get(depth) == total:
                scope[depth] = want
        dense = scope.get("first_k_dense_replace")
        if isinstance(dense, int) and dense >= want:
            scope["first_k_dense_replace"] = 1
    return out


def widths(config: JSON, rng: random.Random) -> JSON:
    """Return a copy whose feed-forward widths are drawn anew."""
    out = copy.deepcopy(config)
    scope = _text(out)
    for key, value in scope.items():
        if isinstance(value, int) and _WIDTHS.match(key) and value and rng.random() < 0.8:
            scope[key] = rng.choice(_SIZES)
    if rng.random() < 0.3 and isinstance(scope.get("hidden_size"), int) and isinstance(scope.get("head_dim"), int):
        scope["hidden_size"] = rng.choice((256, 512, 768, 1024, 1536, 2880))
    return out


def experts(config: JSON, count: int) -> JSON:
    """Return a copy with few routed experts, so that listings of every leaf stay short."""
    out = copy.deepcopy(config)
    scope = _text(out)
    for key in ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"):
        if isinstance(scope.get(key), int) and scope[key] > count:
            scope[key] = count
    for key in ("num_experts_per_tok", "experts_per_token", "moe_top_k", "top_k_experts"):
        if isinstance(scope.get(key), int):
            scope[key] = min(scope[key], 2)
    for key in ("n_group", "topk_group"):
        if isinstance(scope.get(key), int):
            scope[key] = 1
    return out


def bases(folders: list[Path], seed: int = 0) -> Iterator[tuple[str, str, JSON]]:
    """Yield small configs of every model class found below folders of ``NAME/config.json``: own name, NAME, config."""
    rng = random.Random(seed)
    seen: dict[str, int] = {}
    for folder in folders:
        for path in sorted(folder.glob("*/config.json")):
            config = json.loads(path.read_text().replace("Infinity", "1e9"))
            architecture = (config.get("architectures") or ["?"])[0]
            number = seen[architecture] = seen.get(architecture, -1) + 1
            model = architecture.replace("ForCausalLM", "").replace("ForConditionalGeneration", "_vl").lower()
            short = f"{model}-{number}"
            depth = rng.choice((2, 3, 4, 4, 5, 6, 11, 12, 13)) if not architecture.startswith("Gemma4") else 12
            small = experts(shrink(config, depth), rng.choice((4, 6, 8)))
            yield short, path.parent.name, small
            if number > 2:
                continue
            yield short + "-w", path.parent.name, widths(small, rng)
            tied = copy.deepcopy(small)
            for scope in (tied, _text(tied)):
                if scope is tied or "tie_word_embeddings" in scope:
                    scope["tie_word_embeddings"] = not small.get("tie_word_embeddings", False)
            yield short + "-t", path.parent.name, tied
            for mark, structure in enumerate(STRUCTURES.get(architecture, ()) if number == 0 else ()):
                changed = copy.deepcopy(small)
                _text(changed).update(structure)
                yield f"{short}-s{mark}", path.parent.name, changed
