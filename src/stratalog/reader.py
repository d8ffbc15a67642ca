"""A partition's log for people: `stratalog.open("data/orders-0")`, and its records as Arrow, pandas or polars.

Reads the files and changes nothing, beside a live broker of ours or of Apache Kafka as well: a scan ends where the log
ended when it began, holds on to the file that it reads, and looks at the directory again at the end of each, so that
segments may be rolled, cleaned and deleted meanwhile.  Where retention has taken away what was to be read next, the
scan ends with `LogChanged`, never with a silent hole.

A reader may be shared between threads; each scan belongs to one.  Importing this module brings neither NumPy nor Arrow.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from stratalog.base.failures import Malformed
from stratalog.base.limits import BATCH_DECOMPRESSED_BYTES_MAX
from stratalog.base.types import MAX_INT32, MAX_INT64
from stratalog.records import arrow
from stratalog.records.batch import read_header
from stratalog.records.control import marker_of
from stratalog.records.errors import CorruptBatch
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_HEADER,
    BATCH_TRUNCATED,
    CODEC_MASK,
    CONTROL,
    COUNT,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    OK,
    POSITION,
    PRODUCER_ID,
    ROW,
    SIZE,
    TABLE_FULL,
    TEXTS,
    TRANSACTIONAL,
    BatchTable,
    best,
    kernels_ready,
    load_kernels,
)
from stratalog.server.disk import RealDisk, RealFile
from stratalog.storage import layout
from stratalog.storage.checkpoints import TopicPartition, read_offsets
from stratalog.storage.producers import ProducerEntry, read_snapshot
from stratalog.storage.scan import resync, why_invalid
from stratalog.storage.scan import scan as scan_headers

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

Isolation = Literal["committed", "uncommitted"]

BATCH_BYTES: Final = 4 << 20
"""Bytes of the log in one record batch: large enough for columns, small enough for the processor's cache."""
KERNELS_FROM_BYTES: Final = 4 << 20
"""A log smaller than that is read by the plain twin rather than wait for Numba to be imported."""
BATCH_BYTES_MAX: Final = BATCH_DECOMPRESSED_BYTES_MAX
"""A single batch for which the buffer grows: no more than one may unfold to."""
SMALLEST_BATCH: Final = 61
MIN_INT64: Final = -(2**63)


class LogChanged(RuntimeError):
    """What a scan was about to read is gone: deleted by retention or with its topic."""


class Damage(NamedTuple):
    """Bytes of a segment that are no sound batch, and that a scan with `on_damage` has passed over."""

    path: str
    position: int
    size: int
    """Bytes up to the next sound batch, or to the end of the file."""
    first_offset: int
    """The first offset that they may have had."""
    next_offset: int
    """The offset behind them, as far as the log says it; -1 where nothing sound follows in the segment."""
    reason: str


OnDamage = Callable[[Damage], None]


class _Segment(NamedTuple):
    base: int
    path: str


class LogReader:
    """A read-only view of one partition's directory.  Made by `stratalog.open`."""

    def __init__(self, directory: str, *, disk: RealDisk | None = None) -> None:
        self._disk = RealDisk() if disk is None else disk
        self.directory = directory
        name = layout.parse_directory(os.path.basename(os.path.abspath(directory)))
        self.topic: str | None = name[0] if name else None
        self.partition: int | None = name[1] if name else None
        if not self._segments():
            raise FileNotFoundError(errno.ENOENT, "no segment (*.log) here, so this is no partition's log", directory)

    # --- where it begins and ends --------------------------------------------------------------------------------
    @property
    def log_start_offset(self) -> int:
        """The first offset that a consumer may read: the checkpoint's, or the first segment's."""
        first = self._segments(required=True)[0].base
        if self.topic is None or self.partition is None:
            return first
        path = os.path.join(os.path.dirname(os.path.abspath(self.directory)), layout.LOG_STARTS)
        try:
            start = read_offsets(self._disk, path).get(TopicPartition(self.topic, self.partition), first)
        except Malformed:
            return first  # a checkpoint only moves the start up; without it, the files say
        return max(first, start)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        while True:
            segment = self._segments(required=True)[-1]
            try:
                return self._end_of(segment)
            except FileNotFoundError:
                continue  # renamed or deleted since the directory was listed

    def _end_of(self, segment: _Segment) -> int:
        """Behind the last whole batch of a segment; its base offset where it is empty."""
        last = -1
        position = _last_position(self._disk, segment)
        with _Opened(self._disk, segment.path) as file:
            while last < 0:
                for row in scan_headers(file, position, file.size(), verify=False):
                    last = row[3]
                if position == 0:
                    break
                position = 0
        return max(last + 1, segment.base)

    def __len__(self) -> int:
        """Records that `scan()` gives: committed ones, without markers.  Reads the headers of all batches."""
        total = 0
        for piece in self._pieces(None, None, MIN_INT64, "committed", BATCH_BYTES):
            for index in piece.indexes:
                count = piece.table.rows[index * ROW + COUNT]
                first = piece.table.rows[index * ROW + BASE_OFFSET]
                last = piece.table.rows[index * ROW + LAST_OFFSET]
                if count < 0 or first < piece.start or last >= piece.stop:
                    count = arrow.decode(
                        piece.data,
                        piece.table,
                        indexes=[index],
                        columns=("offset",),
                        start=piece.start,
                        stop=piece.stop,
                    ).num_rows
                total += count
        return total

    def __repr__(self) -> str:
        return (
            f"<LogReader {self.directory!r}: offsets {self.log_start_offset} to {self.log_end_offset}, "
            f"{len(self._segments())} segments>"
        )

    # --- reading -------------------------------------------------------------------------------------------------
    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Iterable[str] | None = None,
        *,
        start_time: int | None = None,
        end_time: int | None = None,
        isolation: Isolation = "committed",
        batch_bytes: int = BATCH_BYTES,
        timestamp_unit: Literal["ms", "us"] = "ms",
        verify: bool = True,
        stable: bool = False,
        on_damage: OnDamage | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records with an offset in [start, end) and a timestamp in [start_time, end_time) (milliseconds), as Arrow
        record batches of about `batch_bytes` of log each, in offset order.

        `columns`: some of `offset timestamp timestampType key value headers`, which come in this order whichever they
        are named in; only these are decoded.  `committed`
        leaves out aborted transactions and everything from the first open one on; control records are never rows.
        `verify=False` leaves out the checksums.  `stable` promises that `end` is at most the last stable offset: open
        transactions are then not looked for, which saves going through a segment's headers.  Ends with `CorruptBatch`
        (file and position in the text) at damage, with `LogChanged` where retention was faster.  With `on_damage` a
        damaged batch is told to it and passed over instead: the scan goes on at the next sound one.
        """
        names = arrow.chosen(columns)
        arrow.schema(names)  # a missing PyArrow is said here, not at the first batch
        if isolation not in ("committed", "uncommitted"):
            raise ValueError(f"isolation is 'committed' or 'uncommitted', not {isolation!r}")
        if batch_bytes < 1:
            raise ValueError(f"batch_bytes is at least 1, not {batch_bytes}")
        early = MIN_INT64 if start_time is None else start_time
        late = MAX_INT64 if end_time is None else end_time
        pieces = self._pieces(
            start, end, early, isolation, batch_bytes, verify=verify, stable=stable, on_damage=on_damage
        )
        return self._decoded(pieces, names, early, late, timestamp_unit, 8 * batch_bytes, on_damage)

    def offset_at(self, time: int, *, on_damage: OnDamage | None = None) -> int:
        """The first offset with a timestamp at or after `time` (milliseconds), -1 where there is none: what Kafka's
        ListOffsets answers, so markers of transactions and aborted records count, too."""
        for piece in self._pieces(
            None, None, time, "uncommitted", 1 << 16, stable=True, on_damage=on_damage, markers=True
        ):
            rows = piece.table.rows
            for index in piece.indexes:
                at = index * ROW
                if rows[at + MAGIC] == 2 and rows[at + ATTRIBUTES] & CONTROL:
                    return rows[at + BASE_OFFSET]
                one = iter([piece._replace(indexes=[index])])
                for batch in self._decoded(one, ("offset",), time, MAX_INT64, "ms", 1 << 19, on_damage):
                    return int(batch.column(0)[0].as_py())
        return -1

    def to_arrow(self, **options: Any) -> pa.Table:
        """All records as one table; options as `scan` has them."""
        options["columns"] = arrow.chosen(options.get("columns"))
        schema = arrow.schema(options["columns"], unit=options.get("timestamp_unit", "ms"))  # or says what to install
        import pyarrow as pa

        return pa.Table.from_batches(self.scan(**options), schema=schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All records as a pandas data frame; options as `scan` has them."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return self.to_arrow(**options).to_pandas()

    def to_polars(self, **options: Any) -> polars.DataFrame:
        """All records as a polars data frame; options as `scan` has them."""
        try:
            import polars
        except ImportError as error:
            raise ImportError("to_polars needs polars: pip install polars") from error
        frame = polars.from_arrow(self.to_arrow(**options))
        assert isinstance(frame, polars.DataFrame), "a table becomes a frame"
        return frame

    # --- behind it -----------------------------------------------------------------------------------------------
    def _segments(self, *, required: bool = False) -> list[_Segment]:
        """The segments by base offset.  While the cleaner swaps, a complete `.swap` stands for what it replaces."""
        try:
            names = self._disk.listdir(self.directory)
        except FileNotFoundError:
            if required:
                raise LogChanged(f"{self.directory} is gone") from None
            raise
        found: dict[int, str] = {}
        for name in names:
            parsed = layout.parse(name)
            if parsed is None or parsed.kind != layout.LOG:
                continue
            if parsed.state == "" or (parsed.state == layout.SWAP and parsed.offset not in found):
                found[parsed.offset] = f"{self.directory}/{name}"
        if required and not found:
            raise LogChanged(f"{self.directory} has no segment any more")
        return [_Segment(base, found[base]) for base in sorted(found)]

    def _decoded(
        self,
        pieces: Iterator[_Piece],
        names: tuple[str, ...],
        early: int,
        late: int,
        unit: str,
        payload_max: int,
        on_damage: OnDamage | None,
    ) -> Iterator[pa.RecordBatch]:
        def decoded(piece: _Piece, indexes: list[int], payloads: dict[int, Any]) -> pa.RecordBatch:
            return arrow.decode(
                piece.data,
                piece.table,
                indexes=indexes,
                columns=names,
                start=piece.start,
                stop=piece.stop,
                start_time=early,
                end_time=late,
                unit=unit,
                payloads=payloads,
            )

        for piece in pieces:
            for indexes, payloads in _groups(piece, payload_max, on_damage):
                try:
                    batch = decoded(piece, indexes, payloads)
                except CorruptBatch as error:
                    # Which one of the group it is: once more, one by one.
                    for index in indexes:
                        try:
                            batch = decoded(piece, [index], payloads)
                        except CorruptBatch as single:
                            _tell(piece, index, single, on_damage)
                            continue
                        if batch.num_rows:
                            yield batch
                    if on_damage is None:
                        raise CorruptBatch(f"{piece.path}: {error}") from error
                    continue
                if batch.num_rows:
                    yield batch

    def _pieces(
        self,
        start: int | None,
        end: int | None,
        early: int,
        isolation: Isolation,
        batch_bytes: int,
        *,
        verify: bool = True,
        stable: bool = False,
        on_damage: OnDamage | None = None,
        markers: bool = False,
    ) -> Iterator[_Piece]:
        """The log's bytes in pieces of whole batches, each with the batches of it that are wanted; control batches
        with `markers` only."""
        first = self.log_start_offset
        stop = self.log_end_offset
        begin = first if start is None else max(start, first)
        if end is not None:
            stop = min(stop, end)
        if begin >= stop:
            return
        transactions = None
        if isolation == "committed":
            transactions = _Transactions(self, begin, stop, stable=stable, tolerant=on_damage is not None)
        walk = _Walk(self._disk, self, begin, stop, early, batch_bytes, verify=verify, on_damage=on_damage)
        for piece in walk.pieces():
            rows = piece.table.rows
            indexes: list[int] = []
            for index in range(piece.table.count):
                at = index * ROW
                if rows[at + LAST_OFFSET] < piece.start or rows[at + MAX_TIMESTAMP] < early != MIN_INT64:
                    continue
                if rows[at + BASE_OFFSET] >= piece.stop and rows[at + MAGIC] == 2:
                    break
                attributes = rows[at + ATTRIBUTES]
                if attributes & (TRANSACTIONAL | CONTROL) and rows[at + MAGIC] == 2:
                    if attributes & CONTROL and not markers:
                        continue
                    if transactions is not None and not transactions.is_committed(
                        rows[at + PRODUCER_ID], rows[at + BASE_OFFSET]
                    ):
                        continue
                if rows[at + COUNT]:
                    indexes.append(index)
            if transactions is not None:
                piece = piece._replace(stop=min(piece.stop, transactions.stable_end))
            if indexes:
                yield piece._replace(indexes=indexes)
            if piece.stop <= rows[(piece.table.count - 1) * ROW + LAST_OFFSET]:
                return

    def _is_small(self) -> bool:
        """Whether the plain twin has read the log before the kernels are loaded."""
        total = 0
        for segment in self._segments():
            try:
                total += self._disk.size(segment.path)
            except FileNotFoundError:
                continue
        return total < KERNELS_FROM_BYTES


def open_log(path: str | os.PathLike[str], *, topic: str | None = None, partition: int = 0) -> LogReader:
    """`stratalog.open`: the log in a partition's directory, or of `topic` and `partition` in a data directory."""
    directory = os.fspath(path)
    if topic is not None:
        directory = os.path.join(directory, layout.directory_name(topic, partition))
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
    names = os.listdir(directory)
    partitions = sorted(name for name in names if layout.parse_directory(name) is not None)
    if topic is None and partitions and not any(name.endswith(layout.LOG) for name in names):
        shown = ", ".join(partitions[:5]) + (", ..." if len(partitions) > 5 else "")
        raise ValueError(f"{directory} is a data directory: give topic= and partition=, or the path of one of {shown}")
    return LogReader(directory)


class _Piece(NamedTuple):
    """Some batches of a segment: their bytes (valid until the next piece), their table, which of them are wanted."""

    path: str
    position: int
    """Where in the file the bytes begin."""
    data: memoryview
    table: BatchTable
    start: int
    stop: int
    indexes: list[int]


def _tell(piece: _Piece, index: int, error: CorruptBatch, on_damage: OnDamage | None) -> None:
    """A batch whose header is sound and whose records are not: raised, or told and passed over."""
    rows = piece.table.rows
    at = index * ROW
    position = piece.position + rows[at + POSITION]
    if on_damage is None:
        raise CorruptBatch(
            f"{piece.path}: the batch at byte {position}, offset {rows[at + BASE_OFFSET]}: {error}"
        ) from error
    on_damage(
        Damage(piece.path, position, rows[at + SIZE], rows[at + BASE_OFFSET], rows[at + LAST_OFFSET] + 1, str(error))
    )


def _groups(piece: _Piece, payload_max: int, on_damage: OnDamage | None) -> Iterator[tuple[list[int], dict[int, Any]]]:
    """The wanted batches in groups whose decompressed records stay in bounds together."""
    rows = piece.table.rows
    group: list[int] = []
    payloads: dict[int, Any] = {}
    held = 0
    for index in piece.indexes:
        at = index * ROW
        if rows[at + ATTRIBUTES] & CODEC_MASK or rows[at + MAGIC] < 2:
            try:
                payload = arrow.payloads_of(piece.data, piece.table, [index])[index]
            except CorruptBatch as error:
                _tell(piece, index, error, on_damage)
                continue
            if group and held + len(payload) > payload_max:
                yield group, payloads
                group, payloads, held = [], {}, 0
            payloads[index] = payload
            held += len(payload)
        group.append(index)
    if group:
        yield group, payloads


class _Opened:
    """A segment's file for the length of a `with`."""

    def __init__(self, disk: RealDisk, path: str) -> None:
        self._file = disk.open(path, write=False)

    def __enter__(self) -> RealFile:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Walk:
    """Goes through a log's segments, whatever happens to them meanwhile."""

    def __init__(
        self,
        disk: RealDisk,
        reader: LogReader,
        begin: int,
        stop: int,
        early: int,
        batch_bytes: int,
        *,
        verify: bool,
        on_damage: OnDamage | None,
    ) -> None:
        self._disk = disk
        self._reader = reader
        self._next = begin
        self._stop = stop
        self._early = early
        self._verify = verify
        self._on_damage = on_damage
        self._buffer = bytearray(batch_bytes)
        self._table = BatchTable(max(64, min(16_384, batch_bytes // 512)))
        if not kernels_ready() and not reader._is_small():
            load_kernels()
        self._twin = best()

    def pieces(self) -> Iterator[_Piece]:
        done: set[tuple[int, int]] = set()
        while self._next < self._stop:
            segment = self._choose(done)
            if segment is None:
                return
            try:
                file = self._disk.open(segment.path, write=False)
            except FileNotFoundError:
                continue  # renamed or deleted since the directory was listed: list it again
            try:
                status = os.fstat(file.fileno())
                identity = status.st_dev, status.st_ino
                if identity not in done:
                    yield from self._segment(segment, file)
                done.add(identity)
            finally:
                file.close()

    def _choose(self, done: set[tuple[int, int]]) -> _Segment | None:
        """The segment that the next offset is in, else the first one behind what was read."""
        segments = self._reader._segments(required=True)
        place = bisect_left(segments, (self._next + 1,)) - 1
        if place < 0:
            raise LogChanged(
                f"{self._reader.directory}: offsets {self._next} to {segments[0].base - 1} were deleted "
                "while they were about to be read"
            )
        for segment in segments[place:]:
            try:
                status = os.stat(segment.path)
            except FileNotFoundError:
                return segment  # the caller finds out, and lists again
            if (status.st_dev, status.st_ino) not in done:
                return segment
        return None

    def _segment(self, segment: _Segment, file: RealFile) -> Iterator[_Piece]:
        if self._early != MIN_INT64 and self._older(segment):
            return
        position = _start_position(self._disk, segment, self._next, self._early)
        table = self._table
        failures = 0
        before = segment.base - 1
        while self._next < self._stop:
            got = file.pread_into(self._buffer, position)
            data = memoryview(self._buffer)[:got]
            code = self._twin.scan_batches(data, table, verify=self._verify)
            code = _in_order(table, code, segment.base, before)
            if table.count:
                failures = 0
                before = table.rows[(table.count - 1) * ROW + LAST_OFFSET]
                last = table.rows[(table.count - 1) * ROW + LAST_OFFSET]
                if last >= self._next:
                    yield _Piece(segment.path, position, data[: table.end], table, self._next, self._stop, [])
                    self._next = last + 1
                position += table.end
                if code in (OK, TABLE_FULL) or got == len(self._buffer):
                    if got < len(self._buffer) and code == OK:
                        return
                    continue
            elif code == OK:
                return
            # Nothing whole at the position: a batch larger than the buffer, a tail, or damage.
            needed = _declared_size(data[table.end :] if table.count == 0 else data[:0])
            if code == BATCH_TRUNCATED and len(self._buffer) < needed <= min(file.size() - position, BATCH_BYTES_MAX):
                self._buffer = bytearray(needed)
                continue
            if self._is_tail(segment, file, position):
                return
            failures += 1
            if failures > 2:  # not a write that is just happening
                if self._on_damage is None:
                    raise CorruptBatch(f"{segment.path}: {TEXTS[code]}", position=position)
                following = self._passed_over(segment, file, position, before)
                if following < 0:
                    return
                position, failures = following, 0

    def _passed_over(self, segment: _Segment, file: RealFile, position: int, before: int) -> int:
        """The position of the next sound batch, -1 where there is none; what lies before it is told."""
        size = file.size()
        reason = why_invalid(file, position, size, before)
        following = resync(file, position, size, before)
        offset = -1
        if following >= 0:
            offset = int.from_bytes(file.pread(8, following), "big", signed=True)
        end = following if following >= 0 else size
        assert self._on_damage is not None, "who raises at damage does not come here"
        self._on_damage(Damage(segment.path, position, end - position, before + 1, offset, reason))
        return following

    def _older(self, segment: _Segment) -> bool:
        """Whether all of a closed segment is older than what is wanted: its time index ends with its newest."""
        if segment == self._reader._segments(required=True)[-1]:
            return False
        last = _last_entry(self._disk, segment, layout.TIME_INDEX, 12)
        if last is None or int.from_bytes(last[:8], "big", signed=True) >= self._early:
            return False
        following = [other.base for other in self._reader._segments(required=True) if other.base > segment.base]
        self._next = max(self._next, following[0]) if following else self._next
        return True

    def _is_tail(self, segment: _Segment, file: RealFile, position: int) -> bool:
        """Whether nothing but zeros (a pre-allocated file) or one unfinished batch of the last segment is left."""
        head = file.pread(SMALLEST_BATCH, position)
        if not any(head):
            return True
        if segment.base != self._reader._segments(required=True)[-1].base:
            return False
        if position < _last_position(self._disk, segment):
            return False  # sound batches lie behind it
        return _declared_size(memoryview(head)) >= file.size() - position


class _Transactions:
    """Which transactional batches are committed, and where the first open transaction begins.

    Known without reading more where the log has no transactions: the rest of the log is gone through, headers only,
    when the first transactional batch comes by.
    """

    def __init__(
        self, reader: LogReader, begin: int, stop: int, *, stable: bool = False, tolerant: bool = False
    ) -> None:
        self._reader = reader
        self._disk = reader._disk
        self._tolerant = tolerant
        self._markers: dict[int, tuple[list[int], list[bool]]] = {}
        self._resolved = False
        self._begin = begin
        self._stop = stop
        self._end = stop
        self._open: dict[int, int] = {}
        self._stable = stable
        if not stable:
            self._find_open()
        if self._open:
            self._resolve(begin)

    @property
    def stable_end(self) -> int:
        """The last stable offset, as far as it is known to matter: everything below it is decided."""
        return self._end

    def is_committed(self, producer_id: int, base_offset: int) -> bool:
        if not self._resolved:
            self._resolve(base_offset)
        offsets, committed = self._markers.get(producer_id, ([], []))
        place = bisect_left(offsets, base_offset)
        return place < len(offsets) and committed[place]

    def _find_open(self) -> None:
        """The transactions that are open at `begin`: from the snapshot of its segment, and what follows it there."""
        segments = self._reader._segments(required=True)
        place = max(bisect_left(segments, (self._begin + 1,)) - 1, 0)
        segment = segments[place]
        bases = [one.base for one in segments[place::-1]]
        behind, entries = newest_snapshot(self._disk, self._reader.directory, bases)
        self._open = {entry.producer_id: entry.txn_first_offset for entry in entries if entry.txn_first_offset >= 0}
        for one in segments[place - behind : place]:
            self._go_through(one, 0, MAX_INT64, self._open)
        if segment.base < self._begin:
            self._go_through(segment, 0, self._begin, self._open)

    def _resolve(self, start: int) -> None:
        """Go through the rest of the log for the markers."""
        self._resolved = True
        still_open = dict(self._open)
        reached = start
        end = self._reader.log_end_offset
        while reached < end:
            segments = self._reader._segments(required=True)
            segment = segments[max(bisect_left(segments, (reached + 1,)) - 1, 0)]
            position = _start_position(self._disk, segment, reached, MIN_INT64)
            try:
                last = self._go_through(segment, position, MAX_INT64, still_open)
            except FileNotFoundError:
                continue
            following = [other.base for other in segments if other.base > segment.base]
            if not following:
                break
            reached = max(last + 1, following[0])
        if not self._stable:
            self._end = min([self._stop, *still_open.values()])

    def _go_through(self, segment: _Segment, position: int, stop: int, still_open: dict[int, int]) -> int:
        """Take the transactional batches of a segment into account; the last offset seen."""
        last = -1
        with _Opened(self._disk, segment.path) as file:
            end = file.size()
            while position >= 0:
                for row in scan_headers(file, position, end, verify=False):
                    at, size, base, last_offset, _, magic, attributes, _, producer_id, _, _, _ = row
                    if last_offset >= stop:
                        return last
                    last = last_offset
                    position = at + size
                    if magic < 2 or not attributes & TRANSACTIONAL:
                        continue
                    if not attributes & CONTROL:
                        still_open.setdefault(producer_id, base)
                        continue
                    self._mark(file.pread(size, at), producer_id, base, still_open)
                position = behind_damage(segment.path, file, position, end, last, tolerant=self._tolerant)
        return last

    def _mark(self, data: bytes, producer_id: int, base: int, still_open: dict[int, int]) -> None:
        marker = marker_of(data, read_header(data))
        if marker is not None:
            still_open.pop(producer_id, None)
            offsets, committed = self._markers.setdefault(producer_id, ([], []))
            if not offsets or base > offsets[-1]:
                offsets.append(base)
                committed.append(marker.committed)


def newest_snapshot(disk: RealDisk, directory: str, bases: Sequence[int]) -> tuple[int, list[ProducerEntry]]:
    """The producers where the segment `bases[0]` begins, as far as a snapshot knows them; `bases` are it and those
    before it, the newest first.  Also how many segments before it are to be gone through to know the rest.

    A broker writes a segment's snapshot after it has made the segment, and one may be damaged: then the newest one
    before it counts.  Where there is none at all (a first roll that is just happening, or segments that no broker has
    written) only the segment before is looked at.
    """
    for behind, base in enumerate(bases):
        try:
            return behind, read_snapshot(disk, layout.path_of(directory, base, layout.SNAPSHOT))
        except (FileNotFoundError, Malformed):
            continue
    return min(len(bases) - 1, 1), []


def behind_damage(path: str, file: RealFile, position: int, end: int, before: int, *, tolerant: bool) -> int:
    """Where a walk over headers goes on that stopped at `position`: -1 at the end of the segment, an unfinished batch
    included; behind damage the next sound batch, or `CorruptBatch` where it is not `tolerant`."""
    if position >= end or not any(file.pread(SMALLEST_BATCH, position)):
        return -1
    following = resync(file, position, end, before)
    if following >= 0 and not tolerant:
        raise CorruptBatch(f"{path}: {why_invalid(file, position, end, before)}", position=position)
    return following


def _in_order(table: BatchTable, code: int, base: int, before: int) -> int:
    """Cut the table before the first batch whose offset cannot be there: base offsets are in no checksum."""
    firsts, lasts = table.column(BASE_OFFSET), table.column(LAST_OFFSET)
    for index, first in enumerate(firsts):
        if first <= before or lasts[index] - base > MAX_INT32:
            table.count = index
            table.end = table.rows[index * ROW + POSITION]
            return BATCH_HEADER
        before = lasts[index]
    return code


# --- the sparse indexes, as hints ------------------------------------------------------------------------------------
def _declared_size(head: memoryview) -> int:
    """The size that the batch at the front says it has; 0 where not even that is there."""
    if len(head) < 12:
        return 0
    return 12 + int.from_bytes(head[8:12], "big", signed=True)


def _index_path(segment: _Segment, kind: str) -> str:
    log = segment.path
    place = log.rindex(layout.LOG)
    return log[:place] + kind + log[place + len(layout.LOG) :]


def _search(
    disk: RealDisk, segment: _Segment, kind: str, size: int, limit: int, value: tuple[int, int]
) -> bytes | None:
    """The last entry of an index whose number (`value`: its place and length in the entry) is below `limit`.

    An index of a live segment is pre-allocated: entries of zeros count as not there.
    """
    try:
        file = disk.open(_index_path(segment, kind), write=False)
    except FileNotFoundError:
        return None
    try:
        low, high = 0, file.size() // size
        best_entry = None
        begin, length = value
        while low < high:
            middle = (low + high) // 2
            entry = file.pread(size, middle * size)
            if len(entry) < size:
                high = middle
                continue
            number = int.from_bytes(entry[begin : begin + length], "big", signed=True)
            if (not any(entry) and middle) or number >= limit:
                high = middle
            else:
                best_entry = entry
                low = middle + 1
        return best_entry
    finally:
        file.close()


def _last_entry(disk: RealDisk, segment: _Segment, kind: str, size: int) -> bytes | None:
    return _search(disk, segment, kind, size, MAX_INT64, (0, 4 if size == 8 else 8))


def _start_position(disk: RealDisk, segment: _Segment, offset: int, early: int) -> int:
    """Where to begin in a segment: at or before the batch with `offset`, and before the first record from `early` on.

    0 unless a batch with a fitting offset really begins at the index entry's position.
    """
    if early != MIN_INT64:
        entry = _search(disk, segment, layout.TIME_INDEX, 12, early, (0, 8))
        if entry is not None:
            offset = max(offset, segment.base + int.from_bytes(entry[8:], "big"))
    if offset <= segment.base:
        return 0
    entry = _search(disk, segment, layout.INDEX, 8, offset - segment.base + 1, (0, 4))
    return 0 if entry is None else _checked(disk, segment, entry, offset)


def _last_position(disk: RealDisk, segment: _Segment) -> int:
    entry = _last_entry(disk, segment, layout.INDEX, 8)
    return 0 if entry is None else _checked(disk, segment, entry, MAX_INT64)


def _checked(disk: RealDisk, segment: _Segment, entry: bytes, offset: int) -> int:
    """The entry's position, where a batch begins there that the entry can mean; an index is only a hint."""
    named = segment.base + int.from_bytes(entry[:4], "big")
    position = int.from_bytes(entry[4:], "big")
    try:
        with _Opened(disk, segment.path) as file:
            header = read_header(file.pread(SMALLEST_BATCH, position))
    except (FileNotFoundError, CorruptBatch):
        return 0
    if segment.base <= header.base_offset <= named <= offset and header.last_offset >= named:
        return position
    return 0
