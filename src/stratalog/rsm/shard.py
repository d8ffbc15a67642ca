"""What a state machine on a log is, and what travels between it and its runtime.

A `Shard` is pure: it gets an event and the time and returns a `Result`; it never sees a log, a socket or a clock.

- **Hard state** is what the log holds.  Only `replay` changes it: the runtime calls it for each record of a result
  right after the append, and for each record of the log when it loads.  So a handler always sees the last *written*
  state, committed or not, and two commits in one wake-up do not race.
- **Soft state** is what no log holds (who waits for a rebalance, when a session ends).  Handlers and timers change it
  at once; it is gone when the shard is closed.
- **Nobody outside sees what is not committed.**  A result's `after` is given back through `resume` once the high
  watermark has passed its records, or with the error that they met; replies that tell of a write go out from there.  A
  read names the offset of the newest record that it saw (`Result.depends_on`), and its replies wait for that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis

Ticket = Callable[[Any], None]
"""Who waits for a reply.  A shard stores it and hands it back beside the reply; only the runtime calls it."""


class Now(NamedTuple):
    """One moment on both clocks: timestamps that are stored are wall time, timers run on monotonic time."""

    wall_ms: Millis
    monotonic_ms: Millis


class Record(NamedTuple):
    """A record for the log: `value` None is a tombstone."""

    key: bytes
    value: bytes | None


class Logged(NamedTuple):
    """A record in the log.  `producer_id` is -1 outside transactions."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = -1


@dataclass(slots=True)
class Result:
    """What one event led to."""

    records: list[Record] = field(default_factory=list)
    """Appended as one batch, all or none, while `is_atomic`."""
    replies: list[tuple[Ticket, Any]] = field(default_factory=list)
    """Sent at once, or when `depends_on` is committed."""
    after: Any = None
    """Given back through `Shard.resume` when the records are committed or have failed."""
    depends_on: int = -1
    """The offset of the newest record that the replies tell of; -1 for none."""
    is_atomic: bool = True
    """False for many records that need not come together (tombstones): they go in as many batches as it takes."""
    is_replayed: bool = True
    """False where the handler holds the records' content as soft state already (a classic group's members)."""


class Shard(Protocol):
    """A state machine.  Everything is called from the loop, except `replay_many` of a shard that still loads."""

    def handle(self, event: Any, now: Now) -> Result: ...

    def resume(self, after: Any, error: ErrorCode | None, now: Now) -> Result:
        """The records of a result with this `after` are committed (`error` None) or are not known to be."""
        ...

    def replay(self, record: Logged) -> None: ...

    def replay_many(self, records: Iterable[Logged]) -> None:
        """The same as `replay` for each in turn; a loader's way, free to skip what a later record overwrites."""
        ...

    def replay_end_of_transaction(self, producer_id: int, committed: bool) -> None: ...

    def loaded(self, now: Now) -> Result:
        """The log is replayed: timers may start."""
        ...

    def closed(self, error: ErrorCode) -> Result:
        """The shard is given up: a reply for everyone who waits.  Nothing else of the result counts."""
        ...

    def refuse(self, event: Any, error: ErrorCode) -> Any:
        """The reply to an event that cannot be handled, while loading for example."""
        ...

    def deadline(self) -> Millis | None:
        """When `tick` wants to be called, in monotonic time."""
        ...

    def tick(self, now: Now) -> Iterable[Result]:
        """Timers that are due, one result each; lazily, because each result's records are appended before the next
        timer looks at the state."""
        ...


class LogPort(Protocol):
    """The log under a runtime: a partition that this broker leads."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append(self, batch: bytearray, now: Now) -> int:
        """Append a batch (format v2, offsets from 0; stamped in place, kept until it is written) and return the offset
        of its first record.  `ApiError` when nothing was appended; an `OSError` means that the log is offline."""
        ...

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, or that follows a gap there, up to the end of the log,
        committed or not; at least one batch; empty at the end."""
        ...
