"""21 DeleteRecords: move the log start of partitions forward; -1 stands for the high watermark.

Refused where the topic is only compacted: deleting by offset would take a key's latest value without leaving a
tombstone.  Parked fetches below the new start learn of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.node.request import Parked, Request
from stratalog.protocol.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Parked:
    """Answered when the new starts are on the disk: a crash must not bring back what a client was told is gone.  Where
    they cannot be written (a full disk) the client is told so, and may ask again."""
    body: DeleteRecordsRequest = request.body
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_one(node, topic.name, row.partition_index, row.offset, now) for row in topic.partitions],
            )
            for topic in body.topics
        ]
    )
    parked = node.park(request)
    moved = [
        (topic.name, row.partition_index) for topic in response.topics for row in topic.partitions if not row.error_code
    ]

    def persisted(failure: OSError | None) -> None:
        if failure is not None:
            for topic in response.topics:
                topic.partitions = [
                    row if row.error_code else _error(row.partition_index, ErrorCode.KAFKA_STORAGE_ERROR)
                    for row in topic.partitions
                ]
        parked.reply(response)

    node.logs.persist_log_starts(moved, persisted)
    return parked


def _one(node: Node, topic: str, index: int, offset: int, now: Millis) -> DeleteRecordsPartitionResult:
    partition = node.partitions.get((topic, index))
    if partition is None:
        return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.internal:
        return _error(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    code = partition.check_leader(-1)
    if code:
        return _error(index, code)
    config = partition.log.config
    if config.compact and not config.delete:
        return _error(index, ErrorCode.POLICY_VIOLATION)
    try:
        low = partition.log.delete_records(offset)
    except ApiError as error:
        return _error(index, error.code)
    for waiter in list(partition.waiters):
        waiter.recheck(now)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low, error_code=0)


def _error(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=int(code))
