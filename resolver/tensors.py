"""Which tensors a checkpoint stores: one file, shards with an index, or an index alone; never the weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..errors import CheckpointError
from .headers import Tensor, bad, read_header
from .metadata import INDEX_LIMIT, parse_json, printable, tensor_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Tensors:
    """All tensors that a checkpoint stores.

    Attributes
    ----------
    where
        What was read: a folder, an index or a repository.
    tensors
        By name.
    files
        Files whose headers were read; none when the index was all there was.
    odd
        What is wrong with the files themselves, each as a sentence: a shard is missing, a tensor is not where the
        index says.
    """

    where: str
    tensors: Mapping[str, Tensor]
    files: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def names_only(self) -> bool:
        """Whether no header was at hand, so that types and shapes are unknown."""
        return not self.files


# --- an index -----------------------------------------------------------------


def parse_index(data: bytes, name: str, place: str = "") -> dict[str, str]:
    """Return tensor name to shard of a weight index.

    Raises
    ------
    CheckpointError
        BL202 too large, BL203, BL204 no JSON, BL275 no `weight_map` of tensor names to plain file names.
    """
    where = place or name
    if len(data) > INDEX_LIMIT:
        raise CheckpointError(
            "BL202",
            f"`{name}` is larger than {INDEX_LIMIT >> 20} MiB",
            place=where,
            help="an index of this size is not a checkpoint's",
        )
    document = parse_json(data, name, where)
    listed = document.value.get("weight_map")
    if not isinstance(listed, dict):
        raise bad("BL275", f"`{name}` has no `weight_map`", where, "a weight index maps tensor names to files")
    for tensor, shard in listed.items():
        if not tensor_name(tensor):
            raise bad(
                "BL275", f"`{printable(tensor)[:80]}` is no printable tensor name of at most 512 characters", where
            )
        if not _plain_name(shard):
            raise bad(
                "BL275",
                f"tensor `{tensor}` lies in `{printable(str(shard))[:80]}`, which is no plain file name",
                where,
                "shards lie beside the index",
            )
    return listed


def _plain_name(shard: object) -> bool:
    return tensor_name(shard) and not set(shard) & set("/\\:") and shard not in ("", ".", "..")


# --- a folder -----------------------------------------------------------------


@dataclass(slots=True)
class Source:
    """Where files come from: a folder or a repository.

    Attributes
    ----------
    where
        Named in errors and answers.
    names
        Files that are there.
    fetch
        Returns the content of a small file, at most ``limit + 1`` bytes.
    header
        Returns the parsed header of a safetensors file.
    """

    where: str
    names: frozenset[str]
    fetch: Callable[[str, int], bytes]
    header: Callable[[str], dict[str, Tensor]]
    _read: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def headers(self, names: Iterable[str]) -> None:
        """Read the headers of some files."""
        for name in names:
            if name not in self._read:
                self._read[name] = self.header(name)

    def tensors(self) -> Tensors:
        """Read what the index says and what the shards hold.

        Raises
        ------
        CheckpointError
            BL276: neither an index nor a safetensors file; and what the readers raise.
        """
        index = _index_of(self.names)
        if index is None:
            return self._without_index()
        listed = parse_index(self.fetch(index, INDEX_LIMIT), index, f"{self.where}: {index}")
        shards = sorted(set(listed.values()))
        here = [s for s in shards if s in self.names]
        self.headers(here)
        out: dict[str, Tensor] = {}
        misplaced: dict[str, list[str]] = {}
        for name, shard in listed.items():
            found = self._read[shard].get(name) if shard in self._read else None
            if found is None and shard in self._read:
                misplaced.setdefault(shard, []).append(name)
            out[name] = found or Tensor(name, file=shard)
        odd = [
            f"`{s}` does not hold {len(n)} of the tensors that `{index}` promises in it, such as `{n[0]}`"
            for s, n in sorted(misplaced.items())
        ]
        missing = [s for s in shards if s not in self.names] if here else []
        if missing:
            odd.append(f"{len(missing)} of {len(shards)} shards of `{index}` are not there, such as `{missing[0]}`")
        extra = [t for s in here for t in self._read[s].values() if t.name not in listed]
        if extra:
            odd.append(
                f"{len(extra)} stored tensors are not in `{index}`, such as `{extra[0].name}` in `{extra[0].file}`"
            )
        return Tensors(self.where, {**out, **{t.name: t for t in extra}}, tuple(here), tuple(odd))

    def _without_index(self) -> Tensors:
        names = sorted(n for n in self.names if n.endswith(".safetensors"))
        # Beside the usual files some repositories keep the same weights once more in the vendor's own layout.
        usual = [n for n in names if not n.startswith("consolidated")] or names
        chosen = [SINGLE] if SINGLE in usual else usual
        if not chosen:
            raise bad(
                "BL276",
                "neither a weight index nor a safetensors file is there",
                self.where,
                f"copy `{INDEX}` or the `.safetensors` files beside config.json; the index alone is enough for names",
            )
        self.headers(chosen)
        out: dict[str, Tensor] = {}
        odd = []
        for file in chosen:
            for name, tensor in self._read[file].items():
                if name in out:
                    odd.append(f"tensor `{name}` is stored twice, in `{out[name].file}` and `{file}`")
                out[name] = tensor
        return Tensors(self.where, out, tuple(chosen), tuple(odd[:20]))


def _index_of(names: frozenset[str]) -> str | None:
    found = sorted(n for n in names if n.endswith(".safetensors.index.json"))
    return INDEX if INDEX in found else found[0] if found else None


def read_folder(folder: Path) -> Tensors:
    """Read which tensors a checkpoint folder stores: one file, shards with an index, or an index alone.

    Raises
    ------
    CheckpointError
        BL276 nothing to read; BL271 to BL275 a file that cannot be what it claims to be.
    """
    try:
        names = frozenset(p.name for p in folder.iterdir() if p.is_file())
    except OSError as error:
        raise bad(
            "BL271",
            f"cannot list the folder: {error.strerror or error}",
            str(folder),
            "check the path and its permissions",
        ) from error

    return Source(
        str(folder), names, lambda n, limit: read_some(folder / n, limit), lambda n: _header(folder / n)
    ).tensors()


def read_some(path: Path, limit: int) -> bytes:
    """Read at most ``limit + 1`` bytes of a file."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def _header(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as file:
            return read_header(file, path.name, path.stat().st_size, str(path))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    message = f"cannot read `{printable(path.name)}`: {error.strerror or error}"
    return bad("BL271", message, str(path), "check the path and its permissions")


def read_file(path: Path) -> Tensors:
    """Read one safetensors file, or one weight index without its shards.

    Raises
    ------
    CheckpointError
        BL271 to BL275.
    """
    if path.name.endswith(".json"):
        listed = parse_index(read_some(path, INDEX_LIMIT), path.name, str(path))
        return Tensors(str(path), {name: Tensor(name, file=shard) for name, shard in listed.items()})
    return Tensors(str(path), _header(path), (path.name,))


def read_stored(where: Path | None) -> Tensors:
    """Read a folder, a safetensors file or a weight index.

    Raises
    ------
    CheckpointError
        BL276: no such place; and what :func:`read_folder` and :func:`read_file` raise.
    """
    if where is None or not where.exists():
        place = str(where) if where is not None else "the checkpoint"
        raise bad(
            "BL276", "no folder with tensors is there", place, "name a folder, a safetensors file or a weight index"
        )
    return read_file(where) if where.is_file() else read_folder(where)
