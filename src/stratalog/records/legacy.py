"""Message sets v0 and v1: entries with a CRC32 each, compression as a wrapper around a nested set.

    0        8        12      16     17          18 (v0)            18 (v1)    26 (v1)
    offset   length   crc32   magic  attributes  key, value         timestamp  key, value
    int64    int32    uint32  int8   int8        bytes, bytes       int64      bytes, bytes

`bytes` have an int32 length in front, -1 for null.  A wrapper's value is a compressed set of uncompressed entries
(depth 1 only); its own offset is the *last* record's.  In v0 the nested entries have absolute offsets, in v1 relative
ones: the last one is the wrapper's, the others lie before it by the difference.

Free functions, any thread.  Reading a whole entry's header as a `BatchHeader` is in `batch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from stratalog.base import limits
from stratalog.base.types import MAX_INT64, Buffer
from stratalog.records.batch import (
    CODEC_LZ4,
    CODEC_MASK,
    CODEC_NONE,
    CREATE_TIME,
    INT32,
    INT64,
    LEGACY_SIZE_MIN,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    TIMESTAMP_TYPE_BIT,
    UINT32,
    BatchHeader,
    Record,
)
from stratalog.records.compression import compress, decompress, require_supported
from stratalog.records.errors import CorruptBatch, TooLarge

ENTRY_V0: Final = struct.Struct(">qiIbb")
"""offset, length, crc, magic, attributes."""
ENTRY_V1: Final = struct.Struct(">qiIbbq")
"""offset, length, crc, magic, attributes, timestamp."""
KEY_AT: Final = (ENTRY_V0.size, ENTRY_V1.size)
"""Where the key's length stands, for magic 0 and 1."""
CRC_AT: Final = LOG_OVERHEAD
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18


# --- reading --------------------------------------------------------------------------------------------------------
def key_and_value(buffer: Buffer, header: BatchHeader) -> tuple[memoryview | None, memoryview | None]:
    """The entry's own key and value; a wrapper's value is its compressed set."""
    position = header.position
    end = header.end
    if end > len(buffer):
        raise CorruptBatch("a message is cut off", position=position)
    view = memoryview(buffer)
    at = position + KEY_AT[header.magic]
    key, at = _field(view, at, end)
    value, at = _field(view, at, end)
    if at != end:
        raise CorruptBatch("a message's length does not fit its fields", position=position)
    return key, value


def _field(view: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    if end - position < 4:
        raise CorruptBatch("a message is cut off", position=position)
    length = INT32.unpack_from(view, position)[0]
    position += 4
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch(f"a field claims {length} bytes", position=position)
    return view[position : position + length], position + length


def legacy_records_of(buffer: Buffer, header: BatchHeader, *, produced: bool = False) -> Iterator[Record]:
    """The records of one entry: itself, or the nested set of a wrapper.  `produced`: as a broker reads what a client
    sent, the nested CRCs checked and the offsets not, because producers of that age write what they like there."""
    if header.attributes & CODEC_MASK == CODEC_NONE:
        key, value = key_and_value(buffer, header)
        yield Record(header.base_offset, header.max_timestamp, _bytes(key), _bytes(value))
        return
    data, base, end = nested(buffer, header)
    stamp = header.max_timestamp if header.magic == 1 and header.attributes & TIMESTAMP_TYPE_BIT else None
    position = 0
    while position < end:
        inner = nested_header(data, position, end, header.magic)
        if produced and zlib.crc32(memoryview(data)[position + MAGIC_AT : inner.end]) != inner.crc:
            raise CorruptBatch("a nested message has a wrong CRC", position=position + CRC_AT)
        key, value = key_and_value(data, inner)
        offset = inner.base_offset + base
        if not produced and not 0 <= offset <= MAX_INT64:
            raise CorruptBatch(f"a nested message has offset {inner.base_offset}", position=position)
        yield Record(offset, inner.max_timestamp if stamp is None else stamp, _bytes(key), _bytes(value))
        position = inner.end


def _bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def nested(buffer: Buffer, header: BatchHeader) -> tuple[Buffer, int, int]:
    """A wrapper's nested set, decompressed under the limits: (bytes, what to add to the offsets in it, their end)."""
    codec = header.attributes & CODEC_MASK
    if codec > CODEC_LZ4:
        raise CorruptBatch(f"codec {codec} in a message of magic {header.magic}", position=header.position)
    _, value = key_and_value(buffer, header)
    if value is None:
        raise CorruptBatch("a compressed message has no value", position=header.position)
    data = decompress(codec, value, broken_lz4=header.magic == 0)
    end = len(data)
    if header.magic == 0:
        if not end:
            raise CorruptBatch("a compressed message holds no records", position=header.position)
        return data, 0, end
    last = -1
    position = 0
    while position < end:
        inner = nested_header(data, position, end, 1)
        last = inner.base_offset
        position = inner.end
    if position == 0:
        raise CorruptBatch("a compressed message holds no records", position=header.position)
    if header.base_offset == 0:  # some versions of librdkafka left the wrapper's offset empty when producing
        return data, 0, end
    if last > header.base_offset:
        raise CorruptBatch(
            f"a wrapper has offset {header.base_offset} and its last message {last}", position=header.position
        )
    return data, header.base_offset - last, end


def nested_header(data: Buffer, position: int, end: int, magic: int) -> BatchHeader:
    """One entry of a nested set, of the wrapper's magic and not compressed itself."""
    if end - position < LEGACY_SIZE_MIN[0]:
        raise CorruptBatch("a nested message is cut off", position=position)
    if data[position + MAGIC_AT] != magic:
        raise CorruptBatch(f"magic {data[position + MAGIC_AT]} inside of magic {magic}", position=position)
    if end - position < LEGACY_SIZE_MIN[magic]:
        raise CorruptBatch("a nested message is cut off", position=position)
    timestamp = -1
    if magic == 0:
        offset, length, crc, _, attributes = ENTRY_V0.unpack_from(data, position)
    else:
        offset, length, crc, _, attributes, timestamp = ENTRY_V1.unpack_from(data, position)
    if not LEGACY_SIZE_MIN[magic] - LOG_OVERHEAD <= length <= end - position - LOG_OVERHEAD:
        raise CorruptBatch(f"a nested message claims {length} bytes", position=position)
    if attributes & CODEC_MASK:
        raise CorruptBatch("a nested message is compressed itself", position=position)
    return BatchHeader(position, offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def first_offset(buffer: Buffer, header: BatchHeader) -> int:
    """The offset of an entry's first record; decompresses a wrapper."""
    if header.attributes & CODEC_MASK == CODEC_NONE:
        return header.base_offset
    data, base, end = nested(buffer, header)
    return base + nested_header(data, 0, end, header.magic).base_offset


# --- patching -------------------------------------------------------------------------------------------------------
def patch(
    buffer: bytearray | memoryview,
    position: int,
    *,
    last_offset: int | None = None,
    timestamp: int | None = None,
    timestamp_type: int | None = None,
) -> None:
    """Stamps the entry at `position`.  The offset is not covered by the CRC; the time fields (v1 only) are."""
    if last_offset is not None:
        INT64.pack_into(buffer, position, last_offset)
    if timestamp is None and timestamp_type is None:
        return
    _, length, _, magic, attributes, current = ENTRY_V1.unpack_from(buffer, position)
    assert magic == 1
    wanted = attributes
    if timestamp_type is not None:
        wanted = (attributes | TIMESTAMP_TYPE_BIT) if timestamp_type else (attributes & ~TIMESTAMP_TYPE_BIT)
    if wanted == attributes and (timestamp is None or timestamp == current):
        return
    buffer[position + ATTRIBUTES_AT] = wanted & 0xFF
    if timestamp is not None:
        INT64.pack_into(buffer, position + TIMESTAMP_AT, timestamp)
    crc = zlib.crc32(memoryview(buffer)[position + MAGIC_AT : position + LOG_OVERHEAD + length])
    UINT32.pack_into(buffer, position + CRC_AT, crc)


# --- building -------------------------------------------------------------------------------------------------------
def encode_entry(
    magic: int,
    offset: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    codec: int = CODEC_NONE,
    timestamp_type: int = CREATE_TIME,
) -> bytearray:
    """One entry of a message set, with its CRC."""
    start = KEY_AT[magic]
    size = start + 8 + (0 if key is None else len(key)) + (0 if value is None else len(value))
    entry = bytearray(size)
    if magic == 0:
        ENTRY_V0.pack_into(entry, 0, offset, size - LOG_OVERHEAD, 0, 0, codec)
    else:
        attributes = codec | (TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        ENTRY_V1.pack_into(entry, 0, offset, size - LOG_OVERHEAD, 0, 1, attributes, timestamp)
    for field in (key, value):
        length = -1 if field is None else len(field)
        INT32.pack_into(entry, start, length)
        start += 4
        if field is not None:
            entry[start : start + length] = field
            start += length
    UINT32.pack_into(entry, CRC_AT, zlib.crc32(memoryview(entry)[MAGIC_AT:]))
    return entry


def build_message_set(
    records: Iterable[Record],
    magic: int,
    *,
    codec: int = CODEC_NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int = -1,
) -> bytearray:
    """A message set of the records with their offsets, one wrapper around all where there is a codec.  Headers,
    producers and transactions have no place in it.  `log_append_time` is every record's time when the type says so."""
    assert magic in (0, 1)
    require_supported(codec, magic=magic)
    out = bytearray()
    base = last = highest = -1
    stamped = timestamp_type == LOG_APPEND_TIME and magic == 1
    for record in records:
        if base < 0:
            base = record.offset
        if record.offset <= last:  # they come out of a log, where a damaged batch may hold anything
            raise CorruptBatch(f"offset {record.offset} follows offset {last}")
        last = record.offset
        timestamp = log_append_time if stamped else record.timestamp
        highest = max(highest, timestamp)
        offset = last - base if magic == 1 and codec else last
        out += encode_entry(magic, offset, timestamp, record.key, record.value, timestamp_type=timestamp_type)
        if len(out) > limits.BATCH_DECOMPRESSED_BYTES_MAX:
            raise TooLarge(f"a message set of more than {limits.BATCH_DECOMPRESSED_BYTES_MAX} bytes")
    if codec == CODEC_NONE or not out:
        return out
    packed = compress(codec, out, level, broken_lz4=magic == 0)
    if len(packed) > limits.FRAME_BYTES_MAX:
        raise CorruptBatch("a message set is too large for one wrapper")
    return encode_entry(magic, last, highest, None, packed, codec=codec, timestamp_type=timestamp_type)
