"""BeginQuorumEpoch, API key 53.

Behaviour
  A new leader of the quorum announces itself to the voters.

Version notes
  1: flexible; voter keys, the leader's addresses.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, tag, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    voter_directory_id: Uuid = uuid(since=1, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class BeginQuorumEpochRequest(Message):
    api_key = 53
    versions = (0, 1)
    flexible = 1

    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


class PartitionDataResponse(Struct):
    kafka_name = "PartitionData"

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicDataResponse(Struct):
    kafka_name = "TopicData"

    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class NodeEndpoint(Struct):
    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class BeginQuorumEpochResponse(Message):
    api_key = 53
    versions = (0, 1)
    flexible = 1

    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    node_endpoints: list[NodeEndpoint] = tag(0, array(NodeEndpoint), since=1)
