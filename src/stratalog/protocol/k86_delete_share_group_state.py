"""DeleteShareGroupState, API key 86.

Behaviour
  The group coordinator deletes the state of share partitions.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class PartitionData(Struct):
    partition: int = int32()


class DeleteStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Message):
    api_key = 86
    versions = (0, 0)
    flexible = 0

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Message):
    api_key = 86
    versions = (0, 0)
    flexible = 0

    results: list[DeleteStateResult] = array(DeleteStateResult)
