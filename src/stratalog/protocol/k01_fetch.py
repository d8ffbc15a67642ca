"""Fetch, API key 1.

Behaviour
  A consumer or a follower asks the leader for batches from an offset on. The leader waits until `min_bytes` are there
  or `max_wait_ms` is over. The first batch of the first partition that has data comes whole even if it is above the
  limits, so that a reader never starves. A consumer sees data below the high watermark, with `isolation_level` 1
  below the last stable offset and with the list of aborted transactions; a follower sees all and its fetch offset
  reports its progress. In a session (`session_id`) only what changed travels, both ways.

Version notes
  0: no throttle time; message format v0.
  2: format v1 may be returned.
  3: `max_bytes` for the whole reply, and partitions are served in the order of the request.
  4: isolation level, last stable offset, aborted transactions; format v2 may be returned, below 4 the broker
    converts down.
  5: `log_start_offset`, of the follower and in the reply.
  7: sessions, with `forgotten_topics_data`.
  8: throttled clients get the reply at once.
  9: `current_leader_epoch` fences stale clients.
  10: zstd may be returned.
  11: `rack_id`, and the reply may prefer a closer replica.
  12: flexible; `last_fetched_epoch` and `diverging_epoch` let the leader find a diverging log within the fetch
    itself.
  13: topic ids instead of names.
  14: OFFSET_MOVED_TO_TIERED_STORAGE may come.
  15: replica id and its epoch move into the tagged `replica_state`.
  16: addresses of newer leaders.
  17: the replica's directory id, for the quorum.
  18: the replica's high watermark.
"""

from __future__ import annotations

from typing import Any

from stratalog.base.types import MAX_INT32, MAX_INT64, Uuid
from stratalog.protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    tag,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32(since=15, default=-1)
    replica_epoch: int = int64(since=15, default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = tag(0, uuid(ignorable=True), since=17)
    high_watermark: int = tag(1, int64(default=MAX_INT64, ignorable=True), since=18)


class FetchTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(since=7, until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[int] = array(int32, since=7)


class FetchRequest(Message):
    api_key = 1
    versions = (0, 18)
    flexible = 12
    one_of_each = True

    cluster_id: str | None = tag(0, string(nullable=12, default=None, ignorable=True), since=12)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = tag(1, struct(ReplicaState), since=15)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(since=3, default=MAX_INT32, ignorable=True)
    isolation_level: int = int8(since=4, ignorable=True)
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7, rare=True)
    rack_id: str = string(since=11, ignorable=True, rare=True)


class EpochEndOffset(Struct):
    epoch: int = int32(since=12, default=-1)
    end_offset: int = int64(since=12, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(since=12, default=-1)
    leader_epoch: int = int32(since=12, default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64(since=4)
    first_offset: int = int64(since=4)


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(since=4, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = tag(0, struct(EpochEndOffset), since=12)
    current_leader: LeaderIdAndEpoch = tag(1, struct(LeaderIdAndEpoch), since=12)
    snapshot_id: SnapshotId = tag(2, struct(SnapshotId), since=12)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable=4, ignorable=True, rare=True
    )
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Any = records(nullable=0)


class FetchableTopicResponse(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32(since=16)
    host: str = string(since=16)
    port: int = int32(since=16)
    rack: str | None = string(since=16, nullable=16, default=None)


class FetchResponse(Message):
    api_key = 1
    versions = (0, 18)
    flexible = 12
    one_of_each = True

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = tag(0, array(NodeEndpoint), since=16)
