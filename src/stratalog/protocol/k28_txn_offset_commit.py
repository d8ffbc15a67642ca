"""TxnOffsetCommit, API key 28.

Behaviour
  Offsets of a group that become visible when the producer's transaction commits. Goes to the group's coordinator.

Version notes
  2: leader epoch of the offset.
  3: flexible; member id, generation and instance id, so that a zombie of the group is fenced.
  4: TRANSACTION_ABORTABLE may come.
  5: adds the offsets partition to the transaction by itself (transaction version 2).
  6: topic ids instead of names.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=0, any_bytes=True)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: Uuid = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message):
    api_key = 28
    versions = (0, 6)
    flexible = 3
    one_of_each = True

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: Uuid = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message):
    api_key = 28
    versions = (0, 6)
    flexible = 3
    one_of_each = True

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
