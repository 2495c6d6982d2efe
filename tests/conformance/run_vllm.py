"""Ask the real vLLM how it builds checkpoints: folders of ``config.json`` in, ``golden.json.gz`` beside it out.

Run it with the Python of an environment that holds a CPU build of vLLM (see ``docs/conformance.md``)::

    VENV/bin/python tests/conformance/run_vllm.py CASES [--gpu 10.0] [--jobs 2] [--only WORD] [--redo]

vLLM is imported once; every case is built in a forked child on the meta device, without weights. What poses as a GPU
and which kernel choices are stubbed is the oracle's business (``../shared/oracle/vllm_oracle.py`` or ``--oracle``).
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ORACLE = HERE.parents[2] / "shared" / "oracle" / "vllm_oracle.py"


def load_oracle(path: Path) -> Any:
    """Import the oracle and teach it the words and stand-ins that generated metadata needs."""
    sys.path.insert(0, str(HERE))
    import vllm_words

    spec = importlib.util.spec_from_file_location("vllm_oracle", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"no oracle at {path}: name one with --oracle")
    oracle: Any = importlib.util.module_from_spec(spec)
    sys.modules["vllm_oracle"] = oracle
    spec.loader.exec_module(oracle)
    known_describe, known_patch = oracle.describe, oracle.patch_kernels

    def describe(method: Any, quant_config: Any, layer: Any = None) -> dict[str, Any]:
        info: dict[str, Any] = known_describe(method, quant_config, layer)
        info["algo"] = vllm_words.word(method, layer, info["algo"])
        scheme = getattr(layer, "scheme", None)
        if scheme is not None:
            info["scheme"] = type(scheme).__name__
        return info

    def patch_kernels() -> Any:
        names = known_patch()
        from vllm.model_executor.layers.fused_moe.oracle.int_wna16 import WNA16MoEBackend

        # A stand-in backend would be taken for one of another vendor, or for an unknown one.
        oracle._patch_everywhere("select_wna16_moe_backend", lambda *a, **k: (WNA16MoEBackend.MARLIN, None))
        for module in [m for n, m in sys.modules.items() if n.startswith("vllm") and m is not None]:
            tolerate_stand_in(module, oracle)
        return names

    oracle.describe = describe
    oracle.patch_kernels = patch_kernels
    oracle._stub_kernel = lambda *a, **k: Kernel()
    return oracle


def tolerate_stand_in(module: Any, oracle: Any) -> None:
    """Let a module look up the experts class of a stand-in backend."""
    known = vars(module).get("backend_to_kernel_cls")
    if known is not None:
        module.backend_to_kernel_cls = lambda b: [None] if isinstance(b, oracle._Backend) else known(b)


class Kernel:
    """Stands in for a chosen linear kernel, class and instance alike."""

    __name__ = "Kernel"
    supports_pre_processed_weights = False

    def __call__(self, *a: Any, **k: Any) -> Kernel:
        return self

    def input_quant_key(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: None


def error_line(error: BaseException, folder: str) -> str:
    """The exception's type and its first informative line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "ValidationError" and len(lines) > 1:
        lines = lines[1:]
    return f"{type(error).__name__}: {lines[0][:250] if lines else ''}".replace(folder, "MODEL")


def answer(oracle: Any, case: Path, gpu: tuple[int, int] | None) -> tuple[dict[str, Any], str]:
    """Build one case; return the golden and, for a refusal, the traceback."""
    beside = case / "hf_quant_config.json"
    meta: dict[str, Any] = {"posed_gpu": list(gpu) if gpu else None}
    if (case / "case.json").is_file():
        meta |= json.loads((case / "case.json").read_text())
    try:
        built, modules = oracle.build(str(case / "config.json"), str(beside) if beside.is_file() else None, gpu)
    except BaseException as error:
        import vllm

        return {
            "meta": {"vllm": vllm.__version__, **meta},
            "error": error_line(error, str(case)),
        }, traceback.format_exc()
    return {"meta": {**built, **meta}, "modules": modules}, ""


def child(oracle: Any, case: Path, gpu: tuple[int, int] | None, timeout: int) -> None:
    """Answer one case in this process, which ends here."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    signal.alarm(timeout)
    # What the engine writes for a model that it refuses would stay behind.
    tempfile.tempdir = tempfile.mkdtemp(prefix="bitlane-vllm-")
    golden, trace = answer(oracle, case, gpu)
    shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    data = gzip.compress(json.dumps(golden).encode(), mtime=0)
    (case / "trace.txt").unlink(missing_ok=True)
    if trace:
        (case / "trace.txt").write_text(trace)
    (case / ".golden").write_bytes(data)
    (case / ".golden").rename(case / "golden.json.gz")
    os._exit(0)


def run(oracle: Any, cases: list[Path], gpu: tuple[int, int] | None, jobs: int, timeout: int) -> int:
    """Answer every case, ``jobs`` at a time; return how many ended without an answer."""
    oracle.prepare(gpu)
    running: dict[int, Path] = {}
    lost = 0
    for case in [*cases, None]:
        while running and (case is None or len(running) >= jobs):
            pid, status = os.wait()
            ended = running.pop(pid, None)
            if status and ended is not None:
                lost += 1
                print(f"no answer: {ended.name} (status {status})", flush=True)
        if case is not None:
            pid = os.fork()
            if pid == 0:
                try:
                    child(oracle, case, gpu, timeout)
                finally:
                    os._exit(1)
            running[pid] = case
    return lost


def main() -> int:
    """Answer the cases that have no golden yet."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("cases", type=Path)
    ap.add_argument("--oracle", type=Path, default=ORACLE)
    ap.add_argument("--gpu", default="10.0", help="pose as this compute capability; empty: the CPU platform")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--timeout", type=int, default=180)
    ap.add_argument("--only", default="", help="cases whose name holds this word")
    ap.add_argument("--redo", action="store_true")
    a = ap.parse_args()
    gpu = tuple(int(x) for x in a.gpu.split(".")) if a.gpu else None
    folders = sorted(p.parent for p in a.cases.glob("*/config.json") if a.only in p.parent.name)
    todo = [f for f in folders if a.redo or not (f / "golden.json.gz").exists()]
    start = time.time()
    lost = run(load_oracle(a.oracle.resolve()), todo, gpu, a.jobs, a.timeout)  # type: ignore[arg-type]
    print(f"{len(todo)} cases in {time.time() - start:.0f} s, {lost} without an answer")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
