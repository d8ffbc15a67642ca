"""DescribeShareGroupOffsets, API key 90.

Behaviour
  Start offsets of share groups. Null topics mean all of a group.

Version notes
  1: the lag.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[int] = array(int32)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable=0
    )


class DescribeShareGroupOffsetsRequest(Message):
    api_key = 90
    versions = (0, 1)
    flexible = 0

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class DescribeShareGroupOffsetsResponse(Message):
    api_key = 90
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
