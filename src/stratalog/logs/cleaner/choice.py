"""Which log is cleaned next, and which part of it.  Pure.

    clean (compacted before)        | cleanable                     | not cleanable
    up to the checkpoint: first dirty offset                        first uncleanable offset

The first uncleanable offset is the least of: the last stable offset, the base of the active segment, and the base of
the first segment with a record younger than `min.compaction.lag.ms`; then back to the start of the segment that it is
in.  A log is due when its dirty share is above `min.cleanable.dirty.ratio`, or when its oldest dirty segment has waited
longer than `max.compaction.lag.ms`.  A checkpoint that cannot be (below the log start, past the log end) is mended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from stratalog.base.types import MAX_INT32, MAX_INT64
from stratalog.storage.config import LogConfig

LAST_STABLE: Final = "last-stable-offset"
ACTIVE: Final = "active-segment"
LAG: Final = "min-compaction-lag"


class SegmentFacts(Protocol):
    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...

    def load_first_timestamp(self) -> int: ...

    @property
    def index_bytes(self) -> int: ...

    @property
    def time_index_bytes(self) -> int: ...


class LogFacts(NamedTuple):
    """A log as the cleaner's choice sees it."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    config: LogConfig


class Range(NamedTuple):
    """The cleanable part of a log."""

    first_dirty: int
    first_uncleanable: int
    mended: str | None
    """Why the checkpoint was not taken as it stands, None where it was."""
    bound: str
    """Which of the three bounds decided."""
    until_ms: int | None
    """When the compaction lag lets go of the next segment, None where it does not hold one."""


class Candidate(NamedTuple):
    """A log that could be cleaned."""

    range: Range
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """How long it has been waiting beyond `max.compaction.lag.ms`, 0 where it has not."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if self.overdue_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.ratio > config.min_cleanable_dirty_ratio


def _floor(segments: Sequence[SegmentFacts], offset: int) -> int:
    """The index of the segment that may hold an offset, 0 at least."""
    return max(bisect_right([segment.base_offset for segment in segments], offset) - 1, 0)


def cleanable(log: LogFacts, checkpoint: int | None, now_ms: int) -> Range:
    """The range that may be cleaned now, `first_dirty == first_uncleanable` when there is nothing."""
    mended = None
    first = log.log_start_offset if checkpoint is None else checkpoint
    if first < log.log_start_offset:
        if not log.config.delete:
            mended = f"the checkpoint {first} is below the log start {log.log_start_offset}"
        else:
            mended = "the log start has moved"
        first = log.log_start_offset
    elif first > log.log_end_offset:
        mended = f"the checkpoint {first} is past the log end {log.log_end_offset}"
        first = log.log_start_offset
    segments = log.segments
    active = segments[-1].base_offset
    bound, end, until = ACTIVE, active, None
    if log.last_stable_offset < end:
        bound, end = LAST_STABLE, log.last_stable_offset
    lag = log.config.min_compaction_lag_ms
    if lag > 0 and first < active:
        for segment in segments[_floor(segments, first) : -1]:
            newest = segment.largest_timestamp
            if newest > now_ms - lag:
                if segment.base_offset <= end:
                    bound, end, until = LAG, segment.base_offset, newest + lag
                break
    if end < active:
        end = segments[_floor(segments, end)].base_offset
    return Range(first, max(first, end), mended, bound, until)


def overdue(log: LogFacts, first_dirty: int, now_ms: int) -> int:
    """Milliseconds by which the oldest dirty segment has waited too long."""
    lag = log.config.max_compaction_lag_ms
    if lag >= MAX_INT64:
        return 0
    segments = log.segments
    if first_dirty >= segments[-1].base_offset:
        return 0
    oldest = MAX_INT64
    for segment in segments[_floor(segments, first_dirty) : -1]:
        first = segment.load_first_timestamp()
        if 0 < first < oldest:
            oldest = first
    return max(now_ms - lag - oldest, 0)


def candidate(log: LogFacts, checkpoint: int | None, now_ms: int) -> Candidate:
    """A log's range with its bytes."""
    found = cleanable(log, checkpoint, now_ms)
    segments = log.segments
    stop = found.first_uncleanable
    clean = sum(segment.size for segment in segments if segment.base_offset < found.first_dirty)
    dirty = 0
    if stop > found.first_dirty:
        for segment in segments[_floor(segments, found.first_dirty) :]:
            if segment.base_offset >= stop:
                break
            dirty += segment.size
    return Candidate(found, clean, dirty, overdue(log, found.first_dirty, now_ms))


def group(
    segments: Sequence[SegmentFacts], *, size_max: int, index_bytes_max: int, first_uncleanable: int
) -> list[list[int]]:
    """Which neighbours are written into one segment, as indexes: as many as the sizes of log and indexes allow, and as
    31 bits hold offsets.  An empty one goes with anything, or empty ones would pile up (C12)."""
    groups: list[list[int]] = []
    index = 0
    while index < len(segments):
        first = segments[index]
        chosen = [index]
        size, offsets, times = first.size, first.index_bytes, first.time_index_bytes
        index += 1
        while index < len(segments):
            segment = segments[index]
            following = segments[index + 1].base_offset if index + 1 < len(segments) else first_uncleanable
            if (
                size + segment.size > size_max
                or offsets + segment.index_bytes > index_bytes_max
                or times + segment.time_index_bytes > index_bytes_max
                or (segment.size and following - 1 - first.base_offset > MAX_INT32)
            ):
                break
            chosen.append(index)
            size += segment.size
            offsets += segment.index_bytes
            times += segment.time_index_bytes
            index += 1
        groups.append(chosen)
    return groups
