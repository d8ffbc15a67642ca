"""OffsetForLeaderEpoch, API key 23.

Behaviour
  Where a leader epoch ends in the leader's log: the start offset of the next larger epoch, or the log's end. A
  follower truncates by it, a consumer finds out that its position was cut away.

Version notes
  0: end offset only.
  1: also the epoch that the answer is for, the largest one not above the asked.
  2: `current_leader_epoch` for fencing, throttle time.
  3: replica id, -2 for a consumer.
  4: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message):
    api_key = 23
    versions = (0, 4)
    flexible = 4
    one_of_each = True

    replica_id: int = int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message):
    api_key = 23
    versions = (0, 4)
    flexible = 4
    one_of_each = True

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
