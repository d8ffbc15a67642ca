"""Scanning a log in the page cache to Arrow, one thread: `python bench/micro/bench_scan.py [--mib 1024] [--json]`.

Target (issue 4): at least 1.5 GB/s of log at 1 KiB values.  Makes its own data in a temporary directory, reads it once
to have it in the page cache, and takes medians; wall time and CPU time are both printed, because a machine that is
busy with other things falsifies the first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from bench_kernels import make_log

import stratalog
from stratalog.records import kernels


def write(directory: str, total: int, value_size: int) -> int:
    """A partition of segments of up to 512 MiB; the same 64 MiB of records again and again, with their own offsets."""
    block = make_log(min(total, 64 << 20), value_size, 200_000)
    table = kernels.BatchTable(len(block) // 4096)
    kernels.best().scan_batches(block, table)
    firsts = table.column(kernels.BASE_OFFSET)
    positions = table.column(kernels.POSITION)
    span = table.column(kernels.LAST_OFFSET)[-1] + 1
    written = base = 0
    os.makedirs(directory)
    while written < total:
        with open(f"{directory}/{base:020d}.log", "wb") as file:
            while written < total and file.tell() + len(block) <= 512 << 20:
                for first, position in zip(firsts, positions, strict=True):
                    block[position : position + 8] = (base + first).to_bytes(8, "big")  # the CRC does not cover it
                written += file.write(block)
                base += span
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kernels.load_kernels()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        for label, value_size in (("1 KiB", 1024), ("100 B", 100)):
            directory = f"{place}/values{value_size}-0"
            size = write(directory, options.mib << 20, value_size)
            reader = stratalog.open(directory)
            for columns in (None, ["key", "value"], ["offset"]):
                walls, cpus = [], []
                for run in range(options.runs + 1):
                    wall, cpu = time.perf_counter(), time.process_time()
                    rows = sum(batch.num_rows for batch in reader.scan(columns=columns))
                    assert rows == reader.log_end_offset
                    if run:
                        walls.append(time.perf_counter() - wall)
                        cpus.append(time.process_time() - cpu)
                name = f"{label}, {'all columns' if columns is None else ', '.join(columns)}"
                found[f"scan of {name}: GB/s (wall)"] = size / 1e9 / statistics.median(walls)
                found[f"scan of {name}: GB/s (CPU)"] = size / 1e9 / statistics.median(cpus)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{value:10.2f}  {name}")


if __name__ == "__main__":
    main()
