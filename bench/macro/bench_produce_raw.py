"""Produce over raw connections: requests a second and the broker's CPU for each, beside Apache Kafka in one run.

    python -m bench.macro.bench_produce_raw [--quick] [--ours] [--seconds 1.5] [--rounds 3]

The rounds alternate between the brokers; medians count.  Each case writes to a topic of its own that is deleted after.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import struct
import time
from collections.abc import Callable

from bench.macro import raw
from crc32c import crc32c

from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.records.batch import BatchBuilder

VERSION = 9
CASES = {
    # name: (connections, partitions in a request, bytes of a batch, idempotent)
    "16 KiB, 1 connection": (1, 1, 16_384, False),
    "16 KiB, 1 connection, idempotent": (1, 1, 16_384, True),
    "16 KiB, 8 connections": (8, 1, 16_384, False),
    "16 KiB, 8 connections, idempotent": (8, 1, 16_384, True),
    "100 B, 1 connection": (1, 1, 168, False),
    "100 B, 8 connections": (8, 1, 168, False),
    "12 x 16 KiB, 1 connection": (1, 12, 16_384, False),
}
TARGETS = {
    # name: (least ratio of requests a second, greatest ratio of CPU a request)
    "16 KiB, 1 connection": (3.0, 1 / 3),
    "16 KiB, 1 connection, idempotent": (3.0, 1 / 3),
    "16 KiB, 8 connections": (2.0, 1 / 3),
    "16 KiB, 8 connections, idempotent": (2.0, 1 / 3),
    "100 B, 1 connection": (3.0, 1.0),
    "100 B, 8 connections": (3.0, 1.0),
    "12 x 16 KiB, 1 connection": (0.0, 0.7),
}


def batch(size: int, producer_id: int, epoch: int) -> bytes:
    """One batch of about `size` bytes: records of 1 KiB, or one of 100 bytes."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=0 if producer_id >= 0 else -1)
    value = 100 if size < 1024 else 1010
    count = max(1, (size - 61) // (value + 14))
    for _ in range(count):
        builder.append(int(time.time() * 1000), None, os.urandom(value))
    return bytes(builder.build())


def request(topic: str, partitions: int, data: bytes) -> bytes:
    rows = [PartitionProduceData(index=index, records=data) for index in range(partitions)]
    body = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)])
    return raw.frame("Produce", VERSION, body)


def source(topic: str, partitions: int, size: int, identity: tuple[int, int] | None) -> Callable[[], bytes]:
    """Gives the next request's bytes."""
    data = batch(size, *(identity or (-1, -1)))
    whole = request(topic, partitions, data)
    if identity is None:
        return lambda: whole
    template = bytearray(whole)
    at = whole.index(data)
    (count,) = struct.unpack_from(">i", data, 57)
    numbers = itertools.count(0, count)
    view = memoryview(template)[at : at + len(data)]

    def following() -> bytes:
        struct.pack_into(">i", view, 53, next(numbers) & 0x7FFFFFFF)
        struct.pack_into(">I", view, 17, crc32c(view[21:]))
        return bytes(template)

    return following


def run_case(peer: raw.Peer, name: str, number: int, *, seconds: float, depth: int) -> raw.Load:
    connections, partitions, size, idempotent = CASES[name]
    topic = f"bench-{number}"
    raw.create_topic(peer.port, topic, max(partitions, connections))
    sources = []
    for index in range(connections):
        identity = raw.producer_id(peer.port) if idempotent else None
        made = source(topic, partitions, size, identity)
        if partitions == 1 and connections > 1:
            made = _on_partition(topic, index, size, identity)
        sources.append(made)
    load = raw.drive(peer, sources, depth=depth, seconds=seconds)
    raw.delete_topic(peer.port, topic)
    return load


def _on_partition(topic: str, index: int, size: int, identity: tuple[int, int] | None) -> Callable[[], bytes]:
    made = source(topic, 1, size, identity)
    sample = made()
    data_at = sample.index(b"\x00\x00\x00\x00", 30 + len(topic))

    def following() -> bytes:
        whole = bytearray(made())
        struct.pack_into(">i", whole, data_at, index)
        return bytes(whole)

    if identity is not None:
        return following
    once = bytearray(sample)
    struct.pack_into(">i", once, data_at, index)
    fixed = bytes(once)
    return lambda: fixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ours", action="store_true", help="without Kafka")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    numbers = itertools.count()
    results: dict[str, dict[str, list[raw.Load]]] = {}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(raw.ours())]
        if not arguments.ours:
            other = stack.enter_context(raw.kafka())
            if other is not None:
                peers.append(other)
        for turn in range(rounds + 1):
            for name in CASES:
                if arguments.only in name:
                    for peer in peers:
                        seconds = arguments.seconds if turn else min(1.0, arguments.seconds)
                        load = run_case(peer, name, next(numbers), seconds=seconds, depth=arguments.depth)
                        if turn:  # the first turn warms up: Java compiles, files are made
                            results.setdefault(name, {}).setdefault(peer.name, []).append(load)
    table = {}
    for name, by_peer in results.items():
        row = table[name] = {}
        for peer_name, loads in by_peer.items():
            rate = statistics.median(load.rate for load in loads)
            cpu = statistics.median(load.microseconds for load in loads)
            row[peer_name] = (round(rate), round(cpu, 1))
    if arguments.json:
        print(json.dumps(table))
        return
    for name, row in table.items():
        line = f"{name:36}" + "".join(f"  {peer}: {rate:>7} /s {cpu:>6} us" for peer, (rate, cpu) in row.items())
        if len(row) == 2:
            (our_rate, our_cpu), (their_rate, their_cpu) = row["stratalog"], row["kafka"]
            rate, cpu = our_rate / their_rate, our_cpu / their_cpu
            least, most = TARGETS[name]
            verdict = "ok" if rate >= least and cpu <= most else f"target {least:.1f}x, {most:.2f}"
            line += f"  {rate:.2f}x the requests, {cpu:.2f} of the CPU  {verdict}"
        print(line)


if __name__ == "__main__":
    main()
