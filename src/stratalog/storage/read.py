"""Finding things in a log: by offset under an isolation bound, by timestamp, aborted transactions of a range.

Any thread: each function takes the segments and the bound once and works on what it took.  A bound carries its byte
position, so a read never looks past it, whatever the writer does meanwhile (ST-12, R26).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import FileRegion
from stratalog.records import batch as batches
from stratalog.storage.scan import scan
from stratalog.storage.segment import Segment
from stratalog.storage.segments import View
from stratalog.storage.values import AbortedTxn, FetchData, Isolation, OffsetMetadata, TimestampOffset

if TYPE_CHECKING:
    from stratalog.storage.log import Log


_CHUNK = 2048
"""Headers read at once behind an index entry: a search by timestamp stops after a few."""


def read(log: Log, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> FetchData:
    """See `Log.read`."""
    while True:
        view = log.segment_set.view
        try:
            return _read(log, offset, max_bytes, isolation, min_one)
        except FileNotFoundError:
            _look_again(log, view)


def _look_again(log: Log, view: View) -> None:
    """A file was not there: raises again, unless the log has other segments by now than this reader took."""
    if log.closed:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.topic}-{log.partition} was closed under a reader"
        ) from None
    if log.segment_set.view is view:
        raise


def _read(log: Log, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> FetchData:
    if isolation == 0:
        bound = log._log_end
    elif isolation == 1:
        bound = log._high_watermark
    else:
        bound = log.last_stable
    if offset >= bound[0]:
        end = log._log_end[0]
        if offset > end:
            raise _out_of_range(log, offset)
        return FetchData(bound if offset == bound[0] else OffsetMetadata(offset), None)
    if offset < log.log_start_offset:
        raise _out_of_range(log, offset)
    bases, segments = log.segment_set.view
    recent = log._recent.get(offset)
    if recent is not None:
        segment = segments[-1]
        position, size = recent
        if position < segment.size and segment.base_offset <= offset and bound[1] == segment.base_offset:
            data = _region(segment, position, size, offset, bound[2], max_bytes, min_one)
            if isolation == 2:
                data.aborted = _aborted_in(log, data, bound, segments, len(segments) - 1, offset)
            return data
    index = bisect_right(bases, offset) - 1
    if index < 0:
        raise _out_of_range(log, offset)
    while index < len(segments):
        segment = segments[index]
        base = segment.base_offset
        if base == bound[1]:
            limit = bound[2]
        elif base < bound[1]:
            limit = segment.size
        else:
            break
        found = segment.search(offset, limit)
        if found is not None:
            position, size, first = found
            data = _region(segment, position, size, first, limit, max_bytes, min_one)
            if isolation == 2:
                data.aborted = _aborted_in(log, data, bound, segments, index, offset)
            return data
        index += 1  # compaction has left nothing at or after the offset in this one
    return FetchData(OffsetMetadata(offset), None)


def _region(
    segment: Segment, position: int, size: int, offset: int, limit: int, max_bytes: int, min_one: bool
) -> FetchData:
    length = size if min_one and size > max_bytes else max_bytes
    incomplete = length < size
    if length > limit - position:
        length = limit - position
    where = OffsetMetadata(offset, segment.base_offset, position)
    if length <= 0:
        return FetchData(where, None, None, incomplete)
    return FetchData(where, FileRegion(segment.file, position=position, length=length), None, incomplete)


def _out_of_range(log: Log, offset: int) -> ApiError:
    return ApiError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{log.topic}-{log.partition} has no offset {offset}: "
        f"it goes from {log.log_start_offset} to {log.log_end_offset}",
    )


def _aborted_in(
    log: Log, data: FetchData, bound: OffsetMetadata, segments: tuple[Segment, ...], index: int, offset: int
) -> list[AbortedTxn]:
    """The aborted transactions that a consumer must know of to read this region."""
    if data.region is None:
        return []
    segment = segments[index]
    upper = segment.offset_index.offset_at_or_behind(data.region.position + data.region.length)
    if upper is None:
        upper = segments[index + 1].base_offset if index + 1 < len(segments) else bound.offset
    return _collect(segments[index:], offset, upper)


def _collect(segments: tuple[Segment, ...], start: int, end: int) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    for segment in segments:
        if segment.txn_index.collect(start, end, found):
            break
    return found


def aborted_between(log: Log, start: int, end: int) -> list[AbortedTxn]:
    """The aborted transactions that have something in [start, end)."""
    while True:
        bases, segments = view = log.segment_set.view
        try:
            return _collect(segments[max(bisect_right(bases, start) - 1, 0) :], start, end)
        except FileNotFoundError:
            _look_again(log, view)


def locate(log: Log, offset: int) -> OffsetMetadata:
    """Where a reader who is bounded by `offset` must stop: before the first batch that reaches to it or past it."""
    end = log._log_end
    if offset >= end.offset:
        return end
    bases, segments = log.segment_set.view
    index = max(bisect_right(bases, offset) - 1, 0)
    for segment in segments[index:]:
        start = segment.lookup(offset)
        try:
            found = segment.search(offset, segment.size)
        except ApiError:
            return OffsetMetadata(offset, segment.base_offset, start)  # damaged there: stop before it
        if found is not None:
            return OffsetMetadata(offset, segment.base_offset, found[0])
    return end


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """See `Log.offset_for_timestamp`."""
    while True:
        view = log.segment_set.view
        try:
            return _offset_for_timestamp(log, view, timestamp)
        except FileNotFoundError:
            _look_again(log, view)


def _offset_for_timestamp(log: Log, view: View, timestamp: int) -> TimestampOffset | None:
    start = log.log_start_offset
    end = log._log_end
    bases, segments = view
    for segment in segments[max(bisect_right(bases, start) - 1, 0) :]:
        if segment.max_timestamp < timestamp:
            continue
        limit = end.position if segment.base_offset == end.segment_base else segment.size
        _, known = segment.time_index.lookup(timestamp)
        position = segment.lookup(max(known, start))
        for row in scan(segment.file, position, limit, verify=False, chunk=_CHUNK):
            if row[7] < timestamp or row[3] < start:
                continue
            found = _first_record(segment, row[0], row[1], row[4], timestamp, start)
            if found is not None:
                return found
    return None


def _first_record(
    segment: Segment, position: int, size: int, epoch: int, timestamp: int, start: int
) -> TimestampOffset | None:
    data = segment.file.pread(size, position)
    for record in batches.records_of(data, batches.read_header(data)):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampOffset(record.timestamp, record.offset, epoch)
    return None


def max_timestamp_offset(log: Log) -> TimestampOffset | None:
    """See `Log.max_timestamp_offset`."""
    while True:
        view = log.segment_set.view
        try:
            return _max_timestamp_offset(log, view)
        except FileNotFoundError:
            _look_again(log, view)


def _max_timestamp_offset(log: Log, view: View) -> TimestampOffset | None:
    end = log._log_end
    best: Segment | None = None
    for segment in view[1]:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    greatest = best.max_timestamp
    limit = end.position if best.base_offset == end.segment_base else best.size
    for row in scan(best.file, best.lookup(best.offset_of_max_timestamp), limit, verify=False):
        if row[7] == greatest:
            return _first_record(best, row[0], row[1], row[4], greatest, 0)
    return None
