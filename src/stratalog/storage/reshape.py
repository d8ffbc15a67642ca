"""What takes bytes out of a log or puts others in their place: truncation, deletion, the cleaner's swap.

Called by the log's writer.  Each is a sequence of file operations after any of which a crash may come; what makes each
safe is said at each.  Bounds are lowered before bytes go, so that no reader looks at what is being cut (R10).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stratalog.storage import layout, read, recovery, replay
from stratalog.storage.segment import Segment
from stratalog.storage.values import Deletion, OffsetMetadata

if TYPE_CHECKING:
    from stratalog.storage.log import Log


class _NoRoom(OSError):
    """The disk was full before anything had changed."""


def truncate_to(log: Log, offset: int, now_ms: int) -> bool:
    """Drop what is at or after `offset`.  Segments go from the last one down, so that after a crash in between what is
    left is still a prefix."""
    assert offset >= 0
    log.commit_staged(now_ms)
    if offset >= log.log_end_offset:
        # Nothing to cut, but an epoch that was assigned at or above would say the log diverges for ever (R09).
        if log.epochs.truncate_from_end(offset):
            log._restage()
        return False
    if offset < log.segment_set.first.base_offset:
        truncate_fully(log, offset, now_ms, None)
        return True
    try:
        _truncate(log, offset, now_ms)
        _settle(log)
    except OSError as error:
        _give_up(log, error)
        raise
    return True


def _settle(log: Log) -> None:
    """Here and not with the next write: a process that is killed in between forgets that there is something to sync.
    A full disk has no room for the epochs' file; then it is left to the next write after all."""
    try:
        log._settle_cuts()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


class HalfTruncated(OSError):
    """Why a log is fenced that a full disk has stopped in the middle of a truncation."""


def _give_up(log: Log, error: OSError) -> None:
    """A truncation that is half done is not appended to, not even when it was for want of space: the log's own idea of
    its files may be wrong.  The next load sees to them, or a truncation of everything that succeeds."""
    kind = HalfTruncated if error.errno in (errno.ENOSPC, errno.EDQUOT) else OSError
    log.fail(kind(errno.EIO, f"a truncation has failed: {error.strerror}", error.filename))


def _half_done(log: Log, error: OSError) -> None:
    """Some names are changed and others are not: as above, for want of space as well."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    log.fail(OSError(errno.EIO if full else error.errno or errno.EIO, error.strerror, error.filename))


def _truncate(log: Log, offset: int, now_ms: int) -> None:
    log._generation += 1
    log._recent.clear()
    log.recovery_point = min(log.recovery_point, offset)
    if log._high_watermark.offset > offset:
        log._high_watermark = read.locate(log, offset)
    doomed = [segment for segment in log.segment_set.all if segment.base_offset > offset]
    kept = log.segment_set.floor_index(offset)
    active = log.segment_set.all[kept]
    found = active.search(offset, active.size)
    cut = active.size if found is None else found[0]
    log._log_end = OffsetMetadata(offset, active.base_offset, cut)
    log.segment_set.replace(doomed, ())
    for segment in reversed(doomed):
        _remove(segment)
    if doomed:
        log.disk.fsync_dir(log.directory)  # before the cut below is on disk, or it would leave a hole
    active.offset_index.truncate_to(offset)
    active.time_index.truncate_to(offset)
    active.txn_index.truncate_to(offset)
    active.file.truncate(cut)
    log._cut_files.append(active.file)
    active.size = cut
    active.bytes_since_index = 0
    recovery.reload_timestamps(active, now_ms)
    log.epochs.truncate_from_end(offset, write=False)  # written by `Log._settle_cuts`
    log.log_start_offset = min(log.log_start_offset, offset)
    log.local_log_start_offset = min(log.local_log_start_offset, offset)
    replay.rebuild(log, now_ms, end_offset=offset)
    if log._high_watermark.offset >= offset:
        log._high_watermark = log._log_end
    else:
        log._high_watermark = read.locate(log, log._high_watermark.offset)
    log.refresh_first_unstable()
    log._names_changed += 1
    log._restage()


def _remove(segment: Segment) -> None:
    """Take a segment's files away at once: renamed first, so that a crash leaves names that a load removes."""
    segment.retire()
    for path in segment.paths:
        segment.disk.unlink(path, missing_ok=True)
    segment.drop()


def truncate_fully(log: Log, offset: int, now_ms: int, log_start_offset: int | None) -> None:
    """Everything goes; an empty log begins at `offset`.  The old segments go before the new one comes: after a crash in
    between the log is empty, or a prefix of what it was."""
    log.commit_staged(now_ms)
    start = offset if log_start_offset is None else log_start_offset
    assert 0 <= start <= offset
    log._generation += 1
    log._recent.clear()
    try:
        old = log.segment_set.all
        for segment in reversed(old):
            segment.retire()
        fresh = log._new_segment(offset, now_ms)
        log.segment_set.replace(old, (fresh,))
        log._log_end = log._high_watermark = OffsetMetadata(offset, offset, 0)
        for segment in old:
            for path in segment.paths:
                log.disk.unlink(path, missing_ok=True)
            segment.drop()
        log._cut_files.append(fresh.file)
        log.epochs.clear()
        replay.delete_snapshots(log, range(0))
        _settle(log)
    except OSError as error:
        _give_up(log, error)
        raise
    if isinstance(log.fenced, HalfTruncated):
        log.fenced = None
    log.log_start_offset = start
    log.local_log_start_offset = start if not log.config.remote_storage_enable else offset
    log.recovery_point = min(log.recovery_point, offset)
    log.producers.clear(offset)
    log.last_snapshot_offset = 0
    log._first_unstable = None
    log._names_changed += 1
    log._restage()


def delete_segments(log: Log, segments: Sequence[Segment], reason: str, now_ms: int) -> Deletion:
    """Take the oldest segments out.  Renamed from the oldest on: after a crash the log begins later, without a hole."""
    log.commit_staged(now_ms)
    doomed = list(segments)
    if not doomed:
        return Deletion((), 0, reason)
    everything = log.segment_set.all
    assert doomed == list(everything[: len(doomed)]), "only the oldest segments can be deleted"
    if len(doomed) == len(everything):
        assert everything[-1].size, "an empty active segment is never deleted"
        log.roll(now_ms, warm=False)  # all is gone because nobody has written for long
    try:
        first_left = log.segment_set.all[len(doomed)]
        log.local_log_start_offset = max(log.local_log_start_offset, first_left.base_offset)
        if not log.config.remote_storage_enable and first_left.base_offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(first_left.base_offset, reason)
        log.segment_set.replace(doomed, ())
        log._names_durable = False
        paths = _mark_deleted(log, doomed)
        for segment in doomed:
            paths += _retire_snapshot(log, segment.base_offset)
    except OSError as error:
        _half_done(log, error)
        raise
    log._names_changed += 1
    return Deletion(tuple(paths), log.config.file_delete_delay_ms, reason)


def _mark_deleted(log: Log, segments: Iterable[Segment]) -> list[str]:
    paths: list[str] = []
    for segment in segments:
        segment.retire()
        paths.extend(path for path in segment.paths if log.disk.exists(path))
    return paths


def _retire_snapshot(log: Log, offset: int) -> list[str]:
    """The snapshot at an offset goes with its segment, in the same way."""
    path = layout.path_of(log.directory, offset, layout.SNAPSHOT)
    if not log.disk.exists(path):
        return []
    try:
        log.disk.rename(path, path + layout.DELETED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.disk.unlink(path)
        return []
    return [path + layout.DELETED]


def replace_segments(log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> Deletion:
    """Put `new` in the place of `old`.

        .cleaned, synced  ->  .swap, last segment first  ->  directory synced  ->  old ones .deleted  ->  .swap dropped

    A load that finds a `.cleaned` throws away every `.swap` at or above it: the set was not complete.  One that finds
    only `.swap` finishes the exchange (`recovery`).  A full disk that has no room for the name `.swap` leaves the log
    as it was; the new files are their maker's to remove.
    """
    log.commit_staged(0)
    fresh = sorted(new, key=lambda segment: segment.base_offset)
    gone = list(old)
    assert all(segment is not log.segment_set.active for segment in gone), "the active segment is not replaced"
    try:
        for segment in fresh:
            for file in segment.sync_files():
                file.fsync()
        try:
            for segment in reversed(fresh):
                segment.rename_state(layout.SWAP)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _NoRoom(error.errno, error.strerror, error.filename) from error
            raise
        log.disk.fsync_dir(log.directory)
        log.segment_set.replace(gone, fresh)
        paths = _mark_deleted(log, gone)
        for segment in fresh:
            segment.rename_state("")
        bases = {segment.base_offset for segment in fresh}
        for segment in gone:
            if segment.base_offset not in bases:
                paths += _retire_snapshot(log, segment.base_offset)
        log.disk.fsync_dir(log.directory)
    except _NoRoom:
        raise
    except OSError as error:
        _half_done(log, error)
        raise
    log._recent.clear()
    if log._high_watermark.offset < log.log_end_offset:
        log._high_watermark = read.locate(log, log._high_watermark.offset)
    unstable = log._first_unstable
    if unstable is not None:
        log._first_unstable = read.locate(log, unstable.offset)
    return Deletion(tuple(paths), log.config.file_delete_delay_ms, "replaced by the cleaner or a split")
