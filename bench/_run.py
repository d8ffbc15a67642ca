"""What every bench shares: side-by-side timing in one run, the table, `--json`, and a line in `history.jsonl`.

    from bench._run import Bench

    bench = Bench("protocol")
    bench.compare("metadata, read", {"stratalog": ours, "kafka-python": theirs}, at_least={"kafka-python": 3.0})
    bench.value("import stratalog", 41.0, "ms", at_most=60)
    bench.finish()

Run a bench as `python -m bench.micro.bench_protocol` from the repository's root.  The cases of one comparison run
in turn, a few milliseconds each, round after round, so that a slow moment of the machine hits all of them; what counts
is the median of each case's CPU time, and their ratio in this run.  `--quick` runs fewer rounds, `--json` prints one
object in place of the tables, `--no-history` leaves the history alone, `--only TEXT` runs what has TEXT in its name.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).with_name("history.jsonl")
ROUND_SECONDS = 0.004
"""How long one case runs in one round: long against the clock's grain, short against other people's work."""


@dataclass(slots=True)
class Timing:
    """Seconds for one call: medians over the rounds."""

    cpu: float
    wall: float
    calls: int


@dataclass(slots=True)
class Row:
    """One line of the report."""

    name: str
    value: float
    unit: str
    wall: float | None = None
    ratio: float | None = None
    """How many times the first case's cost this one is: above 1 means that the first one is faster."""
    target: str = ""
    holds: bool | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def time_calls(function: Callable[[], object], calls: int) -> tuple[float, float]:
    """CPU and wall seconds of `calls` calls, together."""
    indices = range(calls)
    wall = time.perf_counter()
    cpu = time.process_time()
    for _ in indices:
        function()
    cpu = time.process_time() - cpu
    return cpu, time.perf_counter() - wall


def interleaved(
    cases: Mapping[str, Callable[[], object]], rounds: int, round_seconds: float = ROUND_SECONDS
) -> dict[str, Timing]:
    """The cases in turn, `rounds` times, without the collector's pauses in between."""
    calls = {}
    for name, function in cases.items():
        n = 1
        while True:
            cpu, _ = time_calls(function, n)
            if cpu >= round_seconds or n >= 1_000_000:
                break
            n = min(1_000_000, max(n * 2, int(n * round_seconds / cpu) if cpu > 0 else n * 8))
        calls[name] = n
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, function in cases.items():
                samples[name].append(time_calls(function, calls[name]))
            gc.collect()
    finally:
        if enabled:
            gc.enable()
    return {
        name: Timing(
            statistics.median(cpu for cpu, _ in taken) / calls[name],
            statistics.median(wall for _, wall in taken) / calls[name],
            calls[name],
        )
        for name, taken in samples.items()
    }


class Bench:
    """Collects rows, prints them, keeps them."""

    def __init__(self, name: str, *, rounds: int = 25, argv: list[str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=f"bench: {name}")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--quick", action="store_true", help="fewer rounds")
        parser.add_argument("--no-history", action="store_true", help=f"do not append to {HISTORY.name}")
        parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
        parser.add_argument("--only", default="", metavar="TEXT", help="only what has TEXT in its name")
        self.options = parser.parse_args(argv)
        self.name = name
        self.rounds = 7 if self.options.quick else rounds
        self.rows: list[Row] = []

    def wants(self, name: str) -> bool:
        return str(self.options.only) in name

    def compare(
        self,
        name: str,
        cases: Mapping[str, Callable[[], object]],
        *,
        at_least: Mapping[str, float] | None = None,
        bytes_per_call: int | None = None,
        round_seconds: float = ROUND_SECONDS,
    ) -> dict[str, Timing]:
        """Time the cases side by side.  The first is ours; `at_least` says how many times another's cost must be
        ours (3.0: we are three times as fast; 0.33: within three times of it)."""
        if not self.wants(name):
            return {}
        timings = interleaved(cases, self.rounds, round_seconds)
        ours = next(iter(timings.values()))
        for index, (label, timing) in enumerate(timings.items()):
            row = Row(f"{name} · {label}", timing.cpu * 1e6, "µs", timing.wall * 1e6)
            if bytes_per_call is not None:
                row.extra["GB/s"] = round(bytes_per_call / timing.cpu / 1e9, 3)
            if index:
                row.ratio = timing.cpu / ours.cpu
                wanted = (at_least or {}).get(label)
                if wanted is not None:
                    row.target = f">= {wanted:.3g} x"
                    row.holds = row.ratio >= wanted
            self._add(row)
        return timings

    def value(
        self, name: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """A figure that was measured in another way."""
        row = Row(name, value, unit)
        if at_most is not None:
            row.target, row.holds = f"<= {at_most:g}", value <= at_most
        if at_least is not None:
            row.target, row.holds = f">= {at_least:g}", value >= at_least
        self._add(row)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        if not self.options.json:
            if len(self.rows) == 1:
                print(f"{self.name}: medians, CPU time for one call; a ratio above 1: the first of the group is faster")
            ratio = f"{row.ratio:8.2f} x" if row.ratio is not None else " " * 10
            holds = {None: "", True: "holds", False: "MISSED"}[row.holds]
            extra = "  ".join(f"{value} {key}" for key, value in row.extra.items())
            print(
                f"  {row.name:<58} {row.value:>12.3f} {row.unit:<5}{ratio}  {row.target:<9} {holds}  {extra}".rstrip(),
                flush=True,
            )

    def finish(self) -> None:
        """Print what is left to print, append to the history, and end the process when `--strict` asks for it."""
        record = {
            "bench": self.name,
            "commit": _commit(),
            "when": int(time.time()),
            "machine": machine(),
            "rounds": self.rounds,
            "rows": [
                {
                    key: value
                    for key, value in (
                        ("name", row.name),
                        ("value", _short(row.value)),
                        ("unit", row.unit),
                        ("wall", None if row.wall is None else _short(row.wall)),
                        ("ratio", None if row.ratio is None else _short(row.ratio)),
                        ("target", row.target or None),
                        ("holds", row.holds),
                        *row.extra.items(),
                    )
                    if value is not None
                }
                for row in self.rows
            ],
        }
        if self.options.json:
            print(json.dumps(record, indent=1))
        if not (self.options.no_history or self.options.quick or self.options.only):
            with HISTORY.open("a") as history:
                history.write(json.dumps(record, separators=(",", ":")) + "\n")
        if self.options.strict and any(row.holds is False for row in self.rows):
            sys.exit(1)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def machine() -> str:
    """What the figures were measured on, in one line."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass  # not a Linux: the architecture has to do
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _commit() -> str:
    root = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
