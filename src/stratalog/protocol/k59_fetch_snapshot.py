"""FetchSnapshot, API key 59.

Behaviour
  A chunk of a snapshot of the metadata log, by its end offset and epoch, from a byte position on.

Version notes
  1: directory id of the replica, the leader's address.
"""

from __future__ import annotations

from typing import Any

from stratalog.base.types import MAX_INT32, Uuid
from stratalog.protocol.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    tag,
    uint16,
    uuid,
)


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: Uuid = tag(0, uuid(ignorable=True), since=1)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(Message):
    api_key = 59
    versions = (0, 1)
    flexible = 0

    cluster_id: str | None = tag(0, string(nullable=0, default=None), since=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=MAX_INT32)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionSnapshotResponse(Struct):
    kafka_name = "PartitionSnapshot"

    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = tag(0, struct(LeaderIdAndEpoch), since=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Any = records()


class TopicSnapshotResponse(Struct):
    kafka_name = "TopicSnapshot"

    name: str = string()
    partitions: list[PartitionSnapshotResponse] = array(PartitionSnapshotResponse)


class NodeEndpoint(Struct):
    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class FetchSnapshotResponse(Message):
    api_key = 59
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[TopicSnapshotResponse] = array(TopicSnapshotResponse)
    node_endpoints: list[NodeEndpoint] = tag(0, array(NodeEndpoint), since=1)
