"""The ports: what the core may know of the world.

The core decides, these do.  One process shell implements them with sockets, files, threads and clocks
(`stratalog.server`), one simulator with virtual time and a disk that lies (`stratalog.sim`).  They come in
through constructors; nothing below the shell imports `time`, `os.open`, `random`, `socket` or `threading` to act.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from stratalog.base.types import Buffer, Millis


class Clock(Protocol):
    """Wall time, which may jump, and monotonic time, which never goes back."""

    def now_ms(self) -> Millis: ...

    def monotonic_ms(self) -> Millis: ...


class Rng(Protocol):
    """Randomness with a name, so that a new draw in one place does not reshuffle the others."""

    def integer(self, low: int, high: int) -> int:
        """A number in [low, high)."""
        ...

    def token(self, size: int) -> bytes: ...


class Mapping(Protocol):
    """A file's bytes as an array that is written in place: an index.

    `view` is a writable memoryview over the whole of it.  It is released by `close` and by the file's `truncate`;
    take it again after `map`.
    """

    @property
    def view(self) -> memoryview: ...

    def flush(self) -> None:
        """Make what was written durable (msync)."""
        ...

    def close(self) -> None: ...


class File(Protocol):
    """An open file.  Positions are explicit; there is no cursor.  Errors are `OSError`, with the path set."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pread_into(self, buffer: Buffer, position: int) -> int:
        """Fill the buffer; returns the bytes read, fewer only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all of the buffers one after the other.  All or an `OSError`: partial writes, the limit of buffers
        and a failure half-way are handled inside; after an error the file may be longer than before, and the
        caller truncates it or takes the log offline."""
        ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, sparse where the file system can."""
        ...

    def reserve(self, position: int, length: int) -> bool:
        """Take blocks for what will be appended there, without making the file longer.  A hint: false where it had no
        effect, for want of room or of such a call, and nothing is different then."""
        ...

    def release(self) -> None:
        """Give back what `reserve` took behind the end of the file; its time stays."""
        ...

    def fsync(self) -> None: ...

    def map(self, length: int) -> Mapping:
        """Map the first `length` bytes for reading and writing."""
        ...

    def fileno(self) -> int:
        """For sendfile and preadv; a disk without descriptors raises `OSError`."""
        ...

    def mtime_ms(self) -> Millis: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system.  Paths are absolute or relative strings with '/'.  Errors are `OSError`, with the path set."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> Millis: ...

    def set_mtime_ms(self, path: str, mtime_ms: Millis) -> None: ...

    def listdir(self, path: str) -> list[str]:
        """Names in sorted order."""
        ...

    def mkdir(self, path: str) -> None:
        """Make the directory and its parents; no error when it is there."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at the target."""
        ...

    def unlink(self, path: str, *, missing_ok: bool = False) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None:
        """Make created, renamed and removed entries of the directory durable."""
        ...

    def read(self, path: str, *, limit: int = 64 << 20) -> bytes:
        """The whole of a small file; `OSError` (EFBIG) above the limit."""
        ...

    def write_atomically(self, path: str, data: Buffer) -> None:
        """Temporary file beside it, fsync, rename, fsync of the directory: the old content or the new, never a mix."""
        ...

    def lock(self, path: str) -> AbstractContextManager[None]:
        """An exclusive lock on a file that ends with the process; `BlockingIOError` when another holds it.  Entered
        already; leaving the context releases it."""
        ...

    def free_bytes(self, path: str) -> int: ...


class Pool(Protocol):
    """Work off the loop: fsync, recovery, cleaning, cold reads.  A result comes back as an event."""

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `work` elsewhere, then `done(result, error)` on the loop.  The one who submits stamps what it captures
        with an id or an epoch and drops a stale answer."""
        ...


class Net(Protocol):
    """What the broker as a value may do to its connections."""

    def send(self, connection: int, buffers: Sequence[Any]) -> None: ...

    def close(self, connection: int, reason: str) -> None: ...
