"""OffsetCommit, API key 8.

Behaviour
  A group's member stores how far it has read, at the group's coordinator, which writes one record for each partition
  to `__consumer_offsets` and replies once it is replicated. With generation -1 and no member id it is a commit from
  outside of any group membership.

Version notes
  0: no membership at all (the oldest brokers kept these in ZooKeeper).
  1: generation and member id, and a timestamp for each partition.
  2: a retention time for the whole request in place of the timestamps.
  3: throttle time.
  5: retention is the broker's affair.
  6: leader epoch of the committed offset.
  7: group instance id.
  8: flexible.
  9: also for groups of the consumer protocol, where the generation is the member epoch (STALE_MEMBER_EPOCH).
  10: topic ids instead of names.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    commit_timestamp: int = int64(since=1, until=1, default=-1)
    committed_metadata: str | None = string(nullable=0, any_bytes=True)


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message):
    api_key = 8
    versions = (0, 10)
    flexible = 8
    one_of_each = True

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message):
    api_key = 8
    versions = (0, 10)
    flexible = 8
    one_of_each = True

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
