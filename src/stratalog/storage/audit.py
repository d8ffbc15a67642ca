"""Auditing what is on disk, without changing it: a partition's directory, or a whole data directory.

`audit` walks every batch of every segment once, with its CRC, and holds all other files against what it saw: indexes
entry by entry, the time index, transaction indexes against the markers, producer snapshots against a replay, leader
epochs against the batches, checkpoints against the logs, topic ids against each other.  Each thing that is wrong is one
`Finding`: the file, the byte where there is one, what is wrong, and what to do.

The directory may belong to a running broker: what is being written, pre-allocated index slots and files that wait for
their deletion are no findings.  Compaction leaves holes between offsets; where nobody says what the topic's policy is
(`compacted=None`), holes are not reported, and what can only be known of a log without holes is not compared.

A file that cannot be read is a finding as well, and the others are looked at all the same.

Memory is bounded by a block of the log, an index and the producers of one partition.  Any thread; keeps nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stratalog.base.failures import ApiError, Malformed
from stratalog.base.ports import Disk, File
from stratalog.base.types import MAX_INT32, Uuid
from stratalog.records import batch as batches
from stratalog.records import control, kernels
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    ROW,
    SIZE,
)
from stratalog.storage import checkpoints, layout
from stratalog.storage.producers import ProducerEntry, ProducerState, decode_snapshot
from stratalog.storage.scan import CONTROL, TRANSACTIONAL, resync, why_invalid
from stratalog.storage.values import OffsetMetadata, Origin

BLOCK_BYTES: Final = 8 << 20
"""Read at once: large against a batch, small against memory."""
_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
_SAME_DAY_MS = 3_600_000
"""A producer that was heard of this shortly before a snapshot was not expired then."""
Progress = Callable[[int, int], None]
CHECKPOINTS = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS, layout.CLEANER_OFFSETS)
_OURS = frozenset(("stratalog-status.json", "stratalog-reserve"))
"""Files of this broker beside those of the format."""
_KNOWN_FILES = frozenset((layout.LEADER_EPOCHS, layout.PARTITION_METADATA, "quorum-state", layout.LOCK))
_RESTORE = "restore this replica from another one, or take what is readable with `stratalog dump --records`"
_REBUILT = "delete the file while the broker is stopped; the next start rebuilds it from the log"


class Finding(NamedTuple):
    """One thing that is wrong.  `position` is a byte in the file, or -1."""

    path: str
    position: int
    kind: str
    text: str
    advice: str

    def __str__(self) -> str:
        where = self.path if self.position < 0 else f"{self.path}:{self.position}"
        return f"{where}: {self.text} ({self.kind}); {self.advice}"


@dataclass(slots=True)
class Summary:
    """What was looked at."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    holes: int = 0
    files: int = 0


@dataclass(slots=True)
class _Log:
    """What the walk through one partition knows so far."""

    live: bool
    compacted: bool | None
    first_base: int = -1
    last_base: int = -1
    last: int = -1
    """The last offset that was seen."""
    holes: int = 0
    damaged: bool = False
    greatest: int = -1
    epoch: int = -1
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Where each epoch begins by the batches."""
    producers: ProducerState = field(default_factory=lambda: ProducerState(1 << 62))
    snapshots: list[int] = field(default_factory=list)

    def begin_at(self, base: int) -> None:
        """What came before is gone: a running broker has deleted it meanwhile."""
        self.first_base = base
        self.last = -1
        self.producers = ProducerState(1 << 62)
        self.snapshots = [offset for offset in self.snapshots if offset >= base]


def audit(
    disk: Disk,
    path: str,
    *,
    progress: Progress | None = None,
    compacted: bool | None = None,
    summary: Summary | None = None,
    audited: Mapping[str, tuple[int, Sequence[Finding]]] | None = None,
) -> Iterator[Finding]:
    """All that is wrong in a partition's directory or in a data directory.  `OSError` where nothing can be read.

    `audited`: partitions of a data directory that were walked elsewhere, by the name of their directory, with what
    `audit_partition` said of their end and findings; they are taken as told.
    """
    path = path.rstrip("/") or "/"
    names = disk.listdir(path)
    summary = Summary() if summary is None else summary
    meter = _Meter(progress, _size_below(disk, path, names))
    if any(layout.parse(name) is not None for name in names) or layout.parse_directory(path.rpartition("/")[2]):
        live = is_live(disk, path.rpartition("/")[0] or ".")
        yield from _partition(disk, path, live, compacted, meter, summary)[1]
    else:
        yield from _data_directory(disk, path, names, compacted, meter, summary, audited or {})


def audit_partition(disk: Disk, path: str, *, compacted: bool | None = None) -> tuple[int, list[Finding], Summary]:
    """One partition of a data directory, for `audit(..., audited=)`: its end, its findings, what was looked at."""
    summary = Summary()
    live = is_live(disk, path.rpartition("/")[0] or ".")
    end, findings = _partition(disk, path, live, compacted, _Meter(None, 0), summary)
    found = list(findings)
    return end(), found, summary


def is_live(disk: Disk, data_directory: str) -> bool:
    """Whether a broker has the directory: its lock is taken."""
    path = f"{data_directory}/{layout.LOCK}"
    if not disk.exists(path):
        return False
    try:
        with disk.lock(path):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False  # a read-only copy


class _Meter:
    """Bytes done, of all."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


def _size_below(disk: Disk, path: str, names: list[str]) -> int:
    total = 0
    for name in names:
        child = f"{path}/{name}"
        if name.endswith((layout.LOG, ".checkpoint")):
            total += _size(disk, child)
        elif layout.parse_directory(name) and disk.is_dir(child):
            try:
                files = disk.listdir(child)
            except OSError:
                continue
            total += sum(_size(disk, f"{child}/{one}") for one in files if one.endswith(layout.LOG))
    return total


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size(path)
    except OSError:
        return 0  # a running broker has deleted it meanwhile, or it is told later that it cannot be read


# --- a data directory -------------------------------------------------------------------------------------------------
def _data_directory(
    disk: Disk,
    path: str,
    names: list[str],
    compacted: bool | None,
    meter: _Meter,
    summary: Summary,
    audited: Mapping[str, tuple[int, Sequence[Finding]]],
) -> Iterator[Finding]:
    live = is_live(disk, path)
    offsets: dict[str, dict[checkpoints.TopicPartition, int]] = {}
    for name in CHECKPOINTS:  # before the logs: those of a running broker only grow meanwhile
        if name in names:
            summary.files += 1
            try:
                offsets[name] = checkpoints.read_offsets(disk, f"{path}/{name}")
            except Malformed as error:
                yield _malformed(f"{path}/{name}", error, _REBUILT)
            except OSError as error:
                yield _unreadable(f"{path}/{name}", error)
    partitions = [name for name in names if disk.is_dir(f"{path}/{name}")]
    yield from _small_files(disk, path, [name for name in names if name not in partitions], live, summary)
    ends: dict[checkpoints.TopicPartition, int] = {}
    ids: dict[str, Uuid] = {}
    owners: dict[Uuid, str] = {}
    for name in partitions:
        child = f"{path}/{name}"
        key = layout.parse_directory(name)
        if key is None:
            if name.endswith(layout.DIRECTORY_STRAY_SUFFIX):
                text = "a partition that the cluster's metadata does not know was put aside here"
                yield Finding(child, -1, "stray-directory", text, "look at it with `stratalog dump`, then delete it")
            elif not name.endswith((layout.DIRECTORY_DELETE_SUFFIX, layout.DIRECTORY_FUTURE_SUFFIX)):
                yield Finding(child, -1, "stray-directory", "no partition's directory", "move it elsewhere")
            continue
        if name in audited:
            told_end, told = audited[name]
            yield from told
            ends[checkpoints.TopicPartition(*key)] = told_end
        else:
            end, findings = _partition(disk, child, live, compacted, meter, summary)
            yield from findings
            ends[checkpoints.TopicPartition(*key)] = end()
        yield from _topic_id(disk, child, key[0], ids, owners)
    for name, found in offsets.items():
        for partition, offset in sorted(found.items()):
            at = f"{path}/{name}"
            one = f"{partition.topic}-{partition.partition}"
            known = ends.get(partition)
            if known is None:
                if not live:
                    text = f"names {one}, which is not here"
                    yield Finding(at, -1, "checkpoint", text, "harmless; the next checkpoint leaves it out")
            elif offset > known and not live:
                text = f"{one} is said to reach {offset}, its log ends at {known}: records are missing"
                yield Finding(at, -1, "checkpoint", text, _RESTORE)


def _topic_id(
    disk: Disk, directory: str, topic: str, ids: dict[str, Uuid], owners: dict[Uuid, str]
) -> Iterator[Finding]:
    path = f"{directory}/{layout.PARTITION_METADATA}"
    try:
        found = checkpoints.read_topic_id(disk, directory)
    except (Malformed, OSError):
        return  # told already, or gone
    if found is None:
        return
    if ids.setdefault(topic, found) != found:
        text = f"topic id {found}, another partition of {topic} has {ids[topic]}"
        yield Finding(path, -1, "topic-id", text, "one of them belongs to an older topic of this name: move it away")
    if owners.setdefault(found, topic) != topic:
        text = f"topic id {found} is that of {owners[found]}, too"
        yield Finding(path, -1, "topic-id", text, "two topics never share an id: restore the file")


def _small_files(disk: Disk, path: str, names: list[str], live: bool, summary: Summary) -> Iterator[Finding]:
    for name in names:
        child = f"{path}/{name}"
        if name in CHECKPOINTS or name == layout.LOCK or name in _OURS:
            continue
        summary.files += 1
        try:
            if name == layout.META_PROPERTIES:
                checkpoints.read_meta_properties(disk, path)
            elif name == layout.CLEAN_SHUTDOWN:
                data = disk.read(child, limit=1 << 20)
                if not data or not isinstance(json.loads(data), dict):
                    raise Malformed(f"{child}: not a JSON object")
            elif name.endswith(".checkpoint"):
                yield from _snapshot_log(disk, child)
            elif name.endswith(layout.TEMPORARY):
                if not live:
                    text = "a small file that was being written when the broker stopped"
                    yield Finding(child, -1, "left-over", text, "delete it")
            else:
                yield Finding(child, -1, "stray-file", "no file of a broker", "move it elsewhere")
        except Malformed as error:
            yield _malformed(child, error, "write it again from a backup, or from the cluster's other nodes")
        except ValueError as error:
            yield Finding(child, -1, "malformed", f"not JSON: {error}", "delete it; the next start recovers every log")
        except FileNotFoundError:
            continue
        except OSError as error:
            yield _unreadable(child, error)


def _snapshot_log(disk: Disk, path: str) -> Iterator[Finding]:
    """A snapshot of the metadata log: batches like a segment's, between a header and a footer."""
    file = disk.open(path, write=False)
    size = file.size()
    end = 0
    last_type = -1
    first_type = -1
    for row, block in walk(file, size):
        if row is None:
            text = why_invalid(file, end, size, -1)
            yield Finding(path, end, "damaged-batch", text, "delete the snapshot; an older one or the log replaces it")
            return
        end = row[POSITION] + row[SIZE]
        if row[ATTRIBUTES] & CONTROL:
            for record in batches.records_of(block, batches.read_header(block)):
                last_type = control.read_type(record.key)
                if first_type < 0:
                    first_type = last_type
    if first_type != control.SNAPSHOT_HEADER or last_type != control.SNAPSHOT_FOOTER:
        text = "the snapshot has no header or no footer: it was not finished"
        yield Finding(path, end, "cut-off", text, "delete the snapshot; an older one or the log replaces it")


def _malformed(path: str, error: Malformed, advice: str) -> Finding:
    return Finding(path, error.position, "malformed", error.reason.removeprefix(f"{path}: "), advice)


def _unreadable(path: str, error: OSError) -> Finding:
    return Finding(
        error.filename or path, -1, "unreadable", error.strerror or str(error), f"look at the disk; {_RESTORE}"
    )


def _or_unreadable(path: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of one file; that it cannot be read is one, and no reason to leave the others out."""
    try:
        yield from findings
    except FileNotFoundError:
        raise
    except OSError as error:
        yield _unreadable(path, error)


# --- a partition ------------------------------------------------------------------------------------------------------
def _partition(
    disk: Disk, directory: str, live: bool, compacted: bool | None, meter: _Meter, summary: Summary
) -> tuple[Callable[[], int], Iterator[Finding]]:
    """How to ask for the log's end (once the findings are taken), and the findings."""
    log = _Log(live, compacted)
    summary.partitions += 1
    end = 0

    def findings() -> Iterator[Finding]:
        nonlocal end
        try:
            names = disk.listdir(directory)
        except FileNotFoundError:
            if live:
                return  # the topic was deleted meanwhile
            raise
        except OSError as error:
            yield _unreadable(directory, error)
            return
        segments: dict[int, set[str]] = {}
        for name in names:
            parsed = layout.parse(name)
            summary.files += 1
            if parsed is None:
                yield from _or_unreadable(f"{directory}/{name}", _other_file(disk, directory, name, log))
            elif parsed.state:
                yield from _passing_file(f"{directory}/{name}", parsed.state, live)
            elif parsed.kind == layout.SNAPSHOT:
                log.snapshots.append(parsed.offset)
            else:
                segments.setdefault(parsed.offset, set()).add(parsed.kind)
        log.snapshots.sort()
        bases = sorted(base for base, kinds in segments.items() if layout.LOG in kinds)
        for base, kinds in sorted(segments.items()):
            if layout.LOG not in kinds and not live:
                for kind in sorted(kinds):
                    text = "an index without its log"
                    yield Finding(layout.path_of(directory, base, kind), -1, "orphan", text, "delete it")
        log.first_base = bases[0] if bases else 0
        log.last_base = bases[-1] if bases else 0
        for number, base in enumerate(bases):
            following = bases[number + 1] if number + 1 < len(bases) else None
            summary.segments += 1
            try:
                size = disk.size(layout.path_of(directory, base, layout.LOG))
                for finding in _segment(disk, directory, base, segments[base], following, log, meter, summary):
                    if not live or _is_still(disk, directory, base, size, closed=following is not None):
                        yield finding
            except FileNotFoundError:
                if not live:
                    raise
                if following is not None:
                    log.begin_at(following)
            except OSError as error:
                yield _unreadable(layout.path_of(directory, base, layout.LOG), error)
                log.damaged = True
        end = max(log.last + 1, bases[-1] if bases else 0)
        yield from _snapshots_until(disk, directory, 1 << 63, log, end)
        yield from _epochs(disk, directory, log, end)
        summary.holes += log.holes

    return (lambda: end), findings()


def _is_still(disk: Disk, directory: str, base: int, size: int, *, closed: bool) -> bool:
    """Whether a running broker has left a segment alone since it was `size` bytes long: what was found in one that is
    deleted or exchanged while it is looked at is of two different ones."""
    try:
        now = disk.size(layout.path_of(directory, base, layout.LOG))
    except FileNotFoundError:
        return False
    return now == size if closed else now >= size


def _other_file(disk: Disk, directory: str, name: str, log: _Log) -> Iterator[Finding]:
    path = f"{directory}/{name}"
    if name == layout.PARTITION_METADATA:
        try:
            if checkpoints.read_topic_id(disk, directory) is None and not log.live:
                yield Finding(path, 0, "malformed", "no topic id", "the next start of its topic writes it again")
        except Malformed as error:
            yield _malformed(path, error, "the next start of its topic writes it again")
    elif name == "quorum-state":
        try:
            if not isinstance(json.loads(disk.read(path, limit=1 << 20)), dict):
                raise ValueError("not an object")
        except ValueError as error:
            advice = "delete it only if the other voters are there: they tell the epoch again"
            yield Finding(path, -1, "malformed", f"not the JSON of a quorum state: {error}", advice)
    elif name.endswith(".checkpoint"):
        yield from _snapshot_log(disk, path)
    elif name.endswith((layout.TEMPORARY, ".part")):
        if not log.live:
            text = "a file that was being written when the broker stopped"
            yield Finding(path, -1, "left-over", text, "the next start removes it")
    elif name not in _KNOWN_FILES and not name.endswith(".checkpoint" + layout.DELETED):
        yield Finding(path, -1, "stray-file", "no file of a partition", "move it elsewhere")


def _passing_file(path: str, state: str, live: bool) -> Iterator[Finding]:
    if state == layout.DAMAGED:
        text = "bytes that a recovery has cut off and kept"
        yield Finding(path, -1, "kept-aside", text, "look at them with `stratalog dump`, then delete them")
    elif state in (layout.CLEANED, layout.SWAP):
        if not live:
            text = "the cleaner was at work when the broker stopped"
            yield Finding(path, -1, "left-over", text, "the next start finishes or undoes the exchange")
    elif state != layout.DELETED:
        yield Finding(path, -1, "stray-file", "no file of a partition", "move it elsewhere")


def walk(file: File, size: int, start: int = 0) -> Iterator[tuple[list[int] | None, memoryview]]:
    """(row of the batch table, with its position in the file; the batch's bytes) for each sound batch from `start` on;
    ends with (None, nothing) before what is no sound batch, unless that is the end."""
    twin = kernels.best()
    table = kernels.BatchTable(2048)
    length = BLOCK_BYTES
    origin = start
    while origin < size:
        block = memoryview(file.pread(min(length, size - origin), origin))
        at = 0
        while True:
            code = twin.scan_batches(block, table, at, verify=True)
            rows = table.rows
            for number in range(table.count):
                row = rows[number * ROW : (number + 1) * ROW].tolist()
                where = row[POSITION]
                row[POSITION] = origin + where
                yield row, block[where : where + row[SIZE]]
            at = table.end
            if code != kernels.TABLE_FULL:
                break
        if code == kernels.OK and at < size - origin and at == len(block):
            origin += at
            continue
        if origin + at >= size:
            return
        if code in (kernels.BATCH_TRUNCATED, kernels.OK) and origin + len(block) < size:
            if at:
                origin += at
                length = BLOCK_BYTES
            elif length >= MAX_INT32:
                yield None, block[:0]
                return
            else:
                length *= 4  # one batch that is larger than the block
            continue
        yield None, block[:0]
        return


def _segment(
    disk: Disk,
    directory: str,
    base: int,
    kinds: set[str],
    following: int | None,
    log: _Log,
    meter: _Meter,
    summary: Summary,
) -> Iterator[Finding]:
    path = layout.path_of(directory, base, layout.LOG)
    file = disk.open(path, write=False)
    size = file.size()
    last_segment = following is None
    growing = last_segment and log.live
    # A roll makes the new segment before it closes the old one.
    is_open = last_segment or (log.live and following == log.last_base)
    index = _IndexCheck(disk, layout.path_of(directory, base, layout.INDEX), base, is_open, log.live)
    times = _TimeCheck(disk, layout.path_of(directory, base, layout.TIME_INDEX), base, is_open, log.live)
    for check, kind in ((index, layout.INDEX), (times, layout.TIME_INDEX)):
        if kind in kinds:
            yield from _or_unreadable(check.path, check.load())
        elif not log.live:
            yield Finding(check.path, -1, "missing", "the index is missing", "the next start rebuilds it")
    aborted: list[tuple[int, int, int]] = []
    position = 0
    greatest = -1
    while position < size:
        stopped = False
        for row, block in walk(file, size, position):
            if row is None:
                stopped = True
                break
            at, length, first, last = row[POSITION], row[SIZE], row[BASE_OFFSET], row[LAST_OFFSET]
            summary.batches += 1
            if first < base or first <= log.last:
                text = f"offsets {first}..{last} follow offset {max(log.last, base - 1)}"
                yield Finding(path, at, "offset-order", text, _RESTORE)
            elif first > log.last + 1 and (log.last >= 0 or first > log.first_base):
                log.holes += 1
                if log.compacted is False:
                    text = f"offsets {log.last + 1}..{first - 1} are missing"
                    yield Finding(path, at, "hole", text, _RESTORE)
            if last - base > MAX_INT32:
                text = f"offset {last} is too far from the segment's base"
                yield Finding(path, at, "offset-overflow", text, "the next start splits the segment")
            if following is not None and last >= following:
                text = f"offset {last} belongs to the next segment, which begins at {following}"
                yield Finding(path, at, "offset-order", text, _RESTORE)
            yield from _snapshots_until(disk, directory, first, log, first)
            yield from _batch(row, block, path, log, aborted)
            greatest = max(greatest, row[MAX_TIMESTAMP])
            yield from index.batch(at, last)
            yield from times.batch(first, last, row[MAX_TIMESTAMP], greatest)
            log.last = max(log.last, last)
            position = at + length
            meter.add(length)
        if not stopped:
            break
        if last_segment and log.live:
            break  # the batch that is being written
        reason = why_invalid(file, position, size, log.last)
        sound = resync(file, position, size, log.last)
        if sound < 0 and last_segment:
            text = f"{size - position} invalid bytes at the end: {reason}"
            yield Finding(path, position, "torn-tail", text, "the next start cuts them off")
        else:
            upto = size if sound < 0 else sound
            text = f"{upto - position} damaged bytes behind offset {log.last}: {reason}"
            yield Finding(path, position, "damaged-batch", text, _RESTORE)
        log.damaged = True
        if sound < 0:
            meter.add(size - position)
            break
        meter.add(sound - position)
        position = sound
    summary.bytes += position
    if not log.damaged:
        yield from index.end(growing)
        yield from times.end(growing, greatest)
        there = layout.TXN_INDEX in kinds
        txn_path = layout.path_of(directory, base, layout.TXN_INDEX)
        if log.live and not there and disk.exists(txn_path + layout.DELETED):
            return  # retention has begun with this segment; its log is renamed last
        yield from _or_unreadable(txn_path, _txn_index(disk, txn_path, base, there, aborted, log, growing))


def _batch(
    row: list[int], block: memoryview, path: str, log: _Log, aborted: list[tuple[int, int, int]]
) -> Iterator[Finding]:
    """Epochs and producers, from one batch."""
    epoch, first, last = row[LEADER_EPOCH], row[BASE_OFFSET], row[LAST_OFFSET]
    log.greatest = max(log.greatest, row[MAX_TIMESTAMP])
    if row[MAGIC] < 2:
        log.epochs.clear()  # a follower forgets them as well (R08)
        return
    if epoch != log.epoch:
        if epoch < log.epoch:
            text = f"leader epoch {epoch} at offset {first} follows epoch {log.epoch}"
            yield Finding(path, row[POSITION], "epoch-order", text, _RESTORE)
        else:
            log.epoch = epoch
            if epoch >= 0:
                log.epochs.append((epoch, first))
    pid = row[PRODUCER_ID]
    if pid < 0:
        return
    producers = log.producers
    try:
        if row[ATTRIBUTES] & CONTROL:
            marker = control.marker_of(block, batches.read_header(block))
            if marker is None:
                return
            ended = producers.append_marker(
                pid,
                row[PRODUCER_EPOCH],
                first,
                row[MAX_TIMESTAMP],
                aborted=not marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                origin=Origin.REPLICATION,
                transaction_version=0,
            )
            if ended is not None and ended[0].aborted:
                aborted.append((pid, ended[0].first_offset, first))
            producers.unreplicated.clear()
        else:
            producers.append_data(
                pid,
                row[PRODUCER_EPOCH],
                row[BASE_SEQUENCE],
                last,
                last - first,
                row[MAX_TIMESTAMP],
                transactional=row[ATTRIBUTES] & TRANSACTIONAL != 0,
                origin=Origin.REPLICATION,
                where=OffsetMetadata(first),
            )
        producers.keep()
    except (ApiError, Malformed) as error:
        text = f"offsets {first}..{last} of producer {pid} cannot be: {error}"
        yield Finding(path, row[POSITION], "producer", text, _RESTORE)


# --- what lies beside a segment ---------------------------------------------------------------------------------------
class _IndexCheck:
    """The entries of an offset index, each against the batch that it points to."""

    def __init__(self, disk: Disk, path: str, base: int, is_open: bool, live: bool) -> None:
        self.path = path
        self._disk = disk
        self._base = base
        self._is_open = is_open
        self._may_be_cut = is_open and live
        self._rows: list[tuple[int, int]] = []
        self._next = 0

    def load(self) -> Iterator[Finding]:
        data = self._disk.read(self.path, limit=1 << 30)
        if self._may_be_cut:
            data = data[: len(data) - len(data) % 8]  # it is being cut to its entries right now
        if len(data) % 8:
            text = f"{len(data)} bytes are no multiple of 8"
            yield Finding(self.path, len(data) - len(data) % 8, "index", text, _REBUILT)
            return
        self._rows, zeros = _without_zeros(data, _INDEX_ENTRY)
        if zeros and not self._is_open:
            text = f"{zeros} unused slots at the end of a closed segment's index"
            yield Finding(self.path, len(self._rows) * 8, "index", text, _REBUILT)

    def batch(self, position: int, last: int) -> Iterator[Finding]:
        rows = self._rows
        while self._next < len(rows) and rows[self._next][1] <= position:
            relative, at = rows[self._next]
            if at < position:
                text = f"entry {self._next} points to byte {at}, where no batch begins"
                yield Finding(self.path, self._next * 8, "index", text, _REBUILT)
            elif self._base + relative != last:
                text = f"entry {self._next} says offset {self._base + relative}, the batch there ends with {last}"
                yield Finding(self.path, self._next * 8, "index", text, _REBUILT)
            elif self._next and (relative <= rows[self._next - 1][0] or at <= rows[self._next - 1][1]):
                text = f"entry {self._next} goes back"
                yield Finding(self.path, self._next * 8, "index", text, _REBUILT)
            self._next += 1

    def end(self, growing: bool) -> Iterator[Finding]:
        if self._next < len(self._rows) and not growing:
            at = self._rows[self._next][1]
            text = f"entry {self._next} points to byte {at}, past the last batch"
            yield Finding(self.path, self._next * 8, "index", text, _REBUILT)


class _TimeCheck:
    """The entries of a time index, each against the batches up to its offset."""

    def __init__(self, disk: Disk, path: str, base: int, is_open: bool, live: bool) -> None:
        self.path = path
        self._disk = disk
        self._base = base
        self._is_open = is_open
        self._may_be_cut = is_open and live
        self._rows: list[tuple[int, int]] = []
        self._next = 0
        self._loaded = False

    def load(self) -> Iterator[Finding]:
        data = self._disk.read(self.path, limit=1 << 30)
        if self._may_be_cut:
            data = data[: len(data) - len(data) % 12]  # it is being cut to its entries right now
        if len(data) % 12:
            text = f"{len(data)} bytes are no multiple of 12"
            yield Finding(self.path, len(data) - len(data) % 12, "time-index", text, _REBUILT)
            return
        self._loaded = True
        self._rows, zeros = _without_zeros(data, _TIME_ENTRY)
        if zeros and not self._is_open:
            text = f"{zeros} unused slots at the end of a closed segment's time index"
            yield Finding(self.path, len(self._rows) * 12, "time-index", text, _REBUILT)
        for slot in range(1, len(self._rows)):
            if self._rows[slot][0] <= self._rows[slot - 1][0] or self._rows[slot][1] < self._rows[slot - 1][1]:
                yield Finding(self.path, slot * 12, "time-index", f"entry {slot} goes back", _REBUILT)
                self._rows = self._rows[:slot]
                break

    def batch(self, first: int, last: int, timestamp: int, greatest: int) -> Iterator[Finding]:
        rows = self._rows
        while self._next < len(rows) and self._base + rows[self._next][1] <= last:
            entry, relative = rows[self._next]
            offset = self._base + relative
            if offset < first:
                if greatest > 0 and entry > greatest:
                    text = f"entry {self._next} says timestamp {entry} up to offset {offset}, there is none so great"
                    yield Finding(self.path, self._next * 12, "time-index", text, _REBUILT)
            elif entry != timestamp or entry != greatest:
                text = (
                    f"entry {self._next} says timestamp {entry} at offset {offset}, "
                    f"the batch there has {timestamp}, the greatest so far is {greatest}"
                )
                yield Finding(self.path, self._next * 12, "time-index", text, _REBUILT)
            self._next += 1

    def end(self, growing: bool, greatest: int) -> Iterator[Finding]:
        if growing or not self._loaded:
            return
        if self._next < len(self._rows):
            text = f"entry {self._next} speaks of offset {self._base + self._rows[self._next][1]}, past the last batch"
            yield Finding(self.path, self._next * 12, "time-index", text, _REBUILT)
        elif not self._is_open and greatest >= 0 and (not self._rows or self._rows[-1][0] != greatest):
            text = f"the greatest timestamp of the closed segment, {greatest}, is not its last entry"
            yield Finding(self.path, max(len(self._rows) - 1, 0) * 12, "time-index", text, _REBUILT)


def _without_zeros(data: bytes, entry: struct.Struct) -> tuple[list[tuple[int, int]], int]:
    """The entries before the unused slots, and how many of those there are.

    A segment that is written has 10 MiB of them, too many to be looked at one by one.
    """
    used = -(-len(data.rstrip(b"\0")) // entry.size)
    return list(entry.iter_unpack(data[: used * entry.size])), len(data) // entry.size - used


def _txn_index(
    disk: Disk,
    path: str,
    base: int,
    there: bool,
    aborted: list[tuple[int, int, int]],
    log: _Log,
    growing: bool,
) -> Iterator[Finding]:
    rows: list[tuple[int, int, int]] = []
    if there:
        data = disk.read(path, limit=1 << 30)
        if len(data) % _TXN_ENTRY.size and not growing:
            text = f"{len(data)} bytes are no multiple of {_TXN_ENTRY.size}"
            yield Finding(path, len(data) - len(data) % _TXN_ENTRY.size, "txn-index", text, _REBUILT)
        whole = len(data) - len(data) % _TXN_ENTRY.size
        for slot, (version, pid, first, last, _) in enumerate(_TXN_ENTRY.iter_unpack(data[:whole])):
            at = slot * _TXN_ENTRY.size
            if version != 0:
                yield Finding(path, at, "txn-index", f"entry {slot} has version {version}, not 0", _REBUILT)
            elif first >= last or last < base:
                yield Finding(path, at, "txn-index", f"entry {slot} makes no sense: {first}..{last}", _REBUILT)
            else:
                rows.append((pid, first, last))
                unknown = first < log.first_base or log.holes or (growing and last > log.last)
                if (pid, first, last) not in aborted and not unknown:
                    text = f"entry {slot}: the log has no such aborted transaction of {pid}, {first}..{last}"
                    yield Finding(path, at, "txn-index", text, _REBUILT)
    begins = {(pid, last): first for pid, first, last in rows}
    for pid, first, last in aborted:
        told = begins.get((pid, last), -1)
        # One that began in what retention or the cleaner has taken away seems to begin later than it did.
        earlier = 0 <= told < first and (told < log.first_base or log.holes)
        if told != first and not earlier and first >= log.first_base and not growing:
            text = f"the aborted transaction of producer {pid}, offsets {first}..{last}, is not in it"
            yield Finding(path, -1, "txn-index", text, _REBUILT)


def _snapshots_until(disk: Disk, directory: str, offset: int, log: _Log, here: int) -> Iterator[Finding]:
    """Hold the producer snapshots up to `offset` against the replay, which stands there."""
    while log.snapshots and log.snapshots[0] <= offset:
        taken = log.snapshots.pop(0)
        path = layout.path_of(directory, taken, layout.SNAPSHOT)
        try:
            entries = decode_snapshot(disk.read(path, limit=1 << 30))
        except Malformed as error:
            yield _malformed(path, error, "delete the file; the next start rebuilds what it needs from the log")
            continue
        except FileNotFoundError:
            continue
        except OSError as error:
            yield _unreadable(path, error)
            continue
        if taken > here and not log.live:
            text = f"the log ends at {here}, before the snapshot's offset"
            yield Finding(path, -1, "snapshot", text, "the next start removes it")
        elif taken > log.last + 1 or log.holes or log.damaged or taken < log.first_base:
            continue  # what it was made of is not, or not all, there any more
        else:
            yield from _compare(path, {entry.producer_id: entry for entry in entries}, log)


def _compare(path: str, entries: dict[int, ProducerEntry], log: _Log) -> Iterator[Finding]:
    advice = "delete the file; the next start rebuilds what it needs from the log"
    replayed = log.producers.entries
    for pid, entry in sorted(entries.items()):
        known = replayed.get(pid)
        if known is None or entry.last_offset < log.first_base:
            if known is None and entry.last_offset >= log.first_base:
                text = f"producer {pid} has written nothing before it"
                yield Finding(path, -1, "snapshot", text, advice)
            continue
        told = (entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset)
        seen = (known.epoch, known.last_sequence, known.last_offset, known.txn_first_offset)
        if told != seen and not (entry.txn_first_offset >= 0 and entry.txn_first_offset < log.first_base):
            text = f"producer {pid} is told as (epoch, sequence, offset, transaction) {told}, the log says {seen}"
            yield Finding(path, -1, "snapshot", text, advice)
    for pid, known in sorted(replayed.items()):
        fresh = log.greatest - known.last_timestamp < _SAME_DAY_MS
        if pid not in entries and fresh and known.last_offset >= 0:
            yield Finding(path, -1, "snapshot", f"producer {pid} is missing", advice)


def _epochs(disk: Disk, directory: str, log: _Log, end: int) -> Iterator[Finding]:
    path = f"{directory}/{layout.LEADER_EPOCHS}"
    try:
        rows = checkpoints.read_epochs(disk, path)
    except Malformed as error:
        yield _malformed(path, error, _REBUILT)
        return
    except OSError as error:
        yield _unreadable(path, error)
        return
    for number in range(1, len(rows)):
        if rows[number][0] <= rows[number - 1][0] or rows[number][1] < rows[number - 1][1]:
            text = f"epoch {rows[number][0]} from {rows[number][1]} on follows {rows[number - 1]}"
            yield Finding(path, -1, "epochs", text, _REBUILT)
            return
    if log.live or log.damaged:
        return
    if rows and rows[-1][1] > end:
        text = f"epoch {rows[-1][0]} begins at {rows[-1][1]}, the log ends at {end}"
        yield Finding(path, -1, "epochs", text, "the next start cuts it")
    log_start = _log_start(disk, directory)
    behind = [*(start for _, start in log.epochs[1:]), end]
    for (epoch, start), until in zip(log.epochs, behind, strict=False):
        if until <= log_start:
            continue  # all of its records are deleted, and a load has forgotten it
        told = -1
        for known, since in rows:
            if since <= start:
                told = known
        if told != epoch and (not rows or start >= rows[0][1]):
            text = f"offset {start} was written in epoch {epoch}, the file says {told if told >= 0 else 'nothing'}"
            yield Finding(path, -1, "epochs", text, _REBUILT)


def _log_start(disk: Disk, directory: str) -> int:
    """As far as the checkpoint of its data directory says it."""
    home, _, name = directory.rpartition("/")
    key = layout.parse_directory(name)
    try:
        starts = checkpoints.read_offsets(disk, f"{home or '.'}/{layout.LOG_STARTS}")
    except (Malformed, OSError):
        return 0  # told where the data directory is looked at
    return starts.get(checkpoints.TopicPartition(*key), 0) if key is not None else 0
