"""What all tests share: where the repository and the optional reference folder lie, and how hypothesis runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# No wall-clock verdicts: a slow machine is not a failing test.
settings.register_profile("bitlane", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("bitlane")


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The checkout that the tests run in."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference folder beside the checkout (engine goldens, generated cases); the test is skipped without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the reference folder ../shared beside the checkout")
    return folder


@pytest.fixture(scope="session")
def lightning_original() -> Path:
    """Lightning's metadata as found: the quantization listing only in hf_quant_config.json, which vLLM refuses."""
    return ROOT / "tests" / "data" / "lightning-original"
