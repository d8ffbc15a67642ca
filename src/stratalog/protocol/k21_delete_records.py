"""DeleteRecords, API key 21.

Behaviour
  Moves the log start offset of partitions forward; -1 stands for the high watermark. The leader replies when all live
  replicas have done it. The answer is the new low watermark.

Version notes
  1: throttled clients get the reply at once.
  2: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message):
    api_key = 21
    versions = (0, 2)
    flexible = 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message):
    api_key = 21
    versions = (0, 2)
    flexible = 2

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
