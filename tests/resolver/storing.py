"""Checkpoints as exporters store them, written by hand from what each format's exporter does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bitlane.resolver.resolution import Resolution, Resolved

# Name -> (element type, sizes).
Stored = dict[str, tuple[str, list[int]]]

_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}


def size(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor."""
    out = _BYTES[dtype]
    for n in shape:
        out *= n
    return out


def header(stored: Stored) -> bytes:
    """The JSON of a safetensors file whose tensors follow one another."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in stored.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size(dtype, shape)]}
        at += size(dtype, shape)
    return json.dumps(entries).encode()


def write(path: Path, stored: Stored) -> None:
    """Write a safetensors file; its weights are a hole, so that no size costs disk."""
    data = header(stored)
    with path.open("wb") as file:
        file.write(len(data).to_bytes(8, "little") + data)
        file.truncate(8 + len(data) + sum(size(*t) for t in stored.values()))


def write_sharded(folder: Path, stored: Stored, shards: int = 2, present: bool = True) -> None:
    """Write shards and their index, or the index alone."""
    names = list(stored)
    files = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
    where = {name: files[n * shards // len(names)] for n, name in enumerate(names)}
    index = {"metadata": {"total_size": sum(size(*t) for t in stored.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for file in files if present else ():
        write(folder / file, {n: t for n, t in stored.items() if where[n] == file})


def plain(name: str, out: int, into: int) -> Stored:
    """An unquantized matrix."""
    return {f"{name}.weight": ("BF16", [out, into])}


def matrix(name: str, algorithm: str, out: int, into: int, block: tuple[int, int] = (128, 128)) -> Stored:
    """One matrix as ModelOpt, compressed-tensors, the fp8 block exporters or AutoGPTQ store it."""
    w = f"{name}.weight"
    match algorithm:
        case "bf16":
            return plain(name, out, into)
        case "fp8":
            return {w: ("F8_E4M3", [out, into]), f"{w}_scale": ("F32", []), f"{name}.input_scale": ("F32", [])}
        case "fp8_pc_pt":
            return {w: ("F8_E4M3", [out, into]), f"{w}_scale": ("BF16", [out, 1])}
        case "fp8_block":
            return {w: ("F8_E4M3", [out, into]), f"{w}_scale_inv": ("F32", [-(-out // block[0]), -(-into // block[1])])}
        case "mxfp8":
            return {w: ("F8_E4M3", [out, into]), f"{w}_scale": ("U8", [out, into // 32])}
        case "nvfp4" | "w4a16_nvfp4":
            found: Stored = {
                w: ("U8", [out, into // 2]),
                f"{w}_scale": ("F8_E4M3", [out, into // 16]),
                f"{w}_scale_2": ("F32", []),
            }
            return {**found, f"{name}.input_scale": ("F32", [])} if algorithm == "nvfp4" else found
        case "mxfp4":
            return {f"{w}_packed": ("U8", [out, into // 2]), f"{w}_scale": ("U8", [out, into // 32])}
        case "int4_wo":
            return gptq(name, out, into)
        case _:
            raise ValueError(algorithm)


def gptq(name: str, out: int, into: int, bits: int = 4, group: int = 128) -> Stored:
    """AutoGPTQ: input rows packed into 32-bit words."""
    groups = -(-into // group)
    return {
        f"{name}.g_idx": ("I32", [into]),
        f"{name}.qweight": ("I32", [into * bits // 32, out]),
        f"{name}.qzeros": ("I32", [groups, out * bits // 32]),
        f"{name}.scales": ("F16", [groups, out]),
    }


def awq(name: str, out: int, into: int, group: int = 128) -> Stored:
    """AutoAWQ: output columns packed into 32-bit words."""
    return {
        f"{name}.qweight": ("I32", [into, out // 8]),
        f"{name}.qzeros": ("I32", [into // group, out // 8]),
        f"{name}.scales": ("F16", [into // group, out]),
    }


def as_resolved(resolution: Resolution, experts: int | None = None, changed: Mapping[str, str] | None = None) -> Stored:
    """Store every module at the precision that an engine builds.

    Parameters
    ----------
    experts
        How many experts to store; all of them when None.
    changed
        Loader-side path to another algorithm.
    """
    block = _block(resolution)
    out: Stored = {}
    for row in resolution:
        algorithm = (changed or {}).get(row.module.path, row.answer.algorithm)
        if row.module.kind == "experts":
            out |= _experts(row, algorithm, block, experts)
            continue
        for member in row.module.members:
            out |= matrix(member.name, algorithm, member.out, member.into, block)
    return out


def _block(resolution: Resolution) -> tuple[int, int]:
    found = (resolution.reading.block or {}).get("weight_block_size") or [128, 128]
    return found[0], found[1]


def _experts(row: Resolved, algorithm: str, block: tuple[int, int], count: int | None) -> Stored:
    sizes = row.module.attributes
    hidden, inter, total = sizes["hidden"], sizes["inter"], count or sizes["count"]
    (container,) = row.module.checkpoint
    names = ("gate_proj", "up_proj", "down_proj") if sizes["gated"] else ("up_proj", "down_proj")
    out: Stored = {}
    for expert in range(total):
        for name in names:
            n, k = (hidden, inter) if name == "down_proj" else (inter, hidden)
            out |= matrix(f"{container}.{expert}.{name}", algorithm, n, k, block)
    return out
