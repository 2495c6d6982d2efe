"""A compact collection of generated checkpoints with a real engine's answers, in one file that every checkout has.

    python tests/conformance/corpus.py tests/data/vllm_cases.json.gz CASES [CASES ...] --bases BASES [--keep NAME ...]

Kept are cases that show something new: a deciding rule with an outcome, or a reason to refuse; with ``--by-class`` new
for their model class. Only models made from packaged checkpoints take part, or with ``--any-origin`` all. Modules that
an answer does not name are bf16.
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
    """One generated checkpoint and what the engine made of it."""

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


def differs(case: Case, folder: Path, loader: str) -> list[str]:
    """What bitlane says otherwise than the engine about a case; ``folder`` is where the checkpoint is written."""
    from bitlane.errors import BitlaneError
    from bitlane.resolver.api import resolve_with
    from bitlane.resolver.checkpoint import open_checkpoint
    from bitlane.rules.library import find

    (folder / "config.json").write_text(json.dumps(case.config))
    (folder / "hf_quant_config.json").unlink(missing_ok=True)
    if case.beside is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(case.beside))
    try:
        found = {r.module.path: r for r in resolve_with(find(()), open_checkpoint(str(folder)), loader, "gb200")}
    except BitlaneError as error:
        if case.error:
            return [] if error.exit_code == 4 else [f"{case.name}: exit code {error.exit_code}, not 4"]
        return [f"{case.name}: refused: {error.message}"]
    if case.error:
        return [f"{case.name}: accepted, the engine says {case.error}"]
    mine = {path: (r.answer.algorithm, r.module.shape) for path, r in found.items()}
    # Experts have no shape.
    theirs = {path: (word, case.shapes.get(path)) for path, word in case.algorithms.items()}
    return [
        f"{case.name} {path}: {mine.get(path)} not {theirs.get(path)}"
        for path in sorted(mine.keys() | theirs.keys())
        if path not in mine
        or path not in theirs
        or mine[path][0] != theirs[path][0]
        or (theirs[path][1] is not None and mine[path][1] != theirs[path][1])
    ]


# --- making ----------------------------------------------------------------------------


def engine(answer: JSON) -> tuple[str, str]:
    """Name and version of the engine that answered."""
    name = next(n for n in ("vllm", "sglang") if n in answer["meta"])
    return name, str(answer["meta"][name])


def refusal(answer: JSON) -> str:
    """How the engine refuses; empty where it does not."""
    return str(answer.get("error") or answer.get("raises") or answer["meta"].get("server_refuses") or "")


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


def features(folder: Path, answer: JSON, mark: str = "") -> set[tuple[str, ...]]:
    """What a case shows: rules with their outcomes, or reasons; ``mark`` tells groups of cases apart."""
    from bitlane.errors import BitlaneError
    from bitlane.resolver.api import resolve_with
    from bitlane.resolver.checkpoint import open_checkpoint
    from bitlane.rules.library import find

    try:
        found = resolve_with(find(()), open_checkpoint(str(folder)), "@".join(engine(answer)), "gb200")
    except BitlaneError as error:
        return {("refused", error.code, re.sub(r"`[^`]*`|:.*", "", error.message), refusal(answer)[:24], mark)}
    return {(r.answer.rule_at.partition(":")[0], r.answer.rule, r.answer.algorithm, r.module.kind, mark) for r in found}


def build(
    folders: list[Path],
    bases: list[Path],
    most: int,
    keep: set[str],
    twice: int = 2,
    *,
    by_class: bool = False,
    any_origin: bool = False,
) -> JSON:
    """Choose cases and fold them."""
    origins = {p.name for p in (ROOT / "model_configs").iterdir()}
    shapes: dict[str, JSON] = {}
    names: dict[str, str] = {}
    chosen: list[JSON] = []
    seen: Counter[tuple[str, ...]] = Counter()
    name = version = command = ""
    cases = sorted(
        (p.parent for f in folders for p in f.glob("*/golden.json.gz")), key=lambda p: (p.name not in keep, p.name)
    )
    for folder in cases:
        about = json.loads((folder / "case.json").read_text())
        home = next((b / about["family"] for b in bases if (b / about["family"]).is_dir()), None)
        config = json.loads((folder / "config.json").read_text())
        size = (folder / "config.json").stat().st_size
        taken = blocks(config)
        if home is None:
            continue
        origin = about.get("origin", json.loads((home / "case.json").read_text())["origin"])
        if origin not in origins and not any_origin:
            continue
        answer = golden(folder)
        if answer["meta"].get("left_out"):
            continue
        shows = features(folder, answer, config["architectures"][0] if by_class else "")
        if folder.name not in keep and (size > 20_000 or all(seen[s] >= twice for s in shows) or len(chosen) >= most):
            continue
        seen.update(shows)
        name, version = engine(answer)
        built = {} if refusal(answer) else modules(answer)
        mine = {n: m.get("shape") for n, m in built.items()}
        # Some classes build other modules for other metadata.
        text = json.dumps([config, mine if by_class else None], sort_keys=True)
        if text not in names:
            names[text] = about["family"] + "+" * sum(b.rstrip("+") == about["family"] for b in shapes)
        base = names[text]
        if base not in shapes:
            shapes[base] = {"config": config, "modules": {}}
        told = shapes[base]["modules"]
        case: JSON = {"name": folder.name, "base": base, "blocks": taken}
        if (folder / "hf_quant_config.json").is_file():
            case["file"] = json.loads((folder / "hf_quant_config.json").read_text())
        if built:
            if told and told != mine:
                continue
            told.update(mine)
            words: dict[str, list[str]] = {}
            for path, module in built.items():
                if module["algo"] != "bf16":
                    words.setdefault(module["algo"], []).append(path)
            case["answer"] = {word: fold(found) for word, found in words.items()}
        else:
            case["error"] = refusal(answer)[:200]
        chosen.append(case)
    for told in shapes.values():
        groups: dict[str, list[str]] = {}
        for path, shape in told["modules"].items():
            groups.setdefault(json.dumps(shape), []).append(path)
        told["modules"] = {text: json.loads(shape) for shape, found in groups.items() for text in fold(found)}
    command = f"generate.py bases, generate.py cases, run_{name}.py, corpus.py (docs/conformance.md)"
    return {name: version, "posed_gpu": [10, 0], "command": command, "bases": shapes, "cases": chosen}


def main() -> int:
    """Write a collection."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path)
    ap.add_argument("cases", type=Path, nargs="+")
    ap.add_argument("--bases", type=Path, nargs="+", required=True)
    ap.add_argument("--most", type=int, default=400)
    ap.add_argument("--keep", nargs="*", default=[], help="cases to keep whatever they show")
    ap.add_argument("--twice", type=int, default=2, help="how often the same thing is shown")
    ap.add_argument("--by-class", action="store_true")
    ap.add_argument("--any-origin", action="store_true")
    a = ap.parse_args()
    document = build(a.cases, a.bases, a.most, set(a.keep), a.twice, by_class=a.by_class, any_origin=a.any_origin)
    a.out.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))
    refused = sum("error" in c for c in document["cases"])
    print(
        f"{len(document['cases'])} cases of {len(document['bases'])} models, "
        f"{refused} refused, {a.out.stat().st_size} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
