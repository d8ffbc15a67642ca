"""What a broker asks of produced bytes before it appends them, and the offsets and times that it gives them.

Two steps.  `analyze` looks at the headers of a produce payload: one batch, its size, its CRC.  `validate_and_assign`
checks the rules of the topic and stamps offset, leader epoch and time: in place where nothing else must change (an
uncompressed batch is not looked into unless the topic asks), by unpacking under the limits for a compressed batch, and
by building a new batch where the codec or the format of the topic is another.

Bad bytes raise `CorruptBatch` (an answer CORRUPT_MESSAGE); a batch that is well-formed and not welcome raises
`InvalidBatch` with its error code and the refused records.

Stateless; any thread, on a buffer that nobody else uses meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from stratalog.base import limits
from stratalog.base.errors import ErrorCode
from stratalog.base.types import MAX_INT64, Buffer
from stratalog.records import convert, legacy, walk
from stratalog.records.batch import (
    CODEC_LZ4,
    CODEC_MASK,
    CODEC_NONE,
    CODEC_ZSTD,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    assemble,
    batches,
    crc_is_valid,
    patch,
    payload,
    read_header,
    records_of,
    unpacked,
)
from stratalog.records.compression import compress
from stratalog.records.errors import CorruptBatch, InvalidBatch, RecordError, TooLarge

RECORD_ERRORS_MAX: Final = 100
"""Refused records that one answer names: enough to find the fault, and an answer stays small."""
MESSAGE_BYTES_MAX: Final = 1_048_588
"""`max.message.bytes`: Kafka's default, a MiB and the overhead of one entry."""
TIMESTAMP_AFTER_MAX_MS: Final = 3_600_000
"""`message.timestamp.after.max.ms`: Kafka's default, one hour ahead of the broker's clock."""


class Origin(IntEnum):
    """Who appends: only clients are bound by what clients may send."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICATION = 2
    RAFT_LEADER = 3


class Validated(NamedTuple):
    """What is to be written, and what the log needs to know of it."""

    buffers: list[memoryview]
    headers: list[BatchHeader]
    """As written, one for each buffer, positions counted in it."""
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    """The last offset of the batch that has it, as Kafka's time index counts."""
    records: int
    converted: bool
    """The bytes are new ones; otherwise they are the caller's, stamped in place."""
    log_append_time_ms: int
    """The stamp with LogAppendTime, -1 with CreateTime: a produce response tells it."""


# --- the headers ----------------------------------------------------------------------------------------------------
def analyze(
    buffer: Buffer,
    *,
    max_message_bytes: int = MESSAGE_BYTES_MAX,
    produce_version: int = 7,
    origin: Origin = Origin.CLIENT,
) -> list[BatchHeader]:
    """The headers of a produce payload, each batch whole, not too large and with the right CRC.

    `produce_version` is the request's: from 3 on it carries exactly one batch of v2, before that message sets; zstd
    comes with 7.
    """
    size = len(buffer)
    if not size:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a produce request without a record batch")
    header = read_header(buffer)
    if header[4] == 2:
        end = header.length + 12
        if end != size:
            if end > size:
                raise CorruptBatch("a batch is cut off", position=0)
            raise InvalidBatch(ErrorCode.INVALID_RECORD, "more than one record batch, or bytes behind it")
        if origin == 0:
            if produce_version < 3:
                raise InvalidBatch(
                    ErrorCode.INVALID_RECORD, f"a batch of magic 2 in a produce request of version {produce_version}"
                )
            if header.base_offset != 0:
                raise InvalidBatch(
                    ErrorCode.INVALID_RECORD, f"a produced batch has base offset {header.base_offset} instead of 0"
                )
            if produce_version < 7 and header.attributes & CODEC_MASK == CODEC_ZSTD:
                raise InvalidBatch(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"zstd in a produce request of version {produce_version}: it comes with version 7",
                )
        if size > max_message_bytes:
            raise _too_large(size, max_message_bytes)
        if not crc_is_valid(buffer, header):
            raise CorruptBatch("a batch has a wrong CRC", position=17)
        if header.attributes & CODEC_MASK > CODEC_ZSTD:
            raise CorruptBatch(f"unknown codec {header.codec}", position=21)
        return [header]
    if produce_version >= 3 and origin == Origin.CLIENT:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"magic {header.magic} in a produce request of version {produce_version}"
        )
    return _analyze_set(buffer, max_message_bytes)


def _analyze_set(buffer: Buffer, max_message_bytes: int) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    for header in batches(buffer):
        if header.magic > 1:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, "a batch of magic 2 inside of a message set")
        if headers and header.magic != headers[0].magic:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, "messages of several formats in one message set")
        if header.size > max_message_bytes:
            raise _too_large(header.size, max_message_bytes)
        if not crc_is_valid(buffer, header):  # the offsets are no matter: producers of that age write what they like
            raise CorruptBatch("a message has a wrong CRC", position=header.position + 12)
        if header.codec > CODEC_LZ4:
            raise CorruptBatch(f"unknown codec {header.codec}", position=header.position + 17)
        headers.append(header)
    if not headers or headers[-1].end != len(buffer):
        raise CorruptBatch("a message set is cut off", position=headers[-1].end if headers else 0)
    if len(headers) > 1 and any(header.codec for header in headers):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a compressed message is not alone in its message set")
    return headers


def _too_large(size: int, max_message_bytes: int) -> InvalidBatch:
    return InvalidBatch(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes is larger than the topic's {max_message_bytes}"
    )


def _check_header(header: BatchHeader, origin: Origin) -> None:
    """What a client's v2 batch must be, as far as its header tells."""
    if origin != 0:
        if header.count < 1 or header.last_offset_delta < 0:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"a batch of {header.count} records cannot be appended")
        return
    count = header.count
    if count < 1 or count != header.last_offset_delta + 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"a batch claims {count} records and last offset delta {header.last_offset_delta}",
        )
    if not header.attributes & CODEC_MASK and count > (header.size - HEADER_SIZE) // RECORD_BYTES_MIN:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"a batch claims {count} records in {header.size - HEADER_SIZE} bytes"
        )
    if header.is_control:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a client may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"a batch of producer {header.producer_id} has sequence {header.base_sequence}",
        )


# --- the records ----------------------------------------------------------------------------------------------------
def validate_and_assign(
    buffer: Buffer,
    *,
    base_offset: int,
    now_ms: int,
    leader_epoch: int,
    timestamp_type: int = CREATE_TIME,
    before_max_ms: int = MAX_INT64,
    after_max_ms: int = TIMESTAMP_AFTER_MAX_MS,
    compacted: bool = False,
    codec: int | None = None,
    level: int | None = None,
    max_message_bytes: int = MESSAGE_BYTES_MAX,
    origin: Origin = Origin.CLIENT,
    headers: Sequence[BatchHeader] | None = None,
    inspect: bool = False,
) -> Validated:
    """Checks the payload by the topic's rules and gives it offsets from `base_offset` on.

    `headers` is what `analyze` answered (else it is asked).  `codec` is the topic's, None for the producer's own.
    `inspect` looks into uncompressed batches too: without it a header is believed as long as it keeps the topic's
    bounds, and records are only looked at for compaction's keys, a lower bound of time, or a header out of bounds.
    """
    if headers is None:
        headers = analyze(buffer, max_message_bytes=max_message_bytes, origin=origin)
    rules = _Rules(now_ms, timestamp_type, before_max_ms, after_max_ms, compacted)
    header = headers[0]
    if header.magic < 2:
        return _convert_set(buffer, headers, base_offset, leader_epoch, rules, codec, level, max_message_bytes)
    _check_header(header, origin)
    source = header.attributes & CODEC_MASK
    target = source if codec is None else codec
    if source == CODEC_NONE and header.is_control:
        target = CODEC_NONE  # control records stay as they were written
    view = _writable(buffer)
    if source == CODEC_NONE and not inspect and not rules.ask_for_records(header):
        highest = header.max_timestamp
        data: Buffer | None = None
    else:
        data, highest = _inspect(view, header, rules)
    if target != source and header.attributes & TIMESTAMP_TYPE_BIT:  # its records' own times are not what they say
        if header.count > limits.RECORDS_OPENED_MAX:
            raise _too_many()
        records = records_of(view, header)
        batch = _rebuild(records, header, base_offset, leader_epoch, rules, target, level)
        return _new(batch, base_offset, rules, max_message_bytes)
    if target != source:
        plain = payload(view, header) if data is None else data
        batch = _recompress(plain, header, highest, base_offset, leader_epoch, rules, target, level)
        return _new(batch, base_offset, rules, max_message_bytes)
    if timestamp_type == LOG_APPEND_TIME:
        highest = now_ms
    patch(
        view,
        header.position,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        max_timestamp=highest,
        timestamp_type=timestamp_type,
    )
    stamped = read_header(view, header.position)
    last = base_offset + header.last_offset_delta
    stamp = now_ms if timestamp_type == LOG_APPEND_TIME else -1
    return Validated([view], [stamped], base_offset, last, highest, last, header.count, False, stamp)


class _Rules(NamedTuple):
    """What the topic asks of each record."""

    now_ms: int
    timestamp_type: int
    before_max_ms: int
    after_max_ms: int
    compacted: bool

    def ask_for_records(self, header: BatchHeader) -> bool:
        """Whether an uncompressed batch has to be opened."""
        if self.compacted:
            return True
        stamped = header.attributes & TIMESTAMP_TYPE_BIT
        if self.timestamp_type == LOG_APPEND_TIME:
            return bool(stamped)  # a client may not stamp itself: the records name themselves in the error
        highest = header.max_timestamp
        if highest == -1 and not stamped:
            return header.base_timestamp != -1
        return bool(
            stamped
            or self.before_max_ms < self.now_ms  # a bound that lies after 1970 asks for the lowest time
            or highest - self.now_ms > self.after_max_ms
            or header.base_timestamp > highest
            or header.base_timestamp < 0
            or header.attributes & DELETE_HORIZON_BIT
        )

    def times_fit(self, lowest: int, highest: int) -> bool:
        return self.now_ms - lowest <= self.before_max_ms and highest - self.now_ms <= self.after_max_ms


def _inspect(view: memoryview, header: BatchHeader, rules: _Rules) -> tuple[Buffer, int]:
    """Unpacks and walks a batch: (its plain records, the highest time)."""
    try:
        data = unpacked(view, header)
        summary = walk.validate_records(data, header.count, base_timestamp=header.base_timestamp)
    except TooLarge as error:
        raise InvalidBatch(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except CorruptBatch as error:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"a batch holds malformed records: {error}") from None
    if not summary.dense:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "the offset deltas of a produced batch are not 0, 1, 2 ...")
    highest = summary.max_timestamp
    lowest = summary.min_timestamp
    stamped = header.attributes & TIMESTAMP_TYPE_BIT
    if stamped:  # the producer says that all its records have the header's time
        lowest = highest = header.max_timestamp
    wrong = rules.compacted and summary.keyless > 0
    if rules.timestamp_type == LOG_APPEND_TIME:
        wrong = wrong or stamped != 0
    else:
        wrong = wrong or not rules.times_fit(lowest, highest) or (stamped != 0 and highest == -1)
    if wrong:
        _refuse(_numbered(view, [header]), stamped != 0, rules)
    return data, highest


def _numbered(buffer: Buffer, headers: Sequence[BatchHeader]) -> Iterator[Record]:
    for header in headers:
        yield from records_of(buffer, header)


def _refuse(records: Iterator[Record], stamped: bool, rules: _Rules) -> None:
    """Raises with the refused records, if there are any: a time of -1 is none and fits everywhere."""
    errors: list[RecordError] = []
    total = 0
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(records):
        if index >= limits.RECORDS_OPENED_MAX:
            raise _too_many()
        reason = None
        if rules.compacted and record.key is None:
            reason = "a compacted topic takes no record without a key"
        elif rules.timestamp_type == CREATE_TIME and record.timestamp != -1:
            if not rules.times_fit(record.timestamp, record.timestamp):
                code = ErrorCode.INVALID_TIMESTAMP
                reason = (
                    f"timestamp {record.timestamp} is not within [{rules.now_ms - rules.before_max_ms}, "
                    f"{rules.now_ms + rules.after_max_ms}]"
                )
        elif stamped:
            code = ErrorCode.INVALID_TIMESTAMP
            reason = "a producer may not set the timestamp type LogAppendTime"
        if reason is not None:
            total += 1
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append(RecordError(index, reason))
    if total:
        first = errors[0]
        raise InvalidBatch(
            code,
            f"{total} records are refused, the first is record {first.batch_index}: {first.message}",
            tuple(errors),
        )


def _convert_set(
    buffer: Buffer,
    headers: Sequence[BatchHeader],
    base_offset: int,
    leader_epoch: int,
    rules: _Rules,
    codec: int | None,
    level: int | None,
    max_message_bytes: int,
) -> Validated:
    """A message set of an old producer becomes one v2 batch."""
    records: list[Record] = []
    stamped = False
    try:
        for header in headers:
            for record in legacy.legacy_records_of(buffer, header, produced=True):
                records.append(record)
                if len(records) > limits.RECORDS_OPENED_MAX:
                    raise _too_many()
            stamped = stamped or header.timestamp_type == LOG_APPEND_TIME
    except TooLarge as error:
        raise InvalidBatch(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    _refuse(iter(records), stamped, rules)
    for index, record in enumerate(records):
        # Whatever the topic's bounds are: the batch holds differences to the first time, which must fit in 64 bits.
        if not -1 <= record.timestamp < MAX_INT64:
            reason = f"timestamp {record.timestamp} is none that a batch can hold"
            raise InvalidBatch(ErrorCode.INVALID_TIMESTAMP, reason, (RecordError(index, reason),))
    target = headers[0].codec if codec is None else codec
    batch = _rebuild(records, headers[0], base_offset, leader_epoch, rules, target, level)
    return _new(batch, base_offset, rules, max_message_bytes)


def _too_many() -> InvalidBatch:
    return InvalidBatch(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of more than {limits.RECORDS_OPENED_MAX} records is not opened record by record",
    )


def _rebuild(
    records: Sequence[Record] | Iterator[Record],
    header: BatchHeader,
    base_offset: int,
    leader_epoch: int,
    rules: _Rules,
    codec: int,
    level: int | None,
) -> bytearray:
    return convert.up_convert(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        level=level,
        timestamp_type=rules.timestamp_type,
        log_append_time=rules.now_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )


def _recompress(
    data: Buffer,
    header: BatchHeader,
    highest: int,
    base_offset: int,
    leader_epoch: int,
    rules: _Rules,
    codec: int,
    level: int | None,
) -> bytearray:
    """The same records under another codec: their bytes do not change, only what is around them."""
    stamped = rules.timestamp_type == LOG_APPEND_TIME
    attributes = codec | header.attributes & TRANSACTIONAL_BIT | (TIMESTAMP_TYPE_BIT if stamped else 0)
    return assemble(
        compress(codec, data, level),
        base_offset=base_offset,
        last_offset_delta=header.last_offset_delta,
        count=header.count,
        attributes=attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=rules.now_ms if stamped else highest,
        leader_epoch=leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _new(batch: bytearray, base_offset: int, rules: _Rules, max_message_bytes: int) -> Validated:
    if len(batch) > max_message_bytes:
        raise _too_large(len(batch), max_message_bytes)
    header = read_header(batch)
    last = header.last_offset
    stamp = rules.now_ms if rules.timestamp_type == LOG_APPEND_TIME else -1
    return Validated(
        [memoryview(batch)], [header], base_offset, last, header.max_timestamp, last, header.count, True, stamp
    )


def _writable(buffer: Buffer) -> memoryview:
    """The caller's bytes where they can be stamped, else a copy."""
    view = memoryview(buffer)
    return memoryview(bytearray(view)) if view.readonly else view
