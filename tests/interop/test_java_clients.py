"""Kafka's own console and load tools on our broker: what they write is read back, what they ask is answered.

One module broker; each start of a JVM costs more than a second, so each tool runs as few times as tell something.
"""

from __future__ import annotations

import json

import pytest

import kafka_peer
from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = [
        f"log.dirs={tmp_path_factory.mktemp('data')}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms=0",
        "num.partitions=3",
    ]
    with Broker(BrokerConfig.load("", options), fsync_metadata=False).start() as broker:
        yield broker


def run(broker: Broker, name: str, *args: object, stdin: str | None = None) -> str:
    done = kafka_peer.tool(
        name, "--bootstrap-server", broker.bootstrap, *(str(arg) for arg in args), stdin=stdin, timeout_s=180
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    return output


def test_console_producer_and_consumer_with_keys_headers_and_every_codec(broker):
    """Idempotent by default; the consumer is a member of a group."""
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        lines = "".join(f"codec:{codec}\tkey{n}\tvalue {n}\n" for n in range(20))
        run(
            broker,
            "kafka-console-producer",
            *("--topic", "console", "--compression-codec", codec),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
            stdin=lines,
        )
    output = run(
        broker,
        "kafka-console-consumer",
        *("--topic", "console", "--group", "console", "--from-beginning", "--max-messages", 20 * len(codecs)),
        *("--timeout-ms", 60000),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
    )
    for codec in codecs:
        for n in range(20):
            assert f"codec:{codec}\tkey{n}\tvalue {n}" in output
    described = run(broker, "kafka-consumer-groups", "--describe", "--group", "console")
    rows = [line.split() for line in described.splitlines() if line.startswith("console ")]
    assert sum(int(row[3]) for row in rows) == 100  # CURRENT-OFFSET
    assert {row[5] for row in rows} == {"0"}  # LAG
    offsets = run(broker, "kafka-get-offsets", "--topic", "console", "--time", "latest")
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split() if line.startswith("console:")) == 100


def test_describe_reset_and_delete_of_groups(broker):
    """Java's administration asks ConsumerGroupDescribe first, which we do not offer, and falls back."""
    run(broker, "kafka-console-producer", "--topic", "resets", stdin="a\nb\nc\n")
    run(
        broker,
        "kafka-console-consumer",
        *("--topic", "resets", "--group", "resets", "--from-beginning", "--max-messages", 3, "--timeout-ms", 60000),
    )
    group = ("--group", "resets")
    assert "Empty" in run(broker, "kafka-consumer-groups", "--describe", *group, "--state")
    assert "resets" in run(broker, "kafka-consumer-groups", "--list", "--state")
    topic = ("--topic", "resets", "--execute")
    reset = run(broker, "kafka-consumer-groups", *group, "--reset-offsets", "--to-earliest", *topic)
    assert reset.count(" 0") >= 1
    reset = run(
        broker, "kafka-consumer-groups", *group, "--reset-offsets", "--to-datetime", "2020-01-01T00:00:00.000", *topic
    )
    assert "resets" in reset
    assert "Error" not in reset
    run(broker, "kafka-consumer-groups", *group, "--delete-offsets", "--topic", "resets")
    assert "resets" in run(broker, "kafka-consumer-groups", "--delete", *group)
    again = run(broker, "kafka-consumer-groups", "--delete", *group)  # the tool ends with 0 over this
    assert "GroupIdNotFoundException" in again


def test_delete_records(broker, tmp_path):
    run(broker, "kafka-console-producer", "--topic", "shorter", stdin="a\nb\nc\n")
    ends = run(broker, "kafka-get-offsets", "--topic", "shorter", "--time", "-1").split()
    partition, end = next(row.split(":")[1:] for row in ends if row.startswith("shorter:") and not row.endswith(":0"))
    wish = {"version": 1, "partitions": [{"topic": "shorter", "partition": int(partition), "offset": int(end)}]}
    (tmp_path / "wish.json").write_text(json.dumps(wish))
    output = run(broker, "kafka-delete-records", "--offset-json-file", tmp_path / "wish.json")
    assert f"low_watermark: {end}" in output
    starts = run(broker, "kafka-get-offsets", "--topic", "shorter", "--time", "-2")
    assert f"shorter:{partition}:{end}" in starts


def test_verifiable_producer_and_consumer(broker):
    produced = run(broker, "kafka-verifiable-producer", "--topic", "verified", "--max-messages", 2000, "--acks", -1)
    rows = [json.loads(line) for line in produced.splitlines() if line.startswith("{")]
    acknowledged = {(row["partition"], row["offset"]) for row in rows if row["name"] == "producer_send_success"}
    assert len(acknowledged) == 2000
    consumed = run(
        broker,
        "kafka-verifiable-consumer",
        *("--topic", "verified", "--group-id", "verified", "--max-messages", 2000),
        *("--group-instance-id", "one", "--reset-policy", "earliest", "--assignment-strategy"),
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    )
    rows = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(row["count"] for row in rows if row["name"] == "records_consumed") >= 2000
    assert all(row["success"] for row in rows if row["name"] == "offsets_committed")


def test_the_load_tools(broker):
    output = kafka_peer.tool(
        "kafka-producer-perf-test",
        *("--topic", "load", "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "compression.type=lz4", "acks=all"),
        check=True,
    ).stdout
    assert "20000 records sent" in output
    output = run(broker, "kafka-consumer-perf-test", "--topic", "load", "--num-records", 20000, "--timeout", 60000)
    assert "WARNING" not in output
    consumed = [line.split(", ") for line in output.splitlines() if line[:2] == "20"]
    assert int(float(consumed[-1][4])) >= 20000


def test_a_transactional_producer_is_told_at_once_that_there_are_none(broker):
    """Instead of asking for a coordinator until its time is over."""
    done = kafka_peer.tool(
        "kafka-producer-perf-test",
        *("--topic", "load", "--num-records", "10", "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", "mine", "--producer-props", f"bootstrap.servers={broker.bootstrap}"),
        "max.block.ms=30000",
        timeout_s=60,
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    assert "TimeoutException" not in output
    assert "coordinates groups only" in output or "unexpected error" in output
