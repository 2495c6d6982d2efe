"""A private place for compiled tables and kernels: ours, mode 0700, or else a throw-away folder."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from ..cachedir import ENVIRONMENT, base

log: Final = logging.getLogger("bitlane")


@functools.cache
def root() -> Path:
    """Return the cache folder, created 0700 and owned by this user.

    It lies in the folder of all caches (``BITLANE_CACHE``, else the platform's). When that cannot be written, or
    belongs to someone else, a private temporary folder serves this process and a notice is logged.
    """
    wanted = _wanted()
    try:
        return private(wanted)
    except OSError as error:
        log.warning(
            "bitlane: no usable cache folder (%s: %s); compiling into a temporary one, again in every process. Set %s.",
            wanted,
            error.strerror or error,
            ENVIRONMENT,
        )
    folder = Path(tempfile.mkdtemp(prefix="bitlane-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _wanted() -> Path:
    return (base() or Path("/nonexistent/bitlane")) / "tables"


def private(folder: Path) -> Path:
    """Create a folder with mode 0700, or check that an existing one is ours and tighten it.

    Raises
    ------
    OSError
        It cannot be created or written, is a link, or belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if stat.S_ISLNK(facts.st_mode) or not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(0, "not a plain folder", str(folder))
    if hasattr(os, "getuid"):
        if facts.st_uid != os.getuid():
            raise PermissionError(0, "belongs to another user", str(folder))
        if facts.st_mode & 0o077:
            folder.chmod(0o700)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(0, "not writable", str(folder))
    return folder


def write_atomic(path: Path, chunks: list[bytes | memoryview]) -> None:
    """Write a file so that readers see the old one or the whole new one."""
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
