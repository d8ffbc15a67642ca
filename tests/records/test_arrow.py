"""Batches as Arrow columns: the kernel, its twin and the records one by one agree."""

import random
import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import arrow, kernels, plain
from stratalog.records.batch import BatchBuilder, batches, patch, records_of
from stratalog.records.errors import CorruptBatch

compiled = kernels.load_kernels()
twins = pytest.mark.parametrize("twin", [plain, compiled], ids=["plain", "compiled"])

nullable = st.none() | st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3)
records = st.lists(st.tuples(st.integers(0, 1 << 41), nullable, nullable, header_lists), min_size=1, max_size=9)


def batch(base, rows, **options):
    builder = BatchBuilder(base_offset=base, **options)
    for time, key, value, headers in rows:
        builder.append(time, key, value, headers)
    return bytes(builder.build())


@st.composite
def logs(draw):
    out = b""
    base = draw(st.integers(0, 1 << 40))
    for rows in draw(st.lists(records, max_size=4)):
        out += batch(base, rows, timestamp_type=draw(st.integers(0, 1)), codec=draw(st.sampled_from((0, 0, 1, 4))))
        base += len(rows) + draw(st.integers(0, 2))
    return out


def scan(data):
    table = kernels.BatchTable()
    assert kernels.best().scan_batches(data, table) == kernels.OK
    return table


def expected(data):
    """What one record after the other gives: the third opinion."""
    rows = []
    for header in batches(data):
        rows += [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestampType": header.timestamp_type,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": name, "value": value} for name, value in record.headers],
            }
            for record in records_of(data, header)
        ]
    return rows


def rows_of(batch):
    index = batch.schema.get_field_index("timestamp")
    if index >= 0:
        batch = batch.set_column(index, "timestamp", batch.column(index).cast(pa.int64()))
    return batch.to_pylist()


@given(logs())
@settings(max_examples=100, deadline=None)
def test_columns_agree_with_the_records_one_by_one(data):
    """All columns, nulls, headers, both timestamp types, compressed batches; both twins."""
    for twin in (plain, compiled):
        found = arrow.decode(data, scan(data), twin=twin)
        found.validate(full=True)
        assert rows_of(found) == expected(data)
        assert found.schema == arrow.schema()


@given(logs(), st.data())
@settings(max_examples=60, deadline=None)
def test_ranges_select_records_by_offset_and_time(data, draw):
    rows = expected(data)
    offsets = [row["offset"] for row in rows] or [0]
    times = [row["timestamp"] for row in rows] or [0]
    start, stop = (draw.draw(st.sampled_from(offsets)) + draw.draw(st.integers(-1, 2)) for _ in range(2))
    early, late = (draw.draw(st.sampled_from(times)) + draw.draw(st.integers(-1, 2)) for _ in range(2))
    wanted = [row for row in rows if start <= row["offset"] < stop and early <= row["timestamp"] < late]
    for twin in (plain, compiled):
        found = arrow.decode(data, scan(data), start=start, stop=stop, start_time=early, end_time=late, twin=twin)
        assert rows_of(found) == wanted


@twins
def test_only_the_columns_that_are_asked_for_are_made(twin):
    data = batch(3, [(5, b"k", b"v", [("a", b"b")]), (6, None, None, [])])
    found = arrow.decode(data, scan(data), columns=["value", "offset"], twin=twin)
    assert found.schema.names == ["offset", "value"]
    assert found.to_pydict() == {"offset": [3, 4], "value": [b"v", None]}
    assert arrow.decode(data, scan(data), columns=[], twin=twin).schema.names == []
    with pytest.raises(ValueError, match="no column 'topic'"):
        arrow.decode(data, scan(data), columns=["topic"], twin=twin)


@twins
def test_microseconds_for_spark(twin):
    data = batch(0, [(1_700_000_000_123, b"k", b"v", [])])
    found = arrow.decode(data, scan(data), columns=["timestamp"], unit="us", twin=twin)
    assert found.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert found.column(0).cast(pa.int64()).to_pylist() == [1_700_000_000_123_000]


@twins
def test_a_time_that_has_no_microseconds_is_an_error_and_no_other_time(twin):
    """A producer that takes nanoseconds for milliseconds; Kafka before 4.0 keeps what it says."""
    data = batch(0, [(1_700_000_000_123, b"k", b"v", []), (1_700_000_000_123_000_000, b"k", b"v", [])])
    with pytest.raises(CorruptBatch, match="1700000000123000000 is too large"):
        arrow.decode(data, scan(data), unit="us", twin=twin)
    assert arrow.decode(data, scan(data), twin=twin).num_rows == 2
    assert arrow.decode(data, scan(data), columns=["value"], unit="us", twin=twin).num_rows == 2


@twins
def test_a_time_beyond_what_its_header_tells_does_not_wrap_around(twin):
    """The check for microseconds reads headers; a record behind one that lies gets the last time that there is."""
    times = [1_700_000_000_000_000_000, 2**63 - 1, -(2**62), 9_223_372_036_854_775, 5]
    data = bytearray()
    for base, time in enumerate(times):
        one = bytearray(batch(base, [(time, b"k", b"v", [])]))
        patch(one, 0, max_timestamp=5)
        data += one
    found = arrow.decode(data, scan(data), columns=["timestamp"], unit="us", twin=twin)
    last = 9_223_372_036_854_775_000
    assert found.column(0).cast(pa.int64()).to_pylist() == [last, last, -last, last, 5_000]
    found = arrow.decode(data, scan(data), columns=["timestamp"], twin=twin)
    assert found.column(0).cast(pa.int64()).to_pylist() == times


@twins
def test_chosen_batches_only(twin):
    data = b"".join(batch(i, [(i, b"k", b"%d" % i, [])], codec=4 if i % 2 else 0) for i in range(6))
    found = arrow.decode(data, scan(data), indexes=[1, 2, 5], twin=twin)
    assert found.column("offset").to_pylist() == [1, 2, 5]


@twins
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_below_a_sound_header_is_corrupt_batch_and_nothing_else(twin, draw):
    """A batch whose CRC was made for damaged records: found by the walk, not by the checksum."""
    good = batch(0, [(5, b"key", b"value", [("h", b"x")]), (6, None, b"value", []), (7, b"k", None, [])])
    bad = bytearray(good)
    for _ in range(draw.draw(st.integers(1, 3))):
        bad[draw.draw(st.integers(61, len(bad) - 1))] = draw.draw(st.integers(0, 255))
    table = kernels.BatchTable()
    assert plain.scan_batches(bad, table, verify=False) == kernels.OK
    try:
        found = arrow.decode(bad, table, twin=twin)
    except CorruptBatch:
        return
    found.validate(full=True)


@twins
def test_header_keys_that_are_no_text_are_read_as_java_reads_them(twin):
    """One record of a client that writes any bytes there does not keep a table from its readers."""
    good = batch(0, [(5, b"k", b"v", [("abc", b"x"), ("d", None)]), (6, b"k", b"v", []), (7, b"k", b"v", [("e", b"")])])
    odd = bytearray(good)
    odd[good.index(b"abc") + 1] = 0xFF
    table = kernels.BatchTable()
    assert plain.scan_batches(odd, table, verify=False) == kernels.OK
    found = arrow.decode(odd, table, twin=twin)
    found.validate(full=True)
    assert rows_of(found) == expected(odd)
    assert found.column("headers").to_pylist()[0][0] == {"key": "a\ufffdc", "value": b"x"}


def test_both_twins_refuse_the_same_damage():
    random.seed(4)
    good = batch(0, [(5, b"key", b"value", [("h", b"x")]), (6, None, b"value", []), (7, b"k", None, [])])
    for _ in range(500):
        bad = bytearray(good)
        bad[random.randrange(61, len(bad))] = random.randrange(256)
        answers = []
        for twin in (plain, compiled):
            table = kernels.BatchTable()
            plain.scan_batches(bad, table, verify=False)
            try:
                answers.append(rows_of(arrow.decode(bad, table, twin=twin)))
            except CorruptBatch as error:
                answers.append(str(error))
        assert answers[0] == answers[1]


def test_an_empty_table_gives_an_empty_batch():
    for twin in (plain, compiled):
        found = arrow.decode(b"", scan(b""), twin=twin)
        assert found.num_rows == 0 and found.schema == arrow.schema()


@twins
def test_message_sets_of_the_old_formats_are_rows_too(twin):
    """Magic 0 and 1."""

    def old_message(offset, value, magic):
        body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 77) if magic else b"")
        body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    data = old_message(7, b"a", magic=1) + old_message(8, b"b", magic=0)
    found = rows_of(arrow.decode(data, scan(data), twin=twin))
    assert [(row["offset"], row["timestamp"], row["value"]) for row in found] == [(7, 77, b"a"), (8, -1, b"b")]
    assert [row["timestampType"] for row in found] == [0, -1]  # magic 0 has no time, and Java says so
