"""Log management at work: ten thousand partitions, a cleaning's memory, producers beside a cleaner.

    python -m bench.macro.bench_log_management [--quick] [--only partitions]

`partitions` makes 10,000 of them, stops cleanly, and times the next start and the background's CPU over a minute (with
--quick 1,000 and ten seconds).  `memory` cleans 1 GiB in a process of its own and compares its greatest size with that
before.  `beside a cleaner` measures produce round trips of one connection without and with a cleaner at work on another
topic of 1 GiB (with --quick an eighth).  The kernels are loaded before it begins: that takes half a second of the
interpreter, once in a broker's life, and who produces in it waits a few milliseconds.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

# ruff: noqa: E402
from bench._run import Bench
from bench.macro import raw
from bench.macro.bench_compaction import MAP_BYTES, Writer, ours
from bench.macro.bench_produce_raw import request
from bench.macro.side import percentile

from stratalog.records.batch import BatchBuilder
from stratalog.records.kernels import load_kernels

MIB = 1 << 20


@contextlib.contextmanager
def served(directory: Path, *options: str) -> Iterator[tuple[float, raw.Peer]]:
    """A broker on a directory: the seconds until it serves, and the broker."""
    command = [sys.executable, "-m", "stratalog.cli.__main__", "serve", "-q", "--port", "0", "--data", str(directory)]
    for option in options:
        command += ["-o", option]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "serves on" not in line:
            raise RuntimeError(f"the broker did not start: {line}")
        port = int(line.split(" serves on ")[1].split(",")[0].rsplit(":", 1)[1])
        raw.connect(port).close()
        yield time.perf_counter() - began, raw.Peer("stratalog", port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def partitions(bench: Bench, home: Path) -> None:
    count = 1_000 if bench.options.quick else 10_000
    with served(home / "data") as (_, peer):
        for number in range(count // 500):
            raw.create_topic(peer.port, f"many-{number}", 500)
    with served(home / "data", "log.initial.task.delay.ms=1000") as (seconds, peer):
        bench.value(f"{count:,} partitions: start after a clean stop", seconds, "s", at_most=10.0)
        time.sleep(5.0)
        window = 10.0 if bench.options.quick else 60.0
        before, began = peer.cpu(), time.perf_counter()
        time.sleep(window)
        share = (peer.cpu() - before) / (time.perf_counter() - began) * 100
        bench.value(f"{count:,} partitions: background", share, "% of a core", at_most=2.0)
        bench.value(f"{count:,} partitions: memory", peer.rss() / MIB, "MiB")


def memory(bench: Bench, home: Path) -> None:
    total = (1 << 30) // (8 if bench.options.quick else 1)
    Writer(home / "warm" / "t-0", value=1024, keys=1_000, codec=0, seed=2).write(8 << 20)
    Writer(home / "t" / "t-0", value=1024, keys=200_000, codec=0, seed=1).write(total)
    done = subprocess.run(
        [sys.executable, "-m", "bench.macro.bench_log_management", "--clean", str(home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    grown = float(done.stdout.split()[-1]) / MIB
    limit = MAP_BYTES / MIB + 64
    bench.value("memory that a clean adds, map included", grown, "MiB", at_most=limit)


def clean(home: Path) -> None:
    """In a process of its own: print by how much its greatest size grew.  The warm-up has loaded the kernels, and the
    map of 128 MiB with them; what is given back in between counts as not there."""
    load_kernels()
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    ours(home / "t" / "t-0")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)


def latencies(peer: raw.Peer, topic: str, seconds: float) -> list[float]:
    """Microseconds of one produce request after the other."""
    builder = BatchBuilder()
    for number in range(15):
        builder.append(int(time.time() * 1000), b"k%d" % number, bytes(1000))
    frame = request(topic, 1, bytes(builder.build()))
    found: list[float] = []
    with contextlib.closing(raw.connect(peer.port)) as sock:
        assert isinstance(sock, socket.socket)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            sock.sendall(frame)
            raw.receive(sock)
            found.append((time.perf_counter() - began) * 1e6)
            time.sleep(0.0005)
    return found


def _load_kernels(peer: raw.Peer, topic: str) -> None:
    """Compressed batches: with them a broker loads the compiled kernels, once in its life and for half a second."""
    builder = BatchBuilder(codec=3)
    for _ in range(2000):
        builder.append(int(time.time() * 1000), None, b"word " * 4)
    frame = request(topic, 1, bytes(builder.build()))
    with contextlib.closing(raw.connect(peer.port)) as sock:
        for _ in range(50):
            sock.sendall(frame)
            raw.receive(sock)


def beside(bench: Bench, home: Path) -> None:
    total = (1 << 30) // (8 if bench.options.quick else 1)
    seconds = 1.0 if bench.options.quick else 5.0
    common = ("log.cleanup.policy=compact", "log.segment.bytes=1073741824", "num.partitions=1")
    data = home / "data"
    with served(data, *common, "log.cleaner.enable=false") as (_, peer):
        raw.create_topic(peer.port, "dirty", 1)
        raw.create_topic(peer.port, "live", 1)
    source = home / "source"
    Writer(source, value=1024, keys=200_000, codec=0, seed=1).write(total)
    for path in (data / "dirty-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        shutil.move(path, data / "dirty-0" / path.name)
    with served(data, *common, "log.cleaner.enable=false") as (_, peer):
        latencies(peer, "live", 0.5)
        alone = latencies(peer, "live", seconds)
    delay = 4.0
    cleaning = (
        "log.cleaner.backoff.ms=100",
        f"log.initial.task.delay.ms={delay * 1000:.0f}",
        "log.cleaner.min.cleanable.ratio=0.01",
    )
    checkpoint = data / "cleaner-offset-checkpoint"
    along: list[float] = []
    with served(data, *common, *cleaning) as (_, peer):
        began = time.perf_counter()
        _load_kernels(peer, "live")
        time.sleep(max(began + delay - time.perf_counter(), 0.0))
        cleaned = False
        while not cleaned and time.perf_counter() < began + 60.0:
            along += latencies(peer, "live", 0.05)
            cleaned = checkpoint.exists() and "dirty 0 " in checkpoint.read_text()
    bench.value("beside a cleaner: it has cleaned", float(cleaned), "", at_least=1.0)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        one, other = percentile(alone, share), percentile(along, share)
        bench.value(f"produce {name}, alone", one, "\u00b5s")
        bench.value(f"produce {name}, beside a cleaner", other, "\u00b5s")
        bench.value(f"produce {name}, ratio", other / one, "x", at_most=2.0 if name == "p99" else None)


def main() -> None:
    if sys.argv[1:2] == ["--clean"]:
        clean(Path(sys.argv[2]))
        return
    bench = Bench("log_management", rounds=1)
    for name, case in (("partitions", partitions), ("memory", memory), ("beside a cleaner", beside)):
        if bench.wants(name):
            with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as place:
                case(bench, Path(place))
    bench.finish()


if __name__ == "__main__":
    main()
