"""Whole requests answered with one error, for the APIs whose answers have no error at their top, or none in all
versions.  The others have `refuse` in their handler, or `Node.error_response`.

Only tests ask for this (`Node.refusals`); it is imported with the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.node.admin import body_of
from stratalog.node.request import Request
from stratalog.protocol import k08_offset_commit as k08
from stratalog.protocol import k09_offset_fetch as k09
from stratalog.protocol import k10_find_coordinator as k10
from stratalog.protocol import k15_describe_groups as k15
from stratalog.protocol import k21_delete_records as k21
from stratalog.protocol import k23_offset_for_leader_epoch as k23
from stratalog.protocol import k34_alter_replica_log_dirs as k34
from stratalog.protocol import k42_delete_groups as k42
from stratalog.protocol import k61_describe_producers as k61


def answer(request: Request, code: ErrorCode) -> Any | None:
    """The refusal, None for an API that is none of these."""
    make = _ANSWERS.get(request.key)
    return None if make is None else make(request, int(code))


def _offset_commit(request: Request, code: int) -> Any:
    body = body_of(request, k08.OffsetCommitRequest)
    return k08.OffsetCommitResponse(
        topics=[
            k08.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    k08.OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
                    for row in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _offset_fetch(request: Request, code: int) -> Any:
    body = body_of(request, k09.OffsetFetchRequest)
    if request.version >= 8:
        groups = [
            k09.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code, topics=[]) for group in body.groups
        ]
        return k09.OffsetFetchResponse(groups=groups)
    topics = [
        k09.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                k09.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in body.topics or ()
    ]
    return k09.OffsetFetchResponse(topics=topics, error_code=code)


def _find_coordinator(request: Request, code: int) -> Any:
    body = body_of(request, k10.FindCoordinatorRequest)
    if request.version < 4:
        return k10.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    keys = [k10.Coordinator(key=key, node_id=-1, port=-1, error_code=code) for key in body.coordinator_keys]
    return k10.FindCoordinatorResponse(coordinators=keys)


def _describe_groups(request: Request, code: int) -> Any:
    body = body_of(request, k15.DescribeGroupsRequest)
    groups = [k15.DescribedGroup(group_id=group, error_code=code) for group in body.groups]
    return k15.DescribeGroupsResponse(groups=groups)


def _delete_records(request: Request, code: int) -> Any:
    body = body_of(request, k21.DeleteRecordsRequest)
    topics = [
        k21.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                k21.DeleteRecordsPartitionResult(partition_index=row.partition_index, low_watermark=-1, error_code=code)
                for row in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return k21.DeleteRecordsResponse(topics=topics)


def _offset_for_leader_epoch(request: Request, code: int) -> Any:
    body = body_of(request, k23.OffsetForLeaderEpochRequest)
    topics = [
        k23.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[k23.EpochEndOffset(partition=row.partition, error_code=code) for row in topic.partitions],
        )
        for topic in body.topics
    ]
    return k23.OffsetForLeaderEpochResponse(topics=topics)


def _alter_replica_log_dirs(request: Request, code: int) -> Any:
    body = body_of(request, k34.AlterReplicaLogDirsRequest)
    results = [
        k34.AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[
                k34.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                for index in topic.partitions
            ],
        )
        for directory in body.dirs
        for topic in directory.topics
    ]
    return k34.AlterReplicaLogDirsResponse(results=results)


def _delete_groups(request: Request, code: int) -> Any:
    body = body_of(request, k42.DeleteGroupsRequest)
    results = [k42.DeletableGroupResult(group_id=group, error_code=code) for group in body.groups_names]
    return k42.DeleteGroupsResponse(results=results)


def _describe_producers(request: Request, code: int) -> Any:
    body = body_of(request, k61.DescribeProducersRequest)
    topics = [
        k61.TopicResponse(
            name=topic.name,
            partitions=[k61.PartitionResponse(partition_index=i, error_code=code) for i in topic.partition_indexes],
        )
        for topic in body.topics
    ]
    return k61.DescribeProducersResponse(topics=topics)


_ANSWERS: Final[dict[int, Callable[[Request, int], Any]]] = {
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    15: _describe_groups,
    21: _delete_records,
    23: _offset_for_leader_epoch,
    34: _alter_replica_log_dirs,
    42: _delete_groups,
    61: _describe_producers,
}
