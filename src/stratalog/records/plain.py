"""The kernels in plain Python: what they mean, and what answers until they are compiled.

Same functions, arguments and answers as `kernels.compiled`, errors included.  Slow by design (about a hundredth) and
easy to read; imports neither NumPy nor Numba.  Any thread may call anything here: only `OffsetSlots` has state, and its
owner's thread is the one that calls it.
"""

from __future__ import annotations

import struct
from typing import Final

import crc32c as _crc32c

from stratalog.base.limits import HEADERS_PER_RECORD_MAX
from stratalog.base.types import Buffer
from stratalog.records.kernels import (
    HEADER_COUNT,
    HEADER_KEY,
    OK,
    RECORD_BODY,
    RECORD_PAST_END,
    TRAILING_BYTES,
    VARINT_TOO_LONG,
)

COMPILED: Final = False

_U32: Final = 0xFFFFFFFF
_U64: Final = 0xFFFFFFFFFFFFFFFF
_V2: Final = struct.Struct(">qiibIhiqqqhii")
_OLD: Final = struct.Struct(">qiIbb")
_NO_TIMESTAMP: Final = -1


class _Broken(Exception):
    """Carries a code out of the nested reads of one record; never leaves this module."""

    def __init__(self, code: int) -> None:
        self.code = code


def _signed64(value: int) -> int:
    value &= _U64
    return value - (1 << 64) if value >> 63 else value


def _varint(data: Buffer, p: int, end: int, short: int) -> tuple[int, int]:
    """A zigzag varint of 32 bits.  `short` is the code when the data ends inside of it.

    Five bytes and 32 bits at most, as in `varint.read_varint`.
    """
    raw = 0
    for shift in (0, 7, 14, 21, 28):
        if p >= end:
            raise _Broken(short)
        byte = data[p]
        p += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > _U32:
                break
            return (raw >> 1) ^ -(raw & 1), p
    raise _Broken(VARINT_TOO_LONG)


def _varlong(data: Buffer, p: int, end: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 70, 7):
        if p >= end:
            raise _Broken(RECORD_BODY)
        byte = data[p]
        p += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > _U64:
                break
            return (raw >> 1) ^ -(raw & 1), p
    raise _Broken(VARINT_TOO_LONG)


def _sized(data: Buffer, p: int, end: int) -> tuple[int, int, int]:
    """A nullable byte string: (start, length or -1, position after it)."""
    length, p = _varint(data, p, end, RECORD_BODY)
    if length < 0:
        return p, -1, p
    if length > end - p:
        raise _Broken(RECORD_BODY)
    return p, length, p + length


Parsed = tuple[int, int, int, tuple[int, int], tuple[int, int], int, int]


def _record(data: Buffer, start: int, end: int) -> tuple[Parsed, int]:
    """One record: ((timestamp delta, offset delta, tail, key, value, header count, headers start), position after it).

    `tail` is where the key's length begins: from there on nothing depends on the batch.
    """
    length, p = _varint(data, start, end, RECORD_PAST_END)
    if length < 0 or length > end - p:
        raise _Broken(RECORD_PAST_END)
    stop = p + length
    if length == 0:
        raise _Broken(RECORD_BODY)
    timestamp_delta, p = _varlong(data, p + 1, stop)
    offset_delta, p = _varint(data, p, stop, RECORD_BODY)
    tail = p
    key_start, key_length, p = _sized(data, p, stop)
    value_start, value_length, p = _sized(data, p, stop)
    headers, p = _varint(data, p, stop, RECORD_BODY)
    if headers < 0 or headers > stop - p or headers > HEADERS_PER_RECORD_MAX:
        raise _Broken(HEADER_COUNT)
    first_header = p
    for _ in range(headers):
        _, name, p = _sized(data, p, stop)
        if name < 0:
            raise _Broken(HEADER_KEY)
        _, _, p = _sized(data, p, stop)
    if p != stop:
        raise _Broken(RECORD_BODY)
    parsed = (timestamp_delta, offset_delta, tail, (key_start, key_length), (value_start, value_length), headers,
              first_header)
    return parsed, stop


def walk(data: Buffer, count: int, base_timestamp: int) -> tuple[int, ...]:
    """Check the structure of the uncompressed records of one batch: see `walk.validate_records` for the answer's
    meaning.  The position of an error is the start of its record."""
    data = memoryview(data)
    end = len(data)
    low = high = first_timestamp = high_delta = last_delta = _NO_TIMESTAMP
    first_keyless = -1
    keyless = tombstones = headers = p = 0
    dense = 1
    for index in range(count):
        start = p
        try:
            parsed, p = _record(data, start, end)
        except _Broken as broken:
            return broken.code, start, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        timestamp_delta, offset_delta, _, key, value, header_count, _ = parsed
        timestamp = _signed64(base_timestamp + timestamp_delta)
        if index == 0:
            low = high = first_timestamp = timestamp
            high_delta = offset_delta
        elif timestamp < low:
            low = timestamp
        elif timestamp > high:
            high = timestamp
            high_delta = offset_delta
        if offset_delta != index:
            dense = 0
        last_delta = offset_delta
        if key[1] < 0:
            keyless += 1
            if first_keyless < 0:
                first_keyless = index
        if value[1] < 0:
            tombstones += 1
        headers += header_count
    if p != end:
        return TRAILING_BYTES, p, count, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return (OK, p, count, low, high, high_delta, first_timestamp, last_delta, dense, keyless, first_keyless,
            tombstones, headers)


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C (Castagnoli), continued from `value`."""
    return _crc32c.crc32c(data, value)
