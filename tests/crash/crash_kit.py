"""What the crash tests share: a log on a simulated disk, a naive model of what it promised, and the oracle.

`World` runs a log and writes down, for each moment of the disk's journal, what a recovery may and must find (`State`).
`check` recovers a disk as a broker does, from the checkpoints and the marker that are on it, and compares; it parses
the files by itself and trusts nothing of the engine but its answers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import crc32c

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.cleaning import Cleaning
from stratalog.logs.cleaner.manager import facts_of
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.records.offset_map import OffsetMap
from stratalog.sim.crash import Crashes, Recording
from stratalog.sim.disk import SimDisk
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation, Log, Origin

NOW = 1_700_000_000_000
DATA = "/data"
PARTITION = f"{DATA}/t-0"
TOPIC_ID = Uuid(bytes(range(16)))
CONFIG = LogConfig(segment_bytes=900, segment_index_bytes=120, index_interval_bytes=150)
KEY = ("t", 0)
HEADER = struct.Struct(">qiibIhiqqqhii")
CLEAN = f"{DATA}/{layout.CLEAN_SHUTDOWN}"


def clock():
    return NOW


class Row(NamedTuple):
    """A batch of the model."""

    base: int
    last: int
    data: bytes

    @property
    def fields(self):
        return HEADER.unpack_from(self.data)


class State(NamedTuple):
    """What must hold when the power fails now.

    The recovered log is a run of whole batches of one of `lines`; it reaches at least to `floor`, begins between
    `start_min` and `start_max`, and ends nowhere but at a batch of the line, or, empty, at one of `ends`.
    """

    lines: tuple[tuple[Row, ...], ...] = ((),)
    floor: int = 0
    start_min: int = 0
    start_max: int = 0
    ends: frozenset[int] = frozenset({0})
    clean_end: int | None = None
    assigned: tuple[tuple[int, int], ...] = ()
    topic_known: bool = False
    config: LogConfig = CONFIG


def new_disk():
    disk = SimDisk(clock=clock)
    disk.mkdir(DATA)
    disk.fsync_dir("/")
    return disk


def open_log(disk, config=CONFIG):
    """As the registry does at its start: the marker is taken, then the checkpoints count, then the log is loaded."""
    clean = checkpoints.take_clean_shutdown(disk, DATA) is not None

    def offsets(name):
        try:
            return checkpoints.read_offsets(disk, f"{DATA}/{name}").get(KEY)
        except Malformed:
            return None

    log = Log.open(
        disk,
        PARTITION,
        topic="t",
        partition=0,
        config=config,
        now_ms=NOW,
        topic_id=TOPIC_ID,
        log_start_offset=offsets(layout.LOG_STARTS) or 0,
        recovery_point=offsets(layout.RECOVERY_POINTS) or 0,
        had_clean_shutdown=clean,
    )
    high = offsets(layout.HIGH_WATERMARKS)
    if high is not None:
        log.update_high_watermark(high)
    return log


def make_batch(values, *, keys=None, pid=-1, epoch=-1, sequence=-1, txn=False, codec=0, timestamp=NOW):
    builder = batches.BatchBuilder(
        base_offset=0,
        leader_epoch=-1,
        codec=codec,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=txn,
    )
    for i, value in enumerate(values):
        builder.append(timestamp + i, None if keys is None else keys[i], value)
    return builder.build()


class World:
    """A log, its disk, and the timeline of what it has promised."""

    def __init__(self, config=CONFIG, disk=None):
        self.config = config
        self.disk = disk or new_disk()
        self.state = State(config=config)
        self.timeline = [(0, self.state)]
        self.start = len(self.disk.journal)
        self.sequences = {}
        self.epoch = 0
        self.time = NOW - 1_000_000
        self.count = 0
        self.attempted = None
        """What the last append was about to write."""
        self.log = open_log(self.disk, config)

    def recording(self, name):
        return Recording(name, self.disk, self.timeline, start=self.start)

    # --- the model ----------------------------------------------------------------------------------------------------
    def may(self, begin, **changes):
        """Holds from the first operation behind `begin` on."""
        self.state = self.state._replace(**changes)
        self.timeline.append((begin + 1, self.state))

    def must(self, **changes):
        """Holds from here on."""
        self.state = self.state._replace(**changes)
        self.timeline.append((len(self.disk.journal), self.state))

    @property
    def here(self):
        return len(self.disk.journal)

    @property
    def line(self):
        return self.state.lines[-1]

    def _grown(self, *rows):
        return (*self.state.lines[:-1], (*self.line, *rows))

    # --- what it does -------------------------------------------------------------------------------------------------
    def append(self, n=1, *, pid=None, txn=False, size=40, codec=0, keys=None, epoch=0):
        self.count += 1
        self.time += 7
        values = [f"{self.count}:{i}:".encode().ljust(size, b"v") for i in range(n)]
        sequence = -1
        if pid is not None:
            sequence = self.sequences.get((pid, epoch), 0)
            self.sequences[pid, epoch] = sequence + n
        raw = make_batch(
            values,
            keys=keys,
            pid=-1 if pid is None else pid,
            epoch=-1 if pid is None else epoch,
            sequence=sequence,
            txn=txn,
            codec=codec,
            timestamp=self.time,
        )
        guard = self.log.start_verification(pid, sequence, epoch, False, NOW) if txn else None
        return self._put(raw, guard=guard)

    def marker(self, pid, *, commit, epoch=0):
        self.time += 7
        raw = control.build_marker(
            committed=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=0, timestamp=self.time
        )
        return self._put(raw, origin=Origin.COORDINATOR)

    def _put(self, raw, **options):
        begin = self.here
        payload = self.attempted = memoryview(bytearray(raw))
        info = self.log.append_as_leader(payload, self.epoch, NOW, **options)
        assert not info.duplicate
        row = Row(info.first_offset, info.last_offset, bytes(payload))
        self.may(begin, lines=self._grown(row), clean_end=None)
        self.log.maybe_increment_high_watermark(self.log.log_end)
        return row

    def follow(self, rows):
        """A follower's append of these batches, verbatim."""
        begin = self.here
        self.log.append_as_follower(b"".join(row.data for row in rows), 1 << 20, NOW)
        self.may(begin, lines=self._grown(*rows), clean_end=None)
        self.log.update_high_watermark(self.log.log_end_offset)

    def flush(self):
        if self.log.recovery_point == self.log.log_end_offset:
            self.log.flush()
            return  # what a truncation has cut off may come back until something is written behind the cut
        self.log.flush()
        self.must(lines=(self.line,), floor=self.log.recovery_point, topic_known=True)

    def checkpoint(self):
        """As `LogRegistry.checkpoint`."""
        log = self.log
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.RECOVERY_POINTS}", {KEY: log.recovery_point})
        starts = {} if log.is_start_in_a_name else {KEY: log.log_start_offset}
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.LOG_STARTS}", starts)
        self.must(start_min=max(self.state.start_min, log.log_start_offset if starts else 0))

    def checkpoint_high_watermark(self):
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.HIGH_WATERMARKS}", {KEY: self.log.high_watermark})

    def roll(self):
        self.log.roll(NOW)

    def new_epoch(self):
        self.epoch += 1
        begin = self.here
        row = (self.epoch, self.log.log_end_offset)
        self.log.assign_epoch(*row)
        self.may(begin, assigned=(*self.state.assigned, row))

    def truncate(self, offset):
        begin = self.here
        kept = tuple(row for row in self.line if row.last < offset)
        floor = min(self.state.floor, kept[-1].last + 1 if kept else 0)
        self.log.truncate_to(offset, NOW)
        self.may(begin, lines=(*self.state.lines, kept), floor=floor, clean_end=None)
        self.sequences = {(pid, one.epoch): one.last_sequence + 1 for pid, one in self.log.producers.entries.items()}
        self.checkpoint()  # whoever truncates tells the disk that the recovery point went back

    def start_at(self, offset):
        """Everything goes; the log begins at `offset`."""
        begin = self.here
        self.log.truncate_fully_and_start_at(offset, NOW)
        self.may(
            begin,
            lines=(*self.state.lines, ()),
            floor=0,
            start_max=max(offset, self.state.start_max),
            ends=self.state.ends | {offset},
            clean_end=None,
        )
        self.sequences.clear()

    def delete_records(self, offset):
        begin = self.here
        self.log.delete_records(offset)
        self.may(begin, start_max=max(self.state.start_max, self.log.log_start_offset))

    def delete_segments(self, n):
        begin = self.here
        deletion = self.log.delete_segments(self.log.segments[:n], "retention", NOW)
        start = self.log.log_start_offset
        self.may(begin, start_max=max(self.state.start_max, start), ends=self.state.ends | {start})
        self.log.finish_deletion(deletion)

    def close(self):
        """A clean stop of the broker."""
        log = self.log
        log.close()
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.RECOVERY_POINTS}", {KEY: log.recovery_point})
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.HIGH_WATERMARKS}", {KEY: log.high_watermark})
        starts = {KEY: log.log_start_offset} if log.log_start_offset > 0 else {}
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.LOG_STARTS}", starts)
        begin = self.here
        checkpoints.write_clean_shutdown(self.disk, DATA, 1)
        self.may(
            begin,
            lines=(self.line,),
            floor=log.log_end_offset,
            clean_end=log.log_end_offset,
            start_min=max(self.state.start_min, log.log_start_offset),
            topic_known=True,
        )

    def reopen(self):
        self.log = open_log(self.disk, self.config)

    def killed(self):
        """The process dies and is started again; the disk goes on."""
        self.log.close(clean=False)
        self.reopen()
        self.log.update_high_watermark(self.log.log_end_offset)
        self.sequences = {(pid, one.epoch): one.last_sequence + 1 for pid, one in self.log.producers.entries.items()}

    def crash(self, point, variant, rng):
        """The power fails at `point` of the journal; what is found is checked, and life goes on with it.  False where
        the variant makes no difference."""
        walker = Crashes(self.disk)
        walker.advance(point)
        image = walker.image(variant, rng)
        if image is None:
            return False
        expected = self.recording("model").expected(point)
        check(image.disk(clock), expected)
        self.disk = image.disk(clock)
        self.log = log = open_log(self.disk, self.config)
        rows = parse(self.disk, log)
        end, start = log.log_end_offset, log.log_start_offset
        history = _line_of(rows, expected, log)
        log.update_high_watermark(end)
        self.state = State(
            lines=(tuple(row for row in history if row.last < end),),
            floor=end,  # what was found there is on the platter
            start_min=start,
            start_max=max(start, expected.start_max),  # what was being deleted has lost its epochs
            ends=frozenset({start, end}),
            assigned=tuple(log.epochs.rows),
            config=self.config,
        )
        self.start = 0
        self.timeline = [(0, self.state)]
        self.sequences = {(pid, one.epoch): one.last_sequence + 1 for pid, one in log.producers.entries.items()}
        return True

    def swap(self, n, keep):
        """Clean the first `n` segments into one: only the batches for which `keep(row)` is true stay."""
        log = self.log
        old = log.segments[:n]
        end = log.segments[n].base_offset
        begin = self.here
        fresh = log.new_cleaned_segment(old[0].base_offset, NOW)
        inside = [row for row in self.line if row.base < end]
        kept = [row for row in inside if keep(row) or row is inside[-1]]
        for row in kept:
            fresh.file.pwritev([row.data], fresh.size)
            fresh.note(last_offset=row.last, max_timestamp=row.fields[8], position=fresh.size, size=len(row.data))
            fresh.size += len(row.data)
        fresh.become_inactive()
        deletion = log.replace_segments([fresh], old)
        cleaned = (*kept, *(row for row in self.line if row.base >= end))
        self.may(begin, lines=(self.line, cleaned))
        self.must(lines=(cleaned,))
        log.finish_deletion(deletion)

    def clean(self):
        """The cleaner on all that it may clean; its checkpoint behind it."""
        log = self.log
        count = len(self.line)
        target = choice.cleanable(facts_of(log), None, NOW)
        job = Cleaning(log, target, lambda: OffsetMap(24 * 200, secret=bytes(16)), now_ms=NOW, chunk_bytes=2048)
        while not job.done:
            job.advance(1 << 20)
            if job.ready is not None:
                begin = self.here
                before = self.line
                deletion = job.swap()
                after = tuple(parse(self.disk, log))
                assert latest(before) == latest(after), "LM-4: the latest value of a key has changed"
                self.may(begin, lines=(before, after))
                self.must(lines=(after,))
                log.finish_deletion(deletion)
        job.discard()
        assert len(self.line) < count
        checkpoints.write_offsets(self.disk, f"{DATA}/{layout.CLEANER_OFFSETS}", {KEY: job.end_offset})


def latest(rows):
    """Key to offset and value of its last record."""
    return {
        record.key: (record.offset, record.value)
        for row in rows
        for record in batches.records_of(row.data, batches.read_header(row.data))
    }


# --- the oracle -----------------------------------------------------------------------------------------------------
def check(disk, state):
    """Recover, and hold what is there against the model: ST-1 to ST-10, ST-13, ST-14, LM-1, LM-2, LM-5, LM-10."""
    had_marker = disk.exists(CLEAN)
    log = open_log(disk, state.config)
    assert not disk.exists(CLEAN), "ST-10: the marker is still there after the load"
    log.check_invariants()
    _check_names(disk, log)
    rows = parse(disk, log)
    end = log.log_end_offset
    start = log.log_start_offset
    assert end >= state.floor, f"ST-4: the log ends at {end}, what was flushed reaches to {state.floor}"
    if had_marker:
        assert end == state.clean_end, f"ST-10: a marker of a clean stop, but the log ends at {end}"
    kinds = {finding.kind for finding in log.report.findings}
    if "log-start-beyond-end" in kinds:
        assert not rows and end == start <= state.start_max, "D19: only a log whose start was checkpointed is emptied"
        assert state.floor <= end
    else:
        assert not log.report.damaged, f"D17: a crash alone never damages flushed data: {log.report.findings}"
    line = _line_of(rows, state, log)
    assert state.start_min <= start <= max(state.start_max, state.start_min), (
        f"LM-2: the log begins at {start}, not in [{state.start_min}, {state.start_max}]"
    )
    _check_epochs(log, rows, state)
    replayed = replay(row for row in line or rows if row.last < end)
    if line is not None:
        _check_producers(log, rows, replayed)
    _check_indexes(log, rows)
    check_reads(log, rows)
    _check_goes_on(log, rows, replayed if line is not None else ({}, {}, []))


def recover(disk, state):
    open_log(disk, state.config)


def _check_names(disk, log):
    bases = {segment.base_offset for segment in log.segments}
    for name in disk.listdir(PARTITION):
        parsed = layout.parse(name)
        if parsed is None:
            assert not name.endswith(layout.TEMPORARY), f"{name} is left"
            continue
        assert parsed.state in ("", layout.DAMAGED), f"{name} is left"
        if parsed.kind != layout.SNAPSHOT and not parsed.state:
            assert parsed.offset in bases, f"{name} belongs to no segment"


def parse(disk, log):
    """Every batch of every segment, read from the files: sound, dense enough, nothing behind the last one (ST-1)."""
    rows = []
    last = -1
    for segment in log.segments:
        data = disk.read(segment.path)
        at = 0
        assert len(data) == segment.size
        while at < len(data):
            assert len(data) - at >= 61, f"{segment.path}: {len(data) - at} bytes behind the last batch"
            base, length = struct.unpack_from(">qi", data, at)
            row = data[at : at + length + 12]
            assert 49 <= length == len(row) - 12, f"{segment.path}: no batch at {at}"
            fields = HEADER.unpack_from(row)
            assert fields[3] == 2 and crc32c.crc32c(row[21:]) == fields[4], f"{segment.path}: a bad batch at {at}"
            assert base >= segment.base_offset and base > last, f"ST-1: offset {base} after {last}"
            last = base + fields[6]
            rows.append(Row(base, last, row))
            at += len(row)
    return rows


def _line_of(rows, state, log):
    """ST-5: what is there is a run of whole batches of one line of the history.

    None for a compacted log with a hole above what was flushed: there holes are legal, so a load cannot see that a tail
    was lost at a batch's end when the next segment came through.
    """
    end = log.log_end_offset
    if not rows:
        allowed = set(state.ends) | {row.base for line in state.lines for row in line if row.base <= state.start_max}
        allowed |= {state.start_min}
        longest = max(state.lines, key=len)
        ends = {row.last + 1 for line in state.lines for row in line}
        anywhere = (
            state.config.compact and state.floor == 0
        )  # holes are legal: a later, empty segment may be all there is
        assert end in allowed or (end in ends and (end <= state.start_max or anywhere)), (
            f"ST-5: an empty log that ends at {end}"
        )
        return longest
    reasons = []
    for line in state.lines:
        where = next((i for i, row in enumerate(line) if row.base == rows[0].base), None)
        if where is None:
            reasons.append(f"no batch at {rows[0].base}")
            continue
        same = line[where : where + len(rows)]
        if list(same) != rows:
            at = next((a.base for a, b in zip(rows, same, strict=False) if a != b), "the end")
            reasons.append(f"differs at {at}")
            continue
        needed = next((i for i, row in enumerate(line) if row.last >= log.log_start_offset), len(line))
        if needed < where:
            reasons.append(f"LM-9: a hole from {line[needed].base} to {rows[0].base}")
            continue
        if end != rows[-1].last + 1:
            reasons.append(f"the last batch ends at {rows[-1].last}, the log at {end}")
            continue
        return line
    for line in state.lines:
        there = {row.base for row in rows}
        if state.config.compact and rows == [row for row in line if row.base in there]:
            lost = [row for row in line if row.base not in there and row.last < end]
            if all(row.base >= state.floor for row in lost):
                return None
    raise AssertionError(f"ST-5: {len(rows)} batches {rows[0].base}..{rows[-1].last} are no run: {reasons}")


def replay(rows):
    """Producers, open transactions and aborted ones, from nothing but batches."""
    producers, ongoing, aborted = {}, {}, []
    for row in rows:
        fields = row.fields
        attributes, delta, pid, epoch, sequence = fields[5], fields[6], fields[9], fields[10], fields[11]
        if pid < 0:
            continue
        one = producers.setdefault(pid, {"epoch": -1, "sequence": -1, "offset": -1, "first": -1, "seen": -1})
        if epoch != one["epoch"]:
            one.update(epoch=epoch, sequence=-1, offset=-1)
        one["seen"] = row.last
        if attributes & 0x20:
            marker = control.marker_of(row.data, batches.read_header(row.data))
            if one["first"] >= 0:
                first = ongoing.pop(pid)
                stable = min([*ongoing.values(), row.base + 1])
                if not marker.committed:
                    aborted.append((pid, first, row.base, stable))
            one["first"] = -1
        else:
            one.update(sequence=sequence + delta, offset=row.last, row=row)
            if attributes & 0x10 and one["first"] < 0:
                one["first"] = ongoing[pid] = row.base
    return producers, ongoing, aborted


def _check_producers(log, rows, replayed):
    """ST-8: state = replay from empty."""
    producers, ongoing, aborted = replayed
    first = rows[0].base if rows else log.log_end_offset
    entries = log.producers.entries
    assert set(entries) <= set(producers), f"ST-8: producers {set(entries) - set(producers)} never wrote"
    for pid, one in producers.items():
        entry = entries.get(pid)
        if entry is None:
            assert one["seen"] < first, f"ST-8: producer {pid} is forgotten"
            continue
        assert entry.epoch == one["epoch"], f"ST-8: epoch of {pid} is {entry.epoch}, not {one['epoch']}"
        if one["offset"] >= first:
            found = (entry.last_sequence, entry.last_offset)
            assert found == (one["sequence"], one["offset"]), f"ST-8: {pid} has {found}, not {one}"
        if one["first"] >= first or one["first"] < 0:
            assert entry.txn_first_offset == one["first"], (
                f"ST-8: the transaction of {pid} began at {one['first']}, not {entry.txn_first_offset}"
            )
    opened = {pid: offset for offset, (pid, _) in log.producers.ongoing.items()}
    for pid, offset in ongoing.items():
        assert offset < first or opened.get(pid) == offset, f"ST-8: the transaction of {pid} at {offset} is lost"
    assert set(opened) <= set(ongoing), f"ST-8: transactions are open that are not: {opened}, {ongoing}"
    expected = sorted(row for row in aborted if row[1] >= first)
    found = sorted(tuple(row) for row in log.aborted_between(log.log_start_offset, log.log_end_offset))
    wanted = [row for row in expected if row[2] >= log.log_start_offset]
    assert [row for row in found if row[1] >= first] == wanted, f"ST-6: aborted {found}, not {wanted}"


def _check_epochs(log, rows, state):
    """ST-9: the cache is what the batches say, and what leaders have assigned."""
    epochs = log.epochs
    for row in rows:
        if row.last >= max(log.log_start_offset, state.start_max):  # what is being deleted loses its epochs first
            epoch = epochs.epoch_for_offset(max(row.base, log.log_start_offset, state.start_max))
            assert epoch == row.fields[2], (
                f"ST-9: offset {row.base} is of epoch {row.fields[2]}, the cache says {epoch}"
            )
    starts = {}
    for row in rows:
        starts.setdefault(row.fields[2], row.base)
    for epoch, start in epochs.rows:
        known = starts.get(epoch) == start or (epoch, start) in state.assigned or start <= state.start_max
        assert known, f"ST-9: epoch {epoch} never began at {start}"


def _check_indexes(log, rows):
    """ST-7 for what the files hold: each entry is true."""
    for segment in log.segments:
        position = 0
        batch_at, greatest = {}, []
        top = -1
        for row in rows:
            if segment.base_offset <= row.base and _home(log, row) is segment:
                batch_at[position] = row
                top = max(top, row.fields[8])
                greatest.append((row.last, top))
                position += len(row.data)
        index = segment.offset_index
        for slot in range(index.entries):
            offset, at = index.entry(slot)
            assert at in batch_at and batch_at[at].last == offset, f"ST-7: {segment.path}: index entry {offset}, {at}"
        times = segment.time_index
        before = -1
        for slot in range(times.entries):
            timestamp, offset = times.entry(slot)
            assert timestamp > before, f"ST-7: {segment.path}: time index goes back"
            before = timestamp
            upto = [ts for last, ts in greatest if last <= offset]
            assert upto and upto[-1] == timestamp, f"ST-7: {segment.path}: time index entry {timestamp}, {offset}"
        assert segment.max_timestamp == top, (
            f"ST-7: {segment.path}: greatest timestamp {segment.max_timestamp}, not {top}"
        )


def _home(log, row):
    segments = log.segments
    found = segments[0]
    for segment in segments:
        if segment.base_offset <= row.base:
            found = segment
    return found


def check_reads(log, rows):
    """ST-7, ST-12: each offset is found, nothing is read past the end."""
    start, end = log.log_start_offset, log.log_end_offset
    for row in rows:
        for offset in {row.base, row.last}:
            if offset >= start:
                data = log.read(offset, 1, Isolation.LOG_END)
                assert data.region is not None and data.region.read() == row.data, f"ST-7: read({offset})"
    assert log.read(end, 1 << 20, Isolation.LOG_END).region is None
    for row in rows[:: max(len(rows) // 5, 1)]:
        wanted = row.fields[8]
        expected = next(
            (
                record.offset
                for one in rows
                if one.fields[8] >= wanted
                for record in batches.records_of(one.data, batches.read_header(one.data))
                if record.timestamp >= wanted and record.offset >= start
            ),
            None,
        )
        found = log.offset_for_timestamp(wanted)
        assert (None if found is None else found.offset) == expected, f"ST-7: offset_for_timestamp({wanted})"


def _check_goes_on(log, rows, replayed):
    """ST-14: what was there is still known as a duplicate; ST-1: what comes next gets the next offset."""
    producers = replayed[0]
    end = log.log_end_offset
    log.update_high_watermark(end)
    for pid, one in producers.items():
        if one["offset"] < (rows[0].base if rows else end) or one["sequence"] < 0:
            continue
        row = one["row"]
        payload = bytearray(row.data)
        struct.pack_into(">qii", payload, 0, 0, len(payload) - 12, -1)
        info = log.append_as_leader(payload, 1 << 20, NOW)
        assert info.duplicate and (info.first_offset, info.last_offset) == (row.base, row.last), (
            f"ST-14: a repeated batch of {pid} got {info}"
        )
    payload = make_batch([b"one more"], keys=[b"k"])
    info = log.append_as_leader(payload, 1 << 20, NOW)
    assert info.first_offset == end and log.log_end_offset == end + 1
    data = log.read(end, 1 << 20, Isolation.LOG_END)
    assert data.region is not None and data.region.read()[61:] == bytes(payload)[61:]
    log.flush()
    log.check_invariants()
