"""Reading a topic with Spark: ours from files and over the wire, against Spark's own Kafka source, on the same bytes.

    python -m bench.spark.bench_read            1 GiB of 100-byte and 1 GiB of 1 KiB records (about ten minutes)
    python -m bench.spark.bench_read --small    64 MiB of each

One Spark session and one broker of Apache Kafka 4.3.1 hold all of it; the queries run in turn, round after round, and
what counts is the median wall time of each.  The CPU seconds of Spark's processes (its JVM and the Python workers, not
the broker) stand beside it: on a busy machine they say more.  Ours reads the broker's own directory.  `columns` is the
same query with only the columns that it needs (`option("columns", ...)`), which Spark's Python sources cannot find out
by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

QUERIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "count": ("offset", lambda frame: frame.count()),
    "sum of lengths": ("value", lambda frame: frame.selectExpr("sum(length(value))").collect()),
    "group by key": ("key", lambda frame: frame.groupBy("key").count().selectExpr("count(*)").collect()),
    "noop sink": ("", lambda frame: frame.write.format("noop").mode("overwrite").save()),
}
TARGETS = {
    ("100 B", "count"): 3.0,
    ("100 B", "sum of lengths"): 3.0,
    ("100 B", "group by key"): 2.0,
    ("100 B", "noop sink"): 1.3,
    ("1 KiB", "count"): 1.3,
    ("1 KiB", "sum of lengths"): 1.3,
    ("1 KiB", "group by key"): 1.3,
    ("1 KiB", "noop sink"): 1.3,
}


def fill(bootstrap: str, topic: str, size: int, total: int) -> int:
    """Records of `size` bytes (key and value together) until `total` bytes are there; the number of records."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 16_384 if size < 1000 else 65_536,
            "queue.buffering.max.messages": 200_000,
            "acks": 1,
        }
    )
    body = os.urandom(1 << 16)
    count = total // size
    for i in range(count):
        key = b"%08d" % (i * 7919 % 200_000)
        at = i % 60_000
        while True:
            try:
                producer.produce(topic, body[at : at + size - 8], key)
                break
            except BufferError:
                producer.poll(0.1)
        if not i % 1000:
            producer.poll(0)
    producer.flush(120)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="64 MiB instead of 1 GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only sizes with this in their name")
    parser.add_argument("--query", default="", help="only queries with this in their name")
    parser.add_argument("--no-wire", action="store_true")
    parser.add_argument("--no-history", action="store_true")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting for the session")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the broker is stopped on the way out
    import kafka_peer
    import spark_peer

    jars = spark_peer.jars()
    if kafka_peer.kafka_home() is None or jars is None:
        print(kafka_peer.why_missing() or spark_peer.why_missing())
        return 1
    from stratalog.spark import session

    total = 64 << 20 if arguments.small else 1 << 30
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as place:
        config = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "2g"}
        config.update(setting.split("=", 1) for setting in arguments.config)
        spark = session("local[2]", config=config)
        spark.sparkContext.setLogLevel("ERROR")
        with kafka_peer.kafka_broker(Path(place) / "kafka", "num.partitions=2", "log.retention.ms=-1") as kafka:
            for name, size in (("100 B", 100), ("1 KiB", 1024)):
                if arguments.only not in name:
                    continue
                topic = name.replace(" ", "").lower()
                records = fill(kafka.bootstrap, topic, size, total)
                results += compare(spark, kafka, topic, name, records, arguments)
        spark.stop()
    if not arguments.no_history:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
        ).stdout.strip()
        with (ROOT / "bench" / "history.jsonl").open("a") as history:
            history.write(json.dumps({"bench": "spark_read", "commit": commit, "rows": results}) + "\n")
    return 0 if all(row["holds"] is not False for row in results) else 2


def cpu_seconds(broker: int) -> float:
    """What this process and all below it have used, a broker excepted."""
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[int, tuple[int, float]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry)] = int(fields[1]), sum(map(int, fields[11:15])) / tick
    total = 0.0
    for pid, (_, used) in found.items():
        above = pid
        while above in found and above not in (os.getpid(), broker):
            above = found[above][0]
        if above == os.getpid():
            total += used
    return total


def compare(
    spark: Any, kafka: Any, topic: str, name: str, records: int, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    from stratalog.client import Client

    def theirs(_: str) -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
        return reader.option("subscribe", topic).load()

    def files(_: str) -> Any:
        return spark.read.format("stratalog").option("path", str(kafka.log_dir)).option("subscribe", topic).load()

    def columns(wanted: str) -> Any:
        reader = spark.read.format("stratalog").option("path", str(kafka.log_dir)).option("subscribe", topic)
        return reader.option("columns", wanted).load() if wanted else None

    def wire(_: str) -> Any:
        reader = spark.read.format("stratalog").option("kafka.bootstrap.servers", kafka.bootstrap)
        return reader.option("subscribe", topic).load()

    with Client(kafka.bootstrap) as client:
        assert len(client.topic(topic).partitions) == 2
    ways = {"kafka": theirs, "files": files, "columns": columns}
    if not arguments.no_wire:
        ways["wire"] = wire
    assert files("").count() == records == theirs("").count()
    rows = []
    for query, (wanted, run) in QUERIES.items():
        if arguments.query not in query:
            continue
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way, open_ in ways.items():
                used, started = cpu_seconds(kafka.pid), time.perf_counter()
                frame = open_(wanted)
                if frame is None:
                    continue
                run(frame)
                seconds[way].append(time.perf_counter() - started)
                cpu[way].append(cpu_seconds(kafka.pid) - used)
        medians = {way: statistics.median(times) for way, times in seconds.items() if times}
        best = min(medians[way] for way in ("files", "columns") if way in medians)
        target = None if arguments.small else TARGETS[name, query]
        ratio = medians["kafka"] / best
        holds = None if target is None else ratio >= target
        row = {"records": name, "query": query, **{k: round(v, 2) for k, v in medians.items()}}
        row |= {"ratio": round(ratio, 2), "ratio all columns": round(medians["kafka"] / medians["files"], 2)}
        used_by = {way: statistics.median(times) for way, times in cpu.items() if times}
        row |= {f"cpu {way}": round(value, 2) for way, value in used_by.items()}
        row |= {"ratio cpu": round(used_by["kafka"] / min(used_by[w] for w in ("files", "columns") if w in used_by), 2)}
        row |= {"target": TARGETS[name, query], "holds": holds}
        rows.append(row)
        print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
