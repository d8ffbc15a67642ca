"""From Arrow columns to record batches, and rows to partitions: what both kinds of write share.

The kernels go over the columns' buffers as they are; no Python object is made for a row, unless it has headers.  The
twins are `records.batch.encode_record` and `client.partitioner`, and property tests hold them equal.  Imports Numba:
only tasks that write import this.  Stateless but for `Pending`, which belongs to its task.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, no-warn-return-any

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from stratalog.records.batch import assemble, encode_record

RECORD_OVERHEAD_MAX: Final = 40
"""Bytes of a record around key and value without headers: length 5, attributes 1, times 10, offset 5, two lengths 10,
headers 1, and some to spare."""

_kernel: Any = njit(cache=True, nogil=True, boundscheck=False)


class Column(NamedTuple):
    """A binary column as the kernels want it."""

    offsets: Any
    data: Any
    valid: Any


def column_of(array: Any, rows: int) -> Column:
    """The buffers of an Arrow column of bytes or text; a column of nulls for None."""
    import pyarrow as pa

    if array is None:
        return Column(np.zeros(rows + 1, np.int32), np.zeros(1, np.uint8), np.zeros(rows, np.bool_))
    if array.type not in (pa.binary(), pa.string()):
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    numbers = np.frombuffer(offsets, np.int32)[array.offset : array.offset + rows + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    else:
        valid = np.ones(rows, np.bool_)
    return Column(numbers, content, valid)


def partitions_of(keys: Column, values: Column, partitions: int) -> Any:
    """Where each row goes: by its key as Java's producer sends it; without a key by its value, so that a row goes to
    the same place however often and in whatever order it is written."""
    out = np.empty(len(keys.valid), np.int32)
    _route(keys.offsets, keys.data, keys.valid, values.offsets, values.data, values.valid, partitions, out)
    return out


@_kernel
def _murmur2(data, start, stop):
    mask = 0xFFFFFFFF
    length = stop - start
    h = (0x9747B28C ^ length) & mask
    place = start
    while place + 4 <= stop:
        k = (
            np.int64(data[place])
            | np.int64(data[place + 1]) << 8
            | np.int64(data[place + 2]) << 16
            | np.int64(data[place + 3]) << 24
        )
        k = (k * 0x5BD1E995) & mask
        k ^= k >> 24
        k = (k * 0x5BD1E995) & mask
        h = (h * 0x5BD1E995) & mask
        h ^= k
        place += 4
    if place < stop:
        shift = 0
        while place < stop:
            h ^= np.int64(data[place]) << shift
            shift += 8
            place += 1
        h = (h * 0x5BD1E995) & mask
    h ^= h >> 13
    h = (h * 0x5BD1E995) & mask
    h ^= h >> 15
    return h


@_kernel
def _route(key_offsets, key_data, key_valid, value_offsets, value_data, value_valid, partitions, out):
    for row in range(len(out)):
        if key_valid[row]:
            h = _murmur2(key_data, np.int64(key_offsets[row]), np.int64(key_offsets[row + 1]))
        elif value_valid[row]:
            h = _murmur2(value_data, np.int64(value_offsets[row]), np.int64(value_offsets[row + 1]))
        else:
            h = np.int64(0)
        out[row] = (h & 0x7FFFFFFF) % partitions


def hashes_of(keys: Column, values: Column) -> Any:
    """A hash of 64 bits of each row's key and value (Murmur's, a null is not an empty one), for counting equal rows."""
    out = np.empty(len(keys.valid), np.int64)
    _hash_rows(keys.offsets, keys.data, keys.valid, values.offsets, values.data, values.valid, out)
    return out


@_kernel
def _hash_part(h, data, start, stop):
    factor = np.uint64(0xC6A4A7935BD1E995)
    shift = np.uint64(47)
    h = (h ^ np.uint64(stop - start + 1)) * factor
    place = start
    while place < stop:
        word = np.uint64(0)
        for i in range(min(8, stop - place)):
            word |= np.uint64(data[place + i]) << np.uint64(8 * i)
        word *= factor
        word ^= word >> shift
        h = (h ^ word * factor) * factor
        place += 8
    return h ^ h >> shift


@_kernel
def _hash_rows(key_offsets, key_data, key_valid, value_offsets, value_data, value_valid, out):
    for row in range(len(out)):
        h = np.uint64(0x9747B28C)
        if key_valid[row]:
            h = _hash_part(h, key_data, np.int64(key_offsets[row]), np.int64(key_offsets[row + 1]))
        h = (h ^ h >> np.uint64(29)) * np.uint64(0x9FB21C651E98DF25)
        if value_valid[row]:
            h = _hash_part(h, value_data, np.int64(value_offsets[row]), np.int64(value_offsets[row + 1]))
        out[row] = np.int64(h ^ h >> np.uint64(32))


@_kernel
def _zigzag_size(value):
    left = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while left >= np.uint64(0x80):
        left >>= np.uint64(7)
        size += 1
    return size


@_kernel
def _put_zigzag(out, place, value):
    left = np.uint64((value << 1) ^ (value >> 63))
    while left >= np.uint64(0x80):
        out[place] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        left >>= np.uint64(7)
        place += 1
    out[place] = np.uint8(left)
    return place + 1


@_kernel
def _fill(
    rows, first, key_offsets, key_data, key_valid, value_offsets, value_data, value_valid, stamps, base, out, place,
    limit, count,
):  # fmt: skip
    """Encode rows from `first` on until the output is full: (next row, place, records in the batch)."""
    for index in range(first, len(rows)):
        row = rows[index]
        has_key, has_value = key_valid[row], value_valid[row]
        key_size = np.int64(key_offsets[row + 1] - key_offsets[row]) if has_key else np.int64(-1)
        value_size = np.int64(value_offsets[row + 1] - value_offsets[row]) if has_value else np.int64(-1)
        delta = stamps[row] - base
        body = (
            2 + _zigzag_size(delta) + _zigzag_size(np.int64(count)) + _zigzag_size(key_size)
            + _zigzag_size(value_size) + max(key_size, 0) + max(value_size, 0)
        )  # fmt: skip
        total = body + _zigzag_size(np.int64(body))
        if place + total > limit:
            return index, place, count
        place = _put_zigzag(out, place, np.int64(body))
        out[place] = 0
        place = _put_zigzag(out, place + 1, delta)
        place = _put_zigzag(out, place, np.int64(count))
        place = _put_zigzag(out, place, key_size)
        if has_key:
            start = np.int64(key_offsets[row])
            for i in range(key_size):
                out[place + i] = key_data[start + i]
            place += key_size
        place = _put_zigzag(out, place, value_size)
        if has_value:
            start = np.int64(value_offsets[row])
            for i in range(value_size):
                out[place + i] = value_data[start + i]
            place += value_size
        out[place] = 0
        place += 1
        count += 1
    return len(rows), place, count


class Pending:
    """The batch that is being filled for one partition."""

    __slots__ = ("_limit", "_out", "base", "count", "latest", "size")

    def __init__(self, batch_bytes: int) -> None:
        self._limit = batch_bytes
        self._out = np.empty(batch_bytes, np.uint8)
        self.count = 0
        self.size = 0
        self.base = 0
        self.latest = 0

    def fill(self, rows: Any, first: int, keys: Column, values: Column, stamps: Any) -> int:
        """Take rows from `first` on; the first one that did not fit, which then begins the next batch."""
        if not self.count:
            self.base = self.latest = int(stamps[rows[first]])
        following, self.size, self.count = _fill(
            rows, first, keys.offsets, keys.data, keys.valid, values.offsets, values.data, values.valid, stamps,
            self.base, self._out, self.size, self._limit, self.count,
        )  # fmt: skip
        if following == first and not self.count:
            row = rows[first]
            needed = int(keys.offsets[row + 1] - keys.offsets[row]) + int(values.offsets[row + 1] - values.offsets[row])
            self._out = np.empty(needed + RECORD_OVERHEAD_MAX, np.uint8)
            self._limit, limit = len(self._out), self._limit
            following = self.fill(rows[: first + 1], first, keys, values, stamps)
            self._limit = limit
            assert following == first + 1, "the record has room now"
        if following > first:
            self.latest = max(self.latest, int(stamps[rows[first:following]].max()))
        return int(following)

    def add(self, key: bytes | None, value: bytes | None, stamp: int, headers: Any) -> bool:
        """Take one record with headers; False where the batch is full."""
        if not self.count:
            self.base = self.latest = stamp
        record = encode_record(self.count, stamp - self.base, key, value, headers)
        end = self.size + len(record)
        if end > self._limit and self.count:
            return False
        if end > len(self._out):
            self._out = np.empty(end, np.uint8)
        self._out[self.size : end] = np.frombuffer(record, np.uint8)
        self.size = end
        self.count += 1
        self.latest = max(self.latest, stamp)
        return True

    def take(
        self,
        *,
        codec: int,
        level: int | None,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        sequence: int = -1,
    ) -> bytearray:
        """The batch, and begin the next one."""
        records: Any = memoryview(self._out)[: self.size]  # type: ignore[arg-type]
        if codec:
            from stratalog.records.compression import compress

            records = compress(codec, records, level)
        made = assemble(
            records,
            base_offset=base_offset,
            last_offset_delta=self.count - 1,
            count=self.count,
            attributes=codec,
            base_timestamp=self.base,
            max_timestamp=self.latest,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        self.count = self.size = 0
        if len(self._out) > self._limit:
            self._out = np.empty(self._limit, np.uint8)
        return made


def grouped(partitions: Any, rows: Any) -> list[tuple[int, Any]]:
    """The rows of each partition, in their order."""
    if not len(rows):
        return []
    chosen = partitions[rows]
    order = np.argsort(chosen, kind="stable")
    ordered = chosen[order]
    edges = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(ordered)]
    return [
        (int(ordered[edges[i]]), rows[order[edges[i] : edges[i + 1]]].astype(np.int64)) for i in range(len(edges) - 1)
    ]
