"""Compaction beside Kafka 4.3.1: the same dirty log cleaned by Kafka's own cleaner class and by ours, one thread each.

    python -m bench.macro.bench_compaction [--quick]

Cases: 1 KiB values and 200 k keys, 100 B values and 2 M keys, uncompressed (1 GiB, with --quick an eighth of it), and
lz4 and zstd data.  Kafka's virtual machine cleans a smaller log first, so that its code is compiled; its time and ours
are those of the cleaning alone, both passes, sync and swap.  MB/s count the dirty bytes once.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

# ruff: noqa: E402
import numpy as np
from bench._run import Bench

import kafka_peer
from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.cleaning import Cleaning
from stratalog.logs.cleaner.manager import STEP_BYTES, facts_of
from stratalog.records import batch as batches
from stratalog.records.compression import compress
from stratalog.records.kernels import load_kernels
from stratalog.records.offset_map import OffsetMap
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log

NOW = 1_700_000_000_000
MAP_BYTES = 128 << 20
SEGMENT = 128 << 20
KEY = 12


class Writer:
    """Writes batches of records of one size with random keys, as a fast producer would have."""

    def __init__(self, directory: Path, *, value: int, keys: int, codec: int, seed: int) -> None:
        self._directory = directory
        self._rng = np.random.default_rng(seed)
        self._keys = keys
        self._codec = codec
        count = max(1, 16384 // (value + KEY + 8))
        words = [bytes(self._rng.integers(97, 123, 6, dtype=np.uint8)) for _ in range(400)]
        builder = batches.BatchBuilder(base_offset=0)
        self._values = []
        for i in range(count):
            text = b" ".join(words[int(n)] for n in self._rng.integers(0, 400, value // 7 + 2))[:value]
            builder.append(NOW, b"k%011d" % i, text)
        self._template = builder.build()
        self._count = count
        body = bytes(self._template)
        self._places = np.array([body.index(b"k%011d" % i) + 1 for i in range(count)])

    def write(self, total: int) -> int:
        """About so many bytes, in segments; the bytes of the dirty part."""
        self._directory.mkdir(parents=True)
        offset = written = 0
        file = None
        size = 0
        while written < total or file is None:
            if file is None or size >= SEGMENT - (64 << 10):
                if file is not None:
                    file.close()
                file = (self._directory / f"{offset:020d}.log").open("wb", buffering=1 << 20)
                size = 0
            data = self._batch(offset)
            file.write(data)
            size += len(data)
            written += len(data)
            offset += self._count
        file.close()
        (self._directory / f"{offset:020d}.log").write_bytes(self._batch(offset))
        return written

    def _batch(self, offset: int) -> bytes | bytearray:
        data = bytearray(self._template)
        view = np.frombuffer(data, dtype=np.uint8)
        chosen = self._rng.integers(0, self._keys, self._count)
        for digit in range(11):
            view[self._places + 10 - digit] = 48 + chosen // 10**digit % 10
        del view
        if self._codec:
            head = data[:61]
            data = head + bytes(compress(self._codec, bytes(data[61:])))
            batches.INT32.pack_into(data, batches.LENGTH_AT, len(data) - 12)
            batches.INT16.pack_into(data, batches.ATTRIBUTES_AT, self._codec)
        batches.INT64.pack_into(data, 0, offset)
        batches.UINT32.pack_into(data, batches.CRC_AT, batches.crc32c(memoryview(data)[batches.ATTRIBUTES_AT :]))
        return data


def kafka(directory: Path, warm: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of Kafka's cleaner."""
    arguments = [value for path in (warm, directory) for value in (path, NOW, MAP_BYTES, 86_400_000, 1 << 30, 0, 0)]
    done = subprocess.run(
        [
            kafka_peer.java(),
            "-Xmx1G",
            "-Xms1G",
            "-cp",
            f"{kafka_peer.kafka_home()}/libs/*",
            str(ROOT / "tests/interop/java/CleanLog.java"),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    lines = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
    return int(lines[-1][1]) / 1000, int(lines[-1][2]) / 1000


def ours(directory: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of our cleaner."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=1 << 30)
    log = Log.open(
        RealDisk(), str(directory), topic="t", partition=0, config=config, now_ms=NOW, had_clean_shutdown=True
    )
    log.update_high_watermark(log.log_end_offset)
    wall, cpu = time.perf_counter(), time.process_time()
    first = 0
    while first < log.active_segment.base_offset:
        target = choice.cleanable(facts_of(log), first, NOW)
        job = Cleaning(log, target, lambda: OffsetMap(MAP_BYTES, secret=bytes(16)), now_ms=NOW)
        while not job.done:
            job.advance(STEP_BYTES)
            if job.ready is not None:
                job.swap()
        first = job.end_offset
    result = time.perf_counter() - wall, time.process_time() - cpu
    log.close()
    return result


def main() -> None:
    bench = Bench("compaction", rounds=3)
    quick = bench.options.quick
    load_kernels()
    total = (1 << 30) // (8 if quick else 1)
    for name, value, keys, codec, share, wall_ratio in (
        ("1 KiB values, 200 k keys", 1024, 200_000, 0, 1, 1.5),
        ("100 B values, 2 M keys", 100, 2_000_000, 0, 1, 2.0),
        ("lz4, 1 KiB values, 200 k keys", 1024, 200_000, 3, 4, 1.0),
        ("zstd, 1 KiB values, 200 k keys", 1024, 200_000, 4, 4, 1.0),
    ):
        if not bench.wants(name):
            continue
        with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as place:
            home = Path(place)
            source = home / "source" / "t-0"
            size = Writer(source, value=value, keys=keys, codec=codec, seed=1).write(total // share)
            warm_source = home / "warm" / "t-0"
            Writer(warm_source, value=value, keys=keys, codec=codec, seed=2).write(64 << 20)
            figures: dict[str, list[tuple[float, float]]] = {"ours": [], "kafka": []}
            for number in range(1 if quick else 3):
                for who in ("ours", "kafka"):
                    target = home / f"{who}-{number}" / "t-0"
                    shutil.copytree(source, target)
                    warm = home / f"{who}-{number}-warm" / "t-0"
                    shutil.copytree(warm_source, warm)
                    if who == "ours":
                        ours(warm)
                        figures[who].append(ours(target))
                    elif kafka_peer.kafka_home() is not None:
                        figures[who].append(kafka(target, warm))
                    shutil.rmtree(target.parent)
                    shutil.rmtree(warm.parent)
            wall, cpu = sorted(figures["ours"])[len(figures["ours"]) // 2]
            bench.value(f"{name}: ours", size / wall / 1e6, "MB/s")
            bench.value(f"{name}: ours, CPU", cpu / size * 1e9, "s/GB")
            if figures["kafka"]:
                other, other_cpu = sorted(figures["kafka"])[len(figures["kafka"]) // 2]
                bench.value(f"{name}: Kafka", size / other / 1e6, "MB/s")
                bench.value(f"{name}: Kafka, CPU", other_cpu / size * 1e9, "s/GB")
                bench.value(f"{name}: times Kafka's rate", other / wall, "x", at_least=wall_ratio)
                bench.value(f"{name}: times Kafka's CPU", cpu / other_cpu, "x", at_most=1.0)
    bench.finish()


if __name__ == "__main__":
    main()
