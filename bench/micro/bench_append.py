"""Appending validated 16 KiB batches of an idempotent producer as leader, and reading them back.

    python -m bench.micro.bench_append

The target of issue 4: under 25 microseconds of CPU for a batch, into the page cache; the same with 12 partitions in
turn.  Beside it: what the system call alone costs.
"""

from __future__ import annotations

import os
import statistics
import struct
import tempfile
import time

from bench._run import Bench
from stratalog.base.types import Millis
from stratalog.records.batch import BatchBuilder
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation, Log

NOW = Millis(1_700_000_000_000)
BATCHES = 1200
RECORDS = 16


def produced() -> list[memoryview]:
    value = os.urandom(1000)
    out = []
    for i in range(BATCHES):
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=i * RECORDS)
        for j in range(RECORDS):
            builder.append(NOW + j, None, value)
        out.append(memoryview(builder.build()))
    return out


def run(batches: list[memoryview], root: str, partitions: int, group: int) -> float:
    """CPU seconds for one batch: each wake-up stages `group` batches a partition and commits them."""
    logs = [
        Log.open(RealDisk(), f"{root}/t-{i}", topic="t", partition=i, config=LogConfig(), now_ms=NOW)
        for i in range(partitions)
    ]
    per_log = BATCHES // partitions
    for raw in batches:
        struct.pack_into(">q", raw, 0, 0)
    at = 0
    start = time.process_time()
    while at < per_log:
        for log in logs:
            for raw in batches[at : at + group]:  # every log gets the same sequences: it is another partition
                log.stage_append(raw, 0, NOW)
                struct.pack_into(">q", raw, 0, 0)
            log.commit_staged(NOW)
            log.maybe_increment_high_watermark(log.log_end)
        at += group
    spent = (time.process_time() - start) / (per_log * partitions)
    for log in logs:
        log.close(clean=False)
    return spent


def main() -> None:
    bench = Bench("append")
    batches = produced()
    with tempfile.TemporaryDirectory(prefix="bench-append-") as root:
        for partitions, group in ((1, 1), (1, 8), (12, 1), (12, 8)):
            times = [run(batches, f"{root}/{partitions}-{group}-{turn}", partitions, group) for turn in range(5)]
            bench.value(
                f"append 16 KiB, {partitions} partitions, {group} a wake-up",
                statistics.median(times) * 1e6,
                "µs",
                at_most=25.0,
            )
        fd = os.open(f"{root}/plain", os.O_RDWR | os.O_CREAT)
        start = time.process_time()
        for i, raw in enumerate(batches):
            os.pwritev(fd, [raw], i * len(raw))
        bench.value("pwritev of 16 KiB alone", (time.process_time() - start) / BATCHES * 1e6, "µs")
        os.close(fd)
        log = Log.open(RealDisk(), f"{root}/read-0", topic="t", partition=0, config=LogConfig(), now_ms=NOW)
        for raw in batches:
            struct.pack_into(">q", raw, 0, 0)
            log.append_as_leader(raw, 0, NOW)
        log.update_high_watermark(log.log_end)
        end = log.log_end_offset
        turns = 300
        start = time.process_time()
        for i in range(turns):
            log.read(end - RECORDS * (1 + i % 400), 1 << 20, Isolation.HIGH_WATERMARK)
        bench.value("read at the tail", (time.process_time() - start) / turns * 1e6, "µs", at_most=6.0)
        log._recent.clear()
        start = time.process_time()
        for i in range(turns):
            log.read((i * 7919) % end, 1 << 20, Isolation.HIGH_WATERMARK)
        bench.value("read anywhere", (time.process_time() - start) / turns * 1e6, "µs")
    bench.finish()


if __name__ == "__main__":
    main()
