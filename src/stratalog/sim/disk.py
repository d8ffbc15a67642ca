"""A disk in memory that keeps a journal of everything that was done to it.

`SimDisk` is `base.ports.Disk`.  What a program sees is the *page cache*: every write is there at once.  What a crash
leaves is decided later, from the journal: `crash.Crashes` walks it and builds the images that a power cut could have
left at any of its entries, since each entry says which file or directory it changed and what was synced when.

    fsync(file)     the file's bytes and its size are durable; its name is not
    fsync_dir(dir)  the names in the directory are durable; the bytes of the files are not
    a mapping       its stores are noticed at the next operation and count as writes of 512-byte sectors

Faults (`fault`) make operations fail as disks do: no space with half of a write done, an I/O error, a sync that fails
once and says yes afterwards although the pages are gone (fsyncgate), a read-only file system.  `flip` is rot at rest.

One thread at a time.  Time is what the constructor's clock says, 0 without one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from stratalog.base.types import Buffer, Millis

if TYPE_CHECKING:
    from stratalog.sim.crash import Image

SECTOR = 512
CREATE, RENAME, UNLINK, MKDIR, RMDIR, WRITE, TRUNCATE, SYNC, SYNC_DIR, DROP = range(10)
"""Kinds of journal entries.  DROP: what is pending on a file is lost, and nobody was told (a failed sync)."""
ROOT = 1


class Entry(NamedTuple):
    """One operation: its kind, the inode that it changes, and for each kind

    CREATE, MKDIR, RENAME, UNLINK, RMDIR   `changes`: (directory inode, name, inode or 0 for none) of each name changed
    WRITE                                  `position`, `data`; `mapped` when it came through a mapping
    TRUNCATE                               `position`: the new size
    """

    kind: int
    inode: int
    position: int = 0
    data: bytes = b""
    changes: tuple[tuple[int, str, int], ...] = ()
    mapped: bool = False


class PowerCut(BaseException):
    """The power is gone: raised by the operation that `SimDisk.cut_at` names, and by every one after it."""


class Inode:
    """A file's bytes, shared by its handles.  `bytes` while nobody has written: images share them."""

    __slots__ = ("data", "mapped", "mtime", "number", "shadow")

    def __init__(self, number: int, data: bytes | bytearray = b"", mtime: int = 0) -> None:
        self.number = number
        self.data = data
        self.mtime = mtime
        self.mapped = 0
        self.shadow = b""
        """What the journal knows of a file that is mapped."""


class Directory:
    """Names to inodes and directories."""

    __slots__ = ("entries", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[str, Inode | Directory] = {}


class Fault:
    """A fault that is switched on: see `SimDisk.fault`."""

    __slots__ = ("drop", "hits", "number", "operations", "part", "partial", "skip", "times")

    def __init__(
        self, operations: frozenset[str], number: int, part: str, times: int, skip: int, partial: float, drop: bool
    ) -> None:
        self.operations = operations
        self.number = number
        self.part = part
        self.times = times
        self.skip = skip
        self.partial = partial
        self.drop = drop
        self.hits = 0


class SimMapping:
    """`base.ports.Mapping` over an inode's bytes."""

    __slots__ = ("_disk", "_inode", "_view")

    def __init__(self, disk: SimDisk, inode: Inode, length: int) -> None:
        self._disk = disk
        self._inode = inode
        self._view = memoryview(disk._mutable(inode))[:length]
        if not inode.mapped:
            inode.shadow = bytes(inode.data)
            disk._mapped.append(inode)
        inode.mapped += 1

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self) -> None:
        self._disk._check("fsync", "")
        self._disk._log(Entry(SYNC, self._inode.number))

    def close(self) -> None:
        disk, inode = self._disk, self._inode
        disk._notice_mapped()
        self._view.release()
        inode.mapped -= 1
        if not inode.mapped:
            disk._mapped.remove(inode)


class SimFile:
    """`base.ports.File` on an inode; it outlives the inode's name."""

    __slots__ = ("_disk", "_path", "_write", "inode")

    def __init__(self, disk: SimDisk, path: str, inode: Inode, write: bool) -> None:
        self._disk = disk
        self._path = path
        self._write = write
        self.inode = inode

    @property
    def path(self) -> str:
        return self._path

    def renamed(self, path: str) -> None:
        self._path = path

    def size(self) -> int:
        return len(self.inode.data)

    def mtime_ms(self) -> Millis:
        return Millis(self.inode.mtime)

    def pread(self, length: int, position: int) -> bytes:
        if self._disk.faults:
            self._disk._check("read", self._path)
        return bytes(self.inode.data[position : position + length])

    def pread_into(self, buffer: Buffer, position: int) -> int:
        if self._disk.faults:
            self._disk._check("read", self._path)
        view = memoryview(buffer)
        part = memoryview(self.inode.data)[position : position + len(view)]
        count = len(part)
        view[:count] = part
        part.release()
        return count

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        self._writable()
        failure = self._disk._failure("write", self._path)
        if failure is not None:
            fault, error = failure
            data = data[: int(len(data) * fault.partial)]
            if data:
                self._disk._write(self.inode, data, position)
            raise error
        self._disk._write(self.inode, data, position)
        return len(data)

    def truncate(self, size: int) -> None:
        self._writable()
        self._disk._check("truncate", self._path)
        self._disk._resize(self.inode, size)

    def allocate(self, size: int) -> None:
        self.truncate(size)

    def reserve(self, position: int, length: int) -> bool:
        """Blocks are no matter here: what is in the file is the same with them and without."""
        return False

    def release(self) -> None:
        """There is nothing to give back."""

    def fsync(self) -> None:
        disk = self._disk
        failure = disk._failure("fsync", self._path)
        if failure is not None:
            if failure[0].drop:
                disk._log(Entry(DROP, self.inode.number))
            raise failure[1]
        disk._log(Entry(SYNC, self.inode.number))

    def map(self, length: int) -> SimMapping:
        self._writable()
        if length > len(self.inode.data):
            raise OSError(errno.EINVAL, "a mapping beyond the end of the file", self._path)
        return SimMapping(self._disk, self.inode, length)

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a simulated file has no descriptor", self._path)

    def close(self) -> None:
        """Nothing is held."""

    def _writable(self) -> None:
        if not self._write:
            raise OSError(errno.EBADF, "opened for reading", self._path)


class SimDisk:
    """`base.ports.Disk` in memory, with a journal."""

    def __init__(self, *, clock: Callable[[], int] | None = None) -> None:
        self.root = Directory(ROOT)
        self.journal: list[Entry] = []
        """Every change since the disk was made (or since the image was taken), in order."""
        self.cut_at: int | None = None
        """Raise `PowerCut` instead of making the journal longer than this."""
        self.faults: list[Fault] = []
        self.read_only = False
        self.base: Image | None = None
        """The image that the disk was made from; None: it began empty."""
        self._clock = clock
        self._numbers = ROOT
        self._mapped: list[Inode] = []
        self._locked: set[str] = set()

    # --- what a test switches ---------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def fault(
        self,
        *operations: str,
        number: int = errno.EIO,
        part: str = "",
        times: int = 1 << 60,
        skip: int = 0,
        partial: float = 0.0,
        drop: bool = False,
    ) -> Iterator[Fault]:
        """While inside, these operations (`read write truncate fsync open rename unlink mkdir`) fail on paths that
        contain `part`: after `skip` that go well, `times` times.  `partial` is how much of a write is done before it
        fails; `drop`: a failed sync loses what was pending, and later syncs say yes (fsyncgate)."""
        one = Fault(frozenset(operations), number, part, times, skip, partial, drop)
        self.faults.append(one)
        try:
            yield one
        finally:
            self.faults.remove(one)

    def full(self, *, part: str = "", partial: float = 0.5) -> AbstractContextManager[Fault]:
        """No space is left."""
        return self.fault("write", "open", "mkdir", number=errno.ENOSPC, part=part, partial=partial)

    def flip(self, path: str, position: int, mask: int = 0x01) -> None:
        """Rot at rest: the bits of `mask` change in one byte, and nothing says so."""
        inode = self._file(path)
        self._mutable(inode)[position] ^= mask

    def files(self) -> dict[str, bytes]:
        """Every file with its bytes as a program sees them."""
        found: dict[str, bytes] = {}

        def walk(directory: Directory, path: str) -> None:
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    walk(node, f"{path}/{name}")
                else:
                    found[f"{path}/{name}"] = bytes(node.data)

        walk(self.root, "")
        return found

    # --- the disk -----------------------------------------------------------------------------------------------------
    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> SimFile:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._check("open", path)
            self._numbers += 1
            node = Inode(self._numbers, mtime=self._now())
            self._log(Entry(CREATE, node.number, changes=((parent.number, name, node.number),)))
            parent.entries[name] = node
        elif exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if write and self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return SimFile(self, path, node, write)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def mtime_ms(self, path: str) -> Millis:
        node = self._find(path)
        if isinstance(node, Directory):
            return Millis(0)
        return Millis(self._file(path).mtime)

    def set_mtime_ms(self, path: str, mtime_ms: Millis) -> None:
        self._file(path).mtime = mtime_ms

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def mkdir(self, path: str) -> None:
        node = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            child = node.entries.get(name)
            if child is None:
                self._check("mkdir", path)
                self._numbers += 1
                child = Directory(self._numbers)
                self._log(Entry(MKDIR, child.number, changes=((node.number, name, child.number),)))
                node.entries[name] = child
            if not isinstance(child, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            node = child

    def rename(self, source: str, target: str) -> None:
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        node = old_parent.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._check("rename", source)
        self._log(
            Entry(
                RENAME,
                node.number,
                changes=((old_parent.number, old_name, 0), (new_parent.number, new_name, node.number)),
            )
        )
        del old_parent.entries[old_name]
        new_parent.entries[new_name] = node

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if missing_ok:
                return
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._check("unlink", path)
        self._log(Entry(UNLINK, node.number, changes=((parent.number, name, 0),)))
        del parent.entries[name]

    def rmtree(self, path: str) -> None:
        directory = self._directory(path)
        for name in sorted(directory.entries):
            child = f"{path}/{name}"
            if isinstance(directory.entries[name], Directory):
                self.rmtree(child)
            else:
                self.unlink(child)
        parent, name = self._parent(path)
        self._log(Entry(RMDIR, directory.number, changes=((parent.number, name, 0),)))
        del parent.entries[name]

    def fsync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._check("fsync", path)
        self._log(Entry(SYNC_DIR, directory.number))

    def read(self, path: str, *, limit: int = 64 << 20) -> bytes:
        if self.faults:
            self._check("read", path)
        data = self._file(path).data
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", path)
        return bytes(data)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        if file.size():
            file.truncate(0)
        file.pwritev([data], 0)
        file.fsync()
        self.rename(temporary, path)
        self.fsync_dir(path.rpartition("/")[0])

    def lock(self, path: str) -> AbstractContextManager[None]:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
        self.open(path, create=True)
        self._locked.add(path)
        stack = contextlib.ExitStack()
        stack.callback(self._locked.discard, path)
        return _Held(stack)

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    # --- inside -------------------------------------------------------------------------------------------------------
    def _now(self) -> int:
        return 0 if self._clock is None else self._clock()

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            if not isinstance(node, Directory):
                return None
            child = node.entries.get(name)
            if child is None:
                return None
            node = child
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, _, name = path.rpartition("/")
        return self._directory(head), name

    def _file(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _check(self, operation: str, path: str) -> None:
        if operation != "read" and self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        failure = self._failure(operation, path)
        if failure is not None:
            raise failure[1]

    def _failure(self, operation: str, path: str) -> tuple[Fault, OSError] | None:
        for fault in self.faults:
            if operation in fault.operations and fault.times > 0 and fault.part in path:
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                fault.hits += 1
                return fault, OSError(fault.number, os.strerror(fault.number), path)
        return None

    def _log(self, entry: Entry) -> None:
        if self._mapped:
            self._notice_mapped()
        self._put(entry)

    def _put(self, entry: Entry) -> None:
        if self.cut_at is not None and len(self.journal) >= self.cut_at:
            raise PowerCut(f"after {len(self.journal)} operations")
        self.journal.append(entry)

    def _notice_mapped(self) -> None:
        """Stores into mappings become entries, a sector each."""
        for inode in self._mapped:
            data, shadow = inode.data, inode.shadow
            if data == shadow:
                continue
            for at in range(0, len(data), SECTOR):
                part = data[at : at + SECTOR]
                if part != shadow[at : at + SECTOR]:
                    self._put(Entry(WRITE, inode.number, at, bytes(part), mapped=True))
            inode.shadow = bytes(data)

    def _mutable(self, inode: Inode) -> bytearray:
        data = inode.data
        if not isinstance(data, bytearray):
            data = inode.data = bytearray(data)
        return data

    def _write(self, inode: Inode, data: bytes, position: int) -> None:
        if not data:
            return  # as a real disk has it: nothing is written, and the file does not grow to `position`
        self._log(Entry(WRITE, inode.number, position, data))
        content = self._mutable(inode)
        end = position + len(data)
        if end > len(content):
            self._set_size(inode, end)
            content = self._mutable(inode)
        content[position:end] = data
        inode.mtime = self._now()
        if inode.mapped:
            inode.shadow = bytes(content)

    def _resize(self, inode: Inode, size: int) -> None:
        self._log(Entry(TRUNCATE, inode.number, size))
        self._set_size(inode, size)
        inode.mtime = self._now()

    def _set_size(self, inode: Inode, size: int) -> None:
        """A view that somebody still holds on the old bytes keeps them and sees no more changes."""
        content = self._mutable(inode)
        try:
            if size < len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))
        except BufferError:
            inode.data = bytearray(content[:size]) + bytes(max(size - len(content), 0))
        if inode.mapped:
            inode.shadow = bytes(inode.data)


class _Held(AbstractContextManager[None]):
    """A lock that is taken already."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def __exit__(self, *_: object) -> None:
        self._stack.close()
