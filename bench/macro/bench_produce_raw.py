"""Produce over raw connections: requests a second and the broker's CPU for each, beside Apache Kafka in one run.

    python -m bench.macro.bench_produce_raw [--quick] [--ours] [--rounds 5] [--only "16 KiB, 1"]

The rounds alternate between the brokers; medians count.  Each case writes to a topic of its own that is deleted after.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Callable

from bench.macro import raw
from bench.macro.side import Side
from crc32c import crc32c

from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.records.batch import BatchBuilder

VERSION = 9
DEPTH = 8
"""Requests in flight on each connection."""
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
    raw.settle()
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
    side = Side("produce_raw", description=__doc__, rounds=5)
    seconds = 1.0 if side.quick else 1.5
    numbers = itertools.count()
    with side.peers() as peers:
        for turn in range(side.rounds + 1):
            for name in CASES:
                if not side.wants(name):
                    continue
                side.progress(f"round {turn}, {name}")
                for peer in peers:
                    load = run_case(peer, name, next(numbers), seconds=seconds, depth=DEPTH)
                    if turn:  # the first turn warms up: Java compiles, files are made
                        side.sample(name, "requests/s", peer.name, load.rate)
                        side.sample(name, "CPU us/request", peer.name, load.microseconds)
    for name, (least, most) in TARGETS.items():
        if least:
            side.target(name, "requests/s", at_least=least)
        side.target(name, "CPU us/request", at_most=most)
    side.finish()


if __name__ == "__main__":
    main()
