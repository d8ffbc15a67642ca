"""0 Produce: records to append, decoded by hand because every producer's every batch passes here.

The request is walked on a memoryview: nothing is copied but topic names, and the names go into the answer as they
stand.  Appends are staged; `Produced.written` answers after the turn's write, or parks until the high watermark has
passed (acks=all with more than one replica).

Version notes: 0 to 2 bring message formats v0 and v1, which the log converts; from 3 exactly one batch of format v2 for
each partition; zstd from 7; from 13 topic ids stand in the place of names.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.limits import REQUEST_ELEMENTS_MAX
from stratalog.base.types import Millis
from stratalog.node.request import LATER, Parked, Request
from stratalog.protocol.compiler import uvarint, uvarint_bytes
from stratalog.protocol.headers import skip_tags
from stratalog.protocol.k00_produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from stratalog.replication.partition import Partition

if TYPE_CHECKING:
    from stratalog.node.node import Node

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_LENGTH_END: Final = 12
"""The base offset and the length of what follows: what every format begins with."""
_LENGTH_MIN: Final = 14
"""The shortest message of any format, its first twelve bytes not counted."""
_MAGIC_AT: Final = 16
_USUAL: Final = struct.Struct(">8xi4xB4xh")
"""Of a batch's header: length, magic, attributes."""
_ATTRIBUTES_AT: Final = 22
"""The lower byte of the attributes of format v2."""
_BATCH_HEADER_BYTES: Final = 61
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10
_LOOK: Final = _TRANSACTIONAL | 7
"""Attributes that `_check_batch` looks at: transactional, and the codec."""
_ADMIN_CLIENT: Final = b"__admin_client"

# The fixed parts of a request with one topic and one partition, until version 8 and from 9 on: no transactional id,
# acks, timeout, one topic, the length of its name (until 8); one partition, its index, the records' length (from 9 on
# its first byte).
_FRONT_3: Final = struct.Struct(">hhiih")
_ONE_3: Final = struct.Struct(">iii")
_FRONT_9: Final = struct.Struct(">BhiB")
_ONE_9: Final = struct.Struct(">BiB")

# One answered partition without an error: index, error, base offset, append time, log start offset, and what follows.
_DONE_0: Final = struct.Struct(">ihq")
_DONE_2: Final = struct.Struct(">ihqq")
_DONE_5: Final = struct.Struct(">ihqqq")
_DONE_8: Final = struct.Struct(">ihqqqih")
_DONE_9: Final = struct.Struct(">ihqqqBBB")
_HEAD_OLD: Final = struct.Struct(">iii")
_HEAD_9: Final = struct.Struct(">iiBB")
_ONLY_9: Final = struct.Struct(">BihqqqB8x")
"""What follows a topic's name in the answer for its only partition, to the end."""

Entry = tuple[Partition | None, int, Any, ErrorCode, str, Any]
"""Partition, index, AppendInfo or None, error, its text, record errors."""
Topic = tuple[bytes, bytes, list[tuple[int, memoryview | None]]]
"""The topic as it stands on the wire, its name or id, partitions with their records."""
Walked = tuple[bytes | None, int, int, list[Topic]]
"""Transactional id, acks, timeout, topics."""


class Produced:
    """A produce request whose appends are staged."""

    __slots__ = ("_node", "acks", "failed", "parked", "request", "timeout_ms", "timer", "topics")

    def __init__(self, request: Request, acks: int, timeout_ms: int, topics: list[tuple[bytes, list[Entry]]]) -> None:
        self.request = request
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.failed = False
        self.parked: Parked | None = None
        self.timer: Any = None

    def written(self, node: Node, now: Millis) -> None:
        """The turn's write is done: answer, or wait for the replicas."""
        broken = node.broken
        waits: list[Partition] = []
        for _, entries in self.topics:
            for number, (partition, index, info, code, _, _) in enumerate(entries):
                if code:
                    self.failed = True
                elif (broken and partition in broken) or (partition is not None and partition.failure is not None):
                    self.failed = True
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                    entries[number] = (partition, index, None, error, error.text, ())
                elif partition is not None and self.acks == -1 and partition.log.high_watermark <= info.last_offset:
                    waits.append(partition)
        if not waits:
            self._answer(node)
            return
        self._node = node
        for partition in waits:
            partition.waiters[self] = None
        self.timer = node.after(self.timeout_ms, lambda now: self._expire(node))

    def appended(self, size: int) -> None:
        """A commit on a partition that this waits for (`Partition.waiters`)."""

    def wake(self, node: Node, now: Millis) -> None:
        for _, entries in self.topics:
            for partition, _, info, code, _, _ in entries:
                if not code and partition is not None and partition.log.high_watermark <= info.last_offset:
                    return
        self._forget()
        self._answer(node)

    def recheck(self, now: Millis) -> None:
        """Something else than an append changed: a partition was deleted, or lost its leader.  What was written may
        not last then; who asks again finds out."""
        for _, entries in self.topics:
            for number, (partition, index, _, code, _, _) in enumerate(entries):
                if not code and partition is not None and not partition.is_leader:
                    error = partition.check_leader(-1)
                    entries[number] = (partition, index, None, error, error.text, ())
                    self.failed = True
        self.wake(self._node, now)

    def _expire(self, node: Node) -> None:
        self._forget()
        self.failed = True
        error = ErrorCode.REQUEST_TIMED_OUT
        for _, entries in self.topics:
            for number, (partition, index, info, code, _, _) in enumerate(entries):
                if not code and partition is not None and partition.log.high_watermark <= info.last_offset:
                    entries[number] = (partition, index, None, error, error.text, ())
        self._answer(node)

    def _forget(self) -> None:
        self.timer.cancel()
        for _, entries in self.topics:
            for partition, *_ in entries:
                if partition is not None:
                    partition.waiters.pop(self, None)

    def _answer(self, node: Node) -> None:
        request = self.request
        if self.acks == 0:
            request.output = []
            node.ready.append(request)
            if self.failed:
                # Without an answer the producer learns of a failure only by losing the connection, as from Kafka.
                node.effects.close(request.peer.connection, "a produce request with acks=0 failed")
        elif self.failed:
            node.metrics.errors[0] += 1
            node.complete(request, _response(request, self.topics))
        else:
            request.output = [_encode(request, self.topics)]
            node.ready.append(request)


def handle(node: Node, request: Request, now: Millis) -> Any:
    frame = request.frame
    assert frame is not None
    request.frame = None
    version = request.version
    try:
        walked = _walk_one(frame, request.position, len(frame), version)
        if walked is None:
            walk = _walk_flexible if version >= 9 else _walk_old
            walked = walk(frame, request.position, len(frame), version)
    except (IndexError, struct.error) as error:
        raise Malformed("the produce request ends early") from error
    transactional, acks, timeout_ms, wanted = walked
    index_of = node.by_id if version >= 13 else node.by_name
    topics: list[tuple[bytes, list[Entry]]] = []
    produced = Produced(request, acks, timeout_ms, topics)
    if transactional is not None or not -1 <= acks <= 1:
        code = ErrorCode.INVALID_REQUEST if transactional is not None else ErrorCode.INVALID_REQUIRED_ACKS
        for raw, key, partitions in wanted:
            if version < 13:
                _check_text(key)
            topics.append((raw, [(None, index, None, code, code.text, ()) for index, _ in partitions]))
        node.produced.append(produced)
        return LATER
    metrics = node.metrics
    for raw, key, partitions in wanted:
        entries: list[Entry] = []
        topics.append((raw, entries))
        known = index_of.get(key)
        if known is None and version < 13:
            _check_text(key)  # now, while the connection is at hand: the answer has to name it
        for index, records in partitions:
            partition = None if known is None else known.get(index)
            if partition is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if version >= 13 and known is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                entries.append((None, index, None, code, code.text, ()))
                continue
            in_log = None
            try:
                if partition.internal and bytes(frame[10 : 10 + len(_ADMIN_CLIENT)]) != _ADMIN_CLIENT:
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                if records is None:
                    raise ApiError(ErrorCode.INVALID_RECORD, "a partition without records")
                if version >= 3:
                    usual = False
                    if len(records) >= _BATCH_HEADER_BYTES:
                        length, magic, attributes = _USUAL.unpack_from(records)
                        usual = magic == 2 and not attributes & _LOOK and length + _LENGTH_END == len(records)
                    if not usual:
                        _check_batch(records, version)
                in_log = partition
                info = partition.stage_append(records, acks, now)
                entries.append((partition, index, info, _NONE, "", ()))
                metrics.produce_bytes += len(records)
            except ApiError as error:
                # What an answer tells besides an error of validation: where the log begins.
                of_records = in_log if error.code in _OF_RECORDS else None
                entries.append(
                    (of_records, index, None, error.code, error.message, getattr(error, "record_errors", ()))
                )
            except Malformed as error:
                code = ErrorCode.CORRUPT_MESSAGE
                entries.append((None, index, None, code, error.reason, ()))
            except OSError as error:
                node.disk_failed(partition, error)
                code = ErrorCode.KAFKA_STORAGE_ERROR
                entries.append((None, index, None, code, code.text, ()))
    node.produced.append(produced)
    return LATER


_NONE: Final = ErrorCode.NONE
_OF_RECORDS: Final = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


def _check_batch(records: memoryview, version: int) -> None:
    """From version 3 on a partition brings exactly one batch of format v2.  What does not hold a whole batch is no
    record, what cannot be one is damaged: clients split and retry by that."""
    size = len(records)
    if size < _LENGTH_END:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition without records")
    (length,) = _INDEX.unpack_from(records, 8)
    if length < _LENGTH_MIN:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch that says {length} bytes")
    if size > _MAGIC_AT and records[_MAGIC_AT] > 2:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch of format v{records[_MAGIC_AT]}, which there is not")
    if length + _LENGTH_END > size:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a batch that says {length} bytes in {size}")
    magic = records[_MAGIC_AT]
    if magic != 2:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a batch of format v{magic} in version {version}")
    if length + _LENGTH_END < _BATCH_HEADER_BYTES:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "records shorter than a batch's header")
    attributes = records[_ATTRIBUTES_AT]
    if attributes & 7 == _ZSTD and version < 7:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce")
    if length + _LENGTH_END != size:
        raise ApiError(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    if attributes & _TRANSACTIONAL:  # N05: the request names no transactional id, or it would not have come here
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction's batch without a transactional id"
        )


# --- reading --------------------------------------------------------------------------------------------------------


def _walk_one(frame: memoryview, p: int, end: int, version: int) -> Walked | None:
    """What most producers send: no transaction, one topic, one partition.  Decides nothing: None for whatever differs
    or is damaged, and the loops below read it."""
    try:
        return _walk_one_flexible(frame, p, end, version) if version >= 9 else _walk_one_old(frame, p, end, version)
    except (IndexError, struct.error):
        return None


def _walk_one_flexible(frame: memoryview, p: int, end: int, version: int) -> Walked | None:
    none, acks, timeout_ms, topics = _FRONT_9.unpack_from(frame, p)
    if none or topics != 2:
        return None
    p += 8
    begin = p
    if version >= 13:
        p += 16
        key = bytes(frame[begin:p])
    else:
        size = frame[p]
        p += size
        if size >= 0x80 or not size:
            return None
        key = bytes(frame[begin + 1 : p])
    partitions, index, length = _ONE_9.unpack_from(frame, p)
    at = p + 6
    shift = 7
    if length >= 0x80:
        length &= 0x7F
        while True:
            byte = frame[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return None
    stop = at + length - 1
    if partitions != 2 or not length or stop + 3 != end or frame[stop] or frame[stop + 1] or frame[stop + 2]:
        return None
    return None, acks, timeout_ms, [(bytes(frame[begin:p]), key, [(index, frame[at:stop])])]


def _walk_one_old(frame: memoryview, p: int, end: int, version: int) -> Walked | None:
    if version < 3:
        return None
    none, acks, timeout_ms, topics, size = _FRONT_3.unpack_from(frame, p)
    if none != -1 or topics != 1 or size < 0:
        return None
    p += 14
    at = p + size
    partitions, index, length = _ONE_3.unpack_from(frame, at)
    if partitions != 1 or length < 0 or at + 12 + length != end:
        return None
    return None, acks, timeout_ms, [(bytes(frame[p - 2 : at]), bytes(frame[p:at]), [(index, frame[at + 12 :])])]


def _walk_flexible(frame: memoryview, p: int, end: int, version: int) -> Walked:
    transactional = None
    size, p = uvarint(frame, p)
    if size:
        transactional = bytes(frame[p : p + size - 1])
        p += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, p)
    p += 6
    topic_count = frame[p]
    p += 1
    if topic_count >= 0x80:
        topic_count, p = uvarint(frame, p - 1)
    seen = _check_count(topic_count - 1, end - p)
    topics: list[Topic] = []
    for _ in range(topic_count - 1):
        if version >= 13:
            raw = key = bytes(frame[p : p + 16])
            p += 16
        else:
            begin = p
            size = frame[p]
            p += 1
            if size >= 0x80:
                size, p = uvarint(frame, p - 1)
            if size == 0:
                raise Malformed("a topic without a name", position=p)
            key = bytes(frame[p : p + size - 1])
            p += size - 1
            raw = bytes(frame[begin:p])
        count = frame[p]
        p += 1
        if count >= 0x80:
            count, p = uvarint(frame, p - 1)
        seen = _check_count(count - 1, end - p, seen)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            (index,) = _INDEX.unpack_from(frame, p)
            size, p = uvarint(frame, p + 4)
            if size == 0:
                partitions.append((index, None))
            else:
                stop = p + size - 1
                if stop > end:
                    raise Malformed("records longer than the frame", position=p)
                partitions.append((index, frame[p:stop]))
                p = stop
            if frame[p]:
                p = skip_tags(frame, p)
            else:
                p += 1
        topics.append((raw, key, partitions))
        if frame[p]:
            p = skip_tags(frame, p)
        else:
            p += 1
    if frame[p]:
        p = skip_tags(frame, p)
    else:
        p += 1
    if p != end:
        raise Malformed("bytes after the produce request", position=p)
    return transactional, acks, timeout_ms, topics


def _walk_old(frame: memoryview, p: int, end: int, version: int) -> Walked:
    transactional = None
    if version >= 3:
        (size,) = _INT16.unpack_from(frame, p)
        p += 2
        if size >= 0:
            transactional = bytes(frame[p : p + size])
            p += size
        elif size < -1:
            raise Malformed(f"a transactional id of {size} bytes", position=p)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, p)
    (topic_count,) = _INDEX.unpack_from(frame, p + 6)
    p += 10
    seen = _check_count(topic_count, end - p)
    topics: list[Topic] = []
    for _ in range(topic_count):
        begin = p
        (size,) = _INT16.unpack_from(frame, p)
        if size < 0:
            raise Malformed("a topic without a name", position=p)
        p += 2 + size
        key = bytes(frame[begin + 2 : p])
        raw = bytes(frame[begin:p])
        (count,) = _INDEX.unpack_from(frame, p)
        p += 4
        seen = _check_count(count, end - p, seen)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, size = _INDEX_LENGTH.unpack_from(frame, p)
            p += 8
            if size < 0:
                if size < -1:
                    raise Malformed(f"records of {size} bytes", position=p)
                partitions.append((index, None))
                continue
            if p + size > end:
                raise Malformed("records longer than the frame", position=p)
            partitions.append((index, frame[p : p + size]))
            p += size
        topics.append((raw, key, partitions))
    if p != end:
        raise Malformed("bytes after the produce request", position=p)
    return transactional, acks, timeout_ms, topics


def _check_count(count: int, left: int, seen: int = 0) -> int:
    """An array's count, without the one that compact arrays add, and the elements of the arrays before it: together
    they are bounded, because each becomes an object."""
    if not 0 <= count <= left:
        raise Malformed(f"an array of {count} elements in {left} bytes")
    if count + seen > REQUEST_ELEMENTS_MAX:
        raise Malformed(f"a request of more than {REQUEST_ELEMENTS_MAX} elements")
    return count + seen


# --- answering ------------------------------------------------------------------------------------------------------


def _encode(request: Request, topics: list[tuple[bytes, list[Entry]]]) -> bytes:
    """The answer to a request that met no error; size prefix and header included."""
    version = request.version
    parts: list[bytes] = []
    if version >= 9:
        if len(topics) == 1 and len(topics[0][1]) == 1:
            raw, ((_, index, info, _, _, _),) = topics[0]
            only = _ONLY_9.pack(2, index, 0, info.first_offset, info.log_append_time, info.log_start_offset, 1)
            return _HEAD_9.pack(6 + len(raw) + _ONLY_9.size, request.correlation_id, 0, 2) + raw + only
        for raw, entries in topics:
            parts.append(raw)
            parts.append(uvarint_bytes(len(entries) + 1))
            for _, index, info, _, _, _ in entries:
                parts.append(
                    _DONE_9.pack(index, 0, info.first_offset, info.log_append_time, info.log_start_offset, 1, 0, 0)
                )
            parts.append(b"\0")
        parts.append(b"\0\0\0\0\0")
        body = b"".join(parts)
        count = len(topics) + 1
        if count < 0x80:
            return _HEAD_9.pack(6 + len(body), request.correlation_id, 0, count) + body
        number = uvarint_bytes(count)
        return _INDEX_LENGTH.pack(5 + len(number) + len(body), request.correlation_id) + b"\0" + number + body
    for raw, entries in topics:
        parts.append(raw)
        parts.append(_INDEX.pack(len(entries)))
        for _, index, info, _, _, _ in entries:
            if version >= 8:
                done = _DONE_8.pack(index, 0, info.first_offset, info.log_append_time, info.log_start_offset, 0, -1)
            elif version >= 5:
                done = _DONE_5.pack(index, 0, info.first_offset, info.log_append_time, info.log_start_offset)
            elif version >= 2:
                done = _DONE_2.pack(index, 0, info.first_offset, info.log_append_time)
            else:
                done = _DONE_0.pack(index, 0, info.first_offset)
            parts.append(done)
    if version >= 1:
        parts.append(b"\0\0\0\0")
    body = b"".join(parts)
    return _HEAD_OLD.pack(8 + len(body), request.correlation_id, len(topics)) + body


def _response(request: Request, topics: list[tuple[bytes, list[Entry]]]) -> ProduceResponse:
    """The answer as a message, for requests that met an error somewhere."""
    version = request.version
    responses = []
    for raw, entries in topics:
        partitions = []
        for at, index, info, code, text, records in entries:
            if code:
                partition = PartitionProduceResponse(
                    index=index,
                    error_code=int(code),
                    base_offset=-1,
                    log_start_offset=-1 if at is None else at.log.log_start_offset,
                    record_errors=[
                        BatchIndexAndErrorMessage(batch_index=row.batch_index, batch_index_error_message=row.message)
                        for row in records
                    ],
                    error_message=text or None,
                )
            else:
                partition = PartitionProduceResponse(
                    index=index,
                    error_code=0,
                    base_offset=info.first_offset,
                    log_append_time_ms=info.log_append_time,
                    log_start_offset=info.log_start_offset,
                )
            partitions.append(partition)
        topic = TopicProduceResponse(partition_responses=partitions)
        if version >= 13:
            topic.topic_id = type(topic.topic_id)(raw)
        else:
            topic.name = _name(raw, version)
        responses.append(topic)
    return ProduceResponse(responses=responses)


def _name(raw: bytes, version: int) -> str:
    start = 2 if version < 9 else uvarint(memoryview(raw), 0)[1]
    return raw[start:].decode()


def _check_text(name: bytes) -> None:
    try:
        name.decode()
    except UnicodeDecodeError as error:
        raise Malformed("a topic's name is no text") from error


def refuse(node: Node, request: Request, code: ErrorCode) -> ProduceResponse | None:
    """Every partition with this error, nothing appended (`Node.refusals`).  None with acks=0: nobody reads an answer
    there."""
    frame = request.frame
    assert frame is not None
    body = ProduceRequest.decode(frame[request.position :], request.version)
    if body.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=partition.index, error_code=int(code), base_offset=-1)
                    for partition in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
    )
