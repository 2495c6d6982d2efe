"""GPUs that an engine refuses for a format, before it looks at a module; read from its own checks of capability."""

from __future__ import annotations

import pytest

from bitlane.errors import CheckpointError
from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts

BLOCKS = {
    "modelopt_fp8": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []},
    "mxfp8": {"quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32]},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
}
NVFP4A16 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "g": {
            "targets": ["Linear"],
            "input_activations": None,
            "weights": {
                "num_bits": 4,
                "type": "float",
                "strategy": "tensor_group",
                "group_size": 16,
                "symmetric": True,
            },
        }
    },
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    **{"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 4},
}
MINIMAX = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    **{"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 128, "vocab_size": 256, "head_dim": 64},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
}


def _lanes(block: dict, loader: str, system: str, model: dict = LLAMA) -> dict[str, str]:
    opened = from_dicts({"config.json": {**model, "quantization_config": block}}, "toy")
    return {r.module.name: r.lane.lane for r in resolve(opened, loader, system)}


@pytest.mark.parametrize(
    ("format_", "system", "message"),
    [
        # modelopt_quant.py: 89 for FP8; fp8.py: 100 for MXFP8, else 80. An A100 is SM80, an L40S SM89, an H100 SM90.
        ("modelopt_fp8", "a100", "SM89"),
        ("mxfp8", "a100", "SM100"),
        ("mxfp8", "l40s", "SM100"),
        ("mxfp8", "h100", "SM100"),
    ],
)
def test_sglang_refuses_gpus_below_a_formats_minimum(format_: str, system: str, message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        _lanes(BLOCKS[format_], "sglang@0.5.23", system)
    assert caught.value.code == "BL260"
    assert message in caught.value.message


@pytest.mark.parametrize(("format_", "system"), [("modelopt_fp8", "l40s"), ("fp8", "a100")])
def test_sglang_takes_gpus_from_the_minimum_on(format_: str, system: str) -> None:
    assert _lanes(BLOCKS[format_], "sglang@0.5.23", system)["down_proj"].startswith("fp8")


@pytest.mark.parametrize("system", ["b200", "h100"])
def test_weight_only_experts_of_compressed_tensors_stay_weight_only_in_sglang(system: str) -> None:
    """Its NVFP4A16 experts run in Marlin on every GPU; only ModelOpt's class overlooks the flag."""
    assert _lanes(NVFP4A16, "sglang@0.5.23", system, MINIMAX)["experts"] == "w4a16_nvfp4"
