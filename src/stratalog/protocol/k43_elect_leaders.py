"""ElectLeaders, API key 43.

Behaviour
  Asks the controller to elect leaders: the preferred replica, or any live one (unclean). Null means all partitions.

Version notes
  0: preferred only.
  1: election type, an error for the whole reply.
  2: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Message):
    api_key = 43
    versions = (0, 2)
    flexible = 2

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message):
    api_key = 43
    versions = (0, 2)
    flexible = 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
