"""A node without a process: frames in, frames out, a clock that the test moves, a real disk in a temporary place."""

from __future__ import annotations

import itertools
from typing import Any

from stratalog.base.types import ConnectionId, FileRegion, Uuid
from stratalog.logs.registry import LogRegistry
from stratalog.metadata.image import MetadataImage
from stratalog.node.node import Node
from stratalog.node.request import Peer, Request
from stratalog.node.topics import Topics
from stratalog.protocol.apis import APIS, BY_NAME
from stratalog.protocol.disk import metadata as records
from stratalog.protocol.headers import RequestHeader
from stratalog.records.batch import BatchBuilder
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig


class ManualClock:
    def __init__(self) -> None:
        self.wall = 1_700_000_000_000
        self.monotonic = 1_000

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


class CountingRng:
    def __init__(self) -> None:
        self._next = itertools.count(1)

    def integer(self, low: int, high: int) -> int:
        return low + next(self._next) % (high - low)

    def token(self, size: int) -> bytes:
        return next(self._next).to_bytes(size, "big")


class ImmediatePool:
    """Work runs at once, its answer too."""

    def submit(self, name: str, work: Any, done: Any) -> None:
        try:
            result, error = work(), None
        except Exception as failure:  # noqa: BLE001 - carried to the callback
            result, error = None, failure
        done(result, error)


class Effects:
    def __init__(self) -> None:
        self.closed: list[tuple[int, str]] = []

    def close(self, connection: ConnectionId, reason: str) -> None:
        self.closed.append((connection, reason))

    def flush(self) -> None:
        """Answers are looked at when the turn is over."""


class Bench:
    """The node and what a test does with it."""

    def __init__(self, directory: str, disk: Any = None) -> None:
        self.clock = ManualClock()
        self.effects = Effects()
        disk = disk or RealDisk()
        rng = CountingRng()
        pool = ImmediatePool()
        self.configs: dict[str, LogConfig] = {}
        self.logs = LogRegistry(disk, pool, rng, [directory], config_of=lambda t: self.configs.get(t, LogConfig()))
        self.logs.open()
        self.logs.load(self.clock.now_ms())
        self.node = Node(
            config={"fetch.max.bytes": 55 << 20},
            node_id=1,
            cluster_id="cluster",
            clock=self.clock,
            rng=rng,
            disk=disk,
            pool=pool,
            logs=self.logs,
            effects=self.effects,
        )
        self.topics = Topics(self.node)
        self.node.image = MetadataImage()
        self._ids = itertools.count(1)
        self._correlation = itertools.count(1)
        self.peers: dict[int, Peer] = {}

    # --- metadata -------------------------------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int = 1, config: LogConfig | None = None, isr: list[int] | None = None
    ) -> Uuid:
        if config is not None:
            self.configs[name] = config
        topic_id = Uuid(next(self._ids).to_bytes(16, "big"))
        rows: list[Any] = [records.TopicRecord(name=name, topic_id=topic_id)]
        rows += [
            records.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1],
                isr=isr or [1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ]
        self.apply(*rows)
        return topic_id

    def apply(self, *rows: Any) -> None:
        image = self.node.image
        self.topics.apply(image.apply(rows, offset=image.offset + len(rows), epoch=1))

    # --- requests -------------------------------------------------------------------------------------------------

    def peer(self, number: int = 1) -> Peer:
        if number not in self.peers:
            self.peers[number] = Peer(ConnectionId(number), host="127.0.0.1", port=5000 + number, listener="PLAINTEXT")
        return self.peers[number]

    def frame(self, name: str, version: int, body: Any, client_id: str | None = "test") -> bytearray:
        api = BY_NAME[name]
        header = RequestHeader(api.key, version, next(self._correlation), client_id)
        return bytearray(header.encode() + body.encode_bytes(version))

    def submit(
        self, name: str, version: int, body: Any, *, connection: int = 1, client_id: str | None = "test"
    ) -> Request:
        """Hand a request over without ending the turn."""
        frame = self.frame(name, version, body, client_id)
        return self.node.handle_frame(self.peer(connection), memoryview(frame), self.clock.now_ms())

    def end_turn(self) -> None:
        self.node.end_of_wakeup(self.clock.now_ms())
        self.node.ready.clear()

    def ask(self, name: str, version: int, body: Any, **options: Any) -> Any:
        """One request, one turn; the decoded answer, None where there is none yet."""
        request = self.submit(name, version, body, **options)
        self.end_turn()
        return self.answer(request)

    def answer(self, request: Request) -> Any:
        if request.output is None:
            return None
        data = b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in request.output)
        if not data:
            return b""
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        assert int.from_bytes(data[4:8], "big") == request.correlation_id
        api = APIS[request.key]
        start = 9 if api.is_flexible(request.version) and request.key != 18 else 8
        return api.response.decode(memoryview(data)[start:], request.version)

    def turn(self, advance_ms: int = 0) -> None:
        """Time passes, timers fire, the turn ends."""
        self.clock.advance(advance_ms)
        self.node.deadline()
        self.node.begin_turn(self.clock.now_ms(), self.clock.monotonic_ms())
        self.end_turn()


def batch(
    *values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, timestamp: int = 1_700_000_000_000
) -> bytearray:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    for value in values:
        builder.append(timestamp, None, value)
    return builder.build()
