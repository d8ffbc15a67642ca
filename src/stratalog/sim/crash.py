"""Crashes: every image of a disk that a power cut could have left, and what must hold on each.

A workload runs once on a `SimDisk`; its journal is the list of crash points.  `Crashes` walks the journal and knows at
each point what was durable and what was pending; `image` builds one of the disks that may be found after the cut:

    none                nothing that was not synced (the page cache is gone)
    all                 everything, as a killed process leaves it
    prefix              the first k of the pending operations
    subset-512, -4096   of the pending bytes, some sectors or pages came, in any order
    torn-op             all, and the last write only up to a byte of it
    torn-seq            all but one of several writes
    zero-tail           files grew, their new bytes are zeros
    garbage-tail        files grew, their new bytes are nonsense, or an old block of the same file
    rename-before-data  names are as they should be, bytes are not
    dirent-lost         bytes are as they should be, names are not
    unlink-not-durable  a deleted file comes back

Names of one directory become durable in order, as a journaling file system has it; bytes in any order.

`explore` builds the images of every point, lets the program recover on each, and calls the oracle; for some it cuts the
power again during the recovery (depth 2) and asks once more.  `Report` says how many images, which variants, and each
violation with what it takes to build the very image again.
"""

from __future__ import annotations

import os
import random
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from stratalog.sim.disk import (
    CREATE,
    DROP,
    MKDIR,
    ROOT,
    SECTOR,
    SYNC,
    SYNC_DIR,
    TRUNCATE,
    UNLINK,
    WRITE,
    Directory,
    Entry,
    Inode,
    SimDisk,
)

VARIANTS: Final = (
    "none",
    "all",
    "prefix",
    "subset-512",
    "subset-4096",
    "torn-op",
    "torn-seq",
    "zero-tail",
    "garbage-tail",
    "rename-before-data",
    "dirent-lost",
    "unlink-not-durable",
)
S = TypeVar("S")
Names = dict[int, dict[str, int]]
_KINDS = ("create", "rename", "unlink", "mkdir", "rmdir", "write", "truncate", "sync", "sync-dir", "drop")


class Image:
    """What a crash left: the files and directories that can be reached, by inode.  Makes as many disks as wanted."""

    __slots__ = ("directories", "files", "signature")

    def __init__(self, directories: Names, files: dict[int, bytes]) -> None:
        self.directories = directories
        self.files = files
        self.signature = hash(
            tuple(
                (number, name, child, files.get(child))
                for number, names in sorted(directories.items())
                for name, child in sorted(names.items())
            )
        )

    def disk(self, clock: Callable[[], int] | None = None) -> SimDisk:
        """A disk with these contents, all of them durable, and an empty journal."""
        disk = SimDisk(clock=clock)
        made: dict[int, Inode | Directory] = {ROOT: disk.root}
        now = disk._now()
        for number in self.directories:
            if number != ROOT:
                made[number] = Directory(number)
        for number, data in self.files.items():
            made[number] = Inode(number, data, now)
        for number, names in self.directories.items():
            directory = made[number]
            assert isinstance(directory, Directory)
            for name, child in names.items():
                directory.entries[name] = made[child]
        disk._numbers = max(made)
        disk.base = self
        return disk


class Crashes:
    """The disk at each point of a journal, seen by what has reached the platter."""

    def __init__(self, disk: SimDisk) -> None:
        self._journal = disk.journal
        base = disk.base
        self._durable: dict[int, bytes] = dict(base.files) if base is not None else {}
        self._names: Names = (
            {number: dict(names) for number, names in base.directories.items()} if base is not None else {ROOT: {}}
        )
        self._pending: dict[int, list[tuple[int, Entry]]] = {}
        self._pending_names: list[tuple[int, Entry]] = []
        self._whole: dict[int, bytes] = {}
        self.point = 0

    def advance(self, point: int) -> None:
        """Go on to where `point` entries of the journal are done."""
        while self.point < point:
            self._take(self._journal[self.point])
            self.point += 1

    def _take(self, entry: Entry) -> None:
        kind, number = entry.kind, entry.inode
        if kind in (WRITE, TRUNCATE):
            self._pending.setdefault(number, []).append((self.point, entry))
            self._whole.pop(number, None)
        elif kind == SYNC:
            self._durable[number] = self._full(number)
            self._pending.pop(number, None)
            self._whole.pop(number, None)
        elif kind == DROP:
            self._pending.pop(number, None)
            self._whole.pop(number, None)
        elif kind == SYNC_DIR:
            left = []
            for row in self._pending_names:
                if any(directory == number for directory, _, _ in row[1].changes):
                    _rename(self._names, row[1])
                else:
                    left.append(row)
            self._pending_names = left
        else:
            self._pending_names.append((self.point, entry))
            if kind == MKDIR:
                self._names.setdefault(number, {})

    def _full(self, number: int) -> bytes:
        """The file with all that is pending."""
        pending = self._pending.get(number)
        if not pending:
            return self._durable.get(number, b"")
        data = self._whole.get(number)
        if data is None:
            data = self._whole[number] = _applied(self._durable.get(number, b""), pending)
        return data

    # --- variants -----------------------------------------------------------------------------------------------------
    def image(self, variant: str, rng: random.Random) -> Image | None:
        """One image of this point; None where the variant makes no difference here."""
        names: Iterable[tuple[int, Entry]] = self._pending_names
        pending = self._pending
        if variant == "none":
            return self._build((), lambda number: self._durable.get(number, b""))
        if variant == "all":
            return self._build(names, self._full)
        if variant == "prefix":
            order = sorted([seq for rows in pending.values() for seq, _ in rows] + [seq for seq, _ in names])
            if len(order) < 2:
                return None
            cut = order[rng.randrange(1, len(order))]
            return self._build(
                [row for row in names if row[0] < cut],
                lambda number: _applied(
                    self._durable.get(number, b""), [row for row in pending.get(number, ()) if row[0] < cut]
                ),
            )
        if variant in ("subset-512", "subset-4096"):
            if not pending:
                return None
            sector = SECTOR if variant == "subset-512" else 4096
            chance = rng.choice((0.1, 0.5, 0.9))
            some = self._pending_names[: rng.randint(0, len(self._pending_names))]
            return self._build(some, lambda number: self._subset(number, sector, chance, rng))
        if variant == "torn-op":
            writes = [row for rows in pending.values() for row in rows if row[1].kind == WRITE]
            if not writes:
                return None
            seq, entry = max(writes, key=lambda row: row[0])
            torn = entry._replace(data=entry.data[: rng.randrange(len(entry.data))]) if entry.data else entry
            return self._build(
                [row for row in names if row[0] < seq],
                lambda number: _applied(
                    self._durable.get(number, b""),
                    [(at, torn if at == seq else one) for at, one in pending.get(number, ()) if at <= seq],
                ),
            )
        if variant == "torn-seq":
            several = [rows for rows in pending.values() if sum(row[1].kind == WRITE for row in rows) > 1]
            if not several:
                return None
            writes = [row for row in rng.choice(several) if row[1].kind == WRITE]
            lost = rng.choice(writes[:-1])[0]
            return self._build(
                names,
                lambda number: _applied(
                    self._durable.get(number, b""), [row for row in pending.get(number, ()) if row[0] != lost]
                ),
            )
        if variant in ("zero-tail", "garbage-tail"):
            if not pending:
                return None
            garbage = rng if variant == "garbage-tail" else None
            return self._build(names, lambda number: self._tail(number, garbage))
        if variant == "rename-before-data":
            return self._build(names, lambda number: self._durable.get(number, b""))
        if variant == "dirent-lost":
            return self._build((), self._full)
        assert variant == "unlink-not-durable", variant
        later: set[tuple[int, str]] = set()
        kept: list[tuple[int, Entry]] = []
        for row in reversed(self._pending_names):
            touched = {(directory, name) for directory, name, _ in row[1].changes}
            if row[1].kind != UNLINK or touched & later:
                kept.append(row)
            later |= touched
        if len(kept) == len(self._pending_names):
            return None
        return self._build(reversed(kept), self._full)

    def _build(self, rows: Iterable[tuple[int, Entry]], content: Callable[[int], bytes]) -> Image:
        names: Names = {}
        for _, entry in rows:
            for directory, name, child in entry.changes:
                here = names.get(directory)
                if here is None:
                    here = names[directory] = dict(self._names.get(directory, {}))
                if child:
                    here[name] = child
                else:
                    here.pop(name, None)
        reached: Names = {}
        files: dict[int, bytes] = {}
        todo = [ROOT]
        while todo:
            number = todo.pop()
            entries = names.get(number)
            if entries is None:
                entries = self._names.get(number, {})
            reached[number] = entries
            for name in sorted(entries):
                child = entries[name]
                if child in self._names:
                    if child not in reached:
                        todo.append(child)
                elif child not in files:
                    files[child] = content(child)
        return Image({number: dict(entries) for number, entries in reached.items()}, files)

    def _subset(self, number: int, sector: int, chance: float, rng: random.Random) -> bytes:
        pending = self._pending.get(number)
        data = bytearray(self._durable.get(number, b""))
        if not pending:
            return bytes(data)
        grows = rng.random() < 0.5
        for _, entry in pending:
            if entry.kind == TRUNCATE:
                _resize(data, entry.position)
                continue
            start, end = entry.position, entry.position + len(entry.data)
            at = start
            while at < end:
                stop = min((at // sector + 1) * sector, end)
                if rng.random() < chance:
                    if stop > len(data):
                        _resize(data, stop)
                    data[at:stop] = entry.data[at - start : stop - start]
                at = stop
            if grows and end > len(data):
                _resize(data, end)
        return bytes(data)

    def _tail(self, number: int, garbage: random.Random | None) -> bytes:
        """Overwritten bytes stay old, new ones are zeros or garbage."""
        pending = self._pending.get(number)
        data = bytearray(self._durable.get(number, b""))
        if not pending:
            return bytes(data)
        for _, entry in pending:
            if entry.kind == TRUNCATE:
                _resize(data, entry.position)
                continue
            end = entry.position + len(entry.data)
            grown = end - max(len(data), entry.position)
            if grown <= 0:
                continue
            old = len(data)
            _resize(data, end)
            if garbage is None:
                continue
            if garbage.random() < 0.5 and old:
                block = bytes(data[: min(old, grown)])
                data[end - grown : end - grown + len(block)] = block
            else:
                data[end - grown : end] = garbage.randbytes(grown)
        return bytes(data)


def _applied(data: bytes, rows: Iterable[tuple[int, Entry]]) -> bytes:
    """A file's bytes after these operations; holes are zeros."""
    content = bytearray(data)
    for _, entry in rows:
        if entry.kind == TRUNCATE:
            _resize(content, entry.position)
        else:
            if entry.position > len(content):
                _resize(content, entry.position)
            content[entry.position : entry.position + len(entry.data)] = entry.data
    return bytes(content)


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _rename(names: Names, entry: Entry) -> None:
    for directory, name, child in entry.changes:
        here = names.setdefault(directory, {})
        if child:
            here[name] = child
        else:
            here.pop(name, None)


# --- exploring --------------------------------------------------------------------------------------------------------
class Recording(Generic[S]):
    """A workload that has run: its disk, and what must hold from which point of the journal on."""

    def __init__(self, name: str, disk: SimDisk, timeline: Sequence[tuple[int, S]], *, start: int = 0) -> None:
        self.name = name
        self.disk = disk
        self.timeline = sorted(timeline, key=lambda row: row[0])
        self.start = start
        """The first crash point: before it, the workload only made its world."""
        self._points = [point for point, _ in self.timeline]

    def expected(self, point: int) -> S:
        return self.timeline[bisect_right(self._points, point) - 1][1]


@dataclass(slots=True)
class Violation:
    """An image on which something did not hold."""

    workload: str
    point: int
    variant: str
    seed: str
    text: str
    inner: tuple[int, str] | None = None
    """Point and variant of the second crash, during the first recovery."""

    def __str__(self) -> str:
        inner = f", then {self.inner[1]} at {self.inner[0]} of the recovery" if self.inner else ""
        return f"{self.workload}: {self.variant} at {self.point}{inner} (seed {self.seed}): {self.text}"


@dataclass(slots=True)
class Report:
    """What an exploration did."""

    images: int = 0
    distinct: int = 0
    deep: int = 0
    points: int = 0
    variants: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.images += other.images
        self.distinct += other.distinct
        self.deep += other.deep
        self.points += other.points
        self.variants.update(other.variants)
        self.violations.extend(other.violations)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.variants.items()))
        return (
            f"{self.images} images ({self.distinct} distinct, {self.deep} of them in a recovery) at {self.points} "
            f"points, {len(self.violations)} violations; {kinds}"
        )


def explore(
    recording: Recording[S],
    check: Callable[[SimDisk, S], None],
    recover: Callable[[SimDisk, S], None],
    *,
    images: int,
    seed: int | str = 0,
    deep: float = 0.1,
    violations_max: int = 5,
    clock: Callable[[], int] | None = None,
) -> Report:
    """About `images` images of a recording, spread over all points and variants, each recovered and checked.

    `check` recovers and raises `AssertionError` (or anything else that a bug raises); `recover` only recovers, for the
    part `deep` of the images on which the power fails once more.  Stops after `violations_max`.
    """
    report = Report()
    points = range(recording.start, len(recording.disk.journal) + 1)
    report.points = len(points)
    for point, variant, label in _plan(points, images, seed):
        if variant == "":
            walker = Crashes(recording.disk)  # a new round goes from the start
            seen: set[tuple[int, int]] = set()
            continue
        walker.advance(point)
        rng = random.Random(label)
        image = walker.image(variant, rng)
        if image is None:
            continue
        report.images += 1
        report.variants[variant] += 1
        expected = recording.expected(point)
        key = (image.signature, id(expected))
        if key in seen:
            continue
        seen.add(key)
        report.distinct += 1
        problem = _problem(check, image.disk(clock), expected)
        if problem is not None:
            report.violations.append(Violation(recording.name, point, variant, label, problem))
        elif rng.random() < deep:
            violation = _again(recording, check, recover, image, expected, rng, (point, variant, label), clock)
            report.deep += 1
            report.images += 1
            if violation is not None:
                report.violations.append(violation)
        if len(report.violations) >= violations_max:
            break
    return report


def _plan(points: range, images: int, seed: int | str) -> Iterator[tuple[int, str, str]]:
    """(point, variant, seed of the image), point by point; a row without a variant begins a round."""
    left = images
    turn = 0
    while left > 0:
        yield 0, "", ""
        share = min(len(VARIANTS), max(1, -(-left // len(points))))
        step = 1 if left >= len(points) else len(points) / left
        chosen = {points[min(int(i * step), len(points) - 1)] for i in range(min(left, len(points)))}
        for point in points:
            if point not in chosen:
                continue
            order = list(VARIANTS)
            random.Random(f"{seed}/{turn}/{point}").shuffle(order)
            for variant in order[:share]:
                yield point, variant, f"{seed}/{turn}/{point}/{variant}"
                left -= 1
        turn += 1


def _again(
    recording: Recording[S],
    check: Callable[[SimDisk, S], None],
    recover: Callable[[SimDisk, S], None],
    image: Image,
    expected: S,
    rng: random.Random,
    where: tuple[int, str, str],
    clock: Callable[[], int] | None,
) -> Violation | None:
    """Crash once more, somewhere in the recovery."""
    disk = image.disk(clock)
    recover(disk, expected)
    if not disk.journal:
        return None
    point = rng.randint(0, len(disk.journal))
    walker = Crashes(disk)
    walker.advance(point)
    variant = rng.choice(VARIANTS)
    second = walker.image(variant, rng)
    if second is None:
        return None
    problem = _problem(check, second.disk(clock), expected)
    if problem is None:
        return None
    return Violation(recording.name, where[0], where[1], where[2], problem, (point, variant))


def _problem(check: Callable[[SimDisk, S], None], disk: SimDisk, expected: S) -> str | None:
    try:
        check(disk, expected)
    except Exception as error:  # noqa: BLE001  # whatever a recovery raises is a finding about one image
        text = " ".join(str(error).split())
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {text[:600]} ({os.path.basename(frame.filename)}:{frame.lineno})"
    return None


def describe(disk: SimDisk, point: int, around: int = 6) -> str:
    """The journal around a point, for people."""
    names = {child: name for entry in disk.journal for _, name, child in entry.changes if child}
    lines = []
    for at in range(max(0, point - around), min(len(disk.journal), point + around)):
        entry = disk.journal[at]
        mark = ">" if at == point else " "
        more = {
            WRITE: f"{entry.position}+{len(entry.data)}{' mapped' if entry.mapped else ''}",
            TRUNCATE: f"to {entry.position}",
        }.get(entry.kind, " ".join(f"{name}={child}" for _, name, child in entry.changes))
        lines.append(f"{mark}{at:5} {_KINDS[entry.kind]:9} {entry.inode:4} {names.get(entry.inode, '')} {more}")
    return "\n".join(lines)


assert _KINDS[CREATE] == "create" and _KINDS[SYNC_DIR] == "sync-dir"
