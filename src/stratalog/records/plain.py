"""The kernels in plain Python: what they mean, and what answers until they are compiled.

Same functions, arguments and answers as `kernels.compiled`, errors included.  Slow by design (about a hundredth) and
easy to read; imports neither NumPy nor Numba.  Any thread may call anything here: only `OffsetSlots` has state, and its
owner's thread is the one that calls it.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Final

import crc32c as _crc32c

from stratalog.base.limits import HEADERS_PER_RECORD_MAX, RECORD_DECOMPRESSED_BYTES_MAX
from stratalog.base.types import Buffer
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
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
    DELETE_HORIZON,
    DISCARD,
    EMPTY_TRANSACTION,
    HEADER_COUNT,
    HEADER_KEY,
    LAST_OFFSET,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAP_FULL,
    MAX_TIMESTAMP,
    NEEDS_PYTHON,
    NO_TIMESTAMP_TYPE,
    OK,
    OUTPUT_FULL,
    POSITION,
    RECORD_BODY,
    RECORD_PAST_END,
    RECORD_TOO_LARGE,
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
from stratalog.records.varint import varint_bytes

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
    if length == -1:
        return p, -1, p
    if length < 0 or length > end - p:
        raise _Broken(RECORD_BODY)
    return p, length, p + length


Parsed = tuple[int, int, int, tuple[int, int], tuple[int, int], int, int]


def _record(data: Buffer, start: int, end: int) -> tuple[Parsed, int]:
    """One record: ((timestamp delta, offset delta, middle, key, value, headers, first header), position after it).

    `middle` is where the offset delta begins: from there on only copies are made, because base offsets never change.
    """
    length, p = _varint(data, start, end, RECORD_PAST_END)
    if length < 0 or length > end - p:
        raise _Broken(RECORD_PAST_END)
    stop = p + length
    if length == 0:
        raise _Broken(RECORD_BODY)
    timestamp_delta, p = _varlong(data, p + 1, stop)
    middle = p
    offset_delta, p = _varint(data, p, stop, RECORD_BODY)
    if offset_delta < 0:
        raise _Broken(RECORD_BODY)
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
    parsed = (
        timestamp_delta,
        offset_delta,
        middle,
        (key_start, key_length),
        (value_start, value_length),
        headers,
        first_header,
    )
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
        if p - start > RECORD_DECOMPRESSED_BYTES_MAX + 5:  # five bytes for a length of that size
            return RECORD_TOO_LARGE, start, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        timestamp_delta, offset_delta, _, key, value, header_count, _ = parsed
        timestamp = base_timestamp + timestamp_delta
        if timestamp != _signed64(timestamp):
            return TIMESTAMP, start, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
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
    return (
        OK,
        p,
        count,
        low,
        high,
        high_delta,
        first_timestamp,
        last_delta,
        dense,
        keyless,
        first_keyless,
        tombstones,
        headers,
    )


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C (Castagnoli), continued from `value`."""
    return _crc32c.crc32c(data, value)


# --- many batches ---------------------------------------------------------------------------------------------------
def scan_batches(data: Buffer, table: BatchTable, start: int = 0, *, verify: bool = True) -> int:
    """Fill `table` with the batches of `data` from `start` on, until its end, its room or the first thing that is not
    a sound batch; `table.end` is where.  The answer is the code."""
    data = memoryview(data)
    rows = table.rows
    p = start
    row = 0
    code = OK
    while p < len(data):
        if row == table.capacity and not _scan_error(data, p):
            code = TABLE_FULL
            break
        fields = _scan_one(data, p, verify)
        if isinstance(fields, int):
            code = fields
            break
        rows[row * ROW : (row + 1) * ROW] = array("q", fields)
        p += fields[SIZE]
        row += 1
    table.count = row
    table.end = p
    table.error = code
    return code


def _scan_error(data: memoryview, p: int) -> int:
    """The code where not even the extent of the batch at `p` is sound, else 0."""
    left = len(data) - p
    if left < LOG_OVERHEAD:
        return BATCH_TRUNCATED
    length = int.from_bytes(data[p + 8 : p + 12], "big", signed=True)
    if length < 14:
        return BATCH_SIZE
    return BATCH_TRUNCATED if length + LOG_OVERHEAD > left else OK


def _scan_one(data: memoryview, p: int, verify: bool) -> tuple[int, ...] | int:
    """A table row, or a code."""
    code = _scan_error(data, p)
    if code:
        return code
    magic = data[p + 16]
    if magic > 2:
        return BATCH_MAGIC
    if magic < 2:
        return _scan_old(data, p, verify)
    length = int.from_bytes(data[p + 8 : p + 12], "big")
    size = length + LOG_OVERHEAD
    if size < BATCH_OVERHEAD:
        return BATCH_SIZE
    (
        base,
        _,
        epoch,
        _,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer,
        producer_epoch,
        sequence,
        count,
    ) = _V2.unpack_from(data, p)
    if verify and crc32c(data[p + 21 : p + size]) != crc:
        return BATCH_CRC
    last = base + last_delta
    if base < 0 or last_delta < 0 or last >= 1 << 63 or count < 0 or count > last_delta + 1:
        return BATCH_HEADER
    return (
        p,
        size,
        base,
        last,
        epoch,
        2,
        attributes,
        crc,
        base_timestamp,
        max_timestamp,
        producer,
        producer_epoch,
        sequence,
        count,
        0,
        0,
    )


def _scan_old(data: memoryview, p: int, verify: bool) -> tuple[int, ...] | int:
    base, length, crc, magic, attributes = _OLD.unpack_from(data, p)
    size = length + LOG_OVERHEAD
    if length < 14 + 8 * magic:
        return BATCH_SIZE
    if verify and zlib.crc32(data[p + 16 : p + size]) != crc:
        return BATCH_CRC
    if base < 0:
        return BATCH_HEADER
    attributes &= 0xFF
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        timestamp = int.from_bytes(data[p + 18 : p + 26], "big", signed=True)
    count = -1 if attributes & CODEC_MASK else 1
    return (p, size, base, base, -1, magic, attributes, crc, timestamp, timestamp, -1, -1, -1, count, 0, 0)


def payload_of(data: memoryview, row: Sequence[int], payloads: dict[int, Buffer], index: int) -> memoryview | None:
    """The uncompressed records of a batch: from `payloads`, or from the data itself; None where Python must act."""
    payload = payloads.get(index)
    if payload is not None:
        return memoryview(payload)
    if row[ATTRIBUTES] & CODEC_MASK or row[MAGIC] != 2:
        return None
    return data[row[POSITION] + BATCH_OVERHEAD : row[POSITION] + row[SIZE]]


# --- Arrow columns --------------------------------------------------------------------------------------------------
_Headers = list[list[tuple[bytes, bytes | None]]]
Columns = tuple[list[int], list[int], list[int], list[bytes | None], list[bytes | None], _Headers]


def read_columns(
    data: Buffer,
    table: BatchTable,
    indexes: Sequence[int],
    payloads: dict[int, Buffer],
    start: int,
    stop: int,
    early: int,
    late: int,
) -> tuple[int, int, int, Columns]:
    """(code, row, position in its records, (offsets, timestamps, timestamp types, keys, values, headers)) of the
    records with offset in [start, stop) and timestamp from `early` to `late`, both included, so that a time can be the
    last that there is.  The compiled twin does it in two passes."""
    data = memoryview(data)
    columns: Columns = ([], [], [], [], [], [])
    offsets, timestamps, kinds, keys, values, headers = columns
    for index in indexes:
        row = table.row(index)
        records = payload_of(data, row, payloads, index)
        assert records is not None
        end = len(records)
        stamped = row[ATTRIBUTES] & LOG_APPEND_TIME
        kind = NO_TIMESTAMP_TYPE if row[MAGIC] == 0 else 1 if stamped else 0
        p = 0
        for _ in range(row[COUNT]):
            at = p
            try:
                parsed, p = _record(records, at, end)
            except _Broken as broken:
                return broken.code, index, at, columns
            delta, offset_delta, _, key, value, header_count, header = parsed
            offset = row[BASE_OFFSET] + offset_delta
            timestamp = row[MAX_TIMESTAMP] if stamped else _signed64(row[BASE_TIMESTAMP] + delta)
            if not (start <= offset < stop and early <= timestamp <= late):
                continue
            offsets.append(offset)
            timestamps.append(timestamp)
            kinds.append(kind)
            keys.append(None if key[1] < 0 else bytes(records[key[0] : key[0] + key[1]]))
            values.append(None if value[1] < 0 else bytes(records[value[0] : value[0] + value[1]]))
            headers.append(_headers(records, header, header_count, p))
        if p != end:
            return TRAILING_BYTES, index, p, columns
    return OK, 0, 0, columns


def _headers(records: memoryview, p: int, count: int, end: int) -> list[tuple[bytes, bytes | None]]:
    found: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, size, p = _sized(records, p, end)
        content, content_size, p = _sized(records, p, end)
        found.append(
            (
                bytes(records[name : name + size]),
                None if content_size < 0 else bytes(records[content : content + content_size]),
            )
        )
    return found


# --- the offset map -------------------------------------------------------------------------------------------------
def _rotl(value: int, count: int) -> int:
    return ((value << count) | (value >> (64 - count))) & _U64


def _sip_rounds(v: list[int], count: int) -> None:
    v0, v1, v2, v3 = v
    for _ in range(count):
        v0 = (v0 + v1) & _U64
        v2 = (v2 + v3) & _U64
        v1 = _rotl(v1, 13) ^ v0
        v3 = _rotl(v3, 16) ^ v2
        v0 = _rotl(v0, 32)
        v2 = (v2 + v1) & _U64
        v0 = (v0 + v3) & _U64
        v1 = _rotl(v1, 17) ^ v2
        v3 = _rotl(v3, 21) ^ v0
        v2 = _rotl(v2, 32)
    v[:] = v0, v1, v2, v3


def hash_key(key: Buffer, k0: int, k1: int) -> tuple[int, int]:
    """SipHash-2-4 with an answer of 128 bits, as two signed integers."""
    k0 &= _U64
    k1 &= _U64
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    key = bytes(key)
    whole = len(key) & ~7
    words = [*struct.unpack(f"<{whole // 8}Q", key[:whole])]
    words.append((len(key) & 255) << 56 | int.from_bytes(key[whole:], "little"))
    for word in words:
        v[3] ^= word
        _sip_rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _sip_rounds(v, 4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _sip_rounds(v, 4)
    return _signed64(low), _signed64(v[0] ^ v[1] ^ v[2] ^ v[3])


class OffsetSlots:
    """The offset map's content by hash: what the compiled twin keeps in slots of 24 bytes.  One thread at a time.

    `state` has the same places: 7 entries, 8 the latest offset, 9 records without a key.
    """

    __slots__ = ("_entries", "_key", "_masks", "slots", "state")

    def __init__(self, slots: int, allowed: int, k0: int, k1: int, mask0: int, mask1: int) -> None:
        self.slots = slots
        self.state = array("q", (0, slots, allowed, k0, k1, mask0, mask1, 0, -1, 0))
        self._key = (k0, k1)
        self._masks = (mask0, mask1)
        self._entries: dict[tuple[int, int], int] = {}

    def clear(self) -> None:
        self._entries.clear()
        self.state[7] = 0
        self.state[8] = -1
        self.state[9] = 0

    def close(self) -> None:
        self._entries.clear()

    def put_hash(self, low: int, high: int, offset: int) -> bool:
        """Whether there was room."""
        entries = self._entries
        if len(entries) >= self.state[2]:
            return False
        entries[low & self._masks[0], high & self._masks[1]] = offset
        self.state[7] = len(entries)
        self.state[8] = offset
        return True

    def get_hash(self, low: int, high: int) -> int:
        """The offset, -1 where there is none."""
        return self._entries.get((low & self._masks[0], high & self._masks[1]), -1)

    def put_run(
        self,
        data: Buffer,
        table: BatchTable,
        first: int,
        start_offset: int,
        verdicts: Buffer | None,
        payloads: dict[int, Buffer],
    ) -> tuple[int, int, int]:
        """Put the keys of the batches from row `first` on: (code, row where it stopped, position in its records)."""
        data = memoryview(data)
        for index in range(first, table.count):
            row = table.row(index)
            skipped = row[ATTRIBUTES] & CONTROL or (verdicts is not None and verdicts[index] & DISCARD)
            if not skipped and row[LAST_OFFSET] >= start_offset:
                records = payload_of(data, row, payloads, index)
                if records is None:
                    return NEEDS_PYTHON, index, 0
                code, position = self._put_batch(records, row, start_offset)
                if code:
                    return code, index, position
            if row[LAST_OFFSET] >= start_offset and row[LAST_OFFSET] > self.state[8]:
                self.state[8] = row[LAST_OFFSET]
        return OK, table.count, 0

    def _put_batch(self, records: memoryview, row: Sequence[int], start_offset: int) -> tuple[int, int]:
        p = 0
        for _ in range(row[COUNT]):
            at = p
            try:
                parsed, p = _record(records, at, len(records))
            except _Broken as broken:
                return broken.code, at
            _, offset_delta, _, key, _, _, _ = parsed
            offset = row[BASE_OFFSET] + offset_delta
            if offset < start_offset:
                continue
            if key[1] < 0:
                self.state[9] += 1
                continue
            if not self.put_hash(*hash_key(records[key[0] : key[0] + key[1]], *self._key), offset):
                return MAP_FULL, 0
        return (TRAILING_BYTES, p) if p != len(records) else (OK, 0)

    def survivors(self, start: int, stop: int) -> bytearray:
        """A bit for each offset of [start, stop) that is the latest of its key."""
        bitmap = bytearray((stop - start + 7) // 8 + 8)
        for offset in self._entries.values():
            if start <= offset < stop:
                bitmap[(offset - start) >> 3] |= 1 << ((offset - start) & 7)
        return bitmap

    def items(self) -> tuple[list[tuple[int, int]], list[int]]:
        """(hashes, offsets) of what is in the map, in no order."""
        return list(self._entries), list(self._entries.values())


# --- filter and rewrite ---------------------------------------------------------------------------------------------
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
    """Write what survives of the batches from row `first` on into `output`.

    Kafka's rules for a batch: base offset, last offset, producer fields and leader epoch stay; the base timestamp
    becomes the first kept record's, or the delete horizon where there is or must be one; the maximum timestamp that of
    the kept records.  A batch of which everything is kept is copied as it is, one of which nothing is kept vanishes
    unless its verdict says `RETAIN_EMPTY`.  With `compressed_too` a compressed batch that has its records in `payloads`
    is written with them *uncompressed* (its codec bits kept, its CRC for the caller to renew), unless it is copied.
    """
    data = memoryview(data)
    out = memoryview(output)
    used = records_read = bytes_read = records_kept = bytes_kept = keyless = 0
    highest = -1
    written = array("q")
    code = OK
    position = 0
    index = first
    while index < table.count:
        row = table.row(index)
        verdict = verdicts[index]
        compressed = row[ATTRIBUTES] & CODEC_MASK
        records = payload_of(data, row, payloads, index)
        if row[MAGIC] != 2:
            code = NEEDS_PYTHON
            break
        count = row[COUNT]
        if records is not None and count > len(records) // 7:
            code = RECORD_PAST_END
            break
        dead = bool(verdict & DISCARD) or _has_no_survivor(row, rules)
        if not dead and (records is None or (compressed and not compressed_too)):
            code = NEEDS_PYTHON
            break
        if max(row[SIZE], BATCH_OVERHEAD + len(records or b"") + 10 * count) > len(out) - used:
            code = OUTPUT_FULL
            break
        kept: list[tuple[int, int, int, int, int]] = []
        batch_keyless = tombstones = 0
        if not dead:
            assert records is not None
            p = 0
            for _ in range(count):
                at = p
                try:
                    parsed, p = _record(records, at, len(records))
                except _Broken as broken:
                    code = broken.code
                    position = at
                    break
                keep = _keep(records, parsed, row, slots, rules)
                if keep is None:
                    batch_keyless += 1
                elif keep:
                    delta, offset_delta, middle, _, value, _, _ = parsed
                    stamped = row[ATTRIBUTES] & LOG_APPEND_TIME
                    timestamp = row[MAX_TIMESTAMP] if stamped else row[BASE_TIMESTAMP] + delta
                    kept.append((at, middle, p, row[BASE_OFFSET] + offset_delta, timestamp))
                    tombstones += value[1] < 0
            if code == OK and p != len(records):
                code = TRAILING_BYTES
                position = p
            if code:
                break
        keyless += batch_keyless
        records_read += count
        bytes_read += row[SIZE]
        if kept or verdict & RETAIN_EMPTY:
            batch, newest, rewritten = _rewrite(data, row, records, kept, tombstones, verdict, rules)
            out[used : used + len(batch)] = batch
            written.extend((used, len(batch), row[BASE_OFFSET], row[LAST_OFFSET], newest, len(kept), index, rewritten))
            used += len(batch)
            records_kept += len(kept)
            bytes_kept += len(batch)
            if kept:
                highest = max(highest, *(entry[3] for entry in kept), -1)
        index += 1
    return FilterRun(
        code, index, used, records_read, bytes_read, records_kept, bytes_kept, keyless, highest, position, written
    )


def _bit(rules: FilterRules, offset: int) -> int:
    assert rules.bitmap is not None
    place = offset - rules.bitmap_start
    return rules.bitmap[place >> 3] >> (place & 7) & 1


def _has_no_survivor(row: Sequence[int], rules: FilterRules) -> bool:
    """The bitmap says that no record of the batch is the last of its key: the batch is not looked into."""
    low, high = row[BASE_OFFSET], row[LAST_OFFSET]
    if rules.bitmap is None or row[ATTRIBUTES] & CONTROL or high > rules.latest_offset:
        return False
    if low < rules.bitmap_start or high >= rules.bitmap_stop:
        return False
    return not any(_bit(rules, offset) for offset in range(low, high + 1))


def _keep(
    records: memoryview, parsed: Parsed, row: Sequence[int], slots: OffsetSlots | None, rules: FilterRules
) -> bool | None:
    """Whether a record survives; None where it is dropped because it has no key."""
    _, offset_delta, _, key, value, _, _ = parsed
    offset = row[BASE_OFFSET] + offset_delta
    if row[ATTRIBUTES] & CONTROL or offset > rules.latest_offset:
        return True
    if key[1] < 0:
        return None
    if value[1] < 0 and row[ATTRIBUTES] & DELETE_HORIZON and rules.now_ms >= row[BASE_TIMESTAMP]:
        return False
    if rules.bitmap is not None and rules.bitmap_start <= offset < rules.bitmap_stop:
        return bool(_bit(rules, offset))
    if slots is None:
        return True
    return slots.get_hash(*hash_key(records[key[0] : key[0] + key[1]], slots.state[3], slots.state[4])) <= offset


def _rewrite(
    data: memoryview,
    row: Sequence[int],
    records: memoryview | None,
    kept: list[tuple[int, int, int, int, int]],
    tombstones: int,
    verdict: int,
    rules: FilterRules,
) -> tuple[Buffer, int, int]:
    """(the batch, its maximum timestamp, whether it is rewritten)."""
    original = data[row[POSITION] : row[POSITION] + row[SIZE]]
    attributes = row[ATTRIBUTES]
    if not kept:
        attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
        return _assembled(original, b"", attributes, -1, row[MAX_TIMESTAMP], 0), row[MAX_TIMESTAMP], 1
    had_horizon = attributes & DELETE_HORIZON
    needs_horizon = (tombstones or verdict & EMPTY_TRANSACTION) and not had_horizon
    if len(kept) == row[COUNT] and not needs_horizon:
        return original, row[MAX_TIMESTAMP], 0
    assert records is not None
    base = kept[0][4]
    if needs_horizon:
        base = rules.now_ms + rules.delete_retention_ms
    elif had_horizon:
        base = row[BASE_TIMESTAMP]
    attributes &= CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    if needs_horizon or had_horizon:
        attributes |= DELETE_HORIZON
    body = bytearray()
    for start, middle, stop, _, timestamp in kept:
        if base == row[BASE_TIMESTAMP] and not attributes & LOG_APPEND_TIME:
            body += records[start:stop]
        else:
            time = varint_bytes(timestamp - base)
            body += varint_bytes(1 + len(time) + stop - middle)
            body += b"\0"
            body += time
            body += records[middle:stop]
    newest = row[MAX_TIMESTAMP] if attributes & LOG_APPEND_TIME else max(-1, *(entry[4] for entry in kept), -1)
    return _assembled(original, body, attributes, base, newest, len(kept)), newest, 1


def _assembled(
    original: memoryview, records: Buffer, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    """A batch with another body: what is not named stays as it was."""
    fields = list(_V2.unpack_from(original))
    fields[1] = BATCH_OVERHEAD - LOG_OVERHEAD + len(records)
    fields[5] = attributes
    fields[7] = base_timestamp
    fields[8] = max_timestamp
    fields[12] = count
    batch = bytearray(_V2.pack(*fields))
    batch += records
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)
