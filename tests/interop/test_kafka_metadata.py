"""Our metadata before Kafka's eyes, and Kafka's before ours: dump tool, broker on our directory, ours on its."""

from __future__ import annotations

import shutil

import pytest

import kafka_peer
from stratalog.client.connection import Connection
from stratalog.node.config import BrokerConfig
from stratalog.protocol import k44_incremental_alter_configs as k44
from stratalog.protocol.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from stratalog.protocol.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from stratalog.protocol.k49_alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from stratalog.server.process import Broker

kafka = pytest.importorskip("kafka")

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]

BAD_WORDS = ("isvalid: false", "invalid bytes", "mismatch", "corrupt", "exception", "error at")


def start(directory, *options: str) -> Broker:
    values = [f"log.dirs={directory}", *options]
    if not any(option.startswith("listeners=") for option in options):
        values.append("listeners=PLAINTEXT://127.0.0.1:0")
    return Broker(BrokerConfig.load("", values)).start()


def administrate(broker: Broker) -> None:
    """One of each kind of change."""
    with Connection("127.0.0.1", broker.port) as connection:
        retention = [CreatableTopicConfig(name="retention.ms", value="123456789")]
        topics = [
            CreatableTopic(name="orders", num_partitions=3, replication_factor=1, configs=retention),
            CreatableTopic(name="gone", num_partitions=1, replication_factor=1),
        ]
        response = connection.call(CreateTopicsRequest(topics=topics))
        assert [topic.error_code for topic in response.topics] == [0, 0]
        more = CreatePartitionsTopic(name="orders", count=4, assignments=None)
        assert connection.call(CreatePartitionsRequest(topics=[more], timeout_ms=1000)).results[0].error_code == 0
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000)
        assert connection.call(delete).responses[0].error_code == 0
        default = k44.AlterConfigsResource(
            resource_type=4,
            resource_name="",
            configs=[k44.AlterableConfig(name="log.retention.ms", config_operation=0, value="7200000")],
        )
        assert connection.call(k44.IncrementalAlterConfigsRequest(resources=[default])).responses[0].error_code == 0
        quota = EntryData(
            entity=[EntityData(entity_type="client-id", entity_name="c")],
            ops=[OpData(key="producer_byte_rate", value=1024.0, remove=False)],
        )
        assert connection.call(AlterClientQuotasRequest(entries=[quota])).entries[0].error_code == 0


def write(bootstrap: str, count: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send("orders", value=b"%d" % number, partition=number % 4)
    producer.flush()
    producer.close()


def ends(bootstrap: str) -> dict[int, int]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        found = consumer.end_offsets([kafka.TopicPartition("orders", number) for number in range(4)])
        return {tp.partition: offset for tp, offset in found.items()}
    finally:
        consumer.close()


def check_dump(*paths) -> str:
    done = kafka_peer.tool(
        "kafka-dump-log", "--cluster-metadata-decoder", "--files", ",".join(str(path) for path in paths)
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    for word in BAD_WORDS:
        assert word not in output.lower(), output
    return output


def test_kafka_decodes_our_metadata_log_and_our_snapshots(tmp_path):
    """Each record of ours by the dump tool, which decodes it with Kafka's own schemas."""
    data = tmp_path / "data"
    broker = start(data)
    administrate(broker)
    broker.run_on_loop(lambda: broker.metadata.take_snapshot(broker.clock.now_ms(), wait=True))
    broker.stop()
    log = data / "__cluster_metadata-0"
    (checkpoint,) = log.glob("*.checkpoint")
    output = check_dump(log / "00000000000000000000.log", checkpoint, data / "bootstrap.checkpoint")
    for kind in (
        "LeaderChange",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "CONFIG_RECORD",
        "CLIENT_QUOTA_RECORD",
        "SnapshotHeader",
        "SnapshotFooter",
    ):
        assert kind in output, kind
    assert '"name":"log.retention.ms","value":"7200000"' in output


@pytest.mark.parametrize("quorum", ["fixed", "dynamic"])
def test_kafka_takes_over_our_directory_and_we_take_it_back(tmp_path, quorum):
    """Issue 5, there and back: topics with their ids, overrides, quotas and records, through Kafka's controller."""
    place = tmp_path / "kafka"
    data = place / "log"
    place.mkdir()
    port = kafka_peer.free_port(2)
    options = []
    settings = [f"controller.quorum.voters=1@127.0.0.1:{port + 1}"]
    if quorum == "dynamic":
        settings = []
        options = [
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            f"controller.quorum.bootstrap.servers=127.0.0.1:{port + 1}",
        ]
    broker = start(data, *options)
    administrate(broker)
    write(broker.bootstrap, 40)
    ids = {name: topic.id for name, topic in broker.metadata.image.topics_by_name.items()}
    before = ends(broker.bootstrap)
    assert sum(before.values()) == 40
    broker.stop()
    with kafka_peer.kafka_broker(place, *settings, port=port) as peer:
        assert ends(peer.bootstrap) == before
        described = kafka_peer.tool("kafka-topics", "--bootstrap-server", peer.bootstrap, "--describe").stdout
        assert f"TopicId: {ids['orders']}" in described
        assert "retention.ms=123456789" in described
        assert "gone" not in described
        write(peer.bootstrap, 8)
        created = kafka_peer.tool(
            "kafka-topics", "--bootstrap-server", peer.bootstrap, "--create", "--topic", "theirs", "--partitions", "2"
        )
        assert created.returncode == 0, created.stderr
        after = ends(peer.bootstrap)
    printed = (place / "server.log").read_text()
    for word in ("stray", "Found invalid", "Corruption found", " ERROR ", " FATAL "):
        assert word not in printed, [line for line in printed.splitlines() if word in line]
    with start(data) as broker:
        image = broker.metadata.image
        assert {name: image.topic(name).id for name in ids} == ids
        assert len(image.topic("theirs").partitions) == 2
        assert image.topic_config("orders")["retention.ms"] == "123456789"
        assert image.quotas == {(("client-id", "c"),): {"producer_byte_rate": 1024.0}}
        assert broker.config["log.retention.ms"] == 7_200_000
        assert ends(broker.bootstrap) == after
        write(broker.bootstrap, 4)
        assert sum(ends(broker.bootstrap).values()) == 52


def test_we_open_a_directory_that_kafka_made_with_all_its_features(tmp_path):
    """Kafka's default format (eligible leader replicas, transactions, share groups): nothing of it is lost."""
    place = tmp_path / "kafka"
    with kafka_peer.kafka_broker(place) as peer:
        done = kafka_peer.tool(
            "kafka-topics", "--bootstrap-server", peer.bootstrap, "--create", "--topic", "orders", "--partitions", "4"
        )
        assert done.returncode == 0, done.stderr
        write(peer.bootstrap, 12)
    data = tmp_path / "ours"
    shutil.copytree(place / "log", data, ignore=shutil.ignore_patterns(".lock"))
    for _ in range(2):
        with start(data) as broker:
            image = broker.metadata.image
            assert image.features["transaction.version"] == 2
            assert image.features["eligible.leader.replicas.version"] == 1
            for partition in image.topic("orders").partitions.values():
                assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1,), ())
            assert sum(ends(broker.bootstrap).values()) == 12
    (log,) = (data / "__cluster_metadata-0").glob("*.log")
    check_dump(log)
