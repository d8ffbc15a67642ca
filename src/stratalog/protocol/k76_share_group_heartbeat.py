"""ShareGroupHeartbeat, API key 76.

Behaviour
  A member joins, stays in or leaves a share group; the reply gives its epoch and assignment.

Version notes
  1 is the first stable version; 0 was an early access form of Kafka 4.0.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Message):
    api_key = 76
    versions = (1, 1)
    flexible = 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable=0, default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable=0, default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Message):
    api_key = 76
    versions = (1, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    member_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=0, default=None)
