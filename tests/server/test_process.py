"""The process over real sockets: start, stop, kill, restart; order of answers, limits, hostile peers."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.client import Client
from stratalog.node.config import BrokerConfig
from stratalog.protocol import headers
from stratalog.protocol.apis import BY_NAME
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from stratalog.protocol.k18_api_versions import ApiVersionsRequest
from stratalog.protocol.k19_create_topics import CreatableTopic, CreateTopicsRequest
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest
from stratalog.protocol.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from stratalog.records.batch import BatchBuilder
from stratalog.server.loop import Limits
from stratalog.server.metrics_http import MetricsServer
from stratalog.server.process import Broker, _limits


def start(directory: Path, **settings: str) -> Broker:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), "node.id": "1"}
    values.update({name.replace("_", "."): value for name, value in settings.items()})
    return Broker(BrokerConfig(values), fsync_metadata=False).start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = start(tmp_path / "data")
    try:
        yield broker
    finally:
        broker.stop()


def connect(broker: Broker) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def framed(name: str, version: int, body: Any, correlation_id: int = 1) -> bytes:
    data = headers.RequestHeader(BY_NAME[name].key, version, correlation_id, "t").encode() + body.encode_bytes(version)
    return len(data).to_bytes(4, "big") + data


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def receive(sock: socket.socket) -> bytes:
    return exactly(sock, int.from_bytes(exactly(sock, 4), "big"))


def ask(sock: socket.socket, name: str, version: int, body: Any) -> Any:
    sock.sendall(framed(name, version, body))
    data = receive(sock)
    api = BY_NAME[name]
    start = 5 if api.is_flexible(version) and api.key != 18 else 4
    return api.response.decode(memoryview(data)[start:], version)


def create(broker: Broker, name: str, partitions: int = 1) -> None:
    with connect(broker) as sock:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = ask(sock, "CreateTopics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        assert answer.topics[0].error_code == 0, answer


def produce(topic: str, *values: bytes, acks: int = -1) -> ProduceRequest:
    builder = BatchBuilder()
    for value in values:
        builder.append(int(time.time() * 1000), None, value)
    row = PartitionProduceData(index=0, records=bytes(builder.build()))
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[row])])


def fetch(topic: str, offset: int, *, wait_ms: int = 0, limit: int = 50 << 20) -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    body = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[row])])
    body.max_bytes = limit
    return body


def probe(broker: Broker) -> None:
    """Somebody else is served meanwhile."""
    with connect(broker) as sock:
        assert ask(sock, "ApiVersions", 0, ApiVersionsRequest()).error_code == 0


# --- life -----------------------------------------------------------------------------------------------------------


def test_a_stop_and_a_start_keep_everything(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = start(data)
    create(broker, "orders", 3)
    with connect(broker) as sock:
        ask(sock, "Produce", 9, produce("orders", b"a", b"b"))
    broker.stop()
    assert (data / ".kafka_cleanshutdown").exists()
    broker = start(data)
    assert not (data / ".kafka_cleanshutdown").exists()
    partition = broker.node.partitions["orders", 0]
    assert partition.log.high_watermark == 2 and partition.is_leader and partition.leader_epoch == 0
    assert len(broker.node.partitions) == 3
    broker.stop()


def test_after_a_kill_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    """The page cache survives the process: no acknowledged record is lost, no producer id given twice."""
    data = tmp_path / "data"
    broker = start(data)
    create(broker, "orders")
    with connect(broker) as sock:
        for number in range(50):
            ask(sock, "Produce", 9, produce("orders", b"%d" % number))
        body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        first = ask(sock, "InitProducerId", 4, body).producer_id
    broker.kill()
    assert not (data / ".kafka_cleanshutdown").exists()
    broker = start(data)
    assert broker.node.partitions["orders", 0].log.log_end_offset == 50
    with connect(broker) as sock:
        answer = ask(sock, "Fetch", 12, fetch("orders", 0))
        assert answer.responses[0].partitions[0].high_watermark == 50
        assert ask(sock, "InitProducerId", 4, body).producer_id > first
    broker.stop()


def test_several_brokers_live_in_one_process(tmp_path: Path) -> None:
    before = threading.active_count()
    brokers = [start(tmp_path / str(number)) for number in range(3)]
    for broker in brokers:
        probe(broker)
    assert len({broker.port for broker in brokers}) == 3
    for broker in brokers:
        broker.stop()
    assert threading.active_count() == before


def test_a_call_after_the_end_writes_to_nobodys_file(tmp_path: Path) -> None:
    """The descriptor that wakes the loop is closed with it, and its number given to the next file."""
    broker = start(tmp_path)
    number = broker.loop._wake_fd
    broker.stop()
    files = []
    try:
        while number not in files:
            assert len(files) < 100
            files.append(os.eventfd(0, os.EFD_NONBLOCK))
        broker.loop.wake()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(number)
    finally:
        for file in files:
            os.close(file)


def test_an_address_of_ipv6_stands_in_brackets(tmp_path: Path) -> None:
    """Or no client could tell it from its port."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    broker = start(tmp_path, listeners="PLAINTEXT://[::1]:0")
    try:
        assert broker.bootstrap == f"[::1]:{broker.port}"
        with Client(broker.bootstrap) as client:
            assert client.brokers == {1: ("::1", broker.port)}
    finally:
        broker.stop()


def test_a_directory_belongs_to_one_broker(tmp_path: Path) -> None:
    broker = start(tmp_path)
    with pytest.raises(BlockingIOError):
        start(tmp_path)
    probe(broker)
    broker.stop()


def test_a_taken_port_is_an_error_of_start(tmp_path: Path, broker: Broker) -> None:
    with pytest.raises(OSError, match="in use"):
        start(tmp_path / "other", listeners=f"PLAINTEXT://127.0.0.1:{broker.port}")


def test_a_stop_answers_who_waits(tmp_path: Path) -> None:
    broker = start(tmp_path)
    create(broker, "orders")
    with connect(broker) as sock:
        sock.sendall(framed("Fetch", 12, fetch("orders", 0, wait_ms=60_000)))
        probe(broker)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 5
        assert receive(sock)[:4] == b"\0\0\0\1"


def test_a_stop_does_not_wait_for_who_asks_on(tmp_path: Path) -> None:
    """A consumer fetches again as soon as it is answered, a producer pipelines: neither holds up a stop, and what was
    answered is read before the connection's end."""
    broker = start(tmp_path)
    create(broker, "orders")
    create(broker, "quiet")
    answers: list[int] = []

    def consumer() -> None:
        with connect(broker) as sock, contextlib.suppress(OSError):
            while True:
                ask(sock, "Fetch", 12, fetch("quiet", 0, wait_ms=60_000))
                answers.append(1)

    threads = [threading.Thread(target=consumer) for _ in range(3)]
    for thread in threads:
        thread.start()
    with connect(broker) as sock:
        for number in range(50):
            sock.sendall(framed("Produce", 9, produce("orders", b"v"), number))
        probe(broker)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 1.5
        answered = 0
        with pytest.raises(ConnectionError) as ended:
            while True:
                assert receive(sock)[:4] == answered.to_bytes(4)
                answered += 1
        assert ended.type is ConnectionError, "the end of the stream, no reset"
    for thread in threads:
        thread.join(10)
    assert len(answers) == 3, "each waiting fetch was answered once, and not the one after it"
    again = start(tmp_path)
    try:
        assert int(again.logs.get("orders", 0).log_end_offset) == answered
    finally:
        again.stop()


# --- order and flow -------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    """Produce, fetch, produce, versions in one packet: each sees what came before it on its connection."""
    create(broker, "orders")
    with connect(broker) as sock:
        sock.sendall(
            framed("Produce", 9, produce("orders", b"a"), 1)
            + framed("Produce", 9, produce("orders", b"b", acks=0), 2)
            + framed("Fetch", 12, fetch("orders", 0, wait_ms=1000), 3)
            + framed("Produce", 9, produce("orders", b"c"), 4)
            + framed("ApiVersions", 0, ApiVersionsRequest(), 5)
        )
        answers = [receive(sock) for _ in range(4)]
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == [1, 3, 4, 5]
    fetched = BY_NAME["Fetch"].response.decode(memoryview(answers[1])[5:], 12)
    assert fetched.responses[0].partitions[0].high_watermark == 2


def test_a_parked_fetch_mutes_its_connection_only(broker: Broker) -> None:
    create(broker, "orders")
    with connect(broker) as waiting, connect(broker) as writing:
        waiting.sendall(framed("Fetch", 12, fetch("orders", 0, wait_ms=30_000), 1))
        waiting.sendall(framed("ApiVersions", 0, ApiVersionsRequest(), 2))
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        waiting.settimeout(10)
        ask(writing, "Produce", 9, produce("orders", b"a"))
        assert int.from_bytes(receive(waiting)[:4], "big") == 1
        assert int.from_bytes(receive(waiting)[:4], "big") == 2


def test_frames_come_byte_by_byte_and_in_one_piece(broker: Broker) -> None:
    create(broker, "orders")
    large = b"x" * 700_000  # several receive buffers
    with connect(broker) as sock:
        data = framed("Produce", 9, produce("orders", b"tiny"))
        for index in range(len(data)):
            sock.sendall(data[index : index + 1])
        receive(sock)
        assert ask(sock, "Produce", 9, produce("orders", large)).responses[0].partition_responses[0].base_offset == 1
        answer = ask(sock, "Fetch", 12, fetch("orders", 1))
        assert large in bytes(answer.responses[0].partitions[0].records)
        ask(sock, "ApiVersions", 0, ApiVersionsRequest())
        assert broker.run_on_loop(lambda: broker.loop.buffers.in_use) == 0


def test_a_large_answer_survives_a_reader_that_takes_its_time(broker: Broker) -> None:
    """File regions queue, nothing is lost or mixed, nobody else waits."""
    create(broker, "orders")
    with connect(broker) as sock:
        for number in range(20):
            ask(sock, "Produce", 9, produce("orders", bytes([number]) * 900_000))
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(10)
    slow.connect(("127.0.0.1", broker.port))
    with slow:
        slow.sendall(framed("Fetch", 12, fetch("orders", 0)))
        time.sleep(0.1)
        probe(broker)
        size = int.from_bytes(exactly(slow, 4), "big")
        data = bytearray()
        while len(data) < size:
            data += slow.recv(1 << 16)
    answer = BY_NAME["Fetch"].response.decode(memoryview(data)[5:], 12)
    assert len(answer.responses[0].partitions[0].records) > 18_000_000


def test_what_is_not_in_memory_is_read_on_the_pool(broker: Broker) -> None:
    """`preadv(RWF_NOWAIT)`: a consumer far behind does not hold the loop while the disk turns."""
    create(broker, "orders")
    with connect(broker) as sock:
        for number in range(8):
            ask(sock, "Produce", 9, produce("orders", bytes([number]) * 900_000))

        def forget() -> None:
            segment = broker.node.partitions["orders", 0].log.segments[0]
            segment.file.fsync()
            os.posix_fadvise(segment.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        broker.run_on_loop(forget)
        answer = ask(sock, "Fetch", 12, fetch("orders", 0))
        data = bytes(answer.responses[0].partitions[0].records)
        assert len(data) > 7_200_000
        assert all(bytes([number]) * 900_000 in data for number in range(8))
        cold = broker.loop.cold_reads
        assert cold > 0
        ask(sock, "Fetch", 12, fetch("orders", 0))
        assert broker.loop.cold_reads == cold, "it is in memory now"


# --- hostile peers (security.md 7.3) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x07\x00\x12\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x00\xff\xff",
        b"\x00\x00\x00\x0a\x00\x03\x00\x63\x00\x00\x00\x00\xff\xff",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
        struct.pack(">ihhih", 18, 3, 1, 1, -1) + b"\x7f\xff\xff\xff" + b"\x00" * 4,
        struct.pack(">ihhih", 22, 0, 9, 1, -1) + b"\x00\x00" + b"\x00\x01" + b"\x00" * 4 + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_garbage_closes_the_connection_and_nobody_elses(broker: Broker, garbage: bytes) -> None:
    with connect(broker) as sock:
        sock.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    probe(broker)


def test_a_claimed_size_costs_no_memory(tmp_path: Path) -> None:
    """The peer says 100 MiB and sends nothing: what is held is what has come."""
    broker = start(tmp_path)
    socks = [connect(broker) for _ in range(50)]
    for sock in socks:
        sock.sendall((100 << 20).to_bytes(4, "big") + b"\x00" * 8)
    probe(broker)
    assert broker.run_on_loop(lambda: broker.loop.buffers.in_use) <= 51 * (128 << 10)
    for sock in socks:
        sock.close()
    broker.stop()


def test_a_frame_without_progress_is_dropped(broker: Broker) -> None:
    """A byte a second holds a buffer for seconds, not for ever."""

    def rewind() -> None:
        for connection in broker.loop._partial:
            connection.frame_since -= 60_000

    with connect(broker) as sock:
        sock.sendall((1000).to_bytes(4, "big") + b"\x00" * 8)
        time.sleep(0.1)
        broker.run_on_loop(rewind)
        sock.settimeout(5)
        assert sock.recv(1) == b""
    probe(broker)


def test_too_many_connections_of_one_address_are_refused(tmp_path: Path) -> None:
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "node.id": "1",
        "max.connections.per.ip": "5",
    }
    broker = Broker(BrokerConfig(values), fsync_metadata=False).start()
    socks = [connect(broker) for _ in range(5)]
    for sock in socks:
        assert ask(sock, "ApiVersions", 0, ApiVersionsRequest()).error_code == 0
    with connect(broker) as extra:
        assert extra.recv(1) == b""
    socks.pop().close()
    time.sleep(0.1)
    probe(broker)
    for sock in socks:
        sock.close()
    broker.stop()


def test_what_is_set_for_sockets_and_sessions_counts(tmp_path: Path) -> None:
    """The system doubles a buffer's size for its own needs, and -1 is its own choice, as is a key that is not set."""
    broker = start(
        tmp_path / "set",
        socket_receive_buffer_bytes="32768",
        socket_send_buffer_bytes="65536",
        max_incremental_fetch_session_cache_slots="7",
    )
    plain = start(tmp_path / "plain", socket_send_buffer_bytes="-1")
    try:
        with connect(broker), connect(plain):
            ours, theirs = (
                b.run_on_loop(lambda b=b: next(iter(b.loop._connections.values())).socket) for b in (broker, plain)
            )
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 32768
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 65536
            assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 4 * 65536
        assert broker.node.sessions.slots == 7 and plain.node.sessions.slots == 1000
    finally:
        broker.stop()
        plain.stop()


def test_connections_leave_files_to_the_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As many connections as the system has descriptors would take the next segment's away, and with it the
    directory.  A quarter stays with the logs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    broker = start(tmp_path, max_connections=str(Limits().connections - 1))
    try:
        share = resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4
        assert broker.loop.limits.connections == min(share, Limits().connections - 1)
        assert ("raise its limit" in caplog.text) == (share < Limits().connections - 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        assert _limits(broker.config, Limits()).connections == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        broker.stop()


def test_limits_of_connections_change_at_once(broker: Broker) -> None:
    """`max.connections.per.ip` with its overrides is dynamic, as in Kafka."""

    def refused() -> bool:
        with connect(broker) as one, connect(broker) as two:
            ask(one, "ApiVersions", 0, ApiVersionsRequest())
            try:
                ask(two, "ApiVersions", 0, ApiVersionsRequest())
            except OSError:
                return True
            return False

    def alter(**values: str) -> None:
        configs = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in values.items()
        ]
        body = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=4, resource_name="", configs=configs)]
        )
        with connect(broker) as sock:
            assert ask(sock, "IncrementalAlterConfigs", 1, body).responses[0].error_code == 0
        deadline = time.monotonic() + 5
        while broker.run_on_loop(lambda: broker.loop.connection_count) and time.monotonic() < deadline:
            time.sleep(0.01)

    assert not refused()
    alter(max_connections_per_ip="1")
    assert refused()
    alter(max_connections_per_ip_overrides="127.0.0.1:50,10.0.0.1:2")
    assert not refused()


def test_a_storm_of_connections_leaves_nothing_behind(broker: Broker) -> None:
    for _ in range(500):
        connect(broker).close()
    probe(broker)
    deadline = time.monotonic() + 5
    while broker.run_on_loop(lambda: broker.loop.connection_count) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert broker.run_on_loop(lambda: (broker.loop.connection_count, broker.loop._per_ip)) == (0, {})


def test_idle_connections_hold_no_buffer(broker: Broker) -> None:
    socks = [connect(broker) for _ in range(100)]
    for sock in socks:
        ask(sock, "ApiVersions", 0, ApiVersionsRequest())
    assert broker.run_on_loop(lambda: (broker.loop.connection_count, broker.loop.buffers.in_use)) == (100, 0)
    for sock in socks:
        sock.close()


def test_a_reader_that_takes_nothing_is_dropped_when_its_answers_hold_memory(broker: Broker) -> None:
    """The high-water mark: converted batches are memory, not file regions."""
    create(broker, "orders")
    with connect(broker) as sock:
        for _ in range(10):
            ask(sock, "Produce", 9, produce("orders", b"x" * 900_000))
    broker.run_on_loop(lambda: setattr(broker.loop.limits, "stall_ms", 100))
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", broker.port))
    with slow:
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
        body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[row])])
        slow.sendall(framed("Fetch", 2, body))
        assert int.from_bytes(exactly(slow, 4), "big") > 9_000_000
        deadline = time.monotonic() + 10
        while broker.run_on_loop(lambda: broker.loop.connection_count) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert broker.run_on_loop(lambda: broker.loop.connection_count) == 0
    probe(broker)


def test_answers_in_memory_are_bounded_over_all_connections(broker: Broker) -> None:
    """Whoever holds most is dropped when all together hold too much; who reads is served."""
    create(broker, "orders")
    with connect(broker) as sock:
        for _ in range(10):
            ask(sock, "Produce", 9, produce("orders", b"x" * 900_000))
    broker.run_on_loop(lambda: setattr(broker.loop.limits, "answer_bytes", 30_000_000))
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.socket()) for _ in range(6)]
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
        body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[row])])
        for sock in slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(10)
            sock.connect(("127.0.0.1", broker.port))
            sock.sendall(framed("Fetch", 2, body))
            assert int.from_bytes(exactly(sock, 4), "big") > 9_000_000
        left, held = broker.run_on_loop(lambda: (broker.loop.connection_count, broker.loop.held_bytes))
        assert 2 <= left <= 4 and 9_000_000 < held <= 30_000_000
        probe(broker)
    deadline = time.monotonic() + 10
    while broker.run_on_loop(lambda: broker.loop.connection_count) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert broker.run_on_loop(lambda: (broker.loop.connection_count, broker.loop.held_bytes)) == (0, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_what_an_old_client_cannot_read_is_an_error_of_its_partition(broker: Broker, version: int) -> None:
    """zstd comes while a client of 0.10 waits: it is told, and the broker goes on.  Not on the loop."""
    create(broker, "orders")
    with connect(broker) as waiting, connect(broker) as writing:
        waiting.sendall(framed("Fetch", version, fetch("orders", 0, wait_ms=30_000), 1))
        probe(broker)
        builder = BatchBuilder(codec=4)
        for number in range(100):
            builder.append(1_700_000_000_000, None, b"value %d" % number)
        row = PartitionProduceData(index=0, records=bytes(builder.build()))
        body = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="orders", partition_data=[row])]
        )
        assert ask(writing, "Produce", 9, body).responses[0].partition_responses[0].error_code == 0
        data = receive(waiting)
        answer = BY_NAME["Fetch"].response.decode(memoryview(data)[4:], version)
        assert answer.responses[0].partitions[0].error_code == 76, answer
    probe(broker)


def test_idle_connections_are_closed_after_their_time(broker: Broker) -> None:
    """`connections.max.idle.ms`."""
    with connect(broker) as sock:
        ask(sock, "ApiVersions", 0, ApiVersionsRequest())

        def rewind() -> None:
            for connection in broker.loop._connections.values():
                connection.last_active -= 700_000
            broker.loop._next_idle_sweep = broker.loop._next_sweep = 0

        broker.run_on_loop(rewind)
        broker.loop.wake()
        sock.settimeout(5)
        assert sock.recv(1) == b""


def test_the_metrics_port_tells_what_happened(tmp_path: Path) -> None:
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "node.id": "1",
        "stratalog.metrics.port": "0",
    }
    broker = Broker(BrokerConfig(values), fsync_metadata=False).start()
    create(broker, "orders", 2)
    with connect(broker) as sock:
        ask(sock, "Produce", 9, produce("orders", b"a"))
    deadline = time.monotonic() + 10
    timed = b'stratalog_request_seconds{request="Produce",quantile="0.99"}'
    while timed not in (text := scrape(broker.metrics_port)):  # a request is timed when its answer has gone
        assert time.monotonic() < deadline
    assert text.startswith(b"HTTP/1.1 200")
    assert b'stratalog_requests_total{request="Produce"} 1\n' in text
    assert b'stratalog_log_end_offset{topic="orders",partition="0"} 1\n' in text
    wanted = (
        "request_seconds_sum", "request_seconds_count", "bytes_in_total", "bytes_out_total", "produce_purgatory",
        "fetch_purgatory", "log_size_bytes", "log_start_offset", "high_watermark", "groups", "connections",
    )  # fmt: skip
    assert all(f"\nstratalog_{name}".encode() in text for name in wanted)
    families: dict[str, None] = {}
    current = ""
    for line in text.decode().partition("\r\n\r\n")[2].splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in families, f"{current} is in two groups"
            families[current] = None
        elif not line.startswith("# TYPE "):
            assert line.startswith(current) and float(line.rpartition(" ")[2]) >= 0, line
    broker.stop()


def test_a_slow_scraper_holds_up_neither_the_next_one_nor_the_stop() -> None:
    """A request that comes a byte at a time has two seconds in all, and whoever is still sending it at the end of the
    broker is not waited for."""
    server = MetricsServer("127.0.0.1", 0, lambda: "stratalog_up 1\n")
    server.start()
    ended = threading.Event()

    def trickle() -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow, contextlib.suppress(OSError):
            while not ended.wait(0.2):
                slow.sendall(b"x")

    threads = [threading.Thread(target=trickle) for _ in range(2)]
    try:
        threads[0].start()
        time.sleep(0.1)
        began = time.monotonic()
        assert b"stratalog_up 1" in scrape(server.port)
        assert time.monotonic() - began < 4
        threads[1].start()
        time.sleep(0.1)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 1
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_gauge_that_fails_costs_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        failures.append(1)
        if len(failures) == 1:
            raise RuntimeError("no such gauge")
        return "stratalog_up 1\n"

    failures: list[int] = []
    server = MetricsServer("127.0.0.1", 0, broken)
    server.start()
    try:
        assert scrape(server.port).startswith(b"HTTP/1.1 500")
        assert b"stratalog_up 1" in scrape(server.port)
        assert "no such gauge" in caplog.text
    finally:
        server.close()


def scrape(port: int | None) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as http:
        http.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        text = b""
        while data := http.recv(1 << 16):
            text += data
    return text
