"""What the raw benches share: brokers side by side in processes of their own, a load generator that costs little, and
the CPU that a broker's process used.

The generator keeps `depth` requests in flight on each connection and counts answers by their size, so one Python
process keeps ahead of a broker.  It sends one request's bytes again and again; for idempotent producers the sequence
and the CRC are patched per request.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kafka_peer import free_port, kafka_home, start_broker, stop_broker

from stratalog.protocol import headers
from stratalog.protocol.apis import BY_NAME
from stratalog.protocol.k19_create_topics import CreatableTopic, CreateTopicsRequest
from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest

_TICKS = os.sysconf("SC_CLK_TCK")
BOTH = ("log.segment.delete.delay.ms=500",)
"""What both brokers are told beside their defaults: files of the last case go soon, and their dirty pages with them.
With the default of a minute the disk would be measured, and whoever writes more would pay for it."""
_DIRTY_BYTES_MAX = 128 << 20


@dataclass(slots=True)
class Peer:
    """A broker under load."""

    name: str
    port: int
    pid: int

    def cpu(self) -> float:
        """Seconds of CPU that its process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss(self) -> int:
        """Bytes of memory that its process holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def ours(settings: tuple[str, ...] = ()) -> Iterator[Peer]:
    """Stratalog in a process of its own, on a temporary directory."""
    directory = tempfile.mkdtemp(prefix="stratalog-raw-bench-")
    command = [
        sys.executable, "-m", "stratalog.server", "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}/data", "node.id=1", *BOTH, *settings,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "listening on" not in line:
            raise RuntimeError("the broker did not start")
        yield Peer("stratalog", int(line.rsplit(":", 1)[1]), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def kafka(settings: tuple[str, ...] = ()) -> Iterator[Peer | None]:
    """Apache Kafka on a temporary directory; None where it is not to be had."""
    if kafka_home() is None:
        yield None
        return
    directory = tempfile.mkdtemp(prefix="stratalog-raw-bench-")
    broker = start_broker(directory, *BOTH, *settings, port=free_port(2), heap="-Xmx1G -Xms1G")
    try:
        yield Peer("kafka", broker.port, broker.pid)
    finally:
        stop_broker(broker)
        shutil.rmtree(directory, ignore_errors=True)


def settle(seconds: float = 20.0) -> None:
    """Wait until what was written before is on the disk or gone, so that nobody pays for somebody else's pages."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lines = Path("/proc/meminfo").read_text().splitlines()
        dirty = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Dirty:", "Writeback:")))
        if dirty < _DIRTY_BYTES_MAX:
            return
        time.sleep(0.1)


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def frame(name: str, version: int, body: Any, correlation_id: int = 1) -> bytes:
    """A whole request."""
    api = BY_NAME[name]
    data = headers.RequestHeader(api.key, version, correlation_id, "bench").encode() + body.encode_bytes(version)
    return len(data).to_bytes(4, "big") + data


def receive(sock: socket.socket) -> bytes:
    """One answer without its size; not a byte of the next one."""
    return _exactly(sock, int.from_bytes(_exactly(sock, 4), "big"))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size)
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


def ask(port: int, name: str, version: int, body: Any) -> Any:
    """One request on a connection of its own."""
    api = BY_NAME[name]
    with connect(port) as sock:
        sock.sendall(frame(name, version, body))
        data = receive(sock)
    start = 5 if api.is_flexible(version) and api.key != 18 else 4
    return api.response.decode(memoryview(data)[start:], version)


def create_topic(port: int, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = ask(port, "CreateTopics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    if answer.topics[0].error_code:
        raise RuntimeError(f"{name}: error {answer.topics[0].error_code} {answer.topics[0].error_message}")
    time.sleep(0.3)  # Kafka's brokers learn of it a moment after the answer


def delete_topic(port: int, name: str) -> None:
    ask(port, "DeleteTopics", 5, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000))


def producer_id(port: int) -> tuple[int, int]:
    for _ in range(50):
        answer = ask(port, "InitProducerId", 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
        time.sleep(0.1)
    raise RuntimeError(f"no producer id: error {answer.error_code}")


@dataclass(slots=True)
class Load:
    """What a run of the generator found."""

    requests: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def microseconds(self) -> float:
        """The broker's CPU for one request."""
        return self.cpu / self.requests * 1e6


def drive(peer: Peer, sources: list[Callable[[], bytes]], *, depth: int, seconds: float) -> Load:
    """One connection for each source, `depth` requests of it in flight."""
    socks = [connect(peer.port) for _ in sources]
    epoll = select.epoll()
    sizes = []
    state = {}
    for sock, source in zip(socks, sources, strict=True):
        sock.sendall(source())
        sizes.append(4 + len(receive(sock)))
        sock.setblocking(False)
        state[sock.fileno()] = (sock, source, [0, b""])
        epoll.register(sock.fileno(), select.EPOLLIN)
    size = sizes[0]
    done = 0
    begin_cpu, begin = peer.cpu(), time.perf_counter()
    end = begin + seconds
    for sock, source, _ in state.values():
        sock.setblocking(True)
        for _ in range(depth):
            sock.sendall(source())
    running = True
    outstanding = depth * len(socks)
    while outstanding:
        for fd, _ in epoll.poll(5.0):
            sock, source, rest = state[fd]
            got = rest[0] + len(sock.recv(1 << 18))
            count, rest[0] = divmod(got, size)
            done += count
            if running:
                for _ in range(count):
                    sock.sendall(source())
            else:
                outstanding -= count
        if running and time.perf_counter() >= end:
            running = False
    took = time.perf_counter() - begin
    cpu = peer.cpu() - begin_cpu
    for sock in socks:
        sock.close()
    epoll.close()
    return Load(done, took, cpu)
