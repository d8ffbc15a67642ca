"""The quick walk over a log's batches against the plain one of `records.batch`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratalog.records import batch as v2
from stratalog.rsm import batches
from stratalog.rsm.shard import Logged, Record


class Collector:
    def __init__(self) -> None:
        self.records: list[Logged] = []

    def replay_many(self, records) -> None:
        self.records += records

    def replay_end_of_transaction(self, producer_id, committed) -> None:
        raise AssertionError("no transactions here")


_records = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=300)),
        st.one_of(st.none(), st.binary(max_size=300)),
        st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=80,
)


@given(_records, st.integers(0, 2**40), st.sampled_from([0, 1, 3]), st.integers(0, 100))
def test_the_quick_walk_finds_what_the_plain_one_finds(records, base, codec, skip):
    builder = v2.BatchBuilder(base_offset=base, codec=codec)
    for key, value, headers, time in records:
        builder.append(time, key, value, headers)
    data = bytes(builder.build())
    collector = Collector()
    next_offset, count = batches.replay_into(collector, data, base + skip)
    header = v2.read_header(data)
    wanted = [
        (record.offset, record.key, record.value, -1)
        for record in v2.records_of(data, header)
        if record.key is not None and record.offset >= base + skip
    ]
    assert collector.records == wanted
    assert count == len(wanted)
    assert next_offset == max(base + skip, header.next_offset)


def test_a_built_batch_has_the_time_of_the_write_on_every_record():
    data = batches.build([Record(b"a", b"1"), Record(b"b", None)], 1234)
    header = v2.read_header(data)
    assert [(r.timestamp, r.key, r.value) for r in v2.records_of(data, header)] == [
        (1234, b"a", b"1"),
        (1234, b"b", None),
    ]
    assert v2.crc_is_valid(data, header)
