"""Small checkpoints with generated quantization metadata: what a loader must read, and what it must survive.

``case(seed)`` is deterministic. The model configurations are published ones, shrunk
(``tests/data/small_configs.json``); names come from the families, spelled as checkpoints and as loaders spell them,
right and wrong. ``tests/data/vllm_generated.jsonl.gz`` was made by::

    python tests/conformance/generated.py write CASES FIRST END [KIND]
    PYTHON_WITH_VLLM tests/conformance/run_vllm.py CASES
    python tests/conformance/generated.py pack tests/data/vllm_generated.jsonl.gz CASES:VERSION:COUNT ...
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitlane.resolver.family import compile_family
from bitlane.resolver.walk import modules
from bitlane.rules import library

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).resolve().parents[1] / "data"
JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Base:
    """A small model and the names of its modules."""

    name: str
    config: JSON
    loader: tuple[str, ...]
    checkpoint: tuple[str, ...]
    shards: tuple[str, ...]
    experts: tuple[str, ...]


@lru_cache(maxsize=1)
def bases() -> dict[str, Base]:
    """Return every small model that a family describes."""
    out = {}
    found = library.find()
    for name, config in json.loads((DATA / "small_configs.json").read_text()).items():
        if config["architectures"][0] not in found.architectures():
            continue
        family = compile_family(found, config["architectures"][0], "vllm", "0.32.0")
        built = modules(family, config)
        loader = tuple(m.path for m in built)
        checkpoint = tuple(c for m in built for c in m.checkpoint)
        shards = tuple(
            m.path.replace(m.name, s) for m in built for s in family.packed.get(m.name, ()) if m.name in family.packed
        )
        experts = tuple(m.path for m in built if m.kind == "experts")
        out[name] = Base(name, config, loader, checkpoint, shards, experts)
    return out


class Pen:
    """Draws names and patterns for one base."""

    def __init__(self, base: Base, rng: random.Random) -> None:
        self.base = base
        self.rng = rng

    def name(self) -> str:
        """A module's name in one of its spellings."""
        b, r = self.base, self.rng
        pool = r.choice([b.loader, b.loader, b.checkpoint, b.checkpoint, b.shards or b.loader])
        name = r.choice(pool)
        if b.experts and r.random() < 0.15:
            leaf = r.choice(["gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"])
            name = f"{r.choice(b.experts)}.{r.choice([0, 0, 0, 1, 3])}.{leaf}"
        if r.random() < 0.12:
            old, new = r.choice(
                [
                    ("model.", ""),
                    ("model.", "model.model."),
                    ("model.language_model.", "language_model.model."),
                    ("language_model.model.", "model.language_model."),
                    ("layers.", "blocks."),
                    ("backbone.", "model."),
                ]
            )
            name = name.replace(old, new, 1)
        return name

    def layer(self) -> str:
        """A name cut somewhere: a layer, a parent, a tail."""
        parts = self.name().split(".")
        cut = self.rng.randrange(1, len(parts) + 1)
        return ".".join(parts[:cut]) if self.rng.random() < 0.6 else ".".join(parts[-cut:])

    def exclusion(self) -> str:
        """One entry of an exclusion list, in any of the dialects."""
        r = self.rng
        draw = r.random()
        if draw < 0.4:
            return self.name()
        if draw < 0.52:
            return self.layer()
        if draw < 0.62:
            return self.layer() + r.choice(["*", ".*"])
        if draw < 0.7:
            return "*" + r.choice(["", "."]) + self.layer() + r.choice(["", "*", ".*"])
        if draw < 0.76:
            return r.choice(
                [
                    "lm_head",
                    "*lm_head*",
                    "gate",
                    "mlp.gate",
                    "proj",
                    "mtp*",
                    "model.embed_tokens",
                    "self_attn",
                    "experts",
                    "mlp",
                    "visual",
                    "vision_tower",
                    "k_proj",
                    "layers.1",
                    "model.layers.1",
                ]
            )
        if draw < 0.8:
            return self.name().replace(".0.", r.choice([".[0-2].", ".?.", ".*."]), 1)
        return self.regex()

    def regex(self) -> str:
        """An entry in the ``re:`` dialect."""
        r = self.rng
        leaf = self.name().rpartition(".")[2]
        forms = [
            f"re:.*{leaf}$",
            f"re:.*{leaf}",
            f"re:.*\\.{leaf}$",
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
            "re:.*self_attn.*",
            "re:.*experts.*",
            "re:.*shared_expert.*",
            "re:.*lm_head",
            "re:.*layers\\.[0-1]\\..*",
            "re:" + self.name().replace(".", "\\."),
            "re:^(?!.*experts).*proj$",
            "re:.*(q|k|v)_proj$",
            "re:model.*",
            "re:.*",
        ]
        return r.choice(forms)

    def exclusions(self, most: int = 6) -> list[str]:
        """A list of entries, sometimes with whole fused modules."""
        out = [self.exclusion() for _ in range(self.rng.randrange(0, most))]
        if self.rng.random() < 0.35 and self.base.shards:
            shard = self.rng.choice(self.base.shards)
            parent = shard.rpartition(".")[0]
            out += [s for s in self.base.shards if s.rpartition(".")[0] == parent]
        if self.rng.random() < 0.7:
            out.append("lm_head")
        self.rng.shuffle(out)
        return out


_ALGOS = ["FP8", "NVFP4", "W4A16_NVFP4", "MXFP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN"]


def _listing(pen: Pen) -> JSON:
    r = pen.rng
    words = [*_ALGOS, "FP8_BLOCK_SCALES", "INT4_AWQ", "nvfp4", "fp8"]
    few = r.sample(words, r.choice([1, 1, 2, 3]))
    out: JSON = {}
    for _ in range(r.randrange(1, 14)):
        word = r.choice(few)
        entry: JSON = {"quant_algo": word}
        if "FP4" in word.upper():
            entry["group_size"] = 16
        if word in ("FP8_PB_WO", "FP8_BLOCK_SCALES"):
            entry["group_size"] = 128
        name = pen.name()
        out[name] = entry
        if r.random() < 0.4:
            parent = name.rpartition(".")[0]
            for shard in pen.base.shards:
                if shard.rpartition(".")[0] == parent and r.random() < 0.85:
                    out[shard] = dict(entry)
        if r.random() < 0.03:
            out[name] = r.choice([{}, {"quant_algo": "FP8"}, {"quant_algo": "", "group_size": 16}])
    return out


def _mixed(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    listing = _listing(pen)
    inner: JSON = {"quant_algo": "MIXED_PRECISION", "exclude_modules": pen.exclusions(4), "kv_cache_quant_algo": None}
    inner["quantized_layers"] = listing
    nested = {"producer": {"name": "modelopt", "version": "0.40.0"}, "quantization": inner}
    flat: JSON = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": pen.exclusions(4)}
    flat["quantized_layers"] = listing
    kind = r.random()
    if kind < 0.75:
        return flat, None
    if kind < 0.85:
        flat.pop("quantized_layers")
        return flat, nested
    if kind < 0.9:
        return flat, {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    if kind < 0.95:
        nested["quant_method"] = "modelopt"
        return nested, None
    flat.pop("quantized_layers")
    return flat, r.choice([None, {"quantization": inner}])


def _uniform(pen: Pen) -> tuple[JSON | None, JSON | None]:
    r = pen.rng
    algo = r.choice([*_ALGOS, *_ALGOS, "NVFP4_AWQ", "w4a16_nvfp4", "fp8_pb_wo"])
    flat: JSON = {"quant_method": r.choice(["modelopt", "modelopt", "ModelOpt", "modelopt_fp4"]), "quant_algo": algo}
    flat["ignore"] = pen.exclusions()
    if r.random() < 0.3:
        acts = r.choice([None, {"num_bits": 4, "type": "float"}])
        flat["config_groups"] = {
            "group_0": {"targets": ["Linear"], "input_activations": acts, "weights": {"num_bits": 4}}
        }
    if r.random() < 0.2:
        flat["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    inner: JSON = {
        "quant_algo": algo,
        "exclude_modules": pen.exclusions(),
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
    }
    if r.random() < 0.15:
        inner.pop(r.choice(list(inner)))
    nested: JSON = {"producer": {"name": "modelopt", "version": "0.39"}, "quantization": inner}
    if r.random() < 0.2:
        nested.pop("producer")
    draw = r.random()
    if draw < 0.45:
        return flat, None
    if draw < 0.7:
        return None, nested
    if draw < 0.8:
        return {**nested, "quant_method": "modelopt"}, None
    if draw < 0.9:
        return flat, nested
    flat["exclude_modules"] = flat.pop("ignore")
    return flat, None


def _fp8(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    block: JSON = {
        "quant_method": r.choice(["fp8", "fp8", "FP8"]),
        "activation_scheme": r.choice(["dynamic", "dynamic", "static"]),
    }
    if r.random() < 0.5:
        block["weight_block_size"] = r.choice([[128, 128], [128, 128], [64, 64], [32, 32], None, [128], 128])
    for key in r.sample(["modules_to_not_convert", "ignored_layers"], r.choice([0, 1, 1, 1, 2])):
        block[key] = pen.exclusions() if r.random() < 0.9 else r.choice([None, []])
    if r.random() < 0.1:
        block["store_dtype"] = "mxfp4"
    if r.random() < 0.05:
        block.pop("activation_scheme")
    if r.random() < 0.05:
        block["activation_scheme"] = "Dynamic"
    return block, None


def _args(num_bits: int, kind: str, strategy: str, **more: Any) -> JSON:
    return {"num_bits": num_bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


def _schemes(r: random.Random) -> tuple[JSON, JSON | None, str]:
    token = _args(8, "float", "token") | {"dynamic": True}
    tensor = _args(8, "float", "tensor") | {"dynamic": r.random() < 0.5}
    int_token = _args(8, "int", "token") | {"dynamic": True}
    group32 = {"group_size": 32}
    mx = {"group_size": 32, "scale_dtype": "torch.uint8"}
    choices: list[tuple[JSON, JSON | None, str]] = [
        (_args(8, "float", "channel"), token, "float-quantized"),
        (_args(8, "float", "tensor"), tensor, "float-quantized"),
        (_args(8, "float", "block", block_structure=r.choice([[128, 128], [64, 64]])), token, "float-quantized"),
        (
            _args(8, "float", "block", block_structure=[128, 128]),
            _args(8, "float", "group", group_size=128) | {"dynamic": True},
            "float-quantized",
        ),
        (_args(8, "float", "channel"), None, r.choice(["float-quantized", "naive-quantized", "pack-quantized"])),
        (_args(8, "float", "tensor"), token, "naive-quantized"),
        (_args(8, "float", "channel"), tensor, "float-quantized"),
        (
            _args(4, "float", "tensor_group", group_size=16),
            _args(4, "float", "tensor_group", group_size=16) | {"dynamic": "local"},
            "nvfp4-pack-quantized",
        ),
        (_args(4, "float", "tensor_group", group_size=16), None, "nvfp4-pack-quantized"),
        (_args(4, "float", "tensor_group", group_size=16), token, "nvfp4-pack-quantized"),
        (_args(4, "float", "group", **group32), None, "mxfp4-pack-quantized"),
        (_args(4, "float", "group", **group32), token, "mxfp4-pack-quantized"),
        (_args(8, "float", "group", **mx), _args(8, "float", "group", **mx) | {"dynamic": True}, "mxfp8-quantized"),
        (
            _args(8, "float", "group", **group32),
            _args(8, "float", "group", **group32) | {"dynamic": True},
            "float-quantized",
        ),
        (_args(4, "int", "group", group_size=r.choice([32, 64, 128])), None, "pack-quantized"),
        (_args(8, "int", "group", group_size=128), None, r.choice(["pack-quantized", "int-quantized"])),
        (_args(r.choice([4, 8]), "int", "channel"), None, "pack-quantized"),
        (_args(8, "int", "channel"), int_token, "int-quantized"),
        (_args(8, "int", "tensor"), _args(8, "int", "tensor"), "int-quantized"),
        (_args(4, "int", "group", group_size=128), token, "pack-quantized"),
        (_args(4, "int", "channel"), int_token, r.choice(["int-quantized", "pack-quantized"])),
    ]
    weights, acts, form = r.choice(choices)
    if r.random() < 0.04:
        weights["symmetric"] = False
    if r.random() < 0.03:
        weights["actorder"] = r.choice(["group", "weight", "static", None])
    if r.random() < 0.02:
        weights.pop("strategy")
    return weights, acts, form


def _targets(pen: Pen) -> list[str]:
    r = pen.rng
    draw = r.random()
    if draw < 0.35:
        return ["Linear"]
    if draw < 0.7:
        return [pen.regex() for _ in range(r.choice([1, 1, 2]))]
    if draw < 0.9:
        shards = list(pen.base.shards)
        if shards and r.random() < 0.5:
            parent = r.choice(shards).rpartition(".")[0]
            return [s for s in shards if s.rpartition(".")[0] == parent][: r.choice([1, 2, 3])]
        return [pen.name() for _ in range(r.randrange(1, 6))]
    return [
        r.choice(
            [
                "QKVParallelLinear",
                "RoutedExperts",
                "FusedMoE",
                "lm_head",
                "ParallelLMHead",
                "LlamaAttention",
                "Experts",
                "RowParallelLinear",
                "linear",
                "re:.*Linear",
            ]
        )
    ]


def _compressed(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    groups: JSON = {}
    forms = []
    for number in range(r.choice([1, 1, 2, 2, 3])):
        weights, acts, form = _schemes(r)
        groups[f"group_{number}"] = {
            "targets": _targets(pen),
            "weights": weights,
            "input_activations": acts,
            "output_activations": None,
        }
        if r.random() < 0.7:
            groups[f"group_{number}"]["format"] = form
        forms.append(form)
    block: JSON = {
        "quant_method": r.choice(["compressed-tensors", "compressed_tensors"]),
        "format": forms[0] if len(forms) == 1 or r.random() < 0.3 else "mixed-precision",
        "config_groups": groups,
        "ignore": pen.exclusions(),
        "quantization_status": "compressed",
    }
    if r.random() < 0.03:
        block.pop("ignore")
    return block, None


def _gptq(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    block: JSON = {
        "quant_method": r.choice(["gptq", "gptq", "gptq_marlin", "auto_gptq"]),
        "bits": r.choice([4, 4, 8, 3]),
        "group_size": r.choice([128, 64, 32, -1, 16]),
        "desc_act": r.random() < 0.1,
        "sym": r.random() < 0.93,
    }
    if r.random() < 0.5:
        dynamic: JSON = {}
        for _ in range(r.randrange(1, 4)):
            pattern = r.choice(["-:", "+:", ""]) + r.choice(
                [
                    ".*" + pen.name().rpartition(".")[2],
                    ".*layers\\.1\\..*",
                    pen.name(),
                    ".*experts.*",
                    "lm_head",
                    "model.*",
                ]
            )
            dynamic[pattern] = r.choice(
                [
                    {},
                    {"bits": 8},
                    {"bits": 8, "group_size": 64},
                    {"bits": 4},
                    {"group_size": 32},
                    {"desc_act": False},
                    {"sym": True},
                ]
            )
        block["dynamic"] = dynamic
    if r.random() < 0.3:
        names = [pen.layer() for _ in range(r.randrange(1, 5))]
        block["modules_in_block_to_quantize"] = r.choice(
            [names, [names], [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp"]]]
        )
    if r.random() < 0.2:
        block["lm_head"] = r.random() < 0.8
    return block, None


def _awq(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    block: JSON = {
        "quant_method": "awq",
        "bits": r.choice([4, 4, 4, 8]),
        "group_size": r.choice([128, 64, 32, 16]),
        "zero_point": r.random() < 0.9,
        "version": "gemm",
    }
    if r.random() < 0.7:
        block["modules_to_not_convert"] = r.choice(
            [
                [pen.layer() for _ in range(r.randrange(0, 4))],
                ["visual"],
                None,
                ["mlp.gate.", "gate"],
                ["self_attn"],
                [pen.name()],
            ]
        )
    if r.random() < 0.2:
        block["lm_head"] = True
    return block, None


def _tensor(r: random.Random) -> tuple[Any, Any]:
    fp8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "symmetric": None, "group_size": None}
    channel = {**fp8, "qscheme": "per_channel", "ch_axis": 0}
    mx = {
        "dtype": r.choice(["fp4", "fp4", "fp6_e3m2", "fp8_e4m3"]),
        "qscheme": "per_group",
        "group_size": 32,
        "scale_format": "e8m0",
        "is_dynamic": False,
    }
    int8 = {"dtype": "int8", "qscheme": r.choice(["per_tensor", "per_channel"]), "is_dynamic": False, "symmetric": True}
    int4 = {
        "dtype": r.choice(["int4", "uint4"]),
        "qscheme": "per_group",
        "group_size": 128,
        "symmetric": r.random() < 0.7,
        "is_dynamic": False,
    }
    block = {
        "dtype": "fp8_e4m3",
        "qscheme": "per_block",
        "block_size": [128, 128],
        "symmetric": True,
        "is_dynamic": False,
    }
    choices: list[tuple[Any, Any]] = [
        (fp8, fp8),
        (fp8, {**fp8, "is_dynamic": True}),
        (channel, {**channel, "is_dynamic": True}),
        (channel, fp8),
        (mx, None),
        (mx, {**mx, "is_dynamic": True}),
        ({**mx, "dtype": "fp4"}, {**fp8, "symmetric": True}),
        (int8, {**int8, "qscheme": "per_tensor"}),
        (int8, {**int8, "qscheme": "per_channel", "is_dynamic": True}),
        (int4, None),
        (
            block,
            {"dtype": "fp8_e4m3", "qscheme": "per_group", "group_size": 128, "symmetric": True, "is_dynamic": True},
        ),
        (fp8, None),
    ]
    return r.choice(choices)


def _quark_config(r: random.Random) -> JSON:
    weight, acts = _tensor(r)
    return {"weight": weight, "input_tensors": acts, "output_tensors": None, "bias": None}


def _quark(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    layers: JSON = {}
    for _ in range(r.choice([0, 1, 2, 3])):
        layers[
            r.choice(
                ["*self_attn*", "*experts*", "*" + pen.name().rpartition(".")[2], pen.name(), "*.mlp.*", "*q_proj"]
            )
        ] = _quark_config(r)
    excluded = [e for e in pen.exclusions() if r.random() < 0.8]
    block: JSON = {
        "quant_method": "quark",
        "global_quant_config": _quark_config(r),
        "layer_quant_config": layers,
        "layer_type_quant_config": {},
        "exclude": excluded,
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
    }
    if r.random() < 0.04:
        block.pop(r.choice(["export", "exclude", "layer_type_quant_config"]))
    return block, None


def _auto_round(pen: Pen) -> tuple[JSON, JSON | None]:
    r = pen.rng
    block: JSON = {
        "quant_method": r.choice(["auto-round", "inc"]),
        "bits": r.choice([4, 4, 8, 2]),
        "group_size": r.choice([128, 32, 64]),
        "sym": r.random() < 0.9,
        "packing_format": r.choice(["auto_round:auto_gptq", "auto_round:auto_gptq", "auto_round:auto_awq", None]),
    }
    kind = r.random()
    if kind < 0.15:
        block.update(
            bits=r.choice([4, 8]),
            group_size=32,
            data_type="mx_fp",
            packing_format="auto_round:llm_compressor",
            sym=True,
        )
    elif kind < 0.25:
        block.update(bits=8, group_size=[128, 128], data_type="fp", packing_format="auto_round:fp8", sym=True)
    if block["packing_format"] is None:
        block.pop("packing_format")
    if r.random() < 0.7:
        extra: JSON = {}
        for _ in range(r.randrange(0, 5)):
            key = r.choice(
                [pen.name(), pen.name(), pen.layer(), ".*" + pen.name().rpartition(".")[2], "lm_head", ".*self_attn.*"]
            )
            extra[key] = r.choice(
                [{"bits": 16, "data_type": "float"}, {"bits": 8}, {"bits": 16}, {"bits": 4, "group_size": 32}]
            )
        if pen.base.shards and r.random() < 0.4:
            parent = r.choice(pen.base.shards).rpartition(".")[0]
            extra.update({s: {"bits": 16} for s in pen.base.shards if s.rpartition(".")[0] == parent})
        block["extra_config"] = extra
    if r.random() < 0.25:
        block["block_name_to_quantize"] = r.choice(
            [
                "model.layers",
                "model.language_model.layers,model.layers.0",
                ["model.layers.1"],
                "language_model.model.layers",
            ]
        )
    return block, None


def _other(pen: Pen) -> tuple[Any, Any]:
    r = pen.rng
    mxfp8 = {
        "quant_method": "mxfp8",
        r.choice(["ignored_layers", "ignored_layers", "modules_to_not_convert", "ignore"]): pen.exclusions(),
    }
    choices: list[Callable[[], tuple[Any, Any]]] = [
        lambda: (
            {"quant_method": r.choice(["mxfp4", "gpt_oss_mxfp4"]), "modules_to_not_convert": pen.exclusions()},
            None,
        ),
        lambda: (mxfp8, None),
        lambda: (
            {
                "quant_method": r.choice(
                    [
                        "bitsandbytes",
                        "fbgemm_fp8",
                        "fp_quant",
                        "torchao",
                        "online",
                        "fp8_per_tensor",
                        "moe_wna16",
                        "marlin",
                        "hqq",
                        "experts_int8",
                        "MLX",
                    ]
                )
            },
            None,
        ),
        lambda: (
            r.choice([{}, None, {"quant_algo": "FP8"}, {"quant_method": ""}, {"group_size": 64, "bits": 4}]),
            r.choice([None, None, {"quantization": {"quant_algo": "FP8"}}]),
        ),
        lambda: (
            {
                "quant_method": "modelopt",
                "quant_algo": r.choice(["NVFP4", "FP8"]),
                "ignore": r.choice([None, "lm_head", {}, [None], [1]]),
            },
            None,
        ),
        lambda: (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "group_size": r.choice(["16", 16.0, "x", [16], None]),
                "ignore": [],
            },
            None,
        ),
        lambda: ({"quant_method": r.choice([None, 4, ["fp8"]]), "activation_scheme": "dynamic"}, None),
        lambda: (
            {
                "quant_method": "fp8",
                "quant_algo": "MIXED_PRECISION",
                "activation_scheme": "dynamic",
                "weight_block_size": [128, 128],
                "quantized_layers": _listing(pen),
                "ignore": pen.exclusions(),
            },
            None,
        ),
        lambda: (
            {
                "quant_method": "modelopt_mixed",
                "quant_algo": r.choice(["MIXED_PRECISION", "FP8_PB_WO"]),
                "quantized_layers": _listing(pen),
            },
            None,
        ),
        lambda: (
            {
                "producer": r.choice([None, "modelopt", {"name": "other"}]),
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "ignore": [],
            },
            None,
        ),
    ]
    return r.choice(choices)()


_KINDS: list[tuple[str, int, Callable[[Pen], tuple[Any, Any]]]] = [
    ("mixed", 18, _mixed),
    ("uniform", 16, _uniform),
    ("fp8", 12, _fp8),
    ("compressed", 28, _compressed),
    ("gptq", 8, _gptq),
    ("awq", 5, _awq),
    ("quark", 7, _quark),
    ("auto_round", 6, _auto_round),
    ("other", 10, _other),
]


def case(seed: int, kind: str | None = None, base: str | None = None) -> tuple[str, JSON, JSON | None]:
    """Return a label, config.json and hf_quant_config.json (or None) of one generated checkpoint."""
    rng = random.Random(seed)
    drawn = rng.choice(sorted(bases()))
    model = bases()[base or drawn]
    names = [k for k, _, _ in _KINDS]
    chosen = kind or rng.choices(names, [w for _, w, _ in _KINDS])[0]
    make = next(f for k, _, f in _KINDS if k == chosen)
    inside, beside = make(Pen(model, rng))
    config = json.loads(json.dumps(model.config))
    if inside is not None or rng.random() < 0.3:
        nested = isinstance(config.get("text_config"), dict) and beside is None and rng.random() < 0.08
        place = config["text_config"] if nested else config
        place["quantization_config" if rng.random() < 0.97 else "compression_config"] = inside
    return f"{seed:06d}-{model.name}-{chosen}", config, beside


# --- files ------------------------------------------------------------------------

_KINDS_OF_MODULES = ("linear", "experts", "lm_head", "embed")
# Failures of the stand-ins that replace kernels when vLLM runs without a GPU, and of packages that are not there.
_NOT_THE_ENGINES = (
    "STUB",
    "per-layer attribute",
    "fp8_ds_mla",
    "No module named",
    "AssertionError: ",
    "'jit' object",
    "has no attribute 'output_size'",
)


def write(folder: Path, first: int, end: int, kind: str | None = None) -> None:
    """Write generated checkpoints as folders."""
    for seed in range(first, end):
        name, config, beside = case(seed, kind)
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config))
        if beside is not None:
            (folder / name / "hf_quant_config.json").write_text(json.dumps(beside))


def _unsaid(module: JSON, version: str) -> bool:
    """Whether the oracle's word for a module says less than the method.

    So it is for quantized embeddings, for experts of Quark's FP8, and for NVFP4 experts of the oldest release.
    """
    method = module["method"]
    return (
        (module["kind"] == "embed" and module["algo"] != "bf16")
        or method == "QuarkW8A8Fp8MoEMethod"
        or (method == "CompressedTensorsW4A4Nvfp4MoEMethod" and version.startswith("0.24"))
    )


def _answer(folder: Path, words: set[str], version: str) -> JSON | None:
    """Return a row of the collection, or None where the answer is not vLLM's own or not comparable."""
    golden = json.loads(gzip.decompress((folder / "golden.json.gz").read_bytes()))
    files = {p.name: json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))}
    row = {"case": folder.name, "files": files}
    if "error" in golden:
        if any(text in golden["error"] for text in _NOT_THE_ENGINES):
            return None
        return {**row, "error": golden["error"][:160]}
    # Before 0.31, GPTQ asks the weight files which layers are quantized, and there are none here.
    if "-gptq" in folder.name and all(m["algo"] == "bf16" for m in golden["modules"].values() if m["kind"] == "linear"):
        return None
    kept = {p: m for p, m in golden["modules"].items() if m["kind"] in _KINDS_OF_MODULES and "#" not in p}
    known = {p: m["algo"] for p, m in kept.items() if m["algo"] in words and not _unsaid(m, version)}
    return {**row, "modules": known}


def pack(out: Path, sources: list[str]) -> None:
    """Collect answered checkpoints in one file: sources are ``FOLDER:VERSION:COUNT``."""
    from bitlane.resolver.vocabulary import Vocabulary

    words = set(Vocabulary(library.find(), ()).algorithms)
    lines = []
    for source in sources:
        folder, version, count = source.split(":")
        answered = sorted(p.parent for p in Path(folder).glob("*/golden.json.gz"))
        rows = [row for p in answered if (row := _answer(p, words, version)) is not None]
        lines += [json.dumps({"vllm": version, **r}, separators=(",", ":")) for r in rows[: int(count)]]
    out.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


def read(path: Path) -> list[JSON]:
    """Return the rows of such a file."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:6])
    else:
        pack(Path(sys.argv[2]), sys.argv[3:])
