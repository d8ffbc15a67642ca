"""StreamsGroupDescribe, API key 89.

Behaviour
  State, topology and members of streams groups.

Version notes
  1: the described topology on wish, and the assignor's name.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string, struct, uint16


class StreamsGroupDescribeRequest(Message):
    api_key = 89
    versions = (0, 1)
    flexible = 0

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
    include_topology_description: bool = boolean(since=1)


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable=0, default=None)


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Member(Struct):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable=0, default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


class TopologyDescriptionNode(Struct):
    name: str = string(since=1)
    node_type: int = int8(since=1)
    source_topics: list[str] = array(string, since=1)
    sink_topic: str | None = string(since=1, nullable=1, default=None)
    stores: list[str] = array(string, since=1)
    successors: list[str] = array(string, since=1)


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string(since=1)
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, since=1)


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, since=1)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, since=1)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, since=1)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, since=1)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable=0, default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)
    topology_description: TopologyDescription | None = struct(TopologyDescription, since=1, nullable=1, default=None)
    topology_description_status: int = int8(since=1)
    assignor_name: str | None = string(since=1, nullable=1, default=None, ignorable=True)


class StreamsGroupDescribeResponse(Message):
    api_key = 89
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
