"""Requests that a broker has to refuse, or to answer in a way that is easy to get wrong; and how to compare two
brokers' answers to them.

A case is a name and a function that makes the request for one broker (topic ids and member ids differ between two).
`told(answer)` is what both have to say alike: every field but texts for people, sizes, times and names of the place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.client.connection import Connection
from stratalog.client.failures import ConnectionLost
from stratalog.protocol import k02_list_offsets as k02
from stratalog.protocol import k08_offset_commit as k08
from stratalog.protocol import k09_offset_fetch as k09
from stratalog.protocol import k11_join_group as k11
from stratalog.protocol import k13_leave_group as k13
from stratalog.protocol import k14_sync_group as k14
from stratalog.protocol import k19_create_topics as k19
from stratalog.protocol import k20_delete_topics as k20
from stratalog.protocol import k21_delete_records as k21
from stratalog.protocol import k23_offset_for_leader_epoch as k23
from stratalog.protocol import k32_describe_configs as k32
from stratalog.protocol import k33_alter_configs as k33
from stratalog.protocol import k34_alter_replica_log_dirs as k34
from stratalog.protocol import k35_describe_log_dirs as k35
from stratalog.protocol import k37_create_partitions as k37
from stratalog.protocol import k44_incremental_alter_configs as k44
from stratalog.protocol import k46_list_partition_reassignments as k46
from stratalog.protocol import k47_offset_delete as k47
from stratalog.protocol import k48_describe_client_quotas as k48
from stratalog.protocol import k49_alter_client_quotas as k49
from stratalog.protocol import k55_describe_quorum as k55
from stratalog.protocol import k57_update_features as k57
from stratalog.protocol import k61_describe_producers as k61
from stratalog.protocol import k75_describe_topic_partitions as k75
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.k03_metadata import MetadataRequest, MetadataRequestTopic
from stratalog.protocol.k10_find_coordinator import FindCoordinatorRequest
from stratalog.protocol.k12_heartbeat import HeartbeatRequest
from stratalog.protocol.k15_describe_groups import DescribeGroupsRequest
from stratalog.protocol.k16_list_groups import ListGroupsRequest
from stratalog.protocol.k18_api_versions import ApiVersionsRequest
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest
from stratalog.protocol.k42_delete_groups import DeleteGroupsRequest
from stratalog.protocol.k60_describe_cluster import DescribeClusterRequest
from stratalog.protocol.k64_unregister_broker import UnregisterBrokerRequest
from stratalog.protocol.k74_list_config_resources import ListConfigResourcesRequest
from stratalog.protocol.schema import Message, Struct
from stratalog.records.batch import BatchBuilder

UNKNOWN = Uuid(b"\x11" * 16)
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
"""Version 0 of a consumer's subscription: the topic `t`."""


@dataclass
class Side:
    """One of the two brokers, with what the cases need to know of it."""

    connection: Connection
    ids: dict[str, Uuid] = field(default_factory=dict)
    member: str = ""


Make = Callable[[Side], Message]
CASES: list[tuple[str, Make]] = []


def case(name: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        CASES.append((name, make))
        return make

    return add


# --- what both have to say alike ----------------------------------------------------------------------------------
_NOT_COMPARED = frozenset(
    (
        "error_message",
        "throttle_time_ms",
        "host",
        "port",
        "cluster_id",
        "controller_id",
        "brokers",
        "log_dir",
        "total_bytes",
        "usable_bytes",
        "partition_size",
        "timestamp",
        "client_host",
        "documentation",
        "broker_epoch",
        "log_append_time_ms",
        "producer_id",
        "api_keys",
        "supported_features",
        "finalized_features",
        "finalized_features_epoch",
        "config_data",
        "record_errors",
        "nodes",
        "log_end_offset",
        "high_watermark",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "member_id",
        "leader",
        "session_id",
        "node_endpoints",
        "configs",
        "zk_migration_ready",
        "batch_index_error_message",
    )
)


def told(value: Any) -> Any:
    """An answer without what may differ between two brokers that agree."""
    if isinstance(value, Struct):
        return {
            name: told(getattr(value, name))
            for name in (field.name for field in value.__fields__)
            if name not in _NOT_COMPARED
        }
    if isinstance(value, (list, tuple)):
        rows = [told(row) for row in value]
        return sorted(rows, key=repr)
    if isinstance(value, Uuid):
        return "nothing" if value == ZERO_UUID else "an id"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value


def ask(side: Side, request: Message, version: int) -> Any:
    """The answer, or "closed" from a broker that ends the connection over this request."""
    try:
        return told(side.connection.call(request, version=version, timeout_s=20.0))
    except ConnectionLost:
        host, port = side.connection.host, side.connection.port
        side.connection = Connection(host, port)
        return "closed"


def prepare(side: Side) -> None:
    """Topics `t` (2 partitions, 3 records in the first), `compacted`, an empty group with an offset, a live group."""
    call = side.connection.call
    made = call(
        k19.CreateTopicsRequest(
            timeout_ms=30_000,
            topics=[
                k19.CreatableTopic(name="t", num_partitions=2, replication_factor=1),
                k19.CreatableTopic(
                    name="compacted",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[k19.CreatableTopicConfig(name="cleanup.policy", value="compact")],
                ),
            ],
        )
    )
    for topic in made.topics:
        assert topic.error_code == 0, topic
        side.ids[topic.name] = topic.topic_id
    _settled(lambda: call(produce(side, batch(b"a", b"b", b"c"))).responses[0].partition_responses[0])
    _settled(lambda: call(FindCoordinatorRequest(coordinator_keys=["empty"])).coordinators[0])
    _settled(lambda: call(commit("empty", side.ids["t"], 0)).topics[0].partitions[0])
    join = k11.JoinGroupRequest(
        group_id="live",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    join.member_id = call(join).member_id
    joined = call(join)
    assert joined.error_code == 0, joined
    side.member = joined.member_id
    synced = call(
        k14.SyncGroupRequest(
            group_id="live",
            generation_id=joined.generation_id,
            member_id=side.member,
            assignments=[k14.SyncGroupRequestAssignment(member_id=side.member, assignment=b"mine")],
        )
    )
    assert synced.error_code == 0, synced


def _settled(attempt: Callable[[], Any]) -> None:
    """A cluster that has just begun may say "not yet"."""
    import time

    for _ in range(100):
        row = attempt()
        if row.error_code == 0:
            return
        time.sleep(0.1)
    raise AssertionError(row)


def batch(*values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytearray:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return builder.build()


def produce(side: Side, records: Any, *, topic: str = "t", index: int = 0, acks: int = -1, **more: Any) -> Message:
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=side.ids.get(topic, UNKNOWN),
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
        **more,
    )


def commit(
    group: str, topic_id: Uuid, index: int, *, name: str = "t", metadata: str | None = None, **more: Any
) -> Message:
    partition = k08.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=metadata)
    topic = k08.OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[partition])
    return k08.OffsetCommitRequest(group_id=group, topics=[topic], **more)


# --- produce --------------------------------------------------------------------------------------------------------
@case("produce: acks that there are not")
def _(side: Side) -> Message:
    return produce(side, batch(b"x"), acks=2)


@case("produce: an unknown topic")
def _(side: Side) -> Message:
    return produce(side, batch(b"x"), topic="nowhere")


@case("produce: an unknown partition")
def _(side: Side) -> Message:
    return produce(side, batch(b"x"), index=7)


@case("produce: no key into a compacted topic")
def _(side: Side) -> Message:
    return produce(side, batch(b"x"), topic="compacted")


@case("produce: a checksum that is wrong")
def _(side: Side) -> Message:
    records = batch(b"x")
    records[-1] ^= 1
    return produce(side, records)


@case("produce: a sequence from the middle of an unknown producer")
def _(side: Side) -> Message:
    return produce(side, batch(b"x", producer_id=123_456, epoch=0, sequence=7))


# --- reading --------------------------------------------------------------------------------------------------------
def list_offsets(index: int, timestamp: int, *, topic: str = "t", epoch: int = -1) -> Message:
    partition = k02.ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch, max_num_offsets=1
    )
    return k02.ListOffsetsRequest(
        replica_id=-1, topics=[k02.ListOffsetsTopic(name=topic, partitions=[partition])], timeout_ms=5000
    )


for _stamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 1_900_000_000_000):
    case(f"list offsets: timestamp {_stamp}")(lambda _, stamp=_stamp: list_offsets(0, stamp))  # type: ignore[misc]
case("list offsets: an unknown partition")(lambda _: list_offsets(9, -1))
case("list offsets: an unknown topic")(lambda _: list_offsets(0, -1, topic="nowhere"))
case("list offsets: an epoch of the future")(lambda _: list_offsets(0, -1, epoch=99))


@case("list offsets: one partition twice")
def _(_: Side) -> Message:
    request = list_offsets(0, -1)
    request.topics[0].partitions *= 2
    return request


def epoch_end(index: int, epoch: int, *, current: int = -1, topic: str = "t") -> Message:
    partition = k23.OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
    return k23.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[k23.OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )


case("epoch end: the current epoch")(lambda _: epoch_end(0, 0))
case("epoch end: an epoch of the future")(lambda _: epoch_end(0, 9))
case("epoch end: a leader of the future")(lambda _: epoch_end(0, 0, current=9))
case("epoch end: an unknown partition")(lambda _: epoch_end(9, 0))
case("epoch end: an unknown topic")(lambda _: epoch_end(0, 0, topic="nowhere"))


# --- metadata -------------------------------------------------------------------------------------------------------
def metadata(*topics: MetadataRequestTopic, create: bool = False) -> Message:
    return MetadataRequest(topics=list(topics), allow_auto_topic_creation=create)


case("metadata: an unknown name")(lambda _: metadata(MetadataRequestTopic(name="nowhere")))
case("metadata: a bad name")(lambda _: metadata(MetadataRequestTopic(name="no/where"), create=True))
case("metadata: an empty name")(lambda _: metadata(MetadataRequestTopic(name=""), create=True))
case("metadata: an unknown id")(lambda _: metadata(MetadataRequestTopic(name=None, topic_id=UNKNOWN)))
case("metadata: name and id")(lambda side: metadata(MetadataRequestTopic(name="t", topic_id=side.ids["t"])))
case("metadata: by id")(lambda side: metadata(MetadataRequestTopic(name=None, topic_id=side.ids["t"])))
case("metadata: neither name nor id")(lambda _: metadata(MetadataRequestTopic(name=None)))
case("metadata: a topic twice")(lambda _: metadata(MetadataRequestTopic(name="t"), MetadataRequestTopic(name="t")))


def page(*names: str, cursor: tuple[str, int] | None = None, limit: int = 2000) -> Message:
    return k75.DescribeTopicPartitionsRequest(
        topics=[k75.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else k75.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


case("page: an unknown topic")(lambda _: page("nowhere", "t"))
case("page: a bad name")(lambda _: page("no/where"))
case("page: a limit of nothing")(lambda _: page("t", limit=0))
case("page: from a cursor")(lambda _: page("t", "compacted", cursor=("t", 1)))
case("page: a negative cursor")(lambda _: page("t", cursor=("t", -1)))
case("page: a cursor behind the last partition")(lambda _: page("t", cursor=("t", 5)))
case("page: a topic twice")(lambda _: page("t", "t"))
case("api versions: a name that is none")(
    lambda _: ApiVersionsRequest(client_software_name="a b", client_software_version="1")
)
case("api versions: no name at all")(lambda _: ApiVersionsRequest())
case("cluster: as a controller")(lambda _: DescribeClusterRequest(endpoint_type=2))
case("cluster: as neither")(lambda _: DescribeClusterRequest(endpoint_type=7))


# --- producers ------------------------------------------------------------------------------------------------------
case("producer id: with an epoch and no id")(lambda _: InitProducerIdRequest(producer_id=-1, producer_epoch=3))
case("producer id: with an id and no epoch")(lambda _: InitProducerIdRequest(producer_id=3, producer_epoch=-1))
case("producer id: an empty transactional id")(
    lambda _: InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
)


def producers(index: int, topic: str = "t") -> Message:
    return k61.DescribeProducersRequest(topics=[k61.TopicRequest(name=topic, partition_indexes=[index])])


case("producers: an unknown partition")(lambda _: producers(9))
case("producers: an unknown topic")(lambda _: producers(0, "nowhere"))
case("producers: a bad name")(lambda _: producers(0, "no/where"))


# --- topics ---------------------------------------------------------------------------------------------------------
def create(*topics: k19.CreatableTopic) -> Message:
    """Only asked, never done."""
    return k19.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=True)


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> k19.CreatableTopic:
    return k19.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[k19.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


def placed(name: str, *replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> k19.CreatableTopic:
    return k19.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[k19.CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in replicas],
    )


for _name, _topics in {
    "one that is there": [topic("t")],
    "a bad name": [topic("no/where")],
    "an empty name": [topic("")],
    "a dot": [topic(".")],
    "a name too long": [topic("x" * 250)],
    "a name that collides": [topic("a.b"), topic("a_b")],
    "the same twice": [topic("twice"), topic("twice")],
    "no partitions": [topic("new", 0)],
    "partitions below -1": [topic("new", -2)],
    "a factor of 0": [topic("new", 1, 0)],
    "a factor below -1": [topic("new", 1, -2)],
    "more replicas than brokers": [topic("new", 1, 3)],
    "an unknown key": [topic("new", nonsense_key="1")],
    "a bad value": [topic("new", retention_ms="soon")],
    "a value out of range": [topic("new", segment_bytes="1")],
    "a null value": [topic("new", retention_ms=None)],
    "a bad combination": [topic("new", remote_storage_enable="true", cleanup_policy="compact")],
    "placed on an unknown broker": [placed("new", (0, [99]))],
    "placed with a gap": [placed("new", (0, [1]), (2, [1]))],
    "placed twice": [placed("new", (0, [1]), (0, [1]))],
    "placed nowhere": [placed("new", (0, []))],
    "placed twice on a broker": [placed("new", (0, [1, 1]))],
    "placed and counted": [placed("new", (0, [1]), partitions=1, factor=1)],
    "defaults": [topic("new", -1, -1)],
    "the metadata log": [topic("__cluster_metadata")],
}.items():
    case(f"create: {_name}")(lambda _, topics=_topics: create(*topics))  # type: ignore[misc]


def delete(*topics: k20.DeleteTopicState, names: tuple[str, ...] = ()) -> Message:
    return k20.DeleteTopicsRequest(
        topics=list(topics), topic_names=list(names) or [t.name or "" for t in topics], timeout_ms=10_000
    )


case("delete: an unknown name")(lambda _: delete(k20.DeleteTopicState(name="nowhere")))
case("delete: an unknown id")(lambda _: delete(k20.DeleteTopicState(topic_id=UNKNOWN)))
case("delete: name and id")(lambda side: delete(k20.DeleteTopicState(name="t", topic_id=side.ids["t"])))
case("delete: neither name nor id")(lambda _: delete(k20.DeleteTopicState()))
case("delete: the same twice")(lambda _: delete(k20.DeleteTopicState(name="t"), k20.DeleteTopicState(name="t")))
case("delete: by name and by id")(
    lambda side: delete(k20.DeleteTopicState(name="t"), k20.DeleteTopicState(topic_id=side.ids["t"]))
)
case("delete: the metadata log")(lambda _: delete(k20.DeleteTopicState(name="__cluster_metadata")))


def grow(count: int, *placements: list[int], topic: str = "t", twice: bool = False) -> Message:
    row = k37.CreatePartitionsTopic(
        name=topic,
        count=count,
        assignments=[k37.CreatePartitionsAssignment(broker_ids=ids) for ids in placements] or None,
    )
    return k37.CreatePartitionsRequest(topics=[row] * (2 if twice else 1), timeout_ms=10_000, validate_only=True)


case("grow: as many as there are")(lambda _: grow(2))
case("grow: fewer")(lambda _: grow(1))
case("grow: none")(lambda _: grow(0))
case("grow: below none")(lambda _: grow(-1))
case("grow: an unknown topic")(lambda _: grow(3, topic="nowhere"))
case("grow: twice")(lambda _: grow(3, twice=True))
case("grow: placed too few")(lambda _: grow(4, [1]))
case("grow: placed on an unknown broker")(lambda _: grow(3, [99]))
case("grow: placed nowhere")(lambda _: grow(3, []))
case("grow: placed twice on a broker")(lambda _: grow(3, [1, 1]))
case("grow: fine")(lambda _: grow(3, [1]))


def trim(offset: int, *, topic: str = "t", index: int = 0) -> Message:
    row = k21.DeleteRecordsPartition(partition_index=index, offset=offset)
    return k21.DeleteRecordsRequest(topics=[k21.DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=10_000)


case("trim: behind the end")(lambda _: trim(99))
case("trim: below -1")(lambda _: trim(-2))
case("trim: an unknown partition")(lambda _: trim(0, index=9))
case("trim: an unknown topic")(lambda _: trim(0, topic="nowhere"))
case("trim: a compacted topic")(lambda _: trim(0, topic="compacted"))
case("trim: an internal topic")(lambda _: trim(0, topic="__consumer_offsets"))
case("trim: where it starts already")(lambda _: trim(0))


# --- configuration --------------------------------------------------------------------------------------------------
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def configs(kind: int, name: str, keys: list[str] | None = None) -> Message:
    return k32.DescribeConfigsRequest(
        resources=[k32.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)]
    )


for _kind, _resource in (
    (TOPIC, "t"),
    (TOPIC, "nowhere"),
    (TOPIC, "no/where"),
    (TOPIC, ""),
    (BROKER, "99"),
    (BROKER, "x"),
    (BROKER, ""),
    (BROKER, "1"),
    (GROUP, "any"),
    (GROUP, ""),
    (METRICS, "any"),
    (METRICS, ""),
    (0, "x"),
    (7, "x"),
):
    case(f"configs of {_kind} {_resource!r}")(lambda _, k=_kind, r=_resource: configs(k, r, ["x"]))  # type: ignore[misc]


def change(kind: int, name: str, *ops: tuple[str, int, str | None]) -> Message:
    return k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[k44.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in ops],
            )
        ],
        validate_only=True,
    )


SET, UNSET, APPEND, SUBTRACT = 0, 1, 2, 3
for _name, _args in {
    "fine": (TOPIC, "t", ("retention.ms", SET, "5")),
    "an unknown topic": (TOPIC, "nowhere", ("retention.ms", SET, "5")),
    "a bad name": (TOPIC, "no/where", ("retention.ms", SET, "5")),
    "no name": (TOPIC, "", ("retention.ms", SET, "5")),
    "an unknown key": (TOPIC, "t", ("nonsense", SET, "5")),
    "an unknown key taken back": (TOPIC, "t", ("nonsense", UNSET, None)),
    "a bad value": (TOPIC, "t", ("retention.ms", SET, "soon")),
    "a null value": (TOPIC, "t", ("retention.ms", SET, None)),
    "out of range": (TOPIC, "t", ("segment.bytes", SET, "1")),
    "appended to a number": (TOPIC, "t", ("retention.ms", APPEND, "5")),
    "appended to a list": (TOPIC, "t", ("cleanup.policy", APPEND, "compact")),
    "a bad word appended": (TOPIC, "t", ("cleanup.policy", APPEND, "nonsense")),
    "subtracted from a list": (TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact")),
    "an operation that there is not": (TOPIC, "t", ("retention.ms", 9, "5")),
    "a key twice": (TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", SET, "6")),
    "a broker": (BROKER, "1", ("log.retention.ms", SET, "5000")),
    "another broker": (BROKER, "99", ("log.retention.ms", SET, "5000")),
    "no broker": (BROKER, "x", ("log.retention.ms", SET, "5000")),
    "all brokers": (BROKER, "", ("log.retention.ms", SET, "5000")),
    "read-only": (BROKER, "1", ("node.id", SET, "7")),
    "read-only for all": (BROKER, "", ("log.dirs", SET, "/x")),
    "a bad value of a broker": (BROKER, "1", ("log.retention.ms", SET, "soon")),
    "an unknown key of a broker": (BROKER, "1", ("my.own.key", SET, "soon")),
    "too few threads": (BROKER, "1", ("num.io.threads", SET, "0")),
    "per broker for all": (BROKER, "", ("advertised.listeners", SET, "PLAINTEXT://x:1")),
    "a group": (GROUP, "any", ("consumer.session.timeout.ms", SET, "50000")),
    "a group out of range": (GROUP, "any", ("consumer.session.timeout.ms", SET, "5")),
    "a group without a name": (GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    "an unknown key of a group": (GROUP, "any", ("nonsense", SET, "50000")),
    "an unknown kind": (7, "x", ("a", SET, "b")),
    "nothing to change": (TOPIC, "t"),
}.items():
    case(f"change: {_name}")(lambda _, args=_args: change(*args))  # type: ignore[misc]


@case("change: a resource twice")
def _(_: Side) -> Message:
    request = change(TOPIC, "t", ("retention.ms", SET, "5"))
    request.resources *= 2
    return request


def replace(kind: int, name: str, *pairs: tuple[str, str | None]) -> Message:
    return k33.AlterConfigsRequest(
        resources=[
            k33.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[k33.AlterableConfig(name=k, value=v) for k, v in pairs],
            )
        ],
        validate_only=True,
    )


for _name, _args in {
    "fine": (TOPIC, "t", ("retention.ms", "5")),
    "an unknown topic": (TOPIC, "nowhere", ("retention.ms", "5")),
    "a bad value": (TOPIC, "t", ("retention.ms", "soon")),
    "a null value": (TOPIC, "t", ("retention.ms", None)),
    "an unknown key": (TOPIC, "t", ("nonsense", "5")),
    "a key twice": (TOPIC, "t", ("retention.ms", "5"), ("retention.ms", "6")),
    "an unknown kind": (7, "x", ("a", "b")),
}.items():
    case(f"replace: {_name}")(lambda _, args=_args: replace(*args))  # type: ignore[misc]
for _kinds in ([], [TOPIC], [BROKER], [METRICS], [GROUP], [7], [LOGGER]):
    case(f"list resources {_kinds}")(lambda _, kinds=_kinds: ListConfigResourcesRequest(resource_types=kinds))  # type: ignore[misc]


# --- directories, quorum, features, quotas --------------------------------------------------------------------------
case("move: to a place that there is not")(
    lambda _: k34.AlterReplicaLogDirsRequest(
        dirs=[
            k34.AlterReplicaLogDir(path="/nowhere", topics=[k34.AlterReplicaLogDirTopic(name="t", partitions=[0, 9])])
        ]
    )
)
case("move: to a place that is no path")(
    lambda _: k34.AlterReplicaLogDirsRequest(
        dirs=[k34.AlterReplicaLogDir(path="x", topics=[k34.AlterReplicaLogDirTopic(name="t", partitions=[0])])]
    )
)
case("directories: of an unknown partition")(
    lambda _: k35.DescribeLogDirsRequest(topics=[k35.DescribableLogDirTopic(topic="nowhere", partitions=[0])])
)
case("reassignments: of an unknown topic")(
    lambda _: k46.ListPartitionReassignmentsRequest(
        topics=[k46.ListPartitionReassignmentsTopics(name="nowhere", partition_indexes=[0])]
    )
)


def quorum(topic: str, index: int) -> Message:
    partition = k55.PartitionData(partition_index=index)
    return k55.DescribeQuorumRequest(topics=[k55.TopicData(topic_name=topic, partitions=[partition])])


case("quorum: of another topic")(lambda _: quorum("t", 0))
case("quorum: of another partition")(lambda _: quorum("__cluster_metadata", 1))


def feature(name: str, level: int, kind: int = 1) -> Message:
    row = k57.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return k57.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[row], validate_only=True)


case("feature: unknown")(lambda _: feature("nonsense", 1))
case("feature: too high")(lambda _: feature("metadata.version", 999))
case("feature: below none")(lambda _: feature("group.version", -1))
case("feature: no name")(lambda _: feature("", 1))
case("feature: a kind that there is not")(lambda _: feature("metadata.version", 28, 9))
case("feature: lower without saying so")(lambda _: feature("metadata.version", 20, 1))


def quota(*entity: tuple[str, str | None], key: str = "producer_byte_rate", value: float = 1.0) -> Message:
    return k49.AlterClientQuotasRequest(
        entries=[
            k49.EntryData(
                entity=[k49.EntityData(entity_type=t, entity_name=n) for t, n in entity],
                ops=[k49.OpData(key=key, value=value)],
            )
        ],
        validate_only=True,
    )


for _name, _quota in {
    "fine": quota(("user", "u"), ("client-id", None)),
    "no entity": quota(),
    "an unknown type": quota(("nonsense", "x")),
    "an empty name": quota(("user", "")),
    "a type twice": quota(("user", "a"), ("user", "b")),
    "an address with a user": quota(("ip", "127.0.0.1"), ("user", "a")),
    "an unknown key": quota(("user", "u"), key="nonsense"),
    "a key of addresses": quota(("user", "u"), key="connection_creation_rate"),
    "a key of users": quota(("ip", "127.0.0.1")),
    "no address": quota(("ip", "not an address"), key="connection_creation_rate"),
    "an address": quota(("ip", "127.0.0.1"), key="connection_creation_rate"),
    "half a byte": quota(("user", "u"), value=0.5),
    "half a percent": quota(("user", "u"), key="request_percentage", value=0.5),
    "nothing": quota(("user", "u"), value=0.0),
    "less than nothing": quota(("user", "u"), value=-1.0),
}.items():
    case(f"quota: {_name}")(lambda _, request=_quota: request)  # type: ignore[misc]


def quotas(*parts: tuple[str, int, str | None], strict: bool = False) -> Message:
    return k48.DescribeClientQuotasRequest(
        components=[k48.ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in parts], strict=strict
    )


for _name, _filter in {
    "nothing": quotas(),
    "an unknown type": quotas(("nonsense", 0, "x")),
    "an empty type": quotas(("", 0, "x")),
    "a type twice": quotas(("user", 0, "x"), ("user", 0, "y")),
    "an unknown kind of match": quotas(("user", 7, None)),
    "exactly nobody": quotas(("user", 0, None)),
    "the default by name": quotas(("user", 1, "x")),
    "an address and a user": quotas(("user", 2, None), ("ip", 2, None)),
}.items():
    case(f"quotas: {_name}")(lambda _, request=_filter: request)  # type: ignore[misc]
case("unregister: an unknown broker")(lambda _: UnregisterBrokerRequest(broker_id=99))


# --- groups ---------------------------------------------------------------------------------------------------------
def coordinator(key: str, kind: int = 0) -> Message:
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


case("coordinator: of a group")(lambda _: coordinator("empty"))
case("coordinator: of no kind")(lambda _: coordinator("empty", 9))


def join(side: Side, group: str = "new", **more: Any) -> Message:
    values: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [k11.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        **more,
    }
    return k11.JoinGroupRequest(group_id=group, **values)


case("join: no group")(lambda side: join(side, ""))
case("join: a session too short")(lambda side: join(side, session_timeout_ms=1))
case("join: a session too long")(lambda side: join(side, session_timeout_ms=2_000_000))
case("join: an unknown member of no group")(lambda side: join(side, "nobody", member_id="x"))
case("join: an unknown member")(lambda side: join(side, "live", member_id="x"))
case("join: no protocols")(lambda side: join(side, "nobody", member_id="", protocols=[]))
case("join: no protocol type")(lambda side: join(side, "nobody", protocol_type=""))
case("join: another protocol type")(lambda side: join(side, "live", protocol_type="connect"))
case("join: no protocol in common")(
    lambda side: join(side, "live", protocols=[k11.JoinGroupRequestProtocol(name="other", metadata=b"")])
)
case("join: an unknown static member")(lambda side: join(side, "live", member_id="x", group_instance_id="i"))


def sync(side: Side, group: str = "live", **more: Any) -> Message:
    values: dict[str, Any] = {"generation_id": 1, "member_id": side.member, "assignments": [], **more}
    if "protocol_type" not in values:
        values |= {"protocol_type": "consumer", "protocol_name": "range"}
    return k14.SyncGroupRequest(group_id=group, **values)


case("sync: no group")(lambda side: sync(side, ""))
case("sync: an unknown group")(lambda side: sync(side, "nobody"))
case("sync: an unknown member")(lambda side: sync(side, member_id="x"))
case("sync: another generation")(lambda side: sync(side, generation_id=7))
case("sync: an instance that is nobody's")(lambda side: sync(side, group_instance_id="i"))
case("sync: another protocol")(lambda side: sync(side, protocol_type="consumer", protocol_name="other"))
case("sync: another protocol type")(lambda side: sync(side, protocol_type="connect", protocol_name="range"))
case("sync: again")(lambda side: sync(side))


def heartbeat(side: Side, group: str = "live", **more: Any) -> Message:
    values = {"generation_id": 1, "member_id": side.member, **more}
    return HeartbeatRequest(group_id=group, **values)


case("heartbeat: fine")(lambda side: heartbeat(side))
case("heartbeat: no group")(lambda side: heartbeat(side, ""))
case("heartbeat: an unknown group")(lambda side: heartbeat(side, "nobody"))
case("heartbeat: an empty group")(lambda side: heartbeat(side, "empty"))
case("heartbeat: an unknown member")(lambda side: heartbeat(side, member_id="x"))
case("heartbeat: another generation")(lambda side: heartbeat(side, generation_id=7))
case("heartbeat: an instance that is nobody's")(lambda side: heartbeat(side, group_instance_id="i"))


def leave(group: str, member: str, instance: str | None = None) -> Message:
    row = k13.MemberIdentity(member_id=member, group_instance_id=instance)
    return k13.LeaveGroupRequest(group_id=group, member_id=member, members=[row])


case("leave: no group")(lambda _: leave("", "x"))
case("leave: an unknown group")(lambda _: leave("nobody", "x"))
case("leave: an unknown member")(lambda _: leave("live", "x"))
case("leave: an unknown instance")(lambda _: leave("live", "", "i"))
case("leave: neither")(lambda _: leave("live", ""))
case("leave: an empty group")(lambda _: leave("empty", "x"))

for _groups in (["empty"], ["live"], ["nobody"], [""], ["live", "nobody", "empty"], []):
    case(f"describe groups {_groups}")(lambda _, groups=_groups: DescribeGroupsRequest(groups=groups))  # type: ignore[misc]
for _states, _types in (([], []), (["stable"], []), (["nonsense"], []), ([], ["classic"]), ([], ["nonsense"])):
    case(f"list groups {_states} {_types}")(
        lambda _, s=_states, t=_types: ListGroupsRequest(states_filter=s, types_filter=t)  # type: ignore[misc]
    )
for _groups in (["live"], ["nobody"], [""], ["live", "live"]):
    case(f"delete groups {_groups}")(lambda _, groups=_groups: DeleteGroupsRequest(groups_names=groups))  # type: ignore[misc]


# --- offsets --------------------------------------------------------------------------------------------------------
case("commit: an unknown partition")(lambda side: commit("empty", side.ids["t"], 9))
case("commit: an unknown topic")(lambda _: commit("empty", UNKNOWN, 0, name="nowhere"))
case("commit: metadata too long")(lambda side: commit("empty", side.ids["t"], 1, metadata="x" * 4097))
case("commit: from outside a live group")(lambda side: commit("live", side.ids["t"], 0))
case("commit: an unknown member")(
    lambda side: commit("live", side.ids["t"], 0, member_id="x", generation_id_or_member_epoch=1)
)
case("commit: another generation")(
    lambda side: commit("live", side.ids["t"], 0, member_id=side.member, generation_id_or_member_epoch=9)
)
case("commit: a generation of no group")(
    lambda side: commit("nobody", side.ids["t"], 0, member_id="x", generation_id_or_member_epoch=9)
)
case("commit: an instance that is nobody's")(
    lambda side: commit(
        "live",
        side.ids["t"],
        0,
        member_id=side.member,
        generation_id_or_member_epoch=1,
        group_instance_id="i",
    )
)
case("commit: a member id and no generation")(lambda side: commit("live", side.ids["t"], 0, member_id=side.member))
case("commit: no topics")(lambda _: k08.OffsetCommitRequest(group_id="empty", topics=[]))


def committed(side: Side, group: str, topic: str | None = "t", *indexes: int, **more: Any) -> Message:
    topics = None
    if topic is not None:
        topics = [k09.OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))]
    new = None
    if topic is not None:
        new = [
            k09.OffsetFetchRequestTopics(
                name=topic, topic_id=side.ids.get(topic, UNKNOWN), partition_indexes=list(indexes)
            )
        ]
    return k09.OffsetFetchRequest(
        group_id=group, topics=topics, groups=[k09.OffsetFetchRequestGroup(group_id=group, topics=new, **more)]
    )


case("committed: fine")(lambda side: committed(side, "empty", "t", 0, 1))
case("committed: an unknown partition")(lambda side: committed(side, "empty", "t", 9))
case("committed: an unknown topic")(lambda side: committed(side, "empty", "nowhere", 0))
case("committed: an unknown group")(lambda side: committed(side, "nobody", "t", 0))
case("committed: no group")(lambda side: committed(side, "", "t", 0))
case("committed: everything of an unknown group")(lambda side: committed(side, "nobody", None))
case("committed: as an unknown member")(lambda side: committed(side, "live", "t", 0, member_id="x", member_epoch=1))
case("committed: as a member of nobody")(lambda side: committed(side, "nobody", "t", 0, member_id="x", member_epoch=1))


def forget(group: str, topic: str = "t", index: int = 0) -> Message:
    row = k47.OffsetDeleteRequestPartition(partition_index=index)
    return k47.OffsetDeleteRequest(group_id=group, topics=[k47.OffsetDeleteRequestTopic(name=topic, partitions=[row])])


case("forget: an unknown group")(lambda _: forget("nobody"))
case("forget: no group")(lambda _: forget(""))
case("forget: a topic that is subscribed to")(lambda _: forget("live"))
case("forget: an unknown topic")(lambda _: forget("empty", "nowhere"))
case("forget: an unknown partition")(lambda _: forget("empty", "t", 9))
case("forget: what was not committed")(lambda _: forget("empty", "compacted", 0))
