"""Splitting a segment whose offsets outgrow the 31 bits that an index has for them (KAFKA-6264).

Old cleaners could make such segments.  The bytes are copied, whole batches, into as many `.cleaned` segments as it
takes, each from its first batch's offset on; then they take the old one's place by the same exchange as the cleaner's.
Runs while a log is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import MAX_INT32
from stratalog.storage import layout
from stratalog.storage.scan import scan
from stratalog.storage.segment import Segment

if TYPE_CHECKING:
    from stratalog.storage.log import Log


def split(log: Log, segment: Segment, now_ms: int) -> None:
    """Replace one overflowed segment by several that fit.  A damaged tail is left out; recovery would cut it."""
    parts: list[Segment] = []
    current: Segment | None = None
    for row in scan(segment.file, 0, segment.size, verify=True):
        position, size, base, last = row[:4]
        if current is None or last - current.base_offset > MAX_INT32 or current.size + size > MAX_INT32:
            if current is not None:
                current.become_inactive()
            assert last - base <= MAX_INT32
            first = segment.base_offset if current is None and segment.fits(last) else base
            current = log._new_segment(first, now_ms, layout.CLEANED)
            parts.append(current)
        current.file.pwritev([segment.file.pread(size, position)], current.size)
        current.note(last_offset=last, max_timestamp=row[7], position=current.size, size=size)
        current.size += size
    assert current is not None
    current.become_inactive()
    _exchange(log, parts, segment)


def _exchange(log: Log, parts: list[Segment], old: Segment) -> None:
    """`reshape.replace_segments`, for a log that is not loaded yet."""
    disk = log.disk
    for part in parts:
        for file in part.sync_files():
            file.fsync()
    for part in reversed(parts):
        part.rename_state(layout.SWAP)
    disk.fsync_dir(log.directory)
    old.rename_state(layout.DELETED)
    log.segment_set.replace((old,), parts)
    for part in parts:
        part.rename_state("")
    disk.fsync_dir(log.directory)
    for path in old.paths:
        disk.unlink(path, missing_ok=True)
    old.drop()
