"""OffsetCommit (8): a group's member, or a program of its own (generation -1), says how far it has read.

Topics that do not exist are refused here, each partition by itself; the rest goes to the group's coordinator, whose
answer comes once the log has the offsets.  Version 10 names topics by id, earlier ones by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k08_offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k08_offset_commit import OffsetCommitRequest


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: OffsetCommitRequest = request.body
    by_id = request.version >= 10
    image = node.image
    topics: list[ev.CommitTopic] = []
    answers: dict[str | Uuid, list[OffsetCommitResponsePartition]] = {}
    places: list[list[OffsetCommitResponsePartition]] = []
    for asked in body.topics:
        topic = image.topic_of(asked.topic_id) if by_id else image.topic(asked.name)
        missing = ErrorCode.NONE
        if topic is None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.setdefault(asked.topic_id if by_id else asked.name, [])
        known: list[OffsetCommitResponsePartition] = []
        offsets: list[ev.OffsetToCommit] = []
        for partition in asked.partitions:
            index = partition.partition_index
            entry = OffsetCommitResponsePartition(partition_index=index, error_code=missing)
            # A topic is told once, however often it is named.
            answers.setdefault(asked.topic_id if by_id else asked.name, []).append(entry)
            if topic is None:
                continue
            if index not in topic.partitions:
                entry.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            known.append(entry)
            offsets.append(
                ev.OffsetToCommit(
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                )
            )
        if topic is not None and offsets:
            topics.append(ev.CommitTopic(topic.name, topic.id, offsets))
            places.append(known)
    parked = node.park(request)
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="" if isinstance(key, Uuid) else key,
                topic_id=key if isinstance(key, Uuid) else ZERO_UUID,
                partitions=entries,
            )
            for key, entries in answers.items()
        ]
    )

    def done(reply: ev.CommitReply) -> None:
        for entries, codes in zip(places, reply.partitions, strict=True):
            for entry, code in zip(entries, codes, strict=True):
                entry.error_code = code
        parked.reply(response)

    if not topics:
        parked.reply(response)
        return parked
    event = ev.CommitOffsets(
        done,
        body.group_id,
        topics,
        member_id=body.member_id,
        generation=body.generation_id_or_member_epoch,
        instance_id=body.group_instance_id,
        retention_ms=body.retention_time_ms,
        names_missing_groups=request.version >= 9,
    )
    node.groups.submit(event, body.group_id)
    return parked
