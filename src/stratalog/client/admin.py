"""Administration over a `Client`: what the command line, Spark and tests ask of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.client.client import EARLIEST, LATEST, Client
from stratalog.client.failures import Refused, check
from stratalog.protocol.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from stratalog.protocol.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from stratalog.protocol.k15_describe_groups import DescribedGroup, DescribeGroupsRequest
from stratalog.protocol.k16_list_groups import ListedGroup, ListGroupsRequest
from stratalog.protocol.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from stratalog.protocol.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from stratalog.protocol.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from stratalog.protocol.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from stratalog.protocol.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from stratalog.protocol.k42_delete_groups import DeleteGroupsRequest
from stratalog.protocol.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
CONFIG_SOURCES: Final = {
    1: "topic",
    2: "broker, dynamic",
    3: "all brokers, dynamic",
    4: "broker, static",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
_TIMEOUT_MS: Final = 30_000


def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> int:
    """Make a topic; -1 leaves a number to the broker.  Returns the number of partitions."""
    answer = client.call_controller(
        CreateTopicsRequest(
            timeout_ms=_TIMEOUT_MS,
            validate_only=validate_only,
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
                )
            ],
        )
    )
    row = answer.topics[0]
    check(row.error_code, f"topic {name}", row.error_message)
    return int(row.num_partitions if row.num_partitions > 0 else partitions)


def delete_topics(client: Client, names: Iterable[str]) -> dict[str, Refused | None]:
    """Delete topics; each with what kept it from being deleted."""
    names = list(names)
    node = client.controller_id if client.controller_id in client.brokers else next(iter(client.brokers))
    request = DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS)
    if client.connection(node).version_of(DeleteTopicsRequest.api_key) >= 6:
        request.topics = [DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = names
    answer = client.call(request, node=node)
    return {
        row.name or "": _refusal(row.error_code, f"topic {row.name}", row.error_message) for row in answer.responses
    }


def create_partitions(client: Client, topic: str, total: int) -> None:
    """Grow a topic to `total` partitions."""
    answer = client.call_controller(
        CreatePartitionsRequest(
            timeout_ms=_TIMEOUT_MS, topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)]
        )
    )
    row = answer.results[0]
    check(row.error_code, f"topic {topic}", row.error_message)


def delete_records(client: Client, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Delete what lies before an offset of each partition (-1: everything); gives the new starts."""
    starts: dict[int, int] = {}
    info = client.topic(topic)
    by_leader: dict[int, list[int]] = {}
    for partition in before:
        if partition not in info.partitions:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        by_leader.setdefault(info.partitions[partition].leader, []).append(partition)
    for node, partitions in by_leader.items():
        answer = client.call(
            DeleteRecordsRequest(
                timeout_ms=_TIMEOUT_MS,
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[DeleteRecordsPartition(partition_index=p, offset=before[p]) for p in partitions],
                    )
                ],
            ),
            node=node,
        )
        for row in (p for t in answer.topics for p in t.partitions):
            check(row.error_code, f"{topic}-{row.partition_index}")
            starts[row.partition_index] = row.low_watermark
    return starts


# --- configuration ----------------------------------------------------------------------------------------------------
def describe_configs(
    client: Client, kind: str, name: str, *, documentation: bool = False
) -> list[DescribeConfigsResourceResult]:
    """Every key of a topic, broker or group."""
    node = int(name) if kind == "broker" and name else None
    answer = client.call(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=None)
            ],
            include_synonyms=True,
            include_documentation=documentation,
        ),
        node=node,
    )
    row = answer.results[0]
    check(row.error_code, f"{kind} {name}".rstrip(), row.error_message)
    return sorted(row.configs, key=lambda config: config.name)


def alter_configs(
    client: Client, kind: str, name: str, *, set_: Mapping[str, str] | None = None, delete: Iterable[str] = ()
) -> None:
    """Set and delete keys."""
    rows = [AlterableConfig(name=k, config_operation=0, value=v) for k, v in (set_ or {}).items()]
    rows += [AlterableConfig(name=k, config_operation=1, value=None) for k in delete]
    answer = client.call_controller(
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configs=rows)]
        )
    )
    row = answer.responses[0]
    check(row.error_code, f"{kind} {name}".rstrip(), row.error_message)


# --- groups -----------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Committed:
    """A group's place in one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


def list_groups(client: Client) -> list[ListedGroup]:
    """The groups of all brokers."""
    found: list[ListedGroup] = []
    for node in sorted(client.brokers):
        answer = client.call(ListGroupsRequest(), node=node)
        check(answer.error_code, f"groups of broker {node}")
        found += answer.groups
    return sorted(found, key=lambda group: group.group_id)


def describe_group(client: Client, group: str) -> DescribedGroup:
    """State and members of a classic group."""
    answer = client.call_coordinator(
        group, lambda: DescribeGroupsRequest(groups=[group]), lambda answer: answer.groups[0].error_code
    )
    found: DescribedGroup = answer.groups[0]
    check(found.error_code, f"group {group}", found.error_message)
    return found


def committed_offsets(client: Client, group: str) -> list[Committed]:
    """Everything that a group has committed."""

    def code(answer: Any) -> int:
        return int(answer.groups[0].error_code if answer.groups else answer.error_code)

    names: dict[bytes, str] = {}
    batched = client.connection(next(iter(client.brokers))).version_of(OffsetFetchRequest.api_key) >= 8
    answer = client.call_coordinator(
        group,
        lambda: (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
            if batched
            else OffsetFetchRequest(group_id=group, topics=None)
        ),
        code,
    )
    check(code(answer), f"group {group}")
    found: list[Committed] = []
    topics = answer.groups[0].topics if answer.groups else answer.topics
    for topic in topics:
        name = topic.name
        if not name:
            if not names:
                names = {info.topic_id: info.name for info in client.topics().values()}
            name = names.get(topic.topic_id, str(topic.topic_id))
        for p in topic.partitions:
            check(p.error_code, f"group {group}, {name}-{p.partition_index}")
            if p.committed_offset >= 0:
                found.append(
                    Committed(name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata or "")
                )
    return sorted(found, key=lambda row: (row.topic, row.partition))


def commit_offsets(client: Client, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Set the offsets of a group that has no members."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        )
    ids = {name: client.topic(name).topic_id for name in topics}

    def make() -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=ids[name], partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def code(answer: Any) -> int:
        return max((int(p.error_code) for t in answer.topics for p in t.partitions), default=0)

    answer = client.call_coordinator(group, make, code)
    for topic in answer.topics:
        for p in topic.partitions:
            check(p.error_code, f"group {group}, partition {p.partition_index}")


def delete_groups(client: Client, groups: Iterable[str]) -> dict[str, Refused | None]:
    """Delete groups that have no members."""
    found: dict[str, Refused | None] = {}
    for group in groups:

        def make(name: str = group) -> DeleteGroupsRequest:
            return DeleteGroupsRequest(groups_names=[name])

        answer = client.call_coordinator(group, make, lambda answer: answer.results[0].error_code)
        row = answer.results[0]
        found[group] = _refusal(row.error_code, f"group {group}", row.error_message)
    return found


# --- sizes and ends ---------------------------------------------------------------------------------------------------
def log_dirs(client: Client) -> dict[int, list[DescribeLogDirsResult]]:
    """The log directories of each broker."""
    return {
        node: list(client.call(DescribeLogDirsRequest(topics=None), node=node).results)
        for node in sorted(client.brokers)
    }


def bounds(client: Client, topic: str, *, committed: bool = False) -> dict[int, tuple[int, int]]:
    """Partition to (start, end)."""
    partitions = client.topic(topic).partitions
    starts = client.offsets(topic, dict.fromkeys(partitions, EARLIEST))
    ends = client.offsets(topic, dict.fromkeys(partitions, LATEST), committed=committed)
    return {p: (starts[p][0], ends[p][0]) for p in partitions}


def _refusal(code: int, what: str, message: str | None) -> Refused | None:
    return Refused(code, what, message) if code else None
