"""The groups and offsets of one partition of `__consumer_offsets`, as a state machine.

`handle(event, now) -> Result`, `deadline()`, `tick(now)`, `replay(record)`: see `rsm.shard` for what they promise.
Loop thread only.  Used from here: `classic` knows what a group is, `offsets` what was committed, `commits` decides
about offsets; this file is the rebalance, whose steps lean on each other too much to be cut (hence its length).

**What is in the log.**  Committed offsets are hard state: a commit makes a record, its replay changes the table.  Of a
classic group the log has the last generation that got its assignment; its record is written when the leader hands the
assignments in, when a static member comes back under a new id (G02), and when the group becomes empty.  A rebalance in
progress, sessions and waiting members are soft state: after a failover the members of the last stored generation are
taken for alive, and whoever does not heartbeat within its session is gone.

**No group gets stuck** (G03, G06): in every state that waits for a client there is a timer, listed in `_TIMERS`.

**Offsets do not expire under a live group** (G01, GR-2): only in an empty group, since it became empty; in a stable
consumer group, topics that nobody subscribes to; for a name that nobody ever joined, since the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import Malformed
from stratalog.base.ports import Rng
from stratalog.base.types import Millis
from stratalog.coordinator.group import commits, disk
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.classic import ClassicGroup, Member
from stratalog.coordinator.group.commits import Answer
from stratalog.coordinator.group.config import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBERS_MAX,
    GroupConfig,
)
from stratalog.coordinator.group.offsets import Offsets
from stratalog.coordinator.group.states import (
    CAN_REBALANCE,
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
)
from stratalog.rsm.shard import Logged, Now, Result, Ticket
from stratalog.rsm.timers import Timers

NONE: Final = ErrorCode.NONE


class Timer(Enum):
    """What a group may wait for.  A key of the shard's timers is (kind, group, member)."""

    SESSION = "session"
    """A member's next heartbeat, or a pending member's second join."""
    JOIN = "join"
    """The end of preparing a rebalance."""
    INITIAL = "initial"
    """The end of the delay before an empty group's first generation."""
    SYNC = "sync"
    """Everyone of a generation asking for its assignment."""
    CLEANUP = "cleanup"
    """The next look for expired offsets."""


TimerKey = tuple[Timer, str, str]
_CLEANUP_KEY: Final[TimerKey] = (Timer.CLEANUP, "", "")

WRITE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client is told of a write to the coordinator's log that failed: nothing about a log that it does not know."""


# --- continuations: what follows when a write is committed or has failed -------------------------------------------
@dataclass(slots=True)
class _Assigned:
    """The leader's assignments of a generation."""

    group_id: str
    generation: int
    assignments: dict[str, bytes]


@dataclass(slots=True)
class _Rejoined:
    """A static member's new id, in a stable group; what to go back to when it cannot be stored."""

    group_id: str
    generation: int
    instance_id: str
    new_id: str
    old_id: str
    old_leader: str | None
    old_protocols: list[tuple[str, bytes]]
    old_rebalance_ms: int
    old_session_ms: int
    can_skip: bool


class GroupShard:
    """See the top of the file."""

    def __init__(self, config: Callable[[], GroupConfig], rng: Rng) -> None:
        self._config = config
        self._rng = rng
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.timers: Timers[TimerKey] = Timers()
        self.records_ignored = 0
        """Records of types that this broker does not know (yet), left alone in the log."""
        self.records_malformed = 0
        self.rebalances = 0
        self._loading = True
        self._gone_at = -1  # the newest offset at which a group or an offset was deleted

        self._handlers: dict[type, Callable[[Any, Now], Result]] = {
            ev.Join: self._join,
            ev.Sync: self._sync,
            ev.Heartbeat: self._heartbeat,
            ev.Leave: self._leave,
            ev.CommitOffsets: self._commit,
            ev.FetchOffsets: self._fetch,
            ev.DeleteOffsets: self._delete_offsets,
            ev.ForgetTopics: self._forget_topics,
            ev.DescribeGroup: self._describe,
            ev.DeleteGroup: self._delete_group,
        }
        self._on_timer: dict[Timer, Callable[[str, str, Now], Result]] = {
            Timer.SESSION: self._session_expired,
            Timer.JOIN: self._join_time_is_up,
            Timer.INITIAL: self._initial_delay_is_over,
            Timer.SYNC: self._sync_time_is_up,
        }
        self._initial: dict[str, tuple[int, int]] = {}
        """Groups in their first rebalance: the running delay and what is left of the time to extend it."""

    # --- the contract of a shard ----------------------------------------------------------------------------------

    def handle(self, event: Any, now: Now) -> Result:
        return self._handlers[type(event)](event, now)

    def resume(self, after: Any, error: ErrorCode | None, now: Now) -> Result:
        if isinstance(after, Answer):
            if error is None:
                return Result(replies=[(after.ticket, after.reply)])
            code = WRITE_ERRORS.get(error, error)
            if isinstance(after.event, ev.CommitOffsets) and error in (
                ErrorCode.MESSAGE_TOO_LARGE,
                ErrorCode.RECORD_LIST_TOO_LARGE,
                ErrorCode.INVALID_FETCH_SIZE,
            ):
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return Result(replies=[(after.ticket, ev.refusal(after.event, code))])
        if isinstance(after, _Assigned):
            return self._assigned(after, error, now)
        assert isinstance(after, _Rejoined)
        return self._rejoined(after, error, now)

    def refuse(self, event: Any, error: ErrorCode) -> Any:
        return ev.refusal(event, error)

    def loaded(self, now: Now) -> Result:
        self._loading = False
        for group_id in self.offsets.groups():
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id)
        result = Result()
        config = self._config()
        for group in list(self.groups.values()):
            for member in group.members.values():
                self._heard_of(group, member, now)
            if len(group.members) > config.max_size:
                # The limit was lowered meanwhile: a rebalance, in which the surplus finds no place any more.
                self._prepare(group, now, result)
        self.timers.set(_CLEANUP_KEY, Millis(now.monotonic_ms + config.retention_check_interval_ms))
        return result

    def closed(self, error: ErrorCode) -> Result:
        result = Result()
        for group in self.groups.values():
            for member in group.members.values():
                self._answer_join(group, member, ev.JoinReply(error, member_id=member.member_id), result)
                self._answer_sync(member, ev.SyncReply(error), result)
        self.timers.clear()
        return result

    def deadline(self) -> Millis | None:
        return self.timers.deadline()

    def tick(self, now: Now) -> Iterator[Result]:
        for kind, group_id, member_id in self.timers.due(now.monotonic_ms):
            if kind is not Timer.CLEANUP:
                yield self._on_timer[kind](group_id, member_id, now)
                continue
            config = self._config()
            self.timers.set(_CLEANUP_KEY, Millis(now.monotonic_ms + max(config.retention_check_interval_ms, 1)))
            yield self.expire_offsets(now)

    # --- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: Logged) -> None:
        """Never refuses: what it cannot read it counts and leaves alone, so that one record of somebody else's does
        not take every group of the partition away (G04, G08)."""
        offset, key, value, producer_id = record
        try:
            kind = disk.key_type(key)
            if kind == disk.OFFSET_COMMIT or kind == disk.OFFSET_COMMIT_LEGACY:
                group_id, topic, partition = disk.read_offset_key(key)
                if value is None:
                    self.offsets.remove(group_id, topic, partition)
                    self._gone_at = offset
                else:
                    self.offsets.put(group_id, topic, partition, disk.read_offset_value(value, offset), producer_id)
                    if not self._loading and group_id not in self.groups:
                        self.groups[group_id] = ClassicGroup(group_id)
            elif kind == disk.GROUP_METADATA:
                group_id = disk.read_group_key(key)
                if value is None:
                    self._gone_at = offset
                    self._drop(group_id)
                else:
                    self.groups[group_id] = ClassicGroup.from_value(group_id, disk.read_group_value(value))
            else:
                self.records_ignored += 1
        except Malformed:
            self.records_malformed += 1

    def replay_many(self, records: Iterable[Logged]) -> None:
        """A log that is not compacted yet has many commits for one key: only the last of this stretch is decoded.
        Records in transactions are not shortened that way, they count when their transaction does."""
        latest: dict[bytes, Logged] = {}
        for record in records:
            if record[3] < 0:
                latest[record[1]] = record
                continue
            for kept in latest.values():
                self.replay(kept)
            latest.clear()
            self.replay(record)
        for kept in latest.values():
            self.replay(kept)

    def replay_end_of_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_of_transaction(producer_id, committed)
        if not self._loading:
            for group_id in self.offsets.groups():
                if group_id not in self.groups:
                    self.groups[group_id] = ClassicGroup(group_id)

    def _drop(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        if not self._loading:
            assert group.state is EMPTY, f"group {group_id} is deleted while it is {group.state}"
            for member_id in group.pending:
                self.timers.cancel((Timer.SESSION, group_id, member_id))
            self._initial.pop(group_id, None)
        group.state = DEAD

    # --- join -----------------------------------------------------------------------------------------------------

    def _join(self, event: ev.Join, now: Now) -> Result:
        result = Result()
        config = self._config()
        if not event.group_id:
            return self._join_refused(event, ErrorCode.INVALID_GROUP_ID, result)
        if not config.min_session_timeout_ms <= event.session_timeout_ms <= config.max_session_timeout_ms:
            return self._join_refused(event, ErrorCode.INVALID_SESSION_TIMEOUT, result)
        is_first = event.member_id == ""
        group = self.groups.get(event.group_id)
        is_new_group = group is None
        if group is None:
            if not is_first:
                return self._join_refused(event, ErrorCode.UNKNOWN_MEMBER_ID, result)
            group = ClassicGroup(event.group_id, state_ms=now.wall_ms)
        if not self._has_room(group, event.member_id):
            if event.member_id in group.members:
                self._remove(group, event.member_id, result)
                self._complete_if_all_joined(group, now, result)
            event.member_id = ""
            return self._join_refused(event, ErrorCode.GROUP_MAX_SIZE_REACHED, result)
        if not group.supports(event.protocol_type, event.protocols):
            return self._join_refused(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, result)
        if is_first:
            self._join_first(group, event, now, result)
        elif event.member_id in group.pending:
            if event.instance_id is not None:
                return self._join_refused(event, ErrorCode.UNKNOWN_MEMBER_ID, result)
            self._add(group, event, event.member_id, now, result)
        else:
            error = group.validate(event.member_id, event.instance_id)
            if error is not NONE:
                return self._join_refused(event, error, result)
            self._join_again(group, event, now, result)
        if is_new_group:
            self.groups[event.group_id] = group
            if not result.records:
                # The group exists from now on, also for a coordinator that loads this log.
                empty = disk.GroupValue("", 0, None, None, group.state_ms)
                result.records.append(disk.group_record(event.group_id, empty))
                result.is_replayed = False
        return result

    def _join_refused(self, event: ev.Join, error: ErrorCode, result: Result) -> Result:
        result.replies.append((event.ticket, ev.JoinReply(error, member_id=event.member_id)))
        return result

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._config().max_size
        if group.state is PREPARING:
            member = group.members.get(member_id)
            return (member is not None and member.join_ticket is not None) or group.joining < limit
        if group.state in (COMPLETING, STABLE):
            return member_id in group.members or len(group.members) < limit
        return True

    def _join_first(self, group: ClassicGroup, event: ev.Join, now: Now, result: Result) -> None:
        """A client without a member id."""
        if event.instance_id is not None:
            new_id = self._new_member_id(event.instance_id)
            if event.instance_id in group.static:
                self._rejoin_static(group, event, new_id, now, result)
            else:
                self._add(group, event, new_id, now, result)
            return
        new_id = self._new_member_id(event.client_id)
        if not event.requires_member_id:
            self._add(group, event, new_id, now, result)
            return
        if len(group.pending) >= PENDING_MEMBERS_MAX:
            self._join_refused(event, ErrorCode.GROUP_MAX_SIZE_REACHED, result)
            return
        group.pending[new_id] = None
        self.timers.set((Timer.SESSION, group.group_id, new_id), Millis(now.monotonic_ms + event.session_timeout_ms))
        result.replies.append((event.ticket, ev.JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)))

    def _join_again(self, group: ClassicGroup, event: ev.Join, now: Now, result: Result) -> None:
        """A known member joins: to take part in a rebalance, to ask for one, or because an answer was lost."""
        member = group.members[event.member_id]
        if group.state is PREPARING:
            self._update(group, member, event, now, result)
        elif group.state is COMPLETING:
            if member.protocols != event.protocols:
                self._update(group, member, event, now, result)
            else:
                self._say_joined(group, member, event.ticket, result)
        elif group.state is STABLE:
            if group.leader == event.member_id or member.protocols != event.protocols:
                self._update(group, member, event, now, result)
            else:
                self._say_joined(group, member, event.ticket, result)
        else:
            self._join_refused(event, ErrorCode.UNKNOWN_MEMBER_ID, result)

    def _say_joined(self, group: ClassicGroup, member: Member, ticket: Ticket, result: Result) -> None:
        result.replies.append((ticket, self._join_reply(group, member)))

    def _join_reply(self, group: ClassicGroup, member: Member) -> ev.JoinReply:
        is_leader = group.leader == member.member_id
        return ev.JoinReply(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=group.joined_members() if is_leader and group.state is COMPLETING else [],
        )

    def _add(self, group: ClassicGroup, event: ev.Join, member_id: str, now: Now, result: Result) -> None:
        member = Member(
            member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            session_timeout_ms=event.session_timeout_ms,
            protocols=event.protocols,
        )
        member.is_new = True
        member.join_ticket = event.ticket
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.has_new_member = True
        group.add(member, event.protocol_type)
        self._session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS, now)
        self._rebalance_or_complete(group, now, result)

    def _update(self, group: ClassicGroup, member: Member, event: ev.Join, now: Now, result: Result) -> None:
        group.update(
            member, event.protocols, rebalance_ms=event.rebalance_timeout_ms, session_ms=event.session_timeout_ms
        )
        self._wait_for_join(group, member, event.ticket, result)
        self._rebalance_or_complete(group, now, result)

    def _wait_for_join(self, group: ClassicGroup, member: Member, ticket: Ticket, result: Result) -> None:
        if member.join_ticket is not None:
            # The same member on a new connection: the old request must not hang for ever.
            reply = ev.JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            result.replies.append((member.join_ticket, reply))
        group.set_join_ticket(member, ticket)

    def _rejoin_static(self, group: ClassicGroup, event: ev.Join, new_id: str, now: Now, result: Result) -> None:
        """A static member came back without its id.  In a stable group that needs no rebalance as long as the same
        protocol is chosen, but the log must know the new id, or a coordinator that loads it fences the member (G02)."""
        assert event.instance_id is not None
        old_id = group.static[event.instance_id]
        old = group.members[old_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(group, old, ev.JoinReply(fenced, member_id=old_id), result)
        self._answer_sync(old, ev.SyncReply(fenced), result)
        self.timers.cancel((Timer.SESSION, group.group_id, old_id))
        old_leader = group.leader
        member = group.replace_static(event.instance_id, new_id)
        after = _Rejoined(
            group.group_id,
            group.generation,
            event.instance_id,
            new_id,
            old_id,
            old_leader,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            event.can_skip_assignment,
        )
        group.update(
            member, event.protocols, rebalance_ms=event.rebalance_timeout_ms, session_ms=event.session_timeout_ms
        )
        group.set_join_ticket(member, event.ticket)
        self._heard_of(group, member, now)
        if group.state is STABLE:
            if group.select_protocol() == group.protocol:
                assignments = {m.member_id: m.assignment for m in group.members.values()}
                result.records.append(disk.group_record(group.group_id, group.to_value(assignments)))
                result.is_replayed = False
                result.after = after
            else:
                self._rebalance_or_complete(group, now, result)
        elif group.state is COMPLETING:
            self._prepare(group, now, result)
        else:
            assert group.state is PREPARING
            self._complete_if_all_joined(group, now, result)

    def _rejoined(self, after: _Rejoined, error: ErrorCode | None, now: Now) -> Result:
        """The new id of a static member is in the log, or is not."""
        result = Result()
        group = self.groups.get(after.group_id)
        if group is None or group.static.get(after.instance_id) != after.new_id:
            return result  # replaced again or removed meanwhile, and answered then
        member = group.members[after.new_id]
        if group.state is not STABLE or group.generation != after.generation or member.join_ticket is None:
            return result  # a rebalance has begun: it answers
        if error is not None:
            reply = ev.JoinReply(
                WRITE_ERRORS.get(error, error),
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                leader=after.old_leader or "",
            )
            self._answer_join(group, member, reply, result)
            self.timers.cancel((Timer.SESSION, group.group_id, after.new_id))
            member = group.replace_static(after.instance_id, after.old_id)
            group.update(
                member,
                after.old_protocols,
                rebalance_ms=after.old_rebalance_ms,
                session_ms=after.old_session_ms,
            )
            self._heard_of(group, member, now)
            return result
        reply = ev.JoinReply(
            member_id=after.new_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
        )
        if after.can_skip:
            is_leader = group.leader == after.new_id
            reply.leader = group.leader or ""
            reply.skip_assignment = is_leader
            reply.members = group.joined_members() if is_leader else []
        else:
            # An old client that found itself the leader would compute an assignment that nobody wants: the id that it
            # had before keeps it a follower.
            reply.leader = after.old_leader or ""
        self._answer_join(group, member, reply, result)
        return result

    def _new_member_id(self, prefix: str) -> str:
        raw = bytearray(self._rng.token(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # --- rebalance ------------------------------------------------------------------------------------------------

    def _rebalance_or_complete(self, group: ClassicGroup, now: Now, result: Result) -> None:
        if group.state in CAN_REBALANCE:
            self._prepare(group, now, result)
        else:
            self._complete_if_all_joined(group, now, result)

    def _prepare(self, group: ClassicGroup, now: Now, result: Result) -> None:
        """Begin a rebalance: everyone has to join again."""
        if group.state is COMPLETING:
            self._hand_out(group, None, ErrorCode.REBALANCE_IN_PROGRESS, now, result)
        group.unsynced.clear()
        self.timers.cancel((Timer.SYNC, group.group_id, ""))
        is_first = group.state is EMPTY
        group.become(PREPARING, now.wall_ms)
        if not is_first:
            if group.all_have_joined:
                self._complete_join(group, now, result)
            else:
                self._set_group_timer(Timer.JOIN, group, group.rebalance_timeout_ms, now)
            return
        delay = self._config().initial_rebalance_delay_ms
        self._initial[group.group_id] = (delay, max(group.rebalance_timeout_ms - delay, 0))
        group.has_new_member = False
        if delay <= 0:
            self._initial_over(group, now, result)
        else:
            self._set_group_timer(Timer.INITIAL, group, delay, now)

    def _complete_if_all_joined(self, group: ClassicGroup, now: Now, result: Result) -> None:
        if group.state is not PREPARING or group.group_id in self._initial:
            return  # the first generation waits for its delay, whoever is there already
        if group.all_have_joined:
            self._complete_join(group, now, result)

    def _initial_delay_is_over(self, group_id: str, _: str, now: Now) -> Result:
        result = Result()
        group = self.groups.get(group_id)
        if group is not None and group.state is PREPARING and group_id in self._initial:
            self._initial_over(group, now, result)
        return result

    def _initial_over(self, group: ClassicGroup, now: Now, result: Result) -> None:
        """Someone came during the delay: wait on, but no longer than a rebalance may take in all."""
        delay, left = self._initial[group.group_id]
        if group.has_new_member and left > 0:
            group.has_new_member = False
            step = min(self._config().initial_rebalance_delay_ms, left)
            self._initial[group.group_id] = (step, max(left - delay, 0))
            self._set_group_timer(Timer.INITIAL, group, max(step, 1), now)
            return
        self._complete_join(group, now, result)

    def _join_time_is_up(self, group_id: str, _: str, now: Now) -> Result:
        result = Result()
        group = self.groups.get(group_id)
        if group is not None and group.state is PREPARING:
            self._complete_join(group, now, result)
        return result

    def _complete_join(self, group: ClassicGroup, now: Now, result: Result) -> None:
        """The time to join is over, or everyone has.  Dynamic members that did not come are out; static ones stay
        until their session ends.  `result` gets the replies, and the record of a group that is empty now."""
        assert group.state is PREPARING
        self._initial.pop(group.group_id, None)
        self.timers.cancel((Timer.JOIN, group.group_id, ""))
        self.timers.cancel((Timer.INITIAL, group.group_id, ""))
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self._remove(group, member.member_id, result)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none of them is back: nothing to do before one comes or expires.
            self._set_group_timer(Timer.JOIN, group, group.rebalance_timeout_ms, now)
            return
        group.next_generation(now.wall_ms)
        if not group.members:
            result.records.append(disk.group_record(group.group_id, group.to_value({})))
            result.is_replayed = False
            return
        for member in group.members.values():
            self._answer_join(group, member, self._join_reply(group, member), result)
            self._heard_of(group, member, now)
            member.is_new = False
            group.unsynced[member.member_id] = None
        self._set_group_timer(Timer.SYNC, group, group.rebalance_timeout_ms, now)

    def _remove(self, group: ClassicGroup, member_id: str, result: Result) -> None:
        """Take a member or a pending id out of the group, with an answer for its open requests."""
        self.timers.cancel((Timer.SESSION, group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            self._answer_join(group, member, ev.JoinReply(ErrorCode.UNKNOWN_MEMBER_ID), result)
            self._answer_sync(member, ev.SyncReply(ErrorCode.UNKNOWN_MEMBER_ID), result)
        group.remove(member_id)

    def _answer_join(self, group: ClassicGroup, member: Member, reply: ev.JoinReply, result: Result) -> None:
        ticket = member.join_ticket
        if ticket is not None:
            group.set_join_ticket(member, None)
            result.replies.append((ticket, reply))

    def _answer_sync(self, member: Member, reply: ev.SyncReply, result: Result) -> None:
        ticket = member.sync_ticket
        if ticket is not None:
            member.sync_ticket = None
            result.replies.append((ticket, reply))

    # --- sync -----------------------------------------------------------------------------------------------------

    def _sync(self, event: ev.Sync, now: Now) -> Result:
        result = Result()
        group = self.groups.get(event.group_id)
        error = self._sync_error(group, event)
        if error is not NONE:
            result.replies.append((event.ticket, ev.SyncReply(error)))
            return result
        assert group is not None
        member = group.members[event.member_id]
        if group.state is PREPARING:
            result.replies.append((event.ticket, ev.SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
        elif group.state is COMPLETING:
            self._answer_sync(member, ev.SyncReply(ErrorCode.REBALANCE_IN_PROGRESS), result)
            member.sync_ticket = event.ticket
            self._synced(group, member)
            if group.leader == event.member_id:
                given = dict(event.assignments)
                assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
                result.records.append(disk.group_record(group.group_id, group.to_value(assignments)))
                result.is_replayed = False
                result.after = _Assigned(group.group_id, group.generation, assignments)
        else:
            self._synced(group, member)
            reply = ev.SyncReply(NONE, group.protocol_type, group.protocol, member.assignment)
            result.replies.append((event.ticket, reply))
        return result

    def _sync_error(self, group: ClassicGroup | None, event: ev.Sync) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None or group.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.validate(event.member_id, event.instance_id)
        if error is not NONE:
            return error
        if event.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for said, known in ((event.protocol_type, group.protocol_type), (event.protocol, group.protocol)):
            if said is not None and known is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return NONE

    def _synced(self, group: ClassicGroup, member: Member) -> None:
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self.timers.cancel((Timer.SYNC, group.group_id, ""))

    def _assigned(self, after: _Assigned, error: ErrorCode | None, now: Now) -> Result:
        """The assignments are in the log, or are not."""
        result = Result()
        group = self.groups.get(after.group_id)
        if group is None or group.state is not COMPLETING or group.generation != after.generation:
            return result  # another rebalance has begun, and has answered who waited for this one
        if error is not None:
            self._hand_out(group, None, WRITE_ERRORS.get(error, error), now, result)
            self._prepare(group, now, result)
            return result
        self._hand_out(group, after.assignments, NONE, now, result)
        group.become(STABLE, now.wall_ms)
        self.rebalances += 1
        return result

    def _hand_out(
        self, group: ClassicGroup, assignments: dict[str, bytes] | None, error: ErrorCode, now: Now, result: Result
    ) -> None:
        """Give everyone that waits its assignment, or the error."""
        for member in group.members.values():
            member.assignment = b"" if assignments is None else assignments.get(member.member_id, b"")
            if member.sync_ticket is not None:
                if error is NONE:
                    reply = ev.SyncReply(NONE, group.protocol_type, group.protocol, member.assignment)
                else:
                    reply = ev.SyncReply(error)
                self._answer_sync(member, reply, result)
                self._heard_of(group, member, now)

    def _sync_time_is_up(self, group_id: str, _: str, now: Now) -> Result:
        """Someone was given a place in the generation and never asked for its assignment: it would hold its partitions
        for ever (G03)."""
        result = Result()
        group = self.groups.get(group_id)
        if group is None or group.state not in (COMPLETING, STABLE) or not group.unsynced:
            return result
        for member_id in list(group.unsynced):
            self._remove(group, member_id, result)
        self._prepare(group, now, result)
        return result

    # --- heartbeats and sessions ----------------------------------------------------------------------------------

    def _heartbeat(self, event: ev.Heartbeat, now: Now) -> Result:
        group = self.groups.get(event.group_id)
        if not event.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None or group.state is EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            error = group.validate(event.member_id, event.instance_id)
            if error is NONE and event.generation != group.generation:
                error = ErrorCode.ILLEGAL_GENERATION
            if error is NONE:
                self._heard_of(group, group.members[event.member_id], now)
                if group.state is PREPARING:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
        return Result(replies=[(event.ticket, ev.HeartbeatReply(error))])

    def _heard_of(self, group: ClassicGroup, member: Member, now: Now) -> None:
        self._session(group, member, member.session_timeout_ms, now)

    def _session(self, group: ClassicGroup, member: Member, timeout_ms: int, now: Now) -> None:
        self.timers.set(
            (Timer.SESSION, group.group_id, member.member_id), Millis(now.monotonic_ms + max(timeout_ms, 1))
        )

    def _set_group_timer(self, kind: Timer, group: ClassicGroup, timeout_ms: int, now: Now) -> None:
        self.timers.set((kind, group.group_id, ""), Millis(now.monotonic_ms + max(timeout_ms, 1)))

    def _session_expired(self, group_id: str, member_id: str, now: Now) -> Result:
        result = Result()
        group = self.groups.get(group_id)
        if group is None:
            return result
        if member_id in group.pending:
            group.remove(member_id)
            self._complete_if_all_joined(group, now, result)
            return result
        member = group.members.get(member_id)
        if member is None:
            return result
        if member.is_waiting and not member.is_new:
            # It waits for us, not we for it.
            self._heard_of(group, member, now)
            return result
        self._remove(group, member_id, result)
        self._members_left(group, now, result)
        return result

    def _members_left(self, group: ClassicGroup, now: Now, result: Result) -> None:
        if group.state in (STABLE, COMPLETING):
            self._prepare(group, now, result)
        else:
            self._complete_if_all_joined(group, now, result)

    # --- leave ----------------------------------------------------------------------------------------------------

    def _leave(self, event: ev.Leave, now: Now) -> Result:
        result = Result()
        if not event.group_id:
            result.replies.append((event.ticket, ev.LeaveReply(ErrorCode.INVALID_GROUP_ID)))
            return result
        group = self.groups.get(event.group_id)
        answers: list[tuple[ev.Leaver, ErrorCode]] = []
        anyone = False
        for leaver in event.members:
            error, member_id = self._who_leaves(group, leaver)
            if error is NONE:
                assert group is not None
                self._remove(group, member_id, result)
                anyone = True
            answers.append((leaver, error))
        if anyone:
            assert group is not None
            self._members_left(group, now, result)
        result.replies.append((event.ticket, ev.LeaveReply(NONE, answers)))
        return result

    def _who_leaves(self, group: ClassicGroup | None, leaver: ev.Leaver) -> tuple[ErrorCode, str]:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, ""
        if leaver.member_id == "":
            # An administrator removes a static member by its instance id.
            owner = None if leaver.instance_id is None else group.static.get(leaver.instance_id)
            return (ErrorCode.UNKNOWN_MEMBER_ID, "") if owner is None else (NONE, owner)
        if leaver.member_id in group.pending:
            return NONE, leaver.member_id
        return group.validate(leaver.member_id, leaver.instance_id), leaver.member_id

    # --- offsets --------------------------------------------------------------------------------------------------

    def _commit(self, event: ev.CommitOffsets, now: Now) -> Result:
        group = self.groups.get(event.group_id)
        error = commits.commit_error(group, event)
        if error is not NONE:
            return Result(replies=[(event.ticket, ev.refusal(event, error))])
        if group is not None and group.state in (STABLE, PREPARING):
            self._heard_of(group, group.members[event.member_id], now)
        return commits.commit(event, self._config(), now.wall_ms)

    def _fetch(self, event: ev.FetchOffsets, now: Now) -> Result:
        return commits.fetch(event, self.offsets, self._gone_at)

    def _delete_offsets(self, event: ev.DeleteOffsets, now: Now) -> Result:
        return commits.delete_offsets(event, self.groups.get(event.group_id), self.offsets)

    def _forget_topics(self, event: ev.ForgetTopics, now: Now) -> Result:
        return commits.forget_topics(event, self.offsets)

    def expire_offsets(self, now: Now) -> Result:
        """What a look for expired offsets finds, now."""
        records = commits.expired(self.groups, self.offsets, now.wall_ms, self._config().offsets_retention_ms)
        return Result(records=records, is_atomic=False)

    # --- groups ---------------------------------------------------------------------------------------------------

    def _describe(self, event: ev.DescribeGroup, now: Now) -> Result:
        group = self.groups.get(event.group_id)
        if group is None:
            reply = ev.DescribeReply(ErrorCode.GROUP_ID_NOT_FOUND, state=DEAD.value)
            return Result(replies=[(event.ticket, reply)])
        is_stable = group.state is STABLE
        reply = ev.DescribeReply(
            NONE,
            group.state.value,
            group.protocol_type or "",
            (group.protocol or "") if is_stable else "",
            [
                ev.DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(group.protocol) if is_stable else b"",
                    member.assignment,
                )
                for member in group.members.values()
            ],
        )
        return Result(replies=[(event.ticket, reply)])

    def _delete_group(self, event: ev.DeleteGroup, now: Now) -> Result:
        return commits.delete_group(event, self.groups.get(event.group_id), self.offsets)

    def list_groups(self) -> list[ev.ListedGroup]:
        return [
            ev.ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
            for group in self.groups.values()
        ]
