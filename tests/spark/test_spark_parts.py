"""The parts of the pipeline that need no Spark session: encoding, routing, cutting, sharing out, identities."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stratalog.testing
from stratalog.client import Client, Refused, admin, partition_for_key
from stratalog.records.batch import encode_record, read_header, records_of
from stratalog.spark import origin
from stratalog.spark.encode import Pending, column_of, grouped, partitions_of
from stratalog.spark.options import read_options, write_options
from stratalog.spark.origin import Slice, Span
from stratalog.spark.rows import SinkError, rows_of
from stratalog.spark.sink import Identity, TaskWriter, content, producer_states, written_rows

nullable = st.none() | st.binary(max_size=30)


@given(st.lists(st.tuples(nullable, nullable, st.integers(0, 1 << 41)), min_size=1, max_size=60), st.integers(80, 400))
@settings(max_examples=30, deadline=None)
def test_the_encoder_writes_what_the_plain_one_does(rows, limit):
    """Kernel against `encode_record`, over as many batches as it takes; a record larger than a batch gets its own."""
    keys = column_of(pa.array([row[0] for row in rows], pa.binary()), len(rows))
    values = column_of(pa.array([row[1] for row in rows], pa.binary()), len(rows))
    stamps = np.array([row[2] for row in rows], np.int64)
    numbers = np.arange(len(rows))
    pending = Pending(limit)
    at, found = 0, []
    while at < len(rows):
        begin = at
        at = pending.fill(numbers, at, keys, values, stamps)
        assert at > begin
        batch = pending.take(codec=0, level=None)
        header = read_header(batch)
        wanted = b"".join(
            encode_record(i, row[2] - rows[begin][2], row[0], row[1]) for i, row in enumerate(rows[begin:at])
        )
        assert bytes(batch[61:]) == wanted
        assert header.max_timestamp == max(row[2] for row in rows[begin:at])
        found += [(r.key, r.value, r.timestamp) for r in records_of(batch, header)]
    assert found == rows


def test_rows_go_where_java_sends_them():
    """murmur2 of the key, as `client.partitioner`, which is held against Java's; without a key by the value."""
    rng = random.Random(7)
    keys = [rng.randbytes(rng.randrange(0, 40)) for _ in range(500)] + [None] * 100
    values = [rng.randbytes(8) for _ in keys]
    routed = partitions_of(column_of(pa.array(keys), 600), column_of(pa.array(values), 600), 7)
    assert routed.tolist() == [partition_for_key(v if k is None else k, 7) for k, v in zip(keys, values, strict=True)]


def test_a_slice_of_a_column_is_read_at_its_place():
    whole = pa.array([b"a", None, b"ccc", b"dd", None, b""])
    part = column_of(whole.slice(2, 3), 3)
    pending = Pending(1000)
    assert pending.fill(np.arange(3), 0, part, part, np.zeros(3, np.int64)) == 3
    batch = pending.take(codec=0, level=None)
    assert [(r.key, r.value) for r in records_of(batch, read_header(batch))] == [
        (b"ccc", b"ccc"), (b"dd", b"dd"), (None, None),
    ]  # fmt: skip


def test_rows_of_one_partition_keep_their_order():
    parts = np.array([2, 0, 2, 1, 0, 2])
    assert [(p, rows.tolist()) for p, rows in grouped(parts, np.arange(6))] == [(0, [1, 4]), (1, [3]), (2, [0, 2, 5])]
    assert grouped(parts, np.array([], np.int64)) == []


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(0, 1000), min_size=1), st.integers(1, 900)
)
@example({("t", 0): 4, ("t", 1): 1, ("t", 2): 1}, 3)
@settings(max_examples=200, deadline=None)
def test_shares_of_a_trigger_add_up_and_leave_nobody_out(available, most):
    """maxOffsetsPerTrigger: never more than it, all of it while there is enough, and no more than a partition has."""
    from stratalog.spark.stream import shared_out

    shares = shared_out(available, most)
    assert sum(shares.values()) == min(most, sum(available.values()))
    assert all(0 <= shares[p] <= available[p] for p in available)
    waiting = [p for p in available if available[p]]
    if most >= len(waiting):
        assert all(shares[p] > 0 for p in waiting)


class Fixed:
    """An origin that cuts nothing."""

    def slices(self, partition, span, *, by_bytes):
        return [Slice(*partition, span.start, span.stop, "")]


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 5)), st.integers(1, 500), min_size=1),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 100),
)
@settings(max_examples=200, deadline=None)
def test_tasks_cover_each_offset_once(sizes, at_least, at_most):
    """minPartitions and maxRecordsPerPartition."""
    raw = {"path": "/x", "subscribe": "t"}
    if at_least:
        raw["minPartitions"] = str(at_least)
    if at_most:
        raw["maxRecordsPerPartition"] = str(at_most)
    wanted = {p: Span(100, 100 + size) for p, size in sizes.items()}
    tasks = origin.cut(Fixed(), read_options(raw, streaming=False), wanted, by_bytes=False)
    covered = Counter((s.partition, o) for task in tasks for s in task for o in range(s.start, s.stop))
    assert covered == Counter((p[1], o) for p, span in wanted.items() for o in range(span.start, span.stop))
    if at_most:
        assert all(sum(s.stop - s.start for s in task) <= at_most for task in tasks)
    if at_least:
        assert len(tasks) >= min(at_least, sum(sizes.values()))


def test_an_identity_is_the_same_for_the_same_batch_only():
    one = Identity("q", 5, 2)
    assert (one.producer_id, one.epoch) == (Identity("q", 5, 2).producer_id, 5)
    assert one.producer_id >= 1 << 62
    assert one.producer_id == Identity("q", 6, 2).producer_id  # the next batch is the next epoch
    assert Identity("q", 6, 2).epoch == 6
    others = {Identity("q", 5, 3), Identity("p", 5, 2), Identity("q", 5 + 32_768, 2)}
    assert len({one.producer_id, *(other.producer_id for other in others)}) == 4


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_formats_are_read_from_files(tmp_path, codec):
    """v0, v1 and v2 in one segment, plain and compressed, through planning and a task."""
    from stratalog.records.batch import Record, build_batch
    from stratalog.records.legacy import build_message_set
    from stratalog.spark.files import Files, read_files

    def some(first, count):
        return [Record(i, 1000 + i, b"k%d" % i if i % 3 else None, b"v%d" % i) for i in range(first, first + count)]

    directory = tmp_path / "old-0"
    directory.mkdir()
    data = b"".join(
        [
            bytes(build_message_set(some(0, 5), 0, codec=codec)),
            bytes(build_message_set(some(5, 7), 1, codec=codec)),
            bytes(build_batch([(r.timestamp, r.key, r.value) for r in some(12, 4)], base_offset=12, codec=codec)),
        ]
    )
    (directory / f"{0:020d}.log").write_bytes(data)
    options = read_options({"path": str(tmp_path), "subscribe": "old"}, streaming=False)
    assert Files(options).spans([("old", 0)]) == {("old", 0): (0, 16)}
    for start, stop in ((0, 16), (3, 9), (6, 13)):
        piece = Slice("old", 0, start, stop, str(directory))
        columns = ("offset", "timestamp", "key", "value")
        rows = [r for b in read_files(piece, options, columns, None, None) for r in b.to_pylist()]
        wanted = some(0, 16)[start:stop]
        assert [(r["offset"], r["key"], r["value"]) for r in rows] == [(w.offset, w.key, w.value) for w in wanted]
        assert [round(r["timestamp"].timestamp() * 1000) for r in rows] == [
            -1 if w.offset < 5 else w.timestamp for w in wanted
        ]


# --- a task's producer against a broker -------------------------------------------------------------------------------
def batch_of(values, keys=None):
    keys = [b"k%d" % (len(value) % 3) for value in values] if keys is None else keys
    return pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def attempt(broker, identity, values, *, stop_after=None, **options):
    """One attempt of a task; killed after some rows when `stop_after` says so: what was not sent is gone."""
    chosen = write_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": "out", "batchBytes": "2k", **options})
    with TaskWriter(chosen, identity) as writer:
        for at in range(0, len(values), 50):
            if stop_after is not None and at >= stop_after:
                return writer
            for rows in rows_of(batch_of(values[at : at + 50]), chosen):
                writer.add(rows)
        writer.finish()
    return writer


@pytest.mark.parametrize("order", ["the same", "another"])
def test_a_task_that_is_tried_again_doubles_nothing(order):
    """However far the earlier attempts came, and in whatever order the rows come again."""
    values = [b"value %d" % i for i in range(1000)]
    rng = random.Random(3)
    with stratalog.testing.broker({"out": 3}) as broker:
        identity = Identity("q", 7, 0)
        for stop in (0, 300, 150, 800):
            attempt(broker, identity, values, stop_after=stop)
            if order == "another":
                rng.shuffle(values)
        before = len(broker.records("out"))
        assert before > 100
        broker.restart(kill=True)
        assert attempt(broker, identity, values).repeated == before
        assert sorted(r.value for r in broker.records("out")) == sorted(values)
        again = attempt(broker, identity, values)
        assert again.repeated == 1000
        assert len(broker.records("out")) == 1000
        attempt(broker, Identity("q", 8, 0), values)  # the next batch may have equal rows: they are others
        assert len(broker.records("out")) == 2000


def test_equal_rows_of_one_batch_are_all_written():
    """Content decides what is there already, by number, not by kind."""
    values = [b"same"] * 400
    with stratalog.testing.broker({"out": 2}) as broker:
        attempt(broker, Identity("q", 0, 0), values, stop_after=250)
        attempt(broker, Identity("q", 0, 0), values)
        assert len(broker.records("out")) == 400


def test_equal_rows_for_several_partitions_reach_each_of_them():
    """What is there in one partition is not there in another, when the column `partition` says where a row goes."""
    with stratalog.testing.broker({"out": 3}) as broker:
        chosen = write_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": "out"})
        for places in ([2], [0, 2, 1], [1, 0, 2]):  # the first attempt came no further than partition 2
            tick = {"value": pa.array([b"tick"] * len(places)), "partition": pa.array(places, pa.int32())}
            with TaskWriter(chosen, Identity("q", 0, 0)) as writer:
                for rows in rows_of(pa.RecordBatch.from_pydict(tick), chosen):
                    writer.add(rows)
                writer.finish()
        assert writer.repeated == 3
        assert sorted(r.partition for r in broker.records("out")) == [0, 1, 2]


def test_rows_are_found_again_where_the_topic_has_more_partitions_since():
    values = [b"value %d" % i for i in range(100)]
    with stratalog.testing.broker({"out": 1}) as broker:
        attempt(broker, Identity("q", 0, 0), values[:70])
        with Client(broker.bootstrap) as client:
            admin.create_partitions(client, "out", 4)
        assert attempt(broker, Identity("q", 0, 0), values).repeated == 70
        assert sorted(r.value for r in broker.records("out")) == sorted(values)


def test_an_older_batch_is_fenced():
    """A driver that was thought dead cannot write behind the next batch."""
    with stratalog.testing.broker({"out": 1}) as broker:
        attempt(broker, Identity("q", 2, 0), [b"new"])
        with pytest.raises(SinkError, match="later batch"):
            attempt(broker, Identity("q", 1, 0), [b"old"])
        assert [r.value for r in broker.records("out")] == [b"new"]


def test_a_repeat_with_other_rows_keeps_what_was_written_and_says_so(capsys):
    with stratalog.testing.broker({"out": 1}) as broker:
        attempt(broker, Identity("q", 0, 0), [b"a", b"b"])
        attempt(broker, Identity("q", 0, 0), [b"b", b"c"])
        assert [r.value for r in broker.records("out")] == [b"a", b"b", b"c"]
    assert "an earlier attempt wrote 1 records" in capsys.readouterr().err


def test_the_marker_is_found_from_far_behind():
    """Others have written a lot since."""
    with stratalog.testing.broker({"out": 1}) as broker:
        identity = Identity("q", 1, 0)
        attempt(broker, identity, [b"mine %d" % i for i in range(30)])
        broker.produce("out", [b"theirs"] * 20_000)
        with Client(broker.bootstrap) as client:
            states = producer_states(client, "out", [0], identity.producer_id)
            assert states == {0: (1, 29)}
            found = written_rows(client, "out", 0, (identity.producer_id, 1), 30)
        assert found == Counter(content(b"k%d" % (len(b"mine %d" % i) % 3), b"mine %d" % i, ()) for i in range(30))


def test_a_broken_request_is_sent_again():
    values = [b"v%d" % i for i in range(300)]
    with stratalog.testing.broker({"out": 2}) as broker:
        broker.refuse("Produce", times=2)
        attempt(broker, Identity("q", 0, 0), values)
        assert sorted(r.value for r in broker.records("out")) == sorted(values)


def test_rows_name_their_partition_topic_headers_and_time():
    chosen = write_options({"kafka.bootstrap.servers": "h:1", "timestamps": "column"})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["a", "b", "c"]),
            "topic": pa.array(["x", "y", "x"]),
            "partition": pa.array([1, None, 0], pa.int32()),
            "timestamp": pa.array([1000, 2000, 3000], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], kind),
        }
    )
    found = {rows.topic: rows for rows in rows_of(batch, chosen)}
    assert found["x"].rows.tolist() == [0, 2] and found["y"].rows.tolist() == [1]
    assert found["x"].partitions.tolist() == [1, -1, 0]
    assert found["x"].stamps.tolist() == [1, 2, 3]
    with stratalog.testing.broker({"x": 2, "y": 1}) as broker:
        options = write_options({"kafka.bootstrap.servers": broker.bootstrap, "timestamps": "column"})
        with TaskWriter(options, Identity("q", 0, 0)) as writer:
            for rows in rows_of(batch, options):
                writer.add(rows)
            writer.finish()
        assert [(r.partition, r.value, r.timestamp, r.headers) for r in broker.records("x")] == [
            (0, b"c", 3, ()),
            (1, b"a", 1, (("h", b"1"),)),
        ]
        with pytest.raises(SinkError, match="partition has 5"), TaskWriter(options, Identity("q", 1, 0)) as writer:
            far = batch.set_column(2, "partition", pa.array([5, 5, 5], pa.int32()))
            for rows in rows_of(far, options):
                writer.add(rows)


def test_a_topic_that_is_missing_is_one_line():
    with stratalog.testing.broker(config={"auto.create.topics.enable": "false"}) as broker:
        with pytest.raises(Refused) as raised:
            attempt(broker, Identity("q", 0, 0), [b"a"])
        assert "out" in str(raised.value) and "\n" not in str(raised.value)


def test_a_stream_without_a_query_is_written_at_least_once():
    """`guarantee=at-least-once` needs neither the query's id nor the batch's number."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from stratalog.spark.sink import StreamWriter

    schema = StructType([StructField("value", BinaryType())])
    batches = [pa.RecordBatch.from_arrays([pa.array([b"a", b"b"])], names=["value"])]
    with stratalog.testing.broker({"out": 1}) as broker:
        raw = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "out"}
        with pytest.raises(SinkError, match="guarantee=at-least-once"):
            StreamWriter(write_options(raw), schema).write(iter(batches))
        lax = write_options({**raw, "guarantee": "at-least-once"})
        assert StreamWriter(lax, schema).write(iter(batches)).records == 2
        assert [r.value for r in broker.records("out")] == [b"a", b"b"]
