"""A partition's directory as it lies there, read and never changed: for `stratalog why`, beside a running broker or
without one.

What a broker knows in memory is worked out from the files: the log end by walking the last segment, open transactions
from the newest producer snapshot and the batches behind it.  A segment that vanishes meanwhile is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk
from stratalog.records import control
from stratalog.records.batch import read_header
from stratalog.storage import checkpoints, layout, offset_index, time_index
from stratalog.storage.config import LogConfig
from stratalog.storage.producers import read_snapshot
from stratalog.storage.scan import CONTROL, TRANSACTIONAL, scan

_TIME: Final = struct.Struct(">qi")


class SegmentView:
    """One segment's facts, as `retention` and the cleaner's `choice` want them."""

    __slots__ = ("_disk", "_first", "base_offset", "index_bytes", "max_timestamp", "path", "size", "time_index_bytes")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.size = disk.size(path)
        self._first: int | None = None
        self.index_bytes = self._size_of(layout.INDEX, offset_index.ENTRY_SIZE)
        self.time_index_bytes = self._size_of(layout.TIME_INDEX, time_index.ENTRY_SIZE)
        self.max_timestamp = -1

    def _size_of(self, kind: str, entry: int) -> int:
        path = self.path.removesuffix(layout.LOG) + kind
        return self._disk.size(path) // entry * entry if self._disk.exists(path) else 0

    def load_timestamps(self, *, closed: bool) -> None:
        """From the last time index entry of a closed segment; by walking the headers where that does not say."""
        path = self.path.removesuffix(layout.LOG) + layout.TIME_INDEX
        if closed and self.time_index_bytes:
            file = self._disk.open(path, write=False)
            self.max_timestamp = _TIME.unpack(file.pread(12, self.time_index_bytes - 12))[0]
            file.close()
            if self.max_timestamp > 0:
                return
        self.max_timestamp = -1
        for row in self.batches():
            self.max_timestamp = max(self.max_timestamp, row[7])

    def batches(self) -> Iterable[tuple[int, ...]]:
        file = self._disk.open(self.path, write=False)
        return scan(file, 0, self.size, verify=False)

    @property
    def modified_ms(self) -> int:
        return self._disk.mtime_ms(self.path)

    @property
    def largest_timestamp(self) -> int:
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms

    def load_first_timestamp(self) -> int:
        if self._first is None:
            self._first = next((row[7] for row in self.batches()), -1)
        return self._first


@dataclass(slots=True)
class OpenTransaction:
    producer_id: int
    first_offset: int
    last_timestamp: int


@dataclass(slots=True)
class LogView:
    """One partition."""

    topic: str
    partition: int
    directory: str
    config: LogConfig
    segments: list[SegmentView] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    recovery_point: int = 0
    cleaner_checkpoint: int | None = None
    transactions: list[OpenTransaction] = field(default_factory=list)
    """Open ones, the oldest first."""

    @property
    def last_stable_offset(self) -> int:
        first = self.transactions[0].first_offset if self.transactions else self.log_end_offset
        return min(self.high_watermark, first)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


def offsets_of(disk: Disk, data: str, name: str, key: tuple[str, int]) -> int | None:
    """A partition's entry of a checkpoint, None where there is none or it cannot be read."""
    try:
        found = checkpoints.read_offsets(disk, f"{data}/{name}")
    except Malformed:
        return None
    return next((offset for entry, offset in found.items() if entry == key), None)


def look(disk: Disk, data: str, topic: str, partition: int, config: LogConfig) -> LogView:
    """Everything about one partition of the data directory `data`."""
    directory = f"{data}/{layout.directory_name(topic, partition)}"
    view = LogView(topic, partition, directory, config)
    key = (topic, partition)
    snapshots: list[int] = []
    for name in disk.listdir(directory):
        parsed = layout.parse(name)
        if parsed is None or parsed.state:
            continue
        if parsed.kind == layout.LOG:
            try:
                view.segments.append(SegmentView(disk, f"{directory}/{name}", parsed.offset))
            except FileNotFoundError:
                continue  # retention was quicker
        elif parsed.kind == layout.SNAPSHOT:
            snapshots.append(parsed.offset)
    for segment in view.segments:
        segment.load_timestamps(closed=segment is not view.segments[-1])
    if view.segments:
        last = view.segments[-1]
        view.log_end_offset = last.base_offset
        for row in last.batches():
            view.log_end_offset = row[3] + 1
        view.log_start_offset = view.segments[0].base_offset
    view.log_start_offset = max(view.log_start_offset, offsets_of(disk, data, layout.LOG_STARTS, key) or 0)
    high = offsets_of(disk, data, layout.HIGH_WATERMARKS, key)
    view.high_watermark = view.log_end_offset if high is None else min(high, view.log_end_offset)
    view.recovery_point = offsets_of(disk, data, layout.RECOVERY_POINTS, key) or 0
    view.cleaner_checkpoint = offsets_of(disk, data, layout.CLEANER_OFFSETS, key)
    _open_transactions(disk, view, snapshots)
    return view


def _open_transactions(disk: Disk, view: LogView, snapshots: list[int]) -> None:
    """The newest snapshot, and what the batches behind it begin and end."""
    opened: dict[int, OpenTransaction] = {}
    start = view.segments[0].base_offset if view.segments else 0
    for offset in sorted(snapshots, reverse=True):
        if offset > view.log_end_offset:
            continue
        try:
            rows = read_snapshot(disk, layout.path_of(view.directory, offset, layout.SNAPSHOT))
        except (Malformed, FileNotFoundError):
            continue
        for entry in rows:
            if entry.txn_first_offset >= 0:
                opened[entry.producer_id] = OpenTransaction(
                    entry.producer_id, entry.txn_first_offset, entry.last_timestamp
                )
        start = offset
        break
    for index, segment in enumerate(view.segments):
        following = view.segments[index + 1].base_offset if index + 1 < len(view.segments) else view.log_end_offset
        if following <= start:
            continue
        file = disk.open(segment.path, write=False)
        for row in scan(file, 0, segment.size, verify=False):
            position, size, base, last, _, _, attributes, timestamp, pid = row[:9]
            if last < start or not attributes & (TRANSACTIONAL | CONTROL) or pid < 0:
                continue
            if attributes & CONTROL:
                data = file.pread(size, position)
                if control.marker_of(data, read_header(data)) is not None:
                    opened.pop(pid, None)
            elif pid in opened:
                opened[pid].last_timestamp = timestamp
            else:
                opened[pid] = OpenTransaction(pid, base, timestamp)
        file.close()
    view.transactions = sorted(opened.values(), key=lambda txn: txn.first_offset)
