"""What may be committed, what a fetch finds, what is deleted and what expires: decisions about offsets, as functions.

Pure; they look at groups and offsets and make records and replies, `shard` calls them.  G01 and GR-2 live in
`expiry_base`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID
from stratalog.coordinator.group import disk
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.classic import ClassicGroup
from stratalog.coordinator.group.config import GroupConfig
from stratalog.coordinator.group.offsets import Offsets
from stratalog.coordinator.group.states import COMPLETING, EMPTY, STABLE
from stratalog.rsm.shard import Record, Result, Ticket

NONE: Final = ErrorCode.NONE


@dataclass(slots=True)
class Answer:
    """A write that one client waits for: `Result.after` of everything here."""

    ticket: Ticket
    event: ev.Event
    reply: Any


# --- commit -------------------------------------------------------------------------------------------------------
def commit_error(group: ClassicGroup | None, event: ev.CommitOffsets) -> ErrorCode:
    """Whether this group takes this commit now."""
    if group is None:
        if event.generation < 0:
            return NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if event.names_missing_groups else ErrorCode.ILLEGAL_GENERATION
    if event.generation < 0 and group.state is EMPTY:
        return NONE
    if event.generation < 0 and event.member_id == "" and event.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID  # someone outside the group, while it has members
    error = group.validate(event.member_id, event.instance_id)
    if error is not NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is COMPLETING else NONE


def commit(event: ev.CommitOffsets, config: GroupConfig, wall_ms: int) -> Result:
    """The records of a commit that the group takes; a partition whose metadata is too long gets its own error."""
    expire_ms = wall_ms + event.retention_ms if event.retention_ms >= 0 else -1
    limit = config.offset_metadata_bytes_max
    records: list[Record] = []
    answers: list[list[ErrorCode]] = []
    for topic in event.topics:
        codes = []
        for partition, offset, leader_epoch, metadata in topic.partitions:
            if len(metadata) > limit:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(NONE)
            value = ev.Commit(offset, leader_epoch, metadata, wall_ms, expire_ms, topic.topic_id)
            records.append(disk.offset_record(event.group_id, topic.name, partition, value))
        answers.append(codes)
    return _answered(event, records, ev.CommitReply(NONE, answers))


def _answered(event: ev.Event, records: list[Record], reply: Any, *, is_atomic: bool = True) -> Result:
    """The reply once the records are committed, at once when there are none."""
    if not records:
        return Result(replies=[(event.ticket, reply)])
    return Result(records=records, after=Answer(event.ticket, event, reply), is_atomic=is_atomic)


# --- fetch --------------------------------------------------------------------------------------------------------
def fetch(event: ev.FetchOffsets, offsets: Offsets, depends_on: int) -> Result:
    """Committed offsets, as of now; the reply waits until what it tells of is committed.  `depends_on`: the newest
    deletion, of which the absence of an offset tells."""
    table = offsets.of(event.group_id)
    unstable = offsets.open_partitions(event.group_id) if event.require_stable else ()
    wanted: Iterable[tuple[str, Any, Iterable[int]]]
    if event.topics is None:
        by_topic: dict[str, list[int]] = {}
        for name, partition in table:
            by_topic.setdefault(name, []).append(partition)
        wanted = [(name, ZERO_UUID, partitions) for name, partitions in by_topic.items()]
    else:
        wanted = event.topics
    topics: list[tuple[str, Any, list[ev.FetchedOffset]]] = []
    for name, topic_id, partitions in wanted:
        found: list[ev.FetchedOffset] = []
        for partition in partitions:
            known = table.get((name, partition))
            if (name, partition) in unstable:
                found.append(ev.FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif known is None or (
                # An offset of an earlier topic of this name says nothing about this one.
                topic_id != ZERO_UUID and known.topic_id != ZERO_UUID and known.topic_id != topic_id
            ):
                found.append(ev.FetchedOffset(partition))
            else:
                found.append(ev.FetchedOffset(partition, known.offset, known.leader_epoch, known.metadata))
                depends_on = max(depends_on, known.record_offset)
        topics.append((name, topic_id, found))
    return Result(replies=[(event.ticket, ev.FetchReply(NONE, topics))], depends_on=depends_on)


# --- deletion -----------------------------------------------------------------------------------------------------
def delete_offsets(event: ev.DeleteOffsets, group: ClassicGroup | None, offsets: Offsets) -> Result:
    """Tombstones for topics that nobody in the group subscribes to."""
    if group is None or (group.state is not EMPTY and not group.uses_consumer_protocol):
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
        return Result(replies=[(event.ticket, ev.DeleteOffsetsReply(error))])
    records: list[Record] = []
    topics: list[tuple[str, list[tuple[int, ErrorCode]]]] = []
    for name, partitions in event.topics:
        if group.is_subscribed_to(name):
            topics.append((name, [(p, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for p in partitions]))
            continue
        topics.append((name, [(p, NONE) for p in partitions]))
        records += [
            disk.offset_tombstone(event.group_id, name, p) for p in partitions if offsets.has(event.group_id, name, p)
        ]
    return _answered(event, records, ev.DeleteOffsetsReply(NONE, topics))


def delete_group(event: ev.DeleteGroup, group: ClassicGroup | None, offsets: Offsets) -> Result:
    """Tombstones for all that a group without members has, its own the last."""
    if group is None or group.state is not EMPTY:
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
        return Result(replies=[(event.ticket, ev.DeleteGroupReply(error))])
    records = [disk.offset_tombstone(event.group_id, name, p) for name, p in offsets.keys(event.group_id)]
    records.append(disk.group_tombstone(event.group_id))
    return _answered(event, records, ev.DeleteGroupReply(), is_atomic=False)


def forget_topics(event: ev.ForgetTopics, offsets: Offsets) -> Result:
    """Tombstones for the offsets of topics that were deleted; those of a new topic of that name stay."""
    ids = dict(event.topics)
    records = [
        disk.offset_tombstone(group_id, name, partition)
        for group_id, name, partition, known in offsets.all()
        if name in ids and known.topic_id in (ZERO_UUID, ids[name])
    ]
    return _answered(event, records, None, is_atomic=False)


# --- expiry -------------------------------------------------------------------------------------------------------
def expired(groups: Mapping[str, ClassicGroup], offsets: Offsets, wall_ms: int, retention_ms: int) -> list[Record]:
    """Tombstones for what has expired, and for groups of which nothing is left."""
    records: list[Record] = []
    for group_id, group in groups.items():
        base = expiry_base(group)
        if base is None:
            continue
        unstable = offsets.open_partitions(group_id)
        is_all = not unstable
        for (name, partition), known in offsets.of(group_id).items():
            if known.expire_ms >= 0:
                is_expired = wall_ms >= known.expire_ms
            else:
                is_expired = wall_ms - base(known) >= retention_ms
            if not is_expired or group.is_subscribed_to(name) or (name, partition) in unstable:
                is_all = False
            else:
                records.append(disk.offset_tombstone(group_id, name, partition))
        if is_all and group.state is EMPTY and not group.pending:
            records.append(disk.group_tombstone(group_id))
    return records


def expiry_base(group: ClassicGroup) -> Callable[[ev.Commit], int] | None:
    """From when an offset's retention counts in this group; None while nothing may expire."""
    if group.protocol_type is None:
        return _committed if group.state is EMPTY else None
    if group.state is EMPTY:
        since = group.state_ms
        return (lambda _: since) if since >= 0 else _committed
    if group.state is STABLE and group.uses_consumer_protocol and group.subscribed is not None:
        return _committed
    return None


def _committed(known: ev.Commit) -> int:
    return known.commit_ms
