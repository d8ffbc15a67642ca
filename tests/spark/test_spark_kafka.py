"""Spark's own Kafka source on Apache Kafka 4.3.1 against ours, on a copy of its files and over the wire (issue 7)."""

import json
import random
import shutil
import time

import pytest

import kafka_peer
import spark_peer
from spark_patience import patiently
from stratalog.client import Client, admin
from stratalog.spark import reason

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
    pytest.mark.skipif(spark_peer.jars() is None, reason=spark_peer.why_missing() or "no jars"),
]
SETTINGS = (
    "log.segment.bytes=1048576",
    "log.cleaner.backoff.ms=200",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.initial.task.delay.ms=100",
    "log.retention.ms=-1",
    "log.flush.start.offset.checkpoint.interval.ms=200",
    "group.initial.rebalance.delay.ms=0",
)
BASE_TIME = 1_700_000_000_000


def produce(bootstrap, topic, rows, **settings):
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for row in rows:
        producer.produce(topic, **row)
        producer.poll(0)
    assert producer.flush(60) == 0


def transactional(bootstrap, name, topic, batches):
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000}
    producer = confluent_kafka.Producer(
        settings
    )  # a transaction that is held open must outlive all tests of the module
    producer.init_transactions(30)
    for commit, values in batches:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value, partition=0)
        producer.flush(30)
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return producer


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """A broker with the topics of all tests, and a copy of its directory."""
    place = tmp_path_factory.mktemp("peer")
    with kafka_peer.kafka_broker(place / "kafka", *SETTINGS) as kafka:
        with Client(kafka.bootstrap) as client:
            admin.create_topic(client, "mixed", partitions=3, replication_factor=1)
            admin.create_topic(client, "txn", partitions=1, replication_factor=1)
            admin.create_topic(client, "cut", partitions=2, replication_factor=1)
            admin.create_topic(client, "empty", partitions=2, replication_factor=1)
            admin.create_topic(
                client, "compacted", partitions=1, replication_factor=1,
                configs={"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"},
            )  # fmt: skip
            admin.create_topic(
                client, "stamped", partitions=1, replication_factor=1,
                configs={"message.timestamp.type": "LogAppendTime"},
            )  # fmt: skip
            admin.create_topic(client, "sunk", partitions=4, replication_factor=1)
            admin.create_topic(client, "sunk-by-kafka", partitions=4, replication_factor=1)
            for turn, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
                produce(
                    kafka.bootstrap,
                    "mixed",
                    (
                        {
                            "value": None if i % 11 == 0 else b"value %d %d " % (turn, i) * (40 if i % 3 else 1),
                            "key": b"key %d" % (i % 50) if i % 7 else None,
                            "partition": i % 2,  # the third partition stays empty
                            "timestamp": BASE_TIME + turn * 1_000_000 + i * 100,
                            "headers": [("h", b"%d" % i), ("none", None), ("h", b"")] if i % 5 == 0 else None,
                        }
                        for i in range(3000)
                    ),
                    **{"compression.type": codec},
                )
                stamped = ({"value": b"%d" % i * 9, "key": b"k", "timestamp": 5} for i in range(200))
                produce(kafka.bootstrap, "stamped", stamped, **{"compression.type": codec})
            held = transactional(kafka.bootstrap, "c", "txn", [(True, [b"first"]), (None, [])])
            one = [(turn % 2 == 0, [b"one %d %d" % (turn, i) for i in range(20)]) for turn in range(6)]
            two = [(turn % 3 == 0, [b"two %d %d" % (turn, i) for i in range(20)]) for turn in range(6)]
            transactional(kafka.bootstrap, "a", "txn", one)
            transactional(kafka.bootstrap, "b", "txn", two)
            produce(kafka.bootstrap, "txn", ({"value": b"plain %d" % i} for i in range(30)))
            held.produce("txn", value=b"open", partition=0)
            held.flush(30)
            produce(kafka.bootstrap, "txn", ({"value": b"behind %d" % i} for i in range(30)))
            produce(
                kafka.bootstrap, "cut",
                ({"value": b"c" * 1000, "key": b"%d" % i, "partition": i % 2} for i in range(8000)),
            )  # fmt: skip
            admin.delete_records(client, "cut", {0: 2500, 1: 17})
            noise = random.Random(3)  # which no codec makes smaller: several segments are wanted
            produce(
                kafka.bootstrap, "compacted",
                (
                    {"value": None if i % 13 == 0 else noise.randbytes(350), "key": b"k%d" % (i % 40),
                     "headers": [("turn", b"%d" % i)] if i % 3 == 0 else None}
                    for i in range(12_000)
                ),
                **{"compression.type": "zstd"},
            )  # fmt: skip
        log = kafka.log_dir
        until = time.monotonic() + 120
        while "compacted 0 0" in checkpoint(log) or "compacted 0" not in checkpoint(log):
            assert time.monotonic() < until, "the cleaner did not come by"
            time.sleep(0.2)
        time.sleep(1)
        shutil.copytree(log, place / "copy", ignore=shutil.ignore_patterns("*.tmp"))  # the broker is running
        yield {"bootstrap": kafka.bootstrap, "path": str(place / "copy"), "live": str(log)}
        held.abort_transaction(30)


def checkpoint(log):
    path = log / "cleaner-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def theirs(spark, peer, isolation="read_committed", **options):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", peer["bootstrap"])
    return reader.option("kafka.isolation.level", isolation).options(**options).load()


def ours(spark, peer, *ways, **options):
    reader = spark.read.format("stratalog").options(**options)
    if "wire" in ways:
        reader = reader.option("kafka.bootstrap.servers", peer["bootstrap"])
    for way in ways:
        if way in ("path", "live"):
            reader = reader.option("path", peer[way])
    return reader.load()


def table(frame):
    return frame.toArrow().sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def assert_same(got, wanted, ways):
    """Equal, or the first rows that are not."""
    if got.equals(wanted):
        return
    places = [{(r["topic"], r["partition"], r["offset"]): r for r in t.to_pylist()} for t in (got, wanted)]
    differ = [p for p in sorted(places[0].keys() | places[1].keys()) if places[0].get(p) != places[1].get(p)]
    shown = [(p, places[0].get(p), places[1].get(p)) for p in differ[:3]]
    raise AssertionError(f"{ways}: {got.num_rows} rows against {wanted.num_rows}, {len(differ)} differ: {shown}")


CASES = {
    "everything": {"subscribePattern": "mixed|cut|compacted|stamped|empty|txn", "includeHeaders": "true"},
    "assigned, without headers": {"assign": '{"mixed": [1, 2], "cut": [0]}'},
    "from offsets to offsets": {
        "subscribe": "mixed",
        "startingOffsets": '{"mixed": {"0": 1200, "1": -2, "2": -2}}',
        "endingOffsets": '{"mixed": {"0": 5000, "1": 3333, "2": -1}}',
    },
    "from a time to a time": {
        "subscribe": "mixed",
        "startingTimestamp": str(BASE_TIME + 2_000_050),
        "endingTimestamp": str(BASE_TIME + 3_100_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "times for each partition, over offsets": {
        "subscribe": "mixed",
        "startingOffsetsByTimestamp": json.dumps(
            {"mixed": {"0": BASE_TIME + 5_000, "1": BASE_TIME + 4_000_000, "2": 0}}
        ),
        "startingOffsets": "earliest",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsetsByTimestamp": json.dumps(
            {"mixed": {"0": BASE_TIME + 1_200_000, "1": BASE_TIME + 99_000_000, "2": 5}}
        ),
    },
    "a pattern, offsets for each, tasks by both rules": {
        "subscribePattern": "mi.e[a-d]",
        "startingOffsets": '{"mixed": {"0": -2, "1": 77, "2": -2}}',
        "minPartitions": "9",
        "maxRecordsPerPartition": "700",
        "includeHeaders": "true",
    },
    "assigned, from a time for all to a time for each": {
        "assign": '{"mixed": [0, 1]}',
        "startingTimestamp": str(BASE_TIME + 1_000_100),
        "startingOffsets": '{"mixed": {"0": 1, "1": 1}}',
        "endingOffsetsByTimestamp": json.dumps({"mixed": {"0": BASE_TIME + 3_000_000, "1": BASE_TIME + 4_100_001}}),
        "endingOffsets": "latest",
    },
    "the broker's times": {
        "subscribe": "stamped",
        "startingTimestamp": "6",
        "endingTimestamp": "9000000000000",
    },
    "what is gone, passed over": {
        "subscribe": "cut",
        "startingOffsets": '{"cut": {"0": 3, "1": 17}}',
        "endingOffsets": '{"cut": {"0": 3000, "1": -1}}',
        "failOnDataLoss": "false",
    },
    "more tasks": {"subscribe": "mixed,cut", "minPartitions": "7"},
    "small tasks": {"subscribe": "compacted,mixed", "maxRecordsPerPartition": "1500"},
}


@pytest.mark.parametrize("case", CASES)
def test_frames_equal_those_of_sparks_kafka_source(spark, peer, case):
    """Equal schemas and rows, from files, over the wire, and from both."""
    options = CASES[case]
    wanted = theirs(spark, peer, **options)
    rows = table(wanted)
    assert rows.num_rows > 100
    for ways in (("path",), ("wire",), ("path", "wire")):
        got = ours(spark, peer, *ways, **options)
        assert got.schema == wanted.schema
        assert_same(table(got), rows, ways)


def test_an_uncommitted_read_has_aborted_and_open_transactions_too(spark, peer):
    """`isolation` as Kafka's `isolation.level`; committed is the default here."""
    rows = table(theirs(spark, peer, isolation="read_uncommitted", subscribe="txn"))
    committed = table(theirs(spark, peer, subscribe="txn"))
    assert rows.num_rows > committed.num_rows > 50
    all_of_it = {"subscribePattern": "txn|compacted|cut|stamped", "includeHeaders": "true"}
    everything = table(theirs(spark, peer, isolation="read_uncommitted", **all_of_it))
    for ways in (("path",), ("wire",), ("path", "wire")):
        got = table(ours(spark, peer, *ways, isolation="uncommitted", **all_of_it))
        assert_same(got, everything, ways)
    for way in ("path", "wire"):
        assert table(ours(spark, peer, way, subscribe="txn", isolation="uncommitted")).equals(rows)
        level = {"kafka.isolation.level": "read_uncommitted"}
        assert table(ours(spark, peer, way, subscribe="txn", **level)).equals(rows)
        assert table(ours(spark, peer, way, subscribe="txn")).equals(committed)


def test_a_time_in_an_open_transaction_means_what_it_means_to_kafka(spark, peer):
    """A committed reader ends at the last stable offset, and finds no record to begin at."""
    everything = theirs(spark, peer, isolation="read_uncommitted", subscribe="txn")
    opened = everything.where("value = cast('open' as binary)").selectExpr("unix_millis(timestamp)").first()[0]
    for options in (
        {"endingTimestamp": str(opened)},
        {"endingTimestamp": str(opened + 1)},
        {"startingTimestamp": str(opened + 1), "startingOffsetsByTimestampStrategy": "latest"},
    ):
        wanted = table(theirs(spark, peer, subscribe="txn", **options))
        for ways in (("path",), ("wire",), ("path", "wire")):
            assert_same(table(ours(spark, peer, *ways, subscribe="txn", **options)), wanted, (options, ways))
    for ways in (("path",), ("wire",)):
        with pytest.raises(Exception, match="no record from then on"):
            ours(spark, peer, *ways, subscribe="txn", startingTimestamp=str(opened + 1)).count()


def test_the_live_directory_of_a_running_broker_reads_the_same(spark, peer):
    """No copy is needed."""
    rows = table(theirs(spark, peer, subscribe="mixed,compacted", includeHeaders="true"))
    got = ours(spark, peer, "live", subscribe="mixed,compacted", includeHeaders="true", splitBytes="50k")
    assert got.rdd.getNumPartitions() > 6
    assert table(got).equals(rows)


def test_what_the_files_do_not_have_comes_from_the_broker(spark, peer):
    """History from files and the rest over the wire, each record once."""
    produce(peer["bootstrap"], "empty", ({"value": b"later %d" % i, "partition": i % 2} for i in range(50)))
    assert ours(spark, peer, "path", subscribe="empty").count() == 0
    rows = table(theirs(spark, peer, subscribe="empty"))
    assert rows.num_rows == 50
    assert table(ours(spark, peer, "path", "wire", subscribe="empty")).equals(rows)


def test_what_kafkas_source_refuses_is_refused_here(spark, peer):
    """No match for a time, offsets that are gone, offsets for some partitions only."""
    for options, word in (
        ({"startingTimestamp": "9000000000000"}, "no record from then on"),
        ({"startingOffsets": '{"cut": {"0": 3, "1": 17}}'}, "not there any more"),
        ({"startingOffsets": '{"cut": {"0": -2}}'}, "does not have cut-1"),
        ({"endingOffsets": '{"cut": {"0": 99999, "1": -1}}'}, "it ends before offset"),
    ):
        with pytest.raises(Exception, match=r"."):
            theirs(spark, peer, subscribe="cut", **{"kafkaConsumer.pollTimeoutMs": "3000"}, **options).count()
        for way in ("path", "wire"):
            with pytest.raises(Exception, match=word) as raised:
                ours(spark, peer, way, subscribe="cut", **options).count()
            assert word in reason(raised.value)
            assert "\n" not in reason(raised.value)
    lost = {"startingOffsets": '{"cut": {"0": 3, "1": 17}}', "failOnDataLoss": "false"}
    for way in ("path", "wire"):
        got = ours(spark, peer, way, subscribe="cut", **lost)
        assert got.count() == ours(spark, peer, way, subscribe="cut").count()


def streamed(spark, peer, place, name, source, **options):
    """All rows of a streaming query, how many batches it had, where it ended."""
    reader = spark.readStream.format(source).option("subscribe", "mixed,txn,cut").option("startingOffsets", "earliest")
    rows = reader.option("includeHeaders", "true").option("maxOffsetsPerTrigger", "6000").options(**options).load()

    def run(attempt):
        checkpoint = place / f"{name}{attempt}"
        query = rows.writeStream.format("memory").queryName(checkpoint.name).trigger(availableNow=True)
        query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
        return checkpoint

    checkpoint = patiently(run)
    batches = sorted(int(p.name) for p in (checkpoint / "offsets").iterdir() if p.name.isdigit())
    last = (checkpoint / "offsets" / str(batches[-1])).read_text().splitlines()[-1]
    return table(spark.table(checkpoint.name)), len(batches), json.loads(last)


def test_a_stream_reads_what_sparks_kafka_source_streams(spark, peer, tmp_path):
    """Equal rows, as many batches, the same offsets at the end."""
    broker = {"kafka.bootstrap.servers": peer["bootstrap"]}
    theirs_committed = {**broker, "kafka.isolation.level": "read_committed"}
    rows, batches, last = streamed(spark, peer, tmp_path, "theirs", "kafka", **theirs_committed)
    assert batches > 3
    for name, way in (("wire", broker), ("path", {"path": peer["path"]}), ("both", {**broker, "path": peer["path"]})):
        got, ours_batches, ours_last = streamed(spark, peer, tmp_path, name, "stratalog", **way)
        assert_same(got, rows, name)
        assert ours_last == last
        assert abs(ours_batches - batches) <= 1


def test_the_sink_writes_to_kafka_as_sparks_kafka_sink_does_and_once(spark, peer):
    """The same partition for each key; written again with the same `writeId`, nothing is added (Apache Kafka keeps the
    producer's state, which is the marker)."""
    frame = spark.range(0, 4000, 1, 3).selectExpr(
        "cast(concat('k', cast(id % 97 as string)) as binary) key", "cast(cast(id as string) as binary) value",
        "case when id % 5 = 0 then array(struct('h' as key, cast('x' as binary) as value)) end headers",
    )  # fmt: skip
    broker = {"kafka.bootstrap.servers": peer["bootstrap"]}
    frame.write.format("kafka").options(**broker, topic="sunk-by-kafka", includeHeaders="true").save()
    for _ in range(2):
        frame.write.format("stratalog").mode("append").options(**broker, topic="sunk", writeId="twice").option(
            "compression", "lz4"
        ).save()
    wanted, got = (
        sorted(
            (r["value"], r["key"], r["partition"], str(r["headers"]))
            for r in table(theirs(spark, peer, subscribe=topic, includeHeaders="true")).to_pylist()
        )
        for topic in ("sunk-by-kafka", "sunk")
    )
    assert got == wanted
    assert len(got) == 4000
