"""Two brokers side by side: samples by case, figure and broker; medians, ratios and targets; a line in the history.

    side = Side("produce_raw", description=__doc__, rounds=3)
    with side.peers() as peers:
        side.sample("16 KiB, 1 connection", "requests/s", peer.name, 41000.0)
    side.target("16 KiB, 1 connection", "requests/s", at_least=3.0)
    side.finish()

A target is a ratio of the two medians of this run, ours over Kafka's; or, with `ours=True`, our own figure.  Where
Kafka is not to be had, or with `--ours`, our figures are printed alone and ratios hold nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench._run import HISTORY, _commit, machine
from bench.macro import raw

OURS, THEIRS = "stratalog", "kafka"


@dataclass(slots=True)
class Target:
    """What is asked of a figure."""

    at_least: float | None = None
    at_most: float | None = None
    ours: bool = False

    def text(self) -> str:
        sign, value = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        return f"{sign} {value:.3g}" + ("" if self.ours else " x")

    def holds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class Side:
    """One bench."""

    def __init__(self, name: str, *, description: str | None, rounds: int, argv: list[str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--quick", action="store_true", help="one round, shorter")
        parser.add_argument("--ours", action="store_true", help="without Kafka")
        parser.add_argument("--rounds", type=int, default=rounds)
        parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--no-history", action="store_true", help=f"do not append to {HISTORY.name}")
        parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
        self.options = parser.parse_args(argv)
        self.name = name
        self.quick = bool(self.options.quick)
        self.rounds = 1 if self.quick else int(self.options.rounds)
        self._samples: dict[tuple[str, str], dict[str, list[float]]] = {}
        self._targets: dict[tuple[str, str], Target] = {}
        self._began = time.monotonic()

    def wants(self, case: str) -> bool:
        return str(self.options.only) in case

    @contextlib.contextmanager
    def peers(self, *settings: str) -> Iterator[list[raw.Peer]]:
        """Both brokers, running."""
        with contextlib.ExitStack() as stack:
            found = [stack.enter_context(raw.ours(settings))]
            if not self.options.ours:
                other = stack.enter_context(raw.kafka(settings))
                if other is not None:
                    found.append(other)
            yield found

    def progress(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{self.name}: {text}", end="", file=sys.stderr, flush=True)

    def sample(self, case: str, figure: str, peer: str, value: float) -> None:
        self._samples.setdefault((case, figure), {}).setdefault(peer, []).append(value)

    def target(
        self,
        case: str,
        figure: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        ours: bool = False,
    ) -> None:
        self._targets[case, figure] = Target(at_least, at_most, ours)

    def rows(self) -> list[dict[str, Any]]:
        """One for each case and figure: medians, ratio, target."""
        rows = []
        for (case, figure), by_peer in self._samples.items():
            row: dict[str, Any] = {"case": case, "figure": figure}
            for peer, values in by_peer.items():
                row[peer] = _short(statistics.median(values))
            if row.get(THEIRS):
                row["ratio"] = _short(row[OURS] / row[THEIRS])
            target = self._targets.get((case, figure))
            if target is not None:
                row["target"] = target.text()
                measured = row.get(OURS) if target.ours else row.get("ratio")
                if measured is not None:
                    row["holds"] = target.holds(measured)
            rows.append(row)
        return rows

    def finish(self) -> None:
        """Print, keep, and end the process when `--strict` asks for it."""
        rows = self.rows()
        options = self.options
        record = {
            "bench": self.name,
            "commit": _commit(),
            "when": int(time.time()),
            "machine": machine(),
            "rounds": self.rounds,
            "seconds": round(time.monotonic() - self._began),
            "rows": rows,
        }
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        if options.json:
            print(json.dumps(record, indent=1))
        else:
            self._table(rows)
        if not (options.no_history or options.quick or options.only or options.ours):
            with HISTORY.open("a") as history:
                history.write(json.dumps(record, separators=(",", ":")) + "\n")
        if options.strict and any(row.get("holds") is False for row in rows):
            sys.exit(1)

    def _table(self, rows: list[dict[str, Any]]) -> None:
        print(f"{self.name}: medians of {self.rounds} rounds, {time.monotonic() - self._began:.0f} s in all")
        print(f"  {'':<62} {OURS:>11} {THEIRS:>11} {'ratio':>9}  target")
        for row in rows:
            verdict = {True: "holds", False: "MISSED", None: ""}[row.get("holds")]
            ratio = f"{_cell(row.get('ratio'), 7)} {'x' if 'ratio' in row else ' '}"
            line = (
                f"  {row['case'] + ' · ' + row['figure']:<62} {_cell(row.get(OURS))} {_cell(row.get(THEIRS))} "
                f"{ratio}  {row.get('target', ''):<9} {verdict}"
            )
            print(line.rstrip())
        sys.stdout.flush()


def _cell(value: float | None, width: int = 11) -> str:
    return " " * width if value is None else f"{value:>{width},.4g}" if value < 1000 else f"{value:>{width},.0f}"


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
