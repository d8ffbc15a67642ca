"""`.timeindex`: timestamp (int64), relative offset (int32), twelve bytes an entry, increasing in both.

An entry (t, o) says: up to offset base + o, the greatest timestamp is t.  The last slot is kept free for the entry
that closes the segment, so that its greatest timestamp is always on disk.
"""

from __future__ import annotations

import errno
import struct
from threading import Lock

from stratalog.base.ports import Disk
from stratalog.base.types import MAX_INT32
from stratalog.storage.index_file import WARM_BYTES, IndexFile

ENTRY = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q")
ENTRY_SIZE = 12
_TRIES = 100
_CHUNK_ENTRIES = 2048
_WARM_ENTRIES = WARM_BYTES // ENTRY_SIZE


class TimeIndex:
    """The sparse map from timestamps to offsets of one segment."""

    __slots__ = ("base_offset", "file", "last_offset", "last_timestamp")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, lock: Lock) -> None:
        self.file = IndexFile(disk, path, ENTRY_SIZE, max_bytes, lock)
        self.base_offset = base_offset
        self.last_timestamp = -1
        self.last_offset = base_offset

    @property
    def entries(self) -> int:
        if self.file.entries < 0:
            self.open()
        return self.file.entries

    def open(self) -> None:
        self.file.open(self._take_last)

    def peek(self) -> None:
        """Know the last entry, without the index being opened for that."""
        self.file.peek(self._take_last)

    def _read_last(self) -> None:
        entries = self.file.entries
        self._take_last(self.file.read(entries - 1, 1) if entries > 0 else b"")

    def _take_last(self, entry: bytes) -> None:
        self.last_timestamp, relative = ENTRY.unpack(entry) if entry else (-1, 0)
        self.last_offset = self.base_offset + relative

    def is_full(self) -> bool:
        """One slot short of really full: that one is for `maybe_append(..., closing=True)`."""
        return self.entries >= self.file.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, *, closing: bool = False) -> None:
        """Only a greater timestamp makes an entry."""
        file = self.file
        entries = file.entries
        if timestamp <= self.last_timestamp or (entries and offset < self.last_offset):
            return
        relative = offset - self.base_offset
        assert 0 <= relative <= MAX_INT32, f"{file.path}: offset {offset} does not fit behind {self.base_offset}"
        if entries >= file.max_entries - (0 if closing else 1):
            assert closing, f"{file.path}: full"
            return
        file.reserve()
        ENTRY.pack_into(file.view, entries * ENTRY_SIZE, timestamp, relative)
        self.last_timestamp = timestamp
        self.last_offset = offset
        file.entries = entries + 1

    def extend(self, data: bytes) -> None:
        """Many entries as they stand in the file, increasing, greater than the last one."""
        if data:
            self.file.extend(data)
            self._read_last()

    def entry(self, slot: int) -> tuple[int, int]:
        timestamp, relative = ENTRY.unpack_from(self.file.view, slot * ENTRY_SIZE)
        return timestamp, self.base_offset + relative

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or before `timestamp`; (-1, base offset) when there is none."""
        for _ in range(_TRIES):
            try:
                slot = self.floor_slot(timestamp)
                return (-1, self.base_offset) if slot < 0 else self.entry(slot)
            except (ValueError, struct.error):
                self.open()  # it was cut or dropped under this reader
        raise OSError(errno.EIO, "the index changes too often to be read", self.file.path)

    def floor_slot(self, timestamp: int) -> int:
        entries = self.file.entries
        if entries < 0:
            self.open()
            entries = self.file.entries
        if not entries:
            return -1
        view = self.file.view
        unpack = _TIMESTAMP.unpack_from
        high = entries - 1
        if unpack(view, high * ENTRY_SIZE)[0] <= timestamp:
            return high
        low = entries - _WARM_ENTRIES
        if low <= 0 or unpack(view, low * ENTRY_SIZE)[0] > timestamp:
            if low > 0:
                high = low
            low = 0
            if unpack(view, 0)[0] > timestamp:
                return -1
        while high - low > 1:
            middle = (low + high) >> 1
            if unpack(view, middle * ENTRY_SIZE)[0] <= timestamp:
                low = middle
            else:
                high = middle
        return low

    def keep(self, entries: int) -> None:
        """Forget the entries from slot `entries` on, and make room behind."""
        self.file.allocate(entries)
        self._read_last()

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or after `offset`."""
        self.keep(self.entries_below(offset))

    def entries_below(self, offset: int) -> int:
        """How many entries from the start are increasing and speak of offsets below `offset`."""
        left = self.entries
        last_timestamp = last_relative = -1
        end = offset - self.base_offset
        slot = 0
        while left > 0:
            data = self.file.read(slot, min(left, _CHUNK_ENTRIES))
            left -= _CHUNK_ENTRIES
            for timestamp, relative in ENTRY.iter_unpack(data):
                if timestamp <= last_timestamp or relative < last_relative or relative >= end:
                    return slot
                if not timestamp and not relative:
                    return slot  # the zeros behind the last entry of an index that was not closed
                last_timestamp, last_relative = timestamp, relative
                slot += 1
        return slot
