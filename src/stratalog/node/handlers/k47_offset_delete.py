"""OffsetDelete (47): committed offsets of topics that the group does not subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k47_offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k47_offset_delete import OffsetDeleteRequest


def handle(node: Node, request: Request, now: Millis) -> Parked | OffsetDeleteResponse:
    body: OffsetDeleteRequest = request.body
    if not body.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
    parked = node.park(request)
    topics: list[tuple[str, list[int]]] = []
    unknown: list[OffsetDeleteResponseTopic] = []
    for asked in body.topics:
        topic = node.image.topic(asked.name)
        known: list[int] = []
        missing: list[OffsetDeleteResponsePartition] = []
        for partition in asked.partitions:
            index = partition.partition_index
            if topic is not None and index in topic.partitions:
                known.append(index)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        if known:
            topics.append((asked.name, known))
        if missing:
            unknown.append(OffsetDeleteResponseTopic(name=asked.name, partitions=missing))

    def done(reply: ev.DeleteOffsetsReply) -> None:
        if reply.error:
            parked.reply(OffsetDeleteResponse(error_code=reply.error, topics=[]))
            return
        answers = {
            name: [OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in partitions]
            for name, partitions in reply.topics
        }
        for topic in unknown:
            answers.setdefault(topic.name, []).extend(topic.partitions)
        parked.reply(
            OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in answers.items()
                ]
            )
        )

    node.groups.submit(ev.DeleteOffsets(done, body.group_id, topics), body.group_id)
    return parked
