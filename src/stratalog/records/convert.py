"""Conversion among v0, v1 and v2: what an old client sends becomes a batch, what it fetches becomes a message set.

Down: headers, producers and sequences have no place in a message set and are dropped, control batches are left out
whole, offsets stay.  Batches that are old enough already pass as they are.  Up: timestamps of v0 stay "none" (-1).
Free functions, any thread; record by record, because only old clients pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stratalog.base import limits
from stratalog.base.types import Buffer
from stratalog.records.batch import (
    CODEC_NONE,
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchBuilder,
    BatchHeader,
    Record,
    batches,
    records_of,
)
from stratalog.records.compression import require_supported
from stratalog.records.errors import TooLarge
from stratalog.records.legacy import build_message_set


def down_convert(
    buffer: Buffer, to_magic: int, *, first_offset: int = 0, start: int = 0, end: int | None = None
) -> bytearray:
    """The batches of `buffer[start:end]` in the format of an old client, without the records below `first_offset`
    where a batch has to be opened anyway.  A batch that is cut off is left out.

    `InvalidBatch(UNSUPPORTED_COMPRESSION_TYPE)` for zstd, which no client of that age can read; `TooLarge` for a batch
    with more records than `limits.RECORDS_OPENED_MAX`, or whose message set would outgrow a batch's limit.
    """
    assert to_magic in (0, 1)
    out = bytearray()
    for header in batches(buffer, start, end):
        if header.magic <= to_magic:
            out += memoryview(buffer)[header.position : header.end]
        elif not header.is_control:
            out += _down(buffer, header, to_magic, first_offset)
    return out


def _down(buffer: Buffer, header: BatchHeader, to_magic: int, first_offset: int) -> bytearray:
    require_supported(header.codec, magic=to_magic)
    if header.count > limits.RECORDS_OPENED_MAX:
        raise TooLarge(f"a batch of {header.count} records is not converted", position=header.position)
    kept = (record for record in _opened(buffer, header) if record.offset >= first_offset)
    # v0 has no place for a time type; from v1 on a stamped batch keeps its stamp, which stands in max_timestamp.
    kind = LOG_APPEND_TIME if header.timestamp_type == LOG_APPEND_TIME and to_magic else CREATE_TIME
    return build_message_set(
        kept, to_magic, codec=header.codec, timestamp_type=kind, log_append_time=header.max_timestamp
    )


def _opened(buffer: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records, up to the limit: the header of a wrapper does not say how many there are."""
    for index, record in enumerate(records_of(buffer, header)):
        if index >= limits.RECORDS_OPENED_MAX:
            raise TooLarge("a message of too many records is not converted", position=header.position)
        yield record


def up_convert(
    records: Iterable[Record],
    *,
    base_offset: int,
    leader_epoch: int = -1,
    codec: int = CODEC_NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """One v2 batch of the records, whose offsets run on from `base_offset`.  With LogAppendTime the stamp stands in the
    header's max timestamp, the records keep the times they had."""
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
    )
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    assert builder.count
    return builder.build(max_timestamp=log_append_time if timestamp_type == LOG_APPEND_TIME else None)


def records_of_all(buffer: Buffer, headers: Sequence[BatchHeader]) -> list[Record]:
    """The records of several batches or entries, in order."""
    return [record for header in headers for record in records_of(buffer, header)]
