"""ConsumerGroupHeartbeat, API key 68.

Behaviour
  The one request of the consumer protocol (KIP-848): a member joins (epoch 0), stays, or leaves (-1, or -2 for a
  static one that will be back). It sends what changed; the reply gives its epoch and, when it changed, its
  assignment, which the coordinator has computed.

Version notes
  0: the coordinator may choose the member id.
  1: subscription by regular expression; the client chooses its member id.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, struct, uuid


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Message):
    api_key = 68
    versions = (0, 1)
    flexible = 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable=1, default=None)
    server_assignor: str | None = string(nullable=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0, default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message):
    api_key = 68
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    member_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=0, default=None)
