"""AlterPartition, API key 56.

Behaviour
  A partition's leader asks the controller for another ISR. A lower partition epoch than the controller's is refused,
  so that it never acts on old news.

Version notes
  2: topic ids.
  3: the ISR with each broker's epoch (`new_isr_with_epochs`), which keeps a restarted broker out. Kafka 4 dropped
    0 and 1, and only brokers send this.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32(since=3)
    broker_epoch: int = int64(since=3, default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, until=2)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, since=3)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid(ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(Message):
    api_key = 56
    versions = (2, 3)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionDataResponse(Struct):
    kafka_name = "PartitionData"

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8(ignorable=True)
    partition_epoch: int = int32()


class TopicDataResponse(Struct):
    kafka_name = "TopicData"

    topic_id: Uuid = uuid(ignorable=True)
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class AlterPartitionResponse(Message):
    api_key = 56
    versions = (2, 3)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
