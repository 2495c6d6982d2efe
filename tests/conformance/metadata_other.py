"""Generated metadata of fp8 and the MX formats, of methods that engines refuse, and blocks that are no blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import metadata_compressed as compressed
import metadata_modelopt as modelopt
from names import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from names import Pen

JSON = dict[str, Any]
_V4_IGNORED = (
    ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"],
    ["*.ffn.experts*"],
    ["layers.0.ffn.experts.*"],
)
_METHODS = words(r"""
bitsandbytes fbgemm_fp8 fp_quant torchao online fp8_per_tensor moe_wna16 marlin hqq experts_int8 MLX gguf tpu_int8
ptpc_fp8 ipex humming bitnet eetq vptq aqlm higgs spqr sinq deepspeedfp neuron_quant qqq gptq_marlin_24 petit_nvfp4
cpu_awq turboquant mxfp4_moe deepseek_v4_fp8 modelopt_fp8 modelopt_foo nvfp4 int8 w8a8_fp8 w8a8_int8
""")


def fp8(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """The format of DeepSeek and Qwen: blocks or one scale, two spellings of the list."""
    r = pen.rng
    block: JSON = {
        "quant_method": "fp8" if r.random() < 0.93 else "FP8",
        "activation_scheme": r.choice(("dynamic",) * 4 + ("static",)),
        "fmt": "e4m3",
    }
    if r.random() < 0.6:
        block["weight_block_size"] = r.choice(
            ([128, 128],) * 8 + ([64, 64], [32, 32], [128], None, [128, 64], 128, [0, 0])
        )
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
            block.update(
                quant_algo="MIXED_PRECISION",
                moe_quant_algo=r.choice(("NVFP4", "NVFP4", "nvfp4", "FP8")),
                group_size=16,
                ignore=list(r.choice((*_V4_IGNORED, pen.exclusions()))),
            )
            block["quantized_layers"] = {e: {"quant_algo": "NVFP4", "group_size": 16} for e in pen.names.experts}
    elif r.random() < 0.06:
        block.update(quant_algo="MIXED_PRECISION", quantized_layers=modelopt.listing(pen))
    return block, None


def mxfp(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """MXFP4 and MXFP8 under their own tags."""
    r = pen.rng
    key = r.choice(("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules"))
    block: JSON = {
        "quant_method": r.choice(("mxfp4", "mxfp4", "mxfp8", "mxfp8", "gpt_oss_mxfp4", "modelopt_mxfp8")),
        key: pen.exclusions(),
    }
    if r.random() < 0.1:
        block["quant_algo"] = r.choice(("MXFP8", "MXFP4", "FP8"))
    return block, None


def misc(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """Other methods, methods that left the engine, and blocks that are no block."""
    r = pen.rng
    choices: tuple[Callable[[], tuple[Any, Any]], ...] = (
        lambda: ({"quant_method": r.choice(_METHODS)}, None),
        lambda: ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, None),
        lambda: (
            {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": pen.exclusions()},
            None,
        ),
        lambda: (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8WeightOnlyConfig", "_data": {}}}},
            None,
        ),
        lambda: (
            r.choice(
                (
                    {},
                    {"quant_algo": "FP8"},
                    {"quant_method": ""},
                    {"group_size": 64, "bits": 4},
                    {"quant_algo": "NVFP4", "ignore": ["lm_head"], "group_size": 16},
                )
            ),
            r.choice((None, None, {"quantization": {"quant_algo": "FP8"}})),
        ),
        lambda: (
            {
                "quant_method": "modelopt",
                "quant_algo": r.choice(("NVFP4", "FP8", "MIXED_PRECISION")),
                "ignore": r.choice((None, "lm_head", {}, [None], [1], [["lm_head"]], 0, False)),
                "group_size": 16,
                "quantized_layers": {"lm_head": {"quant_algo": "FP8"}},
            },
            None,
        ),
        lambda: (
            {
                "quant_method": "modelopt",
                "quant_algo": r.choice(("NVFP4", "FP8")),
                "group_size": r.choice(("16", 16.0, "x", [16], None, 32, 0)),
                "ignore": [],
            },
            None,
        ),
        lambda: (
            {
                "quant_method": r.choice((None, 4, ["fp8"], True, {})),
                "activation_scheme": "dynamic",
                "quant_algo": "FP8",
            },
            None,
        ),
        lambda: ({"quant_method": "modelopt", "quant_algo": r.choice((None, 8, ["FP8"], "", "mixed_precision"))}, None),
        lambda: (
            {"quant_method": "modelopt"},
            r.choice(
                (None, {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": []}})
            ),
        ),
        lambda: (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": r.choice(
                    ([], "x", None, {}, ["a"], {"a": None}, {"a": "FP8"}, {"lm_head": {"quant_algo": 8}})
                ),
            },
            None,
        ),
        lambda: (
            {
                "quant_method": "modelopt_mixed",
                "quant_algo": r.choice(("MIXED_PRECISION", "FP8_PB_WO", "FP8")),
                "quantized_layers": modelopt.listing(pen),
            },
            None,
        ),
        lambda: (
            {
                "producer": r.choice((None, "modelopt", {"name": "other"}, {"name": "modelopt"}, [])),
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "ignore": [],
            },
            None,
        ),
        lambda: (
            None,
            r.choice(
                (
                    {},
                    {"quantization": {}},
                    {"quantization": None},
                    {"producer": {"name": "modelopt"}},
                    {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": None}},
                    {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}, "quant_method": "modelopt"},
                    {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []},
                    {"quant_method": "fp8", "activation_scheme": "dynamic"},
                )
            ),
        ),
        lambda: (
            {
                "quant_method": "compressed-tensors",
                "config_groups": r.choice(
                    (
                        {"g": {"targets": ["Linear"], "weights": None}},
                        {"g": {"targets": "Linear", "weights": compressed.args(8, "float", "channel")}},
                        {"FP8": ["Linear"]},
                        {"NVFP4": ["re:.*mlp.*"]},
                        {"W4A16": ["Linear"]},
                    )
                ),
                "format": "float-quantized",
                "ignore": [],
            },
            None,
        ),
        lambda: ({"quant_method": "mxfp8", "quant_algo": "MXFP8", "ignore": pen.exclusions()}, None),
        lambda: (
            {
                "quant_method": "awq",
                "bits": 4,
                "group_size": 128,
                "zero_point": True,
                "modules_to_not_convert": r.choice((["visual"], "visual", None, [None])),
            },
            None,
        ),
        lambda: (
            {"quant_method": "fp8", "activation_scheme": r.choice(("Dynamic", None, "token", 1)), "ignored_layers": []},
            None,
        ),
    )
    return r.choice(choices)()
