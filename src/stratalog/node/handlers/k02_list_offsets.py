"""2 ListOffsets: the offset that belongs to a timestamp, or to one of the special ones.

    -1 latest (high watermark; last stable offset for read_committed)    -4 earliest local, from version 8
    -2 earliest                                                          -5 end of what is tiered, from version 9
    -3 greatest timestamp, from version 7                                -6 first that waits for upload, from version 11

Version 0 asks for up to `max_num_offsets` segment starts before a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.node.request import Request
from stratalog.protocol.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from stratalog.replication.partition import Partition
from stratalog.storage.values import Isolation

if TYPE_CHECKING:
    from stratalog.node.node import Node

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The version from which a special timestamp is one."""


def handle(node: Node, request: Request, now: Millis) -> ListOffsetsResponse:
    body: ListOffsetsRequest = request.body
    if body.replica_id >= 0:
        return refuse_body(body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    isolation = Isolation.TXN_COMMITTED if body.isolation_level == 1 else Isolation.HIGH_WATERMARK
    if body.replica_id == -2:
        isolation = Isolation.LOG_END  # the debugging consumer sees what is written
    asked: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in body.topics:
        for row in topic.partitions:
            key = (topic.name, row.partition_index)
            (twice if key in asked else asked).add(key)
    said: set[tuple[str, int]] = set()
    responses: dict[str, list[ListOffsetsPartitionResponse]] = {}
    for topic in body.topics:
        for row in topic.partitions:
            rows = responses.setdefault(topic.name, [])  # a topic is told once, however often it is named
            if (topic.name, row.partition_index) in twice:
                if (topic.name, row.partition_index) not in said:  # once: clients look it up by name
                    said.add((topic.name, row.partition_index))
                    rows.append(_error(row, ErrorCode.INVALID_REQUEST))
                continue
            if request.version > 0 and not _is_known(row.timestamp, request.version):
                rows.append(_error(row, ErrorCode.UNSUPPORTED_VERSION))
                continue
            partition = node.partitions.get((topic.name, row.partition_index))
            if partition is None:
                rows.append(_error(row, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            code = partition.check_leader(row.current_leader_epoch)
            if code:
                rows.append(_error(row, code))
                continue
            try:
                if request.version == 0:
                    rows.append(_old(partition, row))
                else:
                    rows.append(_one(partition, row, isolation, request.version))
            except ApiError as error:
                rows.append(_error(row, error.code))
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=rows) for name, rows in responses.items()]
    )


def _is_known(timestamp: int, version: int) -> bool:
    """Whether the version has a meaning for the timestamp."""
    return timestamp >= EARLIEST or _SINCE.get(timestamp, version + 1) <= version


def _one(
    partition: Partition, row: ListOffsetsPartition, isolation: Isolation, version: int
) -> ListOffsetsPartitionResponse:
    log = partition.log
    timestamp = row.timestamp
    found = (-1, -1, -1)  # timestamp, offset, leader epoch
    if timestamp == LATEST:
        found = (-1, partition.bound(isolation), partition.leader_epoch)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        if timestamp == EARLIEST_PENDING_UPLOAD:
            return _answer(row, found, version)  # nothing is tiered: nothing waits
        offset = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
        found = (-1, offset, _epoch_of(partition, offset))
    elif timestamp == LATEST_TIERED:
        pass
    else:
        hit = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if hit is not None and hit.offset < partition.bound(isolation):
            found = (hit.timestamp, hit.offset, hit.leader_epoch)
    return _answer(row, found, version)


def _answer(row: ListOffsetsPartition, found: tuple[int, int, int], version: int) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    response = ListOffsetsPartitionResponse(
        partition_index=row.partition_index, error_code=0, timestamp=timestamp, offset=offset
    )
    if version >= 4:
        response.leader_epoch = epoch
    return response


def _epoch_of(partition: Partition, offset: int) -> int:
    """The leader epoch in which the record at an offset was written, as far as the epoch cache tells."""
    log = partition.log
    if offset >= log.log_end_offset:
        return partition.leader_epoch
    epoch = log.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch


def _old(partition: Partition, row: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Version 0: starts of segments that began before the time, newest first, the high watermark in front."""
    log = partition.log
    bound = log.high_watermark
    segments = log.segments
    starts: list[tuple[int, int]] = [
        (max(segment.base_offset, log.log_start_offset), segment.file.mtime_ms()) for segment in segments
    ]
    if segments and segments[-1].size > 0:
        starts.append((bound, MAX_MODIFIED))
    if row.timestamp == LATEST:
        chosen = len(starts) - 1
    elif row.timestamp == EARLIEST:
        chosen = 0
    else:
        chosen = -1
        for number, (_, modified) in enumerate(starts):
            if modified <= row.timestamp:
                chosen = number
    offsets = [min(starts[number][0], bound) for number in range(chosen, -1, -1)][: max(row.max_num_offsets, 0)]
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index, error_code=0, old_style_offsets=sorted(offsets, reverse=True)
    )


MAX_MODIFIED: Final = 1 << 62


def _error(row: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=int(code))


def refuse_body(body: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_error(row, code) for row in topic.partitions])
            for topic in body.topics
        ]
    )


def refuse(node: Node, request: Request, code: ErrorCode) -> ListOffsetsResponse:
    """`Node.refusals`."""
    assert request.frame is not None
    return refuse_body(ListOffsetsRequest.decode(request.frame[request.position :], request.version), code)
