"""Answers that were found to part from Kafka's by asking both (`tests/interop/test_same_answers.py`), each here without
Kafka beside it."""

from __future__ import annotations

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Uuid
from stratalog.client.connection import Connection
from stratalog.client.failures import ConnectionLost
from stratalog.node.config import BrokerConfig
from stratalog.protocol import k02_list_offsets as k02
from stratalog.protocol import k32_describe_configs as k32
from stratalog.protocol import k37_create_partitions as k37
from stratalog.protocol import k47_offset_delete as k47
from stratalog.protocol import k48_describe_client_quotas as k48
from stratalog.protocol import k61_describe_producers as k61
from stratalog.protocol import k75_describe_topic_partitions as k75
from stratalog.protocol.k03_metadata import MetadataRequest, MetadataRequestTopic
from stratalog.protocol.k14_sync_group import SyncGroupRequest
from stratalog.protocol.k19_create_topics import CreatableTopic, CreateTopicsRequest
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest
from stratalog.protocol.k35_describe_log_dirs import DescribeLogDirsRequest
from stratalog.protocol.k62_broker_registration import BrokerRegistrationRequest
from stratalog.protocol.k63_broker_heartbeat import BrokerHeartbeatRequest
from stratalog.protocol.k67_allocate_producer_ids import AllocateProducerIdsRequest
from stratalog.server.process import Broker

INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    values = [f"log.dirs={tmp_path_factory.mktemp('data')}", "listeners=PLAINTEXT://127.0.0.1:0"]
    with Broker(BrokerConfig.load("", values), fsync_metadata=False).start() as broker:
        yield broker


@pytest.fixture(scope="module")
def topic_id(broker) -> Uuid:
    with Connection("127.0.0.1", broker.port) as connection:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        return connection.call(CreateTopicsRequest(topics=[topic])).topics[0].topic_id


@pytest.fixture
def connection(broker, topic_id):
    with Connection("127.0.0.1", broker.port) as connection:
        yield connection


@pytest.mark.parametrize("request_", [BrokerRegistrationRequest, BrokerHeartbeatRequest, AllocateProducerIdsRequest])
def test_clients_take_no_part_in_the_controllers_business(connection, request_):
    """Anybody could register a broker, and new topics would be placed there (N04)."""
    assert request_.api_key not in connection.versions
    with pytest.raises(ConnectionLost):
        connection.call(request_(), version=0)


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_comes_with_version_12(connection, topic_id, version):
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=topic_id)])
    answer = connection.call(asked, version=version)
    assert [(topic.error_code, topic.partitions) for topic in answer.topics] == [(INVALID, [])]
    assert (answer.brokers, answer.controller_id) == ([], -1)
    answer = connection.call(asked, version=12)  # the id decides
    assert [(topic.error_code, topic.name) for topic in answer.topics] == [(0, "t")]


def test_what_is_named_twice_is_answered_once(connection):
    answer = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 2))
    assert [topic.name for topic in answer.topics] == ["t"]
    row = k02.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [k02.ListOffsetsTopic(name="t", partitions=[row, row])]
    answer = connection.call(k02.ListOffsetsRequest(replica_id=-1, topics=topics))
    assert [row.error_code for row in answer.topics[0].partitions] == [INVALID]
    more = k37.CreatePartitionsTopic(name="t", count=3, assignments=None)
    answer = connection.call(k37.CreatePartitionsRequest(topics=[more, more], timeout_ms=1000))
    assert [row.error_code for row in answer.results] == [INVALID]


def test_a_refused_producer_id_has_no_epoch_either(connection):
    answer = connection.call(InitProducerIdRequest(producer_id=-1, producer_epoch=3))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (INVALID, -1, -1)


def test_bad_names_are_told_from_unknown_ones(connection):
    bad = ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = k61.TopicRequest(name="no/where", partition_indexes=[0])
    answer = connection.call(k61.DescribeProducersRequest(topics=[topic]))
    assert answer.topics[0].partitions[0].error_code == bad
    for kind, name, code in ((2, "no/where", bad), (2, "", bad), (32, "", INVALID), (16, "", INVALID)):
        resource = k32.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        answer = connection.call(k32.DescribeConfigsRequest(resources=[resource]))
        assert answer.results[0].error_code == code, (kind, name)


def test_a_page_that_cannot_be_is_refused_for_each_topic(connection):
    cursor = k75.Cursor(topic_name="t", partition_index=-1)
    answer = connection.call(k75.DescribeTopicPartitionsRequest(topics=[k75.TopicRequest(name="t")], cursor=cursor))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", INVALID)]


@pytest.mark.parametrize(("kind", "code"), [("nonsense", ErrorCode.UNSUPPORTED_VERSION), ("", INVALID)])
def test_a_filter_of_quotas_that_is_refused_has_null_entries(connection, kind, code):
    part = k48.ComponentData(entity_type=kind, match_type=0, match="x")
    answer = connection.call(k48.DescribeClientQuotasRequest(components=[part], strict=False))
    assert (answer.error_code, answer.entries) == (code, None)


def test_groups_are_refused_as_they_are_there(connection):
    """A sync of version 5 names its protocol; offsets are deleted from a group with a name."""
    asked = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert connection.call(asked, version=5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert connection.call(asked, version=4).error_code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = connection.call(k47.OffsetDeleteRequest(group_id="", topics=[]))
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_directories_tell_their_volumes_size(connection):
    (directory,) = connection.call(DescribeLogDirsRequest(topics=None)).results
    assert directory.total_bytes >= directory.usable_bytes > 0
