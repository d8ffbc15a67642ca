"""Loading a partition's directory, and repairing what a crash left in it.

Runs on a pool thread before anybody else sees the log.  The passes, in order:

    1  temporary files go: `.deleted`, `.tmp`, `.cleaned` and the `.swap` of an exchange that was not complete
    2  complete exchanges are finished: what a `.swap` covers goes, the `.swap` takes its name
    3  segments are taken in; an index without its log goes; missing or impossible indexes are rebuilt; an empty
       segment that begins inside the one before it goes; a log that does not end with a whole batch was not stopped
       cleanly, whatever the marker says
    4  a segment whose offsets outgrow 31 bits is split (`split`)
    5  unless the last stop was clean: every batch from the recovery point on is checked; the log ends before the
       first one that is not whole, later segments go; only index entries behind what was flushed are rebuilt
    6  a log that ends before its start is emptied and begins at its start
    7  epochs are cut to the log, stray snapshots go, the producers' state is loaded from the newest snapshot that can
       be trusted and replayed to the log end; transaction indexes of recovered segments are written anew

A torn tail and rot are told apart (D17).  Data below the recovery point was synced once: when a batch of it is damaged,
nothing is cut.  The damage is reported with file, position and offsets, the batches behind it stay readable, and the
report says `damaged`, so that this replica is repaired from another before it leads.  Only when such damage is in the
last segment and no sound batch follows, the rest of the file is cut off, and then a copy is kept.  Above the recovery
point the log is cut at the first damage; when sound batches follow, what is cut was not a torn tail alone: the bytes
are kept as `<base>.log.damaged`, later segments are renamed so, and both are reported.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stratalog.base.failures import Malformed
from stratalog.base.ports import File
from stratalog.base.types import MAX_INT32, Uuid
from stratalog.records.kernels import BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH, POSITION, SIZE
from stratalog.storage import checkpoints, layout, replay, split, sweep
from stratalog.storage.epochs import LeaderEpochs
from stratalog.storage.index_file import CorruptIndex
from stratalog.storage.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from stratalog.storage.scan import resync, scan, why_invalid
from stratalog.storage.segment import Segment
from stratalog.storage.time_index import ENTRY_SIZE as TIME_ENTRY
from stratalog.storage.values import AbortedTxn, OffsetMetadata

if TYPE_CHECKING:
    from stratalog.storage.log import Log

Progress = Callable[[int, int], None]
_COPY = 1 << 20


def load(
    log: Log,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    now_ms: int,
    progress: Progress | None,
) -> None:
    """Fill a fresh `Log` from its directory."""
    disk, directory = log.disk, log.directory
    if not disk.is_dir(directory):
        disk.mkdir(directory)
        log._names_changed += 1
    found_id = _read_topic_id(log)
    log.check_topic_id(found_id)
    names = _remove_temporary(log)
    names = _finish_swaps(log, names)
    try:
        rows = checkpoints.read_epochs(disk, f"{directory}/{layout.LEADER_EPOCHS}")
    except Malformed as error:
        log.report.add("epochs-unreadable", f"{directory}/{layout.LEADER_EPOCHS}", f"rebuilt from the log: {error}")
        rows, clean, recovery_point = [], False, 0
    log.epochs = LeaderEpochs(disk, directory, rows)
    segments, broken = _take_in(log, names, 0 if clean else recovery_point, now_ms)
    segments = _without_failed_rolls(log, segments)
    log.segment_set.replace((), segments)
    if clean and segments and not _is_whole(log, segments[-1], broken):
        clean = False
    if not _split_overflows(log, now_ms):
        log._known_snapshots = replay.snapshots_among(names)
    checked, follow = _recover(log, broken, recovery_point, clean, now_ms, progress)
    end = _end_offset(log, log_start_offset, clean, now_ms)
    _settle(log, end, log_start_offset, recovery_point, clean, rows)
    _load_producers(log, end, checked, follow, clean, now_ms)
    log._known_snapshots = None
    if log.topic_id is not None and found_id is None:
        checkpoints.write_topic_id(disk, directory, log.topic_id)
        log._metadata_unsynced = True
    log.report.segments = len(log.segment_set)
    log.check_invariants()
    log.rest()


def _read_topic_id(log: Log) -> Uuid | None:
    """The id that the directory states.  The file is not synced when it is made, so that a crash may leave anything in
    it: what cannot be read counts as missing, and whoever knows the topic writes it again."""
    try:
        return checkpoints.read_topic_id(log.disk, log.directory)
    except Malformed as error:
        log.report.add("topic-id-unreadable", f"{log.directory}/{layout.PARTITION_METADATA}", str(error))
        return None


# --- passes 1 and 2 -------------------------------------------------------------------------------------------------
def _remove_temporary(log: Log) -> list[str]:
    disk, directory = log.disk, log.directory
    left: list[str] = []
    swaps: list[tuple[int, str]] = []
    cleaned: list[tuple[int, str]] = []
    for name in disk.listdir(directory):
        parsed = layout.parse(name)
        if name.endswith(layout.TEMPORARY):
            disk.unlink(f"{directory}/{name}")
        elif parsed is None or parsed.state in ("", layout.DAMAGED):
            left.append(name)
        elif parsed.state == layout.DELETED:
            disk.unlink(f"{directory}/{name}")
        elif parsed.state == layout.SWAP:
            swaps.append((parsed.offset, name))
        elif parsed.state == layout.CLEANED:
            cleaned.append((parsed.offset, name))
        else:
            left.append(name)
    least = min((offset for offset, _ in cleaned), default=1 << 63)
    for offset, name in swaps:
        if offset >= least:
            log.report.add("swap-removed", f"{directory}/{name}", "of an exchange that was not complete")
            disk.unlink(f"{directory}/{name}")
        else:
            left.append(name)
    for _, name in cleaned:
        disk.unlink(f"{directory}/{name}")
    left.sort()
    return left


def _finish_swaps(log: Log, names: list[str]) -> list[str]:
    disk, directory = log.disk, log.directory
    swaps = [name for name in names if name.endswith(layout.SWAP)]
    if not swaps:
        return names
    low, high = 1 << 63, -1
    for name in swaps:
        parsed = layout.parse(name)
        assert parsed is not None
        if parsed.kind == layout.LOG:
            size = disk.size(f"{directory}/{name}")
            segment = Segment(disk, directory, parsed.offset, log.config, size=size, created_ms=0, state=layout.SWAP)
            last = parsed.offset - 1
            for row in scan(segment.file, 0, size, verify=False):
                last = row[3]
            segment.drop()
            low, high = min(low, parsed.offset), max(high, last + 1)
    for name in names:
        parsed = layout.parse(name)
        # Snapshots stay: they are right for whatever segments hold the records (D06).
        if parsed is not None and not parsed.state and parsed.kind != layout.SNAPSHOT and low <= parsed.offset < high:
            log.report.add("superseded-removed", f"{directory}/{name}", "a cleaned or split segment takes its place")
            disk.unlink(f"{directory}/{name}")
    for name in sorted(swaps, key=lambda name: name.endswith(layout.LOG + layout.SWAP)):
        log.report.add("swap-finished", f"{directory}/{name}", "renamed to its live name")
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(layout.SWAP)}")
    disk.fsync_dir(directory)
    return disk.listdir(directory)


# --- pass 3 ---------------------------------------------------------------------------------------------------------
def _take_in(log: Log, names: list[str], flushed: int, now_ms: int) -> tuple[list[Segment], set[int]]:
    """The segments of the directory, and the base offsets of those whose indexes must be rebuilt.  After a crash,
    indexes of segments below `flushed`, the recovery point, may still be as large as they were made."""
    disk, directory, config = log.disk, log.directory, log.config
    files: dict[int, set[str]] = {}
    for name in names:
        parsed = layout.parse(name)
        if parsed is not None and not parsed.state and parsed.kind != layout.SNAPSHOT:
            files.setdefault(parsed.offset, set()).add(parsed.kind)
    segments: list[Segment] = []
    broken: set[int] = set()
    span = min(config.segment_jitter_ms, config.segment_ms)
    last_base = max((base for base, kinds in files.items() if layout.LOG in kinds), default=-1)
    for base, kinds in sorted(files.items()):
        if layout.LOG not in kinds:
            for kind in sorted(kinds):
                path = layout.path_of(directory, base, kind)
                log.report.add("orphan-removed", path, "an index without its log")
                disk.unlink(path)
            continue
        name = f"{directory}/{base:020d}"
        segment = Segment(
            disk,
            directory,
            base,
            config,
            size=disk.size(name + layout.LOG),
            created_ms=now_ms,
            jitter_ms=log._jitter(span) if log._jitter is not None and span > 0 else 0,
            has_txn_index=layout.TXN_INDEX in kinds,
        )
        segments.append(segment)
        reason = _doubt(segment, kinds, is_last=base == last_base)
        if reason is not None:
            log.report.add("index-rebuilt", segment.path, reason)
            broken.add(base)
    for segment, following in itertools.pairwise(segments):
        if following.base_offset <= flushed and segment.base_offset not in broken and not _was_trimmed(segment):
            log.report.add("index-rebuilt", segment.path, "the index was not cut to its entries")
            broken.add(segment.base_offset)
    return segments, broken


def _was_trimmed(segment: Segment) -> bool:
    """Whether the indexes of a closed segment are as long as their entries; if not, what is behind those is zeros."""
    index, times = segment.offset_index, segment.time_index
    size = segment.disk.size
    if size(index.file.path) >= index.file.max_entries * OFFSET_ENTRY and (
        index.valid_entries(max(segment.size, 1), 1 << 63) != index.entries
    ):
        return False
    full = times.file.max_entries * TIME_ENTRY
    return size(times.file.path) < full or (times.entries_below(1 << 63) == times.entries and segment.size > 0)


def _doubt(segment: Segment, kinds: set[str], *, is_last: bool) -> str | None:
    """Why the indexes of a segment cannot be trusted, None when nothing speaks against them."""
    if layout.INDEX not in kinds:
        return "the offset index is missing"
    if layout.TIME_INDEX not in kinds:
        return "the time index is missing"
    disk = segment.disk
    if segment.size and not disk.size(segment.time_index.file.path) and not is_last:
        return "the time index of a closed segment is empty"
    for path, entry in (
        (segment.offset_index.file.path, OFFSET_ENTRY),
        (segment.time_index.file.path, TIME_ENTRY),
    ):
        size = disk.size(path)
        if size % entry:
            return f"{path} has {size} bytes, no multiple of {entry}"
    if layout.TXN_INDEX in kinds:
        try:
            segment.txn_index.sanity_check(segment.base_offset)
        except Malformed as error:
            return str(error)
    return None


def _without_failed_rolls(log: Log, segments: list[Segment]) -> list[Segment]:
    """Take away empty segments that begin inside the one before them.  A roll that found the disk full made them, the
    log went on in the older one, and a power failure has brought their names back; they would hide what follows."""
    left: list[Segment] = []
    for segment in segments:
        before = left[-1] if left else None
        inside = before is not None and not segment.size and _last_offset(before) >= segment.base_offset
        if inside and before is not None and _last_offset(before, verify=True) >= segment.base_offset:
            log.report.add("empty-segment-removed", segment.path, "it begins inside the segment before it")
            for path in segment.paths:
                log.disk.unlink(path, missing_ok=True)
            segment.drop()
        else:
            left.append(segment)
    return left


def _is_whole(log: Log, active: Segment, broken: set[int]) -> bool:
    """Whether the segment that goes on after a clean stop is batches up to its last byte.  What is appended behind
    anything else could never be read, so then the stop counts as one that was not clean."""
    if active.base_offset in broken:
        return True  # it is read anyway
    end, position = active.end()
    if position == active.size:
        return True
    reason = why_invalid(active.file, position, active.size, end - 1)
    text = f"{reason}, though the last stop counts as clean: checked as after a crash"
    log.report.add("stop-not-clean", active.path, text, position)
    return False


# --- passes 4 and 5 -------------------------------------------------------------------------------------------------
def _split_overflows(log: Log, now_ms: int) -> bool:
    """Whether there were any."""
    segments = log.segment_set.all
    is_split = False
    for segment, following in zip(segments, (*segments[1:], None), strict=False):
        if following is not None and segment.fits(following.base_offset):
            continue
        limit = segment.base_offset + MAX_INT32
        if _last_offset(segment) <= limit:
            continue
        if _last_offset(segment, verify=True) > limit:  # a torn tail may claim to hold any offset
            log.report.add("segment-split", segment.path, "its offsets outgrow what an index can hold")
            split.split(log, segment, now_ms)
            is_split = True
    return is_split


def _last_offset(segment: Segment, *, verify: bool = False) -> int:
    """By the headers behind the last index entry that makes sense, or all of them: indexes may be missing, or wrong
    for a segment that is too long for them.  With `verify`, by sound batches alone, from the start on."""
    start = 0
    if not verify and segment.disk.exists(segment.offset_index.file.path):
        try:
            entries = segment.offset_index.valid_entries(segment.size, 1 << 63)
            if entries:
                start = segment.offset_index.entry(entries - 1)[1]
        except CorruptIndex:
            segment.offset_index.file.drop()
    last = segment.base_offset - 1
    for row in scan(segment.file, start, segment.size, verify=verify):
        last = row[3]
    if last < segment.base_offset and start:
        for row in scan(segment.file, 0, segment.size, verify=False):
            last = row[3]
    return last


def _recover(
    log: Log, broken: set[int], recovery_point: int, clean: bool, now_ms: int, progress: Progress | None
) -> tuple[dict[int, int], replay.Replay | None]:
    """Check what must be checked.  Returns, for each segment that was, from which offset on, and the producers' state
    of the log's end where that came with it."""
    segments = log.segment_set.all
    if not segments:
        return {}, None
    # The segment that ends where the flushed data end may have been closed after that flush: its last index entries
    # are looked at as well.
    unsure = () if clean else log.segment_set.from_offset(max(recovery_point - 1, 0))
    unflushed = {segment.base_offset for segment in unsure}
    work = [segment for segment in segments if segment.base_offset in unflushed or segment.base_offset in broken]
    total = sum(segment.size for segment in work)
    done = 0
    rebuilt: dict[int, int] = {}
    # Where everything from some segment on is checked, the producers' state is made of what is read for that.
    follow = replay.Replay(log) if work and tuple(work) == segments[-len(work) :] else None
    if follow is not None:
        replay.remove_stray_snapshots(log)
    compiled = sweep.wants_kernels(total)
    for segment in work:
        size = segment.size
        keep = segment.base_offset not in broken and segment.base_offset < recovery_point
        flushed = recovery_point if not clean else 1 << 63
        check = Check(log, segment, follow, compiled, now_ms)
        from_offset, last, cut = _recover_segment(check, keep, flushed, segment is segments[-1])
        rebuilt[segment.base_offset] = from_offset
        if follow is not None:
            segment.txn_index.replace([*_kept_txns(segment, from_offset), *follow.aborted])
        log.report.segments_recovered += 1
        log.report.bytes_recovered += size
        done += size
        if progress is not None:
            progress(done, total)
        if segment is not segments[-1]:
            if segment.base_offset in broken:
                # Before they are cut to their entries, by which the next load would believe them: below the recovery
                # point nobody syncs them again.
                segment.close_time_index()
                for index in (segment.offset_index.file, segment.time_index.file):
                    if (synced := index.sync_file()) is not None:
                        synced.fsync()
            segment.become_inactive()
        later = [other for other in segments if other.base_offset > segment.base_offset]
        if not cut and later and segment.base_offset in unflushed and not log.config.compact:
            # A tail that is lost at a batch's end leaves no torn batch to see, only a hole before the next segment.
            # Where nothing is compacted there are no holes.
            cut = max(last + 1, recovery_point) < later[0].base_offset
            if cut:
                text = f"its batches behind offset {last} are lost, up to {later[0].base_offset}"
                log.report.add("tail-lost", segment.path, text, segment.size)
        if cut:
            _drop_later(log, later)
            break
    return rebuilt, follow


def _drop_later(log: Log, later: list[Segment]) -> None:
    """Segments behind the cut: kept aside when they hold anything, from the last one down."""
    log.segment_set.replace(later, ())
    for segment in reversed(later):
        log.report.bytes_truncated += segment.size
        if segment.size:
            log.report.add("segment-kept-aside", segment.path, "it follows the place where the log was cut")
            segment.rename_state(layout.DAMAGED)
        else:
            segment.rename_state(layout.DELETED)
            for path in segment.paths:
                log.disk.unlink(path, missing_ok=True)
        segment.drop()


class Check:
    """A segment's sound batches on their way into its indexes, the epochs and the producers' state."""

    __slots__ = ("_follow", "_is_indexing", "compiled", "first", "last", "log", "now_ms", "position", "segment")

    def __init__(self, log: Log, segment: Segment, follow: replay.Replay | None, compiled: bool, now_ms: int) -> None:
        self.log = log
        self.segment = segment
        self.compiled = compiled
        self.now_ms = now_ms
        self.first = -1
        """The first offset that was checked."""
        self.last = segment.base_offset - 1
        self.position = 0
        self._follow = follow
        self._is_indexing = True

    def begin(self, position: int, offset: int) -> None:
        """From here on; the producers' state is brought to here."""
        self.position = position
        follow = self._follow
        if follow is None:
            return
        follow.aborted = []
        follow.index_from = offset
        if follow.is_begun:
            if offset > self.segment.base_offset:  # what is trusted of this segment is not read again, but counts
                follow.walk(self.segment, offset)
        else:
            follow.begin(offset, 1 << 63, self.now_ms)
            if follow.from_offset < offset:
                for segment in self.log.segment_set.from_offset(follow.from_offset):
                    if segment.base_offset < offset:
                        follow.walk(segment, offset)
        follow.from_offset = max(follow.from_offset, offset)

    def run(self, file: File, end: int) -> None:
        """Up to `end`, or to the first byte where no sound batch begins: `position`."""
        if self.compiled:
            for rows, origin in sweep.sweep(file, self.position, end, self.last):
                self._block(rows, origin)
            return
        for row in scan(file, self.position, end, verify=True, after_offset=self.last):
            at, size, base, self.last, epoch, magic = row[:6]
            if self.first < 0:
                self.first = base
            self.position = at + size
            if self._is_indexing:
                self._index(self._note, row)
            else:
                self.segment.note_time(last_offset=self.last, max_timestamp=row[7])
            if magic == 2:
                self._assign(epoch, base)
            if self._follow is not None:
                self._follow.row(self.segment, row)

    def _block(self, rows: Any, origin: int) -> None:
        if self.first < 0:
            self.first = int(rows[0, BASE_OFFSET])
        self.last = int(rows[-1, LAST_OFFSET])
        self.position = origin + int(rows[-1, POSITION]) + int(rows[-1, SIZE])
        if self._is_indexing:
            self._index(sweep.index_block, self.segment, rows, origin)
        else:
            sweep.note_times(self.segment, rows)
        epochs = rows[:, LEADER_EPOCH]
        latest = self.log.epochs.latest
        if int(epochs.max()) > (-1 if latest is None else latest):
            for epoch, base in rows[:, (LEADER_EPOCH, BASE_OFFSET)].tolist():
                self._assign(epoch, base)
        if self._follow is not None:
            self._follow.block(self.segment, rows, origin)

    def _note(self, row: tuple[int, ...]) -> bool:
        segment = self.segment
        fits = segment.bytes_since_index <= segment.index_interval or segment.entries_left() > 0
        segment.note(last_offset=row[3], max_timestamp=row[7], position=row[0], size=row[1])
        return fits

    def _index(self, work: Callable[..., bool], *batches: Any) -> None:
        """An index is only a shortcut: start-up never needs free space."""
        try:
            why = "" if work(*batches) else "an index is full"
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            why = "the disk is full"
        if why:
            self._is_indexing = False
            self.log.report.add("index-short", self.segment.path, f"{why}: searches take longer")

    def _assign(self, epoch: int, base: int) -> None:
        epochs = self.log.epochs
        if epoch >= 0 and (epochs.latest is None or epoch > epochs.latest):
            epochs.assign(epoch, base, write=False)


def _recover_segment(check: Check, keep: bool, flushed: int, is_last: bool) -> tuple[int, int, bool]:
    """Check a segment's batches and rebuild its indexes from where they are not known to be right.

    Returns the first offset that was checked, the last one that is there, and whether the log was cut here.
    """
    log, segment = check.log, check.segment
    file = segment.file
    end = file.size()
    kept, start, last, base = 0, 0, segment.base_offset - 1, segment.base_offset
    if keep:
        kept, start, last, base = _trusted_prefix(segment, flushed, end)
    times = segment.time_index.entries_below(last + 1) if kept else 0
    segment.offset_index.keep(kept)
    segment.time_index.keep(times)
    segment._max_timestamp = segment.time_index.last_timestamp
    segment._offset_of_max_timestamp = segment.time_index.last_offset
    segment.bytes_since_index = 0
    check.begin(start, base)  # the batch of the last entry is checked again
    while True:
        check.run(file, end)
        position, last = check.position, check.last
        if position >= end:
            break
        reason = why_invalid(file, position, end, last)
        following = resync(file, position, end, last)
        if last + 1 < flushed:
            if following >= 0 or not is_last:
                text = f"{reason}; flushed data is damaged behind offset {last}, nothing was cut"
                log.report.add("flushed-data-damaged", segment.path, text, position)
                log.report.damaged = True
                if following < 0:
                    break
                check.position = following
                continue
            log.report.damaged = True
        behind = sum(other.size for other in log.segment_set.all if other.base_offset > segment.base_offset)
        if following >= 0 or behind or last + 1 < flushed:
            _keep_aside(log, segment, position, end, reason)
        else:
            log.report.add("tail-cut", segment.path, f"{end - position} bytes: {reason}", position)
        log.report.bytes_truncated += end - position
        file.truncate(position)
        log._cut_files.append(file)
        segment.size = position
        return (check.first if check.first >= 0 else max(last + 1, segment.base_offset)), last, True
    segment.size = end
    return (check.first if check.first >= 0 else segment.base_offset), last, False


def _trusted_prefix(segment: Segment, flushed: int, end: int) -> tuple[int, int, int, int]:
    """How many index entries below the recovery point are right, where the last of them points to, its offset, and
    the base offset of the batch there.
    They were synced with the data; the last one is held against the batch that it points to."""
    try:
        entries = segment.offset_index.valid_entries(end, flushed)
        while entries > 0:
            offset, position = segment.offset_index.entry(entries - 1)
            row = next(scan(segment.file, position, end, verify=True), None)
            if row is not None and row[3] == offset:
                return entries, position, offset, row[2]
            entries = 0
    except CorruptIndex:
        segment.offset_index.file.drop()
    return 0, 0, segment.base_offset - 1, segment.base_offset


def _keep_aside(log: Log, segment: Segment, position: int, end: int, reason: str) -> None:
    """Copy what is about to be cut, as far as the disk has room."""
    path = segment.path + layout.DAMAGED
    text = f"{end - position} bytes are cut and kept as {path}: {reason}"
    try:
        with_copy = log.disk.open(path, create=True)
        with_copy.truncate(0)
        at = position
        while at < end:
            block = segment.file.pread(min(_COPY, end - at), at)
            with_copy.pwritev([block], at - position)
            at += len(block)
        with_copy.fsync()
        with_copy.close()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.disk.unlink(path, missing_ok=True)
        text = f"{end - position} bytes are cut, the disk has no room to keep them: {reason}"
    log.report.add("kept-aside", segment.path, text, position)


# --- passes 6 and 7 -------------------------------------------------------------------------------------------------
def _end_offset(log: Log, log_start_offset: int, clean: bool, now_ms: int) -> int:
    """Where the log ends; a log that ends before its start begins anew there."""
    if len(log.segment_set):
        end = _next_offset(log.segment_set.active)
        if end >= log_start_offset:
            return end
        log.report.add(
            "log-start-beyond-end",
            log.directory,
            f"the log ends at {end} and should begin at {log_start_offset}: files are missing. It is emptied.",
        )
        log.report.damaged = True
        doomed = log.segment_set.all
        log.segment_set.replace(doomed, ())
        for segment in reversed(doomed):
            segment.rename_state(layout.DELETED)
            for path in segment.paths:
                log.disk.unlink(path, missing_ok=True)
            segment.drop()
        log.epochs.clear()
        replay.delete_snapshots(log, range(0))
    log.segment_set.replace((), (log._new_segment(log_start_offset, now_ms, warm=False),))
    return log_start_offset


def _next_offset(segment: Segment) -> int:
    try:
        return segment.end()[0]
    except CorruptIndex:
        return _last_offset(segment) + 1


def _settle(
    log: Log,
    end: int,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    rows: list[tuple[int, int]],
) -> None:
    active = log.segment_set.active
    start = log_start_offset
    if not log.config.remote_storage_enable:
        start = max(start, log.segment_set.first.base_offset)
    log.log_start_offset = start
    log.local_log_start_offset = max(start, log.segment_set.first.base_offset)
    log.recovery_point = end if clean else min(recovery_point, end)
    log._log_end = OffsetMetadata(end, active.base_offset, active.size)
    log.epochs.truncate_from_end(end, write=False)
    log.epochs.truncate_from_start(log_start_offset, write=False)
    if log.epochs.rows != rows:
        log.epochs.write()
    log._names_durable = clean  # a killed process may have deleted what a power failure brings back
    if not clean:
        active.file.release()  # what the broker that was killed had taken ahead
    log._restage()


def _load_producers(
    log: Log, end: int, checked: dict[int, int], follow: replay.Replay | None, clean: bool, now_ms: int
) -> None:
    replay.remove_stray_snapshots(log)
    if follow is not None and log.segment_set.first.base_offset == follow.first_base and follow.is_begun:
        follow.finish(end)
        replayed = follow.count
    else:
        kept = {
            segment.base_offset: _kept_txns(segment, checked[segment.base_offset])
            for segment in log.segment_set.all
            if segment.base_offset in checked
        }
        replayed = replay.rebuild(log, now_ms, end_offset=end, checked=checked, kept=kept)
    if replayed and not clean:
        try:
            log.take_snapshot(keep=False)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
    from stratalog.storage import read  # above this module: `log` imports both

    log._high_watermark = read.locate(log, log.log_start_offset)
    log.refresh_first_unstable()


def _kept_txns(segment: Segment, first: int) -> list[AbortedTxn]:
    """The entries of a transaction index that speak of what was not checked again."""
    if not segment.txn_index.exists:
        return []
    try:
        segment.txn_index.sanity_check(segment.base_offset)
    except Malformed:
        return []
    return [row for row in segment.txn_index if row.last_offset < first]


def reload_timestamps(segment: Segment, now_ms: int) -> None:
    """After a truncation: the greatest timestamp of what is left, from the last time index entry on."""
    index = segment.time_index
    segment._max_timestamp = index.last_timestamp
    segment._offset_of_max_timestamp = index.last_offset
    segment.first_timestamp = -1
    if not segment.size:
        segment.created_ms = now_ms
    start = segment.lookup(index.last_offset) if index.last_timestamp >= 0 else 0
    for row in scan(segment.file, start, segment.size, verify=False):
        if row[7] > segment._max_timestamp:
            segment._max_timestamp = row[7]
            segment._offset_of_max_timestamp = row[3]
