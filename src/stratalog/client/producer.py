"""A small idempotent producer: collects records into batches for each partition and sends them, one at a time in
flight for each partition, so that order holds and a retry never doubles.

Owned by one thread; nothing is sent in the background: `send` ships a full batch, `flush` the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Buffer
from stratalog.client.client import Client, _pause
from stratalog.client.failures import ClientError, ConnectionLost, Refused, Unreachable
from stratalog.client.partitioner import partition_for_key
from stratalog.records.batch import BatchBuilder, add_to_sequence

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_ATTEMPTS: Final = 30


@dataclass(slots=True, frozen=True)
class Delivery:
    """A batch that the broker has acknowledged."""

    topic: str
    partition: int
    base_offset: int
    count: int


class Producer:
    """`with Producer(client) as p: p.send("orders", b"value", key=b"k")`."""

    def __init__(
        self,
        client: Client,
        *,
        acks: int = -1,
        compression: str = "none",
        level: int | None = None,
        batch_bytes: int = 256 << 10,
        idempotent: bool = True,
        delivered: Callable[[Delivery], None] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if compression not in CODECS:
            raise ClientError(f"compression {compression!r}: allowed are {', '.join(CODECS)}")
        if acks not in (-1, 0, 1):
            raise ClientError(f"acks {acks}: allowed are -1 (all), 0 and 1")
        self._client = client
        self._acks = acks
        self._codec = CODECS[compression]
        self._level = level
        self._batch_bytes = batch_bytes
        self._idempotent = idempotent and acks == -1
        self._delivered = delivered
        self._now_ms = now_ms
        self._identity: tuple[int, int] | None = None
        self._builders: dict[tuple[str, int], BatchBuilder] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._round_robin: dict[str, int] = {}

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        create: bool = True,
    ) -> None:
        """Add a record; sends its batch when that is full."""
        if partition is None:
            count = len(self._client.topic(topic, create=create).partitions)
            if key is not None:
                partition = partition_for_key(key, count)
            else:
                partition = self._round_robin.get(topic, 0) % count
        builder = self._builders.get((topic, partition))
        if builder is None:
            builder = self._builders[topic, partition] = self._new_builder(topic, partition)
        size = builder.append(self._now_ms() if timestamp is None else timestamp, key, value, headers)
        if size >= self._batch_bytes:
            self._ship(topic, {partition: self._builders.pop((topic, partition))})
            self._round_robin[topic] = self._round_robin.get(topic, 0) + 1

    def flush(self) -> None:
        """Send what is collected; returns when all of it is acknowledged."""
        by_topic: dict[str, dict[int, BatchBuilder]] = {}
        for (topic, partition), builder in self._builders.items():
            by_topic.setdefault(topic, {})[partition] = builder
        self._builders.clear()
        for topic, builders in by_topic.items():
            self._ship(topic, builders)
            self._round_robin[topic] = self._round_robin.get(topic, 0) + 1

    def _new_builder(self, topic: str, partition: int) -> BatchBuilder:
        producer_id = epoch = sequence = -1
        if self._idempotent:
            if self._identity is None:
                self._identity = self._client.init_producer_id()
            producer_id, epoch = self._identity
            sequence = self._sequences.get((topic, partition), 0)
        return BatchBuilder(
            codec=self._codec,
            level=self._level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def _ship(self, topic: str, builders: dict[int, BatchBuilder]) -> None:
        pending = {partition: builder.build() for partition, builder in builders.items()}
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            try:
                results = self._client.produce(topic, pending, acks=self._acks)
            except Unreachable:  # nothing was sent: the broker is away, and may come back
                if last:
                    raise
                _pause(attempt)
                continue
            except ConnectionLost:
                if last or not self._idempotent:
                    raise
                self._client._refresh(topic)
                _pause(attempt)
                continue
            if self._acks == 0:
                results = dict.fromkeys(pending)  # type: ignore[assignment]
            for partition, result in results.items():
                code = result.error_code if result is not None else 0
                if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    del pending[partition]
                    self._acknowledge(topic, partition, builders[partition], result)
                elif last or not ErrorCode(code).retriable:
                    raise Refused(code, f"produce to {topic}-{partition}", result.error_message if result else None)
            if not pending:
                return
            self._client._refresh(topic)
            _pause(attempt)

    def _acknowledge(self, topic: str, partition: int, builder: BatchBuilder, result: Any) -> None:
        if self._idempotent:
            self._sequences[topic, partition] = add_to_sequence(builder.base_sequence, builder.count)
        if self._delivered is not None:
            base = result.base_offset if result is not None else -1
            self._delivered(Delivery(topic, partition, base, builder.count))
