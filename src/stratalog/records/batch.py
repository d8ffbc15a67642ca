"""Record batches v2: header view, checks, record iteration, builder, patch in place; and the walk over any log.

Owns the layout of a v2 batch.  Every function takes a buffer and a position and keeps nothing; all may run on any
thread.  `read_header` and `batches` also understand entries of message sets v0 and v1 (`legacy` reads their records),
so that a mixed log is walked by one loop.

    0            8         12        16    17    21         23             27         35         43
    base offset  length    epoch     magic crc   attributes last off delta base time  max time   producer id
    int64        int32     int32     int8  uint32 int16     int32          int64      int64      int64
    51              53             57      61
    producer epoch  base sequence  count   records ...
    int16           int32          int32

`length` counts from byte 12 on; the CRC32C covers byte 21 to the end, so base offset and leader epoch are stamped
without a new CRC.

Not obvious: a batch that has been compacted keeps its last offset and sequences, so `count` may be smaller than
`last_offset_delta + 1`, and 0.  With the delete horizon bit, the base time field *is* the horizon, and the record
deltas count from it all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import crc32c as _crc32c

from stratalog.base import limits
from stratalog.base.types import MAX_INT32, MAX_INT64, Buffer
from stratalog.records.errors import CorruptBatch
from stratalog.records.varint import read_varint, read_varlong, varint_bytes

crc32c = _crc32c.crc32c

# --- layout ---------------------------------------------------------------------------------------------------------
LOG_OVERHEAD: Final = 12
"""Base offset and length: what `length` does not count, in every magic."""
HEADER_SIZE: Final = 61
HEADER_SIZE_UP_TO_MAGIC: Final = 17
LEGACY_SIZE_MIN: Final = (LOG_OVERHEAD + 14, LOG_OVERHEAD + 22)
"""The smallest entry of a message set, for magic 0 and 1: crc, magic, attributes, (timestamp), key and value length."""

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57
RECORDS_AT: Final = HEADER_SIZE
RECORD_BYTES_MIN: Final = 7
"""The smallest record: length, attributes, time, offset delta, key, value and headers, a byte each."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, epoch, magic, crc, attributes, last offset delta, base time, max time, producer id, producer
epoch, base sequence, count: the whole header in one call."""
START: Final = struct.Struct(">qiib")
"""base offset, length, epoch, magic."""
LEGACY: Final = struct.Struct(">qiIbbq")
"""offset, length, crc, magic, attributes, timestamp (v1 only; v0 has the key length there)."""
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
UINT32: Final = struct.Struct(">I")
INT64: Final = struct.Struct(">q")
_CRC_AND_ATTRIBUTES: Final = struct.Struct(">Ih")

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

CODEC_NONE: Final = 0
CODEC_GZIP: Final = 1
CODEC_SNAPPY: Final = 2
CODEC_LZ4: Final = 3
CODEC_ZSTD: Final = 4

NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Headers = Sequence[tuple[str, Buffer | None]]


class BatchHeader(NamedTuple):
    """One batch's header.  A tuple because it is made for every batch that passes, and nothing is cheaper.

    Also the view of one entry of a message set v0 or v1: there `base_offset` is the entry's own offset, which for a
    compressed wrapper is its *last* inner offset (the first one takes decompression, `legacy.first_offset`), and
    `count` is -1 for a wrapper.
    """

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a header

    @property
    def size(self) -> int:
        """The whole batch's bytes."""
        return self.length + LOG_OVERHEAD

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        if self.magic == 2 and self.attributes & DELETE_HORIZON_BIT:
            return self.base_timestamp
        return None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """-1 without a sequence; wraps from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


class Record:
    """One record, for whoever reads records one by one; the broker's data path does not."""

    __slots__ = ("headers", "key", "offset", "sequence", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        sequence: int = -1,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.sequence = sequence

    def _fields(self) -> tuple[object, ...]:
        return self.offset, self.timestamp, self.key, self.value, self.headers, self.sequence

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:  # no payload: this may reach a log
        return f"Record(offset={self.offset}, timestamp={self.timestamp})"


def add_to_sequence(sequence: int, increment: int) -> int:
    """A producer's sequence `increment` records on: it wraps from 2^31 - 1 to 0."""
    return (sequence + increment) & MAX_INT32


# --- reading --------------------------------------------------------------------------------------------------------
def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`.  Needs the header's bytes only, not the batch's; does not look at the CRC."""
    try:
        header = tuple.__new__(BatchHeader, (position, *HEADER.unpack_from(buffer, position)))
    except struct.error:
        return _read_short(buffer, position)
    if header[4] != 2:
        return _read_legacy(buffer, position)
    if header[2] < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"a batch of {header[2]} bytes is smaller than its header", position=position + LENGTH_AT)
    return header


def _read_short(buffer: Buffer, position: int) -> BatchHeader:
    """Fewer than 61 bytes are left: an entry of an old message set, or a header that is cut off."""
    if len(buffer) - position < HEADER_SIZE_UP_TO_MAGIC:
        raise CorruptBatch("a batch header is cut off", position=position)
    if buffer[position + MAGIC_AT] == 2:
        raise CorruptBatch("a batch header is cut off", position=position)
    return _read_legacy(buffer, position)


def _read_legacy(buffer: Buffer, position: int) -> BatchHeader:
    magic = buffer[position + MAGIC_AT]
    if magic > 1:
        raise CorruptBatch(f"unknown magic {magic}", position=position + MAGIC_AT)
    try:
        offset, length, crc, _, attributes, timestamp = LEGACY.unpack_from(buffer, position)
    except struct.error:
        raise CorruptBatch("a message header is cut off", position=position) from None
    if length < LEGACY_SIZE_MIN[magic] - LOG_OVERHEAD:
        raise CorruptBatch(f"a message of {length} bytes is smaller than its header", position=position + LENGTH_AT)
    if magic == 0:
        timestamp = -1
    count = -1 if attributes & CODEC_MASK else 1
    return BatchHeader(position, offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)


def batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """The headers of the batches in `buffer[start:end]`; stops before one that is cut off (`complete_bytes`)."""
    if end is None:
        end = len(buffer)
    position = start
    unpack = HEADER.unpack_from
    new = tuple.__new__
    end = min(end, len(buffer))
    while end - position >= HEADER_SIZE:
        header = new(BatchHeader, (position, *unpack(buffer, position)))
        length = header[2]
        if header[4] != 2 or length < HEADER_SIZE - LOG_OVERHEAD:
            if length > end - position - LOG_OVERHEAD:
                return
            header = read_header(buffer, position)
        elif length > end - position - LOG_OVERHEAD:
            return
        yield header
        position += length + LOG_OVERHEAD
    while end - position >= HEADER_SIZE_UP_TO_MAGIC:  # what is left is too short for a batch, not for a message
        length = INT32.unpack_from(buffer, position + LENGTH_AT)[0]
        if length > end - position - LOG_OVERHEAD:
            return
        header = read_header(buffer, position)
        yield header
        position += length + LOG_OVERHEAD


def complete_bytes(buffer: Buffer, start: int = 0, end: int | None = None) -> int:
    """How many bytes from `start` on are whole batches: the rest is a tail that is cut off."""
    position = start
    for header in batches(buffer, start, end):
        position = header.end
    return position - start


def crc_is_valid(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the whole batch is there and its CRC is right."""
    position = header.position
    end = position + header.length + LOG_OVERHEAD
    if end > len(buffer):
        return False
    if header.magic == 2:
        covered = memoryview(buffer)[position + ATTRIBUTES_AT : end]
        return bool(crc32c(covered) == header.crc)
    import zlib

    return zlib.crc32(memoryview(buffer)[position + MAGIC_AT : end]) == header.crc


def check(buffer: Buffer, header: BatchHeader) -> None:
    """Raises `CorruptBatch` with the reason unless the batch is whole, its fields make sense and its CRC is right."""
    position = header.position
    if header.end > len(buffer):
        raise CorruptBatch("a batch is cut off", position=position)
    if not crc_is_valid(buffer, header):
        raise CorruptBatch(
            "a batch has a wrong CRC", position=position + (CRC_AT if header.magic == 2 else LOG_OVERHEAD)
        )
    if header.codec > (CODEC_ZSTD if header.magic == 2 else CODEC_LZ4):
        raise CorruptBatch(f"unknown codec {header.codec}", position=position)
    if header.base_offset < 0:
        raise CorruptBatch(f"a batch has base offset {header.base_offset}", position=position)
    if header.last_offset_delta < 0 or header.base_offset > MAX_INT64 - header.last_offset_delta:
        raise CorruptBatch(
            f"a batch has last offset delta {header.last_offset_delta}", position=position + LAST_OFFSET_DELTA_AT
        )
    if header.magic == 2 and not 0 <= header.count <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"a batch claims {header.count} records and last offset delta {header.last_offset_delta}",
            position=position + COUNT_AT,
        )


def payload(buffer: Buffer, header: BatchHeader) -> memoryview:
    """The batch's records as they stand, compressed or not."""
    return memoryview(buffer)[header.position + HEADER_SIZE : header.end]


def unpacked(buffer: Buffer, header: BatchHeader) -> Buffer:
    """The batch's records, decompressed under the limits where they are compressed."""
    data = payload(buffer, header)
    codec = header.attributes & CODEC_MASK
    if codec == CODEC_NONE:
        return data
    from stratalog.records.compression import decompress

    return decompress(codec, data)


def records_of(buffer: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records of a batch of any magic, one object each.  Does not look at the CRC."""
    if header.magic < 2:
        from stratalog.records.legacy import legacy_records_of

        return legacy_records_of(buffer, header)
    return _records_of(buffer, header)


def _records_of(buffer: Buffer, header: BatchHeader) -> Iterator[Record]:
    if header.end > len(buffer):
        raise CorruptBatch("a batch is cut off", position=header.position)
    if header.count < 0:
        raise CorruptBatch(f"a batch claims {header.count} records", position=header.position + COUNT_AT)
    plain = unpacked(buffer, header)
    data = plain if isinstance(plain, bytes) else bytes(plain)  # slices of bytes cost a third of a memoryview's
    count = header.count
    end = len(data)
    if count > end // RECORD_BYTES_MIN:
        raise CorruptBatch(f"a batch of {end} bytes claims {count} records", position=header.position)
    base_offset, last_delta = header.base_offset, header.last_offset_delta
    base_time, base_sequence = header.base_timestamp, header.base_sequence
    stamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    sequence = -1
    position = 0
    for _ in range(count):
        # The one-byte case of each varint is written out.  Reading past this record's end, into the next one, is found
        # at the end, where the fields must have filled the record's length; past the data it is an IndexError.
        start = position
        try:
            length = data[position]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = read_varint(data, position, end)
            stop = position + length
            if length < 6 or stop > end or length > limits.RECORD_DECOMPRESSED_BYTES_MAX:
                what = "is too large" if 6 <= length <= end - position else "does not fit"
                raise CorruptBatch(f"a record of {length} bytes {what}", position=start)
            position += 1  # attributes, unused
            timestamp = data[position]
            if timestamp < 0x80:
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
                position += 1
            else:
                timestamp, position = read_varlong(data, position, stop)
            delta = data[position]
            if delta < 0x80:
                delta = (delta >> 1) ^ -(delta & 1)
                position += 1
            else:
                delta, position = read_varint(data, position, stop)
            length = data[position]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = read_varint(data, position, stop)
            key = value = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            elif length != -1:
                raise CorruptBatch(f"a key claims {length} bytes", position=start)
            length = data[position]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = read_varint(data, position, stop)
            if length >= 0:
                value = data[position : position + length]
                position += length
            elif length != -1:
                raise CorruptBatch(f"a value claims {length} bytes", position=start)
            number = data[position]
            position += 1
        except IndexError:
            raise CorruptBatch("a record is cut off", position=start) from None
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if number:
            number, position = read_varint(data, position - 1, stop)
            headers, position = _read_headers(data, position, stop, number)
        if position != stop:
            raise CorruptBatch("a record's length does not fit its fields", position=start)
        if stamp is None:
            timestamp += base_time
            if not -MAX_INT64 <= timestamp <= MAX_INT64:
                raise CorruptBatch("a record's timestamp overflows", position=start)
        else:
            timestamp = stamp
        if not 0 <= delta <= last_delta:
            raise CorruptBatch(f"a record has offset delta {delta}", position=start)
        if base_sequence >= 0:
            sequence = (base_sequence + delta) & MAX_INT32
        yield Record(base_offset + delta, timestamp, key, value, headers, sequence)
    if position != end:
        raise CorruptBatch(f"{end - position} bytes are left behind the last record", position=position)


def _read_bytes(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, end)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a field claims {length} bytes", position=position)
        return None, position
    stop = position + length
    if stop > end:
        raise CorruptBatch(f"a field of {length} bytes is cut off", position=position)
    return bytes(data[position:stop]), stop


def _read_headers(
    data: Buffer, position: int, end: int, number: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if not 0 <= number <= (end - position) // 2 or number > limits.HEADERS_PER_RECORD_MAX:
        raise CorruptBatch(f"a record claims {number} headers", position=position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(number):
        at = position
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptBatch("a header has no key", position=at)
        value, position = _read_bytes(data, position, end)
        headers.append((header_key(name), value))
    return tuple(headers), position


def header_key(raw: bytes) -> str:
    """A header's key as text.  Some clients write any bytes there, and a broker does not look: what is not UTF-8
    becomes U+FFFD, as Java's clients read it, so that one such record does not close a log to its readers.  (Half a
    surrogate pair is one of them in Java and three here.)"""
    return raw.decode("utf-8", "replace")


# --- patching -------------------------------------------------------------------------------------------------------
def patch(
    buffer: bytearray | memoryview,
    position: int,
    *,
    base_offset: int | None = None,
    leader_epoch: int | None = None,
    max_timestamp: int | None = None,
    timestamp_type: int | None = None,
) -> None:
    """Stamps fields of the v2 batch at `position` in a writable buffer.  A new CRC is computed only when a field that
    it covers changes: not for base offset and leader epoch.  Entries of magic 0 and 1: `legacy.patch`."""
    if base_offset is not None:
        INT64.pack_into(buffer, position, base_offset)
    if leader_epoch is not None:
        INT32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)
    if max_timestamp is None and timestamp_type is None:
        return
    crc, attributes = _CRC_AND_ATTRIBUTES.unpack_from(buffer, position + CRC_AT)
    changed = False
    if timestamp_type is not None:
        wanted = attributes | TIMESTAMP_TYPE_BIT if timestamp_type else attributes & ~TIMESTAMP_TYPE_BIT
        if wanted != attributes:
            INT16.pack_into(buffer, position + ATTRIBUTES_AT, wanted)
            changed = True
    if max_timestamp is not None and INT64.unpack_from(buffer, position + MAX_TIMESTAMP_AT)[0] != max_timestamp:
        INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp)
        changed = True
    if changed:
        end = position + LOG_OVERHEAD + INT32.unpack_from(buffer, position + LENGTH_AT)[0]
        crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])
        UINT32.pack_into(buffer, position + CRC_AT, crc)


# --- building -------------------------------------------------------------------------------------------------------
def attributes_of(
    *,
    codec: int = CODEC_NONE,
    timestamp_type: int = CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    """The attributes field."""
    return (
        codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon else 0)
    )


def encode_record(
    offset_delta: int, time_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> bytes:
    """One record as it stands in a v2 batch, its length in front."""
    parts: list[Buffer] = [b"\x00", varint_bytes(time_delta), varint_bytes(offset_delta)]
    if key is None:
        parts.append(b"\x01")
    else:
        parts += (varint_bytes(len(key)), key)
    if value is None:
        parts.append(b"\x01")
    else:
        parts += (varint_bytes(len(value)), value)
    if headers:
        parts.append(varint_bytes(len(headers)))
        for name, content in headers:
            raw = name.encode("utf-8")
            parts += (varint_bytes(len(raw)), raw)
            if content is None:
                parts.append(b"\x01")
            else:
                parts += (varint_bytes(len(content)), content)
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    return varint_bytes(len(body)) + body


class BatchBuilder:
    """Collects records and writes one v2 batch.  Offsets run on from `base_offset` unless given; the base timestamp
    is the first record's, as Kafka's own builder has it, or the delete horizon."""

    __slots__ = (
        "_attributes",
        "_body",
        "_codec",
        "_count",
        "_first_timestamp",
        "_horizon",
        "_last_offset",
        "_level",
        "_max_timestamp",
        "base_offset",
        "base_sequence",
        "leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        codec: int = CODEC_NONE,
        level: int | None = None,
        timestamp_type: int = CREATE_TIME,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self._codec = codec
        self._level = level
        self._attributes = attributes_of(
            codec=codec,
            timestamp_type=timestamp_type,
            transactional=transactional,
            control=control,
            delete_horizon=delete_horizon_ms is not None,
        )
        self._horizon = delete_horizon_ms
        self._body = bytearray()
        self._count = 0
        self._first_timestamp = -1 if delete_horizon_ms is None else delete_horizon_ms
        self._max_timestamp = -1
        self._last_offset = base_offset - 1

    @property
    def count(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The batch's bytes before compression."""
        return HEADER_SIZE + len(self._body)

    @property
    def next_offset(self) -> int:
        return self._last_offset + 1

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Adds a record; the size that the batch has now, before compression."""
        if offset is None:
            offset = self._last_offset + 1
        assert offset > self._last_offset
        if not self._count and self._horizon is None:
            self._first_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        body = self._body
        body += encode_record(offset - self.base_offset, timestamp - self._first_timestamp, key, value, headers)
        self._last_offset = offset
        self._count += 1
        return HEADER_SIZE + len(body)

    def build(self, *, last_offset: int | None = None, max_timestamp: int | None = None) -> bytearray:
        """The batch, writable so that it can be patched.  `last_offset` keeps an offset that compaction emptied."""
        last = self._last_offset if last_offset is None else last_offset
        records: Buffer = self._body
        if self._codec != CODEC_NONE:
            from stratalog.records.compression import compress

            records = compress(self._codec, records, self._level)
        return assemble(
            records,
            base_offset=self.base_offset,
            last_offset_delta=last - self.base_offset,
            count=self._count,
            attributes=self._attributes,
            base_timestamp=self._first_timestamp,
            max_timestamp=self._max_timestamp if max_timestamp is None else max_timestamp,
            leader_epoch=self.leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )


def assemble(
    records: Buffer,
    *,
    base_offset: int,
    last_offset_delta: int,
    count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A v2 batch around records that are encoded, and compressed as `attributes` say; computes the CRC."""
    batch = bytearray(HEADER_SIZE + len(records))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch[HEADER_SIZE:] = records
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def build_batch(
    records: Iterable[Record | tuple[int, Buffer | None, Buffer | None]],
    *,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    codec: int = CODEC_NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of `Record`s (whose offsets are kept, the first one's is the base unless given) or of
    `(timestamp, key, value)` triples (whose offsets run on from `base_offset`)."""
    builder: BatchBuilder | None = None
    for record in records:
        if builder is None:
            if base_offset is None:
                base_offset = record.offset if isinstance(record, Record) else 0
            builder = BatchBuilder(
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                codec=codec,
                level=level,
                timestamp_type=timestamp_type,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                transactional=transactional,
                control=control,
                delete_horizon_ms=delete_horizon_ms,
            )
        if isinstance(record, Record):
            builder.append(record.timestamp, record.key, record.value, record.headers, offset=record.offset)
        else:
            timestamp, key, value = record
            builder.append(timestamp, key, value)
    assert builder is not None, "a batch of no records is `empty_batch`"
    return builder.build()


def build_control_batch(
    timestamp: int,
    key: Buffer,
    value: Buffer,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A control batch with its one record; `control` makes keys and values.  Transaction markers are transactional,
    the quorum's leader change and snapshot records are not."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )
    builder.append(timestamp, key, value)
    return builder.build()


def empty_batch(header: BatchHeader) -> bytearray:
    """What the cleaner keeps of a batch whose records are all gone, so that its producer's state survives: the
    header with its offsets and sequences, no records."""
    attributes = header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return assemble(
        b"",
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        count=0,
        attributes=attributes,
        base_timestamp=-1,
        max_timestamp=header.max_timestamp,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
