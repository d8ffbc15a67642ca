"""Kafka's own `kafka-producer-perf-test` and `kafka-consumer-perf-test` against both brokers, with default batches.

    python -m bench.macro.bench_java [--quick] [--ours] [--rounds 3] [--only "1 KiB, 12"]

Payloads come from a file (`--payload-file`), since making them costs the tool more than sending them.  CPU is the
broker's process alone, for each GB of record values.  The consumer's rate is `fetch.MB.sec`: without the three seconds
that a new group waits.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path

from bench.macro import raw
from bench.macro.side import Side
from tools.kafka_peer import tool

PRODUCE = {
    # name: (bytes of a record, partitions, codec, least ratio of MB/s, greatest ratio of CPU for a GB)
    "produce 1 KiB, 1 partition": (1024, 1, "none", 1.0, 0.5),
    "produce 1 KiB, 12 partitions": (1024, 12, "none", 1.0, 0.7),
    "produce 100 B, 1 partition": (100, 1, "none", 1.0, 0.5),
    "produce 100 B, 12 partitions": (100, 12, "none", 1.0, 0.7),
    "produce 1 KiB, 12 partitions, lz4": (1024, 12, "lz4", 0.0, 1.0),
    "produce 1 KiB, 12 partitions, zstd": (1024, 12, "zstd", 0.0, 1.0),
}
CONSUME = {
    # name: the case that wrote what it reads
    "consume 1 KiB, 1 partition": "produce 1 KiB, 1 partition",
    "consume 1 KiB, 12 partitions": "produce 1 KiB, 12 partitions",
    "consume 100 B, 1 partition": "produce 100 B, 1 partition",
}
WORDS = [
    "offset",
    "segment",
    "batch",
    "record",
    "leader",
    "epoch",
    "index",
    "snapshot",
    "quorum",
    "fetch",
    "produce",
    "group",
    "commit",
    "lag",
]


def payloads(directory: str, size: int) -> Path:
    """A file of 2,000 payloads of one size: words and numbers, which a codec can halve."""
    rng = random.Random(size)
    path = Path(directory) / f"payload-{size}"
    lines = []
    for _ in range(2000):
        text = ""
        while len(text) < size:
            text += f"{rng.choice(WORDS)}={rng.getrandbits(48):x} "
        lines.append(text[:size])
    path.write_text("\n".join(lines))
    return path


def produce(peer: raw.Peer, topic: str, records: int, file: Path, codec: str) -> tuple[float, float]:
    """MB/s by the tool's own count, and the broker's CPU seconds."""
    cpu = peer.cpu()
    done = tool(
        "kafka-producer-perf-test",
        "--topic", topic, "--num-records", str(records), "--throughput", "-1",
        "--payload-file", str(file), "--bootstrap-server", f"127.0.0.1:{peer.port}",
        "--command-property", f"compression.type={codec}",
        timeout_s=300,
        check=True,
    )  # fmt: skip
    cpu = peer.cpu() - cpu
    last = [line for line in done.stdout.splitlines() if "MB/sec" in line][-1]
    return float(last.split("(")[1].split(" MB/sec")[0]) * 1.048576, cpu


def consume(peer: raw.Peer, topic: str, records: int) -> tuple[float, float]:
    """MB/s of the fetch phase, and the broker's CPU seconds."""
    cpu = peer.cpu()
    done = tool(
        "kafka-consumer-perf-test",
        "--topic", topic, "--num-records", str(records), "--bootstrap-server", f"127.0.0.1:{peer.port}",
        "--hide-header", "--timeout", "20000",
        timeout_s=300,
        check=True,
    )  # fmt: skip
    cpu = peer.cpu() - cpu
    fields = [line for line in done.stdout.splitlines() if line.count(",") >= 9][-1].split(",")
    return float(fields[8]) * 1.048576, cpu


def main() -> None:
    side = Side("java", description=__doc__, rounds=3)
    megabytes = 250 if side.quick else 1000
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="stratalog-java-bench-") as directory, side.peers() as peers:
        files = {size: payloads(directory, size) for size in (1024, 100)}
        for peer in peers:  # Java compiles
            raw.create_topic(peer.port, "warm", 12)
            produce(peer, "warm", 150_000, files[1024], "none")
        for turn in range(side.rounds):
            for name, (size, partitions, codec, least, most) in PRODUCE.items():
                readers = [reader for reader, source in CONSUME.items() if source == name and side.wants(reader)]
                if not side.wants(name) and not readers:
                    continue
                records = megabytes * 1_000_000 // size // (1 if size > 500 else 2)
                topics = {}
                for peer in peers:
                    side.progress(f"round {turn}, {name}, {peer.name}")
                    topic = topics[peer.name] = f"bench-{next(numbers)}"
                    raw.create_topic(peer.port, topic, partitions)
                    raw.settle()
                    rate, cpu = produce(peer, topic, records, files[size], codec)
                    side.sample(name, "MB/s", peer.name, rate)
                    side.sample(name, "CPU s/GB", peer.name, cpu / (records * size / 1e9))
                for reader in readers:
                    for peer in peers:
                        side.progress(f"round {turn}, {reader}, {peer.name}")
                        rate, cpu = consume(peer, topics[peer.name], records)
                        side.sample(reader, "fetch MB/s", peer.name, rate)
                        side.sample(reader, "CPU s/GB", peer.name, cpu / (records * size / 1e9))
                    side.target(reader, "fetch MB/s", at_least=1.0)
                    side.target(reader, "CPU s/GB", at_most=0.5)
                for peer in peers:
                    raw.delete_topic(peer.port, topics[peer.name])
                if least:
                    side.target(name, "MB/s", at_least=least)
                side.target(name, "CPU s/GB", at_most=most)
    side.finish()


if __name__ == "__main__":
    main()
