"""One classic group: its members, their votes, its generation.  Data with rules, no decisions about time.

`shard` owns it and decides when something happens; here is what may be true at a moment:

- a static member's instance id maps to exactly one member id, and that member is in the group;
- the leader is a member, or there is none and the group has no members;
- `joining` counts the members that wait for the end of a rebalance, `votes` how many members know a protocol;
- members keep the order in which they came: the leader's successor and the order of a join reply follow it.
"""

from __future__ import annotations

import struct

from stratalog.base.errors import ErrorCode
from stratalog.coordinator.group.disk import GroupValue, MemberValue
from stratalog.coordinator.group.events import JoinedMember
from stratalog.coordinator.group.states import DEAD, EMPTY, PREPARING, TRANSITIONS, GroupState
from stratalog.rsm.shard import Ticket

CONSUMER = "consumer"


class Member:
    """One member of a classic group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[tuple[str, bytes]],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Has not been in a generation yet: its session may end even while it waits."""
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    @property
    def is_waiting(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None


class ClassicGroup:
    """See the top of the file."""

    __slots__ = (
        "generation",
        "group_id",
        "has_new_member",
        "joining",
        "leader",
        "members",
        "pending",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_ms",
        "static",
        "subscribed",
        "unsynced",
        "votes",
    )

    def __init__(self, group_id: str, *, state: GroupState = EMPTY, state_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = DEAD
        self.state_ms = state_ms
        """Wall time of the last change of state, -1 where the log does not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, None] = {}
        """Member ids handed out, whose owners have not joined yet."""
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not asked for their assignment yet."""
        self.votes: dict[str, int] = {}
        self.joining = 0
        self.has_new_member = False
        self.subscribed: frozenset[str] | None = None
        """The topics of the members' subscriptions; None where they cannot be read."""

    # --- state ----------------------------------------------------------------------------------------------------

    def become(self, state: GroupState, wall_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_ms = wall_ms

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def all_have_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- members --------------------------------------------------------------------------------------------------

    def validate(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the owner of its instance id."""
        if instance_id is not None:
            owner = self.static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.joining += member.join_ticket is not None
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member or a pending id.  Whoever waits as this member must have been answered before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert not member.is_waiting
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """The owner of an instance id came back under a new member id: it takes over everything, the lead too."""
        old_id = self.static[instance_id]
        old = self.members.pop(old_id)
        assert not old.is_waiting
        new = Member(
            new_id,
            instance_id=instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        new.is_new = old.is_new
        self.members[new_id] = new
        self.static[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[new_id] = None
        return new

    def update(self, member: Member, protocols: list[tuple[str, bytes]], *, rebalance_ms: int, session_ms: int) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def set_join_ticket(self, member: Member, ticket: Ticket | None) -> None:
        self.joining += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader takes part in the coming generation; False when nobody does."""
        if self.leader is not None and self.members[self.leader].join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.member_id
                return True
        return False

    def joined_members(self) -> list[JoinedMember]:
        assert self.state is not PREPARING
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        ]

    # --- protocols ------------------------------------------------------------------------------------------------

    def _count(self, protocols: list[tuple[str, bytes]], step: int) -> None:
        votes = self.votes
        for name in dict(protocols):  # a name that is sent twice counts once
            count = votes.get(name, 0) + step
            if count:
                votes[name] = count
            else:
                del votes[name]

    def supports(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols may be in the group."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        if protocol_type != self.protocol_type:
            return False
        return any(self.votes.get(name, 0) == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that all know and most prefer: each member votes for the first of its list that all know.  A
        draw goes to the one that got its first vote earlier."""
        size = len(self.members)
        candidates = {name for name, count in self.votes.items() if count == size}
        assert candidates, f"group {self.group_id} has no protocol in common"
        ballots: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            ballots[choice] = ballots.get(choice, 0) + 1
        return max(ballots, key=lambda name: ballots[name])

    def next_generation(self, wall_ms: int) -> None:
        """The rebalance has its members.  Nobody there: the group is empty."""
        self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 1
        self.unsynced.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.subscribed = self._subscriptions()
            self.become(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol = None
            self.subscribed = self._subscriptions()
            self.become(EMPTY, wall_ms)

    # --- subscriptions --------------------------------------------------------------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        """Of a consumer group whose subscriptions cannot be read, everything is assumed."""
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    def _subscriptions(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            names = subscription_topics(member.metadata(self.protocol))
            if names is None:
                return None
            topics.update(names)
        return frozenset(topics)

    # --- the log --------------------------------------------------------------------------------------------------

    def to_value(self, assignments: dict[str, bytes]) -> GroupValue:
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=[
                MemberValue(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    @classmethod
    def from_value(cls, group_id: str, value: GroupValue) -> ClassicGroup:
        """A group as the log has it: stable when it has members.  Each knows the chosen protocol only, which is all
        that is stored."""
        group = cls(group_id, state=GroupState.STABLE if value.members else EMPTY, state_ms=value.state_ms)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        for stored in value.members:
            if stored.member_id in group.members or stored.instance_id in group.static:
                continue
            group.add(
                Member(
                    stored.member_id,
                    instance_id=stored.instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=stored.rebalance_timeout_ms,
                    session_timeout_ms=stored.session_timeout_ms,
                    protocols=[] if value.protocol is None else [(value.protocol, stored.subscription)],
                    assignment=stored.assignment,
                ),
                value.protocol_type or "",
            )
        if value.leader is not None and value.leader in group.members:
            group.leader = value.leader
        group.protocol_type = value.protocol_type or None
        group.subscribed = group._subscriptions()
        return group


_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


def subscription_topics(metadata: bytes) -> list[str] | None:
    """The topics in a member's metadata of the consumer protocol, any version; None when it does not follow it."""
    try:
        count = _INT.unpack_from(metadata, 2)[0]
        position = 6
        if not 0 <= count <= len(metadata):
            return None
        topics = []
        for _ in range(count):
            length = _SHORT.unpack_from(metadata, position)[0]
            stop = position + 2 + length
            if length < 0 or stop > len(metadata):
                return None
            topics.append(metadata[position + 2 : stop].decode())
            position = stop
        return topics
    except (struct.error, UnicodeDecodeError):
        return None
