"""One cleaning of one log: the offset map, then the rewrite, a step at a time.

    job = Cleaning(log, ...)           on the loop, which takes a view of what the log has now
    job.advance(bytes)                 on a cleaner thread, again and again: works on, returns when it has read about
                                       so much, when new segments are ready (`job.ready`), or when it is done
    job.swap(...)                      on the loop: puts the new segments in the place of the old
    job.stop()                         on the loop: the cleaner ends at the next chunk, nothing more is swapped

Pass 1 reads the dirty segments and puts each key's highest offset into the map; a full map ends the range there, also
in the middle of a segment (C08), and the next cleaning goes on.  Pass 2 goes over everything from the log's first
segment to that end, group by group (`choice.group`), and writes what survives: batches whose records all survive are
copied byte for byte, others are rewritten by the kernel, and Python looks at those that the kernel cannot decide alone
(transactions, markers, compressed ones, old formats).  Checksums are verified in both passes: a damaged batch ends the
cleaning with an error, it never gets a new checksum.

Memory: one read and one write buffer, which grow for a batch that does not fit and shrink again (C08), the map, and the
decompressed records of a few batches.  The segments are read through `File.pread_into`; only files of its own names
are written.  One thread at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Final, NamedTuple

from stratalog.base.types import MAX_INT32, Buffer
from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.transactions import Transactions
from stratalog.records import batch as batches
from stratalog.records import legacy, offset_map
from stratalog.records.arrow import payloads_of
from stratalog.records.errors import CorruptBatch
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_TRUNCATED,
    CODEC_MASK,
    CONTROL,
    COUNT,
    DISCARD,
    EMPTY_TRANSACTION,
    LAST_OFFSET,
    MAGIC,
    MAP_FULL,
    NEEDS_PYTHON,
    OK,
    OUT_ROW,
    OUTPUT_FULL,
    POSITION,
    PRODUCER_ID,
    RETAIN_EMPTY,
    ROW,
    SIZE,
    TABLE_FULL,
    TEXTS,
    TRANSACTIONAL,
    BatchTable,
    FilterRules,
    FilterRun,
    best,
)
from stratalog.records.offset_map import OffsetMap
from stratalog.storage import layout, read
from stratalog.storage.log import Log
from stratalog.storage.segment import Segment
from stratalog.storage.values import AbortedTxn, Deletion

CHUNK_BYTES: Final = 2 << 20
"""Read at once: enough for a hundred batches in one call of a kernel, little enough to stay in the processor's cache
on its way from the read to the write."""
PAYLOAD_BYTES_MAX: Final = 8 << 20
"""Decompressed records held at once, beyond the first batch's."""
_TABLE_ROWS: Final = 4096


class LastRecord(NamedTuple):
    """The last thing that the log has of an active producer."""

    offset: int
    """Of its last data record, -1 where there is none: then a marker is the last."""
    epoch: int


class Stats:
    """What a cleaning has done, for the log line, the metrics and `stratalog compact`."""

    __slots__ = (
        "bytes_read",
        "bytes_written",
        "invalid",
        "map_bytes_read",
        "map_utilization",
        "records_read",
        "records_written",
        "segments_read",
        "segments_written",
    )

    def __init__(self) -> None:
        self.map_bytes_read = 0
        self.map_utilization = 0.0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_written = 0
        self.segments_read = 0
        self.segments_written = 0
        self.invalid = 0
        """Records without a key: they have no place in a compacted log and are dropped."""


class Stopped(Exception):
    """The cleaning was told to stop."""


class Ready(NamedTuple):
    """New segments, written and synced, and those that they replace."""

    new: list[Segment]
    old: list[Segment]


class Cleaning:
    """See the module."""

    def __init__(
        self,
        log: Log,
        target: choice.Range,
        make_map: Callable[[], OffsetMap],
        *,
        now_ms: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """`make_map` runs first, on the cleaner's thread: it may have to load the kernels."""
        self.log = log
        self.target = target
        self.now_ms = now_ms
        self.stats = Stats()
        self.end_offset = target.first_dirty
        """The new checkpoint, known after pass 1."""
        self.ready: Ready | None = None
        self.done = False
        self.bytes_total = 0
        """What both passes will read, for a progress bar; pass 2's share is known after pass 1."""
        self._make_map = make_map
        self._map: OffsetMap
        self._guard = threading.Lock()
        self._stopped = False
        self._made: list[str] = []
        self._chunk = chunk_bytes
        self._read = memoryview(bytearray(chunk_bytes))
        self._table = BatchTable(_TABLE_ROWS)
        self._output = memoryview(bytearray(chunk_bytes + (256 << 10)))
        self._segments = [s for s in log.segments if s.base_offset < target.first_uncleanable]
        self._config = log.config
        self._directory = log.directory
        self._last_records = {
            entry.producer_id: LastRecord(entry.last_offset, entry.epoch) for entry in log.producers.entries.values()
        }
        self._kept_offsets = {last.offset for last in self._last_records.values() if last.offset >= 0}
        self._pids_without_data = {pid for pid, last in self._last_records.items() if last.offset < 0}
        self._moved = 0
        """Bytes read and written since `advance` began, for the throttle."""
        self._work = self._run()

    # --- from the loop ---------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """No further file is made from here on; the thread notices at its next chunk."""
        with self._guard:
            self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped

    def swap(self) -> Deletion | None:
        """Put what is ready in its place, on the loop.  None when the log has changed below it: then it is dropped."""
        ready, self.ready = self.ready, None
        assert ready is not None and not self._stopped
        live = {id(segment) for segment in self.log.segments}
        if not all(id(segment) in live for segment in ready.old):
            self._discard(ready.new)
            return None
        names = {_name(segment) for segment in ready.new}
        try:
            deletion = self.log.replace_segments(ready.new, ready.old)
        except OSError:
            if self.log.is_over:  # half done perhaps: the next load finds out, from all that is there
                self._made[:] = [name for name in self._made if name not in names]
            raise
        self._made[:] = [name for name in self._made if name not in names]
        return deletion

    def discard(self) -> None:
        """Remove what was written and not swapped in; on the loop, after the thread has let go.  Of a swap that found
        no room, `.swap` goes first: without a `.cleaned` beside it, a load would take it for complete."""
        self.ready = None
        for state in (layout.SWAP, layout.CLEANED):
            for name in self._made:
                for kind in layout.SEGMENT_SUFFIXES:
                    path = f"{self.log.directory}/{name}{kind}{state}"
                    self.log.disk.unlink(path, missing_ok=True)
        self._made.clear()

    def _discard(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.drop()
        self.discard()

    # --- on a cleaner thread ---------------------------------------------------------------------------------------
    def advance(self, budget_bytes: int) -> int:
        """Work on for about `budget_bytes`; returns the bytes read and written.  `Stopped`, `CorruptBatch`,
        `OSError`."""
        assert self.ready is None and not self.done
        self._moved = 0
        for _ in self._work:
            if self.ready is not None:
                return self._moved
            if self._moved >= budget_bytes:
                return self._moved
        self.done = True
        return self._moved

    def _run(self) -> Iterator[None]:
        self._map = self._make_map()
        yield from self._build_map()
        rules = self._rules()
        included = [segment for segment in self._segments if segment.base_offset < self.end_offset]
        self.bytes_total = self.stats.map_bytes_read + sum(segment.size for segment in included)
        transactions = Transactions()
        horizon = self._legacy_horizon()
        for indexes in choice.group(
            included,
            size_max=self._config.segment_bytes,
            index_bytes_max=self._config.segment_index_bytes,
            first_uncleanable=self.target.first_uncleanable,
        ):
            yield from self._rewrite([included[i] for i in indexes], rules, transactions, horizon)

    def _check(self) -> None:
        if self._stopped:
            raise Stopped

    # --- pass 1 ----------------------------------------------------------------------------------------------------
    def _build_map(self) -> Iterator[None]:
        """Every key of the dirty range with its highest offset, as far as the map goes."""
        offsets = self._map
        offsets.clear()
        first = self.target.first_dirty
        segments = self._segments
        dirty = [i for i, s in enumerate(segments) if self._next_base(i) > first]
        self.bytes_total = sum(segments[i].size for i in dirty) + sum(segment.size for segment in segments)
        transactions = Transactions()
        transactions.add(self._aborted(first, self.target.first_uncleanable))
        full = False
        for index in dirty:
            segment = segments[index]
            start = segment.lookup(first) if segment.base_offset < first else 0
            for table, data in self._chunks(segment, start, self._next_base(index)):
                self.stats.map_bytes_read += table.end
                verdicts = self._aborted_rows(data, table, transactions)
                full = self._put(data, table, verdicts, segment)
                if full:
                    break
                yield
            if full:
                break
            offsets.advance(self._next_base(index) - 1)
        self.stats.map_utilization = offsets.utilization
        self.end_offset = max(offsets.latest_offset + 1, first)

    def _next_base(self, index: int) -> int:
        segments = self._segments
        return segments[index + 1].base_offset if index + 1 < len(segments) else self.target.first_uncleanable

    def _aborted(self, start: int, end: int) -> list[AbortedTxn]:
        return read.aborted_between(self.log, start, end)

    def _aborted_rows(self, data: memoryview, table: BatchTable, transactions: Transactions) -> bytearray | None:
        """Which batches of the chunk are an aborted transaction's; None where no batch is in a transaction."""
        attributes = table.column(ATTRIBUTES)
        if not _any_of(attributes, TRANSACTIONAL | CONTROL):
            return None
        verdicts = bytearray(table.count)
        for index, bits in enumerate(attributes):
            if bits & CONTROL:
                transactions.marker_is_last(data, batches.read_header(data, table.row(index)[POSITION]))
            elif bits & TRANSACTIONAL:
                row = table.row(index)
                if transactions.is_aborted(row[PRODUCER_ID], row[LAST_OFFSET]):
                    verdicts[index] = DISCARD
        transactions.retained.clear()
        return verdicts

    def _put(self, data: memoryview, table: BatchTable, verdicts: bytearray | None, segment: Segment) -> bool:
        """One chunk's keys into the map; True when it is full."""
        start = 0
        payloads: dict[int, Buffer] = {}
        while True:
            code, row, _ = self._map.put_run(
                data, table, first=start, start_offset=self.target.first_dirty, verdicts=verdicts, payloads=payloads
            )
            if code == OK:
                return False
            if code == MAP_FULL:
                return True
            if code != NEEDS_PYTHON:
                raise _damaged(segment, code, table.row(row)[BASE_OFFSET])
            start = row
            payloads = self._unpacked(data, table, row, verdicts)

    def _unpacked(
        self, data: memoryview, table: BatchTable, first: int, verdicts: bytearray | None
    ) -> dict[int, Buffer]:
        """The records of the next batches that are compressed or of an old format, as many as memory allows."""
        payloads: dict[int, Buffer] = {}
        held = 0
        for index in range(first, table.count):
            at = index * ROW
            if not table.rows[at + ATTRIBUTES] & CODEC_MASK and table.rows[at + MAGIC] == 2:
                continue
            if verdicts is not None and verdicts[index] & DISCARD:
                continue
            found = payloads_of(data, table, (index,))
            payloads.update(found)
            held += sum(map(len, found.values()))
            if held > PAYLOAD_BYTES_MAX:
                break
        return payloads

    # --- reading ---------------------------------------------------------------------------------------------------
    def _chunks(self, segment: Segment, start: int, limit: int) -> Iterator[tuple[BatchTable, memoryview]]:
        """The segment's batches from a position on, some at a time: a table and the bytes that it speaks of.  `limit`
        is where the next segment begins."""
        position = start
        last = segment.base_offset - 1
        end = segment.size
        table = self._table
        scan = best().scan_batches
        while position < end:
            self._check()
            wanted = min(len(self._read), end - position)
            got = segment.file.pread_into(self._read[:wanted], position)
            if got < wanted:
                raise CorruptBatch(f"{segment.path}: {wanted} bytes wanted at {position}, {got} are there")
            self._moved += got
            data = self._read[:got]
            at = 0
            while at < got:
                scan(data, table, at, verify=True)
                if not table.count:
                    break
                stop = table.end
                table.end = stop - at  # what this table covers
                last = _check_order(segment, table, last, limit)
                yield table, data
                at = stop
                if table.error != TABLE_FULL and table.error != OK:
                    break
            if table.error not in (OK, TABLE_FULL, BATCH_TRUNCATED):
                raise _damaged(segment, table.error, -1, position + at)
            position += at
            if not at:
                self._grow(segment, data, position, end)
        self._shrink()

    def _grow(self, segment: Segment, data: memoryview, position: int, end: int) -> None:
        """One batch is larger than the buffer: read it whole."""
        if end - position < 12 + 14:
            raise _damaged(segment, BATCH_TRUNCATED, -1, position)
        size = int(batches.INT32.unpack_from(data, batches.LENGTH_AT)[0]) + batches.LOG_OVERHEAD
        if size > end - position or size <= len(data):
            raise _damaged(segment, BATCH_TRUNCATED, -1, position)
        self._read = memoryview(bytearray(size))

    def _shrink(self) -> None:
        if len(self._read) > self._chunk:
            self._read = memoryview(bytearray(self._chunk))
        if len(self._output) > 2 * self._chunk + (256 << 10):
            self._output = memoryview(bytearray(self._chunk + (256 << 10)))

    # --- pass 2 ----------------------------------------------------------------------------------------------------
    def _rules(self) -> FilterRules:
        first, end = self.target.first_dirty, self._map.latest_offset + 1
        bitmap = self._map.survivors(first, end)
        return FilterRules(
            latest_offset=self._map.latest_offset,
            now_ms=self.now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            bitmap=bitmap,
            bitmap_start=first,
            bitmap_stop=end if bitmap is not None else first,
        )

    def _legacy_horizon(self) -> int:
        """Old formats have no delete horizon: their tombstones go when their segment's file is older than this."""
        clean = [segment for segment in self._segments if segment.base_offset < self.target.first_dirty]
        return clean[-1].file.mtime_ms() - self._config.delete_retention_ms if clean else 0

    def _rewrite(
        self, group: list[Segment], rules: FilterRules, transactions: Transactions, horizon: int
    ) -> Iterator[None]:
        """One group of segments into (as a rule) one new segment."""
        writer = _Writer(self, group, transactions)
        for segment in group:
            stop = self._next_base(self._segments.index(segment))
            transactions.add(self._aborted(segment.base_offset, stop))
            keeps_old_tombstones = segment.file.mtime_ms() > horizon
            for table, data in self._chunks(segment, 0, stop):
                self.stats.bytes_read += table.end
                verdicts = self._verdicts(data, table, transactions)
                self._filter(segment, data, table, verdicts, rules, writer, keeps_old_tombstones)
                yield
            self.stats.segments_read += 1
        new = writer.finish()
        self.stats.segments_written += len(new)
        self.ready = Ready(new, list(group))
        yield

    def _verdicts(self, data: memoryview, table: BatchTable, transactions: Transactions) -> bytearray:
        """What is decided for each batch before its records are looked at."""
        verdicts = bytearray(table.count)
        attributes = table.column(ATTRIBUTES)
        lasts = table.column(LAST_OFFSET)
        upper = self.target.first_uncleanable - 1
        if _any_of(attributes, TRANSACTIONAL | CONTROL):
            self._transactional(data, table, transactions, verdicts)
        if lasts and lasts[-1] >= upper:
            for index, last in enumerate(lasts):
                if last == upper:
                    verdicts[index] |= RETAIN_EMPTY
        kept = self._kept_offsets
        if kept and not kept.isdisjoint(lasts):
            pids = table.column(PRODUCER_ID)
            for index, last in enumerate(lasts):
                if last in kept and pids[index] >= 0:
                    found = self._last_records.get(pids[index])
                    if found is not None and found.offset == last:
                        verdicts[index] |= RETAIN_EMPTY
        return verdicts

    def _transactional(
        self, data: memoryview, table: BatchTable, transactions: Transactions, verdicts: bytearray
    ) -> None:
        for index in range(table.count):
            at = index * ROW
            bits = table.rows[at + ATTRIBUTES]
            if bits & CONTROL:
                header = batches.read_header(data, table.rows[at + POSITION])
                if transactions.marker_is_last(data, header):
                    due = header.delete_horizon_ms
                    verdicts[index] |= EMPTY_TRANSACTION
                    if due is not None and due <= self.now_ms:
                        verdicts[index] |= DISCARD
                pid = header.producer_id
                if pid in self._pids_without_data and self._last_records[pid].epoch == header.producer_epoch:
                    verdicts[index] |= RETAIN_EMPTY
            elif bits & TRANSACTIONAL and transactions.is_aborted(
                table.rows[at + PRODUCER_ID], table.rows[at + LAST_OFFSET]
            ):
                verdicts[index] |= DISCARD

    def _filter(
        self,
        segment: Segment,
        data: memoryview,
        table: BatchTable,
        verdicts: bytearray,
        rules: FilterRules,
        writer: _Writer,
        keeps_old_tombstones: bool,
    ) -> None:
        """Write what survives of one chunk."""
        row = 0
        while row < table.count:
            run = self._map.filter_run(data, table, rules, verdicts, self._output, first=row)
            self._count(run)
            if run.output_size:
                writer.write([self._output[: run.output_size]], run.written)
            row = run.next_row
            if run.code == OK:
                return
            if run.code == OUTPUT_FULL:
                if not run.output_size:
                    needed = table.row(row)[SIZE] + 10 * max(table.row(row)[COUNT], 0) + batches.HEADER_SIZE
                    assert needed > len(self._output), "an empty output is too small for what fits into it"
                    self._output = memoryview(bytearray(needed))
            elif run.code != NEEDS_PYTHON:
                raise _damaged(segment, run.code, table.row(row)[BASE_OFFSET])
            elif table.rows[row * ROW + MAGIC] != 2:
                self._old(data, table, row, rules, writer, keeps_old_tombstones)
                row += 1
            else:  # compressed: as many of the batches that follow as the output has room for
                run, buffers = offset_map.rewrite_run(data, table, rules, verdicts, self._map, self._output, first=row)
                row = run.next_row
                if run.code != OK:
                    raise _damaged(segment, run.code, table.row(row)[BASE_OFFSET])
                self._count(run)
                if buffers:
                    writer.write(buffers, run.written)

    def _count(self, run: FilterRun) -> None:
        self.stats.records_read += run.records_read
        self.stats.records_written += run.records_kept
        self.stats.invalid += run.keyless

    def _old(
        self,
        data: memoryview,
        table: BatchTable,
        row: int,
        rules: FilterRules,
        writer: _Writer,
        keeps_old_tombstones: bool,
    ) -> None:
        """A batch of an old format."""
        stats = self.stats
        header = batches.read_header(data, table.row(row)[POSITION])
        old = list(legacy.legacy_records_of(data, header))
        left = [record for record in old if self._keeps_old(record, rules, keeps_old_tombstones)]
        stats.records_read += len(old)
        stats.records_written += len(left)
        if not left:
            return
        kept: Buffer = data[header.position : header.end]
        if len(left) < len(old):
            kept = legacy.build_message_set(
                left,
                header.magic,
                codec=header.codec,
                timestamp_type=max(header.timestamp_type, 0),
                log_append_time=header.max_timestamp,
            )
        newest = max(record.timestamp for record in left)
        writer.write([kept], (0, len(kept), left[0].offset, left[-1].offset, newest, len(left), row, 1))

    def _keeps_old(self, record: batches.Record, rules: FilterRules, keeps_tombstones: bool) -> bool:
        if record.offset > rules.latest_offset:
            return True
        if record.key is None:
            self.stats.invalid += 1
            return False
        return self._map.get(record.key) <= record.offset and (record.value is not None or keeps_tombstones)

    # --- files -----------------------------------------------------------------------------------------------------
    def new_segment(self, base_offset: int) -> Segment:
        """An empty `.cleaned` segment.  Not after `stop`: the directory may be somebody else's by then."""
        with self._guard:
            self._check()
            self._made.append(f"{base_offset:020d}")
            return Segment.create(
                self.log.disk, self.log.directory, base_offset, self._config, self.now_ms, state=layout.CLEANED
            )

    def count_written(self, size: int) -> None:
        self._moved += size
        self.stats.bytes_written += size


class _Writer:
    """The new segments of one group.  One, but where recompression or merging makes more than one segment's worth:
    then the next one begins at the batch that does not fit, and each has the rows of its own transaction index (C13).
    The first write to an empty segment always fits."""

    __slots__ = ("_job", "_limit", "_modified_ms", "_segments", "_transactions")

    def __init__(self, job: Cleaning, group: list[Segment], transactions: Transactions) -> None:
        self._job = job
        self._transactions = transactions
        self._limit = min(max(job._config.segment_bytes, sum(segment.size for segment in group)), MAX_INT32)
        self._modified_ms = group[-1].file.mtime_ms()
        self._segments = [job.new_segment(group[0].base_offset)]

    def write(self, buffers: Sequence[Buffer], rows: Sequence[int]) -> None:
        """Batches one after the other; `rows` as `filter_run` gives them, places counted over all buffers."""
        size_of_all = sum(map(len, buffers))
        segment = self._segments[-1]
        last = rows[len(rows) - OUT_ROW + 3]
        count = len(rows) // OUT_ROW
        if (
            segment.size + size_of_all <= self._limit
            and last - segment.base_offset <= MAX_INT32
            and segment.offset_index.entries + count < segment.offset_index.file.max_entries
            and segment.time_index.entries + count < segment.time_index.file.max_entries - 1
        ):
            self._put(segment, buffers, size_of_all, rows)
        else:
            view = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
            for at in range(0, len(rows), OUT_ROW):
                start, size, base, last = rows[at : at + 4]
                segment = self._segments[-1]
                if segment.size and (
                    segment.size + size > self._limit
                    or last - segment.base_offset > MAX_INT32
                    or segment.offset_index.is_full()
                    or segment.time_index.is_full()
                ):
                    self._index_transactions(base)
                    segment.become_inactive()
                    segment = self._job.new_segment(base)
                    self._segments.append(segment)
                self._put(segment, [view[start : start + size]], size, (0, *rows[at + 1 : at + OUT_ROW]))
        self._job.count_written(size_of_all)

    def _put(self, segment: Segment, buffers: Sequence[Buffer], size_of_all: int, rows: Sequence[int]) -> None:
        base_position = segment.size
        segment.file.pwritev(buffers, base_position)
        note = segment.note
        for at in range(0, len(rows), OUT_ROW):
            note(
                last_offset=rows[at + 3],
                max_timestamp=rows[at + 4],
                position=base_position + rows[at],
                size=rows[at + 1],
            )
        segment.size = base_position + size_of_all

    def _index_transactions(self, before: int) -> None:
        """The rows of aborted transactions whose marker lies below an offset belong to the current segment."""
        retained = self._transactions.retained
        while retained and retained[0].last_offset < before:
            self._segments[-1].txn_index.append(retained.pop(0))

    def finish(self) -> list[Segment]:
        """Close and sync; the file keeps the time of the newest source, which retention may go by."""
        self._index_transactions(1 << 62)
        for segment in self._segments:
            if segment.state and segment.offset_index.entries >= 0:
                segment.become_inactive()
            # Before the sync: the swap syncs once more, on the loop, and must find nothing to write there.
            segment.disk.set_mtime_ms(segment.path, self._modified_ms)
            for file in segment.sync_files():
                file.fsync()
        return self._segments


def _any_of(attributes: Sequence[int], bits: int) -> bool:
    return any(value & bits for value in set(attributes))


def _check_order(segment: Segment, table: BatchTable, last: int, limit: int) -> int:
    """The table's last offset.  A base offset is in no checksum: one that rot has raised would take the place of every
    other record of its keys, and the checkpoint with it."""
    bases, lasts = table.column(BASE_OFFSET), table.column(LAST_OFFSET)
    if bases[0] > last and lasts[-1] < limit and all(map(lt, lasts, islice(bases, 1, None))):
        return int(lasts[-1])
    for base, end in zip(bases, lasts, strict=True):
        if not last < base <= end < limit:
            raise CorruptBatch(
                f"{segment.path}: a batch of the offsets {base} to {end} follows offset {last}, in a segment that "
                f"ends before {limit}"
            )
        last = end
    raise AssertionError("the batches are in order")


def _name(segment: Segment) -> str:
    return f"{segment.base_offset:020d}"


def _damaged(segment: Segment, code: int, offset: int, position: int = -1) -> CorruptBatch:
    where = f" at offset {offset}" if offset >= 0 else f" at byte {position}" if position >= 0 else ""
    return CorruptBatch(f"{segment.path}{where}: {TEXTS.get(code, code)}")
