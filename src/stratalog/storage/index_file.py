"""An index's file: allocated to its greatest size, mapped, trimmed when its segment closes, opened when needed.

    entries ... | zeros up to `segment.index.bytes`     while its segment is appended to
    entries                                             after a roll or a clean close, and from a load (or the making of
                                                        a partition) to the first append

A mapping costs a descriptor, and so does the file beside it: a partition that nobody writes or reads holds neither.

Entries are read and written in place in the mapping; no Python object exists for an entry.  One thread writes, any
thread reads: an entry counts only after `entries` has moved past it.  `allocate`, `trim` and `drop` let go of the
mapping; a reader who was inside it gets ValueError, opens it again and starts over.  The lock is the segment's, held
only by who opens, cuts, drops or renames: nobody maps a file that is being cut, or looks for it under its old name.

Blocks are taken from the file system with an ordinary write before the mapping touches them: on a full disk that is
an `OSError`, where a store into a sparse mapping would be the end of the process.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Lock

from stratalog.base.limits import WARM_INDEX_BYTES
from stratalog.base.ports import Disk, File, Mapping

RESERVE_BYTES = 16 << 10
"""Taken from the file system at once: 2,048 offsets, or 8 MiB of log at the default interval."""
WARM_BYTES = WARM_INDEX_BYTES
_ZEROS = bytes(RESERVE_BYTES)
_NOTHING = memoryview(b"")


class CorruptIndex(Exception):
    """An index that cannot be one: its size is no multiple of its entry's.  Whoever sees it rebuilds the index."""


class IndexFile:
    """The bytes of one index.  `entries` and `view` are what the two kinds of index work on."""

    __slots__ = (
        "_changes",
        "_file",
        "_mapping",
        "_reserved",
        "_synced",
        "disk",
        "entries",
        "entry_size",
        "is_allocated",
        "lock",
        "max_bytes",
        "max_entries",
        "path",
        "view",
    )

    def __init__(self, disk: Disk, path: str, entry_size: int, max_bytes: int, lock: Lock) -> None:
        self.disk = disk
        self.path = path
        self.entry_size = entry_size
        self.max_bytes = max_bytes
        self.max_entries = max_bytes // entry_size
        self.entries = -1
        """-1 until the file was opened."""
        self.is_allocated = False
        """Whether it is as large as it gets, and zeros behind its entries."""
        self.view: memoryview = _NOTHING
        self._file: File | None = None
        self._mapping: Mapping | None = None
        self._reserved = 0
        self._changes = self._synced = 0
        """How often it was cut or made longer, and up to which time what it held then is on disk: a flush may still
        be on its way when a roll writes the last entry."""
        self.lock = lock

    def make_empty(self) -> None:
        """A file without entries, closed again: its segment is new, and nobody may ever append to it."""
        with self.lock:
            self._release()
            self._file = None
            file = self.disk.open(self.path, create=True)
            if file.size():
                file.truncate(0)
                self._changes += 1
            file.close()

    def open(self, take_last: Callable[[bytes], None]) -> None:
        """Map what is there, unless it is mapped; every entry in the file counts.  `take_last` gets the bytes of the
        last one before anybody can see that the index is open."""
        with self.lock:
            if self.entries < 0:
                entries = self._open()
                take_last(self.read(entries - 1, 1) if entries else b"")
                self.entries = entries

    def peek(self, take_last: Callable[[bytes], None]) -> None:
        """`take_last` gets the bytes of the last entry; an index that is not open stays so."""
        with self.lock:
            if self.entries >= 0:
                return  # whoever opened it has taken them
            file = self.disk.open(self.path)
            try:
                size = self._checked(file.size())
                take_last(file.pread(self.entry_size, size - self.entry_size) if size else b"")
            finally:
                file.close()

    def _checked(self, size: int) -> int:
        if size % self.entry_size:
            raise CorruptIndex(f"{self.path}: {size} bytes are no multiple of {self.entry_size}")
        return size

    def _open(self) -> int:
        if self._file is None:
            self._file = self.disk.open(self.path)
        size = self._checked(self._file.size())
        if size:
            mapping = self._file.map(size)
            self._mapping = mapping
            self.view = mapping.view
        else:
            self._mapping = None
            self.view = _NOTHING
        self._reserved = size
        return size // self.entry_size

    def allocate(self, entries: int) -> None:
        """Make it the index of an active segment: its greatest size, `entries` of which count."""
        size = self.max_entries * self.entry_size
        if entries == self.entries and self.is_allocated:
            return
        with self.lock:
            self._release()
            if self._file is None:
                self._file = self.disk.open(self.path, create=True)
            keep = entries * self.entry_size
            self._changes += 1
            self._file.truncate(keep)  # what is behind the entries becomes zeros
            try:
                self._file.allocate(size)
                if size:
                    mapping = self._file.map(size)
                    self._mapping = mapping
                    self.view = mapping.view
            except OSError:
                self._file.truncate(keep)  # or the zeros would count as entries
                raise
            self._reserved = keep
            self.is_allocated = True
            self.entries = entries

    def reserve(self) -> None:
        """Room on the disk for one more entry; `OSError` (ENOSPC) when there is none."""
        end = (self.entries + 1) * self.entry_size
        if end <= self._reserved:
            return
        assert self._file is not None
        size = min(RESERVE_BYTES, self.max_entries * self.entry_size - self._reserved)
        if size <= 0:
            raise OSError(errno.EFBIG, "the index is full", self.path)
        self._file.pwritev([memoryview(_ZEROS)[:size]], self._reserved)
        self._reserved += size

    def read(self, first: int, count: int) -> bytes:
        """The bytes of some entries, without the mapping: looking at an index that is mostly a hole would fill
        memory with zeros."""
        assert self._file is not None
        return self._file.pread(count * self.entry_size, first * self.entry_size)

    def extend(self, data: bytes) -> None:
        """Many entries at once; `OSError` (ENOSPC) when there is no room for them."""
        assert self._file is not None
        start = self.entries * self.entry_size
        end = start + len(data)
        assert len(data) % self.entry_size == 0 and end <= self.max_entries * self.entry_size, f"{self.path}: full"
        self._file.pwritev([data], start)
        self._reserved = max(self._reserved, end)
        self.entries = end // self.entry_size

    def trim(self) -> None:
        """Cut the file behind its last entry.  It is mapped again when somebody asks."""
        with self.lock:
            if self.entries < 0:
                return
            size = self.entries * self.entry_size
            self._release()
            if self._file is None:
                self._file = self.disk.open(self.path, create=True)
            self._changes += 1
            self._file.truncate(size)

    def sync_file(self) -> File | None:
        """The file to sync, None when nothing was written: not since it was opened, nor before it was closed."""
        with self.lock:
            if self._file is None and self._changes != self._synced:
                self._file = self.disk.open(self.path)
            return self._file

    def renamed(self, path: str) -> None:
        self.path = path
        rename = getattr(self._file, "renamed", None)
        if rename is not None:
            rename(path)

    @property
    def changes(self) -> int:
        """For `let_go`: to be read before the sync."""
        return self._changes

    def let_go(self, changes: int) -> None:
        """Close the descriptor of an index that is trimmed, and was synced after so many changes, unless more have
        come since; it is opened again when somebody asks."""
        with self.lock:
            if self.entries < 0 and changes == self._changes:
                self._file = None
                self._synced = changes

    def drop(self) -> None:
        """Let go of mapping and file; the file goes with its last reader."""
        with self.lock:
            self._release()
            self._file = None

    def _release(self) -> None:
        self.entries = -1
        self.is_allocated = False
        mapping, self._mapping = self._mapping, None
        self.view = _NOTHING
        if mapping is not None:
            mapping.close()
