"""Every packaged checkpoint file is what its provenance says, and the one derived file can be derived again."""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from bitlane import paths

LIGHTNING = "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
PROVENANCE: list[dict[str, Any]] = yaml.safe_load((paths.MODEL_CONFIGS / "provenance.yaml").read_text())["models"]
FILES = [(m["folder"], f) for m in PROVENANCE for f in m["files"]]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("folder", "entry"), FILES, ids=[f"{folder}/{entry['file']}" for folder, entry in FILES])
def test_file_is_the_one_its_provenance_names(folder: str, entry: dict[str, Any]) -> None:
    path = paths.MODEL_CONFIGS / folder / entry["file"]
    assert (path.stat().st_size, sha256(path)) == (entry["bytes"], entry["sha256"])
    assert entry["source"]


def test_no_file_without_provenance() -> None:
    shipped = {(p.parent.name, p.name) for p in paths.MODEL_CONFIGS.glob("*/*") if p.parent.name != "__pycache__"}
    assert shipped == {(folder, entry["file"]) for folder, entry in FILES}


def test_folder_names_spell_the_model_ids() -> None:
    assert {m["folder"]: m["model_id"] for m in PROVENANCE} == {
        m["folder"]: m["folder"].replace("--", "/", 1) for m in PROVENANCE
    }
    assert len(PROVENANCE) == 76


def test_licence_texts_that_must_travel_do() -> None:
    texts = (paths.MODEL_CONFIGS / "THIRD_PARTY_LICENSES.md").read_text()
    stated = {m["folder"]: m["licence"] for m in PROVENANCE if m["licence"]}
    assert len(stated) == 9
    missing = [folder for folder, licence in stated.items() if "Apache" not in licence and f"`{folder}`" not in texts]
    assert missing == []
    for text in ("Copyright (c) 2023 DeepSeek", "Qwen3.8-Max License", "LLAMA 4 COMMUNITY LICENSE AGREEMENT"):
        assert text in texts


def test_derived_files_name_what_they_were_made_from(repo_root: Path) -> None:
    derived = [(folder, entry) for folder, entry in FILES if "derived" in entry]
    assert [folder for folder, _ in derived] == [LIGHTNING]
    for source in derived[0][1]["derived"]["from"]:
        kept = repo_root / source["kept_at"]
        assert (kept.stat().st_size, sha256(kept)) == (source["bytes"], source["sha256"])


def test_lightning_can_be_derived_again_byte_for_byte(lightning_original: Path) -> None:
    script = load_script(paths.MODEL_CONFIGS / "derive_lightning.py")
    packaged = (paths.MODEL_CONFIGS / LIGHTNING / "config.json").read_text()
    assert script.derive(lightning_original) == packaged


def test_lightning_inlined_says_what_the_original_pair_says(lightning_original: Path) -> None:
    config = json.loads((lightning_original / "config.json").read_text())
    quant = json.loads((lightning_original / "hf_quant_config.json").read_text())["quantization"]
    packaged = json.loads((paths.MODEL_CONFIGS / LIGHTNING / "config.json").read_text())
    block = packaged.pop("quantization_config")
    assert "quantization_config" not in config
    assert packaged == config
    assert list(block["quantized_layers"].items()) == list(quant["quantized_layers"].items())
    assert block["ignore"] == quant["exclude_modules"]
    assert quant["kv_cache_quant_algo"] == "FP8"
    assert {k: v for k, v in block.items() if k not in ("quantized_layers", "ignore")} == {
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
        "quant_method": "modelopt",
    }


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_lightning_is_what_the_oracle_gave_to_vllm(
    shared: Path, lightning_original: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The goldens were made from the oracle's own inlining; run that function alone, without vLLM."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = (shared / "oracle" / "vllm_oracle.py").read_text()
    (make_dir,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "make_dir"]
    names: dict[str, Any] = {"json": json, "os": os, "shutil": shutil, "tempfile": tempfile}
    exec(compile(ast.Module([make_dir], []), "make_dir", "exec"), names)
    config, quant = (str(lightning_original / name) for name in ("config.json", "hf_quant_config.json"))
    folder, _ = names["make_dir"](config, quant, True)
    gc.collect()  # the oracle leaves its files open; the warning belongs to this test
    assert sorted(p.name for p in Path(folder).iterdir()) == ["config.json"]
    assert (Path(folder) / "config.json").read_bytes() == (paths.MODEL_CONFIGS / LIGHTNING / "config.json").read_bytes()


def test_super_shaped_reconstruction_runs_from_its_place(tmp_path: Path) -> None:
    script = paths.MODEL_CONFIGS / "reconstruct_super.py"
    done = subprocess.run([sys.executable, script, "--out", tmp_path], capture_output=True, text=True, check=True)
    assert "41099 listed modules" in done.stdout
    listing = json.loads((tmp_path / "config.json").read_text())["quantization_config"]["quantized_layers"]
    counts = {
        kind: sum(name.endswith(f".mixer.{kind}") for name in listing)
        for kind in ("shared_experts.up_proj", "shared_experts.down_proj", "fc1_latent_proj", "in_proj", "o_proj")
    }
    # The published counts of listed modules: FP8 39, FP8 37 + NVFP4 1, FP8 3, FP8 28, FP8 2.
    assert list(counts.values()) == [39, 38, 3, 28, 2]
