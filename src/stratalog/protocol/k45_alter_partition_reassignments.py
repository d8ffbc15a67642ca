"""AlterPartitionReassignments, API key 45.

Behaviour
  Starts a move of partitions to other replicas; null replicas cancel one.

Version notes
  1: may forbid a change of the replication factor.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable=0, default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message):
    api_key = 45
    versions = (0, 1)
    flexible = 0

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message):
    api_key = 45
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
