"""A listing against what is stored: names that have no tensor, and words that the tensors contradict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .contradictions import Finding, below, fold
from .forms import ALGORITHMS, form
from .storage import signature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .headers import Tensor
    from .resolution import Resolution

    Parts = Mapping[str, Mapping[str, Tensor]]

# What a plain list of names, which may be patterns or tails, says of each: no precision.
LISTED: Final = "listed"
# Words of ModelOpt's and TensorRT-LLM's listings -> the word of `resolver.forms` with the same tensors.
_WORDS: Final = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_pc_pt",
    "FP8_PB_WO": "fp8_block",
    "FP8_BLOCK_SCALES": "fp8_block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "NVFP4_SVDQUANT": "nvfp4",
    "W4A16_NVFP4": "w4a16_nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W4A16_MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W4A8_MXFP4_MXFP8": "mxfp4",
    "W4A16": "int4_wo",
    "W4A16_AWQ": "int4_wo",
    "W4A8_AWQ": "int4_wo",
    "W4A16_GPTQ": "int4_wo",
    "W8A16": "int8_wo",
    "W8A16_GPTQ": "int8_wo",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "INT8": "int8",
    "NO_QUANT": "bf16",
}


def check_listing(resolution: Resolution, parts: Parts, block: tuple[int, int], accused: set[str]) -> list[Finding]:
    """Compare every listed name with its tensors.

    Parameters
    ----------
    parts
        Stored modules and their tensors by role.
    block
        Declared size of FP8 weight blocks, zeros when none.
    accused
        Stored modules that a finding already names; they are not reported twice.
    """
    declared = resolution.chooser.declared
    if not len(declared.listing):
        return []
    renamed = dict(zip(resolution.family.renames.apply_all(list(parts)), parts, strict=True))
    raw = [_last(declared.listing_at[n]) for n in range(len(declared.listing))]
    held = below(parts, {n for n in raw if n not in parts})
    held_renamed = below(renamed, {t for t in declared.listing.texts if t not in renamed})
    unknown: dict[str, list[str]] = {}
    wrong: dict[tuple[str, str, str], list[str]] = {}
    for number, (name, text) in enumerate(zip(raw, declared.listing.texts, strict=True)):
        owners = _owners(name, parts, held) or [renamed[r] for r in _owners(text, renamed, held_renamed)]
        word = declared.listed[number]
        if word == LISTED or any(c in name for c in "*?["):
            continue
        if not owners:
            unknown.setdefault(fold(name), []).append(name)
            continue
        for owner in owners:
            label = _contradicts(word, parts[owner], block) if owner not in accused else ""
            if label:
                wrong.setdefault((fold(name), str(word), label), []).append(name)
                break
    at = resolution.reading.at
    out = [
        Finding(
            "BL602",
            "declared_disagrees",
            f"`{kind}`{_many(names)} is listed as {word}, and stored as {label}",
            kind,
            tuple(names),
            word,
            label,
            (at,),
        )
        for (kind, word, label), names in wrong.items()
    ]
    out += [
        Finding(
            "BL606",
            "declared_unknown",
            f"`{kind}`{_many(names)} is listed, and no such module is stored",
            kind,
            tuple(names),
            evidence=(at,),
        )
        for kind, names in unknown.items()
    ]
    return out


def _many(names: list[str]) -> str:
    return f" ({len(names)} entries)" if len(names) > 1 else ""


def _last(pointer: str) -> str:
    """Return the last step of a JSON pointer: the listed name as it stands in the file."""
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _owners(name: str, parts: Mapping[str, object], held: Mapping[str, list[str]]) -> list[str]:
    return [name] if name in parts else held.get(name, [])


def _contradicts(word: object, roles: Mapping[str, Tensor], block: tuple[int, int]) -> str:
    """Return how a module is stored where its listed word does not allow it."""
    wanted = _WORDS.get(word.upper()) if isinstance(word, str) else None
    if wanted is None:
        return ""
    found = form(signature(roles), 0, block)
    return found.label if found.known and not found.algorithms & ALGORITHMS[wanted] else ""
