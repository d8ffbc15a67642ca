"""WriteTxnMarkers, API key 27.

Behaviour
  From the transaction coordinator to leaders: append a commit or abort marker for a producer to these partitions. The
  reply has an error for each partition.

Version notes
  1: flexible.
  2: the transaction version under which the marker is written, for the check of its epoch. Kafka 4 dropped 0, and
    only brokers send this.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)


class WriteTxnMarkersRequest(Message):
    api_key = 27
    versions = (1, 2)
    flexible = 1

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message):
    api_key = 27
    versions = (1, 2)
    flexible = 1

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
