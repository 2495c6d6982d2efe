"""What a cold process pays for rules: parsed once, then read from the cache, without the parser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_CHILD = """
import sys
from bitlane.cli import main
try:
    main(["resolve", sys.argv[1], "--loader", "vllm@0.31.0", "--system", "gb200", "--json"], standalone_mode=False)
finally:
    print("\\nlark" if "lark" in sys.modules else "\\nno parser", file=sys.stderr)
"""


def _resolve(checkpoint: Path, cache: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(checkpoint)],
        env={**os.environ, "BITLANE_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr.strip().split("\n")[-1]


def test_the_second_process_parses_nothing(tmp_path: Path) -> None:
    """Building the parser takes most of a second; a warm cache spares it, and the answer is the same."""
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,'
        ' "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,'
        ' "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}}',
        encoding="utf-8",
    )
    first, parser = _resolve(tmp_path, tmp_path / "cache")
    assert parser == "lark"
    second, parser = _resolve(tmp_path, tmp_path / "cache")
    assert parser == "no parser"
    assert first == second


def test_cached_files_are_private_data(tmp_path: Path) -> None:
    """The cache is a folder of the user's own, and holds MessagePack, which executes nothing."""
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,'
        ' "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256}',
        encoding="utf-8",
    )
    _resolve(tmp_path, tmp_path / "cache")
    (folder,) = [p for p in (tmp_path / "cache").iterdir() if p.name.startswith("rules-")]
    assert folder.stat().st_mode & 0o022 == 0
    assert {p.suffix for p in folder.iterdir()} == {".msgpack"}
