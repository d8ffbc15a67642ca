"""Produce, API key 0.

Behaviour
  A producer hands the leader of each partition one batch (before format v2: a message set) to append. With `acks` 0
  there is no reply at all and a fault closes the connection; with 1 the leader's own append is enough; with -1 the
  reply waits until the in-sync replicas have it, at most `timeout_ms`. The reply gives the first record's offset, or
  an error that concerns the whole batch.

Version notes
  0: no throttle time.
  1: throttle time.
  2: `log_append_time_ms`; message format v1 from here.
  3: transactional id, and only batches of format v2, one for each partition.
  4: KAFKA_STORAGE_ERROR may come.
  5: `log_start_offset`, with which a client tells lost state from expired records.
  7: zstd is allowed.
  8: which records spoiled the batch, and why.
  9: flexible.
  10: a reply that names a newer leader carries it and its address in tagged fields.
  11: TRANSACTION_ABORTABLE may come.
  12: inside a transaction the request adds the partition to it (transaction version 2).
  13: topic ids instead of names.

Kafka 4 lists 0 to 2 in ApiVersions for librdkafka's sake and refuses them; we read them.
"""

from __future__ import annotations

from typing import Any

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, records, string, struct, tag, uuid


class PartitionProduceData(Struct):
    index: int = int32()
    records: Any = records(nullable=0)


class TopicProduceData(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message):
    api_key = 0
    versions = (0, 13)
    flexible = 9
    one_of_each = True

    transactional_id: str | None = string(since=3, nullable=3, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(since=8, nullable=8, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(since=10, default=-1)
    leader_epoch: int = int32(since=10, default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True, rare=True
    )
    error_message: str | None = string(since=8, nullable=8, default=None, ignorable=True, rare=True)
    current_leader: LeaderIdAndEpoch = tag(0, struct(LeaderIdAndEpoch), since=10)


class TopicProduceResponse(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(since=10, nullable=10, default=None)


class ProduceResponse(Message):
    api_key = 0
    versions = (0, 13)
    flexible = 9
    one_of_each = True

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = tag(0, array(NodeEndpoint), since=10)
