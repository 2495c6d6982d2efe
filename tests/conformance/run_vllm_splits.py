"""Ask the real vLLM what one rank of a split holds, or why it refuses: the golden of ``test_splits.py``.

Run it with the Python of an environment that holds a CPU build of vLLM (see ``docs/conformance.md``)::

    VENV/bin/python tests/conformance/run_vllm_splits.py CHECKPOINT ... --splits 2 4 8 16x1x1 2x2x4 1x1x1x3 -o OUT.json

A split is ``tp``, ``tpxdpxep`` or ``tpxdpxepxpp``; with pipeline stages every stage is built. Each case is built in a
forked child on the meta device, posing as an SM100 GPU, without weights; the sizes of vLLM's process groups are set to
the split before the model class is built, so that its layers are those of rank 0.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from run_vllm import ORACLE, load_oracle


def pose(oracle: Any, tp: int, dp: int, pp: int, stage: int) -> None:
    """Set the sizes of the process groups."""
    from vllm.distributed import parallel_state as ps

    for group, size, rank in ((ps._TP, tp, 0), (ps._DP, dp, 0), (ps._EP, tp * dp, 0), (ps._PP, pp, stage)):
        if group is not None:
            group.world_size, group.rank_in_group, group.ranks, group.rank = size, rank, list(range(size)), rank
    oracle._patch_everywhere("get_tensor_model_parallel_world_size", lambda: tp)
    oracle._patch_everywhere("get_tensor_model_parallel_rank", lambda: 0)


def build(oracle: Any, folder: Path, tp: int, dp: int, ep: int, pp: int, stage: int) -> dict[str, list[Any]]:
    """Build the model class for one rank and list its modules."""
    import torch
    from torch.overrides import TorchFunctionMode
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        LoadConfig,
        ModelConfig,
        ParallelConfig,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.model_executor.layers.fused_moe.expert_map_manager import ExpertMapManager
    from vllm.model_executor.model_loader.utils import get_model_architecture, initialize_model

    class OnMeta(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None and str(kwargs["device"]) != "cpu":
                kwargs["device"] = torch.device("meta")
            if kwargs.get("pin_memory"):
                kwargs |= {"pin_memory": False, "device": torch.device("meta")}
            return func(*args, **kwargs)

    hf_quant = folder / "hf_quant_config.json"
    made, _ = oracle.make_dir(str(folder / "config.json"), str(hf_quant) if hf_quant.exists() else None)
    model_config = ModelConfig(
        model=made, tokenizer=made, skip_tokenizer_init=True, dtype="bfloat16", trust_remote_code=False,
        enforce_eager=True, max_model_len=1024,
    )  # fmt: skip
    parallel = ParallelConfig()
    whole = VllmConfig(
        model_config=model_config, cache_config=CacheConfig(block_size=16), parallel_config=parallel,
        load_config=LoadConfig(), device_config=DeviceConfig("cuda"),
    )  # fmt: skip
    with set_current_vllm_config(whole):
        oracle.init_dist()
    get_model_architecture(model_config)
    sizes = {
        "tensor_parallel_size": tp, "data_parallel_size": dp, "pipeline_parallel_size": pp,
        "enable_expert_parallel": ep > 1, "world_size": tp * pp,
    }  # fmt: skip
    for name, size in sizes.items():
        object.__setattr__(parallel, name, size)
    model_config.verify_with_parallel_config(parallel)
    oracle.patch_kernels()
    oracle.patch_cpu_limits()
    pose(oracle, tp, dp, pp, stage)
    # The map of experts is printed, which a meta tensor cannot be.
    ExpertMapManager.get_compressed_map_string = lambda self: ""
    for name in ("has_deep_gemm", "is_deep_gemm_supported"):
        oracle._patch_everywhere(name, lambda *a, **k: True)
    torch.accelerator.current_device_index = lambda: 0
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"), OnMeta():
        return listed(initialize_model(whole, model_config=model_config))


def listed(model: Any) -> dict[str, list[Any]]:
    """List what the rank holds of every module."""
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    out: dict[str, list[Any]] = {}
    for path, module in model.named_modules():
        if isinstance(module, RoutedExperts):
            config = module.moe_config
            inter = config.intermediate_size // config.moe_parallel_config.tp_size
            out[module.layer_name] = ["experts", config.hidden_dim, inter, module.local_num_experts]
        elif isinstance(module, (ParallelLMHead, VocabParallelEmbedding)):
            kind = "lm_head" if isinstance(module, ParallelLMHead) else "embed"
            out[getattr(module, "prefix", "") or path] = [
                kind,
                module.num_embeddings_per_partition,
                module.embedding_dim,
            ]
        elif isinstance(module, LinearBase) and module.prefix:
            parts = getattr(module, "output_partition_sizes", None) or [module.output_size]
            into = getattr(module, "input_size_per_partition", module.input_size)
            out[module.prefix] = ["linear", sum(parts), into]
    return out


def folded(modules: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Fold modules that differ in their layer alone."""
    found: dict[str, Counter[str]] = {}
    for path, sizes in modules.items():
        name = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path)
        found.setdefault(name, Counter())[json.dumps(sizes)] += 1
    return {name: [[json.loads(s), n] for s, n in sorted(c.items())] for name, c in sorted(found.items())}


def one(oracle: Any, folder: Path, sizes: tuple[int, int, int, int], stage: int) -> dict[str, Any]:
    """Build one case; a refusal is told by where it was raised."""
    tp, dp, ep, pp = sizes
    case: dict[str, Any] = {"checkpoint": folder.name, "tp": tp, "dp": dp, "ep": ep, "pp": pp, "stage": stage}
    try:
        modules = build(oracle, folder, tp, dp, ep, pp, stage)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return {**case, "refused": f"{type(error).__name__} in {Path(at.filename).name} {at.name}"}
    return {**case, **({"modules_on_stage": sorted(modules)} if pp > 1 else {"modules": folded(modules)})}


def forked(oracle: Any, folder: Path, sizes: tuple[int, int, int, int], stage: int) -> dict[str, Any]:
    """Build one case in a child, so that no state leaks into the next."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(300)
        with os.fdopen(write, "w") as out:
            json.dump(one(oracle, folder, sizes, stage), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"checkpoint": folder.name, "refused": "the child died"}


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--splits", nargs="+", default=["2", "4", "8"])
    parser.add_argument("--oracle", type=Path, default=ORACLE)
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    oracle = load_oracle(given.oracle)
    oracle.prepare((10, 0))
    cases = []
    for folder in given.checkpoints:
        for split in given.splits:
            tp, dp, ep, pp = (*map(int, split.split("x")), 1, 1, 1)[:4]
            for stage in range(pp):
                cases.append(forked(oracle, folder, (tp, dp, ep, pp), stage))
                last = cases[-1]
                print(folder.name, split, stage, last.get("refused", "ok"), file=sys.stderr, flush=True)
    given.out.write_text(json.dumps({"schema": "bitlane-tests.splits/1", "cases": cases}))


if __name__ == "__main__":
    main()
