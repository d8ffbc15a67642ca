"""Frames out of a stream: four bytes of size, then so many bytes.

Sizes are held against the limit before anything is allocated.  A first size that cannot be is looked at once more: a
TLS client or a web browser on a plain port is the usual cause, and the error says so (scenario N03).

`next_frame` works on a receive buffer that somebody else owns (the server has one for each connection); `FrameReader`
keeps what is incomplete itself (the client, tests).  Neither does I/O.  A reader belongs to one connection and is used
by one thread at a time.
"""

from __future__ import annotations

import struct
from typing import Final

from stratalog.base.failures import Malformed
from stratalog.base.limits import FRAME_BYTES_MAX
from stratalog.base.types import Buffer

_unpack_size = struct.Struct(">i").unpack_from

_SMALL_BYTES: Final = 1_024
"""Pieces up to this size are put together as they come: an object for each of them would take many times its bytes."""
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"HTTP", b"PRI ")


def next_frame(buffer: Buffer, start: int, end: int, limit: int = FRAME_BYTES_MAX) -> tuple[int, int] | None:
    """Where the frame's content lies that begins at `start`, (begin, end) without its size; None where bytes are
    missing before `end`.  `Malformed` for a size below 0 or above `limit`."""
    begin = start + 4
    if begin > end:
        return None
    (size,) = _unpack_size(buffer, start)
    if not 0 <= size <= limit:
        raise _impossible(bytes(buffer[start : min(end, start + 8)]), size, limit)
    stop = begin + size
    return (begin, stop) if stop <= end else None


def frame_end(buffer: Buffer, start: int, end: int, limit: int = FRAME_BYTES_MAX) -> int:
    """Where the frame at `start` ends, as far as one can know yet: behind its four bytes of size while those are
    incomplete.  What a receive buffer has to hold next."""
    if start + 4 > end:
        return start + 4
    (size,) = _unpack_size(buffer, start)
    if not 0 <= size <= limit:
        raise _impossible(bytes(buffer[start : min(end, start + 8)]), size, limit)
    return start + 4 + int(size)


def _impossible(first: bytes, size: int, limit: int) -> Malformed:
    """The size as an error, with a guess at who is speaking."""
    if first[0] == 0x16 and first[1] == 0x03 and first[2] <= 0x04:
        return Malformed(
            "a TLS handshake where Kafka's protocol was expected: this listener is not encrypted", position=0
        )
    if first[0] == 0x15 and first[1] == 0x03 and first[2] <= 0x04:
        return Malformed(
            "a TLS alert where Kafka's protocol was expected: the peer expects plain text or refuses", position=0
        )
    if first[:4] in _HTTP:
        return Malformed("HTTP where Kafka's protocol was expected: this is not a web server's port", position=0)
    if size < 0:
        return Malformed(f"a frame of {size} bytes", position=0)
    return Malformed(f"a frame of {size} bytes, at most {limit} are taken", position=0)


class FrameReader:
    """Cuts frames out of whatever pieces the bytes come in.

    A frame that lies within one piece is a view on it, without a copy; one that spans pieces is joined once, when its
    last byte is there.  Until then only what has come is held, whatever size was announced.
    """

    __slots__ = ("_held", "_joint", "_pieces", "limit")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self.limit = limit
        self._pieces: list[Buffer] = []
        self._joint: bytearray | None = None
        """The last of the pieces, where it is made of small ones."""
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes of an incomplete frame."""
        return self._held

    def feed(self, data: Buffer) -> list[memoryview]:
        """The frames that are complete now, in order, without their sizes.  `data` must not change until they are
        dropped.  After `Malformed` the stream has no meaning any more: close the connection."""
        if not data:
            return []
        if self._pieces:
            whole = self._complete(data)
            if whole is None:
                return []
            data = whole
        view = memoryview(data)
        frames = []
        start, end = 0, len(view)
        while True:
            place = next_frame(view, start, end, self.limit)
            if place is None:
                break
            frames.append(view[place[0] : place[1]])
            start = place[1]
        if start < end:
            self._pieces.append(view[start:])
            self._held = end - start
        return frames

    def _complete(self, data: Buffer) -> bytes | None:
        """Join what is held and `data` if that makes a whole frame, or the four bytes that say how long one is."""
        if len(data) > _SMALL_BYTES:
            self._pieces.append(data)
            self._joint = None
        elif self._joint is None:
            self._joint = bytearray(data)
            self._pieces.append(self._joint)
        else:
            self._joint += data
        self._held += len(data)
        if self._held < 4:
            return None
        if len(self._pieces[0]) < 4:
            self._pieces = [b"".join(self._pieces)]
            self._joint = None
        if frame_end(self._pieces[0], 0, len(self._pieces[0]), self.limit) > self._held:
            return None
        whole = b"".join(self._pieces)
        self._pieces.clear()
        self._joint = None
        self._held = 0
        return whole
