"""Stored tensors by module: which module a tensor name belongs to, and which role the tensor plays there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .forms import Signature
    from .headers import Tensor

_ROLES: Final = frozenset(
    {
        *("weight", "weight_packed", "qweight", "blocks", "bias", "biases"),
        *("weight_scale", "weight_scale_2", "weight_scale_inv", "weight_global_scale", "scale", "scales", "SCB"),
        *("input_scale", "input_global_scale", "activation_scale", "input_scale_ub", "pre_quant_scale"),
        *(
            "qzeros",
            "g_idx",
            "weight_zero_point",
            "input_zero_point",
            "input_scale_2",
            "weight_shape",
            "weight_g_idx",
            "weight_format",
        ),
    }
)
_KV: Final = frozenset(
    {"k_scale", "v_scale", "kv_scale", "q_scale", "prob_scale", "output_scale", "k_zero_point", "v_zero_point"}
)
# Experts stored as one stacked parameter carry their scales beside it: `experts.gate_up_proj_weight_scale`.
_TAILS: Final = (
    ("_weight_scale_2", "weight_scale_2"),
    ("_weight_scale_inv", "weight_scale_inv"),
    ("_weight_scale", "weight_scale"),
    ("_input_scale", "input_scale"),
    ("_scale_inv", "weight_scale_inv"),
    ("_blocks", "blocks"),
    ("_scales", "scales"),
    ("_bias", "bias"),
)


def split(name: str) -> tuple[str, str]:
    """Split a tensor name into its module and the role that the tensor plays there.

    A parameter without a role of its own (``experts.gate_up_proj``) is a module with a bare weight.
    """
    owner, _, last = name.rpartition(".")
    if last in _ROLES and owner:
        return owner, last
    if last in _KV and owner:
        return owner, "kv"
    # bitsandbytes hangs its state below the weight: `q_proj.weight.absmax`.
    head, found, rest = name.rpartition(".weight.")
    if found:
        return head, f"weight.{rest}"
    for tail, role in _TAILS:
        if last.endswith(tail) and len(last) > len(tail):
            return name[: -len(tail)], role
    return name, "weight"


def by_module(tensors: Iterable[Tensor]) -> dict[str, dict[str, Tensor]]:
    """Collect tensors by module and role; scales of the KV cache say nothing about the module's weights."""
    out: dict[str, dict[str, Tensor]] = {}
    for tensor in tensors:
        owner, role = split(tensor.name)
        if role != "kv":
            out.setdefault(owner, {})[role] = tensor
    return out


def signature(roles: Mapping[str, Tensor]) -> Signature:
    """Return what distinguishes one module's storage from another's."""
    return tuple((role, t.dtype, t.shape) for role, t in sorted(roles.items()) if role != "bias")
