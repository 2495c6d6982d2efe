"""From stored tensors to precision: which algorithms a module's tensors fit, and whether they fit one another.

How each format stores a matrix of ``out`` rows and ``in`` columns is a fact of its exporter: ModelOpt and
compressed-tensors for NVFP4, FP8 and MXFP8, AutoGPTQ and AutoAWQ for packed integers, gpt-oss for MXFP4 blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .headers import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# (role, element type, shape) of every tensor of one module, in role order; type and shape are empty for a bare name.
Signature = tuple[tuple[str, str, tuple[int, ...] | None], ...]

_PLAIN_TYPES: Final = ("BF16", "F16", "F32", "F64")
_FP8: Final = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_E8: Final = ("U8", "F8_E8M0")

PLAIN: Final = frozenset({"bf16", "fp16"})
_NVFP4: Final = frozenset({"nvfp4", "w4a16_nvfp4"})
_MXFP4: Final = frozenset({"mxfp4", "mxfp4_w4a8"})
_TENSOR: Final = frozenset({"fp8", "w8a16_fp8"})
_CHANNEL: Final = frozenset({"fp8_pc_pt", "w8a16_fp8"})
_BLOCK: Final = frozenset({"fp8_block", "w8a16_fp8"})
_MXFP8: Final = frozenset({"mxfp8"})
_INT8: Final = frozenset({"int8", "int8_wo"})
_INT4: Final = frozenset({"int4_wo", "w4a8_fp8", "w4afp8"})
_PACKED: Final = _INT4 | {"int2_wo", "int3_wo", "int8_wo"}
_BNB: Final = frozenset({"nf4", "fp4", "bnb_nf4", "bnb_fp4"})
_ANY_FP8: Final = _TENSOR | _CHANNEL | _BLOCK | _MXFP8

# Algorithm -> algorithms that store the same tensors.
ALGORITHMS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(PLAIN, PLAIN),
    **dict.fromkeys(_NVFP4, _NVFP4),
    **dict.fromkeys(_MXFP4, _MXFP4),
    **dict.fromkeys(_MXFP8, _MXFP8),
    **dict.fromkeys(_INT8, _INT8),
    **dict.fromkeys(_INT4, _INT4),
    "int2_wo": frozenset({"int2_wo"}),
    "int3_wo": frozenset({"int3_wo"}),
    "fp8": _TENSOR,
    "fp8_pc_pt": _CHANNEL,
    "fp8_block": _BLOCK,
    "w8a16_fp8": _TENSOR | _CHANNEL | _BLOCK,
    **dict.fromkeys(_BNB, _BNB),
}
VOCABULARY: Final = frozenset(ALGORITHMS)


@dataclass(frozen=True, slots=True)
class Form:
    """What a module's tensors say about its precision.

    Attributes
    ----------
    label
        In words, such as ``nvfp4 (U8 weight, F8_E4M3 scales per 16)``.
    algorithms
        Algorithms that such tensors fit; empty when the form is not known.
    scaled
        Whether quantization scales are stored.
    shape
        Sizes of the unpacked weight, ``[..., out, in]``; None when unknown.
    input_scale
        Whether a static activation scale is stored.
    faults
        What does not fit within the tensors themselves, each as a sentence.
    """

    label: str
    algorithms: frozenset[str]
    scaled: bool
    shape: tuple[int, ...] | None = None
    input_scale: bool = False
    faults: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the form is one of those described here."""
        return bool(self.algorithms)


@lru_cache(maxsize=4096)
def form(stored: Signature, into: int = 0, block: tuple[int, int] = (0, 0)) -> Form:
    """Say which algorithms a module's tensors fit.

    Parameters
    ----------
    stored
        See :func:`bitlane.resolver.storage.signature`.
    into
        Columns of the matrix, where known: some packed forms do not say their width.
    block
        Declared size of FP8 weight blocks; zeros when the metadata declares none.
    """
    roles = {role: Tensor(role, dtype, shape) for role, dtype, shape in stored}
    static = any(r in roles for r in ("input_scale", "activation_scale", "input_global_scale"))
    read = _reader(roles)
    label, algorithms, scaled, shape, faults = read(roles, into, block)
    return Form(label, algorithms, scaled, shape, static, tuple(faults))


_Roles = dict[str, Tensor]
_Found = tuple[str, frozenset[str], bool, tuple[int, ...] | None, list[str]]


def _reader(roles: _Roles) -> Callable[[_Roles, int, tuple[int, int]], _Found]:
    """Choose by the roles alone, so that an index without headers is read in the same way."""
    if "qweight" in roles:
        return _packed_rows
    if "blocks" in roles:
        return _blocks
    if "weight_packed" in roles:
        return _packed
    if any(r.startswith("weight.") for r in roles) or "SCB" in roles:
        return _bitsandbytes
    if "weight" not in roles:
        return _no_weight
    if "weight_scale_2" in roles:
        return _nvfp4
    if any(r in roles for r in ("weight_scale", "weight_scale_inv", "scale")):
        return _scaled
    return _grouped if "scales" in roles else _plain


def _named(roles: _Roles) -> str:
    return ", ".join(sorted(r for r in roles if r not in ("bias", "g_idx")))


def _plain(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    weight = roles["weight"]
    if weight.dtype in ("", *_PLAIN_TYPES):
        return f"{weight.dtype or 'weight'} without scales", PLAIN, False, weight.shape, []
    if weight.dtype in _FP8:
        return f"{weight.dtype} without scales", _ANY_FP8, False, weight.shape, ["float8 weights have no scale"]
    return f"{weight.dtype} without scales", frozenset(), False, weight.shape, []


def _no_weight(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    scaled = any("scale" in r for r in roles)
    return f"no weight ({_named(roles)})", frozenset(), scaled, None, ["scales have no weight"] if scaled else []


def _bitsandbytes(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    if "SCB" in roles:
        return "bitsandbytes int8", _INT8, True, roles["weight"].shape if "weight" in roles else None, []
    nf4 = any("nf4" in r for r in roles)
    return f"bitsandbytes {'nf4' if nf4 else '4-bit'}", _BNB, True, None, []


def _grouped(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    """Packed integers with group scales in the layout of MLX."""
    return f"packed integers ({_named(roles)})", frozenset({"mlx_int4", "mlx_int8"}), True, None, []


# --- integers -----------------------------------------------------------------


def _packed_rows(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    """GPTQ packs input rows, AWQ output columns; both into 32-bit words."""
    weight, scales, zeros = (roles.get(r) for r in ("qweight", "scales", "qzeros"))
    label = f"packed integers ({_named(roles)})"
    if scales is None:
        return label, _PACKED, True, None, ["packed integers have no `scales`"]
    if weight is None or weight.shape is None or scales.shape is None:
        return label, _PACKED, True, None, []
    if weight.dtype not in ("I32", "U32") or len(weight.shape) != 2 or len(scales.shape) != 2:
        return (
            label,
            _PACKED,
            True,
            None,
            [f"qweight is {weight.dtype} {list(weight.shape)}, not a matrix of 32-bit words"],
        )
    out = scales.shape[1]
    if weight.shape[1] != out:
        bits, layout = _ratio(32 * weight.shape[1], out), "awq"
        shape = (out, weight.shape[0])
    else:
        known = _ratio(32 * zeros.shape[1], out) if zeros is not None and zeros.shape and len(zeros.shape) == 2 else 0
        bits, layout = known or (_ratio(32 * weight.shape[0], into) if into else 4), "gptq"
        shape = (out, _ratio(32 * weight.shape[0], bits))
    if bits not in (2, 3, 4, 8):
        return label, _PACKED, True, None, [f"qweight {list(weight.shape)} does not fit scales {list(scales.shape)}"]
    faults = []
    if scales.shape[0] and shape[1] % scales.shape[0] and "g_idx" not in roles:
        faults.append(f"{shape[1]} input columns are not divided by {scales.shape[0]} rows of scales")
    return f"{layout} int{bits} ({_named(roles)})", _int(bits), True, shape, faults


def _ratio(number: int, by: int) -> int:
    """Return a whole quotient, 0 when there is none."""
    return number // by if by and number % by == 0 else 0


def _int(bits: int) -> frozenset[str]:
    return _INT4 if bits == 4 else frozenset({f"int{bits}_wo"})


def _packed(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    """compressed-tensors packs NVFP4, MXFP4 and integers under one name."""
    weight, scale = roles["weight_packed"], roles.get("weight_scale")
    label = f"packed ({_named(roles)})"
    if scale is None:
        return label, _NVFP4 | _MXFP4 | _PACKED, True, None, ["`weight_packed` has no `weight_scale`"]
    if not weight.dtype or weight.shape is None or scale.shape is None:
        if "weight_global_scale" in roles:
            return f"nvfp4 ({_named(roles)})", _NVFP4, True, None, []
        chosen = _PACKED if "weight_shape" in roles or "weight_zero_point" in roles else _MXFP4 | _PACKED
        return label, chosen, True, None, []
    if weight.dtype == "U8":
        return _four_bit(roles, weight, scale, "weight_global_scale")
    bits = _ratio(32 * weight.shape[-1], into) if weight.shape else 0
    shape = (*weight.shape[:-1], into) if into else None
    chosen = _int(bits) if bits in (2, 3, 4, 8) else _PACKED
    return f"packed int{bits or ''} ({_named(roles)})", chosen, True, shape, _same_rows(weight.shape, scale.shape)


# --- four bits ----------------------------------------------------------------


def _nvfp4(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    weight, scale = roles["weight"], roles.get("weight_scale")
    if scale is None:
        return f"nvfp4 ({_named(roles)})", _NVFP4, True, None, ["`weight_scale_2` stands without `weight_scale`"]
    if not weight.dtype or weight.shape is None or scale.shape is None:
        return f"nvfp4 ({_named(roles)})", _NVFP4, True, None, []
    return _four_bit(roles, weight, scale, "weight_scale_2")


def _four_bit(roles: _Roles, weight: Tensor, scale: Tensor, second: str) -> _Found:
    """Two 4-bit floats a byte; the scale's type tells NVFP4 (float8, per 16) from MXFP4 (exponent, per 32)."""
    rows = weight.shape or ()
    shape = rows if weight.dtype == "F4" else (*rows[:-1], 2 * rows[-1]) if rows else None
    group, name, chosen = (32, "mxfp4", _MXFP4) if scale.dtype in _E8 else (16, "nvfp4", _NVFP4)
    faults = []
    if weight.dtype not in ("U8", "I8", "F4"):
        faults.append(f"{name} weights are packed into bytes, and this one is {weight.dtype}")
    if group == 16 and scale.dtype not in _FP8:
        faults.append(f"{name} scales are float8, and this one is {scale.dtype}")
    if group == 16 and second not in roles:
        faults.append(f"`{second}` is not there")
    if shape is not None and scale.shape is not None:
        want = (*shape[:-1], shape[-1] // group)
        if scale.shape != want:
            faults.append(f"scales are {list(scale.shape)}, and {list(want)} would fit weights of {list(shape)}")
    return f"{name} ({weight.dtype} weight, {scale.dtype} scales per {group})", chosen, True, shape, faults


def _blocks(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    """gpt-oss: blocks of 16 bytes, one exponent each."""
    blocks, scales = roles["blocks"], roles.get("scales")
    if scales is None:
        return "mxfp4 (blocks)", _MXFP4, True, None, ["`_blocks` stand without `_scales`"]
    if blocks.shape is None or scales.shape is None:
        return "mxfp4 (blocks, scales)", _MXFP4, True, None, []
    faults = []
    if len(blocks.shape) < 2 or blocks.shape[-1] != 16 or blocks.shape[:-1] != scales.shape:
        faults.append(f"blocks are {list(blocks.shape)} and scales {list(scales.shape)}, not one scale per 16 bytes")
        return "mxfp4 (blocks, scales)", _MXFP4, True, None, faults
    return "mxfp4 (blocks, scales)", _MXFP4, True, (*scales.shape[:-1], 32 * scales.shape[-1]), faults


# --- eight bits ---------------------------------------------------------------


def _scaled(roles: _Roles, into: int, block: tuple[int, int]) -> _Found:  # noqa: ARG001 - one signature for all readers
    role = next(r for r in ("weight_scale_inv", "weight_scale", "scale") if r in roles)
    weight, scale = roles["weight"], roles[role]
    if not weight.dtype or weight.shape is None or scale.shape is None:
        wide = _ANY_FP8 if role == "weight_scale_inv" else _ANY_FP8 | _MXFP4 | _INT8
        return f"scaled ({_named(roles)})", wide | (_NVFP4 if role == "scale" else frozenset()), True, None, []
    if weight.dtype in _PLAIN_TYPES:
        return f"{weight.dtype} with {role}", PLAIN, True, weight.shape, [f"{weight.dtype} weights have a `{role}`"]
    if weight.dtype in ("U8", "F4") or (weight.dtype == "I8" and scale.dtype == "F8_E8M0"):
        if scale.dtype in (*_E8, *_FP8):
            return _four_bit(roles, weight, scale, "weight_scale_2")
        return f"packed integers ({weight.dtype} weight, {scale.dtype} scales)", _INT4, True, None, []
    if weight.dtype == "I8":
        return f"int8 ({_named(roles)})", _INT8, True, weight.shape, _same_rows(weight.shape, scale.shape, one=True)
    if weight.dtype in ("I32", "U32"):
        return f"packed integers ({weight.dtype} weight, {scale.dtype} scales)", _PACKED, True, None, []
    if weight.dtype not in _FP8:
        return f"{weight.dtype} with {role}", frozenset(), True, weight.shape, []
    return _eight_bit(weight, scale, block)


def _same_rows(weight: tuple[int, ...], scale: tuple[int, ...], one: bool = False) -> list[str]:
    """Check that a scale has the weight's rows (or, with ``one``, is a single number)."""
    if one and _count(scale) == 1:
        return []
    if scale[: len(weight) - 1] == weight[:-1]:
        return []
    return [f"scales are {list(scale)}, which does not fit weights of {list(weight)}"]


def _count(shape: tuple[int, ...]) -> int:
    out = 1
    for size in shape:
        out *= size
    return out


def _eight_bit(weight: Tensor, scale: Tensor, block: tuple[int, int]) -> _Found:
    """Tell per-tensor, per-channel, block and MX scales of float8 weights apart by their shape."""
    shape, of = weight.shape or (), scale.shape or ()
    if len(of) == len(shape) + 2 and of[-1] == 1 and of[-3] == 1:
        of = (*of[:-3], of[-2])  # ModelOpt keeps the block's own axes: [out/128, 1, in/128, 1]
    kind = f"{weight.dtype} weight, {scale.dtype} scales {list(scale.shape or ())}"
    found = _fitting(shape, of, scale.dtype, block)
    if not found:
        declared = f" in blocks of {block[0]} x {block[1]}" if all(block) else ""
        fault = f"scales are {list(scale.shape or ())}, which does not fit weights of {list(shape)}{declared}"
        return f"fp8 ({kind})", _ANY_FP8, True, shape, [fault]
    return f"{found[0][0]} ({kind})", frozenset().union(*(a for _, a in found)), True, shape, []


def _fitting(
    shape: tuple[int, ...], of: tuple[int, ...], dtype: str, block: tuple[int, int]
) -> list[tuple[str, frozenset[str]]]:
    """List every kind of scale that these sizes may be: a small matrix leaves more than one."""
    whole, stacked = _count(of), _count(shape[:-2])
    out, into = (shape[-2], shape[-1]) if len(shape) > 1 else (1, 0)
    fewer = len(of) < len(shape)
    found: list[tuple[str, frozenset[str]]] = []
    # One number a matrix, or one a fused shard (three of q, k and v).
    if whole == stacked or (fewer and whole <= 8 * stacked):
        found.append(("fp8 per tensor", _TENSOR))
    if whole == out * stacked and (fewer or of[-1] == 1):
        found.append(("fp8 per channel", _CHANNEL))
    if dtype in _E8 and of == (*shape[:-1], into // 32):
        found.append(("mxfp8", _MXFP8))
    if len(of) == len(shape) > 1 and of[:-2] == shape[:-2]:
        sizes = [block] if all(block) else [(s, s) for s in (128, 64, 32, 256)]
        fits = next((b for b in sizes if of[-2:] == (-(-out // b[0]), -(-into // b[1]))), None)
        if fits is not None:
            # Blocks of 32 x 32 with power-of-two scales are loaded as the MX format (DeepSeek V4.1).
            mx = dtype in _E8 and fits == (32, 32)
            found.append((f"fp8 blocks of {fits[0]} x {fits[1]}", _BLOCK | _MXFP8 if mx else _BLOCK))
    return found
