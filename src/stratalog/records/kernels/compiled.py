"""The kernels: Numba, compiled once and cached, the interpreter's lock released while they run.

Same functions and answers as `plain`, which says what they mean.  Imported by `kernels.load_kernels()` only, because it
imports Numba and NumPy and compiles.  Stateless but for `OffsetSlots`; every kernel may run on any thread.

One file, because Numba's cache looks at the time of one source file only: a helper in another module could go stale.
For the same reason whoever changes a constant in `kernels/__init__` touches this file too.

How the code is made:
- Kernels take addresses and lengths as 64-bit integers, so that each has one signature (a read-only and a writable
  array would be two) and a call costs no array object.  The wrappers at the end of the file hold the memory meanwhile.
- Only signed 64-bit integers are used; where a bit pattern is meant, `lshr` shifts without the sign.
- Every read is checked against the end of its record, batch or buffer, and every write against the room there is:
  bytes may be anything, and may even change between two passes.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, no-warn-return-any

from __future__ import annotations

import mmap
import platform
from array import array
from typing import Any, Final

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import config as _config
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

from stratalog.base.limits import HEADERS_PER_RECORD_MAX, RECORD_DECOMPRESSED_BYTES_MAX
from stratalog.base.types import MAX_INT64, Buffer
from stratalog.records.kernels import (
    ADDRESS,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_CRC,
    BATCH_HEADER,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    BATCH_SIZE,
    BATCH_TRUNCATED,
    CODEC_MASK,
    CONTROL,
    COUNT,
    CRC,
    DELETE_HORIZON,
    DISCARD,
    EMPTY_TRANSACTION,
    HEADER_COUNT,
    HEADER_KEY,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAP_FULL,
    MAX_TIMESTAMP,
    NEEDS_MEASURE,
    NEEDS_PYTHON,
    NO_TIMESTAMP_TYPE,
    OK,
    OUT_ROW,
    OUTPUT_FULL,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_BODY,
    RECORD_PAST_END,
    RECORD_TOO_LARGE,
    RECORDS_SIZE,
    RETAIN_EMPTY,
    ROW,
    SIZE,
    TABLE_FULL,
    TIMESTAMP,
    TRAILING_BYTES,
    TRANSACTIONAL,
    VARINT_TOO_LONG,
    BatchTable,
    FilterRules,
    FilterRun,
)

COMPILED: Final = True

intrinsic: Any = _intrinsic
numba_config: Any = _config
_helper: Any = njit(nogil=True, boundscheck=False, error_model="numpy")
_inlined: Any = njit(nogil=True, boundscheck=False, error_model="numpy", forceinline=True)
_i8, _i32, _i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_HARDWARE_CRC: Final = (
    platform.machine() in ("x86_64", "AMD64")
    and bool(binding.get_host_cpu_features().get("sse4.2", False))
    and not numba_config.CPU_NAME  # Numba was told to compile for another processor than this one
    and numba_config.CPU_FEATURES is None
)


# --- what the machine can do ----------------------------------------------------------------------------------------
def _loader(bits: int, swap: bool) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            if swap:
                value = builder.bswap(value)
            if bits == 8:
                return builder.zext(value, _i64)
            return value if bits == 64 else builder.sext(value, _i64)

        return types.int64(types.int64), generate

    return load


def _storer(bits: int, swap: bool) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            cut = args[1] if bits == 64 else builder.trunc(args[1], kind)
            if swap:
                cut = builder.bswap(cut)
            builder.store(cut, builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64), generate

    return store


_u8 = _loader(8, False)
"""A byte, 0 to 255.  The others: signed, `be` as in Kafka's formats, `le` as in memory here."""
_be16 = _loader(16, True)
_be32 = _loader(32, True)
_be64 = _loader(64, True)
_le16 = _loader(16, False)
_le32 = _loader(32, False)
_le64 = _loader(64, False)
_put8 = _storer(8, False)
_put16be = _storer(16, True)
_put32be = _storer(32, True)
_put64be = _storer(64, True)
_put32 = _storer(32, False)
_put64 = _storer(64, False)


@intrinsic
def _lshr(typing_context: Any, value: Any, count: Any) -> Any:
    """Shift right without the sign."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.lshr(args[0], args[1])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _rotl(typing_context: Any, value: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rotate = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_i64, [_i64] * 3), "llvm.fshl.i64")
        return builder.call(rotate, [args[0], args[0], args[1]])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _i8.as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], pointer), builder.inttoptr(args[1], pointer), args[2], 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def _copy16(typing_context: Any, target: Any, source: Any) -> Any:
    """Sixteen bytes at once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.VectorType(_i8, 16).as_pointer()
        value = builder.load(builder.inttoptr(args[1], pointer), align=1)
        builder.store(value, builder.inttoptr(args[0], pointer), align=1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _i8.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _i32, _i32, _i32])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(fetch, [builder.inttoptr(args[0], pointer), _i32(1), _i32(3), _i32(1)])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def _crc_word(typing_context: Any, crc: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_i64, [_i64, _i64])
        step = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse42.crc32.64.64")
        return builder.call(step, args)

    return types.int64(types.int64, types.int64), generate


def _kernel(signature: str) -> Any:
    return njit(signature, nogil=True, cache=True, boundscheck=False, error_model="numpy")


# --- checksums ------------------------------------------------------------------------------------------------------
_CASTAGNOLI: Final = 0x82F63B78
_ZLIB: Final = 0xEDB88320
_LONG: Final = 5120
"""Bytes of each of three lanes: the instruction takes three cycles and a new one starts in each.  A batch of 16 KiB is
one round of these and one of the next."""
_MIDDLE: Final = 768
_SHORT: Final = 128


def _slices(polynomial: int) -> Any:
    """Eight tables, so that eight bytes are folded in by eight look-ups instead of 64 steps."""
    tables = np.zeros((8, 256), dtype=np.uint64)
    values = np.arange(256, dtype=np.uint64)
    one = np.uint64(1)
    for _ in range(8):
        values = (values >> one) ^ np.where(values & one, np.uint64(polynomial), np.uint64(0))
    tables[0] = values
    for k in range(1, 8):
        previous = tables[k - 1]
        tables[k] = (previous >> np.uint64(8)) ^ tables[0][(previous & np.uint64(255)).astype(np.int64)]
    return tables.astype(np.int64)


def _shift_tables(size: int) -> Any:
    """What `size` zero bytes do to a CRC, as four tables: one look-up for each of its bytes."""
    step = _CASTAGNOLI_SLICES[0]

    def past(value: int) -> int:
        for _ in range(size):
            value = int(step[value & 255]) ^ (value >> 8)
        return value

    images = [past(1 << bit) for bit in range(32)]
    tables = np.zeros((4, 256), dtype=np.int64)
    for byte in range(4):
        for value in range(256):
            image = 0
            for bit in range(8):
                if value >> bit & 1:
                    image ^= images[byte * 8 + bit]
            tables[byte, value] = image
    return tables


_CASTAGNOLI_SLICES = _slices(_CASTAGNOLI)
_ZLIB_SLICES = _slices(_ZLIB)
_LONG_SHIFT = _shift_tables(_LONG)
_MIDDLE_SHIFT = _shift_tables(_MIDDLE)
_SHORT_SHIFT = _shift_tables(_SHORT)


@_helper
def _sliced(tables, address, size, crc):
    while size >= 8:
        word = _le64(address) ^ crc
        crc = (
            tables[7, word & 255]
            ^ tables[6, (word >> 8) & 255]
            ^ tables[5, (word >> 16) & 255]
            ^ tables[4, (word >> 24) & 255]
            ^ tables[3, (word >> 32) & 255]
            ^ tables[2, (word >> 40) & 255]
            ^ tables[1, (word >> 48) & 255]
            ^ tables[0, (word >> 56) & 255]
        )
        address += 8
        size -= 8
    while size > 0:
        crc = tables[0, (crc ^ _u8(address)) & 255] ^ (crc >> 8)
        address += 1
        size -= 1
    return crc


@_helper
def _shifted(tables, crc):
    return (
        tables[0, crc & 255] ^ tables[1, (crc >> 8) & 255] ^ tables[2, (crc >> 16) & 255] ^ tables[3, (crc >> 24) & 255]
    )


@_inlined
def _three_lanes(tables, lane, address, crc):
    """The CRC over three times `lane` bytes: three independent chains, joined by what zeros would have done."""
    second = 0
    third = 0
    stop = address + lane
    while address < stop:
        crc = _crc_word(crc, _le64(address))
        second = _crc_word(second, _le64(address + lane))
        third = _crc_word(third, _le64(address + 2 * lane))
        address += 8
    return _shifted(tables, _shifted(tables, crc) ^ second) ^ third


@_helper
def _lanes(address, size, crc):
    while size >= 3 * _LONG:
        crc = _three_lanes(_LONG_SHIFT, _LONG, address, crc)
        address += 3 * _LONG
        size -= 3 * _LONG
    while size >= 3 * _MIDDLE:
        crc = _three_lanes(_MIDDLE_SHIFT, _MIDDLE, address, crc)
        address += 3 * _MIDDLE
        size -= 3 * _MIDDLE
    while size >= 3 * _SHORT:
        crc = _three_lanes(_SHORT_SHIFT, _SHORT, address, crc)
        address += 3 * _SHORT
        size -= 3 * _SHORT
    while size >= 8:
        crc = _crc_word(crc, _le64(address))
        address += 8
        size -= 8
    return _sliced(_CASTAGNOLI_SLICES, address, size, crc)


if _HARDWARE_CRC:

    @_helper
    def _crc32c(address, size, value):
        return _lanes(address, size, value ^ 0xFFFFFFFF) ^ 0xFFFFFFFF

else:

    @_helper
    def _crc32c(address, size, value):
        return _sliced(_CASTAGNOLI_SLICES, address, size, value ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


@_kernel("int64(int64, int64, int64)")
def _crc32c_kernel(address, size, value):
    return _crc32c(address, size, value)


@_kernel("int64(int64, int64, int64)")
def _crc32c_portable_kernel(address, size, value):
    return _sliced(_CASTAGNOLI_SLICES, address, size, value ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


@_inlined
def _copy_short(target, source, size):
    """`_copy` for keys and values of records: no call for what is short."""
    if size > 128:
        _copy(target, source, size)
    elif size >= 16:
        last = size - 16
        at = 0
        while at < last:
            _copy16(target + at, source + at)
            at += 16
        _copy16(target + last, source + last)
    elif size >= 8:
        _put64(target, _le64(source))
        _put64(target + size - 8, _le64(source + size - 8))
    elif size >= 4:
        _put32(target, _le32(source))
        _put32(target + size - 4, _le32(source + size - 4))
    else:
        for at in range(size):
            _put8(target + at, _u8(source + at))


# --- one record -----------------------------------------------------------------------------------------------------
@_inlined
def _varint(p, end, short):
    """(value, position after it), or a negative error code instead of the position."""
    if p >= end:
        return 0, -short
    byte = _u8(p)
    p += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), p
    raw = byte & 0x7F
    if p < end and _u8(p) < 0x80:  # two bytes: most lengths
        raw |= _u8(p) << 7
        return (raw >> 1) ^ -(raw & 1), p + 1
    shift = 7
    while shift < 35:
        if p >= end:
            return 0, -short
        byte = _u8(p)
        p += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFF:
                return 0, -VARINT_TOO_LONG
            return (raw >> 1) ^ -(raw & 1), p
        shift += 7
    return 0, -VARINT_TOO_LONG


@_inlined
def _varlong(p, end):
    if p >= end:
        return 0, -RECORD_BODY
    byte = _u8(p)
    p += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), p
    raw = byte & 0x7F
    if p < end and _u8(p) < 0x80:
        raw |= _u8(p) << 7
        return (raw >> 1) ^ -(raw & 1), p + 1
    shift = 7
    while shift < 70:
        if p >= end:
            return 0, -RECORD_BODY
        byte = _u8(p)
        p += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, -VARINT_TOO_LONG
            return _lshr(raw, 1) ^ -(raw & 1), p
        shift += 7
    return 0, -VARINT_TOO_LONG


@_inlined
def _sized(p, end):
    """(length or -1, position of the bytes); negative error code instead of the position."""
    length, p = _varint(p, end, RECORD_BODY)
    if p < 0:
        return 0, p
    if length < -1 or length > end - p:
        return 0, -RECORD_BODY
    return length, p


@_inlined
def _record(start, end):
    """(position after it or -error, timestamp delta, offset delta, middle, key, key length, value, value length,
    headers, first header).  `middle` is where the offset delta begins: from there on only copies are made."""
    length, p = _varint(start, end, RECORD_PAST_END)
    if p < 0:
        return p, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if length < 0 or length > end - p:
        return -RECORD_PAST_END, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if length == 0:
        return -RECORD_BODY, 0, 0, 0, 0, 0, 0, 0, 0, 0
    stop = p + length
    timestamp_delta, middle = _varlong(p + 1, stop)
    if middle < 0:
        return middle, 0, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, p = _varint(middle, stop, RECORD_BODY)
    if p < 0:
        return p, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if offset_delta < 0:
        return -RECORD_BODY, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_size, key = _sized(p, stop)
    if key < 0:
        return key, 0, 0, 0, 0, 0, 0, 0, 0, 0
    p = key + max(key_size, 0)
    value_size, value = _sized(p, stop)
    if value < 0:
        return value, 0, 0, 0, 0, 0, 0, 0, 0, 0
    p = value + max(value_size, 0)
    headers, first_header = _varint(p, stop, RECORD_BODY)
    if first_header < 0:
        return first_header, 0, 0, 0, 0, 0, 0, 0, 0, 0
    p = first_header
    if headers != 0:
        if headers < 0 or headers > stop - p or headers > HEADERS_PER_RECORD_MAX:
            return -HEADER_COUNT, 0, 0, 0, 0, 0, 0, 0, 0, 0
        for _ in range(headers):
            size, p = _sized(p, stop)
            if p < 0:
                return p, 0, 0, 0, 0, 0, 0, 0, 0, 0
            if size < 0:
                return -HEADER_KEY, 0, 0, 0, 0, 0, 0, 0, 0, 0
            size, p = _sized(p + size, stop)
            if p < 0:
                return p, 0, 0, 0, 0, 0, 0, 0, 0, 0
            p += max(size, 0)
    if p != stop:
        return -RECORD_BODY, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return stop, timestamp_delta, offset_delta, middle, key, key_size, value, value_size, headers, first_header


@_kernel("int64(int64, int64, int64, int64, int64)")
def _walk_kernel(address, size, count, base_timestamp, out):
    end = address + size
    low = high = first_timestamp = high_delta = last_delta = first_keyless = -1
    keyless = tombstones = headers = 0
    dense = 1
    p = address
    for index in range(count):
        start = p
        p, timestamp_delta, offset_delta, _, _, key_size, _, value_size, header_count, _ = _record(start, end)
        if p < 0:
            _put64(out, start - address)
            _put64(out + 8, index)
            return -p
        if p - start > RECORD_DECOMPRESSED_BYTES_MAX + 5:  # five bytes for a length of that size
            _put64(out, start - address)
            _put64(out + 8, index)
            return RECORD_TOO_LARGE
        timestamp = base_timestamp + timestamp_delta
        if (base_timestamp ^ timestamp) & (timestamp_delta ^ timestamp) < 0:  # the sum has neither one's sign
            _put64(out, start - address)
            _put64(out + 8, index)
            return TIMESTAMP
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
        if key_size < 0:
            keyless += 1
            if first_keyless < 0:
                first_keyless = index
        if value_size < 0:
            tombstones += 1
        headers += header_count
    _put64(out, p - address)
    _put64(out + 8, count)
    if p != end:
        return TRAILING_BYTES
    _put64(out + 16, low)
    _put64(out + 24, high)
    _put64(out + 32, high_delta)
    _put64(out + 40, first_timestamp)
    _put64(out + 48, last_delta)
    _put64(out + 56, dense)
    _put64(out + 64, keyless)
    _put64(out + 72, first_keyless)
    _put64(out + 80, tombstones)
    _put64(out + 88, headers)
    return OK


# --- many batches ---------------------------------------------------------------------------------------------------
@_kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def _scan_kernel(address, size, start, table, capacity, verify, out):
    p = start
    row = 0
    error = OK
    while p < size:
        left = size - p
        at = address + p
        if left < LOG_OVERHEAD:
            error = BATCH_TRUNCATED
            break
        length = _be32(at + 8)
        if length < 14:
            error = BATCH_SIZE
            break
        whole = length + LOG_OVERHEAD
        if whole > left:
            error = BATCH_TRUNCATED
            break
        if row == capacity:
            error = TABLE_FULL
            break
        magic = _u8(at + 16)
        if magic > 2:
            error = BATCH_MAGIC
            break
        put = table + row * (ROW * 8)
        base = _be64(at)
        if magic == 2:
            if whole < BATCH_OVERHEAD:
                error = BATCH_SIZE
                break
            crc = _be32(at + 17) & 0xFFFFFFFF
            if verify and _crc32c(at + 21, whole - 21, 0) != crc:
                error = BATCH_CRC
                break
            last_delta = _be32(at + 23)
            count = _be32(at + 57)
            last = base + last_delta
            if base < 0 or last_delta < 0 or last < 0 or count < 0 or count > last_delta + 1:
                error = BATCH_HEADER
                break
            _put64(put + 8 * LAST_OFFSET, last)
            _put64(put + 8 * LEADER_EPOCH, _be32(at + 12))
            _put64(put + 8 * ATTRIBUTES, _be16(at + 21))
            _put64(put + 8 * CRC, crc)
            _put64(put + 8 * BASE_TIMESTAMP, _be64(at + 27))
            _put64(put + 8 * MAX_TIMESTAMP, _be64(at + 35))
            _put64(put + 8 * PRODUCER_ID, _be64(at + 43))
            _put64(put + 8 * PRODUCER_EPOCH, _be16(at + 51))
            _put64(put + 8 * BASE_SEQUENCE, _be32(at + 53))
            _put64(put + 8 * COUNT, count)
        else:
            if length < 14 + 8 * magic:
                error = BATCH_SIZE
                break
            crc = _be32(at + 12) & 0xFFFFFFFF
            if verify and _sliced(_ZLIB_SLICES, at + 16, whole - 16, 0xFFFFFFFF) ^ 0xFFFFFFFF != crc:
                error = BATCH_CRC
                break
            if base < 0:
                error = BATCH_HEADER
                break
            attributes = _u8(at + 17)
            timestamp = -1
            if magic == 1:
                timestamp = _be64(at + 18)
            count = 1
            if attributes & CODEC_MASK:
                count = -1
            _put64(put + 8 * LAST_OFFSET, base)
            _put64(put + 8 * LEADER_EPOCH, -1)
            _put64(put + 8 * ATTRIBUTES, attributes)
            _put64(put + 8 * CRC, crc)
            _put64(put + 8 * BASE_TIMESTAMP, timestamp)
            _put64(put + 8 * MAX_TIMESTAMP, timestamp)
            _put64(put + 8 * PRODUCER_ID, -1)
            _put64(put + 8 * PRODUCER_EPOCH, -1)
            _put64(put + 8 * BASE_SEQUENCE, -1)
            _put64(put + 8 * COUNT, count)
        _put64(put + 8 * POSITION, p)
        _put64(put + 8 * SIZE, whole)
        _put64(put + 8 * BASE_OFFSET, base)
        _put64(put + 8 * MAGIC, magic)
        _put64(put + 8 * ADDRESS, 0)
        _put64(put + 8 * RECORDS_SIZE, 0)
        p += whole
        row += 1
    _put64(out, row)
    _put64(out + 8, p)
    return error


# --- Arrow columns --------------------------------------------------------------------------------------------------
@_kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)")
def _measure_kernel(table, rows, start, stop, early, late, wants_headers, out):
    """How many records are wanted (times from `early` to `late`, both included), and how many bytes their columns take;
    checks the structure of all of them."""
    records = key_bytes = value_bytes = null_keys = null_values = 0
    headers = name_bytes = content_bytes = null_contents = 0
    for row in range(rows):
        at = table + row * (ROW * 8)
        begin = _le64(at + 8 * ADDRESS)
        end = begin + _le64(at + 8 * RECORDS_SIZE)
        base_offset = _le64(at + 8 * BASE_OFFSET)
        base_timestamp = _le64(at + 8 * BASE_TIMESTAMP)
        max_timestamp = _le64(at + 8 * MAX_TIMESTAMP)
        stamped = _le64(at + 8 * ATTRIBUTES) & LOG_APPEND_TIME
        p = begin
        for _ in range(_le64(at + 8 * COUNT)):
            record = p
            p, delta, offset_delta, _, _, key_size, _, value_size, header_count, header = _record(record, end)
            if p < 0:
                _put64(out, row)
                _put64(out + 8, record - begin)
                return -p
            offset = base_offset + offset_delta
            timestamp = base_timestamp + delta
            if stamped:
                timestamp = max_timestamp
            if offset < start or offset >= stop or timestamp < early or timestamp > late:
                continue
            records += 1
            if key_size < 0:
                null_keys += 1
            else:
                key_bytes += key_size
            if value_size < 0:
                null_values += 1
            else:
                value_bytes += value_size
            if wants_headers and header_count:
                headers += header_count
                for _ in range(header_count):
                    size, header = _sized(header, p)
                    if header < 0:
                        return -header
                    header += size
                    name_bytes += size
                    size, header = _sized(header, p)
                    if header < 0:
                        return -header
                    if size < 0:
                        null_contents += 1
                    else:
                        header += size
                        content_bytes += size
        if p != end:
            _put64(out, row)
            _put64(out + 8, p - begin)
            return TRAILING_BYTES
    _put64(out, records)
    _put64(out + 8, key_bytes)
    _put64(out + 16, value_bytes)
    _put64(out + 24, null_keys)
    _put64(out + 32, null_values)
    _put64(out + 40, headers)
    _put64(out + 48, name_bytes)
    _put64(out + 56, content_bytes)
    _put64(out + 64, null_contents)
    return OK


@_helper
def _clear_bit(bitmap, index):
    at = bitmap + (index >> 3)
    _put8(at, _u8(at) & ~(1 << (index & 7)))


@_kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def _fill_kernel(table, rows, start, stop, early, late, factor, sizes, outs):
    """Write the columns that have an address in `outs`, but nothing past the room in `sizes`, and write back what was
    used.  `NEEDS_MEASURE` where headers want more room than there is."""
    records = _le64(sizes)
    key_room = _le64(sizes + 8)
    value_room = _le64(sizes + 16)
    header_room = _le64(sizes + 40)
    name_room = _le64(sizes + 48)
    content_room = _le64(sizes + 56)
    offsets = _le64(outs)
    timestamps = _le64(outs + 8)
    kinds = _le64(outs + 16)
    key_ends = _le64(outs + 24)
    keys = _le64(outs + 32)
    key_bits = _le64(outs + 40)
    value_ends = _le64(outs + 48)
    values = _le64(outs + 56)
    value_bits = _le64(outs + 64)
    list_ends = _le64(outs + 72)
    name_ends = _le64(outs + 80)
    names = _le64(outs + 88)
    content_ends = _le64(outs + 96)
    contents = _le64(outs + 104)
    content_bits = _le64(outs + 112)
    latest = MAX_INT64 // factor
    i = key_at = value_at = header_at = name_at = content_at = null_keys = null_values = null_contents = 0
    if key_ends:
        _put32(key_ends, 0)
    if value_ends:
        _put32(value_ends, 0)
    if list_ends:
        _put32(list_ends, 0)
        _put32(name_ends, 0)
        _put32(content_ends, 0)
    for row in range(rows):
        at = table + row * (ROW * 8)
        begin = p = _le64(at + 8 * ADDRESS)
        end = p + _le64(at + 8 * RECORDS_SIZE)
        base_offset = _le64(at + 8 * BASE_OFFSET)
        base_timestamp = _le64(at + 8 * BASE_TIMESTAMP)
        max_timestamp = _le64(at + 8 * MAX_TIMESTAMP)
        stamped = _le64(at + 8 * ATTRIBUTES) & LOG_APPEND_TIME
        kind = stamped >> 3
        if _le64(at + 8 * MAGIC) == 0:
            kind = NO_TIMESTAMP_TYPE
        for _ in range(_le64(at + 8 * COUNT)):
            record = p
            p, delta, offset_delta, _, key, key_size, value, value_size, header_count, header = _record(p, end)
            if p < 0:
                _put64(sizes, row)
                _put64(sizes + 8, record - begin)
                return -p
            offset = base_offset + offset_delta
            timestamp = base_timestamp + delta
            if stamped:
                timestamp = max_timestamp
            if offset < start or offset >= stop or timestamp < early or timestamp > late:
                continue
            if i >= records:
                return NEEDS_MEASURE
            if offsets:
                _put64(offsets + 8 * i, offset)
            if timestamps:
                _put64(timestamps + 8 * i, min(max(timestamp, -latest), latest) * factor)
            if kinds:
                _put32(kinds + 4 * i, kind)
            if key_ends:
                if key_size < 0:
                    _clear_bit(key_bits, i)
                    null_keys += 1
                else:
                    if key_size > key_room - key_at:
                        return NEEDS_MEASURE
                    _copy_short(keys + key_at, key, key_size)
                    key_at += key_size
                _put32(key_ends + 4 * (i + 1), key_at)
            if value_ends:
                if value_size < 0:
                    _clear_bit(value_bits, i)
                    null_values += 1
                else:
                    if value_size > value_room - value_at:
                        return NEEDS_MEASURE
                    _copy_short(values + value_at, value, value_size)
                    value_at += value_size
                _put32(value_ends + 4 * (i + 1), value_at)
            if list_ends:
                if header_count > header_room - header_at:
                    return NEEDS_MEASURE
                for _ in range(header_count):
                    size, header = _sized(header, p)
                    if header < 0 or size < 0 or size > name_room - name_at:
                        return NEEDS_MEASURE
                    _copy_short(names + name_at, header, size)
                    header += size
                    name_at += size
                    _put32(name_ends + 4 * (header_at + 1), name_at)
                    size, header = _sized(header, p)
                    if header < 0 or size > content_room - content_at:
                        return NEEDS_MEASURE
                    if size < 0:
                        _clear_bit(content_bits, header_at)
                        null_contents += 1
                    else:
                        _copy_short(contents + content_at, header, size)
                        header += size
                        content_at += size
                    header_at += 1
                    _put32(content_ends + 4 * header_at, content_at)
                _put32(list_ends + 4 * (i + 1), header_at)
            i += 1
        if p != end:
            _put64(sizes, row)
            _put64(sizes + 8, p - begin)
            return TRAILING_BYTES
    _put64(sizes, i)
    _put64(sizes + 8, key_at)
    _put64(sizes + 16, value_at)
    _put64(sizes + 24, null_keys)
    _put64(sizes + 32, null_values)
    _put64(sizes + 40, header_at)
    _put64(sizes + 48, name_at)
    _put64(sizes + 56, content_at)
    _put64(sizes + 64, null_contents)
    return OK


# --- the offset map -------------------------------------------------------------------------------------------------
@_inlined
def _sip_round(v0, v1, v2, v3):
    v0 += v1
    v2 += v3
    v1 = _rotl(v1, 13) ^ v0
    v3 = _rotl(v3, 16) ^ v2
    v0 = _rotl(v0, 32)
    v2 += v1
    v0 += v3
    v1 = _rotl(v1, 17) ^ v2
    v3 = _rotl(v3, 21) ^ v0
    v2 = _rotl(v2, 32)
    return v0, v1, v2, v3


@_helper
def _siphash(p, size, k0, k1):
    """SipHash-2-4 with an answer of 128 bits."""
    v0 = k0 ^ 0x736F6D6570736575
    v1 = k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2 = k0 ^ 0x6C7967656E657261
    v3 = k1 ^ 0x7465646279746573
    stop = p + (size & ~7)
    while p < stop:
        word = _le64(p)
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        p += 8
    word = size << 56
    shift = 0
    if size & 4:
        word |= _le32(p) & 0xFFFFFFFF
        p += 4
        shift = 32
    if size & 2:
        word |= (_le16(p) & 0xFFFF) << shift
        p += 2
        shift += 16
    if size & 1:
        word |= _u8(p) << shift
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xEE
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@_kernel("void(int64, int64, int64, int64, int64)")
def _hash_kernel(address, size, k0, k1, out):
    low, high = _siphash(address, size, k0, k1)
    _put64(out, low)
    _put64(out + 8, high)


@_inlined
def _first_slot(low, slots):
    return (_lshr(low, 32) * slots) >> 32


@_helper
def _find(memory, slots, low, high):
    """The address of the slot that holds the hash, or of the empty one where it belongs; 0 where neither is."""
    index = _first_slot(low, slots)
    for _ in range(slots):
        at = memory + 24 * index
        if _le64(at + 16) == 0 or (_le64(at) == low and _le64(at + 8) == high):
            return at
        index += 1
        if index == slots:
            index = 0
    return 0


_BLOCK: Final = 128
"""Keys that are hashed, and their slots fetched, before the first of them is looked up."""


@_kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def _put_run_kernel(table, first, rows, verdicts, start_offset, slots_state, scratch, wants_all, out):
    """`slots_state`: memory, slots, entries allowed, key, masks, entries, latest offset, records without a key."""
    memory = _le64(slots_state)
    slots = _le64(slots_state + 8)
    allowed = _le64(slots_state + 16)
    k0 = _le64(slots_state + 24)
    k1 = _le64(slots_state + 32)
    mask0 = _le64(slots_state + 40)
    mask1 = _le64(slots_state + 48)
    entries = _le64(slots_state + 56)
    latest = _le64(slots_state + 64)
    keyless = _le64(slots_state + 72)
    error = OK
    row = first
    position = 0
    while row < rows and error == OK:
        at = table + row * (ROW * 8)
        last = _le64(at + 8 * LAST_OFFSET)
        attributes = _le64(at + 8 * ATTRIBUTES)
        skipped = (attributes & CONTROL) != 0
        if verdicts:
            skipped = skipped or (_u8(verdicts + row) & DISCARD) != 0
        if not skipped and last >= start_offset:
            p = _le64(at + 8 * ADDRESS)
            if p == 0:
                error = NEEDS_PYTHON
                break
            begin = p
            end = p + _le64(at + 8 * RECORDS_SIZE)
            base_offset = _le64(at + 8 * BASE_OFFSET)
            count = _le64(at + 8 * COUNT)
            done = 0
            while done < count and error == OK:
                held = 0
                while done < count and held < _BLOCK:
                    record = p
                    p, _, offset_delta, _, key, key_size, _, _, _, _ = _record(record, end)
                    if p < 0:
                        error = -p
                        position = record - begin
                        break
                    done += 1
                    offset = base_offset + offset_delta
                    if offset < start_offset:
                        continue
                    if key_size < 0:
                        keyless += 1
                        continue
                    low, high = _siphash(key, key_size, k0, k1)
                    low &= mask0
                    high &= mask1
                    _prefetch(memory + 24 * _first_slot(low, slots))
                    put = scratch + 24 * held
                    _put64(put, low)
                    _put64(put + 8, high)
                    _put64(put + 16, offset)
                    held += 1
                for k in range(held):
                    put = scratch + 24 * k
                    if entries >= allowed:
                        error = MAP_FULL
                        break
                    low = _le64(put)
                    high = _le64(put + 8)
                    offset = _le64(put + 16)
                    slot = _find(memory, slots, low, high)
                    if slot == 0:
                        error = MAP_FULL
                        break
                    if _le64(slot + 16) == 0:
                        _put64(slot, low)
                        _put64(slot + 8, high)
                        entries += 1
                    _put64(slot + 16, offset + 1)
                    latest = offset
            if error == OK and p != end:
                error = TRAILING_BYTES
                position = p - begin
            if error != OK:
                break
        if last >= start_offset and last > latest:
            latest = last
        row += 1
    _put64(slots_state + 56, entries)
    _put64(slots_state + 64, latest)
    _put64(slots_state + 72, keyless)
    _put64(out, row)
    _put64(out + 8, position)
    return error


@_kernel("int64(int64, int64, int64, int64)")
def _find_kernel(memory, slots, low, high):
    return _find(memory, slots, low, high)


@_kernel("void(int64, int64, int64, int64, int64)")
def _survivors_kernel(memory, slots, start, stop, bitmap):
    for index in range(slots):
        offset = _le64(memory + 24 * index + 16) - 1
        if offset >= start and offset < stop:
            bit = offset - start
            at = bitmap + (bit >> 3)
            _put8(at, _u8(at) | (1 << (bit & 7)))


# --- filter and rewrite ---------------------------------------------------------------------------------------------
@_helper
def _put_varlong(at, value):
    raw = (value << 1) ^ (value >> 63)
    while _lshr(raw, 7) != 0:
        _put8(at, (raw & 0x7F) | 0x80)
        at += 1
        raw = _lshr(raw, 7)
    _put8(at, raw)
    return at + 1


@_helper
def _varlong_size(value):
    raw = _lshr((value << 1) ^ (value >> 63), 7)
    size = 1
    while raw != 0:
        raw = _lshr(raw, 7)
        size += 1
    return size


@_helper
def _rewritten(p, end, count, flags, whole, old_base, new_base, stamped, max_timestamp, put):
    """Write the records whose flag is set, `whole` for all of them; the position after them, 0 where they are not as
    they were a moment ago."""
    verbatim = new_base == old_base and stamped == 0
    run = 0
    for index in range(count):
        record = p
        p, delta, _, middle, _, _, _, _, _, _ = _record(record, end)
        if p < 0:
            return 0
        kept = whole or _u8(flags + index) != 0
        if verbatim:
            if kept:
                if run == 0:
                    run = record
            elif run:
                _copy(put, run, record - run)
                put += record - run
                run = 0
            continue
        if not kept:
            continue
        timestamp = max_timestamp if stamped else old_base + delta
        delta = timestamp - new_base
        rest = p - middle
        put = _put_varlong(put, 1 + _varlong_size(delta) + rest)
        _put8(put, 0)
        put = _put_varlong(put + 1, delta)
        _copy_short(put, middle, rest)
        put += rest
    if run:
        _copy(put, run, p - run)
        put += p - run
    return put


@_kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def _filter_kernel(source, table, first, rows, verdicts, slots_state, rules, flags, scratch, out, report):
    """`rules`: latest offset, now, delete retention, bitmap, its start and stop, room for output, compressed batches
    too.  `report`: next row, output size, output rows, records and bytes read, records and bytes kept, records without
    a key, highest kept offset, error position; then the output rows."""
    latest = _le64(rules)
    now = _le64(rules + 8)
    retention = _le64(rules + 16)
    bitmap = _le64(rules + 24)
    bits_start = _le64(rules + 32)
    bits_stop = _le64(rules + 40)
    room = _le64(rules + 48)
    compressed_too = _le64(rules + 56)
    row_room = _le64(rules + 64)
    memory = _le64(slots_state)
    slots = _le64(slots_state + 8)
    k0 = _le64(slots_state + 24)
    k1 = _le64(slots_state + 32)
    mask0 = _le64(slots_state + 40)
    mask1 = _le64(slots_state + 48)
    records_read = bytes_read = records_kept = bytes_kept = keyless = 0
    highest_kept = -1
    used = out_rows = position = 0
    error = OK
    row = first
    while row < rows:
        at = table + row * (ROW * 8)
        verdict = _u8(verdicts + row)
        attributes = _le64(at + 8 * ATTRIBUTES)
        size = _le64(at + 8 * SIZE)
        count = _le64(at + 8 * COUNT)
        base_offset = _le64(at + 8 * BASE_OFFSET)
        last_offset = _le64(at + 8 * LAST_OFFSET)
        old_base = _le64(at + 8 * BASE_TIMESTAMP)
        max_timestamp = _le64(at + 8 * MAX_TIMESTAMP)
        begin = _le64(at + 8 * ADDRESS)
        records_size = _le64(at + 8 * RECORDS_SIZE)
        end = begin + records_size
        control = (attributes & CONTROL) != 0
        stamped = attributes & LOG_APPEND_TIME
        had_horizon = (attributes & DELETE_HORIZON) != 0
        original = source + _le64(at + 8 * POSITION)
        if _le64(at + 8 * MAGIC) != 2:
            error = NEEDS_PYTHON
            break

        dead = (verdict & DISCARD) != 0
        if not dead and not control and bitmap and base_offset >= bits_start and last_offset < bits_stop:
            # Nothing of the batch is the last of its key: it is not even looked into.
            dead = last_offset <= latest
            low_byte = (base_offset - bits_start) >> 3
            high_byte = (last_offset - bits_start) >> 3
            if dead and low_byte == high_byte:
                ones = _u8(bitmap + low_byte) >> ((base_offset - bits_start) & 7)
                dead = ones & ((1 << (last_offset - base_offset + 1)) - 1) == 0
            elif dead:
                dead = _u8(bitmap + low_byte) >> ((base_offset - bits_start) & 7) == 0
                k = low_byte + 1
                while dead and k < high_byte:
                    dead = _u8(bitmap + k) == 0
                    k += 1
                if dead:
                    dead = _u8(bitmap + high_byte) & ((2 << ((last_offset - bits_start) & 7)) - 1) == 0
        if not dead and (begin == 0 or (attributes & CODEC_MASK and compressed_too == 0)):
            error = NEEDS_PYTHON
            break
        # A rewritten record may get nine more bytes of timestamp and, with them, one more of length.
        if out_rows == row_room or max(size, BATCH_OVERHEAD + records_size + 10 * count) > room - used:
            error = OUTPUT_FULL
            break

        kept = tombstones = 0
        newest = first_kept = -1
        batch_keyless = 0
        if not dead:
            p = begin
            index = 0
            while index < count:
                held = 0
                while index < count and held < _BLOCK:
                    record = p
                    p, delta, offset_delta, _, key, key_size, _, value_size, _, _ = _record(record, end)
                    if p < 0:
                        error = -p
                        position = record - begin
                        break
                    offset = base_offset + offset_delta
                    timestamp = old_base + delta
                    if stamped:
                        timestamp = max_timestamp
                    state = 0  # 0 dropped, 1 kept, 2 the map decides
                    if control or offset > latest:
                        state = 1
                    elif key_size < 0:
                        batch_keyless += 1
                    elif value_size < 0 and had_horizon and now >= old_base:
                        state = 0
                    elif bitmap and offset >= bits_start and offset < bits_stop:
                        bit = offset - bits_start
                        state = (_u8(bitmap + (bit >> 3)) >> (bit & 7)) & 1
                    elif memory:
                        state = 2
                    else:
                        state = 1
                    if state == 2:
                        low, high = _siphash(key, key_size, k0, k1)
                        low &= mask0
                        high &= mask1
                        _prefetch(memory + 24 * _first_slot(low, slots))
                        put = scratch + 64 * held
                        _put64(put, low)
                        _put64(put + 8, high)
                        _put64(put + 16, offset)
                        _put64(put + 24, timestamp)
                        _put64(put + 32, value_size)
                        _put64(put + 40, index)
                        held += 1
                    else:
                        _put8(flags + index, state)
                        if state:
                            # Kept without the map: in offset order only with the held ones, so they wait too.
                            put = scratch + 64 * held
                            _put64(put + 16, -1 - offset)
                            _put64(put + 24, timestamp)
                            _put64(put + 32, value_size)
                            _put64(put + 40, index)
                            held += 1
                    index += 1
                if error != OK:
                    break
                for k in range(held):
                    put = scratch + 64 * k
                    offset = _le64(put + 16)
                    if offset < 0:
                        offset = -1 - offset
                    else:
                        slot = _find(memory, slots, _le64(put), _le64(put + 8))
                        if slot != 0 and _le64(slot + 16) - 1 > offset:
                            _put8(flags + _le64(put + 40), 0)
                            continue
                        _put8(flags + _le64(put + 40), 1)
                    timestamp = _le64(put + 24)
                    if kept == 0:
                        first_kept = timestamp
                    kept += 1
                    if timestamp > newest:
                        newest = timestamp
                    if _le64(put + 32) < 0:
                        tombstones += 1
                    if offset > highest_kept:
                        highest_kept = offset
            if error == OK and p != end:
                error = TRAILING_BYTES
                position = p - begin
            if error != OK:
                break

        keyless += batch_keyless
        records_read += count
        bytes_read += size
        put = out + used
        written = 0
        rewritten = 0
        if kept:
            needs_horizon = (tombstones > 0 or (verdict & EMPTY_TRANSACTION) != 0) and not had_horizon
            if kept == count and not needs_horizon:
                _copy(put, original, size)
                written = size
                newest = max_timestamp
            else:
                new_base = first_kept
                if needs_horizon:
                    new_base = now + retention
                elif had_horizon:
                    new_base = old_base
                stop = _rewritten(
                    begin,
                    end,
                    count,
                    flags,
                    kept == count,
                    old_base,
                    new_base,
                    stamped,
                    max_timestamp,
                    put + BATCH_OVERHEAD,
                )
                if stop == 0:
                    error = BATCH_HEADER
                    break
                if stamped:
                    newest = max_timestamp
                written = stop - put
                rewritten = 1
                _copy(put, original, BATCH_OVERHEAD)
                _put32be(put + 8, written - LOG_OVERHEAD)
                new_attributes = attributes & (CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
                if needs_horizon or had_horizon:
                    new_attributes |= DELETE_HORIZON
                _put16be(put + 21, new_attributes)
                _put64be(put + 27, new_base)
                _put64be(put + 35, newest)
                _put32be(put + 57, kept)
                _put32be(put + 17, _crc32c(put + 21, written - 21, 0))
        elif verdict & RETAIN_EMPTY:
            _copy(put, original, BATCH_OVERHEAD)
            written = BATCH_OVERHEAD
            rewritten = 1
            newest = max_timestamp
            _put32be(put + 8, BATCH_OVERHEAD - LOG_OVERHEAD)
            _put16be(put + 21, attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL))
            _put64be(put + 27, -1)
            _put32be(put + 57, 0)
            _put32be(put + 17, _crc32c(put + 21, BATCH_OVERHEAD - 21, 0))
        if written:
            line = report + 80 + out_rows * (OUT_ROW * 8)
            _put64(line, used)
            _put64(line + 8, written)
            _put64(line + 16, base_offset)
            _put64(line + 24, last_offset)
            _put64(line + 32, newest)
            _put64(line + 40, kept)
            _put64(line + 48, row)
            _put64(line + 56, rewritten)
            out_rows += 1
            used += written
            records_kept += kept
            bytes_kept += written
        row += 1
    _put64(report, row)
    _put64(report + 8, used)
    _put64(report + 16, out_rows)
    _put64(report + 24, records_read)
    _put64(report + 32, bytes_read)
    _put64(report + 40, records_kept)
    _put64(report + 48, bytes_kept)
    _put64(report + 56, keyless)
    _put64(report + 64, highest_kept)
    _put64(report + 72, position)
    return error


# --- the wrappers ---------------------------------------------------------------------------------------------------
_frombuffer = np.frombuffer
_NOTHING = np.zeros(1, dtype=np.uint8)


def _bytes_of(data: Buffer) -> tuple[Any, int, int]:
    """(what holds the memory, address, length)."""
    if not len(data):
        return _NOTHING, int(_NOTHING.__array_interface__["data"][0]), 0
    held = _frombuffer(data, np.uint8)
    return held, int(held.__array_interface__["data"][0]), len(held)


def walk(data: Buffer, count: int, base_timestamp: int) -> tuple[int, ...]:
    held, address, size = _bytes_of(data)
    out = array("q", bytes(96))
    code = _walk_kernel(address, size, count, base_timestamp, out.buffer_info()[0])
    del held
    return (code, *out)


def crc32c(data: Buffer, value: int = 0) -> int:
    held, address, size = _bytes_of(data)
    result = int(_crc32c_kernel(address, size, value))
    del held
    return result


def crc32c_portable(data: Buffer, value: int = 0) -> int:
    """What machines without the instruction use; here so that it is tested everywhere."""
    held, address, size = _bytes_of(data)
    result = int(_crc32c_portable_kernel(address, size, value))
    del held
    return result


def scan_batches(data: Buffer, table: BatchTable, start: int = 0, *, verify: bool = True) -> int:
    held, address, size = _bytes_of(data)
    out = array("q", bytes(16))
    code = int(
        _scan_kernel(address, size, start, table.rows.buffer_info()[0], table.capacity, verify, out.buffer_info()[0])
    )
    del held
    table.count, table.end = out
    table.error = code
    return code


def address_of(data: Buffer) -> tuple[Any, int]:
    """(what must be kept while the address is used, address)."""
    held, address, _ = _bytes_of(data)
    return held, address


def _locate(data: Buffer, table: BatchTable, payloads: dict[int, Buffer]) -> list[Any]:
    """Write into the table where each batch's uncompressed records are; the answer holds their memory."""
    held, address, _ = _bytes_of(data)
    rows = _frombuffer(table.rows, np.int64).reshape(-1, ROW)[: table.count]
    plain = ((rows[:, ATTRIBUTES] & CODEC_MASK) == 0) & (rows[:, MAGIC] == 2)
    rows[:, ADDRESS] = np.where(plain, rows[:, POSITION] + (address + BATCH_OVERHEAD), 0)
    rows[:, RECORDS_SIZE] = np.where(plain, rows[:, SIZE] - BATCH_OVERHEAD, 0)
    holders = [held]
    for row, payload in payloads.items():
        holder, where, size = _bytes_of(payload)
        holders.append(holder)
        rows[row, ADDRESS] = where
        rows[row, RECORDS_SIZE] = size
    return holders


def located(data: Buffer, table: BatchTable, indexes: Any, payloads: dict[int, Buffer]) -> tuple[Any, list[Any]]:
    """(the rows of a table as an array of their own, with the records' addresses; what holds the memory)."""
    holders = _locate(data, table, payloads)
    rows = _frombuffer(table.rows, np.int64).reshape(-1, ROW)[: table.count]
    rows = rows.copy() if indexes is None else rows[np.asarray(indexes, dtype=np.int64)]
    assert bool(np.all(rows[:, ADDRESS] != 0)), "a compressed or old batch comes with its payload"
    return rows, holders


def measure(rows: Any, start: int, stop: int, early: int, late: int, wants_headers: bool) -> tuple[int, array[int]]:
    """The first pass over located rows (a contiguous int64 array): (code, what the columns need)."""
    out = array("q", bytes(72))
    where = rows.__array_interface__["data"][0]
    code = _measure_kernel(where, len(rows), start, stop, early, late, wants_headers, out.buffer_info()[0])
    return int(code), out


def rooms(rows: Any) -> array[int]:
    """What the columns of located rows can need at most, headers left out."""
    sizes = rows[:, RECORDS_SIZE]
    data = int(sizes.sum())
    return array("q", (int(np.minimum(rows[:, COUNT], sizes // 7).sum()), data, data, 0, 0, 0, 0, 0, 0))


def fill(
    rows: Any, start: int, stop: int, early: int, late: int, factor: int, sizes: array[int], outs: array[int]
) -> int:
    """Write the columns whose addresses are in `outs`; `sizes` is the room before and what was used after."""
    where = rows.__array_interface__["data"][0]
    return int(
        _fill_kernel(where, len(rows), start, stop, early, late, factor, sizes.buffer_info()[0], outs.buffer_info()[0])
    )


def hash_key(key: Buffer, k0: int, k1: int) -> tuple[int, int]:
    held, address, size = _bytes_of(key)
    out = array("q", bytes(16))
    _hash_kernel(address, size, k0, k1, out.buffer_info()[0])
    del held
    return out[0], out[1]


class OffsetSlots:
    """The memory of an offset map: 24 bytes a slot, 16 of hash and 8 of offset + 1, where 0 is an empty slot.

    Linear probing from the hash's upper half.  One thread at a time.
    """

    __slots__ = ("_key", "_map", "_masks", "_memory", "_scratch", "slots", "state")

    def __init__(self, slots: int, allowed: int, k0: int, k1: int, mask0: int, mask1: int) -> None:
        self.slots = slots
        self._map: mmap.mmap | None = None
        self._scratch = array("q", bytes(_BLOCK * 64))
        self.state = array("q", (0, slots, allowed, k0, k1, mask0, mask1, 0, -1, 0))
        self.clear()

    def clear(self) -> None:
        """Empty again.  New zero pages from the system are cheaper than writing zeros, and are given back this way."""
        self.close()
        self._map = mmap.mmap(-1, 24 * self.slots)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)  # a probe is a random access: fewer misses of the page tables
            except OSError:
                pass  # a kernel without huge pages: slower only
        self._memory = _frombuffer(self._map, np.uint8)
        self.state[0] = int(self._memory.__array_interface__["data"][0])
        self.state[7] = 0
        self.state[8] = -1
        self.state[9] = 0

    def close(self) -> None:
        if self._map is not None:
            self._memory = _NOTHING
            self._map.close()
            self._map = None
            self.state[0] = 0

    def put_hash(self, low: int, high: int, offset: int) -> bool:
        state = self.state
        if state[7] >= state[2]:
            return False
        low &= state[5]
        high &= state[6]
        slot = _find_kernel(state[0], self.slots, low, high)
        if slot == 0:
            return False
        entry = self._memory[slot - state[0] : slot - state[0] + 24].view(np.int64)
        if entry[2] == 0:
            entry[0] = low
            entry[1] = high
            state[7] += 1
        entry[2] = offset + 1
        state[8] = offset
        return True

    def get_hash(self, low: int, high: int) -> int:
        state = self.state
        slot = _find_kernel(state[0], self.slots, low & state[5], high & state[6])
        if slot == 0:
            return -1
        return int(self._memory[slot - state[0] + 16 : slot - state[0] + 24].view(np.int64)[0]) - 1

    def put_run(
        self,
        data: Buffer,
        table: BatchTable,
        first: int,
        start_offset: int,
        verdicts: Buffer | None,
        payloads: dict[int, Buffer],
    ) -> tuple[int, int, int]:
        held = _locate(data, table, payloads)
        out = array("q", bytes(16))
        holder, where = (None, 0) if verdicts is None else address_of(verdicts)
        code = _put_run_kernel(
            table.rows.buffer_info()[0],
            first,
            table.count,
            where,
            start_offset,
            self.state.buffer_info()[0],
            self._scratch.buffer_info()[0],
            0,
            out.buffer_info()[0],
        )
        del held, holder
        return int(code), out[0], out[1]

    def survivors(self, start: int, stop: int) -> bytearray:
        bitmap = bytearray((stop - start + 7) // 8 + 8)
        held, where = address_of(bitmap)
        _survivors_kernel(self.state[0], self.slots, start, stop, where)
        del held
        return bitmap

    def items(self) -> tuple[Any, Any]:
        """(hashes as rows of two integers, offsets) of what is in the map, in no order."""
        entries = self._memory[: 24 * self.slots].view(np.int64).reshape(-1, 3)
        full = entries[entries[:, 2] != 0]
        return full[:, :2].copy(), full[:, 2] - 1


_NO_SLOTS = array("q", bytes(80))


def filter_run(
    data: Buffer,
    table: BatchTable,
    first: int,
    verdicts: Buffer,
    slots: OffsetSlots | None,
    rules: FilterRules,
    output: bytearray | memoryview,
    payloads: dict[int, Buffer],
    *,
    compressed_too: bool = False,
) -> FilterRun:
    held = _locate(data, table, payloads)
    source, source_address, _ = _bytes_of(data)
    out, out_address, room = _bytes_of(output)
    verdict_holder, verdict_address = address_of(verdicts)
    rows = _frombuffer(table.rows, np.int64).reshape(-1, ROW)[first : table.count]
    bitmap_holder, bitmap_address = (None, 0) if rules.bitmap is None else address_of(rules.bitmap)
    # Flags are one byte for each record; what a header claims is bounded by the bytes that are there.
    counts = rows[:, COUNT]
    possible = np.minimum(counts, rows[:, RECORDS_SIZE] // 7 + 1)
    flags = np.empty(int(possible.max(initial=0)) + 1, dtype=np.uint8)
    lying = np.flatnonzero((counts > rows[:, RECORDS_SIZE] // 7) & (rows[:, ADDRESS] != 0))
    last = table.count if not len(lying) else first + int(lying[0])
    scratch = np.empty(_BLOCK * 8, dtype=np.int64)
    row_room = max(1, last - first)
    report = array("q", bytes(80 + row_room * OUT_ROW * 8))
    wanted = array(
        "q",
        (
            rules.latest_offset,
            rules.now_ms,
            rules.delete_retention_ms,
            bitmap_address,
            rules.bitmap_start,
            rules.bitmap_stop,
            room,
            compressed_too,
            row_room,
        ),
    )
    code = int(
        _filter_kernel(
            source_address,
            table.rows.buffer_info()[0],
            first,
            last,
            verdict_address,
            (slots.state if slots is not None else _NO_SLOTS).buffer_info()[0],
            wanted.buffer_info()[0],
            flags.__array_interface__["data"][0],
            scratch.__array_interface__["data"][0],
            out_address,
            report.buffer_info()[0],
        )
    )
    del held, source, out, verdict_holder, bitmap_holder
    if code == OK and last < table.count:
        code = RECORD_PAST_END  # more records are claimed than the bytes could hold
    n = report[2]
    return FilterRun(
        code,
        report[0],
        report[1],
        report[3],
        report[4],
        report[5],
        report[6],
        report[7],
        report[8],
        report[9],
        report[10 : 10 + n * OUT_ROW],
    )
