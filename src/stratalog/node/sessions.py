"""Fetch sessions (KIP-227): what a client wants to read, kept here, so that only changes travel.

Owned by the loop's thread.  A session is known by a random id and an epoch that grows with each request.  At most
`slots` sessions, with at most `room` partitions in all of them; the one that was used longest ago makes room when it
rested for `EVICTION_MS`, else the new client gets no session and goes on with full requests.  A session that outgrows
the room is forgotten: its client hears so with its next request and begins anew.
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.limits import FETCH_SESSION_PARTITIONS_MAX
from stratalog.base.ports import Rng
from stratalog.base.types import MAX_INT32, Millis, Uuid
from stratalog.replication.partition import Partition

EVICTION_MS: Final = 120_000
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

Key = tuple[str | Uuid, int]


class Wanted:
    """One partition that a client wants to read, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_log_start",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, row: Any) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index: int = row.partition
        self.partition: Partition | None = None
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.update(row)

    def update(self, row: Any) -> None:
        self.fetch_offset: int = row.fetch_offset
        self.max_bytes: int = row.partition_max_bytes
        self.current_leader_epoch: int = row.current_leader_epoch
        self.last_fetched_epoch: int = row.last_fetched_epoch


class Session:
    """One client's session."""

    __slots__ = ("counted", "epoch", "id", "last_used", "partitions", "uses_topic_ids")

    def __init__(self, identity: int, partitions: dict[Key, Wanted], uses_topic_ids: bool, now: Millis) -> None:
        self.id = identity
        self.epoch = 1
        self.partitions = partitions
        self.counted = len(partitions)
        """Partitions as the cache has counted them."""
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now


class FetchSessions:
    """The cache."""

    __slots__ = ("_found", "_rng", "_sessions", "evictions", "partitions", "room", "slots")

    def __init__(self, *, slots: int, rng: Rng, room: int = FETCH_SESSION_PARTITIONS_MAX) -> None:
        self.slots = slots
        self.room = room
        self.evictions = 0
        self.partitions = 0
        """Partitions of all sessions, but for what the last request has added or taken away."""
        self._rng = rng
        self._found: Session | None = None
        """The session of the last request, which may have changed what it wants since."""
        self._sessions: dict[int, Session] = {}  # the one used longest ago first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: dict[Key, Wanted], uses_topic_ids: bool, now: Millis) -> Session | None:
        """A new session, None when there is no room."""
        self._count()
        sessions = self._sessions
        while len(sessions) >= self.slots or self.partitions + len(partitions) > self.room:
            oldest = next(iter(sessions.values()), None)
            if oldest is None or now - oldest.last_used < EVICTION_MS:
                return None
            self.close(oldest.id)
            self.evictions += 1
        identity = self._rng.integer(1, MAX_INT32)
        while identity in sessions:
            identity = self._rng.integer(1, MAX_INT32)
        session = sessions[identity] = Session(identity, partitions, uses_topic_ids, now)
        self.partitions += session.counted
        return session

    def _count(self) -> None:
        """See what became of the session that was found last."""
        session, self._found = self._found, None
        if session is None or self._sessions.get(session.id) is not session:
            return
        self.partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)
        if self.partitions > self.room:
            self.close(session.id)
            self.evictions += 1

    def find(self, identity: int, epoch: int, uses_topic_ids: bool, now: Millis) -> Session:
        """The session of an incremental request; `ApiError` when it is not there or out of step."""
        self._count()
        session = self._sessions.get(identity)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == MAX_INT32 else epoch + 1
        session.last_used = now
        del self._sessions[identity]  # to the end: used last
        self._sessions[identity] = session
        self._found = session
        return session

    def close(self, identity: int) -> None:
        session = self._sessions.pop(identity, None)
        if session is not None:
            self.partitions -= session.counted
