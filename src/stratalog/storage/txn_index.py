"""`.txnindex`: the aborted transactions of one segment, 34 bytes each, in the order of their abort markers.

    version int16 = 0 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64

`last offset` is the marker's; `last stable offset` is what the log's became with it.  The file is made with its first
entry.  It is read whole and kept: a segment has few aborted transactions.  One writer, readers on any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from threading import Lock

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk, File
from stratalog.storage.values import AbortedTxn

ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = 34
_LAST_OFFSET = struct.Struct(">q")
VERSION = 0


class TxnIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_data", "_file", "_lock", "disk", "path")

    def __init__(self, disk: Disk, path: str, lock: Lock, *, exists: bool) -> None:
        self._lock = lock
        self.disk = disk
        self.path = path
        self._file: File | None = None
        self._data: bytes | None = None if exists else b""

    @property
    def data(self) -> bytes:
        """The entries as they stand in the file; `Malformed` when they cannot be that."""
        data = self._data
        if data is None:
            with self._lock:
                data = self._data
                if data is None:
                    data = self._data = self.disk.read(self.path)
        return data

    def sanity_check(self, base_offset: int) -> None:
        """Raises `Malformed` when the file cannot be a transaction index of a segment that begins at `base_offset`."""
        data = self.data
        if len(data) % ENTRY_SIZE:
            raise Malformed(f"{self.path}: {len(data)} bytes are no multiple of {ENTRY_SIZE}")
        last = base_offset - 1
        for slot, (version, _, first, end, _) in enumerate(ENTRY.iter_unpack(data)):
            if version != VERSION or end < base_offset or first >= end or end < last:
                raise Malformed(f"{self.path}: entry {slot} makes no sense", position=slot * ENTRY_SIZE)
            last = end

    def __len__(self) -> int:
        return len(self.data) // ENTRY_SIZE

    def append(self, txn: AbortedTxn) -> None:
        data = self.data
        if self._file is None:
            self._file = self.disk.open(self.path, create=True)
        row = ENTRY.pack(VERSION, *txn)
        self._file.pwritev([row], len(data))
        self._data = data + row

    def __iter__(self) -> Iterator[AbortedTxn]:
        for _, *fields in ENTRY.iter_unpack(self.data):
            yield AbortedTxn(*fields)

    def collect(self, start: int, end: int, found: list[AbortedTxn]) -> bool:
        """Add the transactions that have something in [start, end); True when no later segment can have more."""
        data = self._data
        if data == b"":
            return False
        data = self.data
        low, high = 0, len(data) // ENTRY_SIZE
        while low < high:  # the first one whose marker is at or behind `start`
            middle = (low + high) >> 1
            if _LAST_OFFSET.unpack_from(data, middle * ENTRY_SIZE + 18)[0] < start:
                low = middle + 1
            else:
                high = middle
        for position in range(low * ENTRY_SIZE, len(data), ENTRY_SIZE):
            _, producer_id, first, last, stable = ENTRY.unpack_from(data, position)
            if first < end:
                found.append(AbortedTxn(producer_id, first, last, stable))
            if stable >= end:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose marker is at or after `offset`."""
        data = self.data
        keep = 0
        for _, _, _, last, _ in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
            if last >= offset:
                break
            keep += ENTRY_SIZE
        self.cut(keep)

    def cut(self, size: int) -> None:
        data = self.data
        if size < len(data):
            if self._file is None:
                self._file = self.disk.open(self.path)
            self._file.truncate(size)
            self._data = data[:size]

    def reset(self) -> None:
        """No entries, whatever the file holds."""
        if self._data != b"":
            if self._file is None:
                self._file = self.disk.open(self.path, create=True)
            self._file.truncate(0)
            self._data = b""

    def replace(self, rows: Iterable[AbortedTxn]) -> None:
        """Exactly these entries, all at once: a crash leaves the old file or the new one.  For a load, after which
        nobody might look at the file again."""
        data = b"".join([ENTRY.pack(VERSION, *row) for row in rows])
        if data != self.data:
            self._file = None
            self.disk.write_atomically(self.path, data)
            self._data = data

    @property
    def exists(self) -> bool:
        return self._file is not None or self._data != b""

    def sync_file(self) -> File | None:
        return self._file

    def renamed(self, path: str) -> None:
        self.path = path
        rename = getattr(self._file, "renamed", None)
        if rename is not None:
            rename(path)

    def drop(self) -> None:
        self._file = None
