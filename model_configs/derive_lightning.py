"""Derive the packaged Lightning config.json from the pair of files it was found as.

``nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4`` was found as a ``config.json`` without any quantization block
beside a ``hf_quant_config.json`` that holds the whole listing. vLLM refuses that pair (``Unknown ModelOpt quant algo:
MIXED_PRECISION``), while the published checkpoint carries the listing in ``config.json``. This script writes the flat
form that newer ModelOpt releases write there::

    python derive_lightning.py FOLDER [--out config.json]

FOLDER holds the original pair (in a checkout: ``tests/data/lightning-original``). Nothing is added but what the flat
form needs; every key and its order is kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def inline(config: dict[str, Any], hf_quant: dict[str, Any]) -> dict[str, Any]:
    """Move the content of ``hf_quant_config.json`` into ``config.json`` as ``quantization_config``.

    Parameters
    ----------
    config
        Parsed ``config.json`` without ``quantization_config``.
    hf_quant
        Parsed ``hf_quant_config.json``; its ``quantization`` object (or itself, where it has none) is what moves.

    Returns
    -------
    dict
        A copy of `config` with the block as its last key: ``exclude_modules`` renamed ``ignore``,
        ``kv_cache_quant_algo`` turned into the 8-bit float ``kv_cache_scheme``, ``quant_method`` set to ``modelopt``.

    Raises
    ------
    ValueError
        If `config` has a block already, or the KV-cache algorithm is not FP8 and so has no 8-bit float scheme.
    """
    if "quantization_config" in config:
        raise ValueError("config.json has a quantization_config already: there is nothing to derive")
    block = dict(hf_quant.get("quantization", hf_quant))
    block["ignore"] = block.pop("exclude_modules", block.get("ignore", []))
    kv_cache = block.pop("kv_cache_quant_algo", None)
    if kv_cache == "FP8":
        block["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    elif kv_cache is not None:
        raise ValueError(f"kv_cache_quant_algo is {kv_cache!r}: only FP8 can be written as an 8-bit float scheme")
    block["quant_method"] = "modelopt"
    return {**config, "quantization_config": block}


def derive(folder: Path) -> str:
    """Return the text of the derived ``config.json`` of the original pair in `folder`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    hf_quant = json.loads((folder / "hf_quant_config.json").read_text(encoding="utf-8"))
    return json.dumps(inline(config, hf_quant))


def main() -> None:
    """Write the derived file to ``--out``, or to standard output."""
    parser = argparse.ArgumentParser(description="Inline hf_quant_config.json into config.json (flat ModelOpt form).")
    parser.add_argument("folder", type=Path, help="folder with the original config.json and hf_quant_config.json")
    parser.add_argument("--out", type=Path, help="file to write; default: standard output")
    given = parser.parse_args()
    text = derive(given.folder)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
