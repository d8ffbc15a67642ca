"""CreatePartitions, API key 37.

Behaviour
  Raises a topic's number of partitions to `count`, optionally with replicas for the new ones.

Version notes
  1: throttled clients get the reply at once.
  2: flexible.
  3: THROTTLING_QUOTA_EXCEEDED may come.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable=0)


class CreatePartitionsRequest(Message):
    api_key = 37
    versions = (0, 3)
    flexible = 2

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class CreatePartitionsResponse(Message):
    api_key = 37
    versions = (0, 3)
    flexible = 2

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
