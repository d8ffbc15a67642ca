"""Kafka's varints: zigzag, seven bits a byte, at most 5 bytes for an int32 and 10 for an int64.

The readers refuse what is cut off, longer than that, or outside the range.  Record decoding inlines the one-byte case.
"""

from __future__ import annotations

from stratalog.base.types import Buffer
from stratalog.records.errors import CorruptBatch


def read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The int32 at `position`, and where the next field begins; never reads at or past `end`."""
    value = shift = 0
    start = position
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise CorruptBatch("a varint is larger than 32 bits", position=start)
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift == 35:
            raise CorruptBatch("a varint is longer than 5 bytes", position=start)
    raise CorruptBatch("a varint is cut off", position=start)


def read_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The int64 at `position`, and where the next field begins."""
    value = shift = 0
    start = position
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFFFFFFFFFF:
                raise CorruptBatch("a varlong is larger than 64 bits", position=start)
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift == 70:
            raise CorruptBatch("a varlong is longer than 10 bytes", position=start)
    raise CorruptBatch("a varlong is cut off", position=start)


def varint_bytes(value: int) -> bytes:
    """`value` as varint or varlong: the two differ only in how long they may become."""
    unsigned = value << 1 if value >= 0 else (-value << 1) - 1
    if unsigned < 0x80:
        return _SHORT[unsigned]
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def varint_size(value: int) -> int:
    """The bytes that `varint_bytes(value)` has."""
    unsigned = value << 1 if value >= 0 else (-value << 1) - 1
    return (unsigned.bit_length() + 6) // 7 or 1


_SHORT = tuple(bytes((value,)) for value in range(0x80))
