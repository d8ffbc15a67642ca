"""Starting, resting, and ten thousand connections that do nothing.

    python -m bench.macro.bench_start [--quick] [--ours] [--only idle]

Kafka's start is its launcher's own: from the start of the script to the first Metadata answer, without formatting.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.macro import raw
from bench.macro.side import OURS, THEIRS, Side
from tools.kafka_peer import free_port, kafka_home, start_broker, stop_broker

PARTITIONS = 1000
MIB = 1 << 20


def serve(directory: str) -> tuple[float, raw.Peer, subprocess.Popen[str]]:
    """`stratalog serve` on a directory: seconds until it says that it serves and answers a request."""
    command = [sys.executable, "-m", "stratalog.cli.__main__", "serve", "-q", "--port", "0", "--data", directory]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if "serves on" not in line:
        raise RuntimeError(f"the broker did not start: {line}")
    port = int(line.split(" serves on ")[1].split(",")[0].rsplit(":", 1)[1])
    raw.connect(port).close()
    return time.perf_counter() - began, raw.Peer(OURS, port, process.pid), process


def end(process: subprocess.Popen[str]) -> float:
    began = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    return time.perf_counter() - began


def start_ours(side: Side) -> None:
    for _ in range(3 if side.quick else 7):
        with _directory() as directory:
            for case in ("start, new directory", "start, clean restart"):
                seconds, _, process = serve(f"{directory}/data")
                end(process)
                side.sample(case, "s", OURS, seconds)
    with _directory() as directory:
        _, peer, process = serve(f"{directory}/data")
        began = time.perf_counter()
        raw.create_topic(peer.port, "many", PARTITIONS)
        side.sample("create 1,000 partitions", "s", OURS, time.perf_counter() - began)
        side.sample("clean stop with 1,000 partitions", "s", OURS, end(process))
        for _ in range(1 if side.quick else 3):
            seconds, _, process = serve(f"{directory}/data")
            side.sample("start, 1,000 partitions after a clean stop", "s", OURS, seconds)
            end(process)
        _, _, process = serve(f"{directory}/data")
        process.kill()
        process.wait()
        seconds, _, process = serve(f"{directory}/data")
        side.sample("start, 1,000 partitions after kill -9", "s", OURS, seconds)
        end(process)


def start_theirs(side: Side) -> None:
    if side.options.ours or kafka_home() is None:
        return
    with _directory() as directory:
        for case in ("start, new directory", "start, clean restart"):
            began = time.perf_counter()
            broker = start_broker(directory, port=free_port(2), heap="-Xmx1G -Xms1G")
            side.sample(case, "s", THEIRS, time.perf_counter() - began)
            if case.endswith("restart"):
                began = time.perf_counter()
                raw.create_topic(broker.port, "many", PARTITIONS)
                side.sample("create 1,000 partitions", "s", THEIRS, time.perf_counter() - began)
            began = time.perf_counter()
            stop_broker(broker)
        side.sample("clean stop with 1,000 partitions", "s", THEIRS, time.perf_counter() - began)
        began = time.perf_counter()
        broker = start_broker(directory, port=free_port(2), heap="-Xmx1G -Xms1G")
        side.sample("start, 1,000 partitions after a clean stop", "s", THEIRS, time.perf_counter() - began)
        stop_broker(broker)


def in_process(side: Side) -> None:
    """The embedded broker of a test: from the call to the broker that serves, and its end."""
    from stratalog.testing import broker

    for _ in range(5 if side.quick else 15):
        began = time.perf_counter()
        with broker():
            side.sample("embedded broker, ready", "s", OURS, time.perf_counter() - began)
            began = time.perf_counter()
        side.sample("embedded broker, stopped", "s", OURS, time.perf_counter() - began)


def idle(side: Side) -> None:
    seconds = 10.0 if side.quick else 30.0
    with side.peers() as peers:
        for peer in peers:
            raw.create_topic(peer.port, "quiet", 12)
        time.sleep(3.0 if side.quick else 10.0)
        before = {peer.name: peer.cpu() for peer in peers}
        began = time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - began
        for peer in peers:
            side.sample("idle", "% of a core", peer.name, (peer.cpu() - before[peer.name]) / took * 100)
            side.sample("idle", "RSS MiB", peer.name, peer.rss() / MIB)


def connections(side: Side) -> None:
    """Ten thousand connections, less where the system does not let us have so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(10_000, hard - 200)
    with side.peers() as peers:
        for peer in peers:
            base = peer.rss()
            held: list[socket.socket] = []
            try:
                for number in range(count):
                    held.append(raw.connect(peer.port))
                    if number % 500 == 499:
                        time.sleep(0.3)  # a burst that no listen queue overflows from
                raw.ask(peer.port, "ApiVersions", 0, _hello())
                time.sleep(1.0)
                side.sample(f"{count:,} idle connections", "RSS MiB", peer.name, peer.rss() / MIB)
                side.sample(f"{count:,} idle connections", "KiB each", peer.name, (peer.rss() - base) / count / 1024)
            finally:
                for sock in held:
                    sock.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    side.target(f"{count:,} idle connections", "RSS MiB", at_most=500.0, ours=True)


def _hello() -> object:
    from stratalog.protocol.k18_api_versions import ApiVersionsRequest

    return ApiVersionsRequest()


@contextlib.contextmanager
def _directory() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="stratalog-start-bench-")
    try:
        yield directory
    finally:
        shutil.rmtree(Path(directory), ignore_errors=True)


def main() -> None:
    side = Side("start", description=__doc__, rounds=1)
    for case, work in (
        ("start", start_ours),
        ("start", start_theirs),
        ("embedded", in_process),
        ("idle", idle),
        ("connections", connections),
    ):
        if side.wants(case):
            side.progress(case)
            work(side)
    side.target("start, new directory", "s", at_most=0.5, ours=True)
    side.target("start, clean restart", "s", at_most=0.5, ours=True)
    side.target("start, 1,000 partitions after a clean stop", "s", at_most=2.0, ours=True)
    side.target("embedded broker, ready", "s", at_most=0.2, ours=True)
    side.target("idle", "% of a core", at_most=0.5, ours=True)
    side.target("idle", "RSS MiB", at_most=100.0, ours=True)
    side.finish()


if __name__ == "__main__":
    main()
