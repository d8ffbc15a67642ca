"""The real disk with faults that a test switches on: full, failing, read-only."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import Final

from stratalog.base.types import Buffer
from stratalog.server.disk import RealDisk, RealFile

OPERATIONS: Final = frozenset(("read", "write", "fsync", "open", "rename", "unlink", "mkdir", "truncate"))


class _Fault:
    __slots__ = ("number", "operations", "part", "times")

    def __init__(self, number: int, operations: frozenset[str], part: str, times: int) -> None:
        self.number = number
        self.operations = operations
        self.part = part
        self.times = times


class FaultOn(contextlib.AbstractContextManager[None]):
    """A fault that is on until the end of its `with` block, until `end()`, or until the disk's `heal()`."""

    def __init__(self, disk: FaultyDisk, fault: _Fault) -> None:
        self._disk = disk
        self._fault = fault
        disk._faults.append(fault)

    def end(self) -> None:
        if self._fault in self._disk._faults:
            self._disk._faults.remove(self._fault)

    def __exit__(self, *_: object) -> None:
        self.end()


class FaultyDisk(RealDisk):
    """`base.ports.Disk` whose operations fail while a fault is on.

    A fault is on from the call; in a `with` statement it ends with the block.  Operations are named
    `read write fsync open rename unlink mkdir truncate`.
    """

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[_Fault] = []

    # --- what a test switches ---------------------------------------------------------------------------------------
    def full(self, part: str = "") -> FaultOn:
        """From now on whatever needs space gets ENOSPC, below paths that contain `part`."""
        return self.failing("write", "open", "mkdir", number=errno.ENOSPC, part=part)

    def failing(self, *operations: str, number: int = errno.EIO, part: str = "", times: int = 1 << 60) -> FaultOn:
        """From now on these operations fail with this error, on paths that contain `part`, `times` times."""
        unknown = set(operations) - OPERATIONS
        if unknown or not operations:
            raise ValueError(f"operations {sorted(unknown)}: there are {', '.join(sorted(OPERATIONS))}")
        return FaultOn(self, _Fault(number, frozenset(operations), part, times))

    def heal(self) -> None:
        """No fault is on any more."""
        self._faults.clear()

    def check(self, operation: str, path: str) -> None:
        """Raise what the faults say."""
        for fault in self._faults:
            if operation in fault.operations and fault.times > 0 and fault.part in path:
                fault.times -= 1
                raise OSError(fault.number, os.strerror(fault.number), path)

    # --- the disk -----------------------------------------------------------------------------------------------------
    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> RealFile:
        if self._faults and create and not os.path.exists(path):
            self.check("open", path)
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return _FaultyFile(path, flags, self)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        self.check("unlink", path)
        super().unlink(path, missing_ok=missing_ok)

    def mkdir(self, path: str) -> None:
        self.check("mkdir", path)
        super().mkdir(path)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync", path)
        super().fsync_dir(path)

    def read(self, path: str, *, limit: int = 64 << 20) -> bytes:
        self.check("read", path)
        return super().read(path, limit=limit)

    def write_atomically(self, path: str, data: Buffer) -> None:
        self.check("write", path)
        super().write_atomically(path, data)

    def free_bytes(self, path: str) -> int:
        try:
            self.check("write", path)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return 0
        return super().free_bytes(path)


class _FaultyFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, flags: int, disk: FaultyDisk) -> None:
        super().__init__(path, flags)
        self._disk = disk

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._disk._faults:
            self._disk.check("write", self.path)
        return super().pwritev(buffers, position)

    def pread(self, length: int, position: int) -> bytes:
        if self._disk._faults:
            self._disk.check("read", self.path)
        return super().pread(length, position)

    def truncate(self, size: int) -> None:
        if self._disk._faults:
            self._disk.check("truncate", self.path)
        super().truncate(size)

    def fsync(self) -> None:
        if self._disk._faults:
            self._disk.check("fsync", self.path)
        super().fsync()
