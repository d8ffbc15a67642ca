"""`Client`: metadata, offsets, fetches, produces and admin requests against one cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.client.connection import Connection
from stratalog.client.failures import ClientError, ConnectionLost, Refused, Unreachable, check
from stratalog.protocol.apis import APIS
from stratalog.protocol.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from stratalog.protocol.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from stratalog.protocol.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from stratalog.protocol.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from stratalog.protocol.k10_find_coordinator import FindCoordinatorRequest
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest
from stratalog.protocol.schema import Message

T = TypeVar("T")

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3

_STALE: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
_ATTEMPTS: Final = 20
"""Tries of a request whose error may go away by itself: with the pauses below about ten seconds, the time that a
coordinator or a leader takes to move."""


@dataclass(slots=True)
class PartitionInfo:
    """A partition as the metadata has it."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(slots=True)
class TopicInfo:
    """A topic as the metadata has it."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)


@dataclass(slots=True)
class FetchedPartition:
    """One partition's part of a fetch.  `records` are whole batches and perhaps a cut one at the end."""

    topic: str
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of the aborted transactions that reach into the records."""
    records: Any


class Client:
    """A client of one cluster.  Use it as a context manager, or call `close`."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "stratalog",
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
    ) -> None:
        """`patience_s`: how long requests that change nothing wait for a broker that cannot be reached, such as one
        that is being restarted; 0 says at once that it is not there."""
        servers = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
        self._bootstrap = [_host_port(server) for server in servers if server.strip()]
        if not self._bootstrap:
            raise ClientError("no bootstrap server was given (HOST:PORT[,HOST:PORT...])")
        self._client_id = client_id
        self._timeout_s = timeout_s
        self.patience_s = patience_s
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, Connection] = {}
        self._seed: Connection | None = None
        self._topics: dict[str, TopicInfo] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._seed is not None:
            self._seed.close()
            self._seed = None

    # --- metadata --------------------------------------------------------------------------------------------------
    @property
    def brokers(self) -> dict[int, tuple[str, int]]:
        """Node id to (host, port), as the last metadata had it."""
        if not self._addresses:
            self.metadata([])
        return dict(self._addresses)

    def metadata(self, topics: Iterable[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """Ask for metadata (None: of all topics) and remember it."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer: MetadataResponse = self._retrying(lambda: self._any().call(request), self._drop_seed)
        self._addresses = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        if topics is None:
            self._topics.clear()
        for t in answer.topics:
            name = t.name or ""
            if t.error_code:
                self._topics.pop(name, None)
                continue
            self._topics[name] = TopicInfo(
                name,
                t.topic_id,
                t.is_internal,
                {
                    p.partition_index: PartitionInfo(
                        p.partition_index,
                        p.leader_id,
                        p.leader_epoch,
                        list(p.replica_nodes),
                        list(p.isr_nodes),
                        list(p.offline_replicas),
                    )
                    for p in sorted(t.partitions, key=lambda p: p.partition_index)
                },
            )
        return answer

    def topics(self) -> dict[str, TopicInfo]:
        """All topics, by name."""
        self.metadata()
        return dict(sorted(self._topics.items()))

    def topic(self, name: str, *, create: bool = False, refresh: bool = False) -> TopicInfo:
        """One topic; waits for a leader of each partition."""
        for attempt in range(_ATTEMPTS):
            if refresh or attempt or name not in self._topics:
                answer = self.metadata([name], create=create)
                code = next((t.error_code for t in answer.topics if t.name == name), 0)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                    raise Refused(code, f"topic {name}", "there is no such topic")
                if code and not ErrorCode(code).retriable:
                    raise Refused(code, f"topic {name}")
            info = self._topics.get(name)
            if info is not None and info.partitions and all(p.leader >= 0 for p in info.partitions.values()):
                return info
            _pause(attempt)
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}", "no leader came up in time")

    # --- any request -----------------------------------------------------------------------------------------------
    def call(self, request: Message, *, node: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request to a node (None: any) and give back its answer.  A lost connection is tried once again with a
        new one only where nothing can have happened: when the send found it closed."""
        if node is None:
            return self._retrying(lambda: self._any().call(request, timeout_s=timeout_s), self._drop_seed)
        return self.connection(node).call(request, timeout_s=timeout_s)

    def call_controller(self, request: Message, *, timeout_s: float | None = None) -> Any:
        """Send an admin request to the controller, or to any broker where the metadata does not say."""
        if self.controller_id < 0:
            self.metadata([])
        node = self.controller_id if self.controller_id in self._addresses else None
        return self.call(request, node=node, timeout_s=timeout_s)

    def call_coordinator(self, group: str, make: Callable[[], Message], code_of: Callable[[Any], int]) -> Any:
        """Send a request to a group's coordinator, and again while it loads or moves.  `code_of` reads the error of
        an answer; the caller deals with the others."""
        for attempt in range(_ATTEMPTS):
            node = self._coordinator(group)
            if node is not None:
                answer = self.call(make(), node=node)
                if code_of(answer) not in (
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ErrorCode.NOT_COORDINATOR,
                ):
                    return answer
            _pause(attempt)
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group}", "its coordinator did not come up in time")

    def _coordinator(self, group: str) -> int | None:
        connection = self._any()
        batched = connection.version_of(FindCoordinatorRequest.api_key) >= 4
        request = FindCoordinatorRequest(coordinator_keys=[group]) if batched else FindCoordinatorRequest(key=group)
        answer = self.call(request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            if not ErrorCode(found.error_code).retriable:
                check(found.error_code, f"group {group}", found.error_message)
            return None
        self._addresses.setdefault(found.node_id, (found.host, found.port))
        return int(found.node_id)

    def connection(self, node: int) -> Connection:
        """The connection to a node, opened when first asked for."""
        connection = self._connections.get(node)
        if connection is None:
            if node not in self._addresses:
                self.metadata([])
            if node not in self._addresses:
                raise Unreachable(f"the cluster has no broker {node}")
            host, port = self._addresses[node]
            connection = Connection(host, port, client_id=self._client_id, timeout_s=self._timeout_s)
            self._connections[node] = connection
        return connection

    def drop(self, node: int) -> None:
        """Forget the connection to a node, after it failed."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    # --- data ------------------------------------------------------------------------------------------------------
    def offsets(
        self, topic: str, timestamps: Mapping[int, int], *, committed: bool = False
    ) -> dict[int, tuple[int, int]]:
        """Partition to (offset, timestamp) of the first record at or after each partition's timestamp; EARLIEST,
        LATEST and MAX_TIMESTAMP ask for these; -1 where there is no such record."""

        def once() -> dict[int, tuple[int, int]]:
            found: dict[int, tuple[int, int]] = {}
            for node, partitions in self._by_leader(topic, timestamps).items():
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=int(committed),
                    timeout_ms=int(self._timeout_s * 1000),
                    topics=[
                        ListOffsetsTopic(
                            name=topic,
                            partitions=[
                                ListOffsetsPartition(partition_index=p, timestamp=timestamps[p]) for p in partitions
                            ],
                        )
                    ],
                )
                answer = self.call(request, node=node)
                for p in (p for t in answer.topics for p in t.partitions):
                    check(p.error_code, f"offsets of {topic}-{p.partition_index}")
                    found[p.partition_index] = (p.offset, p.timestamp)
            return found

        return self._retrying(once, lambda: self._refresh(topic))

    def fetch(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        max_bytes: int = 8 << 20,
        partition_max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        committed: bool = True,
    ) -> list[FetchedPartition]:
        """Fetch from the leaders, one request for each; no fetch session.  The records stay valid: the buffers
        belong to the caller."""

        def once() -> list[FetchedPartition]:
            info = self.topic(topic)
            found: list[FetchedPartition] = []
            by_leader = self._by_leader(topic, positions)
            for node, partitions in by_leader.items():
                request = FetchRequest(
                    max_wait_ms=max_wait_ms if len(by_leader) == 1 else min(max_wait_ms, 50),
                    min_bytes=min_bytes,
                    max_bytes=max_bytes,
                    isolation_level=int(committed),
                    topics=[
                        FetchTopic(
                            topic=topic,
                            topic_id=info.topic_id,
                            partitions=[
                                FetchPartition(
                                    partition=p, fetch_offset=positions[p], partition_max_bytes=partition_max_bytes
                                )
                                for p in partitions
                            ],
                        )
                    ],
                )
                connection = self.connection(node)
                version = connection.version_of(FetchRequest.api_key)
                if info.topic_id == ZERO_UUID:
                    version = min(version, 12)
                answer = connection.call(request, version=version, timeout_s=self._timeout_s + max_wait_ms / 1000)
                check(answer.error_code, f"fetch from {topic}")
                for p in (p for t in answer.responses for p in t.partitions):
                    check(p.error_code, f"fetch from {topic}-{p.partition_index} at {positions[p.partition_index]}")
                    found.append(_fetched(topic, p))
            return found

        return self._retrying(once, lambda: self._refresh(topic))

    def produce(
        self,
        topic: str,
        batches: Mapping[int, Any],
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
    ) -> dict[int, PartitionProduceResponse]:
        """Hand one batch for each partition to the leaders.  Errors are in the answers; a lost connection leaves open
        what happened, which only an idempotent producer may try again."""
        info = self.topic(topic)
        results: dict[int, PartitionProduceResponse] = {}
        for node, partitions in self._by_leader(topic, batches).items():
            request = ProduceRequest(
                acks=acks,
                timeout_ms=timeout_ms,
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        topic_id=info.topic_id,
                        partition_data=[PartitionProduceData(index=p, records=batches[p]) for p in partitions],
                    )
                ],
            )
            connection = self.connection(node)
            version = connection.version_of(ProduceRequest.api_key)
            if info.topic_id == ZERO_UUID:
                version = min(version, 12)
            try:
                connection.send(request, version=version, expects_reply=acks != 0)
                if acks == 0:
                    continue
                answer = connection.receive(timeout_s=self._timeout_s + timeout_ms / 1000)
            except ConnectionLost:
                self.drop(node)
                raise
            for p in (p for t in answer.responses for p in t.partition_responses):
                results[p.index] = p
        return results

    def init_producer_id(self) -> tuple[int, int]:
        """A producer id and epoch for an idempotent producer."""

        def once() -> tuple[int, int]:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self._any().call(request)
            check(answer.error_code, "producer id")
            return answer.producer_id, answer.producer_epoch

        return self._retrying(once, self._drop_seed)

    # --- inside ----------------------------------------------------------------------------------------------------
    def _by_leader(self, topic: str, partitions: Iterable[int]) -> dict[int, list[int]]:
        info = self.topic(topic)
        by_leader: dict[int, list[int]] = {}
        for p in sorted(partitions):
            if p not in info.partitions:
                raise Refused(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{topic}-{p}",
                    f"the topic has {len(info.partitions)} partitions, numbered from 0",
                )
            by_leader.setdefault(info.partitions[p].leader, []).append(p)
        return by_leader

    def _any(self) -> Connection:
        if self._seed is not None:
            return self._seed
        reasons = []
        servers = self._bootstrap + [a for a in self._addresses.values() if a not in self._bootstrap]
        for host, port in servers:
            try:
                self._seed = Connection(host, port, client_id=self._client_id, timeout_s=self._timeout_s)
                return self._seed
            except ConnectionLost as error:
                reasons.append(str(error))
        raise Unreachable("; ".join(reasons) + ". Is the broker running?")

    def _drop_seed(self) -> None:
        if self._seed is not None:
            self._seed.close()
            self._seed = None

    def _refresh(self, topic: str) -> None:
        for node in list(self._connections):
            self.drop(node)
        self._topics.pop(topic, None)

    def _retrying(self, once: Callable[[], T], recover: Callable[[], None]) -> T:
        """Requests that change nothing are simply sent again."""
        deadline = time.monotonic() + self.patience_s
        attempt = 0
        while True:
            try:
                return once()
            except Refused as error:
                if attempt >= _ATTEMPTS - 1 or not (error.retriable or error.code in _STALE):
                    raise
            except ConnectionLost:
                if attempt > 3 and time.monotonic() >= deadline:
                    raise
            except Unreachable:
                if time.monotonic() >= deadline:
                    raise
            recover()
            _pause(attempt)
            attempt += 1


def _fetched(topic: str, p: PartitionData) -> FetchedPartition:
    return FetchedPartition(
        topic,
        p.partition_index,
        p.high_watermark,
        p.last_stable_offset,
        p.log_start_offset,
        [(a.producer_id, a.first_offset) for a in p.aborted_transactions or ()],
        p.records if p.records is not None else b"",
    )


def _host_port(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClientError(f"the bootstrap server {server.strip()!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _pause(attempt: int) -> None:
    """Longer with each attempt, and not the same for everybody."""
    time.sleep(min(0.02 * 2 ** min(attempt, 6), 0.8) * (0.75 + random.random() / 2))


def api_name(key: int) -> str:
    """The name behind an API key."""
    return APIS[key].name if key in APIS else f"key {key}"
