"""The image is the replay of the log and nothing else (KR-2)."""

from __future__ import annotations

import pytest

from stratalog.base.failures import Malformed
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.metadata import serde
from stratalog.metadata.image import ConfigResource, MetadataImage, ResourceType
from stratalog.metadata.loader import Loader, load
from stratalog.protocol.disk.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

A = Uuid(bytes(15) + b"\x0a")
B = Uuid(bytes(15) + b"\x0b")


def topic(name="a", id=A, partitions=2):
    return [
        TopicRecord(name=name, topic_id=id),
        *(
            PartitionRecord(
                partition_id=number,
                topic_id=id,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[A, B],
            )
            for number in range(partitions)
        ),
    ]


def config(name, value, resource="a", type=ResourceType.TOPIC):
    return ConfigRecord(resource_type=type, resource_name=resource, name=name, value=value)


def image_of(*records):
    return MetadataImage().apply(records, offset=9, epoch=1).image


def test_an_image_never_changes():
    before = image_of(*topic())
    after = before.apply([PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1])]).image
    assert before.partition("a", 0).isr == (1, 2)
    assert after.partition("a", 0).isr == (1,)
    assert after.partition("a", 1) is before.partition("a", 1)


def test_a_new_leader_raises_the_leader_epoch_and_any_change_the_partition_epoch():
    """RP-4."""
    delta = image_of(*topic()).apply(
        [
            PartitionChangeRecord(partition_id=0, topic_id=A, leader=2),
            PartitionChangeRecord(partition_id=1, topic_id=A, isr=[2]),
        ]
    )
    moved, shrunk = delta.image.partition("a", 0), delta.image.partition("a", 1)
    assert (moved.leader, moved.leader_epoch, moved.partition_epoch) == (2, 1, 1)
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (1, 0, 1)
    assert list(delta.partitions) == [(A, 0), (A, 1)]


def test_replicas_that_move_keep_their_directories():
    image = image_of(*topic())
    image = image.apply([PartitionChangeRecord(partition_id=0, topic_id=A, replicas=[2, 3])]).image
    assert image.partition("a", 0).directories == (B, ZERO_UUID)
    assert image.partition("a", 0).directory_of(2) == B
    assert image.partition("a", 0).directory_of(9) == ZERO_UUID


def test_a_deleted_topic_takes_its_configuration_along():
    image = image_of(*topic(), config("retention.ms", "1"), *topic("b", B))
    delta = image.apply([RemoveTopicRecord(topic_id=A)])
    assert delta.image.topic("a") is None
    assert delta.image.topic_of(A) is None
    assert delta.image.topic("b") is not None
    assert delta.image.configs == {}
    assert delta.deleted_topics[A].name == "a"
    assert ConfigResource(ResourceType.TOPIC, "a") in delta.configs


def test_a_topic_made_again_is_another_topic():
    """KR-2: topic re-creation is told apart by the topic id."""
    delta = image_of(*topic()).apply([RemoveTopicRecord(topic_id=A), *topic("a", B, 1)])
    assert delta.image.topic("a").id == B
    assert list(delta.deleted_topics) == [A]
    assert list(delta.created_topics) == [B]
    assert list(delta.partitions) == [(B, 0)]


def test_a_topic_that_came_and_went_in_one_delta_leaves_no_trace():
    delta = MetadataImage().apply([*topic(), RemoveTopicRecord(topic_id=A)])
    assert not delta.created_topics
    assert not delta.deleted_topics
    assert not delta.partitions


def test_the_default_of_all_brokers_does_not_touch_a_topics_override():
    """R30: changing a dynamic default must not reset what a topic set for itself."""
    image = image_of(
        *topic(),
        config("cleanup.policy", "compact"),
        config("log.cleanup.policy", "delete", "", ResourceType.BROKER),
    )
    image = image.apply([config("log.cleanup.policy", None, "", ResourceType.BROKER)]).image
    assert image.topic_config("a") == {"cleanup.policy": "compact"}
    assert image.config(ResourceType.BROKER, "") == {}


def test_a_broker_registers_changes_and_leaves():
    register = RegisterBrokerRecord(
        broker_id=1, incarnation_id=A, broker_epoch=7, end_points=[], features=[], rack="r", log_dirs=[B]
    )
    image = image_of(register)
    assert image.brokers[1].fenced
    assert image.live_brokers() == []
    image = image.apply([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1)]).image
    assert [broker.id for broker in image.live_brokers()] == [1]
    with pytest.raises(AssertionError, match="epoch 7"):
        image.apply([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=1)])
    assert image.apply([UnregisterBrokerRecord(broker_id=1, broker_epoch=7)]).image.brokers == {}


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(partition_id=0, topic_id=A),
        PartitionChangeRecord(partition_id=0, topic_id=A),
        RemoveTopicRecord(topic_id=A),
        UnregisterBrokerRecord(broker_id=3, broker_epoch=0),
        ClearElrRecord(topic_name="nobody"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_nothing_is_a_bug(record):
    with pytest.raises(AssertionError):
        MetadataImage().apply([record])


def everything():
    """Records of every kind that leaves a trace."""
    return [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="group.version", feature_level=1),
        RegisterBrokerRecord(
            broker_id=1, incarnation_id=A, broker_epoch=3, end_points=[], features=[], rack=None, log_dirs=[A]
        ),
        *topic(),
        PartitionChangeRecord(partition_id=1, topic_id=A, isr=[], leader=-1, eligible_leader_replicas=[1]),
        config("retention.ms", "5"),
        config("log.retention.ms", "6", "", ResourceType.BROKER),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=10.0
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=1000),
        AccessControlEntryRecord(
            id=B,
            resource_type=2,
            resource_name="a",
            pattern_type=3,
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        ),
        NoOpRecord(),
    ]


def test_a_snapshot_replayed_is_the_same_image():
    """KR-2: snapshot and log give one state."""
    image = image_of(*everything())
    again = MetadataImage().apply(list(image.records()), offset=image.offset, epoch=image.epoch).image
    assert again == image
    assert next(iter(image.records())).name == "metadata.version"


def test_a_snapshot_and_the_rest_of_the_log_give_the_image_of_the_whole_log():
    """KR-2, for every place at which the snapshot may have been taken."""
    log = everything()
    whole = MetadataImage().apply(log, offset=len(log) - 1, epoch=1).image
    for cut in range(len(log) + 1):
        head = MetadataImage().apply(log[:cut]).image
        resumed = MetadataImage().apply(list(head.records())).image.apply(log[cut:], offset=len(log) - 1, epoch=1)
        assert resumed.image == whole, f"cut at {cut}"


def test_records_of_somebody_else_are_kept_until_they_are_removed():
    image = image_of(*everything())
    assert any(isinstance(record, AccessControlEntryRecord) for record in image.records())
    image = image.apply([RemoveAccessControlEntryRecord(id=B)]).image
    assert not any(isinstance(record, AccessControlEntryRecord) for record in image.records())


def test_a_cleared_eligible_replica_is_forgotten():
    image = image_of(*everything())
    assert image.partition("a", 1).eligible_leader_replicas == (1,)
    image = image.apply([ClearElrRecord(topic_name="a")]).image
    assert image.partition("a", 1).eligible_leader_replicas == ()


# --- the loader -------------------------------------------------------------------------------------------------------
def test_a_transaction_counts_at_its_end():
    loader = Loader()
    delta = loader.feed([BeginTransactionRecord(), *topic()], offset=3, epoch=1)
    assert delta.image.topics == {}
    assert loader.in_transaction
    delta = loader.feed([EndTransactionRecord()], offset=4, epoch=1)
    assert delta.image.topic("a") is not None
    assert delta.image.offset == 4


def test_an_aborted_transaction_never_was():
    loader = Loader()
    loader.feed([BeginTransactionRecord(), *topic(), AbortTransactionRecord(reason="x")], offset=5, epoch=1)
    assert loader.image.topics == {}
    assert not loader.in_transaction


def test_a_log_of_a_newer_kafka_is_refused():
    value = serde.encode(FeatureLevelRecord(name="metadata.version", feature_level=31), 30)
    with pytest.raises(Malformed, match=r"metadata\.version 31"):
        load([(0, 1, [value])])


@pytest.mark.parametrize("records", [[EndTransactionRecord()], [BeginTransactionRecord(), BeginTransactionRecord()]])
def test_a_transaction_out_of_order_is_malformed(records):
    with pytest.raises(Malformed, match="transaction"):
        Loader().feed(records, offset=1, epoch=1)
