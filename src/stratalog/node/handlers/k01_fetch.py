"""1 Fetch: batches from offsets on, as regions of segment files.

    full or incremental?  -> wanted partitions (node.sessions)
    read each             -> bounded by max_bytes over all, the partition's own limit, and the isolation level
    enough, an error, or no time to wait: answer; else park (node.waits)

The first batch of the first partition that has data is returned whole, however small the limits (from version 3 on), so
that no reader starves.  In a session the partitions that returned data go to the end, so that none starves behind them.
Below version 4 batches are converted down, in memory, on the pool: nobody waits for an old client, and no more of its
answers are made at a time than the pool has threads.  A replica's fetch (`replica_id` >= 0) is refused: nobody
replicates from a cluster of one (N04).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.types import MAX_INT32, Buffer, FileRegion, Millis, Uuid
from stratalog.node.request import Parked, Request
from stratalog.node.sessions import FINAL_EPOCH, INITIAL_EPOCH, Key, Session, Wanted
from stratalog.node.waits import ParkedFetch
from stratalog.protocol.compiler import uvarint_bytes
from stratalog.protocol.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from stratalog.records.convert import down_convert
from stratalog.replication.partition import Partition
from stratalog.storage.values import AbortedTxn, Isolation

if TYPE_CHECKING:
    from stratalog.node.node import Node

_WAIT_MS_MAX: Final = 30 * 60 * 1000
"""A client may ask to wait for ever; a parked request must end."""


class Found(NamedTuple):
    """What reading one partition gave."""

    wanted: Wanted
    code: ErrorCode
    region: FileRegion | None = None
    size: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[AbortedTxn] | None = None
    diverging: tuple[int, int] | None = None


class Fetch:
    """One fetch request with what it needs to be answered now or later."""

    __slots__ = ("incremental", "isolation", "max_bytes", "min_bytes", "node", "request", "session", "wanted")

    def __init__(self, node: Node, request: Request) -> None:
        body: Any = request.body
        self.node = node
        self.request = request
        self.session: Session | None = None
        self.incremental = False
        self.isolation = Isolation.TXN_COMMITTED if body.isolation_level == 1 else Isolation.HIGH_WATERMARK
        self.max_bytes = min(body.max_bytes if request.version >= 3 else MAX_INT32, node.config["fetch.max.bytes"])
        self.min_bytes = min(body.min_bytes, self.max_bytes)
        self.wanted: list[Wanted] = []

    def read(self) -> tuple[list[Found], int, bool]:
        """Read every partition; also the bytes in total, and whether an error makes waiting pointless."""
        node = self.node
        version = self.request.version
        by_id = version >= 13
        left = self.max_bytes
        min_one = version >= 3
        total = 0
        at_once = False
        found: list[Found] = []
        for wanted in self.wanted:
            partition = wanted.partition
            if partition is None or partition.failure is not None or not partition.is_leader:
                partition = wanted.partition = _lookup(node, wanted, by_id)
            if partition is None:
                code = _why_missing(node, wanted, by_id)
                found.append(Found(wanted, code))
                at_once = True
                continue
            code = partition.check_leader(wanted.current_leader_epoch)
            if code:
                found.append(Found(wanted, code))
                at_once = True
                continue
            # Before version 3 a batch was cut at the limit; one that has to be converted cannot be, and a client that
            # gets nothing for it, and no error, asks for the same for ever.
            row = _read(partition, wanted, self.isolation, left, min_one or (version < 3 and left > 0))
            found.append(row)
            size = row.size
            if size:
                min_one = False
                total += size
                left = left - size if left > size else 0
            if row.code or row.diverging is not None:
                at_once = True
        return found, total, at_once

    def answer(self, now: Millis, at_once: bool) -> int:
        """Read again and answer; or say how many bytes are missing (`ParkedFetch`)."""
        found, total, error = self.read()
        if not at_once and not error and total < self.min_bytes:
            return int(self.min_bytes - total)
        self.send(found)
        return 0

    def send(self, found: list[Found]) -> None:
        request = self.request
        version = request.version
        session = self.session
        if session is not None:
            found = self._changes(session, found)
        for row in found:
            if row.code:
                self.node.metrics.errors[1] += 1
        identity = 0 if session is None else session.id
        node = self.node
        if version >= 12:
            request.output = _encode(request, identity, found)
            node.ready.append(request)
        elif version >= 4 or not any(row.size for row in found):
            node.complete(request, _message(version, identity, found))
        else:
            magic = 0 if version < 2 else 1

            def converted(rows: list[Converted] | None, error: BaseException | None) -> None:
                if error is not None:
                    raise error
                assert rows is not None
                for row, (_, failure) in zip(found, rows, strict=True):
                    partition = row.wanted.partition
                    if failure is not None and partition is not None:
                        partition.fail(failure)
                node.complete(request, _message(version, identity, found, [row[0] for row in rows]))

            node.pool.submit("convert", lambda: [_converted(row, magic) for row in found], converted)

    def _changes(self, session: Session, found: list[Found]) -> list[Found]:
        """What of it the client does not know yet; partitions with data go to the end of the session."""
        rows = []
        partitions = session.partitions
        for row in found:
            wanted = row.wanted
            if (
                not self.incremental
                or row.size
                or row.code
                or row.diverging is not None
                or row.high_watermark != wanted.told_high_watermark
                or row.log_start_offset != wanted.told_log_start
            ):
                rows.append(row)
                wanted.told_high_watermark = row.high_watermark
                wanted.told_log_start = row.log_start_offset
            if row.size and len(partitions) > 1:
                key: Key = (wanted.topic_id if session.uses_topic_ids else wanted.topic, wanted.index)
                if partitions.pop(key, None) is not None:
                    partitions[key] = wanted
        return rows


def handle(node: Node, request: Request, now: Millis) -> Any:
    body: FetchRequest = request.body
    version = request.version
    replica = body.replica_id if version < 15 else body.replica_state.replica_id
    if replica >= 0:
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if body.isolation_level not in (0, 1):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    fetch = Fetch(node, request)
    by_id = version >= 13
    if version < 7 or body.session_epoch == FINAL_EPOCH or body.session_epoch == INITIAL_EPOCH:
        if body.session_id:
            node.sessions.close(body.session_id)
        partitions = _all_wanted(node, body, by_id)
        if body.session_epoch == INITIAL_EPOCH and version >= 7 and partitions:
            fetch.session = node.sessions.open(partitions, by_id, now)
        fetch.wanted = list(partitions.values())
    else:
        try:
            session = node.sessions.find(body.session_id, body.session_epoch, by_id, now)
        except ApiError as error:
            return _refused(request, error.code)
        _update(node, session, body, by_id)
        fetch.session = session
        fetch.incremental = True
        fetch.wanted = list(session.partitions.values())
    found, total, at_once = fetch.read()
    if at_once or total >= fetch.min_bytes or body.max_wait_ms <= 0 or not found:
        fetch.send(found)
        return Parked(node, request)
    partitions_of = [row.wanted.partition for row in found if row.wanted.partition is not None]
    ParkedFetch(
        node,
        request,
        partitions_of,
        needed=fetch.min_bytes - total,
        wait_ms=min(body.max_wait_ms, _WAIT_MS_MAX),
        answer=fetch.answer,
    )
    return Parked(node, request)


def _all_wanted(node: Node, body: FetchRequest, by_id: bool) -> dict[Key, Wanted]:
    wanted: dict[Key, Wanted] = {}
    for topic in body.topics:
        name, topic_id = _names(node, topic, by_id)
        for row in topic.partitions:
            wanted[topic_id if by_id else name, row.partition] = Wanted(name, topic_id, row)
    return wanted


def _update(node: Node, session: Session, body: FetchRequest, by_id: bool) -> None:
    """What an incremental request adds, changes and forgets."""
    partitions = session.partitions
    for topic in body.topics:
        name, topic_id = _names(node, topic, by_id)
        for row in topic.partitions:
            key: Key = (topic_id if by_id else name, row.partition)
            known = partitions.get(key)
            if known is None:
                partitions[key] = Wanted(name, topic_id, row)
            else:
                known.update(row)
    for forgotten in body.forgotten_topics_data:
        for index in forgotten.partitions:
            partitions.pop((forgotten.topic_id if by_id else forgotten.topic, index), None)


def _names(node: Node, topic: Any, by_id: bool) -> tuple[str, Uuid]:
    return ("", topic.topic_id) if by_id else (topic.topic, topic.topic_id)


def _lookup(node: Node, wanted: Wanted, by_id: bool) -> Partition | None:
    if by_id:
        known = node.by_id.get(wanted.topic_id)
        return None if known is None else known.get(wanted.index)
    return node.partitions.get((wanted.topic, wanted.index))


def _why_missing(node: Node, wanted: Wanted, by_id: bool) -> ErrorCode:
    if by_id and wanted.topic_id not in node.by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _read(partition: Partition, wanted: Wanted, isolation: Isolation, left: int, min_one: bool) -> Found:
    log = partition.log
    offset = wanted.fetch_offset
    high_watermark = log.high_watermark
    stable = log.last_stable_offset
    start = log.log_start_offset
    if wanted.last_fetched_epoch >= 0:
        epoch, end = partition.end_offset_for(wanted.last_fetched_epoch)
        if epoch < 0:
            return Found(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset < start:  # whatever the epochs say: there is nothing to truncate to (R11, KAFKA-12996)
            return Found(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < wanted.last_fetched_epoch or end < offset:
            return Found(
                wanted,
                ErrorCode.NONE,
                high_watermark=high_watermark,
                last_stable_offset=stable,
                log_start_offset=start,
                diverging=(epoch, end),
            )
    bound = high_watermark if isolation is Isolation.HIGH_WATERMARK else stable
    if (start <= offset and offset == bound) or (left <= 0 and not min_one and start <= offset <= log.log_end_offset):
        return Found(
            wanted,
            ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted=[] if isolation is Isolation.TXN_COMMITTED else None,
        )
    limit = wanted.max_bytes if wanted.max_bytes < left else left
    try:
        data = log.read(offset, limit, isolation, min_one)
    except ApiError as error:
        return Found(wanted, error.code)
    except OSError as error:
        partition.fail(error)
        return Found(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    region = data.region
    aborted = data.aborted
    if aborted is None and isolation is Isolation.TXN_COMMITTED:
        aborted = []
    return Found(
        wanted,
        ErrorCode.NONE,
        region,
        0 if region is None else region.length,
        high_watermark,
        stable,
        start,
        aborted,
    )


# --- answering ------------------------------------------------------------------------------------------------------

_HEAD: Final = struct.Struct(">iiBihi")  # size, correlation id, header tags, throttle, error, session id
_PARTITION: Final = struct.Struct(">ihqqq")
_REPLICA_NONE: Final = b"\xff\xff\xff\xff"
_ABORTED: Final = struct.Struct(">qqB")
_INDEX: Final = struct.Struct(">i")


def _encode(request: Request, session_id: int, found: list[Found]) -> list[Any]:
    """The answer from version 12 on, written by hand: a consumer's every request ends here."""
    by_id = request.version >= 13
    groups: list[tuple[Wanted, list[Found]]] = []
    for row in found:
        wanted = row.wanted
        last = groups[-1][0] if groups else None
        if last is not None and last.topic_id == wanted.topic_id and last.topic == wanted.topic:
            groups[-1][1].append(row)
        else:
            groups.append((wanted, [row]))
    output: list[Any] = []
    parts: list[bytes] = [uvarint_bytes(len(groups) + 1)]
    size = 4 + 1 + 10
    for first, rows in groups:
        if by_id:
            parts.append(first.topic_id)
        else:
            name = first.topic.encode()
            parts.append(uvarint_bytes(len(name) + 1))
            parts.append(name)
        parts.append(uvarint_bytes(len(rows) + 1))
        for row in rows:
            parts.append(
                _PARTITION.pack(
                    row.wanted.index, row.code, row.high_watermark, row.last_stable_offset, row.log_start_offset
                )
            )
            aborted = row.aborted
            if aborted is None:
                parts.append(b"\0")
            else:
                parts.append(uvarint_bytes(len(aborted) + 1))
                parts.extend(_ABORTED.pack(one.producer_id, one.first_offset, 0) for one in aborted)
            parts.append(_REPLICA_NONE)
            region = row.region
            if region is None or region.length == 0:
                parts.append(b"\1")
            else:
                parts.append(uvarint_bytes(region.length + 1))
                run = b"".join(parts)
                size += len(run) + region.length
                output.append(run)
                output.append(region)
                parts = []
            if row.diverging is None:
                parts.append(b"\0")
            else:
                epoch, end = row.diverging
                parts.append(b"\1\0\x0d" + struct.pack(">iqB", epoch, end, 0))
        parts.append(b"\0")
    parts.append(b"\0")
    run = b"".join(parts)
    size += len(run)
    output.append(run)
    output[0] = _HEAD.pack(size, request.correlation_id, 0, 0, 0, session_id) + output[0]
    return output


def _message(version: int, session_id: int, found: list[Found], converted: list[Any] | None = None) -> FetchResponse:
    """The answer as a message, for the versions before 12; `converted` has records, or the error that took their
    place, for those before 4."""
    responses: list[FetchableTopicResponse] = []
    for number, row in enumerate(found):
        wanted = row.wanted
        code = row.code
        if not responses or responses[-1].topic != wanted.topic:
            responses.append(FetchableTopicResponse(topic=wanted.topic))
        records: Any = b"" if row.region is None else row.region
        if converted is not None:
            records = converted[number]
            if isinstance(records, ErrorCode):
                code, records = records, b""
        data = PartitionData(
            partition_index=wanted.index,
            error_code=int(code),
            high_watermark=row.high_watermark,
            last_stable_offset=row.last_stable_offset,
            log_start_offset=row.log_start_offset,
            records=records,
        )
        if row.aborted is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in row.aborted
            ]
        else:
            data.aborted_transactions = None
        if row.diverging is not None and version >= 12:
            data.diverging_epoch = EpochEndOffset(epoch=row.diverging[0], end_offset=row.diverging[1])
        responses[-1].partitions.append(data)
    response = FetchResponse(responses=responses)
    if version >= 7:
        response.session_id = session_id
    return response


Converted = tuple[Buffer | ErrorCode, OSError | None]
"""Records, or the error that the partition is answered with; what its disk said."""


def _converted(row: Found, magic: int) -> Converted:
    """Batches as a client of 0.9 (magic 0) or 0.10 (1) reads them.  On the pool."""
    if row.region is None:
        return b"", None
    try:
        return down_convert(row.region.read(), magic, first_offset=row.wanted.fetch_offset), None
    except ApiError as error:
        return error.code, None
    except Malformed:
        return ErrorCode.CORRUPT_MESSAGE, None
    except OSError as error:
        return ErrorCode.KAFKA_STORAGE_ERROR, error


def _refused(request: Request, code: ErrorCode) -> FetchResponse:
    """The whole request with one error: at the top from version 7 on, on each partition before."""
    if request.version >= 7:
        return FetchResponse(error_code=int(code))
    body: FetchRequest = request.body
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=row.partition,
                        error_code=int(code),
                        high_watermark=-1,
                        records=b"",
                        aborted_transactions=None,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def refuse(node: Node, request: Request, code: ErrorCode) -> FetchResponse:
    """`Node.refusals`."""
    frame = request.frame
    assert frame is not None
    request.body = FetchRequest.decode(frame[request.position :], request.version)
    return _refused(request, code)
