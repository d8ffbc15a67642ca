"""Records of `__remote_log_metadata`: the life of each segment in remote storage.

Each value is an envelope of three unsigned varints, the frame version 1, the record's id (`api_key` here) and its
version, and then the record.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int32,
    int64,
    string,
    struct,
    tag,
    uuid,
)


class TopicIdPartitionEntry(Struct):
    name: str = string()
    id: Uuid = uuid()
    partition: int = int32()


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    id: Uuid = uuid()


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = int32()
    offset: int = int64()


class RemoteLogSegmentMetadataRecord(Message):
    api_key = 0
    versions = (0, 0)
    flexible = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable=0, default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = tag(0, boolean(), since=0)


class RemoteLogSegmentMetadataUpdateRecord(Message):
    api_key = 1
    versions = (0, 0)
    flexible = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = bytes_(nullable=0, default=None)
    remote_log_segment_state: int = int8()


class RemotePartitionDeleteMetadataRecord(Message):
    api_key = 2
    versions = (0, 0)
    flexible = 0

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    api_key = 3
    versions = (0, 0)
    flexible = 0

    segment_id: Uuid = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable=0, default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = tag(0, boolean(), since=0)


RECORDS: dict[int, type[Message]] = {
    0: RemoteLogSegmentMetadataRecord,
    1: RemoteLogSegmentMetadataUpdateRecord,
    2: RemotePartitionDeleteMetadataRecord,
    3: RemoteLogSegmentMetadataSnapshotRecord,
}
"""Record id to its class."""
