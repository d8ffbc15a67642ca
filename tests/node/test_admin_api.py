"""The handlers of administration, asked over a socket of a running broker, in every version that they know."""

from __future__ import annotations

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.client.connection import Connection
from stratalog.node.admin import TOPIC_OPERATIONS
from stratalog.node.config import BrokerConfig
from stratalog.protocol import k32_describe_configs as k32
from stratalog.protocol import k44_incremental_alter_configs as k44
from stratalog.protocol.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from stratalog.protocol.k03_metadata import MetadataRequest, MetadataRequestTopic
from stratalog.protocol.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from stratalog.protocol.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from stratalog.protocol.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from stratalog.protocol.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from stratalog.protocol.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from stratalog.protocol.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from stratalog.protocol.k48_describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from stratalog.protocol.k49_alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from stratalog.protocol.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from stratalog.protocol.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from stratalog.protocol.k60_describe_cluster import DescribeClusterRequest
from stratalog.protocol.k61_describe_producers import DescribeProducersRequest, TopicRequest
from stratalog.protocol.k64_unregister_broker import UnregisterBrokerRequest
from stratalog.protocol.k74_list_config_resources import ListConfigResourcesRequest
from stratalog.protocol.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from stratalog.protocol.k75_describe_topic_partitions import TopicRequest as PageTopic
from stratalog.server.process import Broker


def start(directory, *options: str) -> Broker:
    values = [f"log.dirs={directory}", "listeners=PLAINTEXT://127.0.0.1:0", "num.partitions=2", *options]
    return Broker(BrokerConfig.load("", values), fsync_metadata=False).start()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with start(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture(scope="module")
def connection(broker):
    with Connection(*broker.bootstrap.split(":")[:1], broker.port) as connection:
        yield connection


def make(connection, *names, partitions=2, configs=None):
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
            )
            for name in names
        ]
    )
    response = connection.call(request)
    assert [topic.error_code for topic in response.topics] == [0] * len(names)
    return response


def alter(connection, kind, name, *ops):
    request = k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[k44.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in ops],
            )
        ]
    )
    (response,) = connection.call(request).responses
    return response.error_code


def describe(connection, kind, name, *, keys=None, version=4, synonyms=False):
    request = k32.DescribeConfigsRequest(
        resources=[k32.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=synonyms and version >= 1,
        include_documentation=version >= 3,
    )
    (result,) = connection.call(request, version=version).results
    return result


def test_a_configuration_that_is_asked_for_again_and_again_is_told_once(connection):
    """A name of one byte is answered with 300 keys and their documentation: 10 KB of them took 700 MB."""
    one = k32.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    part = k32.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["node.id"])
    request = k32.DescribeConfigsRequest(resources=[one, part] * 2000, include_documentation=True)
    whole, few = connection.call(request, version=4).results
    assert len(whole.configs) > 100 and [config.name for config in few.configs] == ["node.id"]


def test_a_topic_lives_and_dies_in_every_version(connection):
    for version in range(8):
        name = f"life-{version}"
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=1000
        )
        (created,) = connection.call(request, version=version).topics
        assert (created.name, created.error_code) == (name, 0)
        assert (created.topic_id != ZERO_UUID) == (version >= 7)
        delete = min(version, 6)
        request = (
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
            if delete >= 6
            else DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        )
        (deleted,) = connection.call(request, version=delete).responses
        assert (deleted.name, deleted.error_code) == (name, 0)


def test_metadata_tells_the_same_in_every_version(connection, broker):
    make(connection, "seen", partitions=3)
    for version in range(14):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="seen")], allow_auto_topic_creation=version < 4)
        response = connection.call(request, version=version)
        (node,) = response.brokers
        assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", broker.port)
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "seen", False)
        assert sorted(p.partition_index for p in topic.partitions) == [0, 1, 2]
        assert all(p.leader_id == 1 and p.isr_nodes == [1] for p in topic.partitions)
        if version >= 2:
            assert response.cluster_id == broker.metadata.cluster_id
        if version >= 10:
            assert topic.topic_id == broker.metadata.image.topic("seen").id


def test_metadata_of_all_topics_of_none_and_of_unknown_ones(connection, broker):
    make(connection, "known")
    everything = {topic.name for topic in connection.call(MetadataRequest(topics=None)).topics}
    assert "known" in everything
    assert {t.name for t in connection.call(MetadataRequest(topics=[]), version=0).topics} == everything
    assert connection.call(MetadataRequest(topics=[])).topics == []
    known = broker.metadata.image.topic("known").id
    asked = [
        MetadataRequestTopic(topic_id=known, name=None),
        MetadataRequestTopic(topic_id=Uuid(b"x" * 16), name=None),
        MetadataRequestTopic(name="known"),  # beside ids names are not looked at
    ]
    response = connection.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    assert [topic.error_code for topic in response.topics] == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    asked = [MetadataRequestTopic(name="not/a/name"), MetadataRequestTopic(name="not-there")]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    assert [(topic.error_code, topic.topic_authorized_operations) for topic in connection.call(request).topics] == [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_OPERATIONS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC_OPERATIONS),
    ]


def test_asking_for_a_topic_makes_it_where_that_is_allowed(connection):
    """The first answer says that it is not there, as Kafka's does; the next one has it."""

    def ask(name):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        (topic,) = connection.call(request).topics
        return topic.error_code, len(topic.partitions)

    assert ask("made-by-asking") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert ask("made-by-asking") == (0, 2)
    assert ask("made_by.asking") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert ask("made.by_asking") == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)


def test_a_deleted_topic_is_gone_for_who_asks_next(connection):
    """kafka-go's tests: delete, ask with leave to create (as every old version does), find nothing."""
    make(connection, "gone")
    delete = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000)
    assert connection.call(delete, version=3).responses[0].error_code == 0
    (topic,) = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="gone")]), version=1).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_asking_makes_nothing_where_it_is_switched_off(tmp_path):
    with start(tmp_path, "auto.create.topics.enable=false") as broker, Connection("127.0.0.1", broker.port) as c:
        (topic,) = c.call(MetadataRequest(topics=[MetadataRequestTopic(name="x")])).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.metadata.image.topics_by_name == {}


def test_partitions_are_added_and_can_be_written_to(connection, broker):
    make(connection, "grows", partitions=1)
    for version in range(4):
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="grows", count=version + 2, assignments=None)], timeout_ms=1000
        )
        (result,) = connection.call(request, version=version).results
        assert result.error_code == 0
    assert all(broker.node.partitions["grows", number].is_leader for number in range(5))


def test_configurations_are_described_in_every_version(connection):
    make(connection, "configured", configs={"retention.ms": "1234"})
    for version in range(5):
        result = describe(connection, 2, "configured", version=version, synonyms=True)
        configs = {config.name: config for config in result.configs}
        assert configs["retention.ms"].value == "1234"
        assert configs["segment.bytes"].value == "1073741824"
        assert "internal.segment.bytes" not in configs
        if version == 0:
            assert not configs["retention.ms"].is_default
            assert configs["segment.bytes"].is_default
        else:
            assert configs["retention.ms"].config_source == 1
            assert [(s.name, s.value, s.source) for s in configs["retention.ms"].synonyms] == [
                ("retention.ms", "1234", 1),
                ("log.retention.hours", "168", 5),
            ]
        if version >= 3:
            assert configs["retention.ms"].config_type == 5
            assert "deleted" in configs["retention.ms"].documentation


def test_only_the_keys_that_were_asked_for_are_described(connection):
    make(connection, "few")
    result = describe(connection, 2, "few", keys=["segment.ms", "no.such.key"])
    assert [config.name for config in result.configs] == ["segment.ms"]


def test_a_broker_describes_itself(connection):
    configs = {config.name: config for config in describe(connection, 4, "1").configs}
    assert configs["node.id"].read_only
    assert not configs["log.retention.ms"].read_only
    assert configs["num.partitions"].value == "2"
    assert configs["num.partitions"].config_source == 4
    assert describe(connection, 4, "2").error_code == ErrorCode.INVALID_REQUEST
    assert describe(connection, 2, "no-such-topic").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(connection, 3, "x").error_code == ErrorCode.INVALID_REQUEST


def test_a_change_of_configuration_reaches_live_logs_at_once(connection, broker):
    """Issue 5; R30 on live logs: the topic's own value stays when the broker's default changes."""
    make(connection, "live", "own", partitions=1)
    assert alter(connection, 2, "own", ("retention.ms", 0, "111")) == 0
    assert broker.logs.get("own", 0).config.retention_ms == 111
    assert alter(connection, 4, "", ("log.retention.ms", 0, "222")) == 0
    assert broker.logs.get("live", 0).config.retention_ms == 222
    assert broker.logs.get("own", 0).config.retention_ms == 111
    configs = describe(connection, 2, "live", keys=["retention.ms"]).configs
    assert (configs[0].value, configs[0].config_source) == ("222", 3)
    assert describe(connection, 4, "").configs[0].name == "log.retention.ms"
    assert alter(connection, 4, "", ("log.retention.ms", 1, None)) == 0
    assert broker.logs.get("live", 0).config.retention_ms == 604_800_000
    assert alter(connection, 2, "own", ("retention.ms", 1, None)) == 0
    assert broker.logs.get("own", 0).config.retention_ms == 604_800_000


def test_groups_have_configurations(connection):
    assert alter(connection, 32, "g", ("consumer.session.timeout.ms", 0, "50000")) == 0
    configs = {config.name: config for config in describe(connection, 32, "g").configs}
    assert (configs["consumer.session.timeout.ms"].value, configs["consumer.session.timeout.ms"].config_source) == (
        "50000",
        8,
    )
    assert configs["consumer.heartbeat.interval.ms"].config_source == 5


def test_quotas_are_altered_and_described(connection):
    def entry(name, rate):
        return EntryData(
            entity=[EntityData(entity_type="client-id", entity_name=name)],
            ops=[OpData(key="producer_byte_rate", value=rate, remove=False)],
        )

    request = AlterClientQuotasRequest(entries=[entry("a", 1.0), entry(None, 2.0)])
    assert [e.error_code for e in connection.call(request).entries] == [0, 0]

    def found(match_type, match=None, strict=True):
        component = ComponentData(entity_type="client-id", match_type=match_type, match=match)
        response = connection.call(DescribeClientQuotasRequest(components=[component], strict=strict))
        return {e.entity[0].entity_name: e.values[0].value for e in response.entries}

    assert found(0, "a") == {"a": 1.0}
    assert found(1) == {None: 2.0}
    assert found(2) == {"a": 1.0, None: 2.0}
    response = connection.call(
        DescribeClientQuotasRequest(components=[ComponentData(entity_type="planet", match_type=2, match=None)])
    )
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_directories_are_described_in_every_version(connection, broker):
    make(connection, "placed", partitions=2)
    for version in range(6):
        (result,) = connection.call(DescribeLogDirsRequest(topics=None), version=version).results
        assert result.log_dir == broker.config.log_dirs[0]
        assert {"placed"} <= {topic.name for topic in result.topics}
    asked = [DescribableLogDirTopic(topic="placed", partitions=[1])]
    (result,) = connection.call(DescribeLogDirsRequest(topics=asked)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [("placed", [1])]
    assert result.usable_bytes > 0


def test_the_cluster_and_its_quorum_are_described(connection, broker):
    for version in range(3):
        cluster = connection.call(DescribeClusterRequest(), version=version)
        assert (cluster.error_code, cluster.cluster_id, cluster.controller_id) == (0, broker.metadata.cluster_id, 1)
        assert [(b.broker_id, b.port) for b in cluster.brokers] == [(1, broker.port)]
        request = DescribeQuorumRequest(
            topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
        )
        (topic,) = connection.call(request, version=version).topics
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.leader_epoch) == (1, broker.metadata.quorum.epoch)
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        assert partition.high_watermark == broker.metadata.quorum.high_watermark
    assert connection.call(DescribeClusterRequest(endpoint_type=2)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_pages_of_partitions_follow_their_cursor(connection, broker):
    make(connection, "page-a", "page-b", "page-c", partitions=3)
    names = [PageTopic(name=name) for name in ("page-c", "page-a", "page-b", "page-none")]
    seen, cursor, pages = [], None, 0
    while True:
        request = DescribeTopicPartitionsRequest(topics=names, response_partition_limit=4, cursor=cursor)
        response = connection.call(request)
        pages += 1
        for topic in response.topics:
            assert bool(topic.error_code) == (topic.name == "page-none")
            seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == [(f"page-{letter}", number) for letter in "abc" for number in range(3)]
    assert pages == 3
    request = DescribeTopicPartitionsRequest(topics=[], cursor=Cursor(topic_name="page-b", partition_index=2))
    first = connection.call(request).topics[0]
    assert (first.name, [p.partition_index for p in first.partitions]) == ("page-b", [2])


def test_directories_are_told_of_every_row_of_a_topic(connection):
    """Some clients write one row for each partition."""
    make(connection, "rows", partitions=2)
    rows = [DescribableLogDirTopic(topic="rows", partitions=[number]) for number in (0, 1, 9)]
    (directory,) = connection.call(DescribeLogDirsRequest(topics=rows)).results
    (topic,) = directory.topics
    assert sorted(row.partition_index for row in topic.partitions) == [0, 1]


def test_who_gives_no_time_gets_nothing_done(connection):
    """Kafka's controller refuses what is late already; `timeout_ms` of 0 is."""
    make(connection, "hurried", partitions=1)
    late = ErrorCode.REQUEST_TIMED_OUT
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="too-late", num_partitions=1, replication_factor=1)], timeout_ms=0
    )
    assert connection.call(request).topics[0].error_code == late
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="hurried")], timeout_ms=-1)
    assert connection.call(delete).responses[0].error_code == late
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="hurried", count=2, assignments=None)], timeout_ms=0
    )
    assert connection.call(grow).results[0].error_code == late
    elect = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="hurried", partitions=[0])], timeout_ms=0)
    response = connection.call(elect)
    assert (response.error_code, response.replica_election_results[0].partition_result[0].error_code) == (late, late)
    row = ReassignablePartition(partition_index=0, replicas=[1])
    move = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="hurried", partitions=[row])], timeout_ms=0
    )
    response = connection.call(move)
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (late, late)
    names = {t.name: len(t.partitions) for t in connection.call(MetadataRequest(topics=None)).topics}
    assert names["hurried"] == 1 and "too-late" not in names


def test_a_page_begins_in_a_topic_that_was_asked_for(connection):
    make(connection, "page-asked", "page-other", partitions=1)
    cursor = Cursor(topic_name="page-other", partition_index=0)
    request = DescribeTopicPartitionsRequest(topics=[PageTopic(name="page-asked")], cursor=cursor)
    assert [t.error_code for t in connection.call(request).topics] == [ErrorCode.INVALID_REQUEST]


def test_offsets_of_a_topic_are_listed_in_one_row(connection):
    """Clients look a topic up by its name: of two rows one would be lost.  A timestamp that the version does not know
    is refused before anything is looked up."""
    make(connection, "listed", partitions=2)
    topics = [
        ListOffsetsTopic(name="listed", partitions=[ListOffsetsPartition(partition_index=number, timestamp=-1)])
        for number in (0, 1)
    ]
    (topic,) = connection.call(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
    assert [(p.partition_index, p.error_code, p.offset) for p in topic.partitions] == [(0, 0, 0), (1, 0, 0)]
    rows = [ListOffsetsPartition(partition_index=number, timestamp=-4) for number in (0, 9)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="listed", partitions=rows)])
    (topic,) = connection.call(request, version=7).topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.UNSUPPORTED_VERSION] * 2
    (topic,) = connection.call(request, version=8).topics
    assert [p.error_code for p in topic.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leaders_are_elected_on_request(connection, version):
    make(connection, f"elect-{version}", partitions=1)
    rows = [TopicPartitions(topic=f"elect-{version}", partitions=[0, 9])]
    response = connection.call(ElectLeadersRequest(topic_partitions=rows), version=version)
    assert response.error_code == 0
    (topic,) = response.replica_election_results
    codes = [row.error_code for row in topic.partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if version:
        response = connection.call(ElectLeadersRequest(election_type=7, topic_partitions=rows), version=version)
        assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1])
def test_replicas_are_asked_to_stay_where_they_are(connection, version):
    make(connection, f"move-{version}", partitions=1)
    rows = [ReassignablePartition(partition_index=0, replicas=replicas) for replicas in ([1], [1, 2], None)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=f"move-{version}", partitions=rows)])
    (topic,) = connection.call(request, version=version).responses
    assert [row.error_code for row in topic.partitions] == [
        0,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]


def test_the_rest_answers_too(connection):
    make(connection, "rest", partitions=1)
    reassignments = connection.call(ListPartitionReassignmentsRequest(topics=None))
    assert (reassignments.error_code, reassignments.topics) == (0, [])
    request = DescribeProducersRequest(topics=[TopicRequest(name="rest", partition_indexes=[0, 9])])
    (topic,) = connection.call(request).topics
    assert [p.error_code for p in topic.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="metadata.version", max_version_level=99, upgrade_type=1)]
    )
    assert connection.call(request).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert connection.call(UnregisterBrokerRequest(broker_id=9)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    listed = connection.call(ListConfigResourcesRequest(resource_types=[2, 4]))
    assert ("rest", 2) in {(r.resource_name, r.resource_type) for r in listed.config_resources}
    assert ("1", 4) in {(r.resource_name, r.resource_type) for r in listed.config_resources}


def test_everything_is_there_after_a_restart_clean_or_not(tmp_path):
    """KR-2 on a real disk: what was answered is there, also after a kill; its epoch rises, its leaders lead."""
    broker = start(tmp_path)
    with Connection("127.0.0.1", broker.port) as connection:
        make(connection, "kept", configs={"retention.ms": "5"})
        assert alter(connection, 4, "", ("log.retention.ms", 0, "6")) == 0
    image = broker.metadata.image
    for end in (broker.kill, None):
        end() if end is not None else broker.stop()
        broker = start(tmp_path)
        again = broker.metadata.image
        assert again.topic("kept").id == image.topic("kept").id
        assert again.configs == image.configs
        assert broker.config["log.retention.ms"] == 6
        assert broker.node.partitions["kept", 0].is_leader
        assert again.brokers[1].epoch > image.brokers[1].epoch
        assert not again.brokers[1].fenced
    epochs = [partition.leader_epoch for partition in again.topic("kept").partitions.values()]
    assert epochs == [2, 2], "the kill raised them, the clean stop did not"
    broker.stop()


def test_a_directory_of_another_node_is_refused(tmp_path):
    start(tmp_path).stop()
    with pytest.raises(ValueError, match="node 1"):
        start(tmp_path, "node.id=2")


def test_snapshots_are_taken_while_the_broker_serves(tmp_path):
    with start(tmp_path, "metadata.log.max.record.bytes.between.snapshots=500") as broker:
        with Connection("127.0.0.1", broker.port) as connection:
            for number in range(10):
                make(connection, f"t{number}")
                broker.run_on_loop(lambda: broker.metadata.tick(broker.clock.now_ms()))
        broker.run_on_loop(lambda: None)
        assert len(broker.metadata.quorum.snapshots) > 0
        image = broker.metadata.image
    with start(tmp_path) as broker:
        assert broker.metadata.image.topics == image.topics


def test_an_injected_refusal_reaches_every_part_of_a_request(tmp_path):
    """`testing.broker().refuse(...)` on the keys whose answer has an error for each part only."""
    with start(tmp_path) as broker, Connection("127.0.0.1", broker.port) as connection:
        make(connection, "t")
        busy = ErrorCode.KAFKA_STORAGE_ERROR
        entry = EntryData(entity=[EntityData(entity_type="user", entity_name="u")], ops=[])
        resource = k44.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])
        requests = {
            3: (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), "topics"),
            19: (CreateTopicsRequest(topics=[CreatableTopic(name="x")]), "topics"),
            20: (DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), "responses"),
            32: (
                k32.DescribeConfigsRequest(
                    resources=[k32.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]
                ),
                "results",
            ),
            37: (
                CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=9, assignments=None)]),
                "results",
            ),
            44: (k44.IncrementalAlterConfigsRequest(resources=[resource]), "responses"),
            49: (AlterClientQuotasRequest(entries=[entry]), "entries"),
        }
        for key, (request, part) in requests.items():
            broker.run_on_loop(lambda key=key: broker.node.refusals.__setitem__(key, [busy]))
            assert [row.error_code for row in getattr(connection.call(request), part)] == [busy], key
        assert list(broker.metadata.image.topics_by_name) == ["t"]


def test_a_full_disk_refuses_administration_and_goes_on_telling(tmp_path):
    """DESIGN, failures: a full disk refuses writes and keeps serving reads."""
    with start(tmp_path) as broker, Connection("127.0.0.1", broker.port) as connection:
        make(connection, "before")
        quorum = broker.metadata.quorum
        append = quorum.append

        def full(values, now):
            raise OSError(28, "No space left on device", "x")

        quorum.append = full
        request = CreateTopicsRequest(topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)])
        (topic,) = connection.call(request).topics
        assert topic.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="before"), MetadataRequestTopic(name="auto")])
        answered = connection.call(asked).topics
        assert [topic.error_code for topic in answered] == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        quorum.append = append
        make(connection, "x")
