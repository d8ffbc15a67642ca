"""One client's connection as the loop keeps it.

Owned by the loop's thread.  Buffers: a connection has a receive buffer only while bytes of it are in use; the loop
takes it from `BufferPool` when the socket is readable and gives it back when every frame in it was dealt with and
written.  The beginning of a frame that is no more than a few bytes waits in `rest`, without a buffer.
    buffer   |....done....|==== received, not parsed ====|......room......|
                           start                          end
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Final

from stratalog.base.types import Buffer, FileRegion, Millis
from stratalog.node.request import Peer, Request

READ: Final = 1
WRITE: Final = 4


class Connection:
    """A socket, what has come and is not dealt with, what is answered and not sent."""

    __slots__ = (
        "buffer",
        "closed",
        "end",
        "fd",
        "frame_since",
        "last_active",
        "mask",
        "needed",
        "out",
        "peer",
        "queue",
        "rest",
        "socket",
        "stalled_since",
        "start",
        "view",
        "want",
        "warm_bytes",
        "warming",
    )

    def __init__(self, sock: socket.socket, peer: Peer, now: Millis) -> None:
        self.socket = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.buffer: bytearray | None = None
        self.view: memoryview | None = None
        self.start = 0
        self.end = 0
        self.rest = b""
        """What has come of a frame, when it is so little that the buffer was given back."""
        self.needed = 0
        """The size of the frame that has begun and is not complete, its prefix included; 0 for none."""
        self.want = 0
        """The size of the buffer to begin with: what the last frames needed."""
        self.frame_since: Millis = now
        self.last_active: Millis = now
        self.queue: deque[Request] = deque()
        """Requests in the order of their arrival, until their answers are on the way."""
        self.out: deque[Buffer | FileRegion] = deque()
        """What the socket did not take yet."""
        self.warming = False
        """A pool thread reads what is to be sent next, because it is not in memory."""
        self.warm_bytes = 0
        """Bytes at the head of `out` that were in memory a moment ago: to be sent without another look."""
        self.stalled_since: Millis = now
        self.mask = READ
        self.closed = False


class BufferPool:
    """Receive buffers that wait for their next connection, by size.  Bounded in bytes, and it counts all that are
    out: `take` gives None when the limit would be passed."""

    __slots__ = ("_free", "_free_bytes", "_keep_bytes", "_limit", "in_use", "unit")

    def __init__(self, *, unit: int, limit: int, keep_bytes: int) -> None:
        self.unit = unit
        self.in_use = 0
        self._limit = limit
        self._keep_bytes = keep_bytes
        self._free: dict[int, list[bytearray]] = {}
        self._free_bytes = 0

    def take(self, size: int) -> bytearray | None:
        """A buffer of at least `size` bytes; its length is the unit times a power of two."""
        length = self.unit
        while length < size:
            length <<= 1
        if self.in_use + length > self._limit and length > self.unit:
            return None
        self.in_use += length
        free = self._free.get(length)
        if free:
            self._free_bytes -= length
            return free.pop()
        return bytearray(length)

    def give(self, buffer: bytearray) -> None:
        length = len(buffer)
        self.in_use -= length
        if self._free_bytes + length <= self._keep_bytes:
            self._free_bytes += length
            self._free.setdefault(length, []).append(buffer)
