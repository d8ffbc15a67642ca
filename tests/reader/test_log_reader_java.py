"""`stratalog.open` on the directory of a running Apache Kafka: what its own consumers get (issue 4)."""

import time

import pytest

import kafka_peer
import stratalog

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]


def consumed(bootstrap, topic, isolation):
    """(offset, timestamp, key, value, headers) of everything, by librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(10)
        assert message is not None, "the broker does not answer"
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        headers = [{"key": name, "value": value} for name, value in message.headers() or []]
        found.append((message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    consumer.close()
    return found


def consumed_once_there_are(count, bootstrap, topic):
    """What is committed, when the broker has written the markers: the end of a transaction does not wait for them."""
    deadline = time.monotonic() + 30
    while True:
        found = consumed(bootstrap, topic, "read_committed")
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, f"{len(found)} records are committed, not {count}"


def scanned(reader, **options):
    table = reader.to_arrow(**options)
    stamps = table.column("timestamp").cast("int64").to_pylist()
    columns = [table.column(name).to_pylist() for name in ("key", "value", "headers")]
    return list(zip(table.column("offset").to_pylist(), stamps, *columns, strict=True))


def produce(bootstrap, topic, count, **settings):
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for i in range(count):
        producer.produce(
            topic,
            b"value %d " % i * 20,
            b"key %d" % (i % 50) if i % 7 else None,
            0,
            headers=[("h", b"%d" % i), ("empty", None)] if i % 5 == 0 else None,
        )
    assert producer.flush(30) == 0


def test_a_live_kafkas_directory_reads_as_its_consumers_do(tmp_path):
    """Every codec, several segments, headers, nulls; transactions committed, aborted and still open."""
    with kafka_peer.kafka_broker(tmp_path / "kafka", "log.segment.bytes=1048576") as kafka:
        bootstrap = kafka.bootstrap
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            produce(bootstrap, "orders", 4000, **{"compression.type": codec})
        producers = []
        for name in ("a", "b", "c"):
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
            producer.init_transactions(30)
            producers.append(producer)
        one, two, three = producers
        for turn in range(6):
            one.begin_transaction()
            two.begin_transaction()
            for i in range(20):
                one.produce("orders", b"one %d %d" % (turn, i), b"t", 0)
                two.produce("orders", b"two %d %d" % (turn, i), b"t", 0)
            one.flush(30)
            two.flush(30)
            (one.commit_transaction if turn % 2 else one.abort_transaction)(30)
            (two.abort_transaction if turn % 3 else two.commit_transaction)(30)
        three.begin_transaction()
        three.produce("orders", b"open", b"t", 0)
        three.flush(30)
        produce(bootstrap, "orders", 10)

        reader = stratalog.open(tmp_path / "kafka" / "log", topic="orders")
        committed = consumed_once_there_are(5 * 4000 + 3 * 20 + 2 * 20, bootstrap, "orders")
        everything = consumed(bootstrap, "orders", "read_uncommitted")
        assert len(everything) > len(committed) > 5000
        assert scanned(reader) == committed
        assert scanned(reader, isolation="uncommitted") == everything
        assert len(reader) == len(committed)
        assert len([name for name in (tmp_path / "kafka" / "log" / "orders-0").iterdir() if name.suffix == ".log"]) > 1
        for start in range(committed[0][0], committed[-1][0], 997):
            assert scanned(reader, start=start) == [row for row in committed if row[0] >= start]
        early = committed[len(committed) // 2][1]
        assert scanned(reader, start_time=early) == [row for row in committed if row[1] >= early]
        assert scanned(reader, start=committed[-1][0] + 1) == []
        three.abort_transaction(30)
        committed = consumed_once_there_are(len(committed) + 10, bootstrap, "orders")
        assert scanned(reader) == committed
        assert reader.log_end_offset == everything[-1][0] + 2  # the marker
