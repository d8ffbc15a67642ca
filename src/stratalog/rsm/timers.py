"""Named moments of one state machine: a heap with lazy cancellation.  Pure; the owner's thread only."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from stratalog.base.types import Millis

K = TypeVar("K", bound=Hashable)

_SLACK = 64
"""Cancelled entries tolerated before the heap is rebuilt, beside as many as there are live ones: a session that
heartbeats replaces its entry each time, and the heap must not grow with heartbeats."""


class Timers(Generic[K]):
    """`set` replaces, `cancel` forgets, `due` pops.  Equal moments come in the order in which they were set."""

    __slots__ = ("_at", "_heap", "_serial")

    def __init__(self) -> None:
        self._at: dict[K, tuple[Millis, int]] = {}
        self._heap: list[tuple[Millis, int, K]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def set(self, key: K, at: Millis) -> None:
        self._serial += 1
        self._at[key] = (at, self._serial)
        heapq.heappush(self._heap, (at, self._serial, key))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [(when, serial, k) for k, (when, serial) in self._at.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()

    def deadline(self) -> Millis | None:
        heap = self._heap
        while heap:
            at, serial, key = heap[0]
            if self._at.get(key) == (at, serial):
                return at
            heapq.heappop(heap)
        return None

    def due(self, now: Millis) -> Iterator[K]:
        """Pop what is due.  What is set while iterating and due at once comes in the same pass, so an owner must set
        moments after `now`."""
        while True:
            at = self.deadline()
            if at is None or at > now:
                return
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            yield key
