"""Compare the modules that family files build with the modules that the real engines built.

Run ``python -m tests.conformance.compare_modules [WORD ...]`` from the checkout; a word keeps goldens whose
name, architecture or loader contains it, ``-v`` lists every difference. Needs the reference folder ``../shared``.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitlane.errors import BitlaneError
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.family import compile_family
from bitlane.resolver.loader import compile_loader
from bitlane.resolver.reading import read
from bitlane.resolver.walk import modules
from bitlane.rules import library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bitlane.resolver.modules import Module

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
KINDS = ("linear", "experts", "lm_head", "embed")
_VARIANT = re.compile(r"__(inline|mtp|sm\d+)")


@dataclass(frozen=True, slots=True)
class Golden:
    """One engine's answer for one checkpoint."""

    name: str
    loader: str
    version: str
    path: Path
    config: dict[str, Any]
    beside: dict[str, Any] | None = None

    @property
    def architecture(self) -> str:
        """The model class that the checkpoint names."""
        return str(self.config["architectures"][0])


@dataclass(slots=True)
class Report:
    """What differs; ``checked`` counts golden modules that agree in everything the golden states."""

    golden: Golden
    checked: int = 0
    differences: list[tuple[str, str]] = field(default_factory=list)


def _configs(shared: Path) -> dict[str, Path]:
    out: dict[str, Path] = {}
    for folder in (shared / "model_configs_reference", ROOT / "model_configs"):
        out.update({p.parent.name: p for p in folder.glob("*/config.json")})
    # The synthetic listing was made for this checkpoint's layers.
    out["synthetic--super-seed20261129"] = out["nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"]
    return out


def goldens(shared: Path, words: tuple[str, ...] = ()) -> Iterator[Golden]:
    """Yield every golden whose config is at hand; refusals and draft classes have no modules to compare."""
    configs = _configs(shared)
    places = [("vllm", p.parent.name, p) for p in sorted(shared.glob("vllm_golden/*/*.json.gz"))]
    places += [("sglang", p.parent.name, p) for p in sorted(shared.glob("sglang_golden/*/*.json.gz"))]
    places += [("trtllm", p.parent.name, p) for p in sorted(shared.glob("trtllm_golden/*/*.json.gz"))]
    places += [("vllm", "0.32.0", p) for p in sorted(shared.glob("generated_cases/*/golden.json.gz"))]
    for loader, version, path in places:
        case = path.parent.name if path.name == "golden.json.gz" else ""
        name = f"generated/{case}" if case else path.name.removesuffix(".json.gz")
        config = path.parent / "config.json" if case else configs.get(_VARIANT.sub("", name))
        if config is None or "__mtp" in name:
            continue
        file = config.with_name("hf_quant_config.json")
        beside = json.loads(file.read_text()) if file.is_file() else None
        golden = Golden(name, loader, version, path, json.loads(config.read_text().replace("Infinity", "1e9")), beside)
        text = f"{name} {loader}@{version} {golden.architecture}"
        if all(word in text for word in words):
            yield golden


def _facts(found: Module, kind: str) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "shape": found.shape,
        "cls": found.cls,
        "n_experts": found.attributes.get("count") if kind == "experts" else None,
        "has_quant_config": found.configured,
    }


def _wanted(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Golden modules by the name that the engine's quantization config is asked about."""
    return {k: v for k, v in (data.get("modules") or {}).items() if v["kind"] in KINDS}


def _built(golden: Golden, lib: library.Library) -> dict[str, Module]:
    family = compile_family(lib, golden.architecture, golden.loader, golden.version)
    return {m.path: m for m in modules(family, golden.config, _asked(golden, lib))}


def _asked(golden: Golden, lib: library.Library) -> dict[str, int | str]:
    """What a family's conditions may ask: the format that the loader reads, and the GPU; nothing where it refuses."""
    files = {"config.json": golden.config} | ({"hf_quant_config.json": golden.beside} if golden.beside else {})
    sm = 90 if "__sm90" in golden.name else 100
    try:
        loader = compile_loader(lib, golden.loader, golden.version)
        return read(loader, from_dicts(files, golden.name), {"sm": sm, "system": "gb200"}).asked
    except BitlaneError:
        return {}


def compare(golden: Golden, lib: library.Library) -> Report:
    """Compare one golden with the family's modules, fact by fact, as far as the golden states them."""
    data = json.loads(gzip.decompress(golden.path.read_bytes()))
    report = Report(golden)
    wanted = _wanted(data)
    if not wanted:
        return report
    quantized = data["meta"].get("quantization") is not None
    # Without quantization the engine passes no config to anything, which says nothing about the model class.
    stated = ("kind", "shape", "cls", "n_experts", *(("has_quant_config",) if quantized else ()))
    try:
        built = _built(golden, lib)
    except BitlaneError as error:
        report.differences.append(("failed", str(error)))
        return report
    for path, want in wanted.items():
        found = built.pop(path, None)
        if found is None:
            report.differences.append(("missing", path))
            continue
        have = _facts(found, want["kind"])
        told = [key for key in stated if want.get(key) is not None]
        wrong = [f"{key} {want[key]} != {have[key]}" for key in told if want[key] != have[key]]
        report.checked += not wrong
        report.differences += [("wrong " + w.split()[0], f"{path}: {w}") for w in wrong]
    # TensorRT-LLM's goldens list no embedding, so an embedding of ours is no surplus there.
    surplus = [p for p, m in built.items() if m.kind != "embed" or golden.loader != "trtllm"]
    report.differences += [("extra", path) for path in surplus]
    return report


def _fold(differences: list[tuple[str, str]]) -> Counter[tuple[str, str]]:
    return Counter((what, re.sub(r"(?<=\.)\d+(?=[.:])", "N", text)) for what, text in differences)


def main(arguments: list[str]) -> int:
    """Print one line a golden and the totals per architecture; 1 when anything differs."""
    words = tuple(a for a in arguments if a != "-v")
    lib = library.find()
    totals: dict[str, Counter[str]] = {}
    for golden in goldens(SHARED, words):
        report = compare(golden, lib)
        total = totals.setdefault(golden.architecture, Counter())
        total.update(goldens=1, agree=report.checked, differ=len(report.differences))
        if report.differences:
            head = f"{golden.loader}@{golden.version} {golden.name} {golden.architecture}"
            print(f"{head}: {report.checked} agree, {len(report.differences)} differ")
            shown = _fold(report.differences).most_common(None if "-v" in arguments else 6)
            for (what, text), count in shown:
                print(f"    {count:4} {what}: {text}")
    for architecture, total in sorted(totals.items()):
        print(f"{architecture:45} {total['goldens']:4} goldens {total['agree']:6} agree {total['differ']:6} differ")
    return int(any(t["differ"] for t in totals.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
