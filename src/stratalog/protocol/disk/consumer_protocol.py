"""What consumers of the classic protocol say to each other through the coordinator: a member's subscription, inside
JoinGroup, and its assignment, inside SyncGroup; both rest inside `GroupMetadataValue` too.

An int16 version comes before each.  A reader takes a version above its own as its own and ignores the bytes that
are left.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string(since=1)
    partitions: list[int] = array(int32, since=1)


class ConsumerProtocolSubscription(Message):
    versions = (0, 3)
    flexible = None

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable=0, default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)


class AssignmentTopicPartition(Struct):
    kafka_name = "TopicPartition"

    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolAssignment(Message):
    versions = (0, 3)
    flexible = None

    assigned_partitions: list[AssignmentTopicPartition] = array(AssignmentTopicPartition)
    user_data: bytes | None = bytes_(nullable=0, default=None)
