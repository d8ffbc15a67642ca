"""Writing over the wire, without a record twice when a task, a stage or a driver is tried again.

How: a task writes as an idempotent producer whose identity is made of the write (a streaming query's id and its batch
number, or a batch job's `writeId` and `writeVersion`) and of the task's number, not given out by a broker:

    producer id     2^62 + 62 bits of a hash of (write, task, version // 32768)    brokers give out small ones
    producer epoch  version % 32768                                                an older batch is fenced
    sequences       from 0 for each partition of a topic

So the marker of a batch is the broker's own state of that producer.  A task asks for it first (DescribeProducers): how
many records of exactly this batch and task a partition has already.  Where there are some, they are read back, and rows
that are among them are left out; the rest goes on at the next sequence.  Rows are compared by content, so their order
need not be the same when a batch is repeated, only the rows of the task.  A row that names its partition is looked for
there alone: the same content sent to each partition is as many rows.

What that does not cover is in `docs/SPARK.md`: a broker forgets an idle producer after
`producer.id.expiration.ms` (a day), and two attempts of one task that run at the same time (speculation).

One `TaskWriter` belongs to one task; a thread of its own sends while the next batches are made.
"""

from __future__ import annotations

import hashlib
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stratalog.base.errors import ErrorCode
from stratalog.client import Client, ConnectionLost, Refused
from stratalog.client.client import EARLIEST, LATEST, _pause
from stratalog.client.consumer import visible_batches
from stratalog.client.producer import CODECS
from stratalog.protocol.k61_describe_producers import DescribeProducersRequest, TopicRequest
from stratalog.records.batch import records_of
from stratalog.spark.options import WriteOptions
from stratalog.spark.rows import Rows, SinkError, check_columns, headers_at, plain, pour, rows_of

EPOCHS: Final = 32_768
_ATTEMPTS: Final = 20
_CREATE_ATTEMPTS: Final = 7
"""About two seconds: a broker that makes topics by itself has done so by then."""
_TOPICS_MAX: Final = 1_000
"""Topics that one task may write to: each has a buffer for every partition."""

Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: the same whenever the same batch is tried again."""

    write: str
    version: int
    task: int

    @property
    def producer_id(self) -> int:
        text = f"stratalog-spark/{self.write}/{self.task}/{self.version // EPOCHS}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return (1 << 62) | (int.from_bytes(digest, "big") & ((1 << 62) - 1))

    @property
    def epoch(self) -> int:
        return self.version % EPOCHS


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote: for the summary of a job."""

    records: int
    repeated: int


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: made once in the driver, so every attempt of every task has the same identity."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Written:
        return write_task(iterator, self._options, self._write_id, self._options.write_version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All is written: each task waited for its acknowledgements."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays; a repeat with the same `writeId` and `writeVersion` goes on behind it."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: the query's id and the batch's number come with each task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if self._options.write_id is not None:
            query = self._options.write_id
        if not self._options.exactly_once:
            query, batch = query or "", batch or "0"  # its producer id is the broker's
        if query is None or batch is None:
            raise SinkError(
                "Spark did not say which streaming query and batch this is; guarantee=at-least-once does without"
            )
        return write_task(iterator, self._options, query, int(batch), patient=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All is written: each task waited for its acknowledgements."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written stays; the repeated batch goes on behind it."""


def write_task(
    iterator: Iterator[Any], options: WriteOptions, write: str, version: int, *, patient: bool = False
) -> Written:
    """Write a task's rows; returns when all of them are acknowledged."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    with TaskWriter(options, Identity(write, version, task), patient=patient) as writer:
        for batch in iterator:
            for rows in rows_of(batch, options):
                writer.add(rows)
        writer.finish()
    return Written(writer.records, writer.repeated)


@dataclass(slots=True)
class _Target:
    """A topic that a task writes to."""

    partitions: int
    sequences: dict[int, int]
    written: dict[int, Counter[bytes]]
    """Rows of this very batch that an earlier attempt wrote, by partition and content; none that is down to zero."""


class TaskWriter:
    """The producer of one task."""

    def __init__(self, options: WriteOptions, identity: Identity, *, patient: bool = False) -> None:
        """`patient`: the broker was there before, so it is waited for; else only from the first answer on."""
        self._options = options
        self._codec = CODECS[options.compression]
        self._client = Client(options.bootstrap, client_id=options.client_id, timeout_s=options.timeout_s)
        if patient:
            self._client.patience_s = options.patience_s
        self._identity = (identity.producer_id, identity.epoch)
        self._version = identity.version
        if not options.exactly_once:
            self._identity = self._client.init_producer_id()
        self._targets: dict[str, _Target] = {}
        self._pending: dict[tuple[str, int], Any] = {}
        self._ready: dict[str, dict[int, bytearray]] = {}
        self._sender = ThreadPoolExecutor(1, "stratalog-send")
        self._sending: Future[None] | None = None
        self.records = 0
        self.repeated = 0

    def __enter__(self) -> TaskWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    # --- rows in ---------------------------------------------------------------------------------------------------
    def add(self, rows: Rows) -> None:
        """Take rows; full batches are sent."""
        import numpy as np

        from stratalog.spark.encode import grouped, partitions_of

        target = self._target(rows.topic)
        routed = partitions_of(rows.keys, rows.values, target.partitions)
        places = np.where(rows.partitions >= 0, rows.partitions, routed)
        numbers = rows.rows if not target.written else self._unwritten(rows, target, places)
        self.records += len(rows.rows)
        if not len(numbers):
            return
        highest = int(places[numbers].max())
        if highest >= target.partitions:
            raise SinkError(
                f"the column partition has {highest}, the topic {rows.topic} has {target.partitions}, numbered from 0"
            )
        for partition, chosen in grouped(places, numbers):
            pour(rows, chosen, self._buffer(rows.topic, partition), partial(self._ship, rows.topic, partition))

    def _buffer(self, topic: str, partition: int) -> Any:
        from stratalog.spark.encode import Pending

        pending = self._pending.get((topic, partition))
        if pending is None:
            pending = self._pending[topic, partition] = Pending(self._options.batch_bytes)
        return pending

    def finish(self) -> None:
        """Send the rest, and wait until everything is acknowledged."""
        for (topic, partition), pending in sorted(self._pending.items()):
            if pending.count:
                self._ship(topic, partition)
        self._send()
        self._wait()
        left = sum(rows.total() for target in self._targets.values() for rows in target.written.values())
        if left:
            print(
                f"stratalog: batch {self._version}: an earlier attempt wrote {left} records that are not among the "
                "rows of this one; the query does not give the same rows each time, and they stay",
                file=sys.stderr,
            )

    # --- batches out -----------------------------------------------------------------------------------------------
    def _ship(self, topic: str, partition: int) -> None:
        """Put a partition's batch to the others of the next request, one for each partition."""
        if partition in self._ready.get(topic, ()):
            self._send()
        pending = self._pending[topic, partition]
        sequences = self._targets[topic].sequences
        sequence = sequences.get(partition, 0)
        sequences[partition] = (sequence + pending.count) & 0x7FFFFFFF
        self._ready.setdefault(topic, {})[partition] = pending.take(
            codec=self._codec,
            level=self._options.level,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            sequence=sequence,
        )

    def _send(self) -> None:
        """Give what is ready to the sender; one request is on its way at a time, so order holds."""
        self._wait()
        ready, self._ready = self._ready, {}
        if ready:
            self._sending = self._sender.submit(self._send_all, ready)

    def _wait(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _send_all(self, ready: Mapping[str, dict[int, bytearray]]) -> None:
        for topic, batches in ready.items():
            send(self._client, topic, batches)

    # --- what an earlier attempt did -------------------------------------------------------------------------------
    def _target(self, topic: str) -> _Target:
        target = self._targets.get(topic)
        if target is None:
            if len(self._targets) >= _TOPICS_MAX:
                raise SinkError(f"one task writes to more than {_TOPICS_MAX} topics")
            self._wait()  # the client belongs to one thread at a time
            partitions = partitions_of_topic(self._client, topic)
            self._client.patience_s = self._options.patience_s
            target = self._targets[topic] = _Target(partitions, {}, {})
            if self._options.exactly_once:
                self._recall(topic, target)
        return target

    def _recall(self, topic: str, target: _Target) -> None:
        """Where an earlier attempt of this batch stopped, and which rows it wrote."""
        for partition, (epoch, last) in producer_states(
            self._client, topic, range(target.partitions), self._identity[0]
        ).items():
            if epoch > self._identity[1]:
                raise SinkError(
                    f"{topic}-{partition} has a later batch of this write (epoch {epoch}), this one is batch "
                    f"{self._version}: the checkpoint was set back, or another query writes with the same id; a new "
                    "writeId writes the batch again"
                )
            if epoch == self._identity[1]:
                count = last + 1
                target.sequences[partition] = count & 0x7FFFFFFF
                found = written_rows(self._client, topic, partition, self._identity, count)
                if found:
                    target.written[partition] = found

    def _unwritten(self, rows: Rows, target: _Target, places: Any) -> Any:
        """The rows that no earlier attempt has written."""
        import numpy as np

        left = []
        for row in rows.rows.tolist():
            digest = content(plain(rows.key_array, row), plain(rows.value_array, row), headers_at(rows.headers, row))
            own = int(places[row])
            # The partitioner's choice may have been another one: the topic had fewer partitions then.
            others = () if rows.partitions[row] >= 0 else (p for p in target.written if p != own)
            for partition in (own, *others):
                if digest in target.written.get(partition, ()):
                    _take(target.written, partition, digest)
                    self.repeated += 1
                    break
            else:
                left.append(row)
        return np.asarray(left, np.int64)


def _take(written: dict[int, Counter[bytes]], partition: int, digest: bytes) -> None:
    """One row of what is there is accounted for."""
    there = written[partition]
    there[digest] -= 1
    if not there[digest]:
        del there[digest]
    if not there:
        del written[partition]


def partitions_of_topic(client: Client, topic: str) -> int:
    """How many partitions a topic has; one that is missing is made where the broker makes topics by itself."""
    for attempt in range(_CREATE_ATTEMPTS):
        try:
            return len(client.topic(topic).partitions)
        except Refused as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or attempt == _CREATE_ATTEMPTS - 1:
                raise
            client.metadata([topic], create=True)
            _pause(attempt)
    raise AssertionError("the last attempt returns or raises")


def content(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """What makes a row the same row: its key, value and headers."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"+%d:" % len(part))
        digest.update(part or b"")
    for name, raw in headers:
        text = name.encode("utf-8")
        digest.update(b"h%d:%s" % (len(text), text))
        digest.update(b"-" if raw is None else b"+%d:" % len(raw))
        digest.update(raw or b"")
    return digest.digest()


def producer_states(
    client: Client, topic: str, partitions: Iterable[int], producer_id: int
) -> dict[int, tuple[int, int]]:
    """(epoch, last sequence) of a producer in each partition that knows it."""
    return client._retrying(
        lambda: _producer_states(client, topic, partitions, producer_id), lambda: client._refresh(topic)
    )


def _producer_states(
    client: Client, topic: str, partitions: Iterable[int], producer_id: int
) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    leaders: dict[int, list[int]] = {}
    info = client.topic(topic)
    for partition in partitions:
        leaders.setdefault(info.partitions[partition].leader, []).append(partition)
    for node, indexes in leaders.items():
        if DescribeProducersRequest.api_key not in client.connection(node).versions:
            raise SinkError(
                "the broker is older than Kafka 2.8 and does not say what a producer has written (DescribeProducers); "
                "guarantee=at-least-once does without"
            )
        answer = client.call(
            DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=indexes)]), node=node
        )
        for row in (p for t in answer.topics for p in t.partitions):
            if row.error_code:
                raise Refused(row.error_code, f"producers of {topic}-{row.partition_index}", row.error_message)
            for state in row.active_producers:
                if state.producer_id == producer_id:
                    found[row.partition_index] = (state.producer_epoch, state.last_sequence)
    return found


def written_rows(client: Client, topic: str, partition: int, identity: tuple[int, int], count: int) -> Counter[bytes]:
    """The contents of the records that a producer wrote in its epoch: read back from the end of the partition, each
    time from further in front, until its first sequence comes by."""
    start = client.offsets(topic, {partition: EARLIEST})[partition][0]
    end = client.offsets(topic, {partition: LATEST})[partition][0]
    distance = 2 * count + 1_000
    while True:
        begin = max(start, end - distance)
        found: Counter[bytes] = Counter()
        complete = False
        position = begin
        while position < end:
            parts = client.fetch(topic, {partition: position}, committed=False, partition_max_bytes=8 << 20)
            moved = position
            for part in parts:
                for header, _ in visible_batches(part.records, [], committed=False):
                    if header.next_offset <= position:
                        continue
                    moved = max(moved, header.next_offset)
                    if (header.producer_id, header.producer_epoch) != identity:
                        continue
                    complete = complete or header.base_sequence == 0
                    found.update(content(r.key, r.value, r.headers) for r in records_of(part.records, header))
            if moved == position:
                break
            position = moved
        if complete or begin == start:
            if found.total() < count:
                print(
                    f"stratalog: {topic}-{partition}: of {count} records of an earlier attempt {found.total()} are "
                    "still there; the others were deleted or compacted, and are written again",
                    file=sys.stderr,
                )
            return found
        distance *= 4


def send(client: Client, topic: str, batches: dict[int, bytearray]) -> None:
    """Produce one batch for each partition, again where that may help; sequences keep a retry from doubling."""
    pending = dict(batches)
    for attempt in range(_ATTEMPTS):
        last = attempt == _ATTEMPTS - 1
        try:
            results = client.produce(topic, pending, acks=-1)
        except ConnectionLost:
            if last:
                raise
            client._refresh(topic)
            _pause(attempt)
            continue
        for partition, result in results.items():
            code = result.error_code
            if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                del pending[partition]
            elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
                raise SinkError(
                    f"{topic}-{partition}: a later batch of this write is there already; this one is fenced"
                )
            elif last or not ErrorCode(code).retriable:
                raise Refused(code, f"produce to {topic}-{partition}", result.error_message)
        if not pending:
            return
        client._refresh(topic)
        _pause(attempt)
