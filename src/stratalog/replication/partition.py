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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Buffer, LeaderEpoch, Millis, NodeId, Offset, Uuid

if TYPE_CHECKING:
    from stratalog.storage.log import AppendInfo, Log

Committed = Callable[["Partition", Millis], None]


class Partition:
    """A replica of a partition on this broker, leader or not."""

    __slots__ = (
        "_dirty",
        "_staged",
        "index",
        "isr",
        "leader_epoch",
        "leader_id",
        "listeners",
        "log",
        "min_insync_replicas",
        "node_id",
        "offline",
        "partition_epoch",
        "replicas",
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
        self.log = log
        self.node_id = node_id
        self.leader_id = NodeId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.partition_epoch = -1
        self.replicas: list[NodeId] = []
        self.isr: list[NodeId] = []
        self.min_insync_replicas = 1
        self.offline = False
        self.waiters: dict[Any, None] = {}
        """Parked fetches that want to know when the high watermark moves (`node.waits`)."""
        self.listeners: list[Committed] = []
        """Called with (partition, now) after the high watermark has moved: the coordinators' runtimes."""
        self._dirty = dirty
        self._staged = False

    # --- what the metadata says -----------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id and not self.offline

    def apply(
        self,
        *,
        leader_id: NodeId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: list[NodeId],
        isr: list[NodeId],
    ) -> None:
        """Take over what the metadata log says of this partition.  A new leader epoch that makes us the leader begins
        in the log's epoch cache at the log's end."""
        raise NotImplementedError

    # --- the leader's way -----------------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Whether a client that believes in this leader epoch (-1: does not say) may go on."""
        raise NotImplementedError

    def stage_append(self, records: Buffer, *, acks: int, now: Millis, from_client: bool = True) -> AppendInfo:
        """Check and stage records as the leader; raises `ApiError`.  Nothing is visible before `commit`."""
        raise NotImplementedError

    def commit(self, now: Millis) -> None:
        """Write what is staged and move the high watermark.  `OSError`: the disk's fault; nothing of it was taken."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> Offset:
        return self.log.high_watermark

    def is_committed(self, last_offset: Offset) -> bool:
        """Whether the record at this offset is below the high watermark."""
        return self.log.high_watermark >= last_offset + 1


def not_leader() -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
