"""Reading segments: a data directory (or several, or one partition's directory) as an origin.

Planning looks at directory listings, indexes and the headers of the last segment; tasks read through
`stratalog.open`, beside a live broker too.  Nothing is written.  One `Files` belongs to one thread.

The end of a partition is the end of its log, which for a partition without other replicas is the high watermark;
`pathEnd=checkpoint` takes the high watermark that the broker last wrote down instead.  For committed reads it is the
last stable offset: the first offset of the first transaction that is still open.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stratalog.base.failures import Malformed
from stratalog.reader import LogChanged, LogReader, behind_damage, newest_snapshot, open_log
from stratalog.records.batch import read_header
from stratalog.records.control import marker_of
from stratalog.records.kernels import load_kernels
from stratalog.server.disk import RealDisk
from stratalog.spark.damage import reporter
from stratalog.spark.errors import NotThere
from stratalog.spark.options import ReadOptions, Selection, TopicPartition
from stratalog.spark.origin import Slice, Span, lost, matching
from stratalog.storage import layout
from stratalog.storage.checkpoints import read_offsets, read_topic_id
from stratalog.storage.scan import CONTROL, TRANSACTIONAL, scan

_ENTRY: Final = struct.Struct(">ii")
_ROUNDS_MAX: Final = 100
"""How often a directory is looked at again because a file of it was gone: cleaners are slower than that."""


class Files:
    """`Origin` over data directories."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._disk = RealDisk()
        self._directories: dict[TopicPartition, str] = {}
        self._tails: dict[TopicPartition, _Tail] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look which partitions there are."""
        found: dict[TopicPartition, str] = {}
        for root in self._options.path:
            if not os.path.isdir(root):
                raise NotThere(f"option path={root!r}: there is no such directory")
            alone = layout.parse_directory(os.path.basename(os.path.abspath(root)))
            if alone is not None and any(name.endswith(layout.LOG) for name in os.listdir(root)):
                found[alone] = root
                continue
            for name in sorted(os.listdir(root)):
                partition = layout.parse_directory(name)
                directory = os.path.join(root, name)
                if partition is None or not os.path.isdir(directory):
                    continue
                if partition in found:
                    raise NotThere(f"{name} is in {found[partition]} and in {directory}: which one is meant?")
                if _segments(directory):
                    found[partition] = directory
        self._directories = found

    # --- what there is ---------------------------------------------------------------------------------------------
    def partitions(self, selection: Selection) -> list[TopicPartition]:
        self.refresh()
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._directories):
            topics.setdefault(topic, []).append(partition)
        return matching(selection, topics, "in " + ", ".join(self._options.path))

    def has(self, partition: TopicPartition) -> bool:
        return partition in self._directories

    def directory(self, partition: TopicPartition) -> str:
        return self._directories[partition]

    def topic_id(self, partition: TopicPartition) -> Any:
        try:
            return read_topic_id(self._disk, self._directories[partition])
        except Malformed:
            return None  # the broker writes it again; the check is a help, not a condition

    def spans(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Span]:
        return {p: self._span(p) for p in partitions}

    def _span(self, partition: TopicPartition) -> Span:
        for _ in range(_ROUNDS_MAX):
            try:
                reader = open_log(self._directories[partition])
                tail = self._tails.setdefault(partition, _Tail(tolerant=self._options.findings != ""))
                start = reader.log_start_offset
                stable, end = tail.ends(self._disk, reader)
            except (FileNotFoundError, LogChanged):
                self._still_there(partition)
                continue
            stop = stable if self._options.committed else end
            if self._options.end_at_checkpoint:
                stop = min(stop, self._high_watermark(partition, end))
            return Span(start, max(start, stop))
        raise self._restless(partition)

    def _still_there(self, partition: TopicPartition) -> None:
        if not os.path.isdir(self._directories[partition]):
            raise NotThere(f"{self._directories[partition]} was deleted while it was read") from None

    def _restless(self, partition: TopicPartition) -> NotThere:
        return NotThere(f"{self._directories[partition]}: its files change faster than they can be listed")

    def _high_watermark(self, partition: TopicPartition, end: int) -> int:
        path = os.path.join(os.path.dirname(os.path.abspath(self._directories[partition])), layout.HIGH_WATERMARKS)
        return {tuple(p): offset for p, offset in read_offsets(self._disk, path).items()}.get(partition, end)

    def at_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {p: self._at_time(p, time) for p, time in times.items()}

    def _at_time(self, partition: TopicPartition, time: int) -> int:
        on_damage = reporter(self._options, Slice(*partition, 0, 0, self._directories[partition]))
        for _ in range(_ROUNDS_MAX):
            try:
                return open_log(self._directories[partition]).offset_at(time, on_damage=on_damage)
            except (FileNotFoundError, LogChanged):
                self._still_there(partition)
        raise self._restless(partition)

    # --- what one task reads ---------------------------------------------------------------------------------------
    def slices(self, partition: TopicPartition, span: Span, *, by_bytes: bool) -> list[Slice]:
        directory = self._directories[partition]
        edges = [span.start, span.stop]
        if by_bytes:
            inner = _cuts(self._disk, directory, span, self._options.split_bytes)
            edges = [span.start, *inner, span.stop]
        return [Slice(*partition, edges[i], edges[i + 1], directory) for i in range(len(edges) - 1)]

    def close(self) -> None:
        """Nothing stays open between calls."""


def _segments(directory: str) -> dict[int, str]:
    """Base offset to path of the segments that a reader takes."""
    found: dict[int, str] = {}
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return {}
    for name in names:
        parsed = layout.parse(name)
        if parsed is None or parsed.kind != layout.LOG:
            continue
        if parsed.state == "" or (parsed.state == layout.SWAP and parsed.offset not in found):
            found[parsed.offset] = f"{directory}/{name}"
    return found


def _cuts(disk: RealDisk, directory: str, span: Span, split_bytes: int) -> list[int]:
    """Offsets within the span at which about `split_bytes` are full: at the borders of segments, and within a large
    one at entries of its index."""
    segments = sorted(_segments(directory).items())
    bases = [base for base, _ in segments]
    cuts: list[int] = []
    gathered = 0
    for place in range(max(bisect_left(bases, span.start + 1) - 1, 0), len(segments)):
        base, path = segments[place]
        if base >= span.stop:
            break
        if gathered >= split_bytes // 2 and base > span.start:
            cuts.append(base)
            gathered = 0
        try:
            size = disk.size(path)
        except FileNotFoundError:
            continue  # cleaned or deleted meanwhile: the task finds its records by their offsets
        if size <= split_bytes + split_bytes // 2:
            gathered += size
            continue
        parts = -(-size // split_bytes)
        goals = [size * part // parts for part in range(1, parts)]
        last = 0
        for goal, (offset, position) in _entries_at(disk, path, base, goals):
            if span.start < offset < span.stop and position > last and offset > (cuts[-1] if cuts else span.start):
                cuts.append(offset)
                last = position
                gathered = size - goal
    return cuts


def _entries_at(disk: RealDisk, log: str, base: int, goals: Sequence[int]) -> Iterator[tuple[int, tuple[int, int]]]:
    """For each position the index entry at or before it, as (first offset behind that batch, position)."""
    place = log.rindex(layout.LOG)
    try:
        data = disk.read(log[:place] + layout.INDEX + log[place + len(layout.LOG) :], limit=1 << 30)
    except FileNotFoundError:
        return
    entries = [
        (relative, position)
        for relative, position in _ENTRY.iter_unpack(data[: len(data) // 8 * 8])
        if relative or position
    ]
    positions = [position for _, position in entries]
    for goal in goals:
        found = bisect_left(positions, goal + 1) - 1
        if found >= 0:
            yield goal, (base + entries[found][0] + 1, positions[found])


class _Tail:
    """Where a log ends and where it is stable, followed from call to call: a stream asks again and again."""

    def __init__(self, *, tolerant: bool = False) -> None:
        self._tolerant = tolerant
        self._base = -1
        self._position = 0
        self._end = -1
        self._open: dict[int, int] = {}
        self._identity = (0, 0)

    def ends(self, disk: RealDisk, reader: LogReader) -> tuple[int, int]:
        """(last stable offset, log end offset)."""
        base, path = max(_segments(reader.directory).items(), default=(-1, ""))
        if base < 0:
            raise LogChanged(f"{reader.directory} has no segment any more")
        file = disk.open(path, write=False)
        try:
            status = os.fstat(file.fileno())
            identity = status.st_dev, status.st_ino
            if (base, identity) != (self._base, self._identity) or file.size() < self._position:
                self._begin(disk, reader.directory, base)
                self._identity = identity
            self._follow(path, file)
        finally:
            file.close()
        end = max(self._end, base)
        return min([end, *self._open.values()]), end

    def _begin(self, disk: RealDisk, directory: str, base: int) -> None:
        """The transactions that are open where the last segment begins stand in its snapshot of the producers."""
        self._base = -1
        closed = sorted((one for one in _segments(directory).items() if one[0] < base), reverse=True)
        behind, entries = newest_snapshot(disk, directory, [base, *(first for first, _ in closed)])
        self._open = {e.producer_id: e.txn_first_offset for e in entries if e.txn_first_offset >= 0}
        for first, path in reversed(closed[:behind]):
            self._position, self._end = 0, first
            file = disk.open(path, write=False)
            try:
                self._follow(path, file)
            finally:
                file.close()
        self._base, self._position, self._end = base, 0, base

    def _follow(self, path: str, file: Any) -> None:
        size = file.size()
        position = self._position
        while position >= 0:
            for row in scan(file, position, size, verify=False, after_offset=self._end - 1):
                at, length, base, last, _, magic, attributes, _, producer_id, _, _, _ = row
                if magic == 2 and attributes & TRANSACTIONAL:
                    if not attributes & CONTROL:
                        self._open.setdefault(producer_id, base)
                    else:
                        data = file.pread(length, at)
                        if marker_of(data, read_header(data)) is not None:
                            self._open.pop(producer_id, None)
                self._position = at + length
                self._end = last + 1
            position = behind_damage(path, file, self._position, size, self._end - 1, tolerant=self._tolerant)


# --- in a task --------------------------------------------------------------------------------------------------------
def read_files(
    piece: Slice, options: ReadOptions, columns: tuple[str, ...], early: int | None, late: int | None
) -> Iterator[Any]:
    """The records of a slice from its files.  What is missing at its ends is a loss, never a silent hole."""
    load_kernels()
    start = piece.start
    for _ in range(_ROUNDS_MAX):
        try:
            reader = open_log(piece.directory)
            first, end = reader.log_start_offset, reader.log_end_offset
        except (FileNotFoundError, LogChanged):
            lost(options, f"{piece.directory} is gone; offsets {start} to {piece.stop - 1} cannot be read")
            return
        if first > start:
            until = min(first, piece.stop)
            lost(options, f"{piece.name}: offsets {start} to {until - 1} were deleted before they were read")
            start = until
        if end < piece.stop:
            lost(options, f"{piece.name}: the log ends before offset {end}, planned was everything before {piece.stop}")
        if start >= piece.stop:
            return
        try:
            for batch, reached in _scanned(reader, start, piece, options, columns, early, late):
                start = reached
                yield batch
            return
        except LogChanged:
            continue  # retention was faster: look again where the log begins now
    lost(options, f"{piece.name}: the files change faster than they can be read")


def _scanned(
    reader: LogReader,
    start: int,
    piece: Slice,
    options: ReadOptions,
    columns: tuple[str, ...],
    early: int | None,
    late: int | None,
) -> Iterator[tuple[Any, int]]:
    """Batches, each with the offset to go on at."""
    has_offset = "offset" in columns
    wanted = columns if has_offset else ("offset", *columns)
    for batch in reader.scan(
        start,
        piece.stop,
        columns=wanted,
        start_time=early,
        end_time=late,
        isolation="committed" if options.committed else "uncommitted",
        timestamp_unit="us",
        stable=True,
        on_damage=reporter(options, piece),
    ):
        yield batch, batch.column(0)[-1].as_py() + 1
