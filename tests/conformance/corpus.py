"""A compact collection of generated checkpoints with the real vLLM's answers, in one file that every checkout has.

    python tests/conformance/corpus.py tests/data/vllm_cases.json.gz CASES [CASES ...] --bases BASES [--keep NAME ...]

Kept are cases that show something new: a deciding rule with an outcome, or a reason to refuse. Only models made from
packaged checkpoints take part. Modules that an answer does not name are bf16.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JSON = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
KINDS = ("linear", "experts", "lm_head", "embed")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_BLOCKS = ("quantization_config", "compression_config")


# --- names in braces ---------------------------------------------------------------


def fold(paths: Iterable[str]) -> list[str]:
    """Write paths that differ in their first number as one: ``layers.{0,2}.mlp``."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        found = _NUMBER.search(path)
        key = path if found is None else f"{path[: found.start()]}{{}}{path[found.end() :]}"
        groups.setdefault(key, []).append("" if found is None else found.group())
    return [key.replace("{}", "{" + ",".join(numbers) + "}") if "{}" in key else key for key, numbers in groups.items()]


def unfold(folded: Iterable[str]) -> Iterator[str]:
    """Yield the paths behind folded ones."""
    for text in folded:
        head, brace, rest = text.partition("{")
        numbers, _, tail = rest.partition("}")
        yield from [f"{head}{n}{tail}" for n in numbers.split(",")] if brace else [text]


# --- reading -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One generated checkpoint and what vLLM made of it."""

    name: str
    config: JSON
    beside: JSON | None
    algorithms: dict[str, str]
    shapes: dict[str, list[int]]
    error: str


def read(path: Path) -> list[Case]:
    """Return the cases of a collection."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    out = []
    for case in document["cases"]:
        base = document["bases"][case["base"]]
        config = json.loads(json.dumps(base["config"]))
        for home, blocks in case["blocks"].items():
            (config[home] if home else config).update(blocks)
        algorithms: dict[str, str] = {}
        shapes: dict[str, list[int]] = {}
        if "error" not in case:
            for text, shape in base["modules"].items():
                for name in unfold([text]):
                    algorithms[name] = "bf16"
                    if shape:
                        shapes[name] = shape
            for word, names in case["answer"].items():
                algorithms.update(dict.fromkeys(unfold(names), word))
        out.append(Case(case["name"], config, case.get("file"), algorithms, shapes, case.get("error", "")))
    return out


# --- making ----------------------------------------------------------------------------


def golden(folder: Path) -> JSON:
    """Return a folder's golden."""
    found: JSON = json.loads(gzip.decompress((folder / "golden.json.gz").read_bytes()))
    return found


def modules(answer: JSON) -> dict[str, JSON]:
    """Return the modules that count, by the name that tells them apart."""
    found = {k: v for k, v in answer["modules"].items() if v["kind"] in KINDS}
    nameless = {k.partition("#")[0] for k in found if "#" in k}
    return {v["path"] if k.partition("#")[0] in nameless else k: v for k, v in found.items()}


def blocks(config: JSON) -> dict[str, JSON]:
    """Take the quantization blocks out of a config; return them by where they stood."""
    out: dict[str, JSON] = {}
    for home, scope in (("", config), *[(k, v) for k, v in config.items() if isinstance(v, dict) and k not in _BLOCKS]):
        taken = {k: scope.pop(k) for k in _BLOCKS if k in scope}
        if taken:
            out[home] = taken
    return out


def features(folder: Path, answer: JSON) -> set[tuple[str, ...]]:
    """What a case shows: rules with their outcomes, or reasons."""
    from bitlane.errors import BitlaneError
    from bitlane.resolver.api import resolve_with
    from bitlane.resolver.checkpoint import open_checkpoint
    from bitlane.rules.library import find

    try:
        found = resolve_with(find(()), open_checkpoint(str(folder)), f"vllm@{answer['meta']['vllm']}", "gb200")
    except BitlaneError as error:
        return {("refused", error.code, re.sub(r"`[^`]*`|:.*", "", error.message), str(answer.get("error"))[:24])}
    return {(r.answer.rule_at.partition(":")[0], r.answer.rule, r.answer.algorithm, r.module.kind) for r in found}


def build(folders: list[Path], bases: list[Path], most: int, keep: set[str], twice: int = 2) -> JSON:
    """Choose cases and fold them."""
    origins = {p.name for p in (ROOT / "model_configs").iterdir()}
    shapes: dict[str, JSON] = {}
    names: dict[str, str] = {}
    chosen: list[JSON] = []
    seen: Counter[tuple[str, ...]] = Counter()
    version = command = ""
    cases = sorted(
        (p.parent for f in folders for p in f.glob("*/golden.json.gz")), key=lambda p: (p.name not in keep, p.name)
    )
    for folder in cases:
        about = json.loads((folder / "case.json").read_text())
        home = next((b / about["family"] for b in bases if (b / about["family"]).is_dir()), None)
        config = json.loads((folder / "config.json").read_text())
        size = (folder / "config.json").stat().st_size
        taken = blocks(config)
        if home is None or about.get("origin", json.loads((home / "case.json").read_text())["origin"]) not in origins:
            continue
        answer = golden(folder)
        shows = features(folder, answer)
        if folder.name not in keep and (size > 20_000 or all(seen[s] >= twice for s in shows) or len(chosen) >= most):
            continue
        seen.update(shows)
        version = answer["meta"]["vllm"]
        text = json.dumps(config, sort_keys=True)
        base = names.setdefault(text, f"{about['family']}" if about["family"] not in shapes else f"{about['family']}+")
        built = modules(answer) if "modules" in answer else {}
        if base not in shapes:
            shapes[base] = {"config": config, "modules": {}}
        told = shapes[base]["modules"]
        case: JSON = {"name": folder.name, "base": base, "blocks": taken}
        if (folder / "hf_quant_config.json").is_file():
            case["file"] = json.loads((folder / "hf_quant_config.json").read_text())
        if built:
            mine = {n: m.get("shape") for n, m in built.items()}
            if told and told != mine:
                continue
            told.update(mine)
            words: dict[str, list[str]] = {}
            for name, module in built.items():
                if module["algo"] != "bf16":
                    words.setdefault(module["algo"], []).append(name)
            case["answer"] = {word: fold(found) for word, found in words.items()}
        else:
            case["error"] = answer["error"]
        chosen.append(case)
    for base in shapes.values():
        groups: dict[str, list[str]] = {}
        for name, shape in base["modules"].items():
            groups.setdefault(json.dumps(shape), []).append(name)
        base["modules"] = {text: json.loads(shape) for shape, found in groups.items() for text in fold(found)}
    command = "generate.py bases, generate.py cases, run_vllm.py, corpus.py (docs/conformance.md)"
    return {"vllm": version, "posed_gpu": [10, 0], "command": command, "bases": shapes, "cases": chosen}


def main() -> int:
    """Write a collection."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path)
    ap.add_argument("cases", type=Path, nargs="+")
    ap.add_argument("--bases", type=Path, nargs="+", required=True)
    ap.add_argument("--most", type=int, default=400)
    ap.add_argument("--keep", nargs="*", default=[], help="cases to keep whatever they show")
    a = ap.parse_args()
    document = build(a.cases, a.bases, a.most, set(a.keep))
    a.out.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))
    refused = sum("error" in c for c in document["cases"])
    print(
        f"{len(document['cases'])} cases of {len(document['bases'])} models, "
        f"{refused} refused, {a.out.stat().st_size} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
