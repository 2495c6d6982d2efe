#!/usr/bin/env bash
# Measure a few hundred GEMM cases with plain torch on whatever CUDA GPU is here, in under five minutes, and check the
# result. The rows are real: their folder may be merged with `bitlane collect merge`.
#   benchmarks/collect_on_gpu.sh OUT_DIR [SYSTEM]
# SYSTEM is needed only for a device that collector/cases/devices.yaml does not name.
set -euo pipefail
out="$1"
system=("${@:2}")
python -m bitlane.cli collect run --engine torch_cuda --base-grid --lane bf16 --lane fp8_dynamic --lane fp8_static \
  --limit 300 --shuffle 42 "${system[@]/#/--system=}" --out "$out/run"
python -m bitlane.cli collect status "$out/run" --failures
python -m bitlane.cli collect merge "$out/run" --into "$out/tables"
python -m bitlane.cli perf-data check "$out/tables"
