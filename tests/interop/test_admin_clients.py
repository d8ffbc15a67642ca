"""The administration clients of librdkafka, kafka-python and aiokafka on our broker: what each of them really sends."""

from __future__ import annotations

import asyncio

import pytest

from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

kafka_admin = pytest.importorskip("kafka.admin")
confluent = pytest.importorskip("confluent_kafka.admin")
aiokafka_admin = pytest.importorskip("aiokafka.admin")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = [f"log.dirs={tmp_path_factory.mktemp('data')}", "listeners=PLAINTEXT://127.0.0.1:0"]
    with Broker(BrokerConfig.load("", options), fsync_metadata=False).start() as broker:
        yield broker


def done(futures):
    return {name: future.result(timeout=30) for name, future in futures.items()}


def test_librdkafka(broker):
    """Its request for the metadata of all topics (version 13) carries three bytes behind its end; Kafka does not look
    there, so neither may we."""
    admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    done(admin.create_topics([confluent.NewTopic("rd", 2, 1, config={"retention.ms": "5"})]))
    done(admin.create_partitions([confluent.NewPartitions("rd", 4)]))
    resource = confluent.ConfigResource(confluent.ResourceType.TOPIC, "rd")
    (described,) = done(admin.describe_configs([resource])).values()
    assert described["retention.ms"].value == "5"
    assert not described["retention.ms"].is_default
    assert described["segment.bytes"].is_default
    resource.add_incremental_config(
        confluent.ConfigEntry("cleanup.policy", "compact", incremental_operation=confluent.AlterConfigOpType.APPEND)
    )
    done(admin.incremental_alter_configs([resource]))
    assert broker.metadata.image.topic_config("rd")["cleanup.policy"] == "delete,compact"
    listed = admin.list_topics(timeout=10)
    assert listed.cluster_id == broker.metadata.cluster_id
    assert len(listed.topics["rd"].partitions) == 4
    assert admin.describe_cluster().result(timeout=30).cluster_id == broker.metadata.cluster_id
    done(admin.delete_topics(["rd"]))
    assert "rd" not in broker.metadata.image.topics_by_name


def test_kafka_python(broker):
    admin = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([kafka_admin.NewTopic("kp", 3, 1)])
        assert len(admin.describe_topics(["kp"])[0]["partitions"]) == 3
        assert admin.describe_cluster()["cluster_id"] == broker.metadata.cluster_id
        admin.delete_topics(["kp"])
        assert "kp" not in broker.metadata.image.topics_by_name
    finally:
        admin.close()


def test_aiokafka(broker):
    async def administrate():
        admin = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([aiokafka_admin.NewTopic("aio", 2, 1)])
            assert "aio" in await admin.list_topics()
            await admin.delete_topics(["aio"])
            assert "aio" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(administrate())
