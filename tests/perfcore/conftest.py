"""Shared by the pricing tests: where compiled tables are kept, and the packaged tables."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Compiled tables are kept between runs, away from the user's own cache.
os.environ.setdefault("BITLANE_CACHE", str(Path(tempfile.gettempdir()) / f"bitlane-tests-{os.getuid()}"))


@pytest.fixture(scope="session")
def store() -> Any:
    from bitlane.perfcore import Store

    return Store()
