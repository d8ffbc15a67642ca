"""Message sets v0 and v1.  Seed 004, 5.3.3; security.md 7.1 (depth 1)."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.records import batch, legacy
from stratalog.records.batch import Record
from stratalog.records.compression import compress
from stratalog.records.errors import CorruptBatch, InvalidBatch

_bytes = st.none() | st.binary(max_size=40)


@st.composite
def record_lists(draw):
    offset = draw(st.integers(1, 2**40))
    records = []
    for timestamp, key, value, gap in draw(
        st.lists(st.tuples(st.integers(0, 2**45), _bytes, _bytes, st.integers(0, 3)), min_size=1, max_size=8)
    ):
        records.append(Record(offset, timestamp, key, value))
        offset += 1 + gap
    return records


def _read(data):
    found = []
    for header in batch.batches(data):
        batch.check(data, header)
        found += batch.records_of(data, header)
    return found


@given(record_lists(), st.sampled_from(range(4)), st.sampled_from((0, 1)))
def test_message_sets_survive_a_round_trip(records, codec, magic):
    data = legacy.build_message_set(records, magic, codec=codec)
    assert batch.complete_bytes(data) == len(data)
    expected = records if magic else [Record(r.offset, -1, r.key, r.value) for r in records]
    assert _read(data) == expected
    headers = list(batch.batches(data))
    assert headers[-1].last_offset == records[-1].offset
    assert legacy.first_offset(data, headers[0]) == records[0].offset
    if codec:
        assert len(headers) == 1
        assert headers[0].count == -1
        assert headers[0].max_timestamp == (max(r.timestamp for r in records) if magic else -1)


def _wrapper(inner, *, magic=1, codec=1, offset=9, timestamp_type=0, timestamp=5):
    return legacy.encode_entry(
        magic, offset, timestamp, None, compress(codec, inner), codec=codec, timestamp_type=timestamp_type
    )


def test_a_stamped_wrapper_stamps_its_records():
    inner = legacy.encode_entry(1, 0, 111, b"k", b"v") + legacy.encode_entry(1, 1, 222, b"k", b"v")
    data = _wrapper(inner, timestamp_type=1, timestamp=999)
    assert [(r.offset, r.timestamp) for r in _read(data)] == [(8, 999), (9, 999)]
    data = _wrapper(inner)
    assert [(r.offset, r.timestamp) for r in _read(data)] == [(8, 111), (9, 222)]


def test_a_wrapper_offset_of_zero_counts_from_zero():
    """Some versions of librdkafka produced so."""
    inner = legacy.encode_entry(1, 0, 1, None, b"a") + legacy.encode_entry(1, 1, 1, None, b"b")
    assert [r.offset for r in _read(_wrapper(inner, offset=0))] == [0, 1]


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(legacy.encode_entry(0, 0, 0, None, b"x")), id="other magic"),
        pytest.param(bytes(legacy.encode_entry(1, 0, 0, None, compress(1, b""), codec=1)), id="nested twice"),
        pytest.param(bytes(legacy.encode_entry(1, 0, 0, None, b"x"))[:-1], id="cut off"),
        pytest.param(bytes(legacy.encode_entry(1, 0, 0, None, b"x")) + b"\0" * 5, id="left over"),
        pytest.param(bytes(legacy.encode_entry(1, 10, 0, None, b"x")), id="offset past the wrapper's"),
        pytest.param(
            bytes(legacy.encode_entry(1, -20, 0, None, b"x") + legacy.encode_entry(1, 0, 0, None, b"x")), id="-"
        ),
    ],
)
def test_bad_nested_sets_are_refused(inner):
    with pytest.raises(CorruptBatch):
        _read(_wrapper(inner))


def test_a_wrapper_without_value_is_refused():
    with pytest.raises(CorruptBatch, match="no value"):
        _read(legacy.encode_entry(1, 0, 0, None, None, codec=1))


def test_zstd_has_no_place_in_a_message_set():
    with pytest.raises(InvalidBatch):
        legacy.build_message_set([Record(0, 0, None, b"x")], 1, codec=4)
    entry = legacy.encode_entry(1, 0, 0, None, compress(4, b"x"), codec=4)
    with pytest.raises(CorruptBatch):
        batch.check(entry, batch.read_header(entry))
    with pytest.raises(CorruptBatch):
        _read_unchecked(entry)


def _read_unchecked(data):
    return [record for header in batch.batches(data) for record in batch.records_of(data, header)]


def test_v0_lz4_has_the_wrong_header_checksum_that_old_clients_want():
    records = [Record(0, -1, None, b"x" * 50)]
    v0 = legacy.build_message_set(records, 0, codec=3)
    v1 = legacy.build_message_set(records, 1, codec=3)
    (header0,), (header1,) = batch.batches(v0), batch.batches(v1)
    frame0 = bytes(legacy.key_and_value(v0, header0)[1])
    frame1 = bytes(legacy.key_and_value(v1, header1)[1])
    assert frame0[:6] == frame1[:6]
    assert frame0[6] != frame1[6]
    assert _read(v0)[0].value == b"x" * 50
    right = legacy.encode_entry(0, 0, -1, None, frame0[:6] + frame1[6:7] + frame0[7:], codec=3)
    assert _read(right)[0].value == b"x" * 50  # a client that does it right is read as well
    with pytest.raises(CorruptBatch):
        _read(legacy.encode_entry(1, 0, 0, None, frame0, codec=3))


def test_patch_stamps_offset_and_time():
    data = legacy.encode_entry(1, 0, 111, b"k", b"v")
    crc = batch.read_header(data).crc
    legacy.patch(data, 0, last_offset=77)
    header = batch.read_header(data)
    assert (header.base_offset, header.crc) == (77, crc)
    legacy.patch(data, 0, timestamp=111, timestamp_type=0)
    assert batch.read_header(data).crc == crc
    legacy.patch(data, 0, timestamp=222, timestamp_type=1)
    header = batch.read_header(data)
    batch.check(data, header)
    assert (header.max_timestamp, header.timestamp_type) == (222, 1)


@given(st.data())
def test_damage_gives_a_value_or_the_declared_error(data):
    """With the CRCs made right, so that the damage reaches the readers below."""
    magic, codec = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 3))
    good = legacy.build_message_set([Record(3 + i, 5, b"k", b"value") for i in range(3)], magic, codec=codec)
    broken = bytearray(good)
    for position in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=4)):
        broken[position] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.integers(0, len(broken)))]
    try:
        for header in batch.batches(broken):
            struct.pack_into(">I", broken, header.position + 12, zlib.crc32(broken[header.position + 16 : header.end]))
            batch.check(broken, batch.read_header(broken, header.position))
            list(batch.records_of(broken, header))
    except Malformed:
        pass
