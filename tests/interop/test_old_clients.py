"""Clients that speak as those of Kafka 0.9 and 0.10 did: message sets of v0 and v1, converted both ways.

librdkafka and kafka-python can still be told to take a broker for one that old.  What an old client wrote a new one
reads, and the other way round.
"""

from __future__ import annotations

import time

import pytest

from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

kafka = pytest.importorskip("kafka")
confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.slow

COUNT = 20
SECONDS_MAX = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = [
        f"log.dirs={tmp_path_factory.mktemp('data')}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
    ]
    with Broker(BrokerConfig.load("", options), fsync_metadata=False).start() as broker:
        yield broker


def rdkafka(broker: Broker, version: str | None) -> dict[str, object]:
    settings: dict[str, object] = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    if version is not None:
        settings |= {"api.version.request": False, "broker.version.fallback": version}
    return settings


def write(settings: dict[str, object], topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer({**settings, "compression.type": codec, "linger.ms": 20})
    for number in range(COUNT):
        producer.produce(topic, b"value %d" % number, b"key %d" % number)
    assert producer.flush(20) == 0


def read(settings: dict[str, object], topic: str, group: str) -> list[tuple[bytes, bytes]]:
    consumer = confluent_kafka.Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[tuple[bytes, bytes]] = []
    end = time.monotonic() + SECONDS_MAX
    while len(found) < COUNT and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.key(), message.value()))
    consumer.close()
    return found


RECORDS = [(b"key %d" % number, b"value %d" % number) for number in range(COUNT)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.0.0"])
def test_old_and_new_read_each_other(broker, version, codec):
    """Message sets of v0 (0.9) and v1 (0.10) come in and go out, in each codec that they knew."""
    old, new = rdkafka(broker, version), rdkafka(broker, None)
    topic = f"old-{version}-{codec}"
    write(old, topic, codec)
    assert read(old, topic, f"{topic}-old") == RECORDS
    assert read(new, topic, f"{topic}-new") == RECORDS
    write(new, topic + "-again", codec)
    assert read(old, topic + "-again", f"{topic}-again") == RECORDS


@pytest.mark.parametrize("version", [(0, 9), (0, 10), (0, 11)])
def test_kafka_python_as_of_old(broker, version):
    topic = f"python-{version[1]}"
    settings = {"bootstrap_servers": broker.bootstrap, "api_version": version}
    producer = kafka.KafkaProducer(**settings)
    for key, value in RECORDS:
        producer.send(topic, value, key=key)
    producer.flush(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS_MAX * 1000
    )
    found = [(record.key, record.value) for _, record in zip(range(COUNT), consumer, strict=False)]
    consumer.commit()
    consumer.close()
    assert found == RECORDS
    assert {key for key, _ in read(rdkafka(broker, None), topic, topic + "-new")} == {key for key, _ in RECORDS}
