"""The journal: whole records survive, a torn end is reported, other damage is refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.collector import journal
from bitlane.errors import BitlaneError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
RECORDS = st.dictionaries(st.text(max_size=8).filter(lambda name: name != "seq"), VALUES, max_size=4)


def test_line_format_is_what_the_documentation_says():
    body = b'{"a":1,"seq":0}'
    assert journal.encode({"a": 1, "seq": 0}) == b'{"crc":"%08x","record":%s}\n' % (zlib.crc32(body), body)


@given(RECORDS)
def test_a_line_comes_back(record):
    assert journal.decode(journal.encode(record)[:-1]) == record


@given(RECORDS, st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_any_changed_byte_is_noticed(record, position, change):
    line = bytearray(journal.encode(record)[:-1])
    position %= len(line)
    line[position] ^= change
    decoded = journal.decode(bytes(line))
    # The CRC digits are compared as text, so there is no second spelling of a whole line.
    assert decoded is None


@given(st.lists(RECORDS, max_size=4), st.integers(min_value=0))
def test_every_prefix_of_a_journal_gives_a_prefix_of_its_records(tmp_path_factory, records, cut):
    path = tmp_path_factory.mktemp("journal") / "journal.log"
    log = journal.Journal(path)
    stored = [log.append(record) for record in records]
    data = path.read_bytes() if records else b""
    cut %= len(data) + 1
    path.write_bytes(data[:cut])
    state = journal.read(path)
    assert list(state.records) == stored[: data[:cut].count(b"\n")]
    assert data[: state.sound_bytes] + state.torn == data[:cut]
    again = journal.Journal(path)
    again.append({"after": True})
    assert journal.read(path).records[-1]["after"] is True
    assert not journal.read(path).torn


@pytest.mark.parametrize("damage", ["flip", "drop"])
@pytest.mark.parametrize("line", [0, 1, 2])
def test_damage_before_the_end_is_refused(tmp_path, damage, line):
    path = tmp_path / "journal.log"
    log = journal.Journal(path)
    for number in range(4):
        log.append({"number": number})
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"number"', b'"numbex"') if damage == "flip" else b""
    path.write_bytes(b"".join(lines))
    with pytest.raises(BitlaneError) as caught:
        journal.Journal(path)
    assert caught.value.code == "BL701"
    assert path.read_bytes() == b"".join(lines), "a damaged journal is left as it is"


def test_garbage_of_a_power_cut_at_the_end_is_cut_off(tmp_path):
    path = tmp_path / "journal.log"
    journal.Journal(path).append({"number": 1})
    with path.open("ab") as handle:
        handle.write(b"\0" * 37 + b"\n" + b"\0")
    log = journal.Journal(path)
    assert [record["number"] for record in log.records] == [1]
    assert len(log.torn) == 39
