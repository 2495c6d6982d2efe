"""A private, per-user folder for derived data: mode 0700, owned by us, or none at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "BITLANE_CACHE"


def base() -> Path | None:
    """Return where caches lie: ``BITLANE_CACHE``, else the platform's user cache folder, None where there is none."""
    override = os.environ.get(ENVIRONMENT)
    if override:
        return Path(override)
    from platformdirs import user_cache_path

    try:
        return user_cache_path("bitlane", appauthor=False)
    except (RuntimeError, KeyError, OSError):  # no home directory and no passwd entry
        return None


def private_dir(name: str) -> Path | None:
    """Return the cache folder ``name``, made on demand.

    Returns None when no folder can be made, or when the one that is there belongs to somebody else or is open to
    others: then callers work without a cache.
    """
    home = base()
    if home is None:
        return None
    folder = home / name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022):
        return None
    return folder


def write_atomic(path: Path, data: bytes) -> bool:
    """Write a file so that readers see all of it or nothing; return whether it worked."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        return False
    return True
