"""The real disk: `base.ports.Disk` over the operating system.

Every error is an `OSError` whose `filename` is set, so that whoever catches it can say where.  Thread-safe as far as
the descriptors are: positions are explicit everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence
from typing import Any

from stratalog.base.ports import Mapping
from stratalog.base.types import Buffer, Millis

_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)
_pwritev = os.pwritev
_pread = os.pread
_KEEP_SIZE = 1
_BLOCK_BYTES = 512
"""What `st_blocks` counts in."""
_ROOM_FACTOR = 64
"""Blocks are taken ahead where so many times their number are free: the last ones are for who writes."""
_RESERVED_BYTES_MIN = 1 << 20
"""Blocks behind a file's end that are worth a call: a file system rounds up by some."""


def _find_fallocate() -> Any:
    """The system's call, which Python has without the flag that keeps the size; None where there is none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call


_fallocate = _find_fallocate()


def _named(error: OSError, path: str) -> OSError:
    """The same error with the path in it: calls on descriptors do not know it."""
    return OSError(error.errno, os.strerror(error.errno or errno.EIO), path)


class RealMapping:
    """`base.ports.Mapping` on mmap."""

    __slots__ = ("_map", "_path", "_view")

    def __init__(self, fd: int, length: int, path: str) -> None:
        self._path = path
        try:
            self._map = mmap.mmap(fd, length)
        except OSError as error:
            raise _named(error, path) from error
        self._view = memoryview(self._map)

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self) -> None:
        try:
            self._map.flush()
        except OSError as error:
            raise _named(error, self._path) from error

    def close(self) -> None:
        self._view.release()
        with contextlib.suppress(BufferError):  # a reader holds a slice: the map goes when that does
            self._map.close()


class RealFile:
    """`base.ports.File` on one descriptor, closed with the last reference at the latest."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self._path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    @property
    def path(self) -> str:
        return self._path

    def renamed(self, path: str) -> None:
        """The file's name changed under its descriptor: messages name the new one."""
        self._path = path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def mtime_ms(self) -> Millis:
        return Millis(os.fstat(self._fd).st_mtime_ns // 1_000_000)

    def pread(self, length: int, position: int) -> bytes:
        try:
            data = _pread(self._fd, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length:
                data = _pread(self._fd, length - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise _named(error, self._path) from error

    def pread_into(self, buffer: Buffer, position: int) -> int:
        view = memoryview(buffer)
        got = 0
        try:
            while got < len(view):
                n = os.preadv(self._fd, [view[got:]], position + got)
                if n == 0:
                    break
                got += n
        except OSError as error:
            raise _named(error, self._path) from error
        return got

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        total = 0
        for buffer in buffers:
            total += len(buffer)
        try:
            if len(buffers) <= _IOV_MAX:
                written = _pwritev(self._fd, buffers, position)
                if written == total:
                    return total
            self._write_slowly(buffers, position)
        except OSError as error:
            raise _named(error, self._path) from error
        return total

    def _write_slowly(self, buffers: Sequence[Buffer], position: int) -> None:
        """The rare way: more buffers than one call takes, or a call that wrote a part.  Writes all from the start
        again, which is harmless: the same bytes at the same place."""
        pending = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while pending:
            written = os.pwritev(self._fd, pending[:_IOV_MAX], position)
            if written == 0:
                raise OSError(errno.EIO, "a write wrote nothing", self._path)
            position += written
            done = 0
            while done < len(pending) and written >= len(pending[done]):
                written -= len(pending[done])
                done += 1
            del pending[:done]
            if written:
                pending[0] = pending[0][written:]

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise _named(error, self._path) from error

    def allocate(self, size: int) -> None:
        self.truncate(size)

    def reserve(self, position: int, length: int) -> bool:
        if _fallocate is None:
            return False
        room = os.fstatvfs(self._fd)
        if room.f_bavail * room.f_frsize < length * _ROOM_FACTOR:
            return False
        return bool(_fallocate(self._fd, _KEEP_SIZE, position, length) == 0)

    def release(self) -> None:
        try:
            status = os.fstat(self._fd)
            if status.st_blocks * _BLOCK_BYTES >= status.st_size + _RESERVED_BYTES_MIN:
                os.ftruncate(self._fd, status.st_size)
                os.utime(self._fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        except OSError as error:
            raise _named(error, self._path) from error

    def fsync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _named(error, self._path) from error

    def map(self, length: int) -> Mapping:
        return RealMapping(self._fd, length, self._path)

    def fileno(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            self.close()


class RealDisk:
    """`base.ports.Disk` on the file system of the machine."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> RealFile:
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return RealFile(path, flags)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> Millis:
        return Millis(os.stat(path).st_mtime_ns // 1_000_000)

    def set_mtime_ms(self, path: str, mtime_ms: Millis) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise _named(error, path) from error
        finally:
            os.close(fd)

    def read(self, path: str, *, limit: int = 64 << 20) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            expected = min(os.fstat(fd).st_size, limit)
            data = os.read(fd, expected + 1)
            if len(data) > expected:  # it grows
                while more := os.read(fd, min(1 << 20, limit + 1 - len(data))):
                    data += more
        except OSError as error:
            raise _named(error, path) from error
        finally:
            os.close(fd)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", path)
        return data

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data).cast("B")
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        except OSError as error:
            raise _named(error, temporary) from error
        finally:
            os.close(fd)
        os.replace(temporary, path)
        self.fsync_dir(os.path.dirname(path) or ".")

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # against another broker of ours, in this process too
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # against Apache Kafka: the kind of lock that Java takes
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path) from error
            raise _named(error, path) from error
        return _HeldLock(fd)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize


class _HeldLock(contextlib.AbstractContextManager[None]):
    """A lock that is taken already; leaving the context, or dropping it, gives it back."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __exit__(self, *_: object) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
