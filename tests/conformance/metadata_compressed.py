"""Generated metadata of compressed-tensors: schemes, targets and ignored modules in every spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from names import words

if TYPE_CHECKING:
    import random

    from names import Pen

JSON = dict[str, Any]


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
        (
            args(8, "float", "group", group_size=32),
            args(8, "float", "group", group_size=32, dynamic=True),
            "float-quantized",
        ),
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
            side.update(
                {
                    k: None
                    for k in ("actorder", "zp_dtype", "scale_dtype", "group_size", "block_structure")
                    if k not in side
                }
            )
            side.update(observer="minmax", observer_kwargs={})
    return weights, acts, form


_CLASSES = words(r"""
Linear QKVParallelLinear MergedColumnParallelLinear RowParallelLinear ColumnParallelLinear RoutedExperts FusedMoE
MoE Experts ReplicatedLinear lm_head ParallelLMHead LlamaAttention Attention linear Parallel Embedding re:.*Linear
GateLinear LinearBase
""")


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
        block.update(
            r.choice(
                (
                    {"ignore": None},
                    {"ignore": "lm_head"},
                    {"config_groups": {}},
                    {"format": None},
                    {"config_groups": None},
                    {"sparsity_config": {}},
                    {"sparsity_config": {"format": "dense", "targets": []}},
                )
            )
        )
    if r.random() < 0.04:
        block.pop(r.choice(("format", "ignore", "quantization_status", "config_groups")))
    return block, None
