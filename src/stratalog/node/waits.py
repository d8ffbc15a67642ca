"""The purgatory of fetches: requests that wait for `min_bytes` or for their time.

Owned by the loop's thread.  A parked fetch stands in `waiters` of each partition that it reads.  A commit there
tells it how many bytes came (`appended`), and at the end of the commits it looks (`wake`): while fewer bytes have
come than it still needs, it does nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.node.request import Request
from stratalog.node.timers import Timer
from stratalog.replication.partition import Partition

if TYPE_CHECKING:
    from stratalog.node.node import Node


class ParkedFetch:
    """One fetch that waits."""

    __slots__ = ("_answer", "_needed", "_node", "_partitions", "_timer", "request")

    def __init__(
        self,
        node: Node,
        request: Request,
        partitions: list[Partition],
        *,
        needed: int,
        wait_ms: int,
        answer: Callable[[Millis, bool], int],
    ) -> None:
        """`answer(now, at_once)` reads again; it answers and returns 0 when there is enough or `at_once`, else it
        returns the bytes that are still missing."""
        self.request = request
        self._node = node
        self._partitions = partitions
        self._needed = needed
        self._answer = answer
        for partition in partitions:
            partition.waiters[self] = None
        node.parked_fetches[request.peer.connection] = self
        self._timer: Timer = node.after(wait_ms, self._expire)

    def appended(self, size: int) -> None:
        """A commit on one of the partitions."""
        self._needed -= size

    def wake(self, node: Node, now: Millis) -> None:
        """The commits of this turn are done."""
        if self._needed <= 0 and self.request.output is None:
            missing = self._answer(now, False)
            if missing > 0:
                self._needed = missing
            else:
                self.forget()

    def recheck(self, now: Millis) -> None:
        """Something else than an append changed: a partition was deleted, or lost its leader.  Answer what there is."""
        self._expire(now)

    def _expire(self, now: Millis) -> None:
        self.forget()
        self._answer(now, True)

    def forget(self) -> None:
        """Wait no more: answered, or the connection has gone."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.pop(self, None)
        self._node.parked_fetches.pop(self.request.peer.connection, None)
