"""Reading over the wire: any Kafka broker as an origin.

A slice is fetched with large requests, each answer scanned and decoded by the same kernels as a segment; the next
answer is on its way while one is decoded.  Aborted transactions and control batches are left out as the broker's list
says.  Leaders may move and connections may break meanwhile: the fetch goes on from its offset.

One client belongs to one thread: in a task that is the thread that fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.client import Client, Refused
from stratalog.client.client import EARLIEST, LATEST, FetchedPartition
from stratalog.reader import Damage
from stratalog.records import arrow
from stratalog.records.control import read_type
from stratalog.records.errors import CorruptBatch
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_TRUNCATED,
    CODEC_MASK,
    CONTROL,
    COUNT,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    OK,
    POSITION,
    PRODUCER_ID,
    ROW,
    SIZE,
    TABLE_FULL,
    TEXTS,
    TRANSACTIONAL,
    BatchTable,
    best,
    load_kernels,
)
from stratalog.spark.damage import reporter
from stratalog.spark.options import ReadOptions, Selection, TopicPartition
from stratalog.spark.origin import Slice, Span, lost, matching

_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_EMPTY_ANSWERS_MAX: Final = 40
"""Fetches in a row without a whole batch below the end that the broker named: 20 s at half a second each."""
_GROUP_BYTES_MAX: Final = 32 << 20
"""Decompressed records in one Arrow batch."""


class Wire:
    """`Origin` over a broker."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client = _client(options)
        """A broker that is not there when a query is planned is said at once; one that goes later is waited for."""

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        if selection.kind == "subscribePattern":
            existing = {name: list(info.partitions) for name, info in self._client.topics().items()}
        else:
            named = set(selection.topics) | {topic for topic, _ in selection.assigned}
            existing = {}
            for name in sorted(named):
                try:
                    existing[name] = list(self._client.topic(name, refresh=True).partitions)
                except Refused as error:
                    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
        self._client.patience_s = self._options.patience_s
        return matching(selection, existing, "at " + self._options.bootstrap)

    def spans(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Span]:
        found = {}
        for topic, indexes in _by_topic(partitions).items():
            starts = self._client.offsets(topic, dict.fromkeys(indexes, EARLIEST))
            ends = self._client.offsets(topic, dict.fromkeys(indexes, LATEST), committed=self._options.committed)
            for index in indexes:
                start = starts[index][0]
                found[topic, index] = Span(start, max(start, ends[index][0]))
        return found

    def at_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for topic, indexes in _by_topic(list(times)).items():
            answers = self._client.offsets(topic, {index: times[topic, index] for index in indexes})
            for index in indexes:
                found[topic, index] = answers[index][0]
        return found

    def slices(self, partition: TopicPartition, span: Span, *, by_bytes: bool) -> list[Slice]:
        return [Slice(*partition, span.start, span.stop, "")]

    def topic_id(self, topic: str) -> Any:
        found = self._client.topic(topic).topic_id
        return found if any(found) else None

    def close(self) -> None:
        self._client.close()


def _client(options: ReadOptions) -> Client:
    return Client(options.bootstrap, client_id=options.client_id, timeout_s=options.timeout_s)


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


# --- in a task --------------------------------------------------------------------------------------------------------
Seen = Callable[[int, int, list[tuple[int, int, int, int]]], None]
"""Is told of the batches that an answer had: first and last offset wanted, and of each its last offset, size, magic and
attributes."""


def read_wire(
    piece: Slice,
    options: ReadOptions,
    columns: tuple[str, ...],
    early: int | None,
    late: int | None,
    seen: Seen | None = None,
) -> Iterator[Any]:
    """The records of a slice from its broker."""
    load_kernels()
    times = (_MIN_INT64 if early is None else early, _MAX_INT64 if late is None else late)
    table = BatchTable(16_384)
    with _client(options) as client, ThreadPoolExecutor(1, "stratalog-fetch") as fetcher:
        client.patience_s = options.patience_s
        position = piece.start
        empty = 0
        coming = fetcher.submit(_fetch, client, piece, position, options)
        while position < piece.stop:
            try:
                answer = coming.result()
            except Refused as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    lost(options, f"{piece.name} does not exist any more; offsets from {position} on cannot be read")
                    return
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                position = _after_loss(client, piece, position, options)
                coming = fetcher.submit(_fetch, client, piece, position, options)
                continue
            answers = _Answer(answer, table, options)
            reached = answers.reaches(position, piece)
            if reached == position:
                empty += 1
                bound = answer.last_stable_offset if options.committed else answer.high_watermark
                if 0 <= bound <= position or empty > _EMPTY_ANSWERS_MAX:
                    lost(
                        options,
                        f"{piece.name}: nothing comes at offset {position}, planned was everything before {piece.stop}",
                    )
                    return
            else:
                empty = 0
            if reached < piece.stop:
                coming = fetcher.submit(_fetch, client, piece, reached, options)
            if seen is not None:
                seen(position, piece.stop, answers.headers())
            yield from answers.decoded(piece, position, columns, times)
            position = reached


def _fetch(client: Client, piece: Slice, position: int, options: ReadOptions) -> FetchedPartition:
    found = client.fetch(
        piece.topic,
        {piece.partition: position},
        committed=options.committed,
        max_bytes=max(options.fetch_bytes, 1 << 20),
        partition_max_bytes=options.fetch_bytes,
        max_wait_ms=500,
    )
    return found[0]


def _after_loss(client: Client, piece: Slice, position: int, options: ReadOptions) -> int:
    start = client.offsets(piece.topic, {piece.partition: EARLIEST})[piece.partition][0]
    if start <= position:
        lost(options, f"{piece.name}: the broker ends before offset {position}, planned was up to {piece.stop}")
        return piece.stop
    until = min(start, piece.stop)
    lost(options, f"{piece.name}: offsets {position} to {until - 1} were deleted before they were read")
    return until


class _Answer:
    """One fetch's bytes.  The table is shared: an answer is done with before the next is scanned."""

    def __init__(self, answer: FetchedPartition, table: BatchTable, options: ReadOptions) -> None:
        self._data = memoryview(answer.records).cast("B")
        self._table = table
        self._options = options
        self._coming = sorted(answer.aborted, key=lambda pair: pair[1])
        self._active: set[int] = set()

    def reaches(self, position: int, piece: Slice) -> int:
        """The offset behind the last whole batch."""
        rest = self._data
        reached = position
        while len(rest):
            code = best().scan_batches(rest, self._table, verify=True)
            count = self._table.count
            if count:
                reached = max(reached, self._table.rows[(count - 1) * ROW + LAST_OFFSET] + 1)
            if code == TABLE_FULL:
                # Rare: very small batches.  What is behind them is fetched again.
                self._data = self._data[: self._table.end]
                break
            if code not in (OK, BATCH_TRUNCATED):
                reached = self._behind(piece, reached, TEXTS[code])
            break
        return reached

    def _behind(self, piece: Slice, reached: int, text: str) -> int:
        """The offset behind the damaged batch that follows: with `badBatches=report` it is noted and passed over, as
        far as its header says where it ends; what came behind it is fetched again."""
        note = reporter(self._options, piece)
        damaged = self._data[self._table.end :]
        following = -1
        if note is not None and len(damaged) >= 61 and damaged[16] == 2:
            base = int.from_bytes(damaged[:8], "big", signed=True)
            delta = int.from_bytes(damaged[23:27], "big", signed=True)
            following = base + delta + 1 if base >= reached and delta >= 0 else -1
        if note is None or following < 0:
            raise CorruptBatch(f"{piece.name} from {self._options.bootstrap}: {text}, at or after offset {reached}")
        note(Damage(self._options.bootstrap, -1, 0, reached, following, text))
        return following

    def headers(self) -> list[tuple[int, int, int, int]]:
        """Of each batch: last offset, size, magic, attributes."""
        rows = self._table.rows
        return [
            (rows[at + LAST_OFFSET], rows[at + SIZE], rows[at + MAGIC], rows[at + ATTRIBUTES])
            for at in range(0, self._table.count * ROW, ROW)
        ]

    def decoded(self, piece: Slice, position: int, columns: tuple[str, ...], times: tuple[int, int]) -> Iterator[Any]:
        rows = self._table.rows
        group: list[int] = []
        payloads: dict[int, Any] = {}
        held = 0
        for index in range(self._table.count):
            at = index * ROW
            if not self._is_visible(at) or rows[at + LAST_OFFSET] < position:
                continue
            if rows[at + BASE_OFFSET] >= piece.stop and rows[at + MAGIC] == 2:
                break
            if not rows[at + COUNT] or rows[at + MAX_TIMESTAMP] < times[0] != _MIN_INT64:
                continue
            if rows[at + ATTRIBUTES] & CODEC_MASK or rows[at + MAGIC] < 2:
                try:
                    payload = arrow.payloads_of(self._data, self._table, [index])[index]
                except CorruptBatch as error:
                    self._tell(piece, index, error)
                    continue
                if group and held + len(payload) > _GROUP_BYTES_MAX:
                    yield from self._batch(group, payloads, piece, position, columns, times)
                    group, payloads, held = [], {}, 0
                payloads[index] = payload
                held += len(payload)
            group.append(index)
        if group:
            yield from self._batch(group, payloads, piece, position, columns, times)

    def _batch(
        self,
        group: list[int],
        payloads: dict[int, Any],
        piece: Slice,
        position: int,
        columns: tuple[str, ...],
        times: tuple[int, int],
    ) -> Iterator[Any]:
        def decoded(indexes: list[int]) -> Any:
            return arrow.decode(
                self._data,
                self._table,
                indexes=indexes,
                columns=columns,
                start=position,
                stop=piece.stop,
                start_time=times[0],
                end_time=times[1],
                unit="us",
                payloads=payloads,
            )

        try:
            found = [decoded(group)]
        except CorruptBatch:
            found = []
            for index in group:  # which one it is: once more, one by one
                try:
                    found.append(decoded([index]))
                except CorruptBatch as error:
                    self._tell(piece, index, error)
        for batch in found:
            if batch.num_rows:
                yield batch

    def _tell(self, piece: Slice, index: int, error: CorruptBatch) -> None:
        """A batch whose checksum is right and whose records are not: raised, or noted and passed over."""
        rows = self._table.rows
        first, last = rows[index * ROW + BASE_OFFSET], rows[index * ROW + LAST_OFFSET]
        note = reporter(self._options, piece)
        if note is None:
            raise CorruptBatch(
                f"{piece.name} from {self._options.bootstrap}: the batch at offset {first}: {error}"
            ) from error
        note(Damage(self._options.bootstrap, -1, 0, first, last + 1, str(error)))

    def _is_visible(self, at: int) -> bool:
        """A producer's records count as aborted from the first offset in the broker's list to its marker."""
        rows = self._table.rows
        if rows[at + MAGIC] < 2:
            return True
        attributes = rows[at + ATTRIBUTES]
        if self._options.committed:
            while self._coming and self._coming[0][1] <= rows[at + LAST_OFFSET]:
                self._active.add(self._coming.pop(0)[0])
        if attributes & CONTROL:
            if attributes & TRANSACTIONAL:
                self._end_transaction(at)
            return False
        if not self._options.committed:
            return True
        return not (attributes & TRANSACTIONAL and rows[at + PRODUCER_ID] in self._active)

    def _end_transaction(self, at: int) -> None:
        from stratalog.records.batch import read_header, records_of

        rows = self._table.rows
        position = rows[at + POSITION]
        header = read_header(self._data[position : position + rows[at + SIZE]])
        for record in records_of(self._data[position : position + rows[at + SIZE]], header):
            if read_type(record.key) in (0, 1):
                self._active.discard(rows[at + PRODUCER_ID])
