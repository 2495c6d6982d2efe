"""From tensors to algorithms: every exporter's layout, by hand, and what does not fit."""

from __future__ import annotations

import pytest
from storing import Stored, awq, gptq, matrix

from bitlane.resolver.forms import Form, form
from bitlane.resolver.headers import Tensor
from bitlane.resolver.storage import by_module, signature, split

BLOCK = (128, 128)


def read(stored: Stored, name: str = "m", into: int = 0, block: tuple[int, int] = (0, 0), bare: bool = False) -> Form:
    tensors = [Tensor(n) if bare else Tensor(n, d, tuple(s)) for n, (d, s) in stored.items()]
    return form(signature(by_module(tensors)[name]), into, block)


@pytest.mark.parametrize(
    ("name", "owner", "role"),
    [
        ("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj", "weight"),
        ("lm_head.weight_scale_2", "lm_head", "weight_scale_2"),
        ("layers.0.attn.wq_a.scale", "layers.0.attn.wq_a", "scale"),
        ("model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj", "weight"),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", "model.layers.0.mlp.experts.gate_up_proj", "blocks"),
        ("a.experts.down_proj_weight_scale", "a.experts.down_proj", "weight_scale"),
        ("a.experts.down_proj_weight_scale_2", "a.experts.down_proj", "weight_scale_2"),
        ("a.experts.down_proj_scale_inv", "a.experts.down_proj", "weight_scale_inv"),
        ("a.q_proj.weight.absmax", "a.q_proj", "weight.absmax"),
        ("a.q_proj.weight.quant_state.bitsandbytes__nf4", "a.q_proj", "weight.quant_state.bitsandbytes__nf4"),
        ("a.self_attn.k_proj.k_scale", "a.self_attn.k_proj", "kv"),
        ("weight", "weight", "weight"),
        ("a.mixer.A_log", "a.mixer.A_log", "weight"),
    ],
)
def test_names_split_into_module_and_role(name: str, owner: str, role: str) -> None:
    assert split(name) == (owner, role)


def test_scales_of_the_kv_cache_are_no_scales_of_the_weight() -> None:
    stored: Stored = {"m.weight": ("BF16", [4, 4]), "m.k_scale": ("F32", [])}
    assert read(stored).algorithms == {"bf16", "fp16"}
    assert not read(stored).scaled


@pytest.mark.parametrize(
    "algorithm", ["bf16", "fp8", "fp8_pc_pt", "fp8_block", "mxfp8", "nvfp4", "w4a16_nvfp4", "mxfp4", "int4_wo"]
)
def test_each_algorithm_is_recognised_and_no_other(algorithm: str) -> None:
    found = read(matrix("m", algorithm, 512, 1024), into=1024)
    same = {"nvfp4": "w4a16_nvfp4", "w4a16_nvfp4": "nvfp4"}.get(algorithm, algorithm)
    every = {"bf16", "fp8", "fp8_pc_pt", "fp8_block", "mxfp8", "nvfp4", "w4a16_nvfp4", "mxfp4", "int4_wo", "int8_wo"}
    assert found.algorithms & every == {algorithm, same}
    assert found.shape == (512, 1024)
    assert found.faults == ()
    assert found.scaled == (algorithm != "bf16")
    assert found.input_scale == (algorithm in ("fp8", "nvfp4"))


@pytest.mark.parametrize(
    "algorithm", ["bf16", "fp8", "fp8_pc_pt", "fp8_block", "mxfp8", "nvfp4", "w4a16_nvfp4", "mxfp4", "int4_wo"]
)
def test_names_alone_allow_it_and_tell_plain_from_scaled(algorithm: str) -> None:
    found = read(matrix("m", algorithm, 512, 1024), bare=True)
    assert algorithm in found.algorithms
    assert ("bf16" in found.algorithms) == (algorithm == "bf16")
    assert found.shape is None
    assert not found.faults


# What each exporter writes for a matrix of 256 x 512, and the algorithms of loaders.md that load it.
LAYOUTS: dict[str, tuple[Stored, set[str], list[int] | None]] = {
    "compressed-tensors NVFP4": (
        {
            "m.weight_packed": ("U8", [256, 256]),
            "m.weight_scale": ("F8_E4M3", [256, 32]),
            "m.weight_global_scale": ("F32", [1]),
        },
        {"nvfp4", "w4a16_nvfp4"},
        [256, 512],
    ),
    "compressed-tensors INT4": (
        {"m.weight_packed": ("I32", [256, 64]), "m.weight_scale": ("BF16", [256, 4]), "m.weight_shape": ("I64", [2])},
        {"int4_wo"},
        [256, 512],
    ),
    "compressed-tensors INT8 packed": (
        {"m.weight_packed": ("I32", [256, 128]), "m.weight_scale": ("BF16", [256, 4]), "m.weight_shape": ("I64", [2])},
        {"int8_wo"},
        [256, 512],
    ),
    "compressed-tensors W8A8 INT8": (
        {"m.weight": ("I8", [256, 512]), "m.weight_scale": ("BF16", [256, 1])},
        {"int8", "int8_wo"},
        [256, 512],
    ),
    "compressed-tensors FP8 blocks": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale": ("BF16", [2, 4])},
        {"fp8_block"},
        [256, 512],
    ),
    "ModelOpt FP8_PB_WO": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale": ("F32", [2, 1, 4, 1])},
        {"fp8_block"},
        [256, 512],
    ),
    "ModelOpt FP8 per channel": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale": ("F32", [256])},
        {"fp8_pc_pt"},
        [256, 512],
    ),
    "a fused per-tensor scale": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale": ("F32", [3])},
        {"fp8"},
        [256, 512],
    ),
    "Mistral static": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale_inv": ("BF16", []), "m.activation_scale": ("BF16", [])},
        {"fp8"},
        [256, 512],
    ),
    "DeepSeek V4 linear": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.scale": ("F8_E8M0", [2, 4])},
        {"fp8_block"},
        [256, 512],
    ),
    "DeepSeek V4 expert": ({"m.weight": ("I8", [256, 256]), "m.scale": ("F8_E8M0", [256, 16])}, {"mxfp4"}, [256, 512]),
    "DeepSeek V4.1 linear": (
        {"m.weight": ("F8_E4M3", [256, 512]), "m.scale": ("F8_E8M0", [8, 16])},
        {"fp8_block", "mxfp8"},
        [256, 512],
    ),
    "gpt-oss experts": (
        {
            "m.gate_up_proj_blocks": ("U8", [8, 256, 16, 16]),
            "m.gate_up_proj_scales": ("U8", [8, 256, 16]),
            "m.gate_up_proj_bias": ("BF16", [8, 256]),
        },
        {"mxfp4"},
        [8, 256, 512],
    ),
    "quark MXFP4": ({"m.weight": ("U8", [256, 256]), "m.weight_scale": ("U8", [256, 16])}, {"mxfp4"}, [256, 512]),
    "stacked NVFP4 experts": (
        {
            "m.gate_up_proj": ("U8", [8, 256, 256]),
            "m.gate_up_proj_weight_scale": ("F8_E4M3", [8, 256, 32]),
            "m.gate_up_proj_weight_scale_2": ("F32", [8]),
        },
        {"nvfp4", "w4a16_nvfp4"},
        [8, 256, 512],
    ),
    "stacked FP8 experts": (
        {"m.gate_up_proj": ("F8_E4M3", [8, 256, 512]), "m.gate_up_proj_weight_scale": ("F32", [8])},
        {"fp8"},
        [8, 256, 512],
    ),
    "AWQ": (awq("m", 256, 512), {"int4_wo"}, [256, 512]),
    "GPTQ": (gptq("m", 256, 512), {"int4_wo"}, [256, 512]),
    "GPTQ 8 bit": (gptq("m", 256, 512, bits=8), {"int8_wo"}, [256, 512]),
    "GPTQ 3 bit": (gptq("m", 256, 512, bits=3), {"int3_wo"}, [256, 512]),
    "bitsandbytes NF4": (
        {
            "m.weight": ("U8", [65536, 1]),
            "m.weight.absmax": ("F32", [2048]),
            "m.weight.quant_state.bitsandbytes__nf4": ("U8", [80]),
        },
        {"nf4"},
        None,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    stored, algorithms, shape = LAYOUTS[layout]
    (name,) = by_module(Tensor(n) for n in stored)
    found = read(stored, name, into=512)
    every = {
        "bf16",
        "fp8",
        "fp8_pc_pt",
        "fp8_block",
        "mxfp8",
        "nvfp4",
        "w4a16_nvfp4",
        "mxfp4",
        "int4_wo",
        "int8_wo",
        "int8",
        "int3_wo",
        "nf4",
    }
    assert found.algorithms & every == algorithms, found
    assert (list(found.shape) if found.shape is not None else None) == shape
    assert found.faults == ()
    assert found.scaled
    assert algorithms <= read(stored, name, bare=True).algorithms


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"m.weight": ("F8_E4M3", [4, 8])}, "no scale"),
        ({"m.weight": ("BF16", [4, 8]), "m.weight_scale": ("F32", [])}, "BF16 weights have a `weight_scale`"),
        ({"m.weight": ("U8", [4, 16]), "m.weight_scale": ("F8_E4M3", [4, 2])}, "`weight_scale_2` is not there"),
        (
            {"m.weight": ("U8", [4, 16]), "m.weight_scale": ("F8_E4M3", [4, 1]), "m.weight_scale_2": ("F32", [])},
            "[4, 2] would fit",
        ),
        ({"m.weight": ("U8", [4, 16]), "m.weight_scale_2": ("F32", [])}, "without `weight_scale`"),
        (
            {"m.weight": ("BF16", [4, 16]), "m.weight_scale": ("F8_E4M3", [4, 2]), "m.weight_scale_2": ("F32", [])},
            "packed into bytes",
        ),
        ({"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale_inv": ("F32", [2, 3])}, "does not fit"),
        ({"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale": ("F32", [255, 1])}, "does not fit"),
        ({"m.weight_packed": ("U8", [4, 16])}, "has no `weight_scale`"),
        ({"m.qweight": ("I32", [16, 8]), "m.qzeros": ("I32", [1, 1])}, "no `scales`"),
        (
            {"m.qweight": ("I32", [16, 8]), "m.scales": ("F16", [1, 56]), "m.qzeros": ("I32", [1, 7])},
            "does not fit scales",
        ),
        ({"m.gate_blocks": ("U8", [8, 4, 2, 16]), "m.gate_scales": ("U8", [8, 4, 3])}, "one scale per 16 bytes"),
        ({"m.weight_scale": ("F32", [])}, "scales have no weight"),
    ],
)
def test_tensors_that_do_not_fit_one_another(stored: Stored, words: str) -> None:
    (name,) = by_module(Tensor(n) for n in stored)
    (fault,) = read(stored, name).faults
    assert words in fault


def test_declared_blocks_count() -> None:
    stored: Stored = {"m.weight": ("F8_E4M3", [256, 512]), "m.weight_scale_inv": ("F32", [4, 8])}
    assert not read(stored).faults
    assert not read(stored, block=(64, 64)).faults
    (fault,) = read(stored, block=BLOCK).faults
    assert "blocks of 128 x 128" in fault


def test_a_small_matrix_leaves_more_than_one_reading() -> None:
    # One number for 64 x 64 weights is a scale per tensor and a single block of 128 x 128 alike.
    found = read({"m.weight": ("F8_E4M3", [64, 64]), "m.weight_scale": ("F32", [1, 1])})
    assert {"fp8", "fp8_block"} <= found.algorithms
    assert "fp8_pc_pt" not in found.algorithms


def test_unknown_forms_claim_nothing() -> None:
    assert not read({"m.weight": ("I64", [4])}).known
