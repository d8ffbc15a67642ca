"""Our offsets topic before Kafka's eyes, Kafka's before ours, and Kafka's own tool on our groups."""

from __future__ import annotations

import json
import re
import shutil
import time

import pytest

import kafka_peer
from stratalog.base.types import Millis
from stratalog.coordinator.group import GroupConfig
from stratalog.coordinator.group.shard import GroupShard
from stratalog.node.config import BrokerConfig
from stratalog.records import batch as v2
from stratalog.rsm.runtime import Runtime, State
from stratalog.rsm.shard import Now
from stratalog.server.process import Broker

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]


class SegmentLog:
    """`rsm.shard.LogPort` over the segment files of one partition's directory, read only."""

    def __init__(self, directory) -> None:
        self.data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        headers = list(v2.batches(self.data))
        self.log_start_offset = headers[0].base_offset if headers else 0
        self.log_end_offset = self.high_watermark = headers[-1].next_offset if headers else 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        return self.data

    def append(self, batch, now):
        raise AssertionError("nothing is written here")


def load(log_dir, partitions: int = 50) -> list[GroupShard]:
    """The group shards of a directory that a broker has stopped using."""
    shards = []
    for index in range(partitions):
        directory = log_dir / f"__consumer_offsets-{index}"
        if not directory.exists():
            continue
        runtime = Runtime(SegmentLog(directory), lambda: GroupShard(GroupConfig, None))
        runtime.elect(Now(Millis(int(time.time() * 1000)), Millis(0)))
        assert runtime.state is State.ACTIVE, runtime.error
        shards.append(runtime.shard)
    return shards


def consume(bootstrap: str, group: str, topic: str, count: int, **settings):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic])
    end = time.monotonic() + 60
    while count and time.monotonic() < end:
        message = consumer.poll(0.2)
        count -= message is not None and message.error() is None
    assert count == 0
    return consumer


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=n % 2)
    assert producer.flush(30) == 0


def in_transaction(bootstrap: str, consumer, offset: int, *, commit: bool) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(30)
    producer.begin_transaction()
    partition = confluent_kafka.TopicPartition("orders", 0, offset)
    producer.send_offsets_to_transaction([partition], consumer.consumer_group_metadata(), 30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_offsets_and_groups_that_kafka_wrote_are_loaded(tmp_path):
    """A classic group with a static member, a group of the new protocol, offsets in transactions that were committed
    and aborted: what Kafka 4.3.1 left in its directory."""
    with kafka_peer.kafka_broker(tmp_path / "kafka", "num.partitions=2") as kafka:
        produce(kafka.bootstrap, "orders", 10)
        classic = consume(
            kafka.bootstrap, "classic", "orders", 10, **{"group.instance.id": "i", "session.timeout.ms": 60_000}
        )
        classic.commit(asynchronous=False)
        modern = consume(kafka.bootstrap, "modern", "orders", 10, **{"group.protocol": "consumer"})
        modern.commit(asynchronous=False)
        member = classic.memberid()
        simple = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "simple", "log_level": 0})
        simple.commit(offsets=[confluent_kafka.TopicPartition("orders", 1, 3, metadata="hello")], asynchronous=False)
        in_transaction(kafka.bootstrap, classic, 2, commit=True)
        in_transaction(kafka.bootstrap, classic, 1, commit=False)
        for consumer in (modern, simple, classic):  # a static member that closes does not leave
            consumer.close()
    shards = load(kafka.log_dir)
    assert len(shards) == 50
    groups = {name: group for shard in shards for name, group in shard.groups.items()}
    offsets = {
        (group, topic, partition): commit for shard in shards for group, topic, partition, commit in shard.offsets.all()
    }
    assert {key: commit.offset for key, commit in offsets.items()} == {
        ("classic", "orders", 0): 2,
        ("classic", "orders", 1): 5,
        ("modern", "orders", 0): 5,
        ("modern", "orders", 1): 5,
        ("simple", "orders", 1): 3,
    }
    # confluent-kafka sends its terminating zero along
    assert offsets["simple", "orders", 1].metadata.rstrip("\0") == "hello"
    group = groups["classic"]
    assert (group.state.value, group.protocol_type, group.protocol, group.leader) == (
        "Stable",
        "consumer",
        "range",
        member,
    )
    assert group.static == {"i": member}
    assert group.subscribed == {"orders"}
    assert sum(shard.records_ignored for shard in shards) > 0, "records of the new protocol are there"
    assert sum(shard.records_malformed for shard in shards) == 0

    # And back: our broker on Kafka's directory, metadata log and all.
    options = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={kafka.log_dir}", "node.id=1"]
    with Broker(BrokerConfig.load("", options)) as broker:
        served = broker.run_on_loop(lambda: list(broker.node.groups.committed()))
        assert {row[:3]: row[3] for row in served} == {key: commit.offset for key, commit in offsets.items()}
        again = consume(broker.bootstrap, "classic", "orders", 0, **{"group.instance.id": "i"})
        end = time.monotonic() + 30
        while not again.assignment() and time.monotonic() < end:
            again.poll(0.1)
        assert len(again.assignment()) == 2, "the static member is known and goes on"
        again.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A directory of ours after a clean stop, and a second one that a broker still serves."""
    directory = tmp_path_factory.mktemp("ours") / "data"
    options = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        "group.initial.rebalance.delay.ms=0",
        "num.partitions=2",
    ]
    with Broker(BrokerConfig.load("", options), fsync_metadata=False) as broker:
        produce(broker.bootstrap, "orders", 10)
        consumer = consume(broker.bootstrap, "g", "orders", 10, **{"group.instance.id": "i"})
        consumer.commit(asynchronous=False)
        yield broker, directory, consumer.memberid()
        consumer.close()


def groups_tool(bootstrap: str, *arguments: str) -> str:
    done = kafka_peer.tool("kafka-consumer-groups", "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_kafka_dump_log_reads_our_offsets_topic(ours):
    _, directory, member = ours
    (path,) = [p for p in directory.glob("__consumer_offsets-*/*.log") if p.stat().st_size]
    done = kafka_peer.tool("kafka-dump-log", "--offsets-decoder", "--deep-iteration", "--files", path)
    rows = re.findall(r"key: (\{.*?\}) payload: (\{.*\})$", done.stdout, re.MULTILINE)
    decoded = [(json.loads(key), json.loads(value)) for key, value in rows]
    offsets = {key["data"]["partition"]: value for key, value in decoded if key["type"] == "1"}
    assert {p: (v["version"], v["data"]["offset"]) for p, v in offsets.items()} == {0: ("4", 5), 1: ("4", 5)}
    stored = [value for key, value in decoded if key["type"] == "2"]
    assert {value["version"] for value in stored} == {"3"}
    newest = stored[-1]["data"]
    assert (newest["protocolType"], newest["protocol"], newest["leader"]) == ("consumer", "range", member)
    assert newest["members"][0]["groupInstanceId"] == "i"
    assert "isvalid: true" in done.stdout and "isvalid: false" not in done.stdout


def test_kafkas_tool_sees_our_groups(ours):
    broker, _, member = ours
    assert "g" in groups_tool(broker.bootstrap, "--list").split()
    assert re.search(r"^g\s+Stable", groups_tool(broker.bootstrap, "--list", "--state"), re.MULTILINE)
    described = groups_tool(broker.bootstrap, "--describe", "--group", "g")
    rows = re.findall(r"^g\s+orders\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)", described, re.MULTILINE)
    assert rows == [("0", "5", "5", "0", member), ("1", "5", "5", "0", member)]
    state = groups_tool(broker.bootstrap, "--describe", "--group", "g", "--state")
    assert re.search(r"range\s+Stable\s+1", state)
    refused = kafka_peer.tool(
        "kafka-consumer-groups", "--bootstrap-server", broker.bootstrap, "--delete", "--group", "g"
    )
    assert "GroupNotEmptyException" in refused.stdout


def test_kafkas_tool_resets_and_deletes_offsets_and_groups(ours):
    broker, _, _ = ours
    consumer = consume(broker.bootstrap, "r", "orders", 10)
    consumer.commit(asynchronous=False)
    consumer.close()
    arguments = ("--reset-offsets", "--group", "r", "--topic", "orders", "--shift-by", "-2", "--execute")
    reset = groups_tool(broker.bootstrap, *arguments)
    assert re.findall(r"^r\s+orders\s+(\d)\s+(\d)", reset, re.MULTILINE) == [("0", "3"), ("1", "3")]
    deleted = groups_tool(broker.bootstrap, "--delete-offsets", "--group", "r", "--topic", "orders:1")
    assert re.search(r"orders\s+1\s+Successful", deleted)
    described = groups_tool(broker.bootstrap, "--describe", "--group", "r", "--offsets")
    assert re.findall(r"^r\s+orders\s+(\d)\s+(\d)", described, re.MULTILINE) == [("0", "3")]
    assert "successful" in groups_tool(broker.bootstrap, "--delete", "--group", "r")
    assert "r" not in groups_tool(broker.bootstrap, "--list").split()


def test_kafka_serves_our_committed_offsets_from_our_directory(tmp_path):
    """There: Kafka 4.3.1 starts on what we wrote, offsets topic and metadata log and all."""
    directory = tmp_path / "ours"
    options = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}", "group.initial.rebalance.delay.ms=0"]
    with Broker(BrokerConfig.load("", [*options, "num.partitions=2"])) as broker:
        produce(broker.bootstrap, "orders", 10)
        consumer = consume(broker.bootstrap, "g", "orders", 10)
        consumer.commit(asynchronous=False)
        consumer.close()
    place = tmp_path / "kafka"
    place.mkdir()
    shutil.copytree(directory, place / "log")
    port = kafka_peer.free_port(2)
    # Our quorum is a static one of this broker alone, which Kafka wants to be told.
    voters = f"controller.quorum.voters=1@127.0.0.1:{port + 1}"
    with kafka_peer.kafka_broker(place, voters, port=port) as kafka:
        described = groups_tool(kafka.bootstrap, "--describe", "--group", "g", "--offsets")
        rows = re.findall(r"^g\s+orders\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)", described, re.MULTILINE)
        assert rows == [("0", "5", "5", "0"), ("1", "5", "5", "0")]
