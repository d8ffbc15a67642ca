"""One pass over a segment's bytes with the compiled walk: a block at a time, without a step of Python for each batch.

`sweep` gives the same batches as `scan.scan` with its CRCs, in the same order, and stops at the same byte; where the
compiled walk sees anything that it does not like, the plain one decides.  `index_block` makes the index entries that
`Segment.note` would make for these batches one by one.  Reading and checking run without the interpreter's lock, so
that two threads recover two partitions.

`wants_kernels` says whether a recovery of so many bytes is worth the import of the kernels (half a second).  Any
thread; the buffers belong to the thread that sweeps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from stratalog.base.ports import File
from stratalog.records import kernels
from stratalog.records.kernels import (
    BASE_OFFSET,
    BATCH_TRUNCATED,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    OK,
    POSITION,
    ROW,
    SIZE,
    TABLE_FULL,
    BatchTable,
)
from stratalog.storage.scan import scan
from stratalog.storage.segment import Segment

_BLOCK = 1 << 21
"""Read at once: what is checked while it is still in the processor's cache."""
_TABLE = 2048
_LOAD_AT = 64 << 20
"""Bytes to recover, of all logs of the process together, from which on the kernels are worth their import."""
_walked = 0
"""Bytes recovered without them.  A count that two threads may both raise by less than they should: it only decides
when to stop being slow."""


class _Scratch(threading.local):
    """Buffers of one thread."""

    def __init__(self) -> None:
        import numpy as np

        self.buffer = bytearray(_BLOCK)
        self.view = memoryview(self.buffer)
        self.table = BatchTable(_TABLE)
        self.rows = np.frombuffer(self.table.rows, np.int64).reshape(-1, ROW)
        self.is_used = False


_scratches: list[_Scratch] = []
_lock = threading.Lock()


def wants_kernels(size: int) -> bool:
    """Whether the compiled walk is there, or is worth loading for `size` further bytes; then it is loaded."""
    global _walked
    if kernels.kernels_ready():
        return True
    _walked += size
    if _walked < _LOAD_AT:
        return False
    kernels.load_kernels()
    return kernels.kernels_ready()


def _scratch() -> _Scratch:
    with _lock:
        if not _scratches:
            _scratches.append(_Scratch())
    return _scratches[0]


def sweep(file: File, start: int, end: int, after_offset: int) -> Iterator[tuple[Any, int]]:
    """The sound batches of [start, end): rows of the batch table, some at a time, and what to add to their positions.

    The rows are overwritten by the next step.
    """
    held = _scratch()
    assert not held.is_used, "a sweep inside a sweep"
    held.is_used = True
    try:
        yield from _sweep(held, file, start, end, after_offset)
    finally:
        held.is_used = False


def _sweep(held: _Scratch, file: File, start: int, end: int, after_offset: int) -> Iterator[tuple[Any, int]]:
    scan_batches = kernels.best().scan_batches
    view, table, all_rows = held.view, held.table, held.rows
    last = after_offset
    origin = start
    while origin < end:
        filled = file.pread_into(view[: min(_BLOCK, end - origin)], origin)
        at = 0
        code = TABLE_FULL
        while code == TABLE_FULL:
            code = scan_batches(view[:filled], table, at)
            at = table.end
            if not table.count:
                continue
            rows = all_rows[: table.count]
            bases = rows[:, BASE_OFFSET]
            back = (bases[1:] <= rows[:-1, LAST_OFFSET]).nonzero()[0]
            if bases[0] <= last or len(back):
                good = 0 if bases[0] <= last else int(back[0]) + 1
                if good:
                    yield rows[:good], origin
                return
            last = int(rows[-1, LAST_OFFSET])
            yield rows, origin
        origin += at
        if code == OK or (code == BATCH_TRUNCATED and at):
            continue
        row = next(scan(file, origin, end, verify=True, after_offset=last), None)
        if row is None:
            return
        rows = all_rows[:1]
        rows[0] = (0, *row[1:7], 0, 0, row[7], row[8], row[9], row[10], -1, 0, 0)
        last = row[3]
        yield rows, origin
        origin += row[1]


def index_block(segment: Segment, rows: Any, origin: int) -> bool:
    """`Segment.note` for all of these batches; False when an index is full.  `OSError` when the disk is."""
    import numpy as np

    positions = rows[:, POSITION] + origin
    stamps = rows[:, MAX_TIMESTAMP]
    count = len(rows)
    start = int(positions[0])
    end = int(positions[-1] + rows[-1, SIZE])
    if not start:
        segment.first_timestamp = int(stamps[0])
    # The greatest timestamp so far at each batch, and the batch that has it (-1: one before this block).
    greatest = np.maximum.accumulate(stamps)
    np.maximum(greatest, segment.max_timestamp, out=greatest)
    before = np.empty_like(greatest)
    before[0] = segment.max_timestamp
    before[1:] = greatest[:-1]
    holder = np.maximum.accumulate(np.where(stamps > before, np.arange(count), -1))
    holders = np.where(holder < 0, segment.offset_of_max_timestamp, rows[holder, LAST_OFFSET])
    # An entry for the first batch that begins more than an interval behind the batch of the entry before it.
    interval = segment.index_interval
    anchor = start - segment.bytes_since_index
    slot = int(np.searchsorted(positions, anchor + interval, side="right"))
    slots: list[int] = []
    if slot < count:
        following = np.searchsorted(positions, positions + interval, side="right").tolist()
        while slot < count:
            slots.append(slot)
            slot = following[slot]
    segment._max_timestamp = int(greatest[-1])
    segment._offset_of_max_timestamp = int(holders[-1])
    fits = True
    if slots:
        anchor = int(positions[slots[-1]])
        fits = _append_entries(segment, positions, rows[:, LAST_OFFSET], greatest, holders, slots)
    segment.bytes_since_index = end - anchor
    return fits


def note_times(segment: Segment, rows: Any) -> None:
    """`Segment.note_time` for all of these batches: an index is full, or the disk is."""
    stamps = rows[:, MAX_TIMESTAMP]
    first = int(stamps.argmax())
    segment.note_time(last_offset=int(rows[first, LAST_OFFSET]), max_timestamp=int(stamps[first]))


def _append_entries(
    segment: Segment, positions: Any, lasts: Any, greatest: Any, holders: Any, slots: list[int]
) -> bool:
    import numpy as np

    base = segment.base_offset
    room = segment.entries_left()
    picked = np.array(slots[:room], dtype=np.int64)
    if len(picked):
        offsets = np.empty((len(picked), 2), dtype=">i4")
        offsets[:, 0] = lasts[picked] - base
        offsets[:, 1] = positions[picked]
        times = np.empty(len(picked), dtype=[("timestamp", ">i8"), ("offset", ">i4")])
        times["timestamp"] = greatest[picked]
        times["offset"] = holders[picked] - base
        first = segment.time_index.last_timestamp
        is_new = greatest[picked] > np.concatenate(([first], greatest[picked][:-1]))
        segment.offset_index.extend(offsets.tobytes())
        segment.time_index.extend(times[is_new].tobytes())
    return len(picked) == len(slots)
