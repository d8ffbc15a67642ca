"""ListOffsets, API key 2.

Behaviour
  Which offset belongs to a timestamp: the first record at or after it, or by a negative timestamp -1 the end, -2 the
  start, -3 the record with the largest timestamp, -4 the start of what is local, -5 the end of what is tiered, -6 the
  first offset that waits for upload. Goes to the leader. Nothing found is offset -1 with timestamp -1 and no error.

Version notes
  0: asks for up to `max_num_offsets` segment starts before a time and gets an array.
  1: one offset with its timestamp.
  2: isolation level; -1 then means the last stable offset for read_committed.
  4: leader epochs both ways.
  5: OFFSET_NOT_AVAILABLE while a new leader does not know its high watermark yet.
  6: flexible.
  7: -3.
  8: -4.
  9: -5.
  10: `timeout_ms`, for lookups that must go to remote storage.
  11: -6.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32(until=0, default=1)


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message):
    api_key = 2
    versions = (0, 11)
    flexible = 6
    one_of_each = True

    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, until=0)
    timestamp: int = int64(since=1, default=-1)
    offset: int = int64(since=1, default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message):
    api_key = 2
    versions = (0, 11)
    flexible = 6
    one_of_each = True

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
