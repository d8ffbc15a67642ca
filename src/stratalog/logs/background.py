"""What goes on beside the traffic: retention, flushes, checkpoints, deletion, each at its own interval.

Decisions are made on the loop; whatever waits for the disk runs on the background pool, one piece of each kind and
data directory at a time, so that a slow one delays only its own kind, and a disk that hangs only itself.  Nothing here
blocks the loop.  All first runs come `log.initial.task.delay.ms` after the start.
"""

from __future__ import annotations

import errno
import logging
import posixpath
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from stratalog.base.ports import Disk, Pool
from stratalog.base.types import MAX_INT64, Millis
from stratalog.storage import checkpoints
from stratalog.storage.log import Log
from stratalog.storage.values import Deletion, FlushPlan

if TYPE_CHECKING:
    from stratalog.logs.registry import LogRegistry

log = logging.getLogger("stratalog.logs")

Key = tuple[str, int]
LOGS_PER_TURN: Final = 500
"""Logs that one turn of the loop looks at: some milliseconds."""
FLUSH_LOOK_MS: Final = 1_000
"""How often rolled segments and `flush.ms` are looked for."""


class Schedule(Protocol):
    """Timers of the loop: `node.Node` has them."""

    def after(self, delay_ms: int, callback: Callable[[Millis], None]) -> object: ...


class Lane:
    """Work of one kind on a pool: in order, one piece at a time."""

    __slots__ = ("_busy", "_name", "_pool", "_queue")

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name
        self._queue: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._busy = False

    def __len__(self) -> int:
        return len(self._queue) + self._busy

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._queue.append((work, done))
        self._next()

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        work, done = self._queue.popleft()
        self._busy = True

        def finished(result: Any, error: BaseException | None) -> None:
            self._busy = False
            try:
                done(result, error)
            finally:
                self._next()

        self._pool.submit(self._name, work, finished)


class Lanes:
    """A lane for each data directory, for work of one kind."""

    __slots__ = ("_by_home", "_name", "_pool")

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name
        self._by_home: dict[str, Lane] = {}

    def of(self, path: str) -> Lane:
        """The lane for something that lies in a data directory: a partition's directory or a checkpoint."""
        home = posixpath.dirname(path)
        lane = self._by_home.get(home)
        if lane is None:
            lane = self._by_home[home] = Lane(self._pool, f"{self._name} {home}")
        return lane


class Checkpoints:
    """Offset checkpoints written off the loop: the newest content of each file, one write in a directory at a time."""

    def __init__(self, disk: Disk, pool: Pool, failed: Callable[[str, OSError], None]) -> None:
        self._disk = disk
        self._pool = pool
        self._failed = failed
        self._waiting: dict[str, Mapping[Key, int]] = {}
        self._then: dict[str, list[Callable[[OSError | None], None]]] = {}
        self._busy: set[str] = set()
        self._closed = False
        self._guards: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """Of each directory: held while one of its files is written."""
        self._written_now: dict[str, int] = {}
        """How often a file was written by `write_now`."""

    def write_now(self, path: str, offsets: Mapping[Key, int]) -> None:
        """For what cannot wait; an older content that is on its way does not replace it.  `OSError`."""
        with self._guards[posixpath.dirname(path)]:
            checkpoints.write_offsets(self._disk, path, offsets)
            self._written_now[path] = self._written_now.get(path, 0) + 1
        if path in self._waiting:
            self._waiting[path] = dict(offsets)

    def put(self, path: str, offsets: Mapping[Key, int], then: Callable[[OSError | None], None] | None = None) -> None:
        """Write these offsets; a content that waits already is replaced.  `then` runs after the write that has them,
        with its error."""
        if self._closed:
            return
        self._waiting[path] = dict(offsets)
        if then is not None:
            self._then.setdefault(path, []).append(then)
        self._next(posixpath.dirname(path))

    def _next(self, home: str) -> None:
        path = next((one for one in self._waiting if posixpath.dirname(one) == home), None)
        if home in self._busy or path is None:
            return
        offsets = self._waiting.pop(path)
        then = self._then.pop(path, [])
        self._busy.add(home)
        guard, before = self._guards[home], self._written_now.get(path, 0)

        def work() -> None:
            with guard:
                if self._written_now.get(path, 0) == before:
                    checkpoints.write_offsets(self._disk, path, offsets)

        def done(_: Any, error: BaseException | None) -> None:
            self._busy.discard(home)
            if error is not None and not isinstance(error, OSError):
                raise error
            if error is not None:
                self._failed(path, error)
            for callback in then:
                callback(error)
            self._next(home)

        self._pool.submit("checkpoint", work, done)

    def close(self) -> None:
        """The stop writes the last ones itself."""
        self._closed = True
        self._waiting.clear()


class Shredder:
    """Unlinks what was renamed: `.deleted` files and `-delete` directories, each after its delay."""

    def __init__(self, disk: Disk, pool: Pool, failed: Callable[[str, OSError], None]) -> None:
        self._disk = disk
        self._lanes = Lanes(pool, "delete")
        self._failed = failed
        self.schedule: Schedule | None = None
        """Until it is there, everything goes at once."""
        self.waiting = 0

    def files(self, one: Log, deletion: Deletion) -> None:
        self._later(
            deletion.delay_ms, lambda: one.finish_deletion(deletion), deletion.paths[0], self._lanes.of(one.directory)
        )

    def tree(self, path: str, delay_ms: int) -> None:
        self._later(delay_ms, lambda: self._remove(path), path, self._lanes.of(path))

    def _remove(self, path: str) -> None:
        try:
            self._disk.rmtree(path)
        except FileNotFoundError:
            log.debug("%s is gone already", path)

    def _later(self, delay_ms: int, work: Callable[[], None], path: str, lane: Lane) -> None:
        self.waiting += 1

        def done(_: Any, error: BaseException | None) -> None:
            self.waiting -= 1
            if isinstance(error, OSError):
                # Some file systems need room to remove something.
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOSPC, errno.EDQUOT):
                    log.warning("%s could not be removed: %s; the next start does it", path, error)
                else:
                    self._failed(path, error)
            elif error is not None:
                raise error

        if self.schedule is None or delay_ms <= 0:
            lane.submit(work, done)
        else:
            self.schedule.after(delay_ms, lambda _: lane.submit(work, done))


@dataclass(slots=True, frozen=True)
class Intervals:
    """Milliseconds between two runs of each task."""

    initial_ms: int = 30_000
    retention_ms: int = 300_000
    recovery_points_ms: int = 60_000
    log_starts_ms: int = 60_000
    high_watermarks_ms: int = 5_000
    flush_look_ms: int = FLUSH_LOOK_MS


class Background:
    """The tasks."""

    def __init__(self, logs: LogRegistry, pool: Pool, schedule: Schedule, intervals: Intervals) -> None:
        self._logs = logs
        self._pool = pool
        self._schedule = schedule
        self.intervals = intervals
        self._dirty_since: dict[Key, int] = {}
        self._flushing: set[Key] = set()
        self._flushes = Lanes(pool, "flush")
        self._closed = False
        self._retaining = False

    def start(self) -> None:
        initial = self.intervals.initial_ms
        self._every(initial, lambda: self.intervals.retention_ms, self.retention)
        self._every(initial, lambda: self.intervals.flush_look_ms, self.flush)
        self._every(initial, lambda: self.intervals.recovery_points_ms, self._recovery_points)
        self._every(initial, lambda: self.intervals.log_starts_ms, self._log_starts)
        self._every(self.intervals.high_watermarks_ms, lambda: self.intervals.high_watermarks_ms, self._high_watermarks)

    def close(self) -> None:
        self._closed = True

    def _every(self, first_ms: int, interval_ms: Callable[[], int], task: Callable[[Millis], None]) -> None:
        def run(now: Millis) -> None:
            if not self._closed:
                task(now)
                self._schedule.after(max(interval_ms(), 1), run)

        self._schedule.after(first_ms, run)

    # --- retention -------------------------------------------------------------------------------------------------
    def retention(self, now: Millis) -> None:
        """One look at all logs, some at a time."""
        if not self._retaining:
            self._retaining = True
            self._retain_some(deque(self._logs.keys()), now)

    def _retain_some(self, keys: deque[Key], now: Millis) -> None:
        logs = self._logs
        for _ in range(min(LOGS_PER_TURN, len(keys))):
            key = keys.popleft()
            if logs.retain(key, now):
                keys.append(key)  # there may be more than one pass takes
                break
        if keys and not self._closed:
            self._schedule.after(0, lambda later: self._retain_some(keys, later))
        else:
            self._retaining = False

    # --- flush -----------------------------------------------------------------------------------------------------
    def flush(self, now: Millis) -> None:
        """Rolled segments, and logs that have been dirty for `flush.ms`."""
        since = self._dirty_since
        for key, one in self._logs.items():
            if one.flush_due is not None:
                self._flush(key, one, one.flush_due)
            if one.config.flush_ms < MAX_INT64:
                if one.log_end_offset <= one.recovery_point:
                    since.pop(key, None)
                elif now - since.setdefault(key, now) >= one.config.flush_ms:
                    since.pop(key)
                    self._flush(key, one, None)

    def _flush(self, key: Key, one: Log, up_to: int | None) -> None:
        if key in self._flushing or one.is_over:
            return
        plan = one.flush_plan(up_to)
        if plan is None:
            return
        self._flushing.add(key)
        self._flushes.of(one.directory).submit(plan.run, lambda _, error: self._flushed(key, one, plan, error))

    def _flushed(self, key: Key, one: Log, plan: FlushPlan, error: BaseException | None) -> None:
        self._flushing.discard(key)
        if error is None:
            if not one.closed:
                one.complete_flush(plan)
        elif isinstance(error, OSError):
            # Never sync again and believe it (D16): what was written since the last good sync may be lost.
            one.fail(OSError(error.errno or errno.EIO, error.strerror, error.filename))
            if not one.closed:
                self._logs.log_failed(one, error)
        else:
            raise error

    # --- checkpoints -----------------------------------------------------------------------------------------------
    def _recovery_points(self, _: Millis) -> None:
        for directory in self._logs.online:
            self._logs.checkpoint_recovery_points(directory)

    def _log_starts(self, _: Millis) -> None:
        for directory in self._logs.online:
            self._logs.checkpoint_log_starts(directory)

    def _high_watermarks(self, _: Millis) -> None:
        self._logs.checkpoint_high_watermarks()
