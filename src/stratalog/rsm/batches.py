"""Batches of a state machine's log: building one, and replaying many quickly.

Pure functions, any thread.  The walk is written for loading: uncompressed batches of small records, no object but the
`Logged` tuple for each record, one CRC for each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from stratalog.base.types import Millis
from stratalog.records import batch as v2
from stratalog.records.control import ABORT, COMMIT, marker_of
from stratalog.records.errors import CorruptBatch
from stratalog.records.varint import read_varint, read_varlong
from stratalog.rsm.shard import Logged, Record

if TYPE_CHECKING:
    from stratalog.rsm.shard import Shard

__all__ = ["ABORT", "COMMIT", "build", "chunks", "replay_into"]

CHUNK_BYTES: Final = 256 << 10
"""Keys and values of one batch of many: a quarter of the smallest usual `max.message.bytes`."""


def build(records: Sequence[Record], timestamp_ms: Millis) -> bytearray:
    """One uncompressed batch, as a coordinator of Kafka writes it: every record has the time of the write.  Writable,
    because the log stamps offsets and epoch in place."""
    builder = v2.BatchBuilder()
    append = builder.append
    for key, value in records:
        append(timestamp_ms, key, value)
    return builder.build()


def chunks(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """The records in runs that each fit a batch."""
    first = size = 0
    for index, (key, value) in enumerate(records):
        length = len(key) + len(value or b"") + 16
        if size and size + length > CHUNK_BYTES:
            yield records[first:index]
            first, size = index, 0
        size += length
    yield records[first:]


def replay_into(shard: Shard, data: bytes, from_offset: int) -> tuple[int, int]:
    """Replay the whole batches in `data`, leaving out what is before `from_offset`.

    Returns the offset that follows, and how many records were replayed.  Batches that compaction emptied or that lie
    before a gap (C16) only move the offset on.
    """
    next_offset = from_offset
    count = 0
    run: list[Logged] = []
    for header in v2.batches(data):
        v2.check(data, header)
        if header.last_offset < from_offset:
            continue
        next_offset = header.next_offset
        if header.is_control:
            marker = marker_of(data, header) if header.count else None
            if marker is not None and header.producer_id >= 0:
                shard.replay_many(run)
                run = []
                shard.replay_end_of_transaction(header.producer_id, marker.committed)
            continue
        before = len(run)
        if header.magic == 2:
            _walk(data, header, from_offset, run)
        else:
            run += [
                Logged(record.offset, record.key, record.value)
                for record in v2.records_of(data, header)
                if record.key is not None and record.offset >= from_offset
            ]
        count += len(run) - before
    shard.replay_many(run)
    return next_offset, count


def _walk(data: bytes, header: v2.BatchHeader, from_offset: int, run: list[Logged]) -> None:
    """Append the batch's records to `run`.  Records without a key mean nothing in a compacted log and are left out."""
    body = v2.unpacked(data, header)
    if not isinstance(body, bytes):
        body = bytes(body)
    base = header.base_offset
    producer_id = header.producer_id if header.is_transactional else -1
    end = len(body)
    position = 0
    make = Logged._make
    try:
        for _ in range(header.count):
            # A varint of one byte is nearly every one here: take it inline, call for the rest.
            length = body[position]
            position += 1
            if length < 0x80:
                length >>= 1
            else:
                length, position = read_varint(body, position - 1, end)
            stop = position + length
            if length < 6 or stop > end:
                raise CorruptBatch(f"a record claims {length} bytes", position=position)
            position += 1  # attributes
            if body[position] < 0x80:
                position += 1
            else:
                _, position = read_varlong(body, position, stop)
            delta = body[position]
            position += 1
            if delta < 0x80:
                delta >>= 1
            else:
                delta, position = read_varint(body, position - 1, stop)
            key_length, position = read_varint(body, position, stop)
            if key_length < 0:
                position = stop
                continue
            key = body[position : position + key_length]
            position += key_length
            value_length, position = read_varint(body, position, stop)
            value = None if value_length < 0 else body[position : position + value_length]
            if position + max(value_length, 0) >= stop:  # the header count has at least one byte
                raise CorruptBatch("a record's fields are longer than the record", position=position)
            position = stop
            if base + delta >= from_offset:
                run.append(make((base + delta, key, value, producer_id)))
    except IndexError:
        raise CorruptBatch("a record is cut off", position=position) from None
    if position != end:
        raise CorruptBatch(f"{end - position} bytes are left behind the last record", position=position)
