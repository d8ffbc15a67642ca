"""DescribeQuorum, API key 55.

Behaviour
  Leader, epoch, high watermark, voters and observers of the metadata quorum with how far each has come. Only the
  leader answers; brokers forward it.

Version notes
  1: times of the last fetch and of the last time caught up.
  2: directory ids, addresses of the nodes, error messages.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Message):
    api_key = 55
    versions = (0, 2)
    flexible = 0

    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64(since=1, default=-1, ignorable=True)


class PartitionDataResponse(Struct):
    kafka_name = "PartitionData"

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicDataResponse(Struct):
    kafka_name = "TopicData"

    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class Listener(Struct):
    name: str = string(since=2)
    host: str = string(since=2)
    port: int = uint16(since=2)


class Node(Struct):
    node_id: int = int32(since=2)
    listeners: list[Listener] = array(Listener, since=2)


class DescribeQuorumResponse(Message):
    api_key = 55
    versions = (0, 2)
    flexible = 0

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, ignorable=True)
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    nodes: list[Node] = array(Node, since=2)
