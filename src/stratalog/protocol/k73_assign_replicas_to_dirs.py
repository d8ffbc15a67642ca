"""AssignReplicasToDirs, API key 73.

Behaviour
  A broker tells the controller in which directory each replica lives.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: Uuid = uuid()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(Message):
    api_key = 73
    versions = (0, 0)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class PartitionDataResponse(Struct):
    kafka_name = "PartitionData"

    partition_index: int = int32()
    error_code: int = int16()


class TopicDataResponse(Struct):
    kafka_name = "TopicData"

    topic_id: Uuid = uuid()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class DirectoryDataResponse(Struct):
    kafka_name = "DirectoryData"

    id: Uuid = uuid()
    topics: list[TopicDataResponse] = array(TopicDataResponse)


class AssignReplicasToDirsResponse(Message):
    api_key = 73
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryDataResponse] = array(DirectoryDataResponse)
