"""What can happen to a group, and what is answered: plain values, free of any request version.

The handlers translate: several versions of one request become one event, one reply becomes several versions of one
response.  `ticket` is who waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.rsm.shard import Ticket

NONE = ErrorCode.NONE


# --- membership ---------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Join:
    ticket: Ticket
    group_id: str
    member_id: str
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    """A new dynamic member gets an id and must come again with it (version 4 on)."""
    can_skip_assignment: bool = True
    """The client understands `skip_assignment` (version 9 on)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinReply:
    error: ErrorCode = NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: list[JoinedMember] = field(default_factory=list)


@dataclass(slots=True)
class Sync:
    ticket: Ticket
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class SyncReply:
    error: ErrorCode = NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class Heartbeat:
    ticket: Ticket
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(slots=True)
class HeartbeatReply:
    error: ErrorCode = NONE


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None = None


@dataclass(slots=True)
class Leave:
    ticket: Ticket
    group_id: str
    members: list[Leaver]


@dataclass(slots=True)
class LeaveReply:
    error: ErrorCode = NONE
    members: list[tuple[Leaver, ErrorCode]] = field(default_factory=list)


# --- offsets ------------------------------------------------------------------------------------------------------
class OffsetToCommit(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(slots=True)
class CommitTopic:
    """One topic of a commit; the reply has the same topics and partitions in the same order."""

    name: str
    topic_id: Uuid
    partitions: list[OffsetToCommit]


@dataclass(slots=True)
class CommitOffsets:
    ticket: Ticket
    group_id: str
    topics: list[CommitTopic]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    retention_ms: int = -1
    names_missing_groups: bool = True
    """A missing group is GROUP_ID_NOT_FOUND (version 9 on), not ILLEGAL_GENERATION."""


@dataclass(slots=True)
class CommitReply:
    error: ErrorCode = NONE
    """For the group: every partition gets it."""
    partitions: list[list[ErrorCode]] = field(default_factory=list)
    """For each topic of the event, for each of its partitions."""


@dataclass(slots=True)
class FetchOffsets:
    ticket: Ticket
    group_id: str
    topics: list[tuple[str, Uuid, list[int]]] | None = None
    """None for everything that the group has."""
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = NONE


@dataclass(slots=True)
class FetchReply:
    error: ErrorCode = NONE
    topics: list[tuple[str, Uuid, list[FetchedOffset]]] = field(default_factory=list)


@dataclass(slots=True)
class DeleteOffsets:
    ticket: Ticket
    group_id: str
    topics: list[tuple[str, list[int]]]


@dataclass(slots=True)
class DeleteOffsetsReply:
    error: ErrorCode = NONE
    topics: list[tuple[str, list[tuple[int, ErrorCode]]]] = field(default_factory=list)


@dataclass(slots=True)
class ForgetTopics:
    """Topics were deleted: their offsets go.  Answered with None."""

    ticket: Ticket
    topics: list[tuple[str, Uuid]]


# --- groups -------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class DescribeGroup:
    ticket: Ticket
    group_id: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True)
class DescribeReply:
    """`error` GROUP_ID_NOT_FOUND where there is none; versions before 6 show that as a Dead group instead."""

    error: ErrorCode = NONE
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: list[DescribedMember] = field(default_factory=list)


@dataclass(slots=True)
class DeleteGroup:
    ticket: Ticket
    group_id: str


@dataclass(slots=True)
class DeleteGroupReply:
    error: ErrorCode = NONE


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str = "classic"


class Commit(NamedTuple):
    """A committed offset, as the log holds it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    """Only with a client that names a retention (versions 2 to 4 of OffsetCommit); -1 for the broker's rule."""
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1


Membership = Join | Sync | Heartbeat | Leave
Event = Membership | CommitOffsets | FetchOffsets | DeleteOffsets | ForgetTopics | DescribeGroup | DeleteGroup


def refusal(event: Event, error: ErrorCode) -> object:
    """The reply to an event that meets this error before any group is looked at."""
    match event:
        case Join():
            return JoinReply(error, member_id=event.member_id)
        case Sync():
            return SyncReply(error)
        case Heartbeat():
            return HeartbeatReply(error)
        case Leave():
            return LeaveReply(error)
        case CommitOffsets():
            return CommitReply(error, [[error] * len(topic.partitions) for topic in event.topics])
        case FetchOffsets():
            return FetchReply(error)
        case DeleteOffsets():
            return DeleteOffsetsReply(error)
        case DescribeGroup():
            return DescribeReply(error)
        case DeleteGroup():
            return DeleteGroupReply(error)
        case ForgetTopics():
            return None
