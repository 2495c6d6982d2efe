"""docs/buckets.md is current, and every count in it is what the real vLLM 0.32.0 builds."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bitlane

_ROOT = Path(__file__).resolve().parents[2]


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("make_buckets", _ROOT / "docs" / "make_buckets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_buckets"] = module
    spec.loader.exec_module(module)
    return module


make_buckets = _script()


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return make_buckets.answers(tmp_path_factory.mktemp("super"))


def test_the_page_is_current(resolved: dict[str, Any]) -> None:
    assert make_buckets.render(resolved) == make_buckets.PAGE.read_text(encoding="utf-8"), (
        "run `python docs/make_buckets.py`"
    )


def _golden(name: str, request: pytest.FixtureRequest) -> dict[str, Counter[str]]:
    """Modules by name without layer and by algorithm, as the engine built them."""
    if name == "":
        recorded = json.loads((_ROOT / "tests" / "data" / "deepseek-v3.2" / "vllm-0.32.0.json").read_text())
        return {k: Counter(v) for k, v in recorded["summary"].items()}
    path = request.getfixturevalue("shared") / "vllm_golden" / "0.32.0" / f"{name}.json.gz"
    out: dict[str, Counter[str]] = {}
    for module, facts in json.loads(gzip.decompress(path.read_bytes()))["modules"].items():
        if facts["kind"] in ("linear", "experts", "lm_head", "embed"):
            out.setdefault(make_buckets.pattern(module.split("#")[0]), Counter())[facts["algo"]] += 1
    return out


@pytest.mark.parametrize("name", list(make_buckets.CHECKPOINTS))
def test_every_count_is_the_engines(name: str, resolved: dict[str, Any], request: pytest.FixtureRequest) -> None:
    answer = resolved[name]
    mine: dict[str, Counter[str]] = {}
    for bucket in bitlane.buckets(answer):
        assert bucket.layers == len(bucket.modules) or not bucket.modules
        for module in bucket.modules:
            mine.setdefault(make_buckets.pattern(module), Counter())[bucket.algorithm] += 1
    golden = _golden(make_buckets.CHECKPOINTS[name][1], request)
    assert len(mine) > 5
    assert mine == {pattern: golden.get(pattern) for pattern in mine}
    # Nothing that the engine builds in the layers is left out of the buckets, but what no table prices.
    priced = {make_buckets.pattern(r.module.path) for r in answer.rows if r.module.priced}
    unpriced = {make_buckets.pattern(r.module.path) for r in answer.rows if not r.module.priced}
    assert set(mine) == priced
    assert set(golden) - priced <= unpriced
