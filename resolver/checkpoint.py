"""Finding a checkpoint and reading its metadata; never its weights."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import paths
from ..errors import CheckpointError, UsageError
from ..grammar.diagnostics import nearest
from .metadata import Document, check_depth, read_json

QUANT_FILES = (
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "quant_cfg.json",
    "quant_model_description.json",
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The metadata of one checkpoint.

    Attributes
    ----------
    name
        How the user named it.
    folder
        Where its files lie, or None for one given as dictionaries.
    files
        File name to parsed document; ``config.json`` is always there.
    damaged
        What hinders reading a file beside it. Only a loader that reads the file stops there.
    """

    name: str
    folder: Path | None
    files: dict[str, Document] = field(default_factory=dict)
    damaged: dict[str, CheckpointError] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        return self.files["config.json"].value

    @property
    def architecture(self) -> str:
        """First entry of ``architectures``."""
        listed = self.config.get("architectures")
        if isinstance(listed, list) and listed and isinstance(listed[0], str):
            return listed[0]
        raise CheckpointError(
            "BL205",
            "`architectures` names no model class",
            place=f"{self.name}: config.json#/architectures",
            help="the published config.json has it; add it",
        )

    @property
    def digest(self) -> str:
        """Content digest of the metadata, independent of where it lies."""
        import hashlib

        import msgspec

        content = {n: d.value for n, d in sorted(self.files.items())}
        try:
            data = msgspec.json.encode(content, order="sorted")
        except (OverflowError, UnicodeEncodeError):
            # Numbers over 64 bits and lone surrogates are JSON to Python, not to msgspec.
            data = json.dumps(content, sort_keys=True).encode()
        except RecursionError:
            raise CheckpointError(
                "BL204", "the metadata is nested too deeply", place=self.name, help="no checkpoint metadata needs that"
            ) from None
        return hashlib.sha256(data).hexdigest()[:16]


@lru_cache(maxsize=64)
def _read_cached(path: Path, mtime_ns: int, size: int) -> Document:  # noqa: ARG001 - the stamps are the cache key
    return read_json(path)


def _read(path: Path) -> Document:
    try:
        stamp = path.stat()
    except OSError:
        return read_json(path)
    return _read_cached(path, stamp.st_mtime_ns, stamp.st_size)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def from_folder(folder: Path, name: str) -> Checkpoint:
    """Read the metadata files of a checkpoint folder."""
    files = {"config.json": _read(folder / "config.json")}
    damaged: dict[str, CheckpointError] = {}
    for extra in QUANT_FILES:
        if _is_file(folder / extra):
            try:
                files[extra] = _read(folder / extra)
            except CheckpointError as error:
                damaged[extra] = error
    return Checkpoint(name, folder, files, damaged)


def from_dicts(files: dict[str, dict[str, Any]], name: str = "<dict>") -> Checkpoint:
    """Build a checkpoint from already parsed metadata; ``config.json`` is required."""
    if "config.json" not in files:
        raise CheckpointError("BL206", "no `config.json` was given", place=name, help="pass at least config.json")
    for file, value in files.items():
        check_depth(value, file, name)
    return Checkpoint(name, None, {n: Document(n, dict(v)) for n, v in files.items()})


def model_roots(extra: tuple[Path, ...] = ()) -> list[Path]:
    """Folders that hold packaged checkpoints: the caller's, then ``BITLANE_MODELS``, then the package's.

    Raises
    ------
    UsageError
        BL232: one of them does not exist.
    """
    listed = [Path(p) for p in os.environ.get("BITLANE_MODELS", "").split(os.pathsep) if p]
    absent = next((p for p in (*extra, *listed) if not p.is_dir()), None)
    if absent is not None:
        raise UsageError(
            "BL232", "the folder of models does not exist", place=str(absent), help="check --models and BITLANE_MODELS"
        )
    return [*extra, *listed, paths.MODEL_CONFIGS]


def packaged(extra: tuple[Path, ...] = ()) -> dict[str, Path]:
    """Return every packaged model id (``org/name``) and its folder."""
    out: dict[str, Path] = {}
    for root in model_roots(extra):
        if root.is_dir():
            for folder in sorted(root.iterdir()):
                if "--" in folder.name and _is_file(folder / "config.json"):
                    out.setdefault(folder.name.replace("--", "/", 1), folder)
    return out


def open_checkpoint(where: str | os.PathLike[str] | Checkpoint, models: tuple[Path, ...] = ()) -> Checkpoint:
    """Find and read a checkpoint.

    Parameters
    ----------
    where
        A packaged model id (``nvidia/Gemma-4-26B-A4B-NVFP4``), a folder, or the path of a ``config.json``.
    models
        More folders of ``org--name`` checkpoints, searched before the packaged ones.

    Raises
    ------
    UsageError
        BL200: nothing of that name.
    CheckpointError
        The metadata cannot be read.
    """
    if isinstance(where, Checkpoint):
        return where
    text = os.fspath(where)
    path = Path(text)
    try:
        if path.is_dir():
            if not _is_file(path / "config.json"):
                raise CheckpointError(
                    "BL206", "the folder holds no `config.json`", place=text, help="name the folder of one checkpoint"
                )
            return from_folder(path, text)
        if path.is_file():
            if path.name == "config.json":
                return from_folder(path.parent, text)
            return Checkpoint(text, path.parent, {"config.json": Document("config.json", read_json(path).value)})
    except (OSError, ValueError):
        raise UsageError(
            "BL200", "no checkpoint of that name", place=text[:200], help="give a model id, a folder or a config.json"
        ) from None
    for root in model_roots(models):
        folder = root / text.replace("/", "--", 1)
        if "/" in text and ".." not in text and _is_file(folder / "config.json"):
            return from_folder(folder, text)
    hint = nearest(text, packaged(models)) or "give a packaged model id (`bitlane models`), a folder, or a config.json"
    raise UsageError("BL200", f"no checkpoint `{text[:200]}`", place=text[:200], help=hint)
