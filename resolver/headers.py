"""The header of one safetensors file: names, element types and shapes, checked against the file; never the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import msgspec

from ..errors import CheckpointError
from .metadata import parse_json, printable, tensor_name

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER_LIMIT: Final = 100_000_000  # the format's own bound on the JSON part, in bytes
_MAX_DIMS: Final = 64
_MAX_SIZE: Final = 1 << 62

# Bits per element of every element type of the format.
BITS: Final[Mapping[str, int]] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}

_Size = Annotated[int, msgspec.Meta(ge=0, le=_MAX_SIZE)]


class _Entry(msgspec.Struct):
    dtype: str
    shape: Annotated[list[_Size], msgspec.Meta(max_length=_MAX_DIMS)]
    data_offsets: tuple[_Size, _Size]


_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(_Entry)
_METADATA: Final = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor.

    Attributes
    ----------
    name
        As in the file.
    dtype
        Element type in the format's words (``BF16``, ``F8_E4M3``, ``U8``); empty when only the name is known.
    shape
        Sizes; None when only the name is known.
    file
        The file that holds it.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    file: str = ""


def bad(code: str, message: str, place: str, help: str = "fetch the file again") -> CheckpointError:
    """Build the refusal of a file that is not what it claims to be."""
    return CheckpointError(code, message, place=printable(place), help=help)


def read_header(file: BinaryIO, name: str, size: int, place: str = "") -> dict[str, Tensor]:
    """Read the header of one safetensors file.

    Parameters
    ----------
    file
        Anything that reads bytes from the start of the file; only the header is read.
    name
        File name, kept with every tensor.
    size
        Size of the whole file in bytes.
    place
        Appears in errors; by default the name.

    Raises
    ------
    CheckpointError
        BL271 cut short or unreadable, BL272 a header of more than 100 MB, BL273 not the format's JSON,
        BL274 tensors that overlap, leave gaps, or do not fill their bytes.
    """
    where = place or name
    try:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or size < 8:
            raise bad("BL271", f"`{printable(name)}` is cut short: {len(head)} bytes", where)
        if length > HEADER_LIMIT:
            raise bad(
                "BL272",
                f"`{printable(name)}` announces a header of {length:,} bytes",
                where,
                "no header is larger than 100 MB: this is no safetensors file, or it is damaged",
            )
        if length > size - 8:
            raise bad("BL271", f"`{printable(name)}` is cut short: {size:,} bytes, and a header of {length:,}", where)
        data = file.read(length)
    except OSError as error:
        raise bad(
            "BL271",
            f"cannot read `{printable(name)}`: {error.strerror or error}",
            where,
            "check the path and its permissions",
        ) from error
    if len(data) < length:
        raise bad("BL271", f"`{printable(name)}` is cut short inside its header", where)
    return parse_header(data, name, size - 8 - length, where)


def parse_header(data: bytes, name: str, stored: int | None = None, place: str = "") -> dict[str, Tensor]:
    """Parse the JSON part of a safetensors file.

    Parameters
    ----------
    stored
        Bytes that follow the header; the tensors must fill them exactly. None when unknown.

    Raises
    ------
    CheckpointError
        BL273, BL274: see :func:`read_header`.
    """
    where = place or name
    if not data.startswith(b"{"):
        raise bad(
            "BL273",
            f"the header of `{printable(name)}` does not start with an opening brace",
            where,
            "this is no safetensors file, or it is damaged",
        )
    raw = _decoded(_RAW, data, name, where)
    metadata = raw.pop("__metadata__", None)
    if metadata is not None:
        _decoded(_METADATA, metadata, f"{name}#/__metadata__", where)
    # A key that occurs twice hides one entry; every entry spells `data_offsets` once, so the count gives it away.
    if data.count(b'"data_offsets"') > len(raw):
        twice = parse_json(data, name, where).duplicates
        if twice:
            raise bad("BL273", f"`{printable(name)}` holds `{printable(twice[0])[:80]}` twice", where)
    out: dict[str, Tensor] = {}
    spans: list[tuple[int, int, str]] = []
    for key, value in raw.items():
        entry: _Entry = _decoded(_ENTRY, value, f"{name}#/{key[:80]}", where)
        _check(key, entry, where)
        out[key] = Tensor(key, entry.dtype, tuple(entry.shape), name)
        spans.append((*entry.data_offsets, key))
    _contiguous(spans, stored, name, where)
    return out


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw, name: str, where: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(
            "BL273", f"`{printable(name)}` is no safetensors header: {printable(str(error))[:160]}", where
        ) from error
    except RecursionError:
        raise bad(
            "BL273",
            f"`{printable(name)}` is nested too deeply",
            where,
            "no header needs that; the file is damaged or hostile",
        ) from None


def _check(key: str, entry: _Entry, where: str) -> None:
    """Check one entry: a sane name, a known type, as many bytes as its shape needs."""
    if not tensor_name(key):
        raise bad("BL273", f"`{printable(key)[:80]}` is no printable tensor name of at most 512 characters", where)
    bits = BITS.get(entry.dtype)
    if bits is None:
        raise bad(
            "BL273",
            f"tensor `{key}` has the unknown element type `{printable(entry.dtype)[:40]}`",
            where,
            "known: " + ", ".join(BITS),
        )
    count = bits
    for size in entry.shape:
        count *= size
        if count > _MAX_SIZE and 0 not in entry.shape:
            raise bad("BL274", f"tensor `{key}` has more elements than any file holds", where)
    begin, end = entry.data_offsets
    if begin > end or (end - begin) * 8 != count:
        raise bad(
            "BL274",
            f"tensor `{key}` of {entry.dtype} {entry.shape} needs {count / 8:,.0f} bytes and has [{begin}, {end})",
            where,
        )


def _contiguous(spans: list[tuple[int, int, str]], stored: int | None, name: str, where: str) -> None:
    """Check that tensors follow one another without overlap or gap, and end where the file ends."""
    at = 0
    last = ""
    for begin, end, key in sorted(spans):
        if begin < at:
            raise bad("BL274", f"tensors `{last}` and `{key}` overlap", where)
        if begin > at:
            raise bad("BL274", f"{begin - at:,} bytes before tensor `{key}` belong to no tensor", where)
        at, last = end, key
    if stored is not None and at != stored:
        what = "is cut short" if at > stored else "holds bytes that belong to no tensor"
        raise bad(
            "BL274",
            f"`{printable(name)}` {what}: its tensors need {at:,} bytes, and {stored:,} follow the header",
            where,
        )
