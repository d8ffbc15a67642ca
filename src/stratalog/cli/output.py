"""How commands print: tables for people, JSON for programs, progress on standard error.

Colour and progress bars only go to terminals; `NO_COLOR` is honoured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, TextIO

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("STRATALOG_BOOTSTRAP", "127.0.0.1:9092")
    parser.add_argument(
        "-b",
        "--bootstrap",
        default=default,
        metavar="HOST:PORT",
        help=f"a broker to ask first (default {default}; the environment's STRATALOG_BOOTSTRAP changes it)",
    )


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def table(rows: Iterable[Sequence[object]], header: Sequence[str], *, right: Iterable[int] = ()) -> None:
    """Columns wide enough for what is in them; those in `right` are flushed right."""
    right = set(right)
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max([len(title), *(len(row[i]) for row in cells)]) if cells else len(title) for i, title in enumerate(header)
    ]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )

    print(bold(line([title.upper() for title in header])).rstrip())
    for row in cells:
        print(line(row).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def printable(text: str) -> str:
    """Control characters escaped: what came from a record or a client must not move the terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if _colours(sys.stdout) else text


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def size(count: float) -> str:
    """1536 is `1.5 KiB`."""
    for unit in _UNITS:
        if abs(count) < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes everything")


def duration(seconds: float) -> str:
    """90061 is `1 d 1 h`, 61 is `1 min 1 s`, 0.5 is `0.5 s`."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def width(terminal: TextIO) -> int:
    """How long a line that is written over again may be.  Asks the terminal itself: standard output, which `shutil`
    asks, is often a file while the bar is shown."""
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except OSError:
        columns = 0
    return (columns or shutil.get_terminal_size().columns) - 1


class Progress:
    """A bar on standard error for what takes longer than a second: done, rate, remaining time.

    Shows nothing for the first second, nothing where standard error is no terminal that can write a line over again
    (then one line at the end, when it took long), and cleans up after itself.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        unit: Callable[[float], str] = size,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._start = self._last = clock()
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False
        self.done: float = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, count: int) -> None:
        self.update(self.done + count)

    def update(self, done: float, total: int | None = None) -> None:
        """So much is done; cheap enough to be called often."""
        self.done = done
        if total is not None:
            self._total = total
        now = self._clock()
        if now - self._last >= 0.1 and now - self._start >= 1.0:
            self._last = now
            if self._live:
                self._stream.write("\r\033[K" + self.line(now)[: width(self._stream)])
                self._stream.flush()
                self._shown = True

    def line(self, now: float) -> str:
        """What the bar says."""
        elapsed = max(now - self._start, 1e-9)
        rate = self.done / elapsed
        text = f"{self._unit(self.done)}"
        if self._total:
            part = min(self.done / self._total, 1.0)
            filled = int(part * 24)
            bar = "#" * filled + "." * (24 - filled)
            text = f"[{bar}] {part:4.0%}  {text} of {self._unit(self._total)}"
        text += f", {self._unit(rate)}/s"
        if self._total and 0 < self.done < self._total:
            text += f", {duration((self._total - self.done) / rate)} left"
        return f"{self._what}  {text}"

    def close(self) -> None:
        now = self._clock()
        if self._shown:
            self._stream.write("\r\033[K")
            self._stream.flush()
        elif not self._live and now - self._start >= 2.0:
            self._stream.write(self.line(now) + "\n")


def count(value: float) -> str:
    """A plain number for bars that count things: 12,345."""
    return f"{value:,.0f}"
