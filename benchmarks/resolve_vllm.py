#!/usr/bin/env python3
"""vLLM's own matching on the questions that ``resolve.py --dump FOLDER`` wrote. Run with a Python that has vLLM.

    VLLM_PYTHON benchmarks/resolve_vllm.py FOLDER

Prints CPU milliseconds (median of 3) to build vLLM's mixed-precision config from the metadata and to ask it, module by
module, whether the module is excluded and which algorithm it gets; and how many answers agree.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

WORDS = {None: "bf16", "NVFP4": "nvfp4", "MXFP8": "mxfp8", "FP8": "fp8"}


def main() -> None:
    """Measure and print."""
    from vllm.model_executor.layers.quantization.modelopt import ModelOptMixedPrecisionConfig

    print(f"{'entries':>9} {'modules':>8} {'config ms':>10} {'ask ms':>8} {'agree':>7}")
    for folder in sorted(Path(sys.argv[1]).glob("x*")):
        block = json.loads((folder / "config.json").read_text())["quantization_config"]
        asked = json.loads((folder / "modules.json").read_text())
        built, answered = [], []
        for _ in range(3):
            start = time.process_time()
            config = ModelOptMixedPrecisionConfig.from_config(json.loads(json.dumps(block)))
            config.packed_modules_mapping = {
                "qkv_proj": ["q_proj", "k_proj", "v_proj"],
                "gate_up_proj": ["gate_proj", "up_proj"],
            }
            middle = time.process_time()
            found = [
                None if config.is_layer_excluded(m["module"]) else config._resolve_quant_algo(m["module"])
                for m in asked
            ]
            built.append(middle - start)
            answered.append(time.process_time() - middle)
        agree = sum(WORDS.get(f, f) == m["algorithm"] for f, m in zip(found, asked, strict=True))
        first, second = statistics.median(built) * 1000, statistics.median(answered) * 1000
        print(f"{len(block['quantized_layers']):9,d} {len(asked):8d} {first:10.1f} {second:8.1f} {agree:7d}")


if __name__ == "__main__":
    main()
