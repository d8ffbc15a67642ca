"""Which segments a log has outlived, and why each of the others is still here.

Pure: takes a log's boundaries and segments as they are and `now`, gives back a decision; `background` carries it out,
`stratalog why` prints it.  Three rules, in this order, each from the oldest segment on and ending at the first segment
that it does not take:

    log start   the segment lies below the log start offset whole (DeleteRecords; also for logs that are only compacted)
    size        without the segment, the log still has `retention.bytes`
    time        its newest record is older than `retention.ms`; a segment without timestamps goes by its file's time

Two guards: nothing at or above the high watermark, and never an empty last segment; a log is never without a segment.

A timestamp from the future would keep its segment until that time has come.  Such segments are counted and named;
`future_cap_ms` (`stratalog.retention.future.timestamp.cap.ms`) bounds how long: then a segment counts as written no
later than its file was, plus the cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from stratalog.storage.config import LogConfig

LOG_START: Final = "log-start"
SIZE: Final = "size"
TIME: Final = "time"
NO_CAP: Final = -1


class SegmentFacts(Protocol):
    """What retention wants to know of a segment: `storage.segment.Segment` has it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


class LogFacts(NamedTuple):
    """A log as retention sees it."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    config: LogConfig
    uploaded_until: int | None = None
    """With remote storage: the offset up to which everything is there; None while nothing is known."""


class Doomed(NamedTuple):
    """The oldest so many segments go, by one rule."""

    segments: int
    rule: str
    reason: str


class Kept(NamedTuple):
    """Why one segment is (still) here."""

    base_offset: int
    size: int
    rule: str
    """`deletable`, `active`, `high-watermark`, `size`, `time`, `future`, `policy`, `behind` (an older one is kept),
    `remote`."""
    text: str
    until_ms: int | None
    """When the rule lets go of it, None where that is not a matter of time."""


def age_base_ms(segment: SegmentFacts, now_ms: int, future_cap_ms: int) -> int:
    """The time that a segment's age counts from."""
    newest = segment.max_timestamp
    if newest < 0:
        return segment.modified_ms
    if future_cap_ms != NO_CAP and newest > now_ms:
        return min(newest, segment.modified_ms + future_cap_ms)
    return newest


def is_from_the_future(segment: SegmentFacts, now_ms: int) -> bool:
    return segment.max_timestamp > now_ms


def _limits(log: LogFacts) -> tuple[int, int]:
    """(bytes, milliseconds) that the local log may keep, -1 for no bound."""
    config = log.config
    if not config.remote_storage_enable:
        return config.retention_bytes, config.retention_ms
    size = config.retention_bytes if config.local_retention_bytes == -2 else config.local_retention_bytes
    time = config.retention_ms if config.local_retention_ms == -2 else config.local_retention_ms
    return size, time


def _guarded(log: LogFacts, index: int) -> bool:
    """Whether a guard protects a segment whatever the rule says."""
    segments = log.segments
    last = index + 1 == len(segments)
    upper = log.log_end_offset if last else segments[index + 1].base_offset
    if log.high_watermark < upper:
        return True
    return last and segments[index].size == 0


def _uploaded(log: LogFacts, index: int) -> bool:
    if not log.config.remote_storage_enable:
        return True
    if log.uploaded_until is None or index + 1 == len(log.segments):
        return False
    return log.segments[index + 1].base_offset <= log.uploaded_until


def below_start(log: LogFacts) -> int:
    """How many of the oldest segments lie whole below the log start."""
    segments = log.segments
    count = 0
    while (
        count + 1 < len(segments)
        and segments[count + 1].base_offset <= log.log_start_offset
        and not _guarded(log, count)
    ):
        count += 1
    return count


def over_size(log: LogFacts) -> int:
    """How many of the oldest segments the log does not need to have its `retention.bytes`."""
    bound, _ = _limits(log)
    if bound < 0:
        return 0
    surplus = sum(segment.size for segment in log.segments) - bound
    count = 0
    for index, segment in enumerate(log.segments):
        if surplus - segment.size < 0 or _guarded(log, index) or not _uploaded(log, index):
            break
        surplus -= segment.size
        count += 1
    return count


def over_age(log: LogFacts, now_ms: int, future_cap_ms: int = NO_CAP) -> int:
    """How many of the oldest segments are older than `retention.ms`."""
    _, bound = _limits(log)
    if bound < 0:
        return 0
    count = 0
    for index, segment in enumerate(log.segments):
        if _guarded(log, index) or not _uploaded(log, index):
            break
        if now_ms - age_base_ms(segment, now_ms, future_cap_ms) <= bound:
            break
        count += 1
    return count


def decide(log: LogFacts, now_ms: int, future_cap_ms: int = NO_CAP) -> Doomed | None:
    """What goes next, None when nothing does.  Ask again after it is gone: the rules look at what is left."""
    count = below_start(log)
    if count:
        return Doomed(count, LOG_START, f"below the log start offset {log.log_start_offset}")
    if not log.config.delete:
        return None
    count = over_size(log)
    if count:
        return Doomed(count, SIZE, f"the log has its retention.bytes of {_limits(log)[0]} without it")
    count = over_age(log, now_ms, future_cap_ms)
    if count:
        return Doomed(count, TIME, f"its newest record is older than retention.ms of {_limits(log)[1]}")
    return None


def explain(log: LogFacts, now_ms: int, future_cap_ms: int = NO_CAP) -> list[Kept]:
    """For each segment why it is still here."""
    found: list[Kept] = []
    size_bound, time_bound = _limits(log)
    surplus = sum(segment.size for segment in log.segments) - size_bound
    blocked: int | None = None
    low = below_start(log)
    for index, segment in enumerate(log.segments):
        rule, text, until = _why(log, index, segment, now_ms, future_cap_ms, surplus, low, size_bound, time_bound)
        surplus -= segment.size
        if rule == "deletable" and blocked is not None and index >= low:
            rule, text, until = (
                "behind",
                f"would go, but segment {blocked} before it stays: a log loses its oldest segment first",
                None,
            )
        elif rule != "deletable" and blocked is None:
            blocked = segment.base_offset
        found.append(Kept(segment.base_offset, segment.size, rule, text, until))
    return found


def _why(
    log: LogFacts,
    index: int,
    segment: SegmentFacts,
    now_ms: int,
    future_cap_ms: int,
    surplus: int,
    low: int,
    size_bound: int,
    time_bound: int,
) -> tuple[str, str, int | None]:
    last = index + 1 == len(log.segments)
    if index < low:
        return "deletable", f"below the log start offset {log.log_start_offset}: goes with the next check", None
    upper = log.log_end_offset if last else log.segments[index + 1].base_offset
    if last and not segment.size:
        return "active", "the active segment, empty: a log is never without one", None
    if log.high_watermark < upper:
        return "high-watermark", f"holds offsets at or above the high watermark {log.high_watermark}", None
    if not log.config.delete:
        return "policy", "cleanup.policy is compact: only compaction and DeleteRecords take records away", None
    if not _uploaded(log, index):
        return "remote", "not in remote storage yet", None
    if size_bound >= 0 and surplus - segment.size >= 0:
        return "deletable", f"the log has its retention.bytes of {size_bound} without it", None
    if time_bound < 0:
        if size_bound < 0:
            return "policy", "no bound: neither retention.ms nor retention.bytes is set", None
        return "size", f"the log needs it for its retention.bytes of {size_bound}", None
    goes = age_base_ms(segment, now_ms, future_cap_ms) + time_bound + 1
    if goes <= now_ms:
        return "deletable", f"its newest record is older than retention.ms of {time_bound}", None
    if is_from_the_future(segment, now_ms):
        return "future", "its newest timestamp lies in the future, retention.ms counts from there", goes
    return ("active" if last else "time"), f"its newest record is younger than retention.ms of {time_bound}", goes
