"""Timers of the node: a heap of (deadline, number, timer).  The loop asks `deadline()` and calls `fire(now)`.

Deadlines are in the milliseconds that the node's `now` counts.  A cancelled timer stays in the heap until its time
comes or until half of the heap is cancelled; then the heap is rebuilt.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from stratalog.base.types import Millis

Callback = Callable[[Millis], None]


class Timer:
    """One callback that has not fired yet, or has, or was cancelled."""

    __slots__ = ("_timers", "callback", "deadline")

    def __init__(self, timers: Timers, deadline: Millis, callback: Callback) -> None:
        self._timers = timers
        self.deadline = deadline
        self.callback: Callback | None = callback

    @property
    def pending(self) -> bool:
        return self.callback is not None

    def cancel(self) -> None:
        """Harmless when it has fired or was cancelled before."""
        if self.callback is not None:
            self.callback = None
            self._timers._cancelled += 1


class Timers:
    """The heap."""

    __slots__ = ("_cancelled", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0
        self._cancelled = 0

    def at(self, deadline: Millis, callback: Callback) -> Timer:
        """Call back with `now` at the first turn of the loop at or after the deadline."""
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
        timer = Timer(self, deadline, callback)
        self._number += 1
        heapq.heappush(self._heap, (deadline, self._number, timer))
        return timer

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def deadline(self) -> Millis | None:
        """When `fire` has something to do, None for never."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return Millis(heap[0][0]) if heap else None

    def fire(self, monotonic: Millis, now: Millis | None = None) -> None:
        """Run what is due, in the order of deadlines; what is added meanwhile waits for the next turn.  Callbacks get
        `now`, the time on the wall, which the deadlines have nothing to do with."""
        heap = self._heap
        now = monotonic if now is None else now
        due: list[Timer] = []
        while heap and (heap[0][0] <= monotonic or heap[0][2].callback is None):
            timer = heapq.heappop(heap)[2]
            if timer.callback is None:
                self._cancelled -= 1
            else:
                due.append(timer)
        for timer in due:
            callback = timer.callback
            if callback is not None:  # an earlier one of this turn may have cancelled it
                timer.callback = None
                callback(now)
            else:
                self._cancelled -= 1
