"""`.index`: relative offset (int32), position (int32), eight bytes an entry, strictly increasing.

An entry (o, p) says: the batch that begins at byte p of the segment ends with offset base + o.  Sparse: one entry for
about `index.interval.bytes` of log.  See `index_file` for threads and for the life of the file.
"""

from __future__ import annotations

import errno
import struct
from threading import Lock

from stratalog.base.ports import Disk
from stratalog.base.types import MAX_INT32
from stratalog.storage.index_file import WARM_BYTES, IndexFile

ENTRY = struct.Struct(">ii")
_RELATIVE = struct.Struct(">i")
ENTRY_SIZE = 8
_TRIES = 100
_CHUNK_ENTRIES = 2048
"""Read at once where an index is checked: most are shorter, or end in zeros soon."""
_WARM_ENTRIES = WARM_BYTES // ENTRY_SIZE


class OffsetIndex:
    """The sparse map from offsets to positions of one segment."""

    __slots__ = ("base_offset", "file", "last_offset")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, lock: Lock) -> None:
        self.file = IndexFile(disk, path, ENTRY_SIZE, max_bytes, lock)
        self.base_offset = base_offset
        self.last_offset = base_offset
        """The offset of the last entry, the base offset when there is none."""

    @property
    def entries(self) -> int:
        if self.file.entries < 0:
            self.open()
        return self.file.entries

    def open(self) -> None:
        self.file.open(self._take_last)

    def _read_last(self) -> None:
        entries = self.file.entries
        self._take_last(self.file.read(entries - 1, 1) if entries > 0 else b"")

    def _take_last(self, entry: bytes) -> None:
        self.last_offset = self.base_offset + (_RELATIVE.unpack_from(entry)[0] if entry else 0)

    def is_full(self) -> bool:
        return self.entries >= self.file.max_entries

    def append(self, offset: int, position: int) -> None:
        file = self.file
        entries = file.entries
        relative = offset - self.base_offset
        assert 0 <= relative <= MAX_INT32, f"{file.path}: offset {offset} does not fit behind {self.base_offset}"
        assert not entries or offset > self.last_offset, f"{file.path}: offset {offset} after {self.last_offset}"
        assert entries < file.max_entries, f"{file.path}: full"
        file.reserve()
        ENTRY.pack_into(file.view, entries * ENTRY_SIZE, relative, position)
        self.last_offset = offset
        file.entries = entries + 1

    def extend(self, data: bytes) -> None:
        """Many entries as they stand in the file, increasing, behind the last one."""
        if data:
            self.file.extend(data)
            self._read_last()

    def entry(self, slot: int) -> tuple[int, int]:
        """Offset and position of one entry."""
        relative, position = ENTRY.unpack_from(self.file.view, slot * ENTRY_SIZE)
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or before `offset`; (base offset, 0) when there is none."""
        for _ in range(_TRIES):
            try:
                slot = self.floor_slot(offset)
                return (self.base_offset, 0) if slot < 0 else self.entry(slot)
            except (ValueError, struct.error):
                self.open()  # it was cut or dropped under this reader
        raise OSError(errno.EIO, "the index changes too often to be read", self.file.path)

    def offset_at_or_behind(self, position: int) -> int | None:
        """The offset of the first entry at or behind a position, None when there is none."""
        for _ in range(_TRIES):
            try:
                entries = self.entries
                view = self.file.view
                low, high = 0, entries
                while low < high:
                    middle = (low + high) >> 1
                    if ENTRY.unpack_from(view, middle * ENTRY_SIZE)[1] < position:
                        low = middle + 1
                    else:
                        high = middle
                return None if low == entries else self.entry(low)[0]
            except (ValueError, struct.error):
                continue  # it was cut or dropped under this reader
        raise OSError(errno.EIO, "the index changes too often to be read", self.file.path)

    def floor_slot(self, offset: int) -> int:
        """The slot of the last entry at or before `offset`, -1 when there is none.  The last 8 KiB first: that is
        where appends and tailing readers are, and what stays in memory."""
        entries = self.file.entries
        if entries < 0:
            self.open()
            entries = self.file.entries
        if not entries:
            return -1
        view = self.file.view
        relative = offset - self.base_offset
        unpack = _RELATIVE.unpack_from
        high = entries - 1
        if unpack(view, high * ENTRY_SIZE)[0] <= relative:
            return high
        low = entries - _WARM_ENTRIES
        if low <= 0 or unpack(view, low * ENTRY_SIZE)[0] > relative:
            if low > 0:
                high = low
            low = 0
            if unpack(view, 0)[0] > relative:
                return -1
        # entry[low] <= target < entry[high]
        while high - low > 1:
            middle = (low + high) >> 1
            if unpack(view, middle * ENTRY_SIZE)[0] <= relative:
                low = middle
            else:
                high = middle
        return low

    def keep(self, entries: int) -> None:
        """Forget the entries from slot `entries` on, and make room behind: the segment is active (again)."""
        self.file.allocate(entries)
        self._read_last()

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or after `offset`."""
        self.keep(self.floor_slot(offset - 1) + 1 if offset > self.base_offset else 0)

    def valid_entries(self, position_end: int, offset_end: int) -> int:
        """How many entries from the start are increasing in both fields, within the log and below `offset_end`."""
        left = self.entries
        last_relative, last_position = -1, 0  # no entry is made for the batch at byte 0: that one is zeros
        relative_end = offset_end - self.base_offset
        slot = 0
        while left > 0:
            data = self.file.read(slot, min(left, _CHUNK_ENTRIES))
            left -= _CHUNK_ENTRIES
            for relative, position in ENTRY.iter_unpack(data):
                if relative <= last_relative or position <= last_position or position >= position_end:
                    return slot
                if relative >= relative_end:
                    return slot
                last_relative, last_position = relative, position
                slot += 1
        return slot
