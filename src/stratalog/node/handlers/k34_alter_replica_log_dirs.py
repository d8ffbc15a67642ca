"""34 AlterReplicaLogDirs: move replicas to other data directories of this broker.

The answer says that the move has begun (or why not); DescribeLogDirs shows the copy with its lag until it has taken the
replica's place.  Asking again for where the replica is ends a move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.node.request import Request
from stratalog.protocol.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> AlterReplicaLogDirsResponse:
    body: AlterReplicaLogDirsRequest = request.body
    answers: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in body.dirs:
        for topic in wanted.topics:
            rows = answers.setdefault(topic.name, [])
            for index in topic.partitions:
                code = _one(node, topic.name, index, wanted.path, now)
                rows.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code)))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in answers.items()]
    )


def _one(node: Node, topic: str, index: int, path: str, now: Millis) -> ErrorCode:
    if node.moves is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        node.moves.ask((topic, index), path, now)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
