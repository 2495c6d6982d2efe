"""Where packaged data lies: rules, checkpoints and tables, in a checkout and in an installed wheel alike."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent
RULES: Final = ROOT / "rules"
MODEL_CONFIGS: Final = ROOT / "model_configs"
PERF_DATA: Final = ROOT / "perf_data"
