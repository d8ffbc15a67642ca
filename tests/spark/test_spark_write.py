"""Batch writes through Spark: over the wire, and finished segments that brokers open (issue 7)."""

import os
import re
import subprocess

import pytest

import kafka_peer
import stratalog
import stratalog.testing
from stratalog.client import Client, partition_for_key
from stratalog.spark import reason

pytestmark = pytest.mark.spark


def rows(spark, count=5000):
    return spark.range(0, count, 1, 3).selectExpr(
        "concat('k', cast(id % 50 as string)) key",
        "cast(concat('value ', cast(id as string)) as binary) value",
        "case when id % 5 = 0 then array(struct('h' as key, cast('x' as binary) as value)) end headers",
    )


def test_rows_go_to_the_partitions_that_java_would_choose(spark):
    """Keys as text or bytes, headers, a codec; all acknowledged when `save` returns."""
    with stratalog.testing.broker({"orders": 4}) as broker:
        writer = rows(spark).write.format("stratalog").mode("append")
        writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "orders").option(
            "compression", "lz4"
        ).save()
        found = broker.records("orders")
        assert sorted(r.value for r in found) == sorted(b"value %d" % i for i in range(5000))
        assert all(partition_for_key(r.key, 4) == r.partition for r in found)
        assert all((r.headers == (("h", b"x"),)) == (int(r.value[6:]) % 5 == 0) for r in found)


def test_a_job_that_is_run_again_with_its_write_id_adds_nothing(spark):
    """`writeId` and `writeVersion`: what a job that is scheduled again gives."""
    with stratalog.testing.broker({"orders": 2}) as broker:
        for version, total in (("1", 5000), ("1", 5000), ("2", 10_000)):
            (
                rows(spark).write.format("stratalog").mode("append")
                .option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "orders")
                .option("writeId", "nightly").option("writeVersion", version).save()
            )  # fmt: skip
            assert len(broker.records("orders")) == total


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame: frame.drop("value"), "no column value"),
        (lambda frame: frame.selectExpr("1 as value"), "value is int, allowed is binary or string"),
        (lambda frame: frame.selectExpr("value", "'1' as partition"), "partition is string, allowed is int"),
    ],
)
def test_a_frame_that_cannot_be_written_is_one_line(spark, change, says):
    with pytest.raises(Exception, match=r".") as raised:
        (
            change(rows(spark)).write.format("stratalog").mode("append")
            .option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "t").save()
        )  # fmt: skip
    assert says in reason(raised.value)


def test_no_topic_and_overwrite_are_refused(spark):
    frame = rows(spark).write.format("stratalog").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(Exception, match=r".") as raised:
        frame.mode("append").save()
    assert "no topic: set the option topic" in reason(raised.value)
    with pytest.raises(Exception, match=r".") as raised:
        frame.mode("overwrite").option("topic", "t").save()
    assert "a log is appended to" in reason(raised.value)


def bulk(spark, place, count=20_000, **options):
    (
        rows(spark, count).write.format("stratalog").mode("append").option("path", str(place)).option("topic", "big")
        .options(**options).save()
    )  # fmt: skip


def expected(count=20_000):
    return sorted(b"value %d" % i for i in range(count))


def values(place, partitions):
    return sorted(
        v for p in range(partitions)
        for v in stratalog.open(place, topic="big", partition=p).to_arrow(columns=["value"]).column(0).to_pylist()
    )  # fmt: skip


def test_bulk_segments_are_whole_and_their_indexes_true(spark, tmp_path):
    """Offsets without a gap, indexes that a fresh scan confirms, nothing hidden left behind."""
    bulk(spark, tmp_path, partitions="3", batchBytes="4k", segmentBytes="1m")
    assert sorted(os.listdir(tmp_path)) == ["big-0", "big-1", "big-2"]
    assert values(tmp_path, 3) == expected()
    for partition in range(3):
        reader = stratalog.open(tmp_path, topic="big", partition=partition)
        offsets = reader.to_arrow(columns=["offset"]).column(0).to_pylist()
        assert offsets == list(range(len(offsets)))
        for start in range(0, len(offsets), 997):  # through the index
            assert reader.to_arrow(start=start, columns=["offset"]).column(0).to_pylist() == offsets[start:]
    again = spark.read.format("stratalog").option("subscribe", "big").load(str(tmp_path))
    assert again.count() == 20_000


def test_a_second_bulk_write_to_the_same_partitions_is_refused(spark, tmp_path):
    bulk(spark, tmp_path, 100)
    with pytest.raises(Exception, match=r".") as raised:
        bulk(spark, tmp_path, 100)
    assert "big-0 is there already" in reason(raised.value)
    assert sorted(os.listdir(tmp_path)) == ["big-0"]


def test_our_broker_opens_bulk_partitions(spark, tmp_path):
    """With the topic's id from the broker: its directories are swapped for the written ones."""
    with stratalog.testing.broker({"big": 2}, directory=tmp_path / "broker") as broker:
        with broker.client() as client:
            topic_id = str(client.topic("big").topic_id)
        broker.stop()
        data = tmp_path / "broker" / "data"
        for partition in range(2):
            os.rename(data / f"big-{partition}", tmp_path / f"away-{partition}")
        bulk(spark, data, partitions="2", topicId=topic_id, compression="zstd")
        broker.start()
        assert sorted(r.value for r in broker.records("big")) == expected()
        broker.produce("big", [b"next"], partition=0)
        assert broker.records("big", 0)[-1].value == b"next"


@pytest.mark.java
@pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka")
def test_kafka_finds_nothing_wrong_with_bulk_segments(spark, tmp_path):
    """kafka-dump-log on logs and indexes."""
    bulk(spark, tmp_path, partitions="2", batchBytes="4k", compression="gzip")
    for partition in range(2):
        folder = tmp_path / f"big-{partition}"
        files = sorted(str(p) for p in folder.iterdir() if p.suffix in (".log", ".index", ".timeindex"))
        done = kafka_peer.tool("kafka-dump-log", "--files", ",".join(files), "--deep-iteration")
        output = done.stdout + done.stderr
        assert done.returncode == 0, output[-2000:]
        assert "isvalid: true" in output and "isvalid: false" not in output
        gaps = re.findall(r"^\s*(-?\d+) is followed by", output, re.MULTILINE)
        assert set(gaps) <= {"-1"}, gaps  # the tool begins each file at -1
        for word in ("Mismatches", "Found timestamp mismatch", "Found out of order", "Exception"):
            assert word not in output, word


@pytest.mark.java
@pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka")
def test_kafka_opens_bulk_partitions_and_goes_on_in_them(spark, tmp_path):
    """`open-foreign` with recovery forced: Kafka reads and checks every segment, and complains about nothing."""
    ours, work = tmp_path / "data", tmp_path / "work"
    ours.mkdir()
    bulk(spark, ours, partitions="2", batchBytes="4k", segmentBytes="1m", compression="lz4")
    home, port = kafka_peer.kafka_home(), kafka_peer.free_port(2)
    started = subprocess.run(
        [str(home / "bin" / "open-foreign"), str(ours), str(port), str(work)],
        env={**os.environ, "UNCLEAN": "1"}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    pid = re.search(r"pid=(\d+)", started.stdout + started.stderr)
    assert pid, started.stdout + started.stderr
    try:
        bootstrap = f"127.0.0.1:{port}"
        over_the_wire = spark.read.format("stratalog").option("kafka.bootstrap.servers", bootstrap)
        found = over_the_wire.option("subscribe", "big").load().select("value").collect()
        assert sorted(bytes(row.value) for row in found) == expected()
        with Client(bootstrap) as client:
            ends = {p: client.offsets("big", {p: -1})[p][0] for p in range(2)}
        assert sum(ends.values()) == 20_000
        rows(spark, 100).write.format("stratalog").mode("append").options(
            **{"kafka.bootstrap.servers": bootstrap}, topic="big"
        ).save()
        assert over_the_wire.option("subscribe", "big").load().count() == 20_100
        server_log = "".join(path.read_text(errors="replace") for path in work.glob("*.log"))
        assert not re.search(r"Found invalid|Corruption found|truncating|Deleting segments|stray|ERROR", server_log)
    finally:
        subprocess.run([str(home / "bin" / "stop"), pid[1], "KILL"], check=False, capture_output=True)
