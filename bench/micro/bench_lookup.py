"""Cold lookups in a 1 GiB segment, and opening 10,000 closed segments.

    python -m bench.micro.bench_lookup

The targets of issue 4: a lookup by offset and by timestamp under 100 microseconds; 10,000 closed segments open in under
2 s and 200 MiB.  The segment's records are holes but for the headers, so that the bench needs no gigabyte.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import struct
import tempfile
import time

from bench._run import Bench
from stratalog.base.types import Millis
from stratalog.records.batch import HEADER, BatchBuilder
from stratalog.server.disk import RealDisk
from stratalog.storage import layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log
from stratalog.storage.offset_index import ENTRY as OFFSET_ENTRY
from stratalog.storage.time_index import ENTRY as TIME_ENTRY

NOW = Millis(1_700_000_000_000)
SIZE = 16 << 10
RECORDS = 16
SEGMENTS = 10_000


def large_segment(directory: str) -> int:
    """Headers at every 16 KiB of a sparse gigabyte, with its indexes; returns the batches in it."""
    os.makedirs(directory)
    builder = BatchBuilder()
    for j in range(RECORDS):
        builder.append(NOW + j, None, bytes(1000))
    raw = bytes(builder.build())
    raw += bytes(SIZE - len(raw)) if len(raw) < SIZE else b""
    size = len(raw)
    count = (1 << 30) // size
    name = f"{directory}/{0:020d}"
    offsets, times = bytearray(), bytearray()
    with open(name + layout.LOG, "wb") as file:
        for i in range(count):
            base = i * RECORDS
            stamp = NOW + i * 100
            header = bytearray(raw[: HEADER.size])
            struct.pack_into(">qi", header, 0, base, size - 12)
            struct.pack_into(">qq", header, 27, stamp, stamp + RECORDS - 1)
            file.seek(i * size)
            file.write(header)
            if i % 997 == 0:
                file.write(raw[HEADER.size :])
            if i:
                offsets += OFFSET_ENTRY.pack(base + RECORDS - 1, i * size)
                times += TIME_ENTRY.pack(stamp + RECORDS - 1, base + RECORDS - 1)
        file.truncate(count * size)
    for suffix, data in ((layout.INDEX, offsets), (layout.TIME_INDEX, times)):
        with open(name + suffix, "wb") as file:
            file.write(data)
    return count


def main() -> None:
    bench = Bench("lookup")
    disk = RealDisk()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="bench-lookup-") as root:
        count = large_segment(f"{root}/big-0")
        by_offset, by_time = [], []
        for _ in range(40):
            log = Log.open(
                disk,
                f"{root}/big-0",
                topic="big",
                partition=0,
                config=LogConfig(),
                now_ms=NOW,
                had_clean_shutdown=True,
            )
            log.roll(NOW)
            target = rng.randrange(count // 997) * 997
            start = time.process_time()
            log.read(target * RECORDS + 3, 1 << 20)
            by_offset.append(time.process_time() - start)
            start = time.process_time()
            found = log.offset_for_timestamp(NOW + target * 100)
            by_time.append(time.process_time() - start)
            assert found is not None
            assert found.offset == target * RECORDS
            log.close(clean=False)
            os.unlink(f"{root}/big-0/{count * RECORDS:020d}.log")
        bench.value("cold lookup by offset, 1 GiB", statistics.median(by_offset) * 1e6, "µs", at_most=100)
        bench.value("cold lookup by timestamp, 1 GiB", statistics.median(by_time) * 1e6, "µs", at_most=100)

        directory = f"{root}/many-0"
        os.makedirs(directory)
        builder = BatchBuilder()
        builder.append(NOW, None, b"v")
        raw = builder.build()
        for i in range(SEGMENTS):
            struct.pack_into(">q", raw, 0, i)
            name = f"{directory}/{i:020d}"
            for suffix, data in ((layout.LOG, raw), (layout.INDEX, b""), (layout.TIME_INDEX, TIME_ENTRY.pack(NOW, 0))):
                with open(name + suffix, "wb") as file:
                    file.write(data)
        with open(f"{directory}/{SEGMENTS:020d}.snapshot", "wb") as file:
            from stratalog.storage.producers import encode_snapshot

            file.write(encode_snapshot([]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        log = Log.open(
            disk, directory, topic="many", partition=0, config=LogConfig(), now_ms=NOW, had_clean_shutdown=True
        )
        spent = time.process_time() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert len(log.segments) == SEGMENTS
        bench.value("open 10,000 closed segments", spent, "s", at_most=2.0)
        bench.value("memory for 10,000 closed segments", grown, "MiB", at_most=200)
        log.close(clean=False)
    bench.finish()


if __name__ == "__main__":
    main()
