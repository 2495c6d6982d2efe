"""Generated metadata of GPTQ, AWQ, Quark and AutoRound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from names import Pen

JSON = dict[str, Any]


def gptq(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """GPTQ with and without ``dynamic``."""
    r = pen.rng
    block: JSON = {
        "quant_method": r.choice(("gptq",) * 5 + ("gptq_marlin", "auto_gptq")),
        "bits": r.choice((4,) * 5 + (8, 8, 3, 2)),
        "group_size": r.choice((128,) * 5 + (64, 32, -1, 16)),
        "desc_act": r.random() < 0.08,
        "sym": r.random() < 0.94,
    }
    if r.random() < 0.55:
        dynamic: JSON = {}
        for _ in range(r.randrange(1, 4)):
            name = pen.name()
            pattern = r.choice(("-:", "-:", "+:", "")) + r.choice(
                (
                    ".*" + name.rpartition(".")[2] + ".*",
                    ".*layers\\.1\\..*",
                    name,
                    ".*experts.*",
                    ".*self_attn.*",
                    "lm_head",
                    "model.*",
                    ".*mlp\\..*",
                    ".*" + name.rpartition(".")[2] + "$",
                )
            )
            dynamic[pattern] = r.choice(
                (
                    {},
                    {"bits": 8},
                    {"bits": 8, "group_size": 64},
                    {"bits": 4},
                    {"group_size": 32},
                    {"desc_act": False},
                    {"sym": True},
                    {"bits": 3},
                    {"group_size": 16},
                )
            )
        block["dynamic"] = dynamic
    if r.random() < 0.15:
        names = [pen.odd(pen.name()) for _ in range(r.randrange(1, 5))]
        block["modules_in_block_to_quantize"] = r.choice(
            (
                names,
                [names],
                [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp"]],
                [["self_attn.k_proj"]],
            )
        )
    if r.random() < 0.3:
        block["lm_head"] = r.random() < 0.8
    if r.random() < 0.04:
        block.pop(r.choice(("bits", "group_size", "desc_act", "sym")))
    return block, None


def awq(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """AWQ; its list is looked for anywhere in a name."""
    r = pen.rng
    block: JSON = {
        "quant_method": r.choice(("awq",) * 5 + ("awq_marlin", "auto_awq")),
        "bits": r.choice((4,) * 8 + (8,)),
        "group_size": r.choice((128,) * 6 + (64, 32, -1)),
        "zero_point": r.random() < 0.9,
        "version": r.choice(("gemm", "GEMM", "gemv")),
    }
    if r.random() < 0.7:
        block["modules_to_not_convert"] = pen.exclusions() if r.random() < 0.9 else r.choice((None, [], ["visual"]))
    if r.random() < 0.15:
        block["lm_head"] = r.random() < 0.8
    if r.random() < 0.06:
        block["w_bit"] = block.pop("bits")
    return block, None


def _tensor(r: random.Random) -> tuple[Any, Any]:
    base = {
        "is_dynamic": False,
        "symmetric": None,
        "group_size": None,
        "ch_axis": None,
        "observer_cls": "PerTensorMinMaxObserver",
    }
    fp = {**base, "dtype": "fp8_e4m3", "qscheme": "per_tensor"}
    row = {**fp, "qscheme": "per_channel", "ch_axis": 0}
    int8 = {**base, "dtype": "int8", "qscheme": "per_channel", "symmetric": True, "ch_axis": 0}
    mx4 = {**base, "dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    mx6 = {**mx4, "dtype": r.choice(("fp6_e3m2", "fp6_e2m3"))}
    mx8 = {**mx4, "dtype": "fp8_e4m3"}
    int4 = {
        **base,
        "dtype": r.choice(("int4", "uint4")),
        "qscheme": "per_group",
        "group_size": r.choice((32, 128)),
        "symmetric": True,
    }
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
        (
            block,
            {
                **base,
                "dtype": "fp8_e4m3",
                "qscheme": "per_group",
                "group_size": 128,
                "symmetric": True,
                "is_dynamic": True,
            },
        ),
        ([nv, fp], [{**nv, "is_dynamic": True}, fp]),
        (
            [fp, {**base, "dtype": "int4", "qscheme": "per_channel", "symmetric": True, "ch_axis": 0}],
            {**fp, "is_dynamic": True},
        ),
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
        key = r.choice(
            (
                "*self_attn*",
                "*experts*",
                "*" + name.rpartition(".")[2],
                name,
                "*.mlp.*",
                "*q_proj",
                "*layers.1.*",
                pen.odd(name),
                "*o_proj",
            )
        )
        layers[key] = quark_scheme(r)
    block: JSON = {
        "quant_method": "quark",
        "export": {
            "kv_cache_group": [],
            "pack_method": r.choice(("reorder", "order")),
            "weight_format": "real_quantized",
        },
        "global_quant_config": quark_scheme(r),
        "layer_quant_config": layers,
        "layer_type_quant_config": {} if r.random() < 0.95 else {"Linear": quark_scheme(r)},
        "exclude": pen.exclusions(),
    }
    if r.random() < 0.3:
        _kv_cache(block, r)
    if r.random() < 0.05:
        block.pop(
            r.choice(("export", "exclude", "layer_type_quant_config", "global_quant_config", "layer_quant_config"))
        )
    return block, None


def _kv_cache(block: JSON, r: random.Random) -> None:
    """Add the KV cache as exports do: as the output of the layers that write it."""
    out = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "symmetric": True}
    names = r.choice(
        (["*k_proj", "*v_proj"], ["*k_proj", "*v_proj"], ["*kv_b_proj"], ["*v_proj"], ["*q_proj", "*k_proj", "*v_proj"])
    )
    block["export"]["kv_cache_group"] = names if r.random() < 0.9 else ["*proj"]
    for name in names:
        other = {**out, "qscheme": "per_channel"}
        chosen = quark_scheme(r) if r.random() < 0.1 else block["global_quant_config"]
        block["layer_quant_config"][name] = {**chosen, "output_tensors": r.choice((out,) * 12 + (None, other))}
    if r.random() < 0.2:
        block["layer_quant_config"]["*q_proj"] = {
            **block["global_quant_config"],
            "output_tensors": r.choice((out, None)),
        }


def auto_round(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """AutoRound under both of its tags."""
    r = pen.rng
    block: JSON = {
        "quant_method": r.choice(("auto-round", "auto-round", "inc")),
        "bits": r.choice((4, 4, 4, 8, 2)),
        "group_size": r.choice((128, 128, 64, 32)),
        "sym": r.random() < 0.92,
        "data_type": "int",
        "packing_format": r.choice(("auto_round:auto_gptq",) * 3 + ("auto_round:auto_awq",)),
    }
    draw = r.random()
    if draw < 0.12:
        block.update(
            bits=r.choice((4, 8)),
            group_size=32,
            data_type="mx_fp",
            packing_format="auto_round:llm_compressor",
            sym=True,
        )
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
                extra[each] = r.choice(
                    ({"bits": 16, "data_type": "float"}, {"bits": 8}, {"bits": 16}, {"bits": 4, "group_size": 32})
                )
        block["extra_config"] = extra
    if r.random() < 0.25:
        block["block_name_to_quantize"] = r.choice(
            (
                "model.layers",
                "model.language_model.layers,model.layers.0",
                ["model.layers.1"],
                "language_model.model.layers",
            )
        )
    return block, None
