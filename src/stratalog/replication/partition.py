"""One partition on this broker: who leads it, who is in sync, what is committed, who waits for that.

Owned by the loop's thread.  The one writer of its log.  What this file decides:

- an append needs the leader, the right leader epoch, and for acks=all at least `min.insync.replicas` in-sync replicas;
- the high watermark is exclusive: records below it are committed.  acks=all is answered when
  `high_watermark >= last offset + 1` (seed 003 says `>= last offset`; with an empty log that would acknowledge a record
  that nobody has);
- with one replica the high watermark is the log end offset as soon as the wake-up's write is done.

Appends are staged and written together: `stage_append` any number of times, then `commit` once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Buffer, LeaderEpoch, Millis, NodeId, Offset, Uuid
from stratalog.storage.log import Log
from stratalog.storage.values import AppendInfo, Isolation, Origin

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
Committed = Callable[["Partition", Millis], None]


class Partition:
    """A replica of a partition on this broker, leader or not."""

    __slots__ = (
        "_alone",
        "_dirty",
        "_staged",
        "failure",
        "index",
        "internal",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "listeners",
        "log",
        "node_id",
        "partition_epoch",
        "replicas",
        "staged_bytes",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self, topic: str, index: int, topic_id: Uuid, *, log: Log, node_id: NodeId, dirty: list[Partition]
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.internal = topic in INTERNAL_TOPICS
        """Written by coordinators only."""
        self.log = log
        self.node_id = node_id
        self.leader_id = NodeId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.partition_epoch = -1
        self.replicas: Sequence[int] = ()
        self.isr: Sequence[int] = ()
        self.is_leader = False
        self.failure: OSError | None = None
        """The disk's fault that took this replica offline."""
        self.waiters: dict[Any, None] = {}
        """Who is told when records are committed: parked fetches and produces (`node.waits`)."""
        self.listeners: list[Committed] = []
        """Called with (partition, now) after a commit: the coordinators' runtimes."""
        self.staged_bytes = 0
        self._dirty = dirty
        self._staged = False
        self._alone = False

    # --- what the metadata says -----------------------------------------------------------------------------------

    def apply(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
    ) -> None:
        """Take over what the metadata log says of this partition.  A new leader epoch enters the log's epoch cache with
        its first batch, and until then it ends where the log does (`end_offset_for`): a restart that bumps the epochs
        of a thousand partitions writes no file."""
        assert leader_epoch >= self.leader_epoch, f"{self}: leader epoch {leader_epoch} after {self.leader_epoch}"
        self.leader_id = NodeId(leader_id)
        self.leader_epoch = LeaderEpoch(leader_epoch)
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        leads = leader_id == self.node_id
        self.is_leader = leads and self.failure is None
        self._alone = self.is_leader and list(isr) == [self.node_id]
        if self._alone:
            self._advance()

    def fail(self, error: OSError) -> None:
        """The disk failed: this replica is offline until the process starts again."""
        self.failure = error
        self.is_leader = False
        self._alone = False

    # --- the leader's way -----------------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Whether a client that believes in this leader epoch (-1: does not say) may go on."""
        if current_leader_epoch >= 0:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > self.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def stage_append(
        self, records: Buffer, acks: int, now: Millis, origin: Origin = Origin.CLIENT, guard: object | None = None
    ) -> AppendInfo:
        """Check and stage records as the leader; raises `ApiError`, or `OSError` when the disk fails.  Nothing is
        visible before `commit`; `records` must not move until then."""
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR)
        log = self.log
        if acks == -1 and len(self.isr) < log.config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(self.isr)} in-sync replicas {list(self.isr)}; acks=all needs "
                f"min.insync.replicas={log.config.min_insync_replicas}",
            )
        info = log.stage_append(records, self.leader_epoch, now, origin=origin, guard=guard)
        self.staged_bytes += info.size
        if not self._staged:
            self._staged = True
            self._dirty.append(self)
        return info

    def commit(self, now: Millis) -> int:
        """Write what is staged and move the high watermark; returns the bytes that became visible.  `OSError`: the
        disk's fault; nothing of it was taken, and the caller decides whether the replica is offline."""
        self._staged = False
        size, self.staged_bytes = self.staged_bytes, 0
        self.log.commit_staged(now)
        if self._alone:
            self._advance()
        return size

    def discard(self) -> None:
        """The topic is being deleted: what is staged is written by nobody."""
        self._staged = False
        self.staged_bytes = 0
        self.is_leader = False
        self.failure = OSError(2, "the topic was deleted")

    def _advance(self) -> None:
        """A leader that is its own whole ISR: what it has written is committed."""
        self.log.maybe_increment_high_watermark(self.log.log_end)

    @property
    def high_watermark(self) -> Offset:
        return Offset(self.log.high_watermark)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch at or below the asked one; (-1, -1) when unknown."""
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)

    def is_committed(self, last_offset: int) -> bool:
        """Whether the record at this offset is below the high watermark."""
        return self.log.high_watermark >= last_offset + 1

    def bound(self, isolation: Isolation) -> int:
        """The offset that a reader may see, exclusive."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is Isolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} leader {self.leader_id} epoch {self.leader_epoch}>"
