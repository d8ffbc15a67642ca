"""Streaming reads and writes through Spark: admission, restart, repeat, new partitions (issue 7)."""

import json
import os
import shutil

import pytest

import stratalog.testing
from spark_patience import patiently
from stratalog.client import Client, admin
from stratalog.spark import reason
from stratalog.spark.stream import lag

pytestmark = pytest.mark.spark


def start(spark, broker, place, *, way="wire", sink="out", once=True, **options):
    reader = spark.readStream.format("stratalog").option("subscribe", "in").option("startingOffsets", "earliest")
    if "wire" in way:
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
    if "path" in way:
        reader = reader.option("path", str(broker.directory / "data"))
    writer = (
        reader.options(**options).load().select("key", "value").writeStream.format("stratalog")
        .option("kafka.bootstrap.servers", broker.bootstrap).option("topic", sink)
        .option("checkpointLocation", str(place / "checkpoint"))
    )  # fmt: skip
    return (writer.trigger(availableNow=True) if once else writer).start()


def run(*args, **options):
    def once(_):
        query = start(*args, **options)
        query.awaitTermination()
        return query

    return patiently(once)


def forget_last_commit(place):
    """What a driver leaves that is killed after the tasks of a batch and before it writes the commit."""
    folder = place / "checkpoint" / "commits"
    last = max(int(name) for name in os.listdir(folder) if name.isdigit())
    for name in (str(last), f".{last}.crc"):
        if (folder / name).exists():
            os.remove(folder / name)


@pytest.mark.parametrize("way", ["wire", "path", "path and wire"])
def test_a_query_goes_on_from_its_checkpoint_without_loss_or_repeat(spark, tmp_path, way):
    with stratalog.testing.broker({"in": 2, "out": 3}) as broker:
        broker.produce("in", [(b"k%d" % (i % 10), b"a%d" % i) for i in range(2500)])
        query = run(spark, broker, tmp_path, way=way, maxOffsetsPerTrigger="1000")
        assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [1000, 1000, 500]
        wanted = [b"a%d" % i for i in range(2500)]
        assert sorted(r.value for r in broker.records("out")) == sorted(wanted)
        broker.produce("in", [(b"k", b"b%d" % i) for i in range(300)])
        forget_last_commit(tmp_path)
        query = run(spark, broker, tmp_path, way=way, maxOffsetsPerTrigger="1000")
        assert sum(p.numInputRows for p in query.recentProgress) == 800  # the last batch is repeated
        assert sorted(r.value for r in broker.records("out")) == sorted(wanted + [b"b%d" % i for i in range(300)])


def test_offsets_in_the_checkpoint_are_written_as_kafkas_source_writes_them(spark, tmp_path):
    with stratalog.testing.broker({"in": 2, "out": 1}) as broker:
        broker.produce("in", [b"x"] * 10, partition=1)
        query = run(spark, broker, tmp_path)
        offsets = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
        assert json.loads(offsets) == {"in": {"0": 0, "1": 10}}
        progress = query.lastProgress
        assert json.loads(progress.sources[0].latestOffset) == {"in": {"0": 0, "1": 10}}
        assert lag(progress)["offsetsBehind"] == 0


def test_a_new_partition_begins_at_its_earliest_offset(spark, tmp_path):
    with stratalog.testing.broker({"in": 1, "out": 1}) as broker:
        broker.produce("in", [b"old"] * 5)
        run(spark, broker, tmp_path)
        with Client(broker.bootstrap) as client:
            admin.create_partitions(client, "in", 3)
        broker.produce("in", [b"new"] * 7, partition=2)
        run(spark, broker, tmp_path)
        assert sorted(r.value for r in broker.records("out")) == [b"new"] * 7 + [b"old"] * 5


def test_records_that_are_gone_stop_the_query_or_are_passed_over(spark, tmp_path):
    with stratalog.testing.broker({"in": 1, "out": 1}) as broker:
        broker.produce("in", [b"%d" % i for i in range(10)])
        run(spark, broker, tmp_path)
        broker.produce("in", [b"%d" % i for i in range(10, 20)])
        with Client(broker.bootstrap) as client:
            admin.delete_records(client, "in", {0: 15})
        with pytest.raises(Exception, match=r".") as raised:
            run(spark, broker, tmp_path)
        assert "offsets 10 to 14 were deleted" in reason(raised.value)
        run(spark, broker, tmp_path, failOnDataLoss="false")
        assert [int(r.value) for r in broker.records("out")] == [*range(10), *range(15, 20)]


def test_a_topic_that_is_deleted_stops_the_query(spark, tmp_path):
    with stratalog.testing.broker({"in": 1, "out": 1}) as broker:
        broker.produce("in", [b"x"] * 3)
        run(spark, broker, tmp_path)
        with Client(broker.bootstrap) as client:
            admin.delete_topics(client, ["in"])
        with pytest.raises(Exception, match=r".") as raised:
            run(spark, broker, tmp_path)
        assert "no topic in" in reason(raised.value)


def test_a_running_query_takes_what_comes(spark, tmp_path):
    with stratalog.testing.broker({"in": 2, "out": 1}) as broker:
        query = start(spark, broker, tmp_path, once=False)
        try:
            for turn in range(3):
                broker.produce("in", [b"%d %d" % (turn, i) for i in range(50)])
                query.processAllAvailable()
                assert len(broker.records("out")) == 50 * (turn + 1)
        finally:
            query.stop()


def test_a_stream_refuses_an_end_and_a_path_as_its_sink(spark, tmp_path):
    with pytest.raises(Exception, match=r".") as raised:
        (
            spark.readStream.format("stratalog").option("path", str(tmp_path)).option("subscribe", "a")
            .option("endingOffsets", "latest").load().writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
        )  # fmt: skip
    assert "no end" in reason(raised.value)
    shutil.rmtree(tmp_path / "c", ignore_errors=True)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def stream_reader(broker, clock, **options):
    from pyspark.sql.types import StructType

    from stratalog.spark.options import read_options
    from stratalog.spark.stream import StreamReader

    raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "in", "startingOffsets": "earliest", **options}
    schema = StructType.fromDDL("key binary, value binary")
    return StreamReader(read_options(raw, streaming=True), schema, clock=clock)


def test_a_batch_waits_for_enough_records_but_not_for_ever():
    """minOffsetsPerTrigger and maxTriggerDelay.  All that waits comes where Spark asks for all; nothing waits at
    availableNow, nor, as with Kafka's source, before the first batch of a query's life."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

    clock = Clock()
    with stratalog.testing.broker({"in": 1}) as broker:
        reader = stream_reader(broker, clock, minOffsetsPerTrigger="100", maxTriggerDelay="60s")
        begin = reader.initialOffset()
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMinRows(100)
        assert reader.latestOffset(begin, limit) == begin
        broker.produce("in", [b"x"])
        assert reader.latestOffset(begin, limit) == {"in": {"0": 1}}
        begin = {"in": {"0": 1}}
        broker.produce("in", [b"x"] * 39)
        assert reader.latestOffset(begin, limit) == begin
        assert reader.latestOffset(begin, ReadAllAvailable()) == {"in": {"0": 40}}
        clock.now = 61
        assert reader.latestOffset(begin, limit) == {"in": {"0": 40}}
        broker.produce("in", [b"x"] * 100)
        assert reader.latestOffset({"in": {"0": 40}}, limit) == {"in": {"0": 140}}
        broker.produce("in", [b"x"])
        assert reader.latestOffset({"in": {"0": 140}}, limit) == {"in": {"0": 140}}
        reader.prepareForTriggerAvailableNow()
        broker.produce("in", [b"x"])
        assert reader.latestOffset({"in": {"0": 140}}, limit) == {"in": {"0": 141}}
        assert reader.latestOffset({"in": {"0": 141}}, limit) == {"in": {"0": 141}}
        assert reader.reportLatestOffset() == {"in": {"0": 142}}
        reader.stop()


def test_an_open_transaction_holds_a_stream_from_files_back(tmp_path):
    """A committed stream never passes the last stable offset, whatever the files have behind it."""
    from stratalog.records.batch import build_batch, build_control_batch
    from stratalog.records.control import COMMIT, key, marker_value
    from stratalog.spark.files import Files
    from stratalog.spark.options import read_options

    directory = tmp_path / "in-0"
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    one = build_batch([(1, None, b"a"), (2, None, b"b")], base_offset=0)
    txn = build_batch(
        [(3, None, b"t")], base_offset=2, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.write_bytes(bytes(one) + bytes(txn))
    raw = {"path": str(tmp_path), "subscribe": "in"}
    files = Files(read_options(raw, streaming=True))
    dirty = Files(read_options({**raw, "isolation": "uncommitted"}, streaming=True))
    assert files.spans([("in", 0)])["in", 0] == (0, 2)
    assert dirty.spans([("in", 0)])["in", 0] == (0, 3)
    with log.open("ab") as file:
        file.write(
            build_control_batch(
                4, key(COMMIT), marker_value(0), base_offset=3, producer_id=9, producer_epoch=0, transactional=True
            )
        )
    assert files.spans([("in", 0)])["in", 0] == (0, 4)
