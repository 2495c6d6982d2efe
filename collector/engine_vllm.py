"""Backend ``vllm``: each case is the layer that vLLM itself would build for it, run by the kernel that vLLM chose."""

from __future__ import annotations

import contextlib
import importlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ..errors import UsageError
from . import cuda_timing, grids, routing, timing, vllm_build, vllm_recipe, vllm_weights
from .engine import Measurement, Origin, cpu_device, cpu_system
from .gpu import gpu_origin, require_gpu
from .sidecar import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .case import Case

# A power law is a draw; its mean needs several. A balanced load is the same in every draw.
DRAWS: Final = 5
ANY_MODEL: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 128,
    "torch_dtype": "bfloat16",
}


class Vllm:
    """The engine.

    Parameters
    ----------
    options
        ``system`` (checked against the device), ``image``, ``image_digest``, ``source_commit`` for the provenance;
        ``device=cpu`` runs what vLLM's processor build can run, as a system of its own.
    """

    name = "vllm"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._device = options.get("device", "cuda")
        if self._device != "cpu":
            require_gpu(self.name)
        self._version = importlib.import_module("vllm").__version__
        self._model: Any = None

    def origin(self) -> Origin:
        """The current device."""
        if self._device != "cpu":
            return gpu_origin(self.name, "vllm", self._version, self._options)
        runtime = Runtime("vllm", self._version, libraries={"torch": str(torch.__version__)})
        device = cpu_device(int(torch.get_num_threads()))
        return Origin(cpu_system(), "vllm_cpu", self._version.partition("+")[0], device, runtime, provenance="local")

    def lanes(self) -> frozenset[tuple[str, str]]:
        """All lanes but the processor's own; whether the device can run one is found when it is built."""
        return frozenset(
            (table, name) for name, lane in grids.lanes().items() if name != "fp32" for table in lane.tables
        )

    def measure(self, case: Case, seed: int) -> Measurement:
        """Build, load, check, time."""
        with self._session(expert_parallel="ep" in case.axes and case.integer("ep") > 1) as config:
            if case.table == "gemm":
                return self._linear(case, seed)
            if case.table == "moe":
                return self._experts(case, seed, config)
        raise UsageError("BL732", f"engine {self.name} has no layer for `{case.table}`", place=case.id)

    @property
    def _sm(self) -> int | None:
        if self._device == "cpu":
            return None
        major, minor = torch.cuda.get_device_capability()
        return int(major) * 10 + int(minor)

    @contextlib.contextmanager
    def _session(self, *, expert_parallel: bool) -> Iterator[Any]:
        """A fresh vLLM config, so that no case sees the layers of another; one rank, no gradients."""
        module = importlib.import_module("vllm.config")
        if self._model is None:
            self._model = _model_config(module)
        config = module.VllmConfig(model_config=self._model)
        config.parallel_config.enable_expert_parallel = expert_parallel
        before = torch.get_default_dtype()
        # Both are what vLLM sets while it loads a bfloat16 model; kernels are chosen by them.
        torch.set_default_dtype(torch.bfloat16)
        try:
            with module.set_current_vllm_config(config), torch.inference_mode(), torch.device(self._device):
                _one_rank("gloo" if self._device == "cpu" else "nccl")
                if self._device != "cpu":
                    _workspace()
                yield config
        finally:
            torch.set_default_dtype(before)

    def _linear(self, case: Case, seed: int) -> Measurement:
        recipe = vllm_recipe.linear(case)
        layers = [self._loaded_linear(recipe, seed + copy) for copy in range(self._copies(recipe))]
        kernel = vllm_build.check_linear(layers[0], recipe)
        generator = torch.Generator(device="cpu").manual_seed(seed % 2**63)
        x = torch.randn((case.integer("m"), recipe.k), generator=generator, device="cpu", dtype=torch.float32)
        x = x.to(device=self._device, dtype=torch.bfloat16)
        return Measurement(self._time([_call(layer, x) for layer in layers]), kernel)

    def _copies(self, recipe: vllm_recipe.LinearRecipe) -> int:
        return recipe.copies if self._device != "cpu" else min(recipe.copies, timing.copies(2 * recipe.n * recipe.k))

    def _loaded_linear(self, recipe: vllm_recipe.LinearRecipe, seed: int) -> Any:
        layer = vllm_build.linear(recipe)
        vllm_weights.fill(layer, seed, self._sm)
        layer.quant_method.process_weights_after_loading(layer)
        return layer

    def _experts(self, case: Case, seed: int, config: Any) -> Measurement:
        recipe = vllm_recipe.experts(case)
        runner = vllm_build.experts(recipe)
        held = getattr(runner, "routed_experts", runner)
        vllm_weights.fill(held, seed, self._sm)
        held.quant_method.process_weights_after_loading(held)
        ensure = getattr(held, "_ensure_moe_quant_config_init", None)
        if ensure is not None:
            ensure()
        kernel = vllm_build.check_experts(runner, recipe)
        tokens, how = case.integer("tokens"), str(case.axes["routing"])
        generator = torch.Generator(device="cpu").manual_seed(seed % 2**63)
        x = torch.randn((tokens, recipe.hidden), generator=generator, device="cpu", dtype=torch.float32)
        x = x.to(device=self._device, dtype=torch.bfloat16)
        draws = [_logits(recipe, tokens, how, seed + draw) for draw in range(1 if how == routing.BALANCED else DRAWS)]
        context = importlib.import_module("vllm.forward_context").set_forward_context
        with context(None, config, num_tokens=tokens):
            return Measurement(self._mean_over(draws, x, runner), kernel)

    def _mean_over(self, draws: list[Any], x: Any, runner: Any) -> float:
        """Mean over routings; the logits live in one buffer, so that one graph serves all draws."""
        logits = draws[0].to(self._device)
        calls = [lambda: runner(x, logits)]
        if self._device == "cpu":
            return float(np.mean([self._one_draw(draw, logits, calls) for draw in draws]))
        graph = cuda_timing.captured(calls)
        times = []
        for draw in draws:
            logits.copy_(draw)
            times.append(cuda_timing.replay_ms(graph, cuda_timing.WARM_UPS, cuda_timing.REPLAYS))
        return float(np.mean(times))

    @staticmethod
    def _one_draw(draw: Any, logits: Any, calls: list[Callable[[], object]]) -> float:
        logits.copy_(draw)
        return timing.median_ms(calls)

    def _time(self, calls: list[Callable[[], object]]) -> float:
        return timing.median_ms(calls) if self._device == "cpu" else cuda_timing.graph_ms(calls)


def _model_config(module: Any) -> Any:
    """Some bfloat16 model: layers ask the config for the model's type, and for nothing else of it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(ANY_MODEL))
        return module.ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16")


def _call(layer: Any, x: Any) -> Callable[[], object]:
    return lambda: layer(x)


def _logits(recipe: vllm_recipe.ExpertsRecipe, tokens: int, how: str, seed: int) -> Any:
    """Router logits [tokens, experts] whose top k are the experts that the routing assigns."""
    loads = routing.expert_loads(tokens, recipe.topk, recipe.experts, recipe.ep, how, seed)
    chosen = torch.from_numpy(routing.assignments(loads, tokens, recipe.topk)).cpu()
    logits = torch.zeros((tokens, recipe.experts), device="cpu", dtype=torch.float32)
    logits.scatter_(1, chosen, 10.0)
    return logits.to(torch.bfloat16)


def _one_rank(backend: str) -> None:
    """A process group of one: vLLM asks it for rank and size, and its collectives are then no operation."""
    state = importlib.import_module("vllm.distributed.parallel_state")
    if state.model_parallel_is_initialized():
        return
    with tempfile.TemporaryDirectory() as folder:
        state.init_distributed_environment(1, 0, f"file://{Path(folder) / 'store'}", 0, backend=backend)
        state.initialize_model_parallel(1, 1)


def _workspace() -> None:
    """Scratch memory that vLLM's modular experts expect a worker to have set up."""
    module = importlib.import_module("vllm.v1.worker.workspace")
    if not module.is_workspace_manager_initialized():
        module.init_workspace_manager(torch.device("cuda", torch.cuda.current_device()))
