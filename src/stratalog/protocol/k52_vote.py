"""Vote, API key 52.

Behaviour
  A candidate of the metadata quorum asks for a vote, with its epoch and the end of its log. A voter grants one in an
  epoch, only to a log at least as long as its own; a pre-vote asks whether it would.

Version notes
  1: voter key and directory ids, leader's address in the reply.
  2: pre-vote.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string, tag, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid(since=1, ignorable=True)
    voter_directory_id: Uuid = uuid(since=1, ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean(since=2)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class VoteRequest(Message):
    api_key = 52
    versions = (0, 2)
    flexible = 0

    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)


class PartitionDataResponse(Struct):
    kafka_name = "PartitionData"

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class TopicDataResponse(Struct):
    kafka_name = "TopicData"

    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class NodeEndpoint(Struct):
    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class VoteResponse(Message):
    api_key = 52
    versions = (0, 2)
    flexible = 0

    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    node_endpoints: list[NodeEndpoint] = tag(0, array(NodeEndpoint), since=1)
