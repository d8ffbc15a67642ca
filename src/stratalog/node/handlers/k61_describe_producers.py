"""61 DescribeProducers: the producers that a partition remembers: idempotent ones, and open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.controller.topics import why_bad_name
from stratalog.node.request import Request
from stratalog.protocol.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> DescribeProducersResponse:
    body: DescribeProducersRequest = request.body
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_partition(node, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in body.topics
        ]
    )


def _partition(node: Node, topic: str, index: int) -> PartitionResponse:
    partition = node.partitions.get((topic, index))
    if why_bad_name(topic) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=index, error_code=int(code), error_message=why_bad_name(topic))
    if partition is None:
        known = node.image.partition(topic, index) is not None
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(partition_index=index, error_code=int(code), error_message=None)
    if not partition.is_leader:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionResponse(partition_index=index, error_code=int(code), error_message=None)
    producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in partition.log.producers.entries.values()
    ]
    return PartitionResponse(partition_index=index, error_code=0, error_message=None, active_producers=producers)
