"""35 DescribeLogDirs: this broker's data directories, and how much of each partition is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.admin import by_topic
from stratalog.node.request import Request
from stratalog.protocol.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> DescribeLogDirsResponse:
    body: DescribeLogDirsRequest = request.body
    wanted = None if body.topics is None else by_topic((t.topic, t.partitions) for t in body.topics)
    results = []
    for directory in node.logs.directories:
        if directory.failure is not None:
            results.append(
                DescribeLogDirsResult(error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=directory.path, topics=[])
            )
            continue
        found: dict[str, list[DescribeLogDirsPartition]] = {}
        for (topic, partition), log in directory.logs.items():
            if wanted is not None and partition not in wanted.get(topic, ()):
                continue
            found.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=partition, partition_size=log.size, offset_lag=0, is_future_key=False
                )
            )
        for (topic, partition), log in directory.futures.items():
            if wanted is None or partition in wanted.get(topic, ()):
                lag = 0 if node.moves is None else node.moves.lag((topic, partition))
                found.setdefault(topic, []).append(
                    DescribeLogDirsPartition(
                        partition_index=partition, partition_size=log.size, offset_lag=lag, is_future_key=True
                    )
                )
        result = DescribeLogDirsResult(
            error_code=0,
            log_dir=directory.path,
            topics=[DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in found.items()],
            is_cordoned="*" in node.logs.cordoned or directory.path in node.logs.cordoned,
        )
        try:
            result.usable_bytes = node.disk.free_bytes(directory.path)
            result.total_bytes = _total_bytes(node, directory.path, result.usable_bytes)
        except OSError:
            result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
        results.append(result)
    return DescribeLogDirsResponse(error_code=0, results=results)


def _total_bytes(node: Node, path: str, usable: int) -> int:
    """The volume's size where the disk knows it; the port only promises what is free."""
    total = getattr(node.disk, "total_bytes", None)
    return int(total(path)) if total is not None else -1
