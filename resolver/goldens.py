"""Recorded answers of real engines: finding them, reading them, and finding the checkpoints that they speak of."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError, UsageError
from .checkpoint import Checkpoint, from_dicts, from_folder, packaged
from .metadata import parse_json, printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LIMIT: Final = 64 << 20
# Key of `meta` that holds the engine's version -> our name of the loader.
_ENGINES: Final = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "trtllm"}
_POSED: Final = 100


@dataclass(frozen=True, slots=True)
class Golden:
    """What one engine does with one checkpoint.

    Attributes
    ----------
    path
        The golden's file.
    name
        Name of the checkpoint's folder (``org--model``), or of the case.
    variants
        What was changed before the engine saw it: ``inline``, ``mtp``, ``sm90``.
    loader, version
        Engine and version, in bitlane's words.
    sm
        Compute capability that the engine was shown, times ten.
    beside
        The checkpoint's folder where the golden lies in it, else None.
    refusal
        Why the engine refused the checkpoint; empty when it did not.
    modules
        Loader-side path to ``algo``, ``kind``, ``shape``, ``why`` and more.
    partial
        Whether the golden says of itself that it leaves modules out.
    """

    path: Path
    name: str
    variants: tuple[str, ...]
    loader: str
    version: str
    sm: int
    beside: Path | None
    refusal: str
    modules: Mapping[str, Mapping[str, Any]]
    partial: bool = False

    @property
    def label(self) -> str:
        """Name with its variants, as the file has it."""
        return "__".join((self.name, *self.variants))


def find_goldens(folders: tuple[Path, ...]) -> list[Path]:
    """Return the golden files below some folders, in name order.

    Raises
    ------
    UsageError
        BL280: no folder of that name, or no golden in it.
    """
    out: list[Path] = []
    for folder in folders:
        found = sorted(folder.rglob("*.json.gz")) if folder.is_dir() else []
        if not found:
            raise UsageError(
                "BL280",
                "no golden lies there",
                place=str(folder),
                help="a folder of VERSION/CHECKPOINT.json.gz, or of CASE/golden.json.gz beside config.json",
            )
        out += found
    return list(dict.fromkeys(out))


def read_golden(path: Path) -> Golden:
    """Read one golden.

    Raises
    ------
    CheckpointError
        BL281: not a golden: unreadable, larger than 64 MiB, without the engine's version or without an answer.
    """
    document = parse_json(_unpacked(path), path.name, str(path)).value
    meta = document.get("meta")
    engine = next((k for k in _ENGINES if isinstance(meta, dict) and isinstance(meta.get(k), str)), None)
    if engine is None or not isinstance(meta, dict):
        raise _bad(path, "`meta` names no engine version", "one of " + ", ".join(_ENGINES))
    modules = document.get("modules")
    refusal = next(
        (str(v) for v in (document.get("raises"), document.get("error"), meta.get("server_refuses")) if v), ""
    )
    if not refusal and not isinstance(modules, dict):
        raise _bad(path, "neither `modules` nor a refusal", "the oracle writes one of them")
    beside = path.parent if path.name == "golden.json.gz" else None
    name, *variants = (path.parent.name if beside else path.name.removesuffix(".json.gz")).split("__")
    # The version is the folder's name where goldens are kept by version: a branch has no other short name.
    version = str(meta[engine]) if beside or engine == "vllm" else path.parent.name
    listed = modules if isinstance(modules, dict) and not refusal else {}
    good = {_key(k, v): v for k, v in listed.items() if isinstance(v, dict)}
    return Golden(
        path,
        name,
        tuple(variants),
        _ENGINES[engine],
        version,
        _sm(meta),
        beside,
        refusal,
        good,
        bool(meta.get("left_out")),
    )


def _bad(path: Path, message: str, help: str) -> CheckpointError:
    return CheckpointError("BL281", f"not a golden: {message}", place=str(path), help=help)


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            data = file.read(LIMIT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _bad(path, f"cannot be unpacked ({error})", "write it with gzip") from error
    if len(data) > LIMIT:
        raise _bad(path, f"more than {LIMIT >> 20} MiB of JSON", "no checkpoint has so many modules")
    return data


def _sm(meta: Mapping[str, Any]) -> int:
    posed, sm = meta.get("posed_gpu"), meta.get("sm")
    if isinstance(posed, list) and len(posed) == 2 and all(isinstance(n, int) for n in posed):
        return int(posed[0] * 10 + posed[1])
    return sm if isinstance(sm, int) else _POSED


def _key(name: str, module: Mapping[str, Any]) -> str:
    """The path of a module; the engine's own name for it is empty where a class does not tell it."""
    path = module.get("path")
    return path if name.partition("#")[0] == "" and isinstance(path, str) else name


class Checkpoints:
    """Finds the checkpoint that a golden speaks of: beside it, in the given folders, then among the packaged ones."""

    def __init__(self, roots: tuple[Path, ...] = ()) -> None:
        self.roots = roots
        self._packaged: dict[str, Path] | None = None

    def open(self, golden: Golden) -> Checkpoint | None:
        """Return the checkpoint as the engine saw it, None when it is not at hand."""
        folder = self._folder(golden)
        if folder is None:
            return None
        opened = from_folder(folder, printable(golden.name))
        return _inlined(opened) if "inline" in golden.variants else opened

    def _folder(self, golden: Golden) -> Path | None:
        if golden.beside is not None:
            return golden.beside
        for root in self.roots:
            if (root / golden.name / "config.json").is_file():
                return root / golden.name
        if self._packaged is None:
            self._packaged = packaged()
        return self._packaged.get(golden.name.replace("--", "/", 1))


def _inlined(opened: Checkpoint) -> Checkpoint:
    """Move hf_quant_config.json into config.json in the flat form that newer ModelOpt exports have."""
    files = {name: dict(document.value) for name, document in opened.files.items()}
    moved = files.pop("hf_quant_config.json", None)
    if moved is None:
        return opened
    inner = moved.get("quantization", moved)
    flat = dict(inner) if isinstance(inner, dict) else {}
    flat["ignore"] = flat.pop("exclude_modules", flat.get("ignore", []))
    if flat.pop("kv_cache_quant_algo", None):
        flat["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    flat["quant_method"] = "modelopt"
    files["config.json"]["quantization_config"] = flat
    return from_dicts(files, opened.name)
