"""What the kernels do in a second, on one thread.

CPU time, medians of several runs; the data is made here.  Targets (issues 3 and 6): Arrow at least 3 GB/s for batches
of 16 KiB with 100-byte values; the map and the rewrite together at least 2 x 114 MB/s (100 B, 2 M keys) and
1.5 x 476 MB/s (1 KiB, 200 k keys), file I/O not counted.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import crc32c
import numpy as np

from bench._run import Bench
from stratalog.records import arrow, kernels
from stratalog.records.batch import assemble, encode_record
from stratalog.records.kernels import BatchTable, FilterRules
from stratalog.records.offset_map import OffsetMap

compiled = kernels.load_kernels()

ARROW_GB_PER_SECOND = 3.0
COMPACT_MB_PER_SECOND = {"100 B": 2 * 114.0, "1 KiB": 1.5 * 476.0}


def make_log(total: int, value_size: int, keys: int, *, batch_size: int = 16 << 10, key_size: int = 8) -> bytearray:
    """About `total` bytes of batches with random keys of `keys`, each batch stamped with a fresh base offset."""
    rng = random.Random(7)
    value = bytes(rng.randbytes(value_size))
    per_batch = max(1, batch_size // (value_size + key_size + 8))
    out = bytearray()
    base = 0
    while len(out) < total:
        body = b"".join(
            encode_record(i, i, rng.randrange(keys).to_bytes(key_size, "big"), value) for i in range(per_batch)
        )
        out += assemble(
            body,
            base_offset=base,
            last_offset_delta=per_batch - 1,
            count=per_batch,
            attributes=0,
            base_timestamp=1_700_000_000_000 + base,
            max_timestamp=1_700_000_000_000 + base + per_batch - 1,
            leader_epoch=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
        base += per_batch
    return out


def seconds(work: Callable[[], object], runs: int = 5) -> float:
    """CPU seconds, median."""
    taken = []
    for _ in range(runs):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def chunks(log: bytearray, size: int) -> list[tuple[memoryview, BatchTable]]:
    """The log in pieces of whole batches, scanned."""
    view = memoryview(log)
    pieces = []
    position = 0
    while position < len(log):
        table = BatchTable(size // 256)
        piece = view[position : position + size]
        compiled.scan_batches(piece, table)
        pieces.append((piece[: table.end], table))
        position += table.end
    return pieces


def compact(log: bytearray, memory: int, chunk: int) -> tuple[float, float, int, int]:
    """(CPU seconds of the map, of the rewrite, bytes kept, keys): both passes with their scans, no file."""
    view = memoryview(log)
    offset_map = OffsetMap(memory, secret=bytes(range(16)))
    table = BatchTable(chunk // 256)
    start = time.process_time()
    position = 0
    while position < len(log):
        piece = view[position : position + chunk]
        compiled.scan_batches(piece, table, verify=False)
        code, _, _ = offset_map.put_run(piece, table)
        assert code == kernels.OK
        position += table.end
    mapped = time.process_time()
    latest = offset_map.latest_offset
    rules = FilterRules(latest, 0, 86_400_000, offset_map.survivors(0, latest + 1), 0, latest + 1)
    output = bytearray(chunk + (64 << 10))
    position = kept = 0
    while position < len(log):
        piece = view[position : position + chunk]
        compiled.scan_batches(piece, table, verify=False)
        run = offset_map.filter_run(piece, table, rules, bytes(table.count), output)
        assert run.code == kernels.OK
        kept += run.bytes_kept
        position += table.end
    end = time.process_time()
    keys = len(offset_map)
    offset_map.close()
    return mapped - start, end - mapped, kept, keys


def main() -> None:
    bench = Bench("kernels")
    total = (32 if bench.options.quick else 256) << 20

    block = np.random.default_rng(1).bytes(16 << 10)
    for name, function in (("kernel", compiled.crc32c), ("crc32c", crc32c.crc32c)):
        bench.value(
            f"crc32c of 16 KiB, {name}", seconds(lambda f=function: [f(block) for _ in range(2000)]) / 2000 * 1e6, "µs"
        )

    for label, value_size, keys in (("100 B", 100, 2_000_000), ("1 KiB", 1024, 200_000)):
        log = make_log(total, value_size, keys)
        gigabytes = len(log) / 1e9
        table = BatchTable(len(log) // 4096)
        taken = seconds(lambda g=log, t=table: compiled.scan_batches(g, t))
        bench.value(f"scan with CRC, {label}", gigabytes / taken, "GB/s")
        taken = seconds(lambda g=log, t=table: compiled.scan_batches(g, t, verify=False))
        bench.value(f"scan without CRC, {label}", gigabytes / taken, "GB/s")
        pieces = chunks(log, 4 << 20)
        arrow_wanted = ARROW_GB_PER_SECOND if value_size == 100 else None
        for columns in (None, ("key", "value"), ("offset", "timestamp")):
            name = "all columns" if columns is None else ", ".join(columns)

            def work(columns: tuple[str, ...] | None = columns, pieces: list = pieces) -> None:
                for piece, found_batches in pieces:
                    arrow.decode(piece, found_batches, columns=columns)

            bench.value(f"Arrow ({name}), {label}", gigabytes / seconds(work), "GB/s", at_least=arrow_wanted)
        runs = [compact(log, 128 << 20, 4 << 20) for _ in range(3)]
        map_seconds = statistics.median(run[0] for run in runs)
        both = statistics.median(run[0] + run[1] for run in runs)
        wanted = None if bench.options.quick else COMPACT_MB_PER_SECOND[label]  # fewer keys than it is meant for
        bench.value(f"offset map, {label}, {runs[0][3]} keys", len(log) / 1e6 / map_seconds, "MB/s")
        bench.value(f"map and rewrite, {label}, {runs[0][3]} keys", len(log) / 1e6 / both, "MB/s", at_least=wanted)
        bench.value(f"kept of {label}", 100 * runs[0][2] / len(log), "%")
    bench.finish()


if __name__ == "__main__":
    main()
