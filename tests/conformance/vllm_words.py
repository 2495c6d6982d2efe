"""One precision word for a quantization method object of the real vLLM.

The oracle beside the repository knows ModelOpt, fp8, MXFP4 and most of compressed-tensors; here are the others. Runs in
vLLM's environment and reads attributes alone, so it needs no import of vLLM.
"""

from __future__ import annotations

from typing import Any

FP8 = {"per_channel": "fp8_pc_pt", "per_block": "fp8_block", "channel": "fp8_pc_pt", "block": "fp8_block"}


def _name(value: Any) -> str:
    return "" if value is None else type(value).__name__


def _bits(method: Any) -> int:
    """Bits of a GPTQ or AWQ method, wherever it keeps them."""
    config = getattr(method, "quant_config", None)
    return int(getattr(config, "weight_bits", 4) or 4)


def _mx(weight: str, activation: str) -> str:
    """Word of an OCP MX pair of types."""
    if "fp6" in weight:
        return "mxfp6"
    if "fp8" in weight:
        return "mxfp8"
    return "mxfp4_w4a8" if activation == "fp8" else "mxfp4"


def quark(method: Any, layer: Any) -> str:
    """Quark: linears keep a scheme on the layer, routed experts have a method class per scheme."""
    scheme = getattr(layer, "scheme", None)
    name = _name(scheme) or _name(method)
    if "Fp8PerBlock" in name:
        return "fp8_block"
    if "W8A8FP8" in name.upper():
        strategy = getattr(scheme, "weight_qscheme", None) or getattr(method, "weight_qscheme", None)
        if strategy is None and "channel" in str(getattr(method, "weight_quant_key", "")):
            strategy = "per_channel"
        return FP8.get(str(strategy), "fp8")
    if "Int8" in name:
        return "int8"
    if "W4A16Int4" in name:
        return "int4_wo"
    if "NVFP4" in name.upper():
        return "nvfp4"
    if "W4A8Fp8" in name:
        return "w4a8_fp8"
    if "MXFP4_FP8" in name:
        return "mxfp4_w4a8"
    holder = scheme if scheme is not None else method
    return _mx(str(getattr(holder, "weight_dtype", "")), str(getattr(holder, "input_dtype", "")))


def inc(method: Any) -> str:
    """AutoRound: a wrapper around another method, or a scheme of its own."""
    scheme = getattr(method, "scheme", None)
    inner = getattr(scheme, "linear_method", None) or scheme or method
    name = _name(inner)
    if "GPTQ" in name or "AWQ" in name:
        return f"int{_bits(inner)}_wo"
    if "Fp8" in name and "Mx" not in name:
        return "fp8_block"
    return "mxfp8" if "xfp8" in name else "mxfp4" if "xfp4" in name else "?:" + name


CT = {
    "CompressedTensorsW4A8Fp8": "w4a8_fp8",
    "CompressedTensorsW4A8Int": "w4a8_int8",
    "CompressedTensorsW8A8Int8": "int8",
    "CompressedTensorsW8A8Mxfp8": "mxfp8",
    "CompressedTensorsWNA4Int": "w4a4_int4",
}


def compressed(method: Any, layer: Any, word: str) -> str:
    """Schemes of compressed-tensors that the oracle only names."""
    scheme = getattr(layer, "scheme", None)
    name = (_name(scheme) or _name(method)).removesuffix("MoEMethod")
    if name.startswith(("CompressedTensorsWNA8",)):
        bits = int(getattr(scheme, "num_bits", 0) or getattr(scheme, "weight_bits", 0) or 8)
        return "int8" if bits == 8 else "w4a8_int8"
    if name == "CompressedTensorsEmbeddingWNA16Int":
        return f"int{getattr(method, 'num_bits', None) or getattr(method, 'bits', 4)}_wo"
    if name.startswith("CompressedTensorsW4A8Int"):
        return "w4a8_int8"
    return CT.get(name, word)


def word(method: Any, layer: Any, known: str) -> str:
    """Return the word for a method; ``known`` is what the oracle made of it."""
    name = _name(method)
    if name.startswith(("AutoGPTQ", "MoeWNA16", "AutoAWQ", "BaseAWQ")):
        return f"int{_bits(method)}_wo"
    if name.startswith("Quark"):
        return quark(method, layer)
    if name.startswith("INC"):
        return inc(method)
    if name.startswith("Int8Online"):
        return "int8_wo"
    if name.startswith("CompressedTensors"):
        return compressed(method, layer, known)
    return known if known != "?" else "?:" + name
