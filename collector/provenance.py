"""Who collects: digests of the collector's source and of the case plan, and the commit it comes from."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING, Final

from ..paths import ROOT
from .durable import digest

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN_REF: Final = "unknown"


def case_plan_hash(case_ids: Iterable[str]) -> str:
    """SHA-256 of the sorted case ids, one a line."""
    return digest("".join(f"{case}\n" for case in sorted(set(case_ids))).encode())


EMPTY_PLAN_HASH: Final = case_plan_hash(())


def collector_hash() -> str:
    """SHA-256 over path and content of every source and case file of the collector, in path order.

    Two runs with the same digest measured with the same code and the same grids.
    """
    folder = ROOT / "collector"
    state = hashlib.sha256()
    files = [path for path in folder.rglob("*") if path.suffix in {".py", ".yaml"} and path.is_file()]
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        content = path.read_bytes()
        state.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()


def collector_ref() -> str:
    """Last commit that touched the collector in the checkout this program runs from; ``-dirty`` if changed since.

    ``unknown`` outside a checkout (an installed wheel); the digest of :func:`collector_hash` says it exactly.
    """
    commit = _git("log", "-1", "--format=%H", "--", "collector")
    if not commit or _git("ls-files", "--error-unmatch", "collector/provenance.py") is None:
        return UNKNOWN_REF
    return f"{commit}-dirty" if _git("status", "--porcelain", "--", "collector") else commit


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
