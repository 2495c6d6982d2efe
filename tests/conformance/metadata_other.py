"""Generated metadata of the other formats: compressed-tensors, fp8, MX, GPTQ, AWQ, Quark, AutoRound, and broken blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import metadata_modelopt as modelopt

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from names import Pen

JSON = dict[str, Any]


# --- compressed-tensors -------------------------------------------------------


def args(bits: int, kind: str, strategy: str, **more: Any) -> JSON:
    """Quantization arguments of one side of a group."""
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


def scheme(r: random.Random) -> tuple[JSON, JSON | None, str]:
    """Weights, activations and the format's name."""
    token = args(8, "float", "token", dynamic=True)
    tensor = args(8, "float", "tensor", dynamic=r.random() < 0.5)
    int_token = args(8, "int", "token", dynamic=True)
    g16 = args(4, "float", "tensor_group", group_size=16)
    g32 = args(4, "float", "group", group_size=32)
    mx8 = args(8, "float", "group", group_size=32, scale_dtype="torch.uint8")
    block = args(8, "float", "block", block_structure=r.choice(([128, 128], [128, 128], [64, 128], [32, 32])))
    choices: list[tuple[JSON, JSON | None, str]] = [
        (args(8, "float", "channel"), token, "float-quantized"),
        (args(8, "float", "channel"), token, "naive-quantized"),
        (args(8, "float", "tensor"), tensor, "float-quantized"),
        (args(8, "float", "tensor"), token, "float-quantized"),
        (args(8, "float", "channel"), tensor, "float-quantized"),
        (block, token, "float-quantized"),
        (block, args(8, "float", "group", group_size=128, dynamic=True), "float-quantized"),
        (block, None, "float-quantized"),
        (args(8, "float", "channel"), None, "float-quantized"),
        (args(8, "float", "tensor"), None, r.choice(("float-quantized", "pack-quantized", "naive-quantized"))),
        (g16, {**g16, "dynamic": "local"}, "nvfp4-pack-quantized"),
        (g16, {**g16, "dynamic": "local"}, "nvfp4-pack-quantized"),
        (g16, None, "nvfp4-pack-quantized"),
        (g16, token, "nvfp4-pack-quantized"),
        (g32, None, "mxfp4-pack-quantized"),
        (g32, token, "mxfp4-pack-quantized"),
        (g32, {**g32, "dynamic": True}, "mxfp4-pack-quantized"),
        (mx8, {**mx8, "dynamic": True}, "mxfp8-quantized"),
        (args(8, "float", "group", group_size=32), args(8, "float", "group", group_size=32, dynamic=True), "float-quantized"),
        (args(4, "int", "group", group_size=r.choice((32, 64, 128))), None, "pack-quantized"),
        (args(4, "int", "channel"), None, "pack-quantized"),
        (args(8, "int", "channel"), None, "pack-quantized"),
        (args(8, "int", "group", group_size=128), None, r.choice(("pack-quantized", "int-quantized"))),
        (args(r.choice((2, 3, 5, 6, 7)), "int", "channel"), None, "pack-quantized"),
        (args(8, "int", "channel"), int_token, "int-quantized"),
        (args(8, "int", "tensor"), args(8, "int", "tensor"), "int-quantized"),
        (args(8, "int", "channel"), args(8, "int", "tensor"), "int-quantized"),
        (args(4, "int", "group", group_size=128), token, "pack-quantized"),
        (args(4, "int", "channel"), int_token, r.choice(("int-quantized", "pack-quantized"))),
    ]
    weights, acts, form = r.choice(choices)
    if r.random() < 0.03:
        weights["symmetric"] = False
    if r.random() < 0.03:
        weights["actorder"] = r.choice(("group", "weight", "static", None))
    if r.random() < 0.03:
        weights.pop(r.choice(("strategy", "type", "symmetric", "dynamic", "num_bits")))
    if r.random() < 0.2:
        for side in (weights, acts or {}):
            side.update({k: None for k in ("actorder", "zp_dtype", "scale_dtype", "group_size", "block_structure") if k not in side})
            side.update(observer="minmax", observer_kwargs={})
    return weights, acts, form


_CLASSES = ("Linear", "QKVParallelLinear", "MergedColumnParallelLinear", "RowParallelLinear", "ColumnParallelLinear", "RoutedExperts", "FusedMoE", "MoE", "Experts", "ReplicatedLinear", "lm_head", "ParallelLMHead", "LlamaAttention", "Attention", "linear", "Parallel", "Embedding", "re:.*Linear", "GateLinear", "LinearBase")


def targets(pen: Pen) -> list[str]:
    """Targets of one group."""
    r = pen.rng
    draw = r.random()
    if draw < 0.3:
        return ["Linear"]
    if draw < 0.62:
        return [pen.regex() for _ in range(r.choice((1, 1, 1, 2, 3)))]
    if draw < 0.88:
        out = []
        for _ in range(r.randrange(1, 5)):
            name = pen.name()
            found = pen.siblings(name)
            out += found if found and r.random() < 0.6 else [name if r.random() < 0.8 else pen.odd(name)]
        if r.random() < 0.2:
            last = pen.name().rpartition(".")[2]
            out += [n for n in pen.text if n.endswith("." + last)]
        return out
    return [r.choice(_CLASSES)]


def compressed(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """compressed-tensors with one to three groups."""
    r = pen.rng
    groups: JSON = {}
    forms = []
    for number in r.sample((0, 1, 2), r.choice((1, 1, 2, 2, 3))):
        weights, acts, form = scheme(r)
        group = {"targets": targets(pen), "weights": weights, "input_activations": acts, "output_activations": None}
        if r.random() < 0.7:
            group["format"] = form
        if r.random() < 0.04:
            group.pop(r.choice(("input_activations", "output_activations", "weights", "targets")))
        groups[f"group_{number}"] = group
        forms.append(form)
    ignore = pen.exclusions()
    if r.random() < 0.5:
        ignore += [pen.regex() for _ in range(r.choice((1, 2)))]
    block: JSON = {
        "quant_method": "compressed-tensors" if r.random() < 0.75 else "compressed_tensors",
        "format": forms[0] if len(forms) == 1 or r.random() < 0.25 else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": ignore,
        "kv_cache_scheme": args(8, "float", "tensor") if r.random() < 0.1 else None,
        "global_compression_ratio": None,
    }
    if r.random() < 0.04:
        block.update(r.choice(({"ignore": None}, {"ignore": "lm_head"}, {"config_groups": {}}, {"format": None}, {"config_groups": None}, {"sparsity_config": {}}, {"sparsity_config": {"format": "dense", "targets": []}})))
    if r.random() < 0.04:
        block.pop(r.choice(("format", "ignore", "quantization_status", "config_groups")))
    return block, None


# --- fp8 and the MX formats ----------------------------------------------------


def fp8(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """The format of DeepSeek and Qwen: blocks or one scale, two spellings of the list."""
    r = pen.rng
    block: JSON = {"quant_method": "fp8" if r.random() < 0.93 else "FP8", "activation_scheme": r.choice(("dynamic",) * 4 + ("static",)), "fmt": "e4m3"}
    if r.random() < 0.6:
        block["weight_block_size"] = r.choice(([128, 128],) * 8 + ([64, 64], [32, 32], [128], None, [128, 64], 128, [0, 0]))
        if block["activation_scheme"] == "static" and r.random() < 0.8:
            block["activation_scheme"] = "dynamic"
    for key in r.sample(("modules_to_not_convert", "ignored_layers"), r.choice((0, 1, 1, 1, 1, 2))):
        block[key] = pen.exclusions() if r.random() < 0.93 else r.choice((None, [], "lm_head", {}))
    if r.random() < 0.1:
        block["ignore"] = pen.exclusions()
    if r.random() < 0.04:
        block["store_dtype"] = "mxfp4"
    if r.random() < 0.04:
        block.pop("activation_scheme")
    if config["architectures"][0].startswith("DeepseekV4") and r.random() < 0.6:
        block["scale_fmt"] = "ue8m0"
        if r.random() < 0.5:
            block.update(quant_algo="MIXED_PRECISION", moe_quant_algo=r.choice(("NVFP4", "NVFP4", "nvfp4", "FP8")), group_size=16, ignore=[e for e in r.choice((["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"], ["*.ffn.experts*"], ["layers.0.ffn.experts.*"], pen.exclusions()))])
            block["quantized_layers"] = {e: {"quant_algo": "NVFP4", "group_size": 16} for e in pen.names.experts}
    elif r.random() < 0.06:
        block.update(quant_algo="MIXED_PRECISION", quantized_layers=modelopt.listing(pen))
    return block, None


def mxfp(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """MXFP4 and MXFP8 under their own tags."""
    r = pen.rng
    key = r.choice(("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules"))
    block: JSON = {"quant_method": r.choice(("mxfp4", "mxfp4", "mxfp8", "mxfp8", "gpt_oss_mxfp4", "modelopt_mxfp8")), key: pen.exclusions()}
    if r.random() < 0.1:
        block["quant_algo"] = r.choice(("MXFP8", "MXFP4", "FP8"))
    return block, None


# --- integers -------------------------------------------------------------------


def gptq(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """GPTQ with and without ``dynamic``."""
    r = pen.rng
    block: JSON = {"quant_method": r.choice(("gptq",) * 5 + ("gptq_marlin", "auto_gptq")), "bits": r.choice((4,) * 5 + (8, 8, 3, 2)), "group_size": r.choice((128,) * 5 + (64, 32, -1, 16)), "desc_act": r.random() < 0.08, "sym": r.random() < 0.94}
    if r.random() < 0.55:
        dynamic: JSON = {}
        for _ in range(r.randrange(1, 4)):
            name = pen.name()
            pattern = r.choice(("-:", "-:", "+:", "")) + r.choice((".*" + name.rpartition(".")[2] + ".*", ".*layers\\.1\\..*", name, ".*experts.*", ".*self_attn.*", "lm_head", "model.*", ".*mlp\\..*", ".*" + name.rpartition(".")[2] + "$"))
            dynamic[pattern] = r.choice(({}, {"bits": 8}, {"bits": 8, "group_size": 64}, {"bits": 4}, {"group_size": 32}, {"desc_act": False}, {"sym": True}, {"bits": 3}, {"group_size": 16}))
        block["dynamic"] = dynamic
    if r.random() < 0.15:
        names = [pen.odd(pen.name()) for _ in range(r.randrange(1, 5))]
        block["modules_in_block_to_quantize"] = r.choice((names, [names], [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp"]], [["self_attn.k_proj"]]))
    if r.random() < 0.3:
        block["lm_head"] = r.random() < 0.8
    if r.random() < 0.04:
        block.pop(r.choice(("bits", "group_size", "desc_act", "sym")))
    return block, None


def awq(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """AWQ; its list is looked for anywhere in a name."""
    r = pen.rng
    block: JSON = {"quant_method": r.choice(("awq",) * 5 + ("awq_marlin", "auto_awq")), "bits": r.choice((4,) * 8 + (8,)), "group_size": r.choice((128,) * 6 + (64, 32, -1)), "zero_point": r.random() < 0.9, "version": r.choice(("gemm", "GEMM", "gemv"))}
    if r.random() < 0.7:
        block["modules_to_not_convert"] = pen.exclusions() if r.random() < 0.9 else r.choice((None, [], ["visual"]))
    if r.random() < 0.15:
        block["lm_head"] = r.random() < 0.8
    if r.random() < 0.06:
        block["w_bit"] = block.pop("bits")
    return block, None


def _tensor(r: random.Random) -> tuple[Any, Any]:
    base = {"is_dynamic": False, "symmetric": None, "group_size": None, "ch_axis": None, "observer_cls": "PerTensorMinMaxObserver"}
    fp = {**base, "dtype": "fp8_e4m3", "qscheme": "per_tensor"}
    row = {**fp, "qscheme": "per_channel", "ch_axis": 0}
    int8 = {**base, "dtype": "int8", "qscheme": "per_channel", "symmetric": True, "ch_axis": 0}
    mx4 = {**base, "dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    mx6 = {**mx4, "dtype": r.choice(("fp6_e3m2", "fp6_e2m3"))}
    mx8 = {**mx4, "dtype": "fp8_e4m3"}
    int4 = {**base, "dtype": r.choice(("int4", "uint4")), "qscheme": "per_group", "group_size": r.choice((32, 128)), "symmetric": True}
    nv = {**base, "dtype": "fp4", "qscheme": "per_group", "group_size": 16}
    block = {**base, "dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [128, 128], "symmetric": True}
    choices: tuple[tuple[Any, Any], ...] = (
        (fp, fp),
        (fp, fp),
        (fp, {**fp, "is_dynamic": True}),
        (row, {**fp, "qscheme": "per_channel", "is_dynamic": True, "ch_axis": 1}),
        (row, fp),
        ([fp], [fp]),
        (mx4, {**mx4, "is_dynamic": True}),
        (mx4, None),
        (mx4, {**mx8, "is_dynamic": True}),
        (mx4, {**fp, "symmetric": True}),
        (mx6, {**mx6, "is_dynamic": True}),
        (mx8, {**mx8, "is_dynamic": True}),
        (int8, {**int8, "qscheme": "per_tensor"}),
        (int8, {**int8, "is_dynamic": True}),
        (int4, None),
        (block, {**base, "dtype": "fp8_e4m3", "qscheme": "per_group", "group_size": 128, "symmetric": True, "is_dynamic": True}),
        ([nv, fp], [{**nv, "is_dynamic": True}, fp]),
        ([fp, {**base, "dtype": "int4", "qscheme": "per_channel", "symmetric": True, "ch_axis": 0}], {**fp, "is_dynamic": True}),
        (fp, None),
        (None, None),
    )
    return r.choice(choices)


def quark_scheme(r: random.Random) -> JSON:
    """One of Quark's layer configurations."""
    weight, acts = _tensor(r)
    return {"weight": weight, "input_tensors": acts, "output_tensors": None, "bias": None, "target_device": None}


def quark(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """Quark: a global configuration, patterns over it, exclusions."""
    r = pen.rng
    layers: JSON = {}
    for _ in range(r.choice((0, 0, 1, 1, 2, 3))):
        name = pen.name()
        key = r.choice(("*self_attn*", "*experts*", "*" + name.rpartition(".")[2], name, "*.mlp.*", "*q_proj", "*layers.1.*", pen.odd(name), "*o_proj"))
        layers[key] = quark_scheme(r)
    block: JSON = {
        "quant_method": "quark",
        "export": {"kv_cache_group": [], "pack_method": r.choice(("reorder", "order")), "weight_format": "real_quantized"},
        "global_quant_config": quark_scheme(r),
        "layer_quant_config": layers,
        "layer_type_quant_config": {} if r.random() < 0.95 else {"Linear": quark_scheme(r)},
        "exclude": pen.exclusions(),
    }
    if r.random() < 0.3:
        _kv_cache(block, r)
    if r.random() < 0.05:
        block.pop(r.choice(("export", "exclude", "layer_type_quant_config", "global_quant_config", "layer_quant_config")))
    return block, None


def _kv_cache(block: JSON, r: random.Random) -> None:
    """Add the KV cache as exports do: as the output of the layers that write it."""
    out = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "symmetric": True}
    names = r.choice((["*k_proj", "*v_proj"], ["*k_proj", "*v_proj"], ["*kv_b_proj"], ["*v_proj"], ["*q_proj", "*k_proj", "*v_proj"]))
    block["export"]["kv_cache_group"] = names if r.random() < 0.9 else ["*proj"]
    for name in names:
        other = {**out, "qscheme": "per_channel"}
        chosen = quark_scheme(r) if r.random() < 0.1 else block["global_quant_config"]
        block["layer_quant_config"][name] = {**chosen, "output_tensors": r.choice((out,) * 12 + (None, other))}
    if r.random() < 0.2:
        block["layer_quant_config"]["*q_proj"] = {**block["global_quant_config"], "output_tensors": r.choice((out, None))}


def auto_round(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """AutoRound under both of its tags."""
    r = pen.rng
    block: JSON = {"quant_method": r.choice(("auto-round", "auto-round", "inc")), "bits": r.choice((4, 4, 4, 8, 2)), "group_size": r.choice((128, 128, 64, 32)), "sym": r.random() < 0.92, "data_type": "int", "packing_format": r.choice(("auto_round:auto_gptq",) * 3 + ("auto_round:auto_awq",))}
    draw = r.random()
    if draw < 0.12:
        block.update(bits=r.choice((4, 8)), group_size=32, data_type="mx_fp", packing_format="auto_round:llm_compressor", sym=True)
    elif draw < 0.2:
        block.update(bits=8, group_size=[128, 128], data_type="fp", packing_format="auto_round:fp8", sym=True)
    elif draw < 0.26:
        block.pop("packing_format")
    if r.random() < 0.6:
        extra: JSON = {}
        for _ in range(r.randrange(0, 5)):
            name = pen.name()
            key = r.choice((name, name, pen.odd(name), ".*" + name.rpartition(".")[2], "lm_head", ".*self_attn.*"))
            for each in pen.siblings(name) if key == name and r.random() < 0.5 else [key]:
                extra[each] = r.choice(({"bits": 16, "data_type": "float"}, {"bits": 8}, {"bits": 16}, {"bits": 4, "group_size": 32}))
        block["extra_config"] = extra
    if r.random() < 0.25:
        block["block_name_to_quantize"] = r.choice(("model.layers", "model.language_model.layers,model.layers.0", ["model.layers.1"], "language_model.model.layers"))
    return block, None


# --- what no format owns ---------------------------------------------------------


def misc(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """Other methods, methods that left the engine, and blocks that are no block."""
    r = pen.rng
    choices: tuple[Callable[[], tuple[Any, Any]], ...] = (
        lambda: ({"quant_method": r.choice(("bitsandbytes", "fbgemm_fp8", "fp_quant", "torchao", "online", "fp8_per_tensor", "moe_wna16", "marlin", "hqq", "experts_int8", "MLX", "gguf", "tpu_int8", "ptpc_fp8", "ipex", "humming", "bitnet", "eetq", "vptq", "aqlm", "higgs", "spqr", "sinq", "deepspeedfp", "neuron_quant", "qqq", "gptq_marlin_24", "petit_nvfp4", "cpu_awq", "turboquant", "mxfp4_moe", "deepseek_v4_fp8", "modelopt_fp8", "modelopt_foo", "nvfp4", "int8", "w8a8_fp8", "w8a8_int8"))}, None),
        lambda: ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, None),
        lambda: ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": pen.exclusions()}, None),
        lambda: ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8WeightOnlyConfig", "_data": {}}}}, None),
        lambda: (r.choice(({}, {"quant_algo": "FP8"}, {"quant_method": ""}, {"group_size": 64, "bits": 4}, {"quant_algo": "NVFP4", "ignore": ["lm_head"], "group_size": 16})), r.choice((None, None, {"quantization": {"quant_algo": "FP8"}}))),
        lambda: ({"quant_method": "modelopt", "quant_algo": r.choice(("NVFP4", "FP8", "MIXED_PRECISION")), "ignore": r.choice((None, "lm_head", {}, [None], [1], [["lm_head"]], 0, False)), "group_size": 16, "quantized_layers": {"lm_head": {"quant_algo": "FP8"}}}, None),
        lambda: ({"quant_method": "modelopt", "quant_algo": r.choice(("NVFP4", "FP8")), "group_size": r.choice(("16", 16.0, "x", [16], None, 32, 0)), "ignore": []}, None),
        lambda: ({"quant_method": r.choice((None, 4, ["fp8"], True, {})), "activation_scheme": "dynamic", "quant_algo": "FP8"}, None),
        lambda: ({"quant_method": "modelopt", "quant_algo": r.choice((None, 8, ["FP8"], "", "mixed_precision"))}, None),
        lambda: ({"quant_method": "modelopt"}, r.choice((None, {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": []}}))),
        lambda: ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": r.choice(([], "x", None, {}, ["a"], {"a": None}, {"a": "FP8"}, {"lm_head": {"quant_algo": 8}}))}, None),
        lambda: ({"quant_method": "modelopt_mixed", "quant_algo": r.choice(("MIXED_PRECISION", "FP8_PB_WO", "FP8")), "quantized_layers": modelopt.listing(pen)}, None),
        lambda: ({"producer": r.choice((None, "modelopt", {"name": "other"}, {"name": "modelopt"}, [])), "quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}, None),
        lambda: (None, r.choice(({}, {"quantization": {}}, {"quantization": None}, {"producer": {"name": "modelopt"}}, {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": None}}, {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}, "quant_method": "modelopt"}, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}, {"quant_method": "fp8", "activation_scheme": "dynamic"}))),
        lambda: ({"quant_method": "compressed-tensors", "config_groups": r.choice(({"g": {"targets": ["Linear"], "weights": None}}, {"g": {"targets": "Linear", "weights": args(8, "float", "channel")}}, {"FP8": ["Linear"]}, {"NVFP4": ["re:.*mlp.*"]}, {"W4A16": ["Linear"]})), "format": "float-quantized", "ignore": []}, None),
        lambda: ({"quant_method": "mxfp8", "quant_algo": "MXFP8", "ignore": pen.exclusions()}, None),
        lambda: ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": r.choice((["visual"], "visual", None, [None]))}, None),
        lambda: ({"quant_method": "fp8", "activation_scheme": r.choice(("Dynamic", None, "token", 1)), "ignored_layers": []}, None),
    )
    return r.choice(choices)()
