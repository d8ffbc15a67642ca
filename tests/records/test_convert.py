"""Conversion among v0, v1 and v2.  Issue 3; what Kafka's old fetch and produce paths did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.base import limits
from stratalog.base.errors import ErrorCode
from stratalog.records import batch, control, convert, legacy
from stratalog.records.batch import Record
from stratalog.records.errors import InvalidBatch, TooLarge

_bytes = st.none() | st.binary(max_size=30)


@st.composite
def record_lists(draw):
    offset = draw(st.integers(1, 2**40))
    records = []
    for timestamp, key, value, gap in draw(
        st.lists(st.tuples(st.integers(0, 2**45), _bytes, _bytes, st.integers(0, 3)), min_size=1, max_size=8)
    ):
        records.append(Record(offset, timestamp, key, value, (("dropped", b"x"),)))
        offset += 1 + gap
    return records


def _read(data):
    found = []
    for header in batch.batches(data):
        batch.check(data, header)
        found += batch.records_of(data, header)
    return found


@given(record_lists(), st.sampled_from(range(4)), st.sampled_from((0, 1)))
def test_down_conversion_keeps_offsets_and_payloads_and_drops_headers(records, codec, magic):
    data = batch.build_batch(records, codec=codec)
    old = convert.down_convert(data, magic)
    assert {header.magic for header in batch.batches(old)} == {magic}
    assert {header.codec for header in batch.batches(old)} == {codec}
    assert _read(old) == [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in records]


@given(record_lists(), st.sampled_from(range(4)), st.sampled_from((0, 1)), st.sampled_from(range(5)))
def test_up_conversion_numbers_the_records_anew(records, codec, magic, target):
    old = legacy.build_message_set(records, magic, codec=codec)
    new = convert.up_convert(_read(old), base_offset=77, codec=target, leader_epoch=5)
    (header,) = batch.batches(new)
    assert (header.magic, header.codec, header.leader_epoch) == (2, target, 5)
    expected = [Record(77 + index, r.timestamp if magic else -1, r.key, r.value) for index, r in enumerate(records)]
    assert _read(new) == expected


def test_a_mixed_log_goes_down_batch_by_batch():
    """Old entries pass as they are, control batches are left out, a tail that is cut off too."""
    v0 = legacy.build_message_set([Record(1, -1, None, b"a")], 0)
    v1 = legacy.build_message_set([Record(2, 5, None, b"b")], 1)
    v2 = batch.build_batch([Record(3, 6, None, b"c"), Record(4, 7, None, b"d")])
    marker = control.build_marker(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=8, base_offset=5
    )
    log = v0 + v1 + v2 + marker + v2[:-1]
    down = convert.down_convert(log, 1)
    assert down.startswith(v0 + v1)
    assert [(h.magic, h.last_offset) for h in batch.batches(down)] == [(0, 1), (1, 2), (1, 3), (1, 4)]
    to_v0 = convert.down_convert(log, 0)
    assert [(h.magic, h.last_offset) for h in batch.batches(to_v0)] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    later = convert.down_convert(log, 1, first_offset=4)
    assert [h.last_offset for h in batch.batches(later)] == [1, 2, 4]


@pytest.mark.parametrize("codec", range(4))
def test_a_stamped_batch_keeps_its_stamp(codec):
    data = batch.build_batch([Record(3, 6, None, b"c"), Record(4, 7, None, b"d")], codec=codec)
    batch.patch(data, 0, max_timestamp=999, timestamp_type=batch.LOG_APPEND_TIME)
    old = convert.down_convert(data, 1)
    assert {h.timestamp_type for h in batch.batches(old)} == {batch.LOG_APPEND_TIME}
    assert [r.timestamp for r in _read(old)] == [999, 999]
    assert [r.timestamp for r in _read(convert.down_convert(data, 0))] == [-1, -1]


def test_zstd_cannot_go_down():
    data = batch.build_batch([Record(3, 6, None, b"c")], codec=4)
    with pytest.raises(InvalidBatch) as caught:
        convert.down_convert(data, 1)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_that_compaction_emptied_goes_down_to_nothing():
    empty = batch.empty_batch(batch.read_header(batch.build_batch([Record(3, 6, None, b"c")])))
    assert convert.down_convert(empty, 1) == b""


def test_a_bomb_of_many_records_does_not_go_down(monkeypatch):
    """N02: a batch of a few KiB that unfolds to millions of records must not become as many objects."""
    monkeypatch.setattr(limits, "RECORDS_OPENED_MAX", 100)
    many = [Record(i, 5, b"k", b"") for i in range(101)]
    for data, magic in ((batch.build_batch(many, codec=1), 1), (legacy.build_message_set(many, 1, codec=1), 0)):
        with pytest.raises(TooLarge):
            convert.down_convert(data, magic)
    assert len(list(batch.batches(convert.down_convert(batch.build_batch(many[:100]), 1)))) == 100
    monkeypatch.setattr(limits, "BATCH_DECOMPRESSED_BYTES_MAX", 1_000)
    with pytest.raises(TooLarge):
        convert.down_convert(batch.build_batch(many[:100]), 1)
