"""Compaction on Spark, `local[2]`, beside the single-process cleaner: the same dirty log, the same result.

    python -m bench.spark.bench_compact [--quick]

Each turn cleans a copy of the log with the one and with the other; a smaller log goes first, so that both are warm and
Spark has its workers.  Times are wall times from the call to the swap; MB/s count the dirty bytes once.  The last case
gives each task a map of a tenth of what the keys need: it has to finish, with the same files.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

# ruff: noqa: E402
from bench._run import Bench
from bench.macro.bench_compaction import NOW, Writer, ours
from stratalog.records.kernels import load_kernels
from stratalog.spark import session
from stratalog.spark.jobs.compact import MAP_BYTES, compact

CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 30)}
SLOT_BYTES = 24
"""Of a key in the offset map."""


def on_spark(directory: Path, spark: object, map_bytes: int) -> float:
    """Wall seconds of the job."""
    begun = time.perf_counter()
    compact(directory, spark, config=CONFIG, map_bytes=map_bytes, now_ms=NOW)
    return time.perf_counter() - begun


def logs_of(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(".log"))


def assert_same(one: Path, other: Path) -> None:
    names = logs_of(one)
    assert names == logs_of(other), (names, logs_of(other))
    for name in names:
        assert filecmp.cmp(one / name, other / name, shallow=False), f"{name} differs"


def main() -> None:
    bench = Bench("spark_compact", rounds=3)
    quick = bench.options.quick
    load_kernels()
    total = (1 << 30) // (8 if quick else 1)
    spark = session("local[2]", config={"spark.log.level": "ERROR", "spark.driver.memory": "2g"})
    for name, value, keys, share, at_least in (
        ("100 B values, 200 k keys", 100, 200_000, 1, 0.8),
        ("1 KiB values, 200 k keys", 1024, 200_000, 1, 0.8),
        ("100 B values, 2 M keys, a tenth of the map", 100, 2_000_000, 10, None),
    ):
        if not bench.wants(name):
            continue
        map_bytes = keys * SLOT_BYTES // share if share > 1 else MAP_BYTES
        with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as place:
            home = Path(place)
            source, warm = home / "source" / "t-0", home / "warm" / "t-0"
            size = Writer(source, value=value, keys=keys, codec=0, seed=1).write(total)
            Writer(warm, value=value, keys=keys, codec=0, seed=2).write(64 << 20)
            seconds: dict[str, list[float]] = {"process": [], "spark": []}
            turns = 1 if quick or share > 1 else 3
            for turn in range(turns + 1):  # the first one warms
                one, other = home / f"one-{turn}" / "t-0", home / f"other-{turn}" / "t-0"
                for target in (one, other):
                    shutil.copytree(warm if turn == 0 else source, target)
                times = {"process": ours(one)[0], "spark": on_spark(other, spark, map_bytes)}
                assert_same(one, other)
                if turn:
                    for who, taken in times.items():
                        seconds[who].append(taken)
                shutil.rmtree(one.parent)
                shutil.rmtree(other.parent)
            process, job = (sorted(seconds[who])[turns // 2] for who in ("process", "spark"))
            bench.value(f"{name}: one process", size / process / 1e6, "MB/s")
            bench.value(f"{name}: Spark, local[2]", size / job / 1e6, "MB/s")
            bench.value(f"{name}: times the process's rate", process / job, "x", at_least=at_least)
    spark.stop()
    bench.finish()


if __name__ == "__main__":
    main()
