"""The broker's validator.  Seed 002 (LogValidator); security.md 7.1; scenario N02."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.base import limits
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.records import batch, control, legacy
from stratalog.records.batch import CREATE_TIME, LOG_APPEND_TIME, Record
from stratalog.records.compression import compress
from stratalog.records.errors import CorruptBatch, InvalidBatch
from stratalog.records.validate import RECORD_ERRORS_MAX, Origin, analyze, validate_and_assign

NOW = 1_700_000_000_000


def _records(number=3, key=b"k", timestamp=NOW):
    return [Record(i, timestamp + i, key, b"v%d" % i, (("h", b"x"),)) for i in range(number)]


def _run(data, **options):
    options = {"base_offset": 1000, "now_ms": NOW, "leader_epoch": 7} | options
    return validate_and_assign(data, **options)


def _read(validated):
    found = []
    for view, header in zip(validated.buffers, validated.headers, strict=True):
        assert batch.read_header(view, header.position) == header
        batch.check(view, header)
        found += batch.records_of(view, header)
    return found


def _refused(data, code, **options):
    with pytest.raises(InvalidBatch) as caught:
        _run(data, **options)
    assert caught.value.code == code
    return caught.value


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("inspect", [False, True])
def test_a_good_batch_is_stamped_in_place(codec, inspect):
    data = batch.build_batch(_records(), codec=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    crc = batch.read_header(data).crc
    done = _run(data, inspect=inspect)
    assert done.buffers[0].obj is data
    assert not done.converted
    assert (done.first_offset, done.last_offset, done.records) == (1000, 1002, 3)
    assert (done.max_timestamp, done.offset_of_max_timestamp, done.log_append_time_ms) == (NOW + 2, 1002, -1)
    header = batch.read_header(data)
    assert (header.crc, header.leader_epoch, header.base_sequence) == (crc, 7, 9)
    expected = [Record(1000 + i, r.timestamp, r.key, r.value, r.headers, 9 + i) for i, r in enumerate(_records())]
    assert _read(done) == expected


def test_bytes_that_cannot_be_stamped_are_copied():
    data = bytes(batch.build_batch(_records()))
    done = _run(data)
    assert [r.offset for r in _read(done)] == [1000, 1001, 1002]
    assert batch.read_header(data).base_offset == 0


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_stamps_the_header(codec):
    data = batch.build_batch(_records(timestamp=5), codec=codec)
    done = _run(data, timestamp_type=LOG_APPEND_TIME)
    assert not done.converted
    assert (done.max_timestamp, done.log_append_time_ms) == (NOW, NOW)
    assert [r.timestamp for r in _read(done)] == [NOW] * 3
    assert done.headers[0].timestamp_type == LOG_APPEND_TIME


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
@pytest.mark.parametrize("kind", [CREATE_TIME, LOG_APPEND_TIME])
def test_the_topics_codec_wins(source, target, kind):
    data = batch.build_batch(
        _records(), codec=source, transactional=True, producer_id=1, producer_epoch=2, base_sequence=3
    )
    done = _run(data, codec=target, timestamp_type=kind)
    assert done.converted == (source != target)
    (header,) = done.headers
    assert (header.codec, header.is_transactional, header.timestamp_type) == (target, True, kind)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert header.max_timestamp == (NOW if kind else NOW + 2)
    assert header.leader_epoch == 7
    assert [(r.offset, r.key, r.value, r.headers) for r in _read(done)] == [
        (1000 + r.offset, r.key, r.value, r.headers) for r in _records()
    ]


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_takes_no_record_without_a_key(codec):
    data = batch.build_batch([*_records(2), Record(2, NOW, None, b"x"), Record(3, NOW, None, b"y")], codec=codec)
    error = _refused(data, ErrorCode.INVALID_RECORD, compacted=True)
    assert [row.batch_index for row in error.record_errors] == [2, 3]
    assert "key" in error.record_errors[0].message
    _run(batch.build_batch(_records(), codec=codec), compacted=True)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("inspect", [False, True])
def test_times_out_of_bounds_name_their_records(codec, inspect):
    late = [*_records(2), Record(2, NOW + 3_600_001, b"k", b"x")]
    error = _refused(batch.build_batch(late, codec=codec), ErrorCode.INVALID_TIMESTAMP, inspect=inspect)
    assert [row.batch_index for row in error.record_errors] == [2]
    early = [*_records(1), Record(1, NOW - 501, b"k", b"x"), Record(2, NOW - 500, b"k", b"x")]
    data = batch.build_batch(early, codec=codec)
    error = _refused(data, ErrorCode.INVALID_TIMESTAMP, before_max_ms=500, inspect=inspect)
    assert [row.batch_index for row in error.record_errors] == [1]
    _run(batch.build_batch(early, codec=codec), inspect=inspect)
    _run(batch.build_batch(late, codec=codec), timestamp_type=LOG_APPEND_TIME, inspect=inspect)


def test_a_record_without_a_time_fits_every_bound():
    data = batch.build_batch([Record(0, -1, b"k", b"v"), Record(1, -1, b"k", b"v")])
    done = _run(data, before_max_ms=10)
    assert done.max_timestamp == -1


def test_only_so_many_refused_records_are_named():
    data = batch.build_batch([Record(i, NOW, None, b"") for i in range(RECORD_ERRORS_MAX + 50)], codec=1)
    error = _refused(data, ErrorCode.INVALID_RECORD, compacted=True)
    assert len(error.record_errors) == RECORD_ERRORS_MAX
    assert str(RECORD_ERRORS_MAX + 50) in error.message


def test_a_bomb_of_many_records_is_not_opened_one_by_one(monkeypatch):
    """N02: naming refused records, recompressing stamped ones and converting old ones all have an end."""
    monkeypatch.setattr(limits, "RECORDS_OPENED_MAX", 100)
    many = [Record(i, NOW, b"k", b"") for i in range(101)]
    keyless = batch.build_batch([*many[:-1], Record(100, NOW, None, b"")], codec=1)
    _refused(keyless, ErrorCode.MESSAGE_TOO_LARGE, compacted=True)
    stamped = batch.build_batch([Record(i, NOW, b"k", b"") for i in range(101)], codec=1, timestamp_type=1)
    _refused(stamped, ErrorCode.MESSAGE_TOO_LARGE, origin=Origin.COORDINATOR, codec=4)
    for magic in (0, 1):
        old = legacy.build_message_set(many, magic, codec=1)
        with pytest.raises(InvalidBatch) as caught:
            _old(old)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert len(_read(_old(legacy.build_message_set(many[:100], magic, codec=1)))) == 100
    assert len(_read(_run(batch.build_batch(many, codec=1)))) == 101  # the kernel walks any number


def test_a_lying_max_timestamp_is_put_right_when_the_records_are_read():
    """Kafka takes the highest time from the records, not from the header."""
    for codec, inspect in ((0, True), (4, False)):
        data = batch.build_batch(_records(), codec=codec)
        batch.patch(data, 0, max_timestamp=NOW + 1_000)
        done = _run(data, inspect=inspect)
        assert done.max_timestamp == NOW + 2
        assert done.headers[0].max_timestamp == NOW + 2
        _read(done)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_client_may_not_stamp_for_a_topic_with_log_append_time(codec):
    data = batch.build_batch(_records(), codec=codec, timestamp_type=LOG_APPEND_TIME)
    _refused(data, ErrorCode.INVALID_TIMESTAMP, timestamp_type=LOG_APPEND_TIME)
    data = batch.build_batch(_records(), codec=codec, timestamp_type=LOG_APPEND_TIME)
    done = _run(data)  # and where the topic has CreateTime, the type is set back
    assert done.headers[0].timestamp_type == CREATE_TIME


def test_control_batches_are_not_for_clients():
    marker = control.build_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=3, timestamp=NOW)
    _refused(bytearray(marker), ErrorCode.INVALID_RECORD)
    done = _run(marker, origin=Origin.COORDINATOR, codec=4, compacted=False)
    assert not done.converted  # a topic's codec does not touch control records
    assert control.marker_of(done.buffers[0], done.headers[0]) == (True, 3)


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        pytest.param(batch.COUNT_AT, ">i", 0, id="no records"),
        pytest.param(batch.COUNT_AT, ">i", -1, id="-1 records"),
        pytest.param(batch.COUNT_AT, ">i", 4, id="4 records"),
        pytest.param(batch.LAST_OFFSET_DELTA_AT, ">i", -1, id="last delta -1"),
        pytest.param(batch.LAST_OFFSET_DELTA_AT, ">i", 5, id="last delta 5"),
        pytest.param(batch.BASE_SEQUENCE_AT, ">i", -1, id="producer without sequence"),
        pytest.param(batch.BASE_OFFSET_AT, ">q", 1, id="base offset 1"),
    ],
)
@pytest.mark.parametrize("codec", [0, 2])
def test_wrong_headers_are_refused(at, layout, value, codec):
    data = batch.build_batch(_records(), codec=codec, producer_id=3, producer_epoch=0, base_sequence=0)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, 17, batch.crc32c(bytes(data[21:])))
    _refused(data, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", range(5))
def test_a_count_that_the_records_do_not_hold_is_refused(codec):
    data = batch.build_batch(_records(), codec=codec)
    struct.pack_into(">i", data, batch.COUNT_AT, 4)
    struct.pack_into(">i", data, batch.LAST_OFFSET_DELTA_AT, 3)
    struct.pack_into(">I", data, 17, batch.crc32c(bytes(data[21:])))
    _refused(data, ErrorCode.INVALID_RECORD, inspect=True)


@pytest.mark.parametrize("count", [16, 1_000_000, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold_is_refused_without_a_look_at_the_records(count):
    """security.md 7.1, recordsCount <= bytes: 100 bytes that take two billion offsets."""
    data = batch.build_batch(_records())
    assert count > (len(data) - batch.HEADER_SIZE) // batch.RECORD_BYTES_MIN
    struct.pack_into(">i", data, batch.COUNT_AT, count)
    struct.pack_into(">i", data, batch.LAST_OFFSET_DELTA_AT, count - 1)
    struct.pack_into(">I", data, 17, batch.crc32c(bytes(data[21:])))
    _refused(data, ErrorCode.INVALID_RECORD)
    smallest = batch.build_batch([Record(i, NOW, None, None) for i in range(200)])
    assert len(_read(_run(smallest))) == 200


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -(2**63) + NOW)])
def test_a_timestamp_that_overflows_is_refused(codec, base, delta):
    """security.md 7.1: a sum that would come round to a good time is no time."""
    data = batch.assemble(
        compress(codec, batch.encode_record(0, delta, b"k", b"v")),
        base_offset=0,
        last_offset_delta=0,
        count=1,
        attributes=codec,
        base_timestamp=base,
        max_timestamp=NOW,
    )
    _refused(data, ErrorCode.INVALID_RECORD, compacted=True)


@pytest.mark.parametrize("codec", [0, 1])
def test_offsets_that_do_not_count_up_are_refused(codec):
    body = b"".join(batch.encode_record(delta, 0, b"k", b"v") for delta in (0, 0, 1))
    data = batch.assemble(
        compress(codec, body),
        base_offset=0,
        last_offset_delta=2,
        count=3,
        attributes=codec,
        base_timestamp=NOW,
        max_timestamp=NOW,
    )
    _refused(data, ErrorCode.INVALID_RECORD, inspect=True)


def test_a_bomb_is_too_large():
    """N02."""
    body = batch.encode_record(0, 0, b"k", bytes(40 << 20))
    packed = compress(4, body)
    assert len(packed) < 10_000
    data = batch.assemble(
        packed, base_offset=0, last_offset_delta=0, count=1, attributes=4, base_timestamp=NOW, max_timestamp=NOW
    )
    _refused(data, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_garbage_is_refused(codec):
    data = batch.assemble(
        b"garbage" * 9,
        base_offset=0,
        last_offset_delta=0,
        count=1,
        attributes=codec,
        base_timestamp=NOW,
        max_timestamp=NOW,
    )
    _refused(data, ErrorCode.INVALID_RECORD)


# --- analyze --------------------------------------------------------------------------------------------------------
def test_a_produce_request_carries_one_batch():
    one = batch.build_batch(_records())
    for data, code in (
        (b"", ErrorCode.INVALID_RECORD),
        (one + one, ErrorCode.INVALID_RECORD),
        (one + b"x", ErrorCode.INVALID_RECORD),
    ):
        with pytest.raises(InvalidBatch) as caught:
            analyze(data)
        assert caught.value.code == code
    for data in (one[:-1], one[:30], one[:5]):
        with pytest.raises(CorruptBatch):
            analyze(data)


def test_a_wrong_crc_is_found_before_anything_is_unpacked():
    data = batch.build_batch(_records(), codec=1)
    data[-3] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        analyze(data)


def test_a_batch_larger_than_the_topic_allows_is_refused():
    data = batch.build_batch(_records())
    assert analyze(data, max_message_bytes=len(data))
    with pytest.raises(InvalidBatch) as caught:
        analyze(data, max_message_bytes=len(data) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    _refused(batch.build_batch(_records(50), codec=4), ErrorCode.MESSAGE_TOO_LARGE, codec=0, max_message_bytes=600)


def test_formats_belong_to_versions_of_the_request():
    v2 = batch.build_batch(_records())
    zstd = batch.build_batch(_records(), codec=4)
    v1 = legacy.build_message_set(_records(), 1)
    assert analyze(zstd, produce_version=7)
    assert analyze(v1, produce_version=2)
    for data, version, code in (
        (v2, 2, ErrorCode.INVALID_RECORD),
        (v1, 3, ErrorCode.INVALID_RECORD),
        (zstd, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ):
        with pytest.raises(InvalidBatch) as caught:
            analyze(data, produce_version=version)
        assert caught.value.code == code


# --- old producers --------------------------------------------------------------------------------------------------
def _old(data, **options):
    return _run(data, headers=analyze(data, produce_version=2), **options)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", range(4))
@pytest.mark.parametrize("target", [None, *range(5)])
def test_message_sets_become_batches(magic, source, target):
    data = legacy.build_message_set(_records(), magic, codec=source)
    done = _old(data, codec=target)
    (header,) = done.headers
    assert done.converted
    assert (header.magic, header.codec) == (2, source if target is None else target)
    assert _read(done) == [
        Record(1000 + i, r.timestamp if magic else -1, r.key, r.value) for i, r in enumerate(_records())
    ]


def test_message_sets_obey_the_topics_rules():
    data = legacy.build_message_set([*_records(1), Record(1, NOW, None, b"x")], 1, codec=1)
    with pytest.raises(InvalidBatch) as caught:
        _old(data, compacted=True)
    assert [row.batch_index for row in caught.value.record_errors] == [1]
    late = legacy.build_message_set(_records(timestamp=NOW + 10**9), 1)
    with pytest.raises(InvalidBatch) as caught:
        _old(late)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    done = _old(late, timestamp_type=LOG_APPEND_TIME)
    assert [r.timestamp for r in _read(done)] == [NOW] * 3


@pytest.mark.parametrize("times", [(-(2**63), 2**63 - 1), (-1, 2**63 - 1), (NOW, -2)])
@pytest.mark.parametrize("kind", [CREATE_TIME, LOG_APPEND_TIME])
def test_times_of_old_messages_that_a_batch_cannot_hold_are_refused(times, kind):
    """security.md 7.1: no difference of times overflows; Kafka's builder refuses negative times too."""
    data = b"".join(legacy.encode_entry(1, i, time, b"k", b"v") for i, time in enumerate(times))
    with pytest.raises(InvalidBatch) as caught:
        _old(data, timestamp_type=kind, after_max_ms=2**63 - 1)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP


def test_the_offsets_of_old_producers_are_no_matter():
    """Producers of that age wrote what they liked there."""
    data = bytearray()
    for offset in (-1, 7, 7):
        data += legacy.encode_entry(0, offset, -1, None, b"x")
    assert [r.offset for r in _read(_old(data))] == [1000, 1001, 1002]


def test_a_nested_message_with_a_wrong_crc_is_corrupt():
    inner = legacy.encode_entry(1, 0, NOW, None, b"x")
    inner[-1] ^= 1
    data = legacy.encode_entry(1, 0, NOW, None, compress(1, inner), codec=1)
    with pytest.raises(CorruptBatch, match="CRC"):
        _old(data)


def test_mixed_message_sets_are_refused():
    v0, v1 = (legacy.build_message_set(_records(1), magic) for magic in (0, 1))
    packed = legacy.build_message_set(_records(2), 1, codec=1)
    for data in (v0 + v1, v1 + packed, packed + packed, v1 + batch.build_batch(_records())):
        with pytest.raises(InvalidBatch) as caught:
            analyze(data, produce_version=2)
        assert caught.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(CorruptBatch):
        analyze(v1 + v1[:-1], produce_version=2)


@given(st.data())
def test_any_payload_gives_a_value_or_a_declared_error(data):
    codec = data.draw(st.integers(0, 4))
    good = batch.build_batch(_records(), codec=codec)
    broken = bytearray(good)
    for position in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=4)):
        broken[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        struct.pack_into(">I", broken, 17, batch.crc32c(bytes(broken[21:])))
    try:
        done = _run(broken, inspect=data.draw(st.booleans()), codec=data.draw(st.none() | st.integers(0, 4)))
    except (Malformed, ApiError):
        return
    assert done.headers[0].base_offset == 1000
