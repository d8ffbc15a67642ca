"""CreateTopics, API key 19.

Behaviour
  Creates topics, by counts or by an explicit assignment of replicas, with configuration; each topic succeeds or fails
  for itself. Brokers forward it to the controller, which replies once the records are committed and, within
  `timeout_ms`, the topic can be used. `validate_only` checks and changes nothing.

Version notes
  0: names and error codes.
  1: `validate_only`, error messages.
  2: throttle time.
  4: -1 for partitions and replication factor means the broker's default.
  5: flexible; the reply describes the topic with its configuration.
  6: THROTTLING_QUOTA_EXCEEDED may come.
  7: the topic's id.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string, tag, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=0)


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message):
    api_key = 19
    versions = (0, 7)
    flexible = 5

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(since=1)


class CreatableTopicConfigs(Struct):
    name: str = string(since=5)
    value: str | None = string(since=5, nullable=5)
    read_only: bool = boolean(since=5)
    config_source: int = int8(since=5, default=-1, ignorable=True)
    is_sensitive: bool = boolean(since=5)


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: Uuid = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable=0, ignorable=True)
    topic_config_error_code: int = tag(0, int16(ignorable=True), since=5)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, nullable=5, ignorable=True)


class CreateTopicsResponse(Message):
    api_key = 19
    versions = (0, 7)
    flexible = 5

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
