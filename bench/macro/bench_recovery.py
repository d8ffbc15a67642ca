"""Loading after a kill, beside Kafka on a copy of the same bytes: one partition of 2 GB, and 1,000 of 2 MiB.

    python -m bench.macro.bench_recovery [--quick] [--ours] [--only many]

Ours is a fresh process that loads the directory as the broker does, on as many threads as there are cores, with the
import of the kernels.  Kafka's is what its `LogManager` says that it took, with as many recovery threads as cores and
its clean-stop marker and recovery points gone; its JVM's start is not in it.  Warm page cache for both.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.macro.side import OURS, THEIRS, Side
from tools.kafka_peer import free_port, kafka_home

from stratalog.base.types import Millis, Uuid
from stratalog.records.batch import BatchBuilder
from stratalog.server.disk import RealDisk
from stratalog.storage import checkpoints
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log

NOW = Millis(1_700_000_000_000)
RECORDS = 16
BATCHES = 64
"""Different ones, again and again: a replica's CRC does not cover offset and epoch."""


def fill(data: str, partitions: int, size: int) -> int:
    """A data directory as a killed broker leaves it."""
    value = os.urandom(1000)
    raws = []
    for i in range(BATCHES):
        builder = BatchBuilder(leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=i * RECORDS)
        for j in range(RECORDS):
            builder.append(NOW + j, None, value)
        raws.append(builder.build())
    os.makedirs(data)
    total = 0
    for partition in range(partitions):
        log = Log.open(
            RealDisk(),
            f"{data}/t-{partition}",
            topic="t",
            partition=partition,
            config=LogConfig(),
            now_ms=NOW,
            topic_id=Uuid(b"\7" * 16),
        )
        written = 0
        while written < size:
            base = log.log_end_offset
            fetch = bytearray()
            for i, raw in enumerate(raws):
                raw[0:8] = (base + i * RECORDS).to_bytes(8, "big")
                fetch += raw
            info = log.append_as_follower(fetch, 0, NOW)
            assert info is not None
            written += info.size
        log.close(clean=False)
        total += written
    checkpoints.write_meta_properties(
        RealDisk(), data, cluster_id=str(Uuid(b"\3" * 16)), node_id=1, directory_id=Uuid(b"\4" * 16)
    )
    return total


class _NoPool:
    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        raise AssertionError(f"{name}: nothing waits for a pool while logs are loaded")


def load(data: str) -> float:
    """What `server.log_service` does at the start of a broker: the seconds that it takes."""
    import random

    from stratalog.logs.registry import LogRegistry

    def parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as executor:
            return list(executor.map(work, items))

    logs: Any = LogRegistry(
        RealDisk(),
        _NoPool(),  # type: ignore[arg-type]
        random.Random(1),  # type: ignore[arg-type]
        [data],
        config_of=lambda topic: LogConfig(),
    )
    logs.open()
    began = time.perf_counter()
    logs.load(NOW, parallel=parallel)
    spent = time.perf_counter() - began
    assert all(log.report.bytes_truncated == 0 and log.report.segments_recovered for _, log in logs.items())
    return spent


def emptied(directory: Path) -> None:
    """Give back the room of a copy that was loaded.  Its files stay until the end: ext4 does not use the numbers of
    files that were deleted in the last minutes, and looks at each of them whenever somebody makes a file."""
    for log in directory.rglob("*.log"):
        os.truncate(log, 0)


def ours(data: str, place: str, turn: int) -> float:
    copy = f"{place}/ours-{turn}"
    subprocess.run(["cp", "-r", data, copy], check=True)  # keeps holes
    done = subprocess.run(
        [sys.executable, "-m", "bench.macro.bench_recovery", "--load", copy],
        check=True,
        capture_output=True,
        text=True,
    )
    emptied(Path(copy))
    return float(done.stdout)


def theirs(data: str, place: str, turn: int) -> float:
    home = kafka_home()
    work = Path(place) / f"theirs-{turn}"
    started = subprocess.run(
        [
            *(str(home / "bin" / "open-foreign"), data, str(free_port(2)), str(work)),
            f"num.recovery.threads.per.data.dir={os.cpu_count()}",
        ],
        env={**os.environ, "UNCLEAN": "1", "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G"},
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    pid = (work / "pid").read_text().strip()
    try:
        said = re.search(r"Loaded \d+ logs in (\d+)ms", (work / "server.log").read_text(errors="replace"))
        if started.returncode or said is None:
            raise RuntimeError(f"the Kafka broker did not load its logs: {started.stderr[-2000:]}")
        return int(said[1]) / 1000
    finally:
        subprocess.run([str(home / "bin" / "stop"), pid, "KILL"], check=False, capture_output=True)
        emptied(work)


def main() -> None:
    if "--load" in sys.argv:
        print(load(sys.argv[sys.argv.index("--load") + 1]))
        return
    side = Side("recovery", description=__doc__, rounds=3)
    cases = {
        "one partition of 2 GB": (1, 2_000_000_000, 1.5),
        "many: 1,000 partitions of 2 MiB": (1000, 2 << 20, 4.0),
    }
    for case, (partitions, size, at_least) in cases.items():
        if not side.wants(case):
            continue
        with tempfile.TemporaryDirectory(prefix="bench-recovery-") as place:
            total = fill(f"{place}/data", partitions, size - (1 << 20))
            for turn in range(side.rounds):
                side.progress(f"{case}, {turn + 1} of {side.rounds}")
                side.sample(case, "MB/s", OURS, total / 1e6 / ours(f"{place}/data", place, turn))
                if not side.options.ours and kafka_home() is not None:
                    side.sample(case, "MB/s", THEIRS, total / 1e6 / theirs(f"{place}/data", place, turn))
        side.target(case, "MB/s", at_least=at_least)
    side.finish()


if __name__ == "__main__":
    main()
