"""Checkpoints with generated quantization metadata: every format, in right and in odd spellings.

    python tests/conformance/generate.py bases BASES [--configs DIR ...]
    python tests/conformance/generate.py cases CASES --bases BASES --seeds 0:1500 [--kinds ct,fp8]

``bases`` writes small unquantized models; answer them with ``run_vllm.py`` first, since ``cases`` uses only those that
the real vLLM builds. Every case is a function of its seed and of the bases.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import metadata_compressed as compressed
import metadata_integers as integers
import metadata_modelopt as modelopt
import metadata_other as other
from names import Pen, names_of
from shrink import bases

from bitlane.rules import library

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
_HOMES = (ROOT / "model_configs", ROOT.parent / "shared" / "model_configs_reference")

KINDS: dict[str, tuple[int, Callable[[Pen, JSON], tuple[Any, Any]]]] = {
    "mixed_flat": (18, modelopt.mixed_flat),
    "mixed_nested": (9, modelopt.mixed_nested),
    "uniform": (17, modelopt.uniform),
    "contra": (6, modelopt.contradictory),
    "ct": (20, compressed.compressed),
    "fp8": (12, other.fp8),
    "mxfp": (3, other.mxfp),
    "gptq": (5, integers.gptq),
    "awq": (4, integers.awq),
    "quark": (5, integers.quark),
    "autoround": (4, integers.auto_round),
    "misc": (7, other.misc),
}


def place(config: JSON, inside: Any, rng: random.Random) -> JSON:
    """Put a block where checkpoints keep it, sometimes where few do."""
    out = copy.deepcopy(config)
    if inside is None:
        return out
    key = "quantization_config" if rng.random() < 0.96 else "compression_config"
    text = out.get("text_config")
    home = text if isinstance(text, dict) and rng.random() < 0.12 else out
    home[key] = inside
    return out


def case(
    seed: int, known: dict[str, tuple[str, JSON]], kinds: tuple[str, ...] = (), loader: str = "vllm@0.32.0"
) -> tuple[str, JSON, Any, JSON]:
    """Return name, config.json, hf_quant_config.json (None: absent) and what the case is.

    The names are the checkpoint's, and those that ``loader`` has for its modules.
    """
    rng = random.Random(seed)
    base = rng.choice(sorted(known))
    chosen = kinds or tuple(KINDS)
    kind = rng.choices(chosen, [KINDS[k][0] for k in chosen])[0]
    origin, config = known[base]
    engine, _, version = loader.partition("@")
    inside, beside = KINDS[kind][1](Pen(names_of(config, version, engine), rng), config)
    about = {"seed": seed, "family": base, "format": kind, "origin": origin}
    return f"{seed:06d}-{kind}-{base}", place(config, inside, rng), beside, about


def usable(folder: Path) -> dict[str, tuple[str, JSON]]:
    """Bases that the real vLLM builds, with the checkpoint they come from; all of them where none has been answered."""
    out = {}
    described = library.find().architectures()
    for path in sorted(folder.glob("*/config.json")):
        if json.loads(path.read_text())["architectures"][0] not in described:
            continue
        golden = path.parent / "golden.json.gz"
        if not golden.exists() or "modules" in json.loads(gzip.decompress(golden.read_bytes())):
            origin = json.loads((path.parent / "case.json").read_text())["origin"]
            out[path.parent.name] = (origin, json.loads(path.read_text()))
    return out


def write(folder: Path, name: str, config: JSON, beside: Any, about: JSON | None) -> None:
    """Write one checkpoint."""
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(json.dumps(config))
    if beside is not None:
        (home / "hf_quant_config.json").write_text(json.dumps(beside))
    if about is not None:
        (home / "case.json").write_text(json.dumps(about))


def main() -> int:
    """Write bases or cases."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="what", required=True)
    b = sub.add_parser("bases")
    b.add_argument("folder", type=Path)
    b.add_argument("--configs", type=Path, nargs="*", default=[h for h in _HOMES if h.is_dir()])
    b.add_argument("--seed", type=int, default=0)
    b.add_argument("--only", default="", help="comma-separated beginnings of names")
    c = sub.add_parser("cases")
    c.add_argument("folder", type=Path)
    c.add_argument("--bases", type=Path, required=True)
    c.add_argument("--seeds", default="0:100", help="FIRST:END")
    c.add_argument(
        "--loader", default="vllm@0.32.0", help="whose names of modules the metadata holds, besides the checkpoint's"
    )
    c.add_argument("--kinds", default="", help="comma-separated: " + ",".join(KINDS))
    a = ap.parse_args()
    if a.what == "bases":
        wanted = tuple(a.only.split(","))
        found = [b for b in bases(a.configs, a.seed) if b[0].startswith(wanted)]
        for name, origin, config in found:
            write(a.folder, name, config, None, {"origin": origin})
        print(f"{len(found)} bases")
        return 0
    known = usable(a.bases)
    first, end = (int(x) for x in a.seeds.split(":"))
    for seed in range(first, end):
        write(a.folder, *case(seed, known, tuple(k for k in a.kinds.split(",") if k), a.loader))
    print(f"{end - first} cases of {len(known)} bases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
