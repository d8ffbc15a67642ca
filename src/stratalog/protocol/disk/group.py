"""Records of `__consumer_offsets`: committed offsets, classic groups, groups of the consumer protocol.

A key begins with an int16, the record's type (`api_key` here); a value with an int16, its version.  A null value
deletes what the key names.  Types 0 and 1 are offsets (0 of old brokers), 2 a classic group with all its
members, whose metadata and assignments are the clients' own bytes (`disk.consumer_protocol`), 3 to 8 and 16 the
parts of a consumer group.  The other types: `disk.share_group`, `disk.streams_group`.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, bytes_, int8, int32, int64, string, struct, tag, uuid


class LegacyOffsetCommitKey(Message):
    api_key = 0
    versions = (0, 0)
    flexible = None

    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message):
    api_key = 0
    versions = (0, 0)
    flexible = None

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message):
    api_key = 1
    versions = (0, 0)
    flexible = None

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message):
    api_key = 1
    versions = (0, 4)
    flexible = 4

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = tag(0, uuid(ignorable=True), since=4)


class GroupMetadataKey(Message):
    api_key = 2
    versions = (0, 0)
    flexible = None

    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message):
    api_key = 2
    versions = (0, 4)
    flexible = 4

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(Message):
    api_key = 3
    versions = (0, 0)
    flexible = None

    group_id: str = string()


class ConsumerGroupMetadataValue(Message):
    api_key = 3
    versions = (0, 0)
    flexible = 0

    epoch: int = int32()
    metadata_hash: int = tag(0, int64(), since=0)


class ConsumerGroupPartitionMetadataKey(Message):
    api_key = 4
    versions = (0, 0)
    flexible = None

    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message):
    api_key = 4
    versions = (0, 0)
    flexible = 0

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message):
    api_key = 5
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message):
    api_key = 5
    versions = (0, 0)
    flexible = 0

    instance_id: str | None = string(nullable=0)
    rack_id: str | None = string(nullable=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = tag(0, struct(ClassicMemberMetadata, nullable=0), since=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    api_key = 6
    versions = (0, 0)
    flexible = None

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    api_key = 6
    versions = (0, 0)
    flexible = 0

    assignment_epoch: int = int32()
    assignment_timestamp: int = tag(0, int64(ignorable=True), since=0)


class ConsumerGroupTargetAssignmentMemberKey(Message):
    api_key = 7
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Message):
    api_key = 7
    versions = (0, 0)
    flexible = 0

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    api_key = 8
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = tag(0, array(int32, nullable=0), since=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    api_key = 8
    versions = (0, 0)
    flexible = 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message):
    api_key = 16
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message):
    api_key = 16
    versions = (0, 0)
    flexible = 0

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Record type (the int16 in front of a key) to the classes of key and value."""
