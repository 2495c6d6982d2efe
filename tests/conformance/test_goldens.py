"""Every golden of the reference folder, module by module: what real engines build. Skipped without ``../shared``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bitlane.resolver.conform import conform, folded, totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitlane.resolver.conform import Agreement, Totals

ROOT = Path(__file__).resolve().parents[2]
SETS = ("vllm_golden", "sglang_golden", "trtllm_golden", "generated_cases")


@pytest.fixture(scope="session")
def homes(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Where the goldens' checkpoints lie; the synthetic one is written by the script that its golden was made with."""
    made = tmp_path_factory.mktemp("synthetic")
    script = ROOT / "model_configs" / "reconstruct_super.py"
    out = made / "synthetic--super-seed20261129"
    subprocess.run([sys.executable, script, "--out", out], check=True, capture_output=True)
    return made, shared / "model_configs_source", shared / "model_configs_reference"


@pytest.fixture(scope="session")
def run(shared: Path, homes: tuple[Path, ...]) -> Callable[[str], list[Agreement]]:
    """Compare one set of goldens, once for all tests."""
    done: dict[str, list[Agreement]] = {}

    def compare(name: str) -> list[Agreement]:
        if not (shared / name).is_dir():
            pytest.skip(f"needs the reference folder ../shared/{name}")
        if name not in done:
            done[name] = list(conform((shared / name,), homes))
        return done[name]

    return compare


def told(found: list[Agreement]) -> str:
    """What differs, for the reader of a failure."""
    lines = []
    for one in found:
        for difference, count in folded(one.differences)[:3]:
            lines.append(
                f"{one.golden.loader}@{one.golden.version} {one.golden.label}: {count} x {difference.to_dict()}"
            )
    return "\n".join(lines[:40])


@pytest.mark.parametrize("name", SETS)
def test_agreement(run: Callable[[str], list[Agreement]], name: str) -> None:
    """Algorithms, shapes and refusals are equal without exception; what is not compared is known by name."""
    found = run(name)
    for label, total in totals(found).items():
        print(f"{name} {label}: {_sentence(total)}")
    assert not any(a.differences for a in found), told(found)
    assert [(a.golden.label, a.reason) for a in found if a.status == "unsupported"] == []
    # The draft model of a checkpoint is a model class of its own.
    assert {a.golden.variants[-1:] for a in found if a.status == "skipped"} <= {("mtp",)}
    whole = totals(found)["all"]
    assert whole.modules == whole.agree > 0
    assert whole.shapes == whole.shapes_agree > 0
    assert whole.refusals == whole.refusals_agree


def _sentence(t: Totals) -> str:
    return (
        f"{t.agree}/{t.modules} modules, {t.shapes_agree}/{t.shapes} shapes, {t.refusals_agree}/{t.refusals} refusals, "
        f"{t.unsupported} unsupported, {t.skipped} skipped of {t.goldens}"
    )


def test_refusals_have_a_reason(run: Callable[[str], list[Agreement]]) -> None:
    """Where both refuse, bitlane's reason has a code and a place."""
    refused = [a for name in SETS for a in run(name) if a.status == "refused"]
    assert refused
    assert [a.golden.label for a in refused if not a.our_reason.startswith("BL")] == []
