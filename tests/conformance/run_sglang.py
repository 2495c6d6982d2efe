"""Ask the real SGLang how it builds checkpoints: folders of ``config.json`` in, ``golden.json.gz`` beside it out.

Run it with the Python of an environment that can import SGLang on a CPU (the oracle's docstring says which packages)::

    VENV/bin/python tests/conformance/run_sglang.py CASES [--gpu 10.0] [--only WORD] [--redo]

As ``run_vllm.py``: SGLang is imported once, every case is built in a forked child on the meta device, without weights.
What poses as a GPU is the oracle's business (``../shared/oracle/sglang_oracle.py`` or ``--oracle``).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import run_vllm
import vllm_words

ORACLE = run_vllm.ORACLE.with_name("sglang_oracle.py")


# Model types whose config class comes with the checkpoint (`trust_remote_code`) and is not at hand.
_REMOTE = ("internlm2", "mimo", "nemotron-nas")


def stand_in_configs() -> None:
    """Teach transformers the model types of ``_REMOTE``: their keys as they stand, block lists as attributes."""
    transformers: Any = importlib.import_module("transformers")
    for model_type in _REMOTE:
        stand_in = type("StandIn", (transformers.PretrainedConfig,), {"model_type": model_type, **_BLOCKS})
        transformers.AutoConfig.register(model_type, stand_in)


def _blocks(config: Any) -> Any:
    return json.loads(json.dumps(config.__dict__["_blocks"]), object_hook=lambda d: types.SimpleNamespace(**d))


def _keep_blocks(config: Any, value: Any) -> None:
    config.__dict__["_blocks"] = value


_BLOCKS = {"block_configs": property(_blocks, _keep_blocks), "pad_token_id": None}


def _word(algo: str, method: Any, layer: Any) -> str:
    """Name what the oracle cannot: FP4 and integer schemes of compressed-tensors, and Quark's."""
    scheme = getattr(layer, "scheme", None) or method
    name = type(scheme).__name__
    if algo.startswith("ct:"):
        return {"CompressedTensorsW4A4Fp4": "nvfp4", "CompressedTensorsW4A16Fp4": "w4a16_nvfp4"}.get(name, algo)
    if name.startswith("CompressedTensors") and algo == "int4_wo":
        return f"int{32 // scheme.pack_factor}_wo" if hasattr(scheme, "pack_factor") else algo
    return vllm_words.quark(method, layer) if algo.startswith("?Quark") else algo


def load_oracle(path: Path) -> Any:
    """Import the oracle; see that it knows the configs which a checkpoint would bring along."""
    spec = importlib.util.spec_from_file_location("sglang_oracle", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"no oracle at {path}: name one with --oracle")
    oracle: Any = importlib.util.module_from_spec(spec)
    sys.modules["sglang_oracle"] = oracle
    spec.loader.exec_module(oracle)
    known = oracle.prepare

    def prepare(gpu: tuple[int, int]) -> None:
        known(gpu)
        stand_in_configs()

    described = oracle.describe

    def describe(method: Any, layer: Any, kind: str) -> dict[str, Any]:
        info: dict[str, Any] = described(method, layer, kind)
        info["algo"] = _word(info["algo"], method, layer)
        return info

    oracle.prepare, oracle.describe = prepare, describe
    return oracle


def answer(oracle: Any, case: Path, gpu: tuple[int, int] | None) -> tuple[dict[str, Any], str]:
    """Build one case; return the golden and, for a refusal, the traceback."""
    beside = case / "hf_quant_config.json"
    about: dict[str, Any] = {}
    if (case / "case.json").is_file():
        about = json.loads((case / "case.json").read_text())
    try:
        meta, modules = oracle.build(str(case / "config.json"), str(beside) if beside.is_file() else None, gpu)
    except BaseException as error:
        meta = {"sglang": importlib.import_module("sglang").__version__, "posed_gpu": list(gpu or ()), **about}
        return {"meta": meta, "raises": run_vllm.error_line(error, str(case))}, traceback.format_exc()
    nameless = {name.partition("#")[0] for name in modules if "#" in name}
    # Modules that share the name they are asked under are told apart by where they stand.
    modules = {m["path"] if name.partition("#")[0] in nameless else name: m for name, m in modules.items()}
    if meta["quant_config"] is None:
        # The oracle learns what embedding and head are called from what the quantization config is asked.
        modules = {name: m for name, m in modules.items() if m["kind"] not in ("embed", "lm_head")}
        meta["left_out"] = "embeddings and heads"
    return {"meta": {**meta, **about}, "modules": modules}, ""


def main() -> int:
    """Answer the cases that have no golden yet."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("cases", type=Path)
    ap.add_argument("--oracle", type=Path, default=ORACLE)
    ap.add_argument("--gpu", default="10.0", help="pose as this compute capability")
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--timeout", type=int, default=180)
    ap.add_argument("--only", default="", help="cases whose name holds this word")
    ap.add_argument("--redo", action="store_true")
    a = ap.parse_args()
    major, minor = (int(x) for x in a.gpu.split("."))
    folders = sorted(p.parent for p in a.cases.glob("*/config.json") if a.only in p.parent.name)
    todo = [f for f in folders if a.redo or not (f / "golden.json.gz").exists()]
    start = time.time()
    run_vllm.answer = answer
    lost = run_vllm.run(load_oracle(a.oracle.resolve()), todo, (major, minor), a.jobs, a.timeout)
    print(f"{len(todo)} cases in {time.time() - start:.0f} s, {lost} without an answer")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
