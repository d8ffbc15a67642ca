"""A clock that runs with the machine's and that a test pushes forward."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from stratalog.base.types import Millis


class TestClock:
    """`base.ports.Clock`: the machine's time plus what the test has advanced it by.  It never goes back."""

    __test__ = False  # pytest: not a test class

    def __init__(self, moved: Callable[[], None] | None = None) -> None:
        self._ahead_ms = 0
        self.moved = moved
        """Called after each move, so that whoever waits looks at its timers again."""

    def now_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000 + self._ahead_ms)

    def monotonic_ms(self) -> Millis:
        return Millis(time.monotonic_ns() // 1_000_000 + self._ahead_ms)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Let time go by at once.  Timers that became due run before this returns; work that they start on the pool
        may still be under way."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        if span < timedelta(0):
            raise ValueError("a test clock does not go back")
        self._ahead_ms += int(span / timedelta(milliseconds=1))
        if self.moved is not None:
            self.moved()
