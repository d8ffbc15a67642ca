"""A shard on its log: load, append, replay, and answer once the records are committed.

Owned by the loop's thread.  States, in a table below:

```
 INITIAL --elect--> LOADING --log replayed--> ACTIVE
                     ^ |                        |
                     | +-------- fail ----------+--> FAILED   (a damaged log, a disk's fault)
                     +------- a pause ------------------+
 any --resign--> CLOSED
```

**Uncommitted writes.**  Right after an append its records are replayed into the shard, so the next handler sees them;
what tells of them waits until `high_watermark >= offset + 1`.  An append that raises `ApiError` left nothing behind and
nothing was replayed: the shard goes on.  When records that were replayed turn out not to be in the log (the write at
the end of the wake-up failed, or another broker leads now), the shard's state is wrong as a whole: `fail` or `resign`
drop it, everyone who waits gets an error, and after a pause the log is replayed from its start: a disk that was full
may have room again, and reads go on in any case.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.types import Millis
from stratalog.rsm import batches
from stratalog.rsm.shard import Logged, LogPort, Now, Result, Shard, Ticket

LOAD_BYTES: Final = 1 << 20
"""Read and replayed in one step of loading: some 10,000 records, 15 to 60 ms, so that others on the loop live on."""
WRITES_PENDING_MAX: Final = 100_000
"""Writes that wait for their commit, for one shard.  More than that only when replication hangs: refuse."""


RETRY_MS_MIN: Final = 100
RETRY_MS_MAX: Final = 5_000
"""The pause before a failed runtime loads again, doubled each time: a disk that is full is tried soon, one that is
broken costs next to nothing."""


class State(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


TRANSITIONS: Final = {
    State.INITIAL: {State.LOADING, State.CLOSED},
    State.LOADING: {State.ACTIVE, State.FAILED, State.CLOSED},
    State.ACTIVE: {State.FAILED, State.CLOSED},
    State.FAILED: {State.LOADING, State.CLOSED},
    State.CLOSED: set(),
}
REFUSAL: Final = {
    State.INITIAL: ErrorCode.NOT_COORDINATOR,
    State.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    State.FAILED: ErrorCode.NOT_COORDINATOR,
    State.CLOSED: ErrorCode.NOT_COORDINATOR,
}


class Runtime:
    """One shard, one log."""

    __slots__ = (
        "_late",
        "_pending",
        "_reads",
        "_serial",
        "batches_written",
        "epoch",
        "error",
        "load_offset",
        "log",
        "make_shard",
        "records_loaded",
        "retry_at",
        "retry_ms",
        "shard",
        "state",
        "write_timeout_ms",
    )

    def __init__(self, log: LogPort, make_shard: Callable[[], Shard], *, write_timeout_ms: int = 5_000) -> None:
        self.log = log
        self.make_shard = make_shard
        self.shard = make_shard()
        self.write_timeout_ms = write_timeout_ms
        self.state = State.INITIAL
        self.error: BaseException | None = None
        """Why the runtime failed."""
        self.epoch = 0
        """The leader epoch in which this broker was elected; the owner sets it."""
        self.load_offset = 0
        self.records_loaded = 0
        self.batches_written = 0
        self.retry_at = Millis(0)
        self.retry_ms = RETRY_MS_MIN
        self._pending: deque[_Write] = deque()  # in the order of their offsets
        self._reads: list[tuple[int, int, Ticket, Any, Any]] = []  # a heap: (offset, serial, ticket, event, reply)
        self._serial = 0
        self._late = 0  # writes that were answered with a timeout and are still in `_pending`

    # --- life -----------------------------------------------------------------------------------------------------

    def elect(self, now: Now) -> None:
        """Begin to load.  A log that holds little is loaded at once."""
        self._become(State.LOADING)
        self.shard = self.make_shard()
        self.error = None
        self.load_offset = self.log.log_start_offset
        self.records_loaded = 0
        self.load_step(now)

    def load_step(self, now: Now) -> None:
        """Replay the next stretch of the log."""
        assert self.state is State.LOADING
        end = self.log.log_end_offset
        try:
            if self.load_offset < end:
                data = self.log.read(self.load_offset, LOAD_BYTES)
                next_offset, count = batches.replay_into(self.shard, data, self.load_offset)
                self.records_loaded += count
                if next_offset <= self.load_offset:
                    # A log may end in a gap (compaction, C16): nothing more to read is the end, not a reason to wait.
                    next_offset = end
                self.load_offset = next_offset
            if self.load_offset < self.log.log_end_offset:
                return
        except (Malformed, ApiError, OSError) as error:
            self.fail(error, now)
            return
        self._become(State.ACTIVE)
        self._take(self.shard.loaded(now), now)

    def fail(self, error: BaseException, now: Now) -> None:
        """The shard's state cannot be trusted: give it up and load again later."""
        self.error = error
        self.retry_at = Millis(now.monotonic_ms + self.retry_ms)
        self.retry_ms = min(self.retry_ms * 2, RETRY_MS_MAX)
        self._drop(State.FAILED, now)

    def resign(self, now: Now) -> None:
        """Another broker leads, or this one stops."""
        self._drop(State.CLOSED, now)

    # --- events ---------------------------------------------------------------------------------------------------

    def submit(self, ticket: Ticket, event: Any, now: Now) -> None:
        """Handle an event; whatever it answers to `ticket` comes from the shard, except a refusal."""
        refusal = REFUSAL.get(self.state)
        if refusal is None and len(self._pending) >= WRITES_PENDING_MAX:
            refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if refusal is not None:
            ticket(self.shard.refuse(event, refusal))
            return
        self._take(self.shard.handle(event, now), now, event)

    def high_watermark_moved(self, now: Now) -> None:
        """Answer what is committed now."""
        if self.state is not State.ACTIVE:
            return
        high_watermark = self.log.high_watermark
        pending = self._pending
        while pending and pending[0].last_offset < high_watermark and self.state is State.ACTIVE:
            write = pending.popleft()
            self.retry_ms = RETRY_MS_MIN
            if write.timed_out:
                self._late -= 1
            elif write.after is not None:
                self._take(self.shard.resume(write.after, None, now), now)
        reads = self._reads
        while reads and reads[0][0] < high_watermark:
            _, _, ticket, _, reply = heapq.heappop(reads)
            ticket(reply)

    def deadline(self) -> Millis | None:
        """Monotonic time of the next `tick`."""
        if self.state is State.LOADING:
            return Millis(0)
        if self.state is State.FAILED:
            return self.retry_at
        if self.state is not State.ACTIVE:
            return None
        deadline = self.shard.deadline()
        if len(self._pending) > self._late:
            oldest = self._pending[self._late].deadline
            if deadline is None or oldest < deadline:
                deadline = oldest
        return deadline

    def tick(self, now: Now) -> None:
        """Loading goes on, timers fire, writes that wait too long are given up."""
        if self.state is State.LOADING:
            self.load_step(now)
            return
        if self.state is State.FAILED and now.monotonic_ms >= self.retry_at:
            self.elect(now)
            return
        if self.state is not State.ACTIVE:
            return
        while len(self._pending) > self._late:
            write = self._pending[self._late]
            if write.deadline > now.monotonic_ms:
                break
            # The records may still be committed: the state keeps them, only the client is told to ask again.
            write.timed_out = True
            self._late += 1
            if write.after is not None:
                self._take(self.shard.resume(write.after, ErrorCode.REQUEST_TIMED_OUT, now), now)
        for result in self.shard.tick(now):
            self._take(result, now)
            if self.state is not State.ACTIVE:
                return

    # --- below ----------------------------------------------------------------------------------------------------

    def _take(self, result: Result, now: Now, event: Any = None) -> None:
        if result.records:
            self._append(result, now)
        else:
            assert result.after is None, "a continuation needs records that it follows"
        if result.replies:
            depends_on = result.depends_on
            if depends_on < 0 or depends_on < self.log.high_watermark:
                for ticket, reply in result.replies:
                    ticket(reply)
            else:
                for ticket, reply in result.replies:
                    self._serial += 1
                    heapq.heappush(self._reads, (depends_on, self._serial, ticket, event, reply))

    def _append(self, result: Result, now: Now) -> None:
        records = result.records
        last = -1
        try:
            for chunk in [records] if result.is_atomic else batches.chunks(records):
                base = self.log.append(batches.build(chunk, now.wall_ms), now)
                self.batches_written += 1
                last = base + len(chunk) - 1
                if result.is_replayed:
                    replay = self.shard.replay
                    for index, (key, value) in enumerate(chunk):
                        replay(Logged(base + index, key, value))
        except ApiError as error:
            if result.after is not None:
                self._take(self.shard.resume(result.after, error.code, now), now)
            return
        except OSError as error:
            if result.after is not None:
                self._take(self.shard.resume(result.after, ErrorCode.KAFKA_STORAGE_ERROR, now), now)
            self.fail(error, now)
            return
        if last < self.log.high_watermark and not self._pending:
            if result.after is not None:
                self._take(self.shard.resume(result.after, None, now), now)
            return
        deadline = Millis(now.monotonic_ms + self.write_timeout_ms)
        self._pending.append(_Write(last, deadline, result.after))

    def _become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state

    def _drop(self, state: State, now: Now) -> None:
        was_active = self.state is State.ACTIVE
        self._become(state)
        pending, self._pending = self._pending, deque()
        self._late = 0
        replies: list[tuple[Ticket, Any]] = []
        if was_active:
            for write in pending:
                if write.after is not None and not write.timed_out:
                    replies += self.shard.resume(write.after, ErrorCode.NOT_LEADER_OR_FOLLOWER, now).replies
            replies += self.shard.closed(ErrorCode.NOT_COORDINATOR).replies
        reads, self._reads = self._reads, []
        for _, _, ticket, event, _ in sorted(reads, key=lambda read: read[1]):
            replies.append((ticket, self.shard.refuse(event, ErrorCode.NOT_COORDINATOR)))
        self.shard = self.make_shard()
        for ticket, reply in replies:
            ticket(reply)


class _Write:
    """An append that is not committed yet."""

    __slots__ = ("after", "deadline", "last_offset", "timed_out")

    def __init__(self, last_offset: int, deadline: Millis, after: Any) -> None:
        self.last_offset = last_offset
        self.deadline = deadline
        self.after = after
        self.timed_out = False
