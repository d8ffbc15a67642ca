"""Walking the batches of a segment file, header by header, with or without their CRCs.

`scan` yields one tuple per batch and stops before the first that cannot be one: cut off, too short, unknown magic,
wrong CRC (when asked), or an offset that does not increase, which is how a block of old data that the file system
left at the tail looks like (D18).  Any thread; keeps nothing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import crc32c as _crc32c

from stratalog.base.ports import File

crc32c = _crc32c.crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
LEGACY = struct.Struct(">qiIbbq")
_START = struct.Struct(">qiibIhi")
HEADER_SIZE = 61
_LEGACY_LENGTH = (14, 22)
_CHUNK = 1 << 20
_CHUNK_HEADERS = 16 << 10
"""Read at once when only headers are wanted: small batches come many at a time, large ones are stepped over."""
_LARGE = 4 << 10
TRANSACTIONAL = 0x10
CONTROL = 0x20


class Scanned(NamedTuple):
    """A batch as the walk saw it.  The scan yields plain tuples of this shape."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    epoch: int
    magic: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_offset_delta: int


_Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int]


def scan(file: File, start: int, end: int, *, verify: bool, after_offset: int = -1, chunk: int = 0) -> Iterator[_Row]:
    """The batches of [start, end), as tuples of the fields of `Scanned`.  `after_offset`: the last offset before;
    `chunk`: read at once, for who expects to stop soon."""
    if end - start < 17:
        return
    buffer = bytearray(min(chunk or (_CHUNK if verify else _CHUNK_HEADERS), max(end - start, HEADER_SIZE)))
    view = memoryview(buffer)
    origin = start  # where in the file buffer[0] is
    filled = file.pread_into(view[: min(len(buffer), end - origin)], origin)
    at = 0
    last_seen = after_offset
    want = len(buffer)
    unpack = HEADER.unpack_from
    while True:
        position = origin + at
        left = end - position
        if left < 17:
            return
        if filled - at < HEADER_SIZE and origin + filled < end:
            origin, at = position, 0
            filled = file.pread_into(view[: min(want, left)], origin)
        if filled - at < 17:
            return
        magic = buffer[at + 16]
        if magic == 2:
            if filled - at < HEADER_SIZE:
                return
            base, length, epoch, _, crc, attributes, delta, _, max_timestamp, pid, pepoch, sequence, _ = unpack(
                buffer, at
            )
            size = length + 12
            if length < 49 or size > left or delta < 0:
                return
            last = base + delta
            covered = 21
        elif magic < 2:
            if filled - at < 14 + 12:
                return
            base, length, crc, _, attributes = struct.unpack_from(">qiIbb", buffer, at)
            max_timestamp = -1
            if magic == 1 and filled - at >= 26:
                max_timestamp = struct.unpack_from(">q", buffer, at + 18)[0]
            size = length + 12
            if length < _LEGACY_LENGTH[magic] or size > left:
                return
            last = base
            attributes &= 0x0F
            epoch = pid = pepoch = sequence = -1
            delta = 0
            covered = 16
        else:
            return
        if base <= last_seen:
            return
        if verify:
            if at + size > filled:
                if size > len(buffer):
                    view.release()
                    buffer = bytearray(size)
                    view = memoryview(buffer)
                origin, at = position, 0
                filled = file.pread_into(view[: min(len(buffer), left)], origin)
                if filled < size:
                    return
            if magic == 2:
                if crc32c(view[at + covered : at + size]) != crc:
                    return
            elif zlib.crc32(view[at + covered : at + size]) != crc:
                return
        yield position, size, base, last, epoch, magic, attributes, max_timestamp, pid, pepoch, sequence, delta
        last_seen = last
        at += size
        if at >= filled:
            origin, at, filled = origin + at, 0, 0
            want = HEADER_SIZE if size > _LARGE and not verify else len(buffer)
            if origin < end:
                filled = file.pread_into(view[: min(want, end - origin)], origin)


def why_invalid(file: File, position: int, end: int, after_offset: int) -> str:
    """A sentence on what is wrong with the batch at `position`, where a scan has stopped."""
    head = file.pread(HEADER_SIZE, position)
    left = end - position
    if not any(head):
        return f"{left} bytes that begin with zeros"
    if len(head) < 17:
        return f"{left} bytes, too few for a batch header"
    offset, length = struct.unpack_from(">qi", head)
    magic = head[16]
    if magic > 2:
        return f"unknown magic {magic}"
    if length < (49 if magic == 2 else _LEGACY_LENGTH[magic]):
        return f"a batch claims {length} bytes"
    if length + 12 > left:
        return f"a batch of {length + 12} bytes of which {left} are there"
    if offset <= after_offset:
        return f"offset {offset} after offset {after_offset}"
    return f"wrong CRC of the batch with base offset {offset}"


def resync(file: File, position: int, end: int, after_offset: int, limit: int = 64 << 20) -> int:
    """The position of the next sound batch behind a damaged one at `position`, -1 when there is none.

    First where the damaged batch says that it ends, then byte by byte up to `limit`.
    """
    head = file.pread(12, position)
    if len(head) == 12:
        length = struct.unpack_from(">i", head, 8)[0]
        following = position + 12 + length
        if length >= 14 and following < end and _is_sound(file, following, end, after_offset):
            return int(following)
    start = position + 1
    stop = min(end, start + limit)
    while start < stop:
        block = file.pread(min(_CHUNK, end - start), start)
        if len(block) < 17:
            return -1
        at = block.find(b"\x02", 16)
        while at >= 0:
            candidate = start + at - 16
            if candidate >= stop:
                return -1
            if at - 16 + 27 <= len(block):
                offset, length, _, _, _, _, delta = _START.unpack_from(block, at - 16)
                plausible = offset > after_offset and 49 <= length <= end - candidate - 12 and delta >= 0
            else:
                plausible = True
            if plausible and _is_sound(file, candidate, end, after_offset):
                return candidate
            at = block.find(b"\x02", at + 1)
        start += max(len(block) - 16, 1)
    return -1


def _is_sound(file: File, position: int, end: int, after_offset: int) -> bool:
    return next(scan(file, position, end, verify=True, after_offset=after_offset), None) is not None
