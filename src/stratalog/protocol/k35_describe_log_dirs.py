"""DescribeLogDirs, API key 35.

Behaviour
  The directories of the broker that it is sent to, with the size and lag of each replica in them, future replicas
  included. Null topics mean all.

Version notes
  0 and 1 look the same.
  2: flexible.
  3: an error for the whole reply.
  4: size of the volume and what is usable of it.
  5: whether the directory is closed to new replicas.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message):
    api_key = 35
    versions = (0, 5)
    flexible = 2

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(Message):
    api_key = 35
    versions = (0, 5)
    flexible = 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
