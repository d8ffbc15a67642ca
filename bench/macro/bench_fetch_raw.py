"""Fetch over a raw connection, 1 MiB a fetch, of data in the page cache; and the round trips of small requests.

    python -m bench.macro.bench_fetch_raw [--quick] [--ours] [--megabytes 512] [--rounds 3]

Brokers take turns; medians count.  CPU is the broker's process alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import struct
import time

from bench.macro import raw
from bench.macro.bench_produce_raw import batch, request

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


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ours", action="store_true", help="without Kafka")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trips", type=int, default=3000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    numbers = itertools.count()
    rows: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(raw.ours())]
        if not arguments.ours:
            other = stack.enter_context(raw.kafka())
            if other is not None:
                peers.append(other)
        ends = {}
        for peer in peers:
            ends[peer.name] = fill(peer, "bench-read", arguments.megabytes)
            round_trips(peer, f"warm-{next(numbers)}", arguments.trips)
            end, count = ends[peer.name]
            read_all(peer, "bench-read", end, count * (FETCH_BYTES // BATCH_BYTES))
        for _ in range(rounds):
            for peer in peers:
                end, count = ends[peer.name]
                seconds, cpu, total = read_all(peer, "bench-read", end, count * (FETCH_BYTES // BATCH_BYTES))
                answers, arrivals = round_trips(peer, f"trip-{next(numbers)}", arguments.trips)
                found = rows.setdefault(peer.name, {})
                found.setdefault("fetch MB/s", []).append(total / seconds / 1e6)
                found.setdefault("fetch CPU s/GB", []).append(cpu / (total / 1e9))
                found.setdefault("produce p50 us", []).append(percentile(answers, 0.5))
                found.setdefault("produce p99 us", []).append(percentile(answers, 0.99))
                found.setdefault("end to end p50 us", []).append(percentile(arrivals, 0.5))
                found.setdefault("end to end p99 us", []).append(percentile(arrivals, 0.99))
    table = {name: {key: round(statistics.median(v), 3) for key, v in row.items()} for name, row in rows.items()}
    if arguments.json:
        print(json.dumps(table))
        return
    for key in next(iter(table.values())):
        line = f"{key:22}" + "".join(f"  {name}: {row[key]:>9}" for name, row in table.items())
        if len(table) == 2:
            line += f"  ratio {table['stratalog'][key] / max(table['kafka'][key], 1e-9):.2f}"
        print(line)


if __name__ == "__main__":
    main()
