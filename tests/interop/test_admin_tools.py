"""Kafka's own command line tools against a running broker of ours.  Few of them: each start of a JVM costs a second."""

from __future__ import annotations

import json

import pytest

import kafka_peer
from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = [f"log.dirs={tmp_path_factory.mktemp('data')}", "listeners=PLAINTEXT://127.0.0.1:0"]
    with Broker(BrokerConfig.load("", options)).start() as broker:
        yield broker


def run(broker: Broker, name: str, *args: str, fails: bool = False, first: tuple[str, ...] = ()) -> str:
    done = kafka_peer.tool(name, *first, "--bootstrap-server", broker.bootstrap, *args)
    output = done.stdout + done.stderr
    if fails:
        assert done.returncode != 0, output
    else:
        assert done.returncode == 0, output
        assert "Exception" not in output, output
    return output


def test_kafka_topics(broker):
    run(broker, "kafka-topics", "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=1000")
    again = run(broker, "kafka-topics", "--create", "--topic", "orders", fails=True)
    assert "TopicExistsException" in again
    run(broker, "kafka-topics", "--alter", "--topic", "orders", "--partitions", "5")
    described = run(broker, "kafka-topics", "--describe", "--topic", "orders")
    assert "PartitionCount: 5" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=1000" in described
    assert described.count("Leader: 1") == 5
    assert f"TopicId: {broker.metadata.image.topic('orders').id}" in described
    run(broker, "kafka-topics", "--create", "--topic", "short-lived")
    run(broker, "kafka-topics", "--delete", "--topic", "short-lived")
    assert "short-lived" not in run(broker, "kafka-topics", "--list")


def test_kafka_configs(broker):
    run(broker, "kafka-topics", "--create", "--if-not-exists", "--topic", "orders", "--partitions", "3")
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    run(broker, "kafka-configs", *topic, "--alter", "--add-config", "cleanup.policy=[compact,delete]")
    described = run(broker, "kafka-configs", *topic, "--describe", "--all")
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=" in described
    assert "segment.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:log.roll.hours=168}" in described
    bad = run(broker, "kafka-configs", *topic, "--alter", "--add-config", "segment.bytes=20", fails=True)
    assert "InvalidConfigurationException" in bad
    assert "at least 1048576" in bad
    brokers = ("--entity-type", "brokers")
    run(broker, "kafka-configs", *brokers, "--entity-name", "1", "--alter", "--add-config", "log.retention.ms=5000000")
    described = run(broker, "kafka-configs", *brokers, "--entity-name", "1", "--describe")
    assert "log.retention.ms=5000000" in described
    clients = ("--entity-type", "clients", "--entity-name", "c1")
    run(broker, "kafka-configs", *clients, "--alter", "--add-config", "producer_byte_rate=1024")
    assert "producer_byte_rate=1024.0" in run(broker, "kafka-configs", *clients, "--describe")


def test_kafka_log_dirs(broker):
    run(broker, "kafka-topics", "--create", "--if-not-exists", "--topic", "orders", "--partitions", "3")
    output = run(broker, "kafka-log-dirs", "--describe", "--topic-list", "orders")
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    (directory,) = json.loads(line)["brokers"][0]["logDirs"]
    assert directory["logDir"] == broker.config.log_dirs[0]
    assert directory["error"] is None
    assert {p["partition"] for p in directory["partitions"]} >= {"orders-0", "orders-1", "orders-2"}


def test_what_the_cluster_is(broker):
    assert broker.metadata.cluster_id in run(broker, "kafka-cluster", first=("cluster-id",))
    status = kafka_peer.tool(
        "kafka-metadata-quorum", "--bootstrap-server", broker.bootstrap, "describe", "--status"
    ).stdout
    assert "LeaderId:               1" in status
    assert str(broker.metadata.quorum.directory_id) in status
    features = kafka_peer.tool("kafka-features", "--bootstrap-server", broker.bootstrap, "describe").stdout
    assert "metadata.version" in features
    assert "FinalizedVersionLevel: 4.3-IV0" in features
