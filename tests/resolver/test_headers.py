"""Safetensors headers: what is written comes back, and nothing else gets through without a code."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import header, size, write, write_sharded

from bitlane.errors import CheckpointError
from bitlane.resolver.headers import BITS, HEADER_LIMIT, parse_header, read_header
from bitlane.resolver.tensors import parse_index, read_file, read_folder, read_stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storing import Stored

_NAMES = st.text(st.characters(whitelist_categories=("L", "N", "P")), min_size=1, max_size=20).filter(
    lambda n: n.isprintable() and n != "__metadata__"
)
_TYPES = st.sampled_from(["BF16", "F16", "F32", "F8_E4M3", "U8", "I32"])
_STORED = st.dictionaries(_NAMES, st.tuples(_TYPES, st.lists(st.integers(0, 9), max_size=4)), max_size=8)


def file_of(data: bytes, extra: int = 0) -> bytes:
    return len(data).to_bytes(8, "little") + data + b"\0" * extra


def weights(stored: Stored) -> int:
    return sum(size(*t) for t in stored.values())


def code_of(function: Callable[[], object]) -> str:
    """Return the code of a refusal, nothing when there is none; any other exception goes through."""
    try:
        function()
    except CheckpointError as error:
        return error.code
    return ""


def refused(code: str, entries: dict[str, Any] | bytes, stored: int | None = None) -> CheckpointError:
    data = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    with pytest.raises(CheckpointError) as caught:
        parse_header(data, "model.safetensors", stored)
    assert caught.value.code == code
    assert caught.value.place
    assert caught.value.help
    return caught.value


@given(_STORED)
def test_what_is_written_comes_back(stored: Stored) -> None:
    data = file_of(header(stored), weights(stored))
    found = read_header(io.BytesIO(data), "f", len(data))
    assert {n: (t.dtype, list(t.shape or ())) for n, t in found.items()} == stored
    assert list(found) == list(stored)


@given(_STORED, st.data())
def test_every_shortened_file_is_refused(stored: Stored, data: Any) -> None:
    whole = file_of(header(stored), weights(stored))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CheckpointError) as caught:
        read_header(io.BytesIO(whole[:cut]), "f", cut)
    assert caught.value.code in ("BL271", "BL274")


@given(_STORED, st.data())
def test_a_damaged_header_is_read_or_refused(stored: Stored, data: Any) -> None:
    whole = bytearray(header(stored))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert code_of(lambda: parse_header(bytes(whole), "f", weights(stored))) in ("", "BL203", "BL273", "BL274")


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    # Eight bytes that happen to announce an empty object are a file without tensors.
    empty = data[8:] == b"{}"
    assert code_of(lambda: read_header(io.BytesIO(data), "f", len(data))).startswith("BL27") or empty


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=5), c, max_size=3),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    assert code_of(lambda: parse_header(json.dumps({"a": value}).encode(), "f")) in ("BL273", "BL274")


class Counted(io.BytesIO):
    """A file that counts what is read from it."""

    count = 0

    def read(self, n: int | None = -1, /) -> bytes:
        data = super().read(n)
        self.count += len(data)
        return data


def test_weights_are_never_read() -> None:
    data = header({"a.weight": ("BF16", [1024, 1024])})
    file = Counted(file_of(data, 2 * 1024 * 1024))
    read_header(file, "f", 8 + len(data) + 2 * 1024 * 1024)
    assert file.count == 8 + len(data)


@pytest.mark.parametrize("length", [HEADER_LIMIT + 1, 1 << 40, (1 << 64) - 1])
def test_a_huge_announcement_reads_nothing(length: int) -> None:
    file = Counted(length.to_bytes(8, "little") + b"{" * 100)
    with pytest.raises(CheckpointError) as caught:
        read_header(file, "f", 1 << 62)
    assert caught.value.code == "BL272"
    assert file.count == 8


def test_a_header_longer_than_its_file() -> None:
    with pytest.raises(CheckpointError) as caught:
        read_header(io.BytesIO((1000).to_bytes(8, "little") + b"{}"), "f", 10)
    assert caught.value.code == "BL271"


ONE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def test_overlaps_and_gaps_are_named() -> None:
    assert "`a` and `b` overlap" in refused("BL274", {"a": ONE, "b": {**ONE, "data_offsets": [2, 6]}}).message
    assert "before tensor `b`" in refused("BL274", {"a": ONE, "b": {**ONE, "data_offsets": [6, 10]}}).message
    assert "before tensor `a`" in refused("BL274", {"a": {**ONE, "data_offsets": [1, 5]}}).message
    assert "cut short" in refused("BL274", {"a": ONE}, 3).message
    assert "belong to no tensor" in refused("BL274", {"a": ONE}, 5).message


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({**ONE, "dtype": "F12"}, "BL273"),
        ({**ONE, "dtype": 3}, "BL273"),
        ({**ONE, "shape": [-4]}, "BL273"),
        ({**ONE, "shape": [True]}, "BL273"),
        ({**ONE, "shape": [4.5]}, "BL273"),
        ({**ONE, "shape": "4"}, "BL273"),
        ({**ONE, "shape": [1] * 65}, "BL273"),
        ({**ONE, "shape": [10**30]}, "BL273"),
        ({**ONE, "shape": [1 << 40, 1 << 40]}, "BL274"),
        ({**ONE, "shape": [5]}, "BL274"),
        ({**ONE, "data_offsets": [4, 0]}, "BL274"),
        ({**ONE, "data_offsets": [0]}, "BL273"),
        ({**ONE, "data_offsets": [0, None]}, "BL273"),
        ({"dtype": "U8", "shape": [4]}, "BL273"),
        ([], "BL273"),
        (None, "BL273"),
    ],
)
def test_bad_entries(entry: object, code: str) -> None:
    refused(code, {"a": entry})


def test_bad_headers() -> None:
    refused("BL273", b"[]")
    refused("BL273", b" {}")
    refused("BL273", b"{")
    refused("BL273", b'{"a": NaN}')
    refused("BL273", b'{"\xff": {}}')
    refused("BL273", {"a\x1b[31m": ONE})
    refused("BL273", {"a" * 600: ONE})
    refused("BL273", {"__metadata__": {"format": 1}})
    refused("BL273", {"__metadata__": "pt"})
    text = json.dumps(ONE)
    refused("BL273", f'{{"a": {text}, "a": {text}}}'.encode())
    for nested in (b'{"a": ' + b"[" * 200_000, b'{"a": ' + b'{"a":' * 200_000, b"{" * 200_000):
        refused("BL273", nested)


def test_every_element_type_has_its_bytes() -> None:
    # Two elements of 4 bits are a byte; four of 6 bits are three.
    for dtype, bits in BITS.items():
        count = {4: 2, 6: 4}.get(bits, 1)
        entry = {"dtype": dtype, "shape": [count], "data_offsets": [0, count * bits // 8]}
        assert parse_header(json.dumps({"a": entry}).encode(), "f")["a"].dtype == dtype


# --- indexes and folders --------------------------------------------------------


def index(value: object) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        parse_index(json.dumps(value).encode(), "model.safetensors.index.json")
    return caught.value


@pytest.mark.parametrize("shard", ["../secret", "/etc/passwd", "a/b", "", ".", "..", "a\\b", "a\0b", None, 3, ["a"]])
def test_an_index_names_plain_files(shard: object) -> None:
    assert index({"weight_map": {"a": shard}}).code == "BL275"


@pytest.mark.parametrize("value", [{}, {"weight_map": None}, {"weight_map": []}, {"weight_map": {"a\n": "f"}}])
def test_an_index_needs_a_weight_map(value: object) -> None:
    assert index(value).code == "BL275"


STORED: Stored = {f"layers.{i}.weight": ("BF16", [4, 4]) for i in range(6)}


def test_a_sharded_folder(tmp_path: Path) -> None:
    write_sharded(tmp_path, STORED, 3)
    found = read_folder(tmp_path)
    assert len(found.files) == 3
    assert not found.odd
    assert not found.names_only
    assert {n: (t.dtype, list(t.shape or ())) for n, t in found.tensors.items()} == STORED


def test_an_index_alone_gives_names(tmp_path: Path) -> None:
    write_sharded(tmp_path, STORED, 3, present=False)
    found = read_folder(tmp_path)
    assert found.names_only
    assert list(found.tensors) == list(STORED)
    assert not found.odd
    assert list(read_stored(tmp_path / "model.safetensors.index.json").tensors) == list(STORED)


def test_a_missing_shard_is_told(tmp_path: Path) -> None:
    write_sharded(tmp_path, STORED, 3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    found = read_folder(tmp_path)
    assert len(found) == 6
    assert found.tensors["layers.2.weight"].shape is None
    assert ["1 of 3 shards" in o for o in found.odd] == [True]


def test_a_shard_that_differs_from_its_index(tmp_path: Path) -> None:
    write_sharded(tmp_path, STORED, 2)
    write(
        tmp_path / "model-00001-of-00002.safetensors", {"layers.0.weight": ("BF16", [4, 4]), "new.weight": ("F32", [1])}
    )
    found = read_folder(tmp_path)
    assert len(found.odd) == 2
    assert "does not hold 2" in found.odd[0]
    assert "`layers.1.weight`" in found.odd[0]
    assert "not in" in found.odd[1]
    assert "`new.weight`" in found.odd[1]
    assert "new.weight" in found.tensors


def test_folders_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_folder(tmp_path)
    assert caught.value.code == "BL276"
    write(tmp_path / "consolidated.safetensors", {"theirs": ("BF16", [1])})
    assert read_folder(tmp_path).files == ("consolidated.safetensors",)
    write(tmp_path / "b.safetensors", {"x": ("BF16", [1])})
    write(tmp_path / "a.safetensors", {"x": ("BF16", [1]), "y": ("BF16", [1])})
    found = read_folder(tmp_path)
    assert found.files == ("a.safetensors", "b.safetensors")
    assert "stored twice" in found.odd[0]
    write(tmp_path / "model.safetensors", STORED)
    assert read_folder(tmp_path).files == ("model.safetensors",)
    assert read_file(tmp_path / "a.safetensors").files == ("a.safetensors",)


def test_places_that_are_not_there(tmp_path: Path) -> None:
    for where in (None, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError) as caught:
            read_stored(where)
        assert caught.value.code == "BL276"
