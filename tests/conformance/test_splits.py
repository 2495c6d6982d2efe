"""Splits against the real vLLM: what one rank holds, which splits are refused, and which layers a stage has.

Expected values were recorded from the engine (``run_vllm_splits.py`` says how); the stage layouts of SGLang and
TensorRT-LLM from the function and the torch call that those engines use.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bitlane
from bitlane.errors import BitlaneError, UsageError
from bitlane.resolver.buckets import buckets
from bitlane.resolver.parallel import Parallel, expert_sizes, local, local_vocabulary
from bitlane.resolver.splits import Stage, stages

_DATA = Path(__file__).resolve().parents[1] / "data" / "splits"
_GOLDEN = json.loads(gzip.decompress((_DATA / "vllm-0.32.0.json.gz").read_bytes()))
_ROOT = Path(__file__).resolve().parents[2]
# With tp, dp and ep all above 1 vLLM cuts the tokens, not the shared experts, over the ranks of tp.
_SEQUENCES_CUT = re.compile(r"\.shared_experts?\.")
# Unpriced: these classes keep towers whole whose heads do not divide.
_WHOLE_TOWERS = re.compile(r"^vision_(tower|encoder)\.")
# Padded shared experts are refused as not described (deepseek_v4.rules).
_NOT_DESCRIBED = {("deepseek-ai--DeepSeek-V4-Flash", 32)}


def _folder(name: str) -> Path | None:
    packaged = _ROOT / "model_configs" / name
    reference = _ROOT.parent / "shared" / "model_configs_reference" / name
    return next((p for p in (packaged, reference) if p.is_dir()), None)


def _by_checkpoint(*, staged: bool) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for case in _GOLDEN["cases"]:
        if (case["pp"] > 1) is staged:
            out.setdefault(case["checkpoint"], []).append(case)
    return out


_ANSWERS: dict[str, bitlane.Resolution] = {}


def _answer(name: str) -> bitlane.Resolution:
    folder = _folder(name)
    if folder is None:
        pytest.skip("needs the reference folder ../shared beside the checkout")
    if name not in _ANSWERS:
        _ANSWERS[name] = bitlane.resolve(folder, "vllm@0.32.0", "b200")
    return _ANSWERS[name]


def _held(module: Any, split: Parallel) -> list[Any]:
    """What one rank holds of a module, in the golden's words."""
    if module.kind == "experts":
        sizes = expert_sizes(module, split)
        return ["experts", sizes.hidden, sizes.local_inter, sizes.local_count]
    if module.kind in ("embed", "lm_head"):
        rows, hidden = module.shape
        return [module.kind, local_vocabulary(rows, split.tp) if split.tp > 1 else -(-rows // 64) * 64, hidden]
    sizes = [local(m, split.tp, module) for m in module.members]
    return ["linear", sum(out for out, _ in sizes), sizes[0][1]]


def _differences(answer: bitlane.Resolution, case: dict[str, Any]) -> list[str]:
    split = Parallel.of(case["tp"], case["ep"], case["dp"])
    mine: dict[str, Counter[str]] = {}
    for row in answer.rows:
        name = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", row.module.path)
        try:
            held = json.dumps(_held(row.module, split))
        except BitlaneError as error:
            held = str(error)
        mine.setdefault(name, Counter())[held] += 1
    cut = split.tp > 1 and split.dp > 1 and split.moe_ep > 1
    wrong = []
    for name, sizes in case["modules"].items():
        if (cut and _SEQUENCES_CUT.search(name)) or (split.tp > 16 and _WHOLE_TOWERS.search(name)):
            continue
        if mine.get(name) != Counter({json.dumps(s): n for s, n in sizes}):
            wrong.append(f"{case['checkpoint']} {split.text} {name}: engine {sizes}, here {mine.get(name)}")
    return wrong


@pytest.mark.parametrize("name", sorted(_by_checkpoint(staged=False)))
def test_one_rank_holds_what_the_engine_holds_and_refusals_agree(name: str) -> None:
    answer = _answer(name)
    wrong = []
    for case in _by_checkpoint(staged=False)[name]:
        split = Parallel.of(case["tp"], case["ep"], case["dp"])
        try:
            buckets(answer, split)
            refused = ""
        except UsageError as error:
            refused = str(error)
        if "refused" in case:
            wrong += [] if refused else [f"{name} {split.text}: the engine refuses it in {case['refused']}"]
        elif (name, split.tp) in _NOT_DESCRIBED:
            assert "not described" in refused
        elif refused:
            wrong.append(f"{name} {split.text}: refused here alone: {refused}")
        else:
            wrong += _differences(answer, case)
    assert wrong == []


def test_the_golden_covers_what_it_claims() -> None:
    cases = _GOLDEN["cases"]
    assert len(cases) >= 280
    assert sum("refused" in c for c in cases) >= 75
    assert len({c["checkpoint"] for c in cases}) >= 40
    assert sum("modules_on_stage" in c for c in cases) == 14


@pytest.mark.parametrize("name", sorted(_by_checkpoint(staged=True)))
def test_stages_hold_the_modules_that_the_engine_builds_there(name: str) -> None:
    answer = _answer(name)
    for case in _by_checkpoint(staged=True)[name]:
        split = Parallel.of(pp=case["pp"])
        stage = stages(answer, split)[case["stage"]]
        mine = {m for b in buckets(answer, split, stage=stage) for m in b.modules}
        priced = {r.module.path for r in answer.rows if r.module.priced}
        wanted = {m for m in case["modules_on_stage"] if m in priced}
        # Some classes build a head on every stage, and a tied head is the embedding once more on the last one.
        idle = {m for m in wanted - mine if m.endswith(("lm_head", "embed_tokens"))}
        assert mine == wanted - idle
        assert any(m.endswith("embed_tokens") for m in mine) is (case["stage"] == 0)
        assert any(m.endswith("lm_head") for m in mine) is (case["stage"] == case["pp"] - 1)


@pytest.mark.parametrize("loader", ["vllm@0.32.0", "sglang@0.5.23", "trtllm"])
def test_layers_lie_on_stages_as_the_engine_lays_them(loader: str) -> None:
    answer = bitlane.resolve("meta-llama/Meta-Llama-3.1-8B", loader, "b200")
    for layers, pp, sizes in json.loads((_DATA / "stages.json").read_text())[loader.partition("@")[0]]:
        values = {"tp": 1, "ep": 1, "dp": 1, "moe_tp": 1, "pp": pp, "layers": layers}
        assert [answer.lanes.number("stage_layers", {**values, "stage": s}) for s in range(pp)] == sizes


def test_more_stages_than_layers_are_refused() -> None:
    answer = bitlane.resolve("meta-llama/Meta-Llama-3.1-8B", "vllm@0.32.0", "b200")
    assert stages(answer, Parallel.of(pp=32))[-1] == Stage(31, 32, 31, 32)
    with pytest.raises(UsageError, match="33 stages for 32 layers"):
        stages(answer, Parallel.of(pp=33))
