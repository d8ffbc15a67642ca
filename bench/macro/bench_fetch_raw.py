"""Fetch over a raw connection, 1 MiB a fetch, of data in the page cache; and the round trips of small requests.

    python -m bench.macro.bench_fetch_raw [--quick] [--ours] [--rounds 5]

Brokers take turns; medians count.  CPU is the broker's process alone.
"""

from __future__ import annotations

import itertools
import struct
import time

from bench.macro import raw
from bench.macro.bench_produce_raw import batch, request
from bench.macro.side import Side, percentile

from stratalog.protocol.k01_fetch import FetchPartition, FetchRequest, FetchTopic

FETCH_BYTES = 1 << 20
BATCH_BYTES = 16_384


def fetch(topic: str, offset: int, *, wait_ms: int = 500, limit: int = FETCH_BYTES) -> bytes:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    body = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[row])])
    body.max_bytes = limit
    return raw.frame("Fetch", 11, body)


def fill(peer: raw.Peer, topic: str, megabytes: int) -> tuple[int, int]:
    """Write the topic; returns its end offset and the records of one batch."""
    raw.create_topic(peer.port, topic, 1)
    data = batch(BATCH_BYTES, -1, -1)
    (count,) = struct.unpack_from(">i", data, 57)
    whole = request(topic, 1, data)
    batches = megabytes * (1 << 20) // len(data)
    with raw.connect(peer.port) as sock:
        pending = 0
        for _ in range(batches):
            sock.sendall(whole)
            pending += 1
            if pending == 16:
                raw.receive(sock)
                pending -= 1
        for _ in range(pending):
            raw.receive(sock)
    return batches * count, count


def read_all(peer: raw.Peer, topic: str, end: int, step: int) -> tuple[float, float, int]:
    """Read the topic front to back; seconds, the broker's CPU, bytes."""
    frames = [fetch(topic, offset) for offset in range(0, end, step)]
    buffer = bytearray(4 << 20)
    view = memoryview(buffer)
    total = 0
    cpu, began = peer.cpu(), time.perf_counter()
    with raw.connect(peer.port) as sock:
        for frame in frames:
            sock.sendall(frame)
            got = 0
            while got < 4:
                got += sock.recv_into(view[got:4])
            size = int.from_bytes(buffer[:4], "big")
            total += size
            while size:
                size -= sock.recv_into(view[: min(size, len(buffer))])
    return time.perf_counter() - began, peer.cpu() - cpu, total


def round_trips(peer: raw.Peer, topic: str, count: int) -> tuple[list[float], list[float]]:
    """Microseconds from the send of one small produce to its answer, and to its arrival at a waiting fetch."""
    raw.create_topic(peer.port, topic, 1)
    whole = request(topic, 1, batch(168, -1, -1))
    answers, arrivals = [], []
    with raw.connect(peer.port) as writer, raw.connect(peer.port) as reader:
        for number in range(count):
            reader.sendall(fetch(topic, number, wait_ms=5000))
            began = time.perf_counter()
            writer.sendall(whole)
            raw.receive(writer)
            answers.append((time.perf_counter() - began) * 1e6)
            raw.receive(reader)
            arrivals.append((time.perf_counter() - began) * 1e6)
    return answers, arrivals


def main() -> None:
    side = Side("fetch_raw", description=__doc__, rounds=5)
    megabytes = 256 if side.quick else 512
    trips = 2000 if side.quick else 4000
    numbers = itertools.count()
    ends = {}
    with side.peers() as peers:
        for turn in range(side.rounds + 1):
            for peer in peers:
                if not turn:  # warm: Java compiles, files are in the page cache
                    ends[peer.name] = fill(peer, "bench-read", megabytes)
                side.progress(f"round {turn}, {peer.name}")
                end, count = ends[peer.name]
                if side.wants("fetch 1 MiB"):
                    seconds, cpu, total = read_all(peer, "bench-read", end, count * (FETCH_BYTES // BATCH_BYTES))
                    if turn:
                        side.sample("fetch 1 MiB", "MB/s", peer.name, total / seconds / 1e6)
                        side.sample("fetch 1 MiB", "CPU s/GB", peer.name, cpu / (total / 1e9))
                if side.wants("round trip"):
                    answers, arrivals = round_trips(peer, f"trip-{next(numbers)}", trips)
                    if turn:
                        for case, values in (("produce round trip", answers), ("end to end round trip", arrivals)):
                            side.sample(case, "p50 us", peer.name, percentile(values, 0.5))
                            side.sample(case, "p99 us", peer.name, percentile(values, 0.99))
    side.target("fetch 1 MiB", "MB/s", at_least=1.0)
    side.target("fetch 1 MiB", "CPU s/GB", at_most=1.0)
    for case in ("produce round trip", "end to end round trip"):
        side.target(case, "p50 us", at_most=0.7)
        side.target(case, "p99 us", at_most=0.7)
    side.finish()


if __name__ == "__main__":
    main()
