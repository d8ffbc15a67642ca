"""ShareFetch, API key 78.

Behaviour
  A share consumer acquires records from partitions for a time and may acknowledge earlier ones on the way, within a
  session. The reply says which offsets it has acquired and how often they were delivered.

Version notes
  1 is the first stable version.
  2: how strictly to keep to the limit of records, and renewals of the lock.
"""

from __future__ import annotations

from typing import Any

from stratalog.base.types import MAX_INT32, Uuid
from stratalog.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


class FetchPartition(Struct):
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    topic_id: Uuid = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ShareFetchRequest(Message):
    api_key = 78
    versions = (1, 2)
    flexible = 0

    group_id: str | None = string(nullable=0, default=None)
    member_id: str | None = string(nullable=0)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=MAX_INT32)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(since=2, ignorable=True)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Any = records()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)


class ShareFetchResponse(Message):
    api_key = 78
    versions = (1, 2)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
