"""A checkpoint on the model hub: its metadata, and the headers of its shards by range reads; never the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..errors import CheckpointError, UsageError
from .checkpoint import QUANT_FILES, Checkpoint
from .headers import read_header
from .metadata import CONFIG_LIMIT, parse_json, printable
from .tensors import Source, Tensors

if TYPE_CHECKING:
    from .headers import Tensor

# Most headers are smaller than this; one range request then brings the length and the JSON together.
_FIRST: Final = 1 << 18


def _filesystem() -> Any:
    """Return the hub's file system; it knows endpoints, tokens, caches and offline mode.

    Raises
    ------
    UsageError
        BL277: the extra is not installed.
    """
    try:
        from huggingface_hub import HfFileSystem
    except ImportError as error:
        raise UsageError(
            "BL277",
            "reading from the model hub needs the extra `hub`",
            place="--hub",
            help="pip install 'bitlane[hub]', or download config.json and the weight index and name their folder",
        ) from error
    return HfFileSystem()


def open_repository(name: str, revision: str = "main", files: Any = None) -> tuple[Checkpoint, Tensors]:
    """Read a repository's metadata and the headers of its safetensors files.

    Parameters
    ----------
    name
        ``organisation/model``.
    revision
        Branch, tag or commit.
    files
        File system of the hub, with ``ls`` and ``open`` as fsspec has them; by default huggingface_hub's.

    Returns
    -------
    tuple of Checkpoint and Tensors
        The metadata as from a folder, and what is stored.

    Raises
    ------
    UsageError
        BL277 the extra `hub` is not installed, BL200 no name of a repository.
    CheckpointError
        BL278 the hub does not answer or has no such repository; BL206 no config.json; BL271 to BL276 as for folders.
    """
    if name.count("/") != 1 or name.startswith("/") or name.endswith("/") or "@" in name or ".." in name:
        raise UsageError(
            "BL200",
            "no name of a repository",
            place=printable(name)[:200],
            help="organisation/model, as the hub spells it",
        )
    return _Repository(files if files is not None else _filesystem(), name, revision).read()


class _Repository:
    """One repository at one revision."""

    def __init__(self, files: Any, name: str, revision: str) -> None:
        self.files, self.name, self.root = files, name, f"{name}@{revision}"

    def read(self) -> tuple[Checkpoint, Tensors]:
        listed = self._ask(lambda: self.files.ls(self.root, detail=True), self.root)
        sizes = {str(f["name"]).rpartition("/")[2]: int(f.get("size") or 0) for f in listed if f.get("type") == "file"}
        if "config.json" not in sizes:
            raise CheckpointError(
                "BL206",
                "the repository holds no `config.json`",
                place=self.root,
                help="name the repository of one checkpoint",
            )
        metadata = [n for n in ("config.json", *QUANT_FILES) if n in sizes]
        documents = {n: parse_json(self._bounded(n), n, f"{self.root}/{n}") for n in metadata}
        source = Source(self.root, frozenset(sizes), self.fetch, lambda n: self.header(n, sizes[n]))
        return Checkpoint(self.name, None, documents), source.tensors()

    def _bounded(self, name: str) -> bytes:
        data = self.fetch(name, CONFIG_LIMIT)
        if len(data) > CONFIG_LIMIT:
            raise CheckpointError(
                "BL202",
                f"`{name}` is larger than {CONFIG_LIMIT >> 20} MiB",
                place=self.root,
                help="metadata of this size is not a checkpoint's",
            )
        return data

    def fetch(self, name: str, limit: int) -> bytes:
        """Return a small file, at most ``limit + 1`` bytes of it."""

        def read() -> bytes:
            with self.files.open(f"{self.root}/{name}", "rb") as file:
                return bytes(file.read(limit + 1))

        data: bytes = self._ask(read, f"{self.root}/{name}")
        return data

    def header(self, name: str, size: int) -> dict[str, Tensor]:
        """Return a shard's header."""
        place = f"{self.root}/{name}"

        def read() -> dict[str, Tensor]:
            with self.files.open(place, "rb", block_size=_FIRST) as file:
                return read_header(file, name, size, place)

        found: dict[str, Tensor] = self._ask(read, place)
        return found

    def _ask(self, question: Any, place: str) -> Any:
        """Ask the hub; whatever it or the network raises is told as one refusal."""
        try:
            return question()
        except CheckpointError:
            raise
        except Exception as error:
            # The HTTP client behind the hub's library changes with its releases, and its exceptions with it.
            text = f"{type(error).__name__}: {printable(str(error).partition(chr(10))[0])[:200]}"
            raise CheckpointError(
                "BL278",
                f"the model hub does not give this: {text}",
                place=place,
                help="check the name, the revision, HF_TOKEN and the network",
            ) from error
