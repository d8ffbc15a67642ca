"""Batches v2: header view, checks, iteration, builder, patch.  Seed 004, 5.3; security.md 7.1."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.records import batch, control, walk
from stratalog.records.batch import Record
from stratalog.records.errors import CorruptBatch, TooLarge
from stratalog.records.varint import read_varint, read_varlong, varint_bytes, varint_size

_bytes = st.none() | st.binary(max_size=40)
_headers = st.lists(st.tuples(st.text(max_size=6), _bytes), max_size=3).map(tuple)
_record = st.tuples(st.integers(0, 2**45), _bytes, _bytes, _headers, st.integers(0, 3))


@st.composite
def record_lists(draw, headers=True):
    offset = draw(st.integers(0, 2**40))
    records = []
    for timestamp, key, value, some, gap in draw(st.lists(_record, min_size=1, max_size=8)):
        records.append(Record(offset, timestamp, key, value, some if headers else ()))
        offset += 1 + gap
    return records


def _sample(codec=0, **options):
    records = [Record(100 + i, 1_000 + i, b"k%d" % i, b"v" * 20, (("h", b"x"),)) for i in range(5)]
    return batch.build_batch(records, codec=codec, **options), records


@given(record_lists(), st.sampled_from(range(5)), st.integers(-1, 2**31 - 1))
def test_records_survive_a_round_trip(records, codec, sequence):
    producer = 7 if sequence >= 0 else -1
    data = batch.build_batch(records, codec=codec, leader_epoch=3, producer_id=producer, base_sequence=sequence)
    header = batch.read_header(data)
    batch.check(data, header)
    assert header.size == header.end == len(data)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.count == len(records)
    found = list(batch.records_of(data, header))
    for record in records:
        if sequence >= 0:
            record.sequence = (sequence + record.offset - records[0].offset) % 2**31
    assert found == records


def test_all_attributes_show_in_the_header():
    data, _ = _sample(codec=4, transactional=True, control=True, timestamp_type=1, delete_horizon_ms=77)
    header = batch.read_header(data)
    assert header.codec == 4
    assert header.timestamp_type == batch.LOG_APPEND_TIME
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == 77
    plain = batch.read_header(_sample()[0])
    assert plain.delete_horizon_ms is None
    assert not (plain.is_transactional or plain.is_control or plain.has_producer_id)
    assert plain.last_sequence == -1


def test_sequences_wrap_at_the_end_of_int32():
    """P09."""
    assert batch.add_to_sequence(2**31 - 1, 1) == 0
    data, _ = _sample(producer_id=1, producer_epoch=0, base_sequence=2**31 - 3)
    header = batch.read_header(data)
    assert header.last_sequence == 1
    assert [r.sequence for r in batch.records_of(data, header)] == [2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1]


def test_offset_and_epoch_are_patched_without_a_new_crc():
    data, records = _sample()
    before = batch.read_header(data)
    batch.patch(data, 0, base_offset=2**40, leader_epoch=9)
    after = batch.read_header(data)
    assert (after.base_offset, after.leader_epoch, after.crc) == (2**40, 9, before.crc)
    batch.check(data, after)
    assert [r.offset for r in batch.records_of(data, after)] == list(range(2**40, 2**40 + len(records)))


def test_a_new_time_makes_a_new_crc_only_when_it_changes_something():
    data, _ = _sample()
    padded = bytearray(10) + data + bytearray(3)
    before = batch.read_header(padded, 10)
    batch.patch(padded, 10, max_timestamp=before.max_timestamp, timestamp_type=0)
    assert batch.read_header(padded, 10) == before
    batch.patch(memoryview(padded), 10, max_timestamp=5_000, timestamp_type=1)
    after = batch.read_header(padded, 10)
    assert after.crc != before.crc
    assert (after.max_timestamp, after.timestamp_type) == (5_000, 1)
    batch.check(padded, after)
    assert {r.timestamp for r in batch.records_of(padded, after)} == {5_000}
    assert padded[:10] == bytes(10) and padded[-3:] == bytes(3)


def test_an_empty_batch_keeps_offsets_and_sequences():
    data, _ = _sample(producer_id=4, producer_epoch=2, base_sequence=11, transactional=True)
    header = batch.read_header(data)
    empty = batch.empty_batch(header)
    kept = batch.read_header(empty)
    batch.check(empty, kept)
    assert list(batch.records_of(empty, kept)) == []
    assert len(empty) == batch.HEADER_SIZE
    for name in ("base_offset", "last_offset", "last_sequence", "producer_id", "producer_epoch", "is_transactional"):
        assert getattr(kept, name) == getattr(header, name)


def test_the_builder_keeps_an_emptied_last_offset():
    builder = batch.BatchBuilder(base_offset=10)
    builder.append(1, None, b"x", offset=12)
    data = builder.build(last_offset=19)
    header = batch.read_header(data)
    batch.check(data, header)
    assert (header.count, header.last_offset, header.next_offset) == (1, 19, 20)


def test_the_walk_stops_before_a_batch_that_is_cut_off():
    one, _ = _sample()
    two, _ = _sample(codec=1)
    both = bytes(one + two)
    for end in range(len(both) + 1):
        whole = len(both) if end == len(both) else len(one) if end >= len(one) else 0
        assert batch.complete_bytes(both[:end]) == whole
        assert batch.complete_bytes(both, 0, end) == whole
    assert [h.position for h in batch.batches(both)] == [0, len(one)]
    assert [h.position for h in batch.batches(b"zz" + both, 2)] == [2, 2 + len(one)]


def test_every_single_bit_flip_of_a_batch_is_found():
    """What the CRC does not cover (offset, epoch) may change; nothing else passes `check`."""
    data, _ = _sample()
    good = batch.read_header(data)
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            try:
                header = batch.read_header(broken)
                batch.check(broken, header)
            except CorruptBatch:
                continue
            assert position < 8 or 12 <= position < 16, position
            assert header[7:] == good[7:]


@given(st.binary(max_size=200), st.integers(0, 2))
def test_any_bytes_give_a_value_or_the_declared_error(data, magic):
    data = bytearray(data)
    if len(data) > 16:
        data[16] = magic
    try:
        for header in batch.batches(data):
            batch.crc_is_valid(data, header)
            list(batch.records_of(data, header))
    except Malformed:
        pass


@settings(max_examples=300)
@given(st.data())
def test_damaged_records_give_a_value_or_the_declared_error(data):
    """The CRC is made right again, so that the damage reaches the record reader and the codecs."""
    codec = data.draw(st.integers(0, 4))
    good, _ = _sample(codec)
    broken = bytearray(good)
    for position in data.draw(st.lists(st.integers(57, len(good) - 1), max_size=4)):
        broken[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(61, len(good)))
    broken = broken[:cut]
    struct.pack_into(">i", broken, 8, cut - 12)
    struct.pack_into(">I", broken, 17, batch.crc32c(bytes(broken[21:])))
    try:
        for header in batch.batches(broken):
            batch.check(broken, header)
            list(batch.records_of(broken, header))
    except Malformed:
        pass


@pytest.mark.parametrize("count", [2**31 - 1, -1, 6, 4, 0])
@pytest.mark.parametrize("codec", range(5))
def test_a_wrong_count_of_records_is_refused_without_memory(count, codec):
    data, _ = _sample(codec)
    struct.pack_into(">i", data, batch.COUNT_AT, count)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            list(batch.records_of(data, batch.read_header(data)))
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x00\x00\x00\x01\x01", id="headers cut off"),
        pytest.param(b"\x00\x00\x00\x01\x01\x01", id="negative header count"),
        pytest.param(b"\x00\x00\x00\x03\x01\x00", id="key length -2"),
        pytest.param(b"\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00", id="key of 2 GiB"),
        pytest.param(b"\x00\x00\x00\x01\x01\x80\x89\x7a", id="a million headers"),
        pytest.param(b"\x00\x00\x00\x01\x01\x02\x01\x01", id="header without key"),
        pytest.param(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01\x01\x00", id="varlong of 11 bytes"),
        pytest.param(b"\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01\x00", id="varint of 6 bytes"),
        pytest.param(b"\x00\x00\x00\x01\x01\x00\x00", id="a byte too many"),
        pytest.param(b"\x00\x00\x01\x01\x01\x00", id="offset delta -1"),
        pytest.param(b"\x00\x00\x02\x01\x01\x00", id="offset delta past the last"),
    ],
)
def test_malformed_records_are_refused(body):
    """security.md 7.1."""
    records = varint_bytes(len(body)) + body
    data = batch.assemble(
        records,
        base_offset=0,
        last_offset_delta=0,
        count=1,
        attributes=0,
        base_timestamp=0,
        max_timestamp=0,
    )
    header = batch.read_header(data)
    batch.check(data, header)
    with pytest.raises(CorruptBatch):
        list(batch.records_of(data, header))


def test_a_header_key_that_is_no_text_is_read_as_java_reads_it():
    """Kafka's clients in C write any bytes there; Java's replace what is not UTF-8."""
    body = b"\x00\x00\x00\x01\x01\x04\x06a\xffb\x02x\x08\xe2\x82c\xc0\x01"
    data = batch.assemble(
        varint_bytes(len(body)) + body,
        base_offset=0,
        last_offset_delta=0,
        count=1,
        attributes=0,
        base_timestamp=0,
        max_timestamp=0,
    )
    (record,) = batch.records_of(data, batch.read_header(data))
    assert record.headers == (("a\ufffdb", b"x"), ("\ufffdc\ufffd", None))


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_a_length_smaller_than_the_header_is_refused(length):
    data, _ = _sample()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch):
        batch.read_header(data)
    with pytest.raises(CorruptBatch):
        list(batch.batches(data))


def test_an_unknown_magic_and_codec_are_refused():
    data, _ = _sample()
    data[16] = 3
    with pytest.raises(CorruptBatch, match="magic 3"):
        batch.read_header(data)
    odd = batch.assemble(
        b"", base_offset=0, last_offset_delta=0, count=0, attributes=5, base_timestamp=0, max_timestamp=0
    )
    with pytest.raises(CorruptBatch, match="codec 5"):
        batch.check(odd, batch.read_header(odd))


def test_reasons_name_the_byte():
    data, _ = _sample()
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC") as caught:
        batch.check(data, batch.read_header(data))
    assert caught.value.position == 17


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_survive_a_round_trip(value):
    raw = varint_bytes(value)
    assert len(raw) == varint_size(value) <= 10
    assert read_varlong(raw, 0, len(raw)) == (value, len(raw))
    if -(2**31) <= value < 2**31:
        assert read_varint(raw, 0, len(raw)) == (value, len(raw))
    for end in range(len(raw)):
        with pytest.raises(CorruptBatch):
            read_varlong(raw, 0, end)


def test_varints_that_are_too_long_or_too_large_are_refused():
    for raw in (b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x1f"):
        with pytest.raises(CorruptBatch):
            read_varint(raw, 0, len(raw))
    for raw in (b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02"):
        with pytest.raises(CorruptBatch):
            read_varlong(raw, 0, len(raw))


def test_control_records_are_read_strictly():
    assert control.read_type(control.key(control.LEADER_CHANGE)) == control.LEADER_CHANGE
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(CorruptBatch):
            control.read_type(key)
    for value in (None, b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"):
        with pytest.raises(CorruptBatch):
            control.read_marker(control.key(control.COMMIT), value)
    with pytest.raises(CorruptBatch):
        control.read_marker(control.key(control.LEADER_CHANGE), control.marker_value(1))


def test_a_repr_never_shows_a_payload():
    record = Record(1, 2, b"secret", b"secret", (("secret", b"secret"),))
    assert "secret" not in repr(record)


def test_reading_headers_leaves_no_garbage_for_the_collector():
    data, _ = _sample()
    gc.collect()
    batch.read_header(data)
    assert gc.collect() == 0


def test_importing_the_package_imports_no_codec_and_no_kernel():
    names = ["cramjam", "lz4", "zstandard", "numpy", "numba", "pyarrow"]
    code = (
        "import sys, stratalog.records.batch, stratalog.records.validate, stratalog.records.convert\n"
        f"print([name for name in {names!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_too_large_is_a_corrupt_batch_is_malformed():
    assert issubclass(TooLarge, CorruptBatch) and issubclass(CorruptBatch, Malformed)


@settings(max_examples=400)
@given(st.data())
def test_the_reader_and_the_walk_agree_on_what_is_well_formed(data):
    """What `records_of` reads, `walk.validate_records` accepts; the reader wants deltas in the header's range too."""
    good, _ = _sample()
    broken = bytearray(good)
    for position in data.draw(st.lists(st.integers(61, len(good) - 1), max_size=3)):
        broken[position] = data.draw(st.integers(0, 255))
    header = batch.read_header(broken)
    try:
        records = list(batch.records_of(broken, header))
    except CorruptBatch as error:
        if "offset delta" not in error.reason:
            with pytest.raises(CorruptBatch):
                walk.validate_records(broken[61:], header.count, base_timestamp=header.base_timestamp)
        return
    summary = walk.validate_records(broken[61:], header.count, base_timestamp=header.base_timestamp)
    assert summary.max_timestamp == max(record.timestamp for record in records)
    assert summary.min_timestamp == min(record.timestamp for record in records)
    assert summary.keyless == sum(record.key is None for record in records)
    assert summary.headers == sum(len(record.headers) for record in records)
