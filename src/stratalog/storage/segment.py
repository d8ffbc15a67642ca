"""One segment: a file of batches from a base offset on, and its indexes.

Written by the log's one writer; read by any thread: `size` is published after the bytes are there, and a reader never
looks past the bound that the log gave it.  Files are opened when they are first needed and dropped, not closed: a file
region that is on its way to a socket keeps its file, and the descriptor goes with the last of them.  The lock is held
by who opens a file and by who renames one, so that nobody looks for a file under the name it had just before.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from threading import Lock

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.ports import Disk, File
from stratalog.base.types import MAX_INT32
from stratalog.storage import layout
from stratalog.storage.config import LogConfig
from stratalog.storage.index_file import CorruptIndex
from stratalog.storage.offset_index import OffsetIndex
from stratalog.storage.scan import scan
from stratalog.storage.time_index import TimeIndex
from stratalog.storage.txn_index import TxnIndex

_HEAD = struct.Struct(">qiibIhi")  # base offset, length, epoch, magic, crc, attributes, last offset delta
_PADDING = bytes(_HEAD.size - 17)
"""So that the last message of an old message set, shorter than a batch header, is read like any other."""
_SEARCH_BYTES = 8 << 10
"""Read at once while searching for a batch: what lies between two index entries, and headers of what follows."""


AHEAD_FROM_BYTES = 1 << 20
"""Segments that are smaller take their blocks as they come."""
AHEAD_BYTES_MAX = 8 << 20
"""Blocks are taken for a quarter of what a segment holds, and for no more than this."""


class Segment:
    """The file pair.  `state` is the passing suffix of its names, '' for a live one."""

    __slots__ = (
        "_file",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "ahead",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "disk",
        "first_timestamp",
        "index_interval",
        "jitter_ms",
        "lock",
        "offset_index",
        "size",
        "state",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        created_ms: int,
        jitter_ms: int = 0,
        state: str = "",
        has_txn_index: bool = False,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.state = state
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.index_interval = config.index_interval_bytes
        self.bytes_since_index = 0
        self.first_timestamp = -1
        """The first batch's max timestamp, -1 while it was not read."""
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base_offset
        self._file: File | None = None
        self.ahead = AHEAD_FROM_BYTES
        """Up to where the file has its blocks, as far as it was looked after (`take_blocks`)."""
        self.lock = lock = Lock()
        name = f"{directory}/{base_offset:020d}"
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, name + layout.INDEX + state, base_offset, index_bytes, lock)
        self.time_index = TimeIndex(disk, name + layout.TIME_INDEX + state, base_offset, index_bytes, lock)
        self.txn_index = TxnIndex(disk, name + layout.TXN_INDEX + state, lock, exists=has_txn_index)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        jitter_ms: int = 0,
        state: str = "",
        warm: bool = True,
    ) -> Segment:
        """A new, empty, active segment.  Left-overs of the same name are emptied.  `warm`: it takes appends at once;
        otherwise `make_active` comes first."""
        segment = cls(disk, directory, base_offset, config, size=0, created_ms=now_ms, jitter_ms=jitter_ms, state=state)
        segment._file = disk.open(segment.path, create=True)
        if segment._file.size():
            segment._file.truncate(0)
        if disk.exists(segment.txn_index.path):
            disk.unlink(segment.txn_index.path)
        if warm:
            segment.offset_index.keep(0)
            segment.time_index.keep(0)
        else:
            segment.offset_index.file.make_empty()
            segment.time_index.file.make_empty()
        segment._max_timestamp = -1
        return segment

    # --- the file --------------------------------------------------------------------------------------------------
    @property
    def path(self) -> str:
        return f"{self.directory}/{self.base_offset:020d}{layout.LOG}{self.state}"

    @property
    def paths(self) -> list[str]:
        """All of its files that may exist."""
        name = f"{self.directory}/{self.base_offset:020d}"
        return [name + kind + self.state for kind in layout.SEGMENT_SUFFIXES]

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            with self.lock:
                file = self._file
                if file is None:
                    file = self._file = self.disk.open(self.path)
        return file

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._load_max_timestamp()
            assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def _load_max_timestamp(self) -> None:
        self.time_index.peek()  # retention asks each idle partition for it: none of them shall stay open for that
        self._offset_of_max_timestamp = self.time_index.last_offset
        self._max_timestamp = self.time_index.last_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The greatest timestamp, the file's own where no batch has one: what retention by time goes by."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.file.mtime_ms()

    @property
    def modified_ms(self) -> int:
        """When its file was last written."""
        return self.file.mtime_ms()

    @property
    def index_bytes(self) -> int:
        return self.offset_index.entries * self.offset_index.file.entry_size

    @property
    def time_index_bytes(self) -> int:
        return self.time_index.entries * self.time_index.file.entry_size

    def fits(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= MAX_INT32

    # --- writing ---------------------------------------------------------------------------------------------------
    def take_blocks(self, end: int, limit: int) -> None:
        """Before a write up to `end` that goes past `ahead`: blocks for it and for what will follow, in one piece.  An
        append then finds them: a third less work for the kernel at each write, and less again when it is synced."""
        start = max(self.size, AHEAD_FROM_BYTES)
        self.ahead = max(end, min(end + min(end >> 2, AHEAD_BYTES_MAX), limit))
        if not self.file.reserve(start, self.ahead - start):
            self.ahead = max(self.ahead, start + AHEAD_BYTES_MAX)  # asked again when so much has come without

    def give_blocks_back(self) -> None:
        """Those that nothing was written to."""
        if self.ahead > AHEAD_FROM_BYTES:
            self.file.release()
            self.ahead = AHEAD_FROM_BYTES

    def note(self, *, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """`note_all` of one batch."""
        self.note_all(((last_offset, last_offset, max_timestamp, size),), position)

    def note_all(self, written: Iterable[tuple[int, int, int, int]], position: int) -> None:
        """Batches were written from `position` on, each (first offset, last offset, max timestamp, size): timestamps,
        and index entries when it is time for one.

        A full index stays as it is: the batches of one append go into one segment, and may need more entries than were
        left.  The next append rolls."""
        greatest = self._max_timestamp
        if greatest is None:
            greatest = self.max_timestamp
        since, interval = self.bytes_since_index, self.index_interval
        room = 0  # index entries that there is room for, as far as is known: asked for when one is due
        for _, last, timestamp, size in written:
            if timestamp > greatest:
                self._max_timestamp = greatest = timestamp
                self._offset_of_max_timestamp = last
            if not position:
                self.first_timestamp = timestamp
            if since > interval:
                if not room:
                    room = self.entries_left()
                if room:
                    room -= 1
                    self.offset_index.append(last, position)
                    if greatest > self.time_index.last_timestamp:
                        self.time_index.maybe_append(greatest, self._offset_of_max_timestamp)
                    since = 0
            since += size
            position += size
        self.bytes_since_index = since

    def note_time(self, *, last_offset: int, max_timestamp: int) -> None:
        """The part of `note_all` that needs no room in an index.  Retention and searches by time go by it."""
        greatest = self._max_timestamp
        if greatest is None:
            greatest = self.max_timestamp
        if max_timestamp > greatest:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset

    def entries_left(self) -> int:
        """How many index entries it can still take, but for the one that closes it."""
        offsets, times = self.offset_index, self.time_index
        return max(min(offsets.file.max_entries - offsets.entries, times.file.max_entries - 1 - times.entries), 0)

    def load_first_timestamp(self) -> int:
        """The first batch's max timestamp, -1 when the segment is empty."""
        if self.first_timestamp < 0 and self.size:
            for row in scan(self.file, 0, self.size, verify=False):
                self.first_timestamp = row[7]
                break
        return self.first_timestamp

    def close_time_index(self) -> None:
        """The entry that the last slot is kept for: the greatest timestamp of the whole segment."""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp, closing=True)

    def become_inactive(self) -> None:
        """The last time index entry, indexes cut to what they hold, blocks given back that nothing was written to."""
        self.give_blocks_back()
        if not self.is_warm:
            if self.max_timestamp <= self.time_index.last_timestamp:
                return  # nobody has appended to it since it was loaded: it is as a closed one already
            self.make_active()
        self.close_time_index()
        self.offset_index.file.trim()
        self.time_index.file.trim()

    @property
    def is_warm(self) -> bool:
        """Whether its indexes are mapped and have room."""
        return self.offset_index.file.is_allocated and self.time_index.file.is_allocated

    def make_active(self) -> None:
        """Room in the indexes for more: it takes appends (again)."""
        self.offset_index.keep(self.offset_index.entries)
        self.time_index.keep(self.time_index.entries)

    def rest(self) -> None:
        """Hold no descriptor until somebody reads or appends.  What a flush must sync it opens again."""
        for index in (self.offset_index.file, self.time_index.file):
            if index.is_allocated:
                index.trim()
            index.drop()
        self._file = None

    # --- reading ---------------------------------------------------------------------------------------------------
    def lookup(self, offset: int) -> int:
        """A position at or before the batch with `offset`, from the index."""
        try:
            position = self.offset_index.lookup(offset)[1]
            return position if 0 <= position <= self.size else 0
        except CorruptIndex:
            return 0  # found out late: the search goes from the start, and the next load rebuilds the index

    def search(self, offset: int, end: int) -> tuple[int, int, int] | None:
        """`find` from where the index says; from the start where the index points at no batch."""
        start = self.lookup(offset)
        try:
            return self.find(offset, start, end)
        except ApiError:
            if not start:
                raise
            return self.find(offset, 0, end)

    def find(self, offset: int, start: int, end: int) -> tuple[int, int, int] | None:
        """(position, size, base offset) of the first batch whose last offset is at or after `offset`."""
        file = self.file
        position = start
        unpack = _HEAD.unpack_from
        while end - position >= 17:
            block = file.pread(min(_SEARCH_BYTES, end - position), position)
            if position + len(block) >= end:
                block += _PADDING
            limit = len(block) - _HEAD.size
            at = 0
            while at <= limit:
                base, length, _, magic, _, _, delta = unpack(block, at)
                if magic != 2:
                    if magic > 2 or magic < 0 or length < 14:
                        raise self._damaged(position + at)
                    delta = 0
                elif length < 49 or delta < 0:
                    raise self._damaged(position + at)
                if base + delta >= offset:
                    return position + at, length + 12, base
                at += length + 12
            if not at:
                return None
            position += at
        return None

    def _damaged(self, position: int) -> ApiError:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: no batch at byte {position}")

    def end(self) -> tuple[int, int]:
        """(offset, byte) behind its last batch, found from the last index entry on.  The byte is before the end of the
        file when something else than a batch follows."""
        start = 0
        if self.offset_index.entries:
            start = self.offset_index.entry(self.offset_index.entries - 1)[1]
            if start >= self.size:
                start = 0
        last, position = self.base_offset - 1, 0
        for begin in (start, 0):
            for row in scan(self.file, begin, self.size, verify=False):
                last, position = row[3], row[0] + row[1]
            if last >= self.base_offset or not begin:
                break
        return last + 1, position

    # --- names -----------------------------------------------------------------------------------------------------
    def rename_state(self, state: str) -> None:
        """Change the passing suffix of all its files, the log last: while `.log` has the old name, all of it counts
        as the old state."""
        old_name = f"{self.directory}/{self.base_offset:020d}"
        with self.lock:
            for kind in (*layout.INDEX_SUFFIXES, layout.LOG):
                source = old_name + kind + self.state
                if kind == layout.LOG or self.disk.exists(source):
                    self.disk.rename(source, old_name + kind + state)
            self.state = state
            self._renamed()

    def retire(self) -> None:
        """Its files become `.deleted`.  A full disk may have no room for the longer names in the directory: then they
        go at once, the log first, since an index without one is removed by a load.  Who reads it holds it open."""
        try:
            self.rename_state(layout.DELETED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            with self.lock:
                name = f"{self.directory}/{self.base_offset:020d}"
                for kind in (layout.LOG, *layout.INDEX_SUFFIXES):
                    for state in (self.state, layout.DELETED):
                        self.disk.unlink(name + kind + state, missing_ok=True)
                self.state = layout.DELETED
                self._renamed()

    def moved(self, directory: str) -> None:
        """Its directory has another name.  Whoever renames that holds the locks of all segments in it."""
        self.directory = directory
        self._renamed()

    def _renamed(self) -> None:
        name = f"{self.directory}/{self.base_offset:020d}"
        self.offset_index.file.renamed(name + layout.INDEX + self.state)
        self.time_index.file.renamed(name + layout.TIME_INDEX + self.state)
        self.txn_index.renamed(name + layout.TXN_INDEX + self.state)
        rename = getattr(self._file, "renamed", None)
        if rename is not None:
            rename(self.path)

    def sync_files(self) -> list[File]:
        """The files that a flush must sync: those that are open, since what was written was written through them."""
        files = [self.file]
        indexes = (self.offset_index.file, self.time_index.file, self.txn_index)
        files.extend(file for index in indexes if (file := index.sync_file()) is not None)
        return files

    def drop(self) -> None:
        """Let go of all files."""
        self.offset_index.file.drop()
        self.time_index.file.drop()
        self.txn_index.drop()
        self._file = None

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"
