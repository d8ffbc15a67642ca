"""Loading after a kill: one large partition, and many small ones.

    python -m bench.macro.bench_recovery [--gigabytes 1]

The targets of issue 4 are ratios against Kafka's log loading of the same bytes (1.5 times for one partition, 4 times
for 1,000 of 2 MiB); this bench gives our side: bytes of log checked in a second, with warm page cache.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

from bench._run import Bench

from stratalog.base.types import Millis
from stratalog.records.batch import BatchBuilder
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log

NOW = Millis(1_700_000_000_000)
RECORDS = 16


def fill(directory: str, size: int) -> int:
    log = Log.open(RealDisk(), directory, topic="t", partition=0, config=LogConfig(), now_ms=NOW)
    value = os.urandom(1000)
    written = sequence = 0
    while written < size:
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
        for j in range(RECORDS):
            builder.append(NOW + j, None, value)
        written += log.append_as_leader(builder.build(), 0, NOW).size
        sequence += RECORDS
    log.close(clean=False)
    return written


def recover(directory: str) -> None:
    log = Log.open(RealDisk(), directory, topic="t", partition=0, config=LogConfig(), now_ms=NOW)
    assert log.report.bytes_truncated == 0
    log.close(clean=False)


def main() -> None:
    gigabytes = 1.0
    if "--gigabytes" in sys.argv:
        at = sys.argv.index("--gigabytes")
        gigabytes = float(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    bench = Bench("recovery")
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as root:
        size = fill(f"{root}/t-0", int(gigabytes * (1 << 30)))
        start, cpu = time.perf_counter(), time.process_time()
        recover(f"{root}/t-0")
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        bench.value("one partition, wall", size / wall / 1e9, "GB/s")
        bench.value("one partition, CPU", size / cpu / 1e9, "GB/s")
        count = 100
        total = sum(fill(f"{root}/s-{i}", 2 << 20) for i in range(count))
        start, cpu = time.perf_counter(), time.process_time()
        for i in range(count):
            recover(f"{root}/s-{i}")
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        bench.value("partitions of 2 MiB, wall, one thread", count / wall, "1/s")
        bench.value("partitions of 2 MiB, CPU", total / cpu / 1e9, "GB/s")
    bench.finish()


if __name__ == "__main__":
    main()
