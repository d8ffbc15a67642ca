"""23 OffsetForLeaderEpoch: where a leader epoch ends in the leader's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.request import Request
from stratalog.protocol.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> OffsetForLeaderEpochResponse:
    body: OffsetForLeaderEpochRequest = request.body
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_one(node, topic.topic, row) for row in topic.partitions]
            )
            for topic in body.topics
        ]
    )


def _one(node: Node, topic: str, row: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.partitions.get((topic, row.partition))
    if partition is None:
        return EpochEndOffset(error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), partition=row.partition)
    code = partition.check_leader(row.current_leader_epoch)
    if code:
        return EpochEndOffset(error_code=int(code), partition=row.partition)
    epoch, end = partition.end_offset_for(row.leader_epoch)
    return EpochEndOffset(error_code=0, partition=row.partition, leader_epoch=epoch, end_offset=end)
