"""Records of streams groups in `__consumer_offsets`, types 17 and 19 to 23.

A key begins with an int16, the record's type (`api_key` here); a value with an int16, its version.  A null value
deletes what the key names.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, struct, tag, uint16


class StreamsGroupMetadataKey(Message):
    api_key = 17
    versions = (0, 0)
    flexible = None

    group_id: str = string()


class LastAssignmentConfig(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(Message):
    api_key = 17
    versions = (0, 0)
    flexible = 0

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = tag(0, int32(default=-1), since=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = tag(
        1, array(LastAssignmentConfig, nullable=0), since=0
    )


class StreamsGroupMemberMetadataKey(Message):
    api_key = 19
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMemberMetadataValue(Message):
    api_key = 19
    versions = (0, 0)
    flexible = 0

    instance_id: str | None = string(nullable=0)
    rack_id: str | None = string(nullable=0)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable=0, default=None)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Message):
    api_key = 20
    versions = (0, 0)
    flexible = None

    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Message):
    api_key = 20
    versions = (0, 0)
    flexible = 0

    assignment_epoch: int = int32()
    assignment_timestamp: int = tag(0, int64(ignorable=True), since=0)


class StreamsGroupTargetAssignmentMemberKey(Message):
    api_key = 21
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    member_id: str = string()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class StreamsGroupTargetAssignmentMemberValue(Message):
    api_key = 21
    versions = (0, 0)
    flexible = 0

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Message):
    api_key = 22
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    member_id: str = string()


class CurrentMemberAssignmentTaskIds(Struct):
    kafka_name = "TaskIds"

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = tag(0, array(int32, nullable=0), since=0)


class StreamsGroupCurrentMemberAssignmentValue(Message):
    api_key = 22
    versions = (0, 0)
    flexible = 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentMemberAssignmentTaskIds] = array(CurrentMemberAssignmentTaskIds)
    standby_tasks: list[CurrentMemberAssignmentTaskIds] = array(CurrentMemberAssignmentTaskIds)
    warmup_tasks: list[CurrentMemberAssignmentTaskIds] = array(CurrentMemberAssignmentTaskIds)
    active_tasks_pending_revocation: list[CurrentMemberAssignmentTaskIds] = array(CurrentMemberAssignmentTaskIds)
    standby_tasks_pending_revocation: list[CurrentMemberAssignmentTaskIds] = array(CurrentMemberAssignmentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentMemberAssignmentTaskIds] = array(CurrentMemberAssignmentTaskIds)


class StreamsGroupTopologyKey(Message):
    api_key = 23
    versions = (0, 0)
    flexible = None

    group_id: str = string()


class TopicConfig(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


class CopartitionGroup(Struct):
    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(Message):
    api_key = 23
    versions = (0, 0)
    flexible = 0

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
"""Record type (the int16 in front of a key) to the classes of key and value."""
