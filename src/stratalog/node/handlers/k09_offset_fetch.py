"""OffsetFetch (9): what groups have committed.

One group until version 7, several from 8 on; each is asked at its own coordinator partition and the answer leaves
when all have answered.  Null topics mean everything the group has.  Version 10 names topics by id: an id that is not
known is UNKNOWN_TOPIC_ID, and "everything" leaves out topics that are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k09_offset_fetch import OffsetFetchRequest

_NOT_AVAILABLE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: OffsetFetchRequest = request.body
    parked = node.park(request)
    if request.version < 8:
        topics = None
        if body.topics is not None:
            topics = [(topic.name, ZERO_UUID, list(topic.partition_indexes)) for topic in body.topics]

        def done(reply: ev.FetchReply) -> None:
            parked.reply(_one_group(request.version, body, reply))

        event = ev.FetchOffsets(done, body.group_id, topics, body.require_stable)
        node.groups.submit(event, body.group_id)
        return parked

    by_id = request.version >= 10
    response = OffsetFetchResponse(groups=[])
    waiting = len(body.groups)
    if not waiting:
        parked.reply(response)
        return parked
    for asked in body.groups:
        answer = OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=0)
        response.groups.append(answer)
        topics = None
        unknown: list[OffsetFetchResponseTopics] = []
        if asked.topics is not None:
            topics = []
            for topic in asked.topics:
                name, topic_id = topic.name, ZERO_UUID
                if by_id:
                    image = node.image.topic_of(topic.topic_id)
                    if image is None:
                        unknown.append(_unknown(topic.topic_id, topic.partition_indexes))
                        continue
                    name, topic_id = image.name, topic.topic_id
                topics.append((name, topic_id, list(topic.partition_indexes)))

        def group_done(
            reply: ev.FetchReply,
            answer: OffsetFetchResponseGroup = answer,
            unknown: list[OffsetFetchResponseTopics] = unknown,
        ) -> None:
            nonlocal waiting
            _fill(node, answer, reply, by_id)
            answer.topics += unknown
            waiting -= 1
            if not waiting:
                parked.reply(response)

        event = ev.FetchOffsets(
            group_done, asked.group_id, topics, body.require_stable, asked.member_id, asked.member_epoch
        )
        node.groups.submit(event, asked.group_id)
    return parked


def _fill(node: Node, answer: OffsetFetchResponseGroup, reply: ev.FetchReply, by_id: bool) -> None:
    answer.error_code = _told(reply.error)
    for name, topic_id, partitions in reply.topics:
        if by_id and topic_id == ZERO_UUID:
            topic = node.image.topic(name)
            if topic is None:
                continue
            topic_id = topic.id
        answer.topics.append(
            OffsetFetchResponseTopics(
                name="" if by_id else name,
                topic_id=topic_id if by_id else ZERO_UUID,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=found.partition,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=found.error,
                    )
                    for found in partitions
                ],
            )
        )


def _unknown(topic_id: Uuid, indexes: Any) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in indexes
        ],
    )


def _one_group(version: int, body: OffsetFetchRequest, reply: ev.FetchReply) -> OffsetFetchResponse:
    code = _told(reply.error)
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=found.partition,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=found.error,
                )
                for found in partitions
            ],
        )
        for name, _, partitions in reply.topics
    ]
    if code and version < 2:
        # There is no place for the group's error: every partition carries it.
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in body.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=code if version >= 2 else 0)


def _told(error: ErrorCode) -> ErrorCode:
    """Consumers before 3.9 do not know COORDINATOR_NOT_AVAILABLE here; all know NOT_COORDINATOR."""
    return ErrorCode.NOT_COORDINATOR if error in _NOT_AVAILABLE else error
