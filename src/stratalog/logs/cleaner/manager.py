"""The cleaners of a broker: who cleans what, when, how fast, and what became of it.

On the loop.  A cleaning is a chain of steps on the pool of cleaners (`cleaning.Cleaning.advance`), a few MiB each; back
on the loop after each one, new segments are swapped in, the throttle may put a pause before the next step, and a
cleaning that was paused meanwhile ends.  There are as many at once as `log.cleaner.threads` says now; each has a map of
`log.cleaner.dedupe.buffer.size / threads` bytes.  When nothing is due, the next look is `log.cleaner.backoff.ms` later.

A partition that fails is tried again, after a pause that doubles from 15 seconds to an hour; until then it is in
`failures`, in the metrics and in `stratalog why` (Kafka leaves it out until the next start, KAFKA-19895).  An error of
the disk itself goes to the directory's failure instead, a full disk counts as the partition's failure.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from stratalog.base.failures import Malformed
from stratalog.base.ports import Pool, Rng
from stratalog.base.types import Millis
from stratalog.logs.background import Schedule
from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.cleaning import CHUNK_BYTES, Cleaning, Stopped
from stratalog.logs.cleaner.states import Key, States
from stratalog.records.kernels import kernels_ready, load_kernels
from stratalog.records.offset_map import OffsetMap
from stratalog.storage.log import Log

log = logging.getLogger("stratalog.cleaner")

RETRY_MS_FIRST: Final = 15_000
RETRY_MS_MAX: Final = 3_600_000
STEP_BYTES: Final = 16 << 20
"""Read and written between two looks of the loop at a cleaning: some hundredths of a second."""
THROTTLE_LOOK_MS: Final = 1_000
"""How long a cleaning that waits for the throttle takes to notice that it was stopped."""
KERNELS_FROM_BYTES: Final = 256 << 10
"""A log smaller than this is cleaned by the plain twin: sooner than Numba is there."""
MAP_BYTES_MAX: Final = 2 << 30


class Logs(Protocol):
    """What the manager needs of the registry."""

    def get(self, topic: str, partition: int) -> Log | None: ...

    def compacted(self) -> list[tuple[Key, Log]]: ...

    def cleaner_checkpoint(self, key: Key) -> int | None: ...

    def set_cleaner_checkpoint(self, key: Key, offset: int) -> None: ...

    def finish_later(self, log: Log, deletion: object) -> None: ...

    def retain(self, key: Key, now: Millis) -> int: ...

    def log_failed(self, log: Log, error: OSError) -> None: ...


@dataclass(slots=True)
class Settings:
    """The cleaner's keys as they count now."""

    threads: int = 1
    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 << 10
    bytes_per_second: float = 1.7976931348623157e308
    backoff_ms: int = 15_000
    enable: bool = True

    @property
    def chunk_bytes(self) -> int:
        """What is read at once.  Kafka's half a MiB is the least; kernels want more."""
        return max(CHUNK_BYTES, self.io_buffer_bytes // max(self.threads, 1) // 2)

    @property
    def map_bytes_each(self) -> int:
        return min(self.map_bytes // max(self.threads, 1), MAP_BYTES_MAX)


@dataclass(slots=True)
class Failure:
    """A partition whose last cleaning failed."""

    text: str
    at_ms: int
    attempts: int
    next_ms: int


@dataclass(slots=True)
class Totals:
    """Since the start, for the metrics."""

    cleanings: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    invalid: int = 0
    failures: int = 0
    aborted: int = 0
    last_seconds: float = 0.0
    last_map_utilization: float = 0.0
    max_dirty_ratio: float = 0.0
    max_overdue_ms: int = 0


class _Run:
    """One cleaning under way."""

    __slots__ = ("candidate", "job", "key", "kind", "log", "offsets", "started", "waits_until")

    def __init__(self, key: Key, log: Log, candidate: choice.Candidate, started: float) -> None:
        self.key = key
        self.log = log
        self.candidate = candidate
        self.job: Cleaning
        self.offsets: OffsetMap | None = None
        self.kind: tuple[int, float, bool] = (0, 0.0, False)
        """What its map was made for: bytes, load factor, compiled or not."""
        self.started = started
        self.waits_until = 0
        """When the throttle lets it go on, on the monotonic clock."""


def facts_of(one: Log) -> choice.LogFacts:
    """A log as the choice sees it."""
    return choice.LogFacts(one.segments, one.log_start_offset, one.last_stable_offset, one.log_end_offset, one.config)


class CleanerManager:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        pool: Pool,
        rng: Rng,
        schedule: Schedule,
        settings: Settings,
        *,
        now_ms: Callable[[], Millis],
        monotonic_ms: Callable[[], Millis],
    ) -> None:
        """`pool` is the cleaners' own: it takes as many steps at once as there are cleaners."""
        self.states = States()
        self.failures: dict[Key, Failure] = {}
        self.totals = Totals()
        self.settings = settings
        self._logs = logs
        self._pool = pool
        self._rng = rng
        self._schedule = schedule
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._running: dict[Key, _Run] = {}
        self._idle_maps: list[tuple[int, float, bool, OffsetMap]] = []
        self._ticking = False
        self._closed = False
        self._free_at_ms = 0.0
        """When the throttle lets the next byte pass, on the monotonic clock."""
        self.on_failure: Callable[[], None] = lambda: None
        """A partition has failed, or one that had has not again."""

    # --- when ------------------------------------------------------------------------------------------------------
    def start(self, delay_ms: int) -> None:
        self._next_look(delay_ms)

    def _next_look(self, delay_ms: int) -> None:
        if not self._ticking and not self._closed:
            self._ticking = True
            self._schedule.after(delay_ms, self._look)

    def _look(self, now: Millis) -> None:
        self._ticking = False
        self.fill(now)
        self._next_look(max(self.settings.backoff_ms, 1))

    def reconfigure(self, settings: Settings) -> None:
        """Counts from the next cleaning on; of cleaners that are too many now, each ends with its current log."""
        self.settings = settings
        self._idle_maps.clear()
        self._free_at_ms = 0.0
        for run in self._running.values():
            run.waits_until = 0
        if not self._closed:
            self.fill(self._now_ms())

    def fill(self, now: Millis) -> None:
        """Give every idle cleaner the dirtiest log that is due."""
        settings = self.settings
        while not self._closed and settings.enable and len(self._running) < settings.threads:
            chosen = self.filthiest(now)
            if chosen is None:
                return
            self._begin(*chosen, now)

    def filthiest(self, now: Millis) -> tuple[Key, Log, choice.Candidate] | None:
        """The log with the greatest dirty share of those that are due and free."""
        best: tuple[Key, Log, choice.Candidate] | None = None
        totals = self.totals
        totals.max_dirty_ratio = 0.0
        totals.max_overdue_ms = 0
        for key, one in self._logs.compacted():
            if not self.states.is_free(key) or one.is_over:
                continue
            failure = self.failures.get(key)
            if failure is not None and now < failure.next_ms:
                continue
            try:
                found = self.examine(key, one, now)
            except OSError as error:
                self._logs.log_failed(one, error)
                continue
            totals.max_dirty_ratio = max(totals.max_dirty_ratio, found.ratio)
            totals.max_overdue_ms = max(totals.max_overdue_ms, found.overdue_ms)
            if found.is_due(one.config) and (best is None or found.ratio > best[2].ratio):
                best = (key, one, found)
        return best

    def examine(self, key: Key, one: Log, now: Millis) -> choice.Candidate:
        """The cleanable part of one log; a checkpoint that cannot be is mended for good."""
        found = choice.candidate(facts_of(one), self._logs.cleaner_checkpoint(key), now)
        if found.range.mended is not None:
            if not one.config.delete:
                log.warning("%s-%d: %s; cleaning begins at %d", *key, found.range.mended, found.range.first_dirty)
            self._logs.set_cleaner_checkpoint(key, found.range.first_dirty)
        return found

    # --- one cleaning ----------------------------------------------------------------------------------------------
    def _begin(self, key: Key, one: Log, candidate: choice.Candidate, now: Millis) -> None:
        self.states.start(key)
        run = _Run(key, one, candidate, self._monotonic_ms())
        large = candidate.clean_bytes + candidate.cleanable_bytes >= KERNELS_FROM_BYTES
        settings = self.settings
        run.job = Cleaning(
            one,
            candidate.range,
            lambda: self._map(run, settings, large),
            now_ms=now,
            chunk_bytes=settings.chunk_bytes,
        )
        self._running[key] = run
        self._step(run)

    def _map(self, run: _Run, settings: Settings, large: bool) -> OffsetMap:
        """On the cleaner's thread."""
        if large or kernels_ready():
            load_kernels()
        compiled = kernels_ready()
        run.kind = wanted = (settings.map_bytes_each, settings.load_factor, compiled)
        while self._idle_maps:
            try:
                entry = self._idle_maps.pop()
            except IndexError:
                break
            if entry[:3] == wanted:
                run.offsets = entry[3]
                return entry[3]
        made = OffsetMap(wanted[0], secret=self._rng.token(16), load_factor=wanted[1])
        run.offsets = made
        return made

    def _step(self, run: _Run) -> None:
        if self._is_over(run):
            self._end(run, Stopped())
            return
        rate = self.settings.bytes_per_second
        budget = STEP_BYTES if rate > STEP_BYTES * 10 else max(int(rate / 10), 1)
        self._pool.submit(
            f"clean {run.key[0]}-{run.key[1]}",
            lambda: run.job.advance(budget),
            lambda moved, error: self._stepped(run, moved, error),
        )

    def _is_over(self, run: _Run) -> bool:
        """Whether its result is not wanted any more: it was stopped, or the policy is another now (C09)."""
        if not run.log.config.compact:
            run.job.stop()
        return run.job.stopped

    def _stepped(self, run: _Run, moved: int | None, error: BaseException | None) -> None:
        job = run.job
        if job.stopped and (error is None or isinstance(error, (OSError, ValueError))):
            # Whoever stopped it may have renamed or let go of the files below its hands since.
            error = Stopped()
        if error is not None:
            self._end(run, error)
            return
        if self._is_over(run):
            self._end(run, Stopped())
            return
        if job.ready is not None:
            try:
                deletion = job.swap()
            except OSError as failure:
                self._end(run, failure)
                return
            if deletion is None:
                self._end(run, Stopped())
                return
            self._logs.finish_later(run.log, deletion)
        if job.done:
            self._end(run, None)
            return
        run.waits_until = self._monotonic_ms() + self._throttled(moved or 0)
        self._wait(run)

    def _wait(self, run: _Run) -> None:
        """Until the throttle lets it go on.  A low rate may mean hours: who stops it or raises the rate waits less."""
        delay = run.waits_until - self._monotonic_ms()
        if delay <= 0 or self._is_over(run):
            self._step(run)
        else:
            self._schedule.after(min(delay, THROTTLE_LOOK_MS), lambda _: self._wait(run))

    def _throttled(self, moved: int) -> int:
        """Milliseconds to wait after so many bytes, all cleaners together."""
        rate = self.settings.bytes_per_second
        if rate > 1e15:
            return 0
        now = self._monotonic_ms()
        self._free_at_ms = max(self._free_at_ms, now) + moved * 1000.0 / rate
        return max(int(self._free_at_ms - now), 0)

    def _end(self, run: _Run, error: BaseException | None) -> None:
        key, job = run.key, run.job
        self._running.pop(key, None)
        now = self._now_ms()
        try:
            job.discard()
        except OSError as failure:
            error = error or failure
        if run.offsets is not None:
            run.offsets.clear()
            settings = self.settings
            if run.kind[:2] == (settings.map_bytes_each, settings.load_factor):  # the settings may be others by now
                self._idle_maps.append((*run.kind, run.offsets))
            del self._idle_maps[: -max(settings.threads, 1)]
            run.offsets = None
        self.states.done(key)
        if self._closed:
            return
        if error is None:
            self._succeeded(run, now)
        elif isinstance(error, Stopped):
            self.totals.aborted += 1
        else:
            self._failed(run, error, now)
        self._schedule.after(0, self._again)

    def _again(self, now: Millis) -> None:
        self.fill(now)

    def _succeeded(self, run: _Run, now: Millis) -> None:
        key, job, totals = run.key, run.job, self.totals
        stats = job.stats
        self._logs.set_cleaner_checkpoint(key, job.end_offset)
        totals.cleanings += 1
        totals.bytes_read += stats.bytes_read + stats.map_bytes_read
        totals.bytes_written += stats.bytes_written
        totals.records_read += stats.records_read
        totals.records_written += stats.records_written
        totals.invalid += stats.invalid
        totals.last_seconds = (self._monotonic_ms() - run.started) / 1000.0
        totals.last_map_utilization = stats.map_utilization
        if self.failures.pop(key, None) is not None:
            self.on_failure()
        log.info(
            "%s-%d cleaned up to %d: %d of %d records stay, %.1f of %.1f MB, map %.1f %% full, %.2f s",
            *key,
            job.end_offset,
            stats.records_written,
            stats.records_read,
            stats.bytes_written / 1e6,
            stats.bytes_read / 1e6,
            stats.map_utilization * 100.0,
            totals.last_seconds,
        )
        if stats.invalid:
            log.warning("%s-%d: %d records without a key were dropped", *key, stats.invalid)
        if self._logs.get(*key) is run.log:
            self._logs.retain(key, now)

    def _failed(self, run: _Run, error: BaseException, now: Millis) -> None:
        key = run.key
        if isinstance(error, OSError) and (error.errno not in (errno.ENOSPC, errno.EDQUOT) or run.log.is_over):
            self._logs.log_failed(run.log, error)
            return
        if not isinstance(error, (OSError, Malformed)):
            raise error  # a bug: the process stops (STYLE.md, rule 10)
        before = self.failures.get(key)
        attempts = 1 if before is None else before.attempts + 1
        pause = min(RETRY_MS_FIRST << min(attempts - 1, 20), RETRY_MS_MAX)
        self.failures[key] = Failure(str(error), now, attempts, now + pause)
        self.totals.failures += 1
        log.error("%s-%d could not be cleaned (attempt %d, next in %d s): %s", *key, attempts, pause // 1000, error)
        self.on_failure()

    # --- the others ------------------------------------------------------------------------------------------------
    def pause(self, key: Key) -> None:
        """No swap of this partition from here on, until as many `resume`."""
        if self.states.pause(key):
            self._running[key].job.stop()

    def resume(self, key: Key) -> None:
        self.states.resume(key)

    def forget(self, key: Key) -> None:
        """The partition is being deleted or has moved."""
        self.failures.pop(key, None)
        run = self._running.get(key)
        if run is not None:
            run.job.stop()

    def uncleanable(self) -> dict[Key, Failure]:
        return dict(self.failures)

    @property
    def busy(self) -> list[Key]:
        """What is being cleaned."""
        return list(self._running)

    def close(self) -> None:
        """No new steps; the pool's end waits for those under way."""
        self._closed = True
        for run in self._running.values():
            run.job.stop()

    def closed(self) -> None:
        """The pool has ended: what was not swapped in goes."""
        for run in list(self._running.values()):
            try:
                run.job.discard()
            except OSError as error:
                log.warning("left-overs of the cleaner stay until the next start: %s", error)
        self._running.clear()

    def gauges(self) -> list[tuple[str, str, float]]:
        totals = self.totals
        return [
            ("stratalog_cleaner_running", "", len(self._running)),
            ("stratalog_cleaner_threads", "", self.settings.threads),
            ("stratalog_cleaner_cleanings_total", "", totals.cleanings),
            ("stratalog_cleaner_read_bytes_total", "", totals.bytes_read),
            ("stratalog_cleaner_written_bytes_total", "", totals.bytes_written),
            ("stratalog_cleaner_read_records_total", "", totals.records_read),
            ("stratalog_cleaner_written_records_total", "", totals.records_written),
            ("stratalog_cleaner_keyless_records_total", "", totals.invalid),
            ("stratalog_cleaner_failures_total", "", totals.failures),
            ("stratalog_cleaner_aborted_total", "", totals.aborted),
            ("stratalog_cleaner_last_seconds", "", totals.last_seconds),
            ("stratalog_cleaner_map_utilization", "", totals.last_map_utilization),
            ("stratalog_cleaner_max_dirty_ratio", "", totals.max_dirty_ratio),
            ("stratalog_cleaner_max_compaction_delay_ms", "", totals.max_overdue_ms),
            ("stratalog_uncleanable_partitions", "", len(self.failures)),
            (
                "stratalog_uncleanable_bytes",
                "",
                sum(one.size for key in list(self.failures) if (one := self._logs.get(*key)) is not None),
            ),
        ]
