"""OffsetFetch, API key 9.

Behaviour
  The committed offsets of a group, from its coordinator. A partition without a commit has offset -1 and no error.
  `require_stable` makes the coordinator answer UNSTABLE_OFFSET_COMMIT while a transaction has a pending commit on a
  partition.

Version notes
  0: as 1 on the wire; the oldest brokers answered it from ZooKeeper.
  2: null topics mean all of the group's partitions; an error for the group.
  3: throttle time.
  5: leader epochs.
  6: flexible.
  7: `require_stable`.
  8: several groups in one request.
  9: member id and epoch, checked for groups of the consumer protocol.
  10: topic ids instead of names.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    name: str = string(until=7)
    partition_indexes: list[int] = array(int32, until=7)


class OffsetFetchRequestTopics(Struct):
    name: str = string(since=8, until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array(int32, since=8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string(since=8)
    member_id: str | None = string(since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, since=8, nullable=8)


class OffsetFetchRequest(Message):
    api_key = 9
    versions = (0, 10)
    flexible = 6

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = string(until=7, nullable=0)
    error_code: int = int16(until=7)


class OffsetFetchResponseTopic(Struct):
    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(since=8, default=-1, ignorable=True)
    metadata: str | None = string(since=8, nullable=8)
    error_code: int = int16(since=8)


class OffsetFetchResponseTopics(Struct):
    name: str = string(since=8, until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


class OffsetFetchResponse(Message):
    api_key = 9
    versions = (0, 10)
    flexible = 6

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
