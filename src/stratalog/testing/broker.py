"""`broker(...)`: a broker for a test, and what a test asks of it."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Buffer
from stratalog.client import Client, Producer, records_between
from stratalog.client.client import EARLIEST, LATEST
from stratalog.client.failures import check
from stratalog.node.config import BrokerConfig
from stratalog.protocol.apis import APIS
from stratalog.protocol.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from stratalog.records.batch import Record
from stratalog.server.process import Broker, Ended
from stratalog.testing.clock import TestClock
from stratalog.testing.disk import FaultyDisk

_BASE = {
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "0",
    "stratalog.spin.us": "0",
}
"""What a test does not want to wait for, and no loop that spins on the interpreter's lock; a test's own configuration
goes over it."""


class BrokenStart(RuntimeError):
    """The broker of a test did not come up."""


@dataclass(slots=True, frozen=True)
class TestRecord:
    """A record as a test looks at it."""

    __test__ = False

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class TestBroker:
    """A running broker.  Its methods may be called from any thread of the test."""

    __test__ = False

    def __init__(self, directory: Path, config: Mapping[str, str]) -> None:
        self.directory = directory
        self.disk = FaultyDisk()
        self.clock = TestClock(self._clock_moved)
        self._config = dict(config)
        self._port = 0
        self._lock = threading.Lock()
        self._broker: Broker | None = None
        self.failure: OSError | None = None
        """The disk's fault that ended the broker by itself, as far as `stop`, `kill` or `restart` met one: a broker
        without a log directory stops."""
        self._start()

    # --- what a client needs --------------------------------------------------------------------------------------
    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:PORT`, the same after a restart."""
        return self._running.bootstrap

    @property
    def port(self) -> int:
        return self._running.port

    def client(self) -> Client:
        """A small client of this broker, yours to close."""
        return Client(self.bootstrap, client_id="stratalog-test")

    # --- what a test asks -----------------------------------------------------------------------------------------
    def create_topic(self, name: str, partitions: int = 1, **config: object) -> None:
        """`b.create_topic("orders", 3, cleanup_policy="compact")`: underscores stand for the dots of a key."""
        request = CreateTopicsRequest(
            timeout_ms=30_000,
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=_text(value))
                        for key, value in config.items()
                    ],
                )
            ],
        )
        with self.client() as client:
            answer = client.call_controller(request)
        check(answer.topics[0].error_code, f"create topic {name}", answer.topics[0].error_message)

    def produce(
        self,
        topic: str,
        values: Iterable[Buffer | tuple[Buffer | None, Buffer | None] | None],
        *,
        partition: int | None = None,
        compression: str = "none",
    ) -> None:
        """Write values, or (key, value) pairs, and wait until they are there.  Timestamps are the test clock's."""
        with self.client() as client, Producer(client, compression=compression, now_ms=self.clock.now_ms) as producer:
            for value in values:
                key = None
                if isinstance(value, tuple):
                    key, value = value
                producer.send(topic, value, key=key, partition=partition)

    def records(self, topic: str, partition: int | None = None, *, committed: bool = True) -> list[TestRecord]:
        """What is in the topic now, by partition and offset."""
        found: list[TestRecord] = []
        with self.client() as client:
            partitions = [partition] if partition is not None else sorted(client.topic(topic).partitions)
            starts = client.offsets(topic, dict.fromkeys(partitions, EARLIEST))
            ends = client.offsets(topic, dict.fromkeys(partitions, LATEST), committed=committed)
            for index in partitions:
                start, end = starts[index][0], ends[index][0]
                read = records_between(client, topic, index, start, end, committed=committed, max_wait_ms=0)
                found.extend(_as_test_record(topic, index, record) for record in read)
        return found

    # --- faults -----------------------------------------------------------------------------------------------------
    def refuse(self, api: str, *, times: int = 1, error: str = "NOT_LEADER_OR_FOLLOWER") -> None:
        """The next `times` requests of this kind ("Produce", "Fetch", "JoinGroup" ...) get this error and have no
        effect."""
        key = next((k for k, row in APIS.items() if row.name == api), None)
        if key is None:
            raise ValueError(f"there is no API {api!r}: it is named as in Kafka's protocol, for example Produce")
        if error not in ErrorCode.__members__:
            raise ValueError(f"there is no error {error!r}")
        code = ErrorCode[error]
        broker = self._running
        broker.run_on_loop(lambda: broker.node.refusals.setdefault(key, []).extend([code] * times))

    def kill(self) -> None:
        """End as kill -9 does: nothing is flushed, nothing is marked.  `start` brings it back."""
        self._end(clean=False)

    def stop(self) -> None:
        """Stop cleanly.  `start` brings it back."""
        self._end(clean=True)

    def start(self) -> None:
        """Start again after `kill` or `stop`, on the same port and data."""
        with self._lock:
            if self._broker is None:
                self._start()

    def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) and start again."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    # --- inside -----------------------------------------------------------------------------------------------------
    @property
    def running(self) -> Broker:
        """The `server.process.Broker` itself, for tests of the product."""
        return self._running

    @property
    def _running(self) -> Broker:
        if self._broker is None:
            raise RuntimeError("the broker is stopped; start() brings it back")
        return self._broker

    def _end(self, *, clean: bool) -> None:
        with self._lock:
            broker, self._broker = self._broker, None
            if broker is None:
                return
            try:
                if clean:
                    broker.stop()
                else:
                    broker.kill()
            except OSError as error:  # what the test has asked for, most likely; its end must not fail over it
                self.failure = error

    def _start(self) -> None:
        config = {
            **_BASE,
            "log.dirs": str(self.directory / "data"),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            **self._config,
        }
        broker = Broker(BrokerConfig(config), clock=self.clock, disk=self.disk, fsync_metadata=False)
        try:
            broker.start()
        except OSError as error:
            raise BrokenStart(f"the test's broker did not start: {error}") from error
        self._port = broker.port
        self._broker = broker

    def _clock_moved(self) -> None:
        broker = self._broker
        if broker is not None:
            with contextlib.suppress(Ended):  # a fault has ended it; the time goes by all the same
                for _ in range(2):  # the timers of the turn that is woken, and what they made due at once
                    broker.run_on_loop(lambda: None)


@contextlib.contextmanager
def broker(
    topics: Mapping[str, int] | Iterable[str] = (),
    *,
    config: Mapping[str, str] | None = None,
    directory: str | Path | None = None,
) -> Iterator[TestBroker]:
    """A broker for the time of a `with` block.

    `topics` are created first: names, or names with their number of partitions.  `config` has broker keys as in
    `server.properties`.  `directory` keeps the data where you say instead of in a temporary directory.
    """
    keep = directory is not None
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="stratalog-test-"))
        running = TestBroker(Path(directory), config or {})
        stack.callback(running.stop if keep else running.kill)
        for name, partitions in topics.items() if isinstance(topics, Mapping) else ((name, 1) for name in topics):
            running.create_topic(name, partitions)
        yield running


def _as_test_record(topic: str, partition: int, record: Record) -> TestRecord:
    return TestRecord(
        topic,
        partition,
        record.offset,
        record.timestamp,
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
