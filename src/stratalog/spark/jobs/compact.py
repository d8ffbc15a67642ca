"""Compaction on Spark: the broker's cleaner with the keys in a shuffle instead of in one map.

    driver   opens the log, plans as the cleaner does (range, groups of segments), walks the transactions
    task A   one or a few segments: the kernel's map removes duplicates; out go (hash, hash, highest offset, group)
    shuffle  by hash: each key's highest offset of all; then by group
    task B   one group of segments: the survivors as a bitmap, then the cleaner's own rewrite, into a directory of the
             task's own; keys and values never leave the worker
    driver   moves the finished files beside the old ones and swaps all of them at once, as the cleaner swaps one group

The hash is SipHash-128 under a secret of the job, the same in all tasks.  A full map is sent on and emptied, so tasks
need no more memory than they are given; Spark's shuffle spills.  The result is byte for byte what the broker's cleaner
writes with a map that is large enough, as the rewrite *is* the cleaner's (`logs.cleaner.cleaning`).  One thing is
assumed of the part that was cleaned before: that no key is in it twice, which is what cleaning means.

The broker must be stopped: the data directory is locked for the time of the job.  Until the swap nothing of the log is
touched; an end at any time leaves either the old or the new log (`storage.reshape.replace_segments`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.cleaning import Cleaning, LastRecord
from stratalog.logs.cleaner.manager import facts_of
from stratalog.logs.cleaner.transactions import Transactions
from stratalog.records import batch as batches
from stratalog.records.errors import CorruptBatch
from stratalog.records.kernels import BASE_OFFSET, MAP_FULL, NEEDS_PYTHON, OK, TEXTS, FilterRules, load_kernels
from stratalog.records.offset_map import OffsetMap
from stratalog.server.disk import RealDisk
from stratalog.spark.errors import NotThere, SparkSourceError
from stratalog.spark.jobs.running import Progress, Watch, session_of, spread, tasks
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig, parse
from stratalog.storage.log import Log
from stratalog.storage.scan import CONTROL, TRANSACTIONAL, scan
from stratalog.storage.segment import Segment
from stratalog.storage.segments import Segments

MAP_BYTES: Final = 64 << 20
"""Of the offset map in one task; what does not fit goes through the shuffle in several parts."""
TASK_BYTES: Final = 128 << 20
"""Small segments share a task up to this; a larger one is a task alone."""
PART_BYTES: Final = 32 << 20
"""Groups of little segments share a rewriting task up to about this."""
TASKS_MAX: Final = 512
"""Partitions of a shuffle: more only cost files."""
_EMIT_ROWS: Final = 1 << 20
_WORK_PREFIX: Final = ".compact-"
_KEYS_SCHEMA: Final = "h0 bigint, h1 bigint, o bigint, g bigint"
_DONE_SCHEMA: Final = "report binary"


Settings = Mapping[str, str] | Callable[[str], LogConfig]
"""The topic's keys over Kafka's defaults for a compacted topic, or a function from a topic to its configuration."""


class CompactError(SparkSourceError):
    """What keeps the job from running, in one line."""


@dataclass(slots=True)
class Compacted:
    """What became of one partition."""

    partition: str
    first_dirty: int = 0
    end: int = 0
    note: str = ""
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class CompactReport:
    """What the job did, a row for each partition."""

    partitions: list[Compacted] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# --- the plan, as it travels to the tasks ----------------------------------------------------------------------------
class _File(NamedTuple):
    base: int
    size: int
    has_txn_index: bool


@dataclass(slots=True, frozen=True)
class _Plan:
    directory: str
    config: LogConfig
    target: choice.Range
    files: tuple[_File, ...]
    """The segments below the end of the range."""
    groups: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]
    """The number under which each group goes through the shuffle, increasing as the groups' offsets are."""
    parts: int
    """Partitions of that shuffle."""
    last_records: Mapping[int, LastRecord]
    transactions: Mapping[int, bytes]
    """For a group the state of the transactions before it, pickled; nothing where there are none."""
    now_ms: int
    secret: bytes
    map_bytes: int
    work: str

    def group_bases(self) -> list[int]:
        return [self.files[group[0]].base for group in self.groups]

    def end_of(self, group: int) -> int:
        return self.files[self.groups[group + 1][0]].base if group + 1 < len(self.groups) else self.target[1]


def compact(
    path: str | os.PathLike[str],
    spark: Any = None,
    *,
    topics: Sequence[str] | None = None,
    config: Settings | None = None,
    map_bytes: int = MAP_BYTES,
    task_bytes: int = TASK_BYTES,
    from_start: bool = False,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> CompactReport:
    """Clean the partitions below a data directory, or the one whose directory `path` is.  The broker must be stopped.

    `topics`: which, in a data directory.  `config`: the topic's keys where they are not Kafka's defaults
    (`{"delete.retention.ms": "0", "segment.bytes": ...}`), or a function from a topic to its `LogConfig`.
    `from_start`: as if it had never been cleaned.  Records are lost by design: all but the last of each key.
    """
    begun = time.monotonic()
    root, chosen = _partitions(os.path.abspath(os.fspath(path)), topics)
    if map_bytes < 1 << 10:
        raise CompactError(f"map_bytes={map_bytes}: at least 1024")
    disk = RealDisk()
    report = CompactReport()
    with _locked(disk, root):
        for directory in chosen:
            report.partitions.append(
                _compact(
                    session_of(spark),
                    disk,
                    root,
                    directory,
                    config=config or {},
                    map_bytes=map_bytes,
                    task_bytes=task_bytes,
                    from_start=from_start,
                    now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
                    progress=progress,
                )
            )
    report.seconds = time.monotonic() - begun
    return report


def _partitions(path: str, topics: Sequence[str] | None) -> tuple[str, list[str]]:
    """(data directory, directories of partitions)."""
    if not os.path.isdir(path):
        raise NotThere(f"{path}: there is no such directory")
    if layout.parse_directory(os.path.basename(path)) is not None and any(
        name.endswith(layout.LOG) for name in os.listdir(path)
    ):
        return os.path.dirname(path), [path]
    found = [
        (parsed[0], f"{path}/{name}")
        for name in sorted(os.listdir(path))
        if (parsed := layout.parse_directory(name)) is not None and os.path.isdir(f"{path}/{name}")
    ]
    if topics is None:
        raise CompactError(f"{path} is a data directory: name the topics, or give the path of one partition")
    missing = sorted(set(topics) - {topic for topic, _ in found})
    if missing:
        there = ", ".join(sorted({topic for topic, _ in found})[:10]) or "none"
        raise NotThere(f"{path}: no partition of {', '.join(missing)}; there are {there}")
    return path, [directory for topic, directory in found if topic in topics]


@contextlib.contextmanager
def _locked(disk: RealDisk, root: str) -> Iterator[None]:
    """The broker's own lock on its data directory: neither it nor a second job may run meanwhile."""
    if not disk.exists(f"{root}/{layout.META_PROPERTIES}"):
        yield  # a copied partition, not a broker's data directory
        return
    try:
        lock = disk.lock(f"{root}/{layout.LOCK}")
    except BlockingIOError:
        raise CompactError(f"{root} is in use: stop the broker first") from None
    with lock:
        yield


# --- one partition, driver -------------------------------------------------------------------------------------------
def _compact(
    spark: Any,
    disk: RealDisk,
    root: str,
    directory: str,
    *,
    config: Settings,
    map_bytes: int,
    task_bytes: int,
    from_start: bool,
    now_ms: int,
    progress: Progress | None,
) -> Compacted:
    begun = time.monotonic()
    named = layout.parse_directory(os.path.basename(directory))
    assert named is not None, "only partitions' directories were chosen"
    done = Compacted(os.path.basename(directory))
    try:
        compacted = LogConfig(cleanup_policy=("compact",))
        given = config(named[0]) if callable(config) else parse(config, compacted)
        settings = replace(given, file_delete_delay_ms=0)
    except ValueError as error:
        raise CompactError(str(error)) from None
    _remove_work(disk, directory)
    log = _open(disk, root, directory, named, settings, now_ms)
    try:
        marks = checkpoints.read_offsets(disk, f"{root}/{layout.CLEANER_OFFSETS}")
        mark = None if from_start else marks.get(checkpoints.TopicPartition(*named))
        target = choice.cleanable(facts_of(log), mark, now_ms)
        done.first_dirty, done.end, done.note = target.first_dirty, target.first_uncleanable, target.mended or ""
        if target.first_uncleanable <= target.first_dirty:
            done.note = "nothing to clean: " + target.bound
            return done
        plan = _planned(spark, log, target, now_ms=now_ms, map_bytes=map_bytes)
        done.segments_before = len(plan.files)
        done.bytes_before = sum(file.size for file in plan.files)
        try:
            results = _run(spark, plan, task_bytes, os.path.basename(directory), progress)
            _commit(disk, log, plan, results, done)
        finally:
            _remove_work(disk, directory)
        if disk.exists(f"{root}/{layout.META_PROPERTIES}"):
            cleaned: dict[tuple[str, int], int] = {(key[0], key[1]): mark for key, mark in marks.items()}
            cleaned[named] = target.first_uncleanable
            checkpoints.write_offsets(disk, f"{root}/{layout.CLEANER_OFFSETS}", cleaned)
    finally:
        log.close()
    done.seconds = time.monotonic() - begun
    return done


def _open(disk: RealDisk, root: str, directory: str, named: tuple[str, int], config: LogConfig, now_ms: int) -> Log:
    """The log as the broker loads it, recovery included where the last stop was not clean."""
    points = checkpoints.read_offsets(disk, f"{root}/{layout.RECOVERY_POINTS}")
    starts = checkpoints.read_offsets(disk, f"{root}/{layout.LOG_STARTS}")
    marks = checkpoints.read_offsets(disk, f"{root}/{layout.HIGH_WATERMARKS}")
    key = checkpoints.TopicPartition(*named)
    log = Log.open(
        disk,
        directory,
        topic=named[0],
        partition=named[1],
        config=config,
        now_ms=now_ms,
        log_start_offset=starts.get(key, 0),
        recovery_point=points.get(key, 0),
        had_clean_shutdown=disk.exists(f"{root}/{layout.CLEAN_SHUTDOWN}"),
    )
    log.update_high_watermark(min(marks.get(key, log.log_end_offset), log.log_end_offset))
    return log


def _planned(spark: Any, log: Log, target: choice.Range, *, now_ms: int, map_bytes: int) -> _Plan:
    segments = [segment for segment in log.segments if segment.base_offset < target.first_uncleanable]
    groups = choice.group(
        segments,
        size_max=log.config.segment_bytes,
        index_bytes_max=log.config.segment_index_bytes,
        first_uncleanable=target.first_uncleanable,
    )
    total = sum(segment.size for segment in segments)
    cores = int(spark.sparkContext.defaultParallelism)
    parts = min(len(groups), max(cores, total // PART_BYTES), TASKS_MAX)
    work = f"{log.directory}/{_WORK_PREFIX}{uuid.uuid4().hex}"
    log.disk.mkdir(work)
    return _Plan(
        directory=log.directory,
        config=log.config,
        target=target,
        files=tuple(
            _File(segment.base_offset, segment.size, log.disk.exists(segment.txn_index.path)) for segment in segments
        ),
        groups=tuple(tuple(group) for group in groups),
        numbers=tuple(spread(len(groups), parts)),
        parts=parts,
        last_records={
            entry.producer_id: LastRecord(entry.last_offset, entry.epoch) for entry in log.producers.entries.values()
        },
        transactions=_walked(log, segments, groups, target),
        now_ms=now_ms,
        secret=secrets.token_bytes(16),
        map_bytes=map_bytes,
        work=work,
    )


def _walked(
    log: Log, segments: Sequence[Segment], groups: Sequence[Sequence[int]], target: choice.Range
) -> dict[int, bytes]:
    """What the cleaner knows of transactions where each group begins: one walk over headers, markers are read."""
    transactions = Transactions()
    states: dict[int, bytes] = {}
    touched = False
    for number, group in enumerate(groups):
        if touched:
            states[number] = pickle.dumps(transactions)
        for index in group:
            segment = segments[index]
            stop = segments[index + 1].base_offset if index + 1 < len(segments) else target.first_uncleanable
            transactions.add(log.aborted_between(segment.base_offset, stop))
            for row in scan(segment.file, 0, segment.size, verify=False):
                if row[5] < 2 or not row[6] & (TRANSACTIONAL | CONTROL):
                    continue
                touched = True
                if row[6] & CONTROL:
                    data = memoryview(segment.file.pread(row[1], row[0]))
                    transactions.marker_is_last(data, batches.read_header(data))
                else:
                    transactions.is_aborted(row[8], row[3])
        transactions.retained.clear()  # rows of the segment that the group became
    return states


def _run(spark: Any, plan: _Plan, task_bytes: int, name: str, progress: Progress | None) -> list[dict[str, Any]]:
    pieces = _pieces(plan.files, task_bytes)
    cores = int(spark.sparkContext.defaultParallelism)
    shuffle = min(max(len(pieces), cores), TASKS_MAX)
    keys = tasks(spark, len(pieces), _Keys(plan, pieces), _KEYS_SCHEMA)
    # A key's highest offset is in its highest group, so that the two maxima belong together.
    survivors = (
        keys.repartition(shuffle, "h0", "h1")
        .groupBy("h0", "h1")
        .agg({"o": "max", "g": "max"})
        .selectExpr("`max(o)` AS o", "`max(g)` AS g")
    )
    # Each group comes once without an offset: one in which nothing survives must be rewritten, too.
    numbers = ",".join(f"{number}L" for number in plan.numbers)
    every = spark.range(0, 1, 1, 1).selectExpr("-1L AS o", f"explode(array({numbers})) AS g")
    done = (
        survivors.unionByName(every)
        .repartition(plan.parts, "g")
        .sortWithinPartitions("g")
        .mapInArrow(_Rewrite(plan), _DONE_SCHEMA)
    )
    with Watch(spark, f"compact {name}", progress):
        rows = done.collect()
    results = [pickle.loads(bytes(row[0])) for row in rows]
    assert sorted(result["group"] for result in results) == list(range(len(plan.groups))), "a group is missing"
    return sorted(results, key=lambda result: int(result["group"]))


def _pieces(files: Sequence[_File], task_bytes: int) -> list[tuple[int, int]]:
    """Neighbouring segments for each task, as [first, last) indexes."""
    pieces: list[tuple[int, int]] = []
    begin = gathered = 0
    for index, file in enumerate(files):
        if index > begin and gathered + file.size > task_bytes:
            pieces.append((begin, index))
            begin, gathered = index, 0
        gathered += file.size
    pieces.append((begin, len(files)))
    return pieces


def _commit(disk: RealDisk, log: Log, plan: _Plan, results: Sequence[dict[str, Any]], done: Compacted) -> None:
    """Move the files of the attempts that Spark counted to their names and swap all groups at once."""
    live = {segment.base_offset: segment for segment in log.segments}
    old = [live[file.base] for file in plan.files]
    fresh: list[Segment] = []
    for result in results:
        done.records_before += result["records_read"]
        done.records_after += result["records_written"]
        for base, size, txn_index in result["segments"]:
            for kind in layout.SEGMENT_SUFFIXES:
                name = layout.file_name(base, kind, layout.CLEANED)
                source = f"{result['directory']}/{name}"
                if disk.exists(source):
                    disk.rename(source, f"{log.directory}/{name}")
            fresh.append(
                Segment(
                    disk,
                    log.directory,
                    base,
                    log.config,
                    size=size,
                    created_ms=plan.now_ms,
                    state=layout.CLEANED,
                    has_txn_index=txn_index,
                )
            )
    disk.fsync_dir(log.directory)
    deletion = log.replace_segments(fresh, old)
    log.finish_deletion(deletion)
    done.segments_after = len(fresh)
    done.bytes_after = sum(segment.size for segment in fresh)


def _remove_work(disk: RealDisk, directory: str) -> None:
    """What this job, or one that was killed, has left."""
    for name in os.listdir(directory):
        if name.startswith(_WORK_PREFIX):
            shutil.rmtree(f"{directory}/{name}")


# --- in a task -------------------------------------------------------------------------------------------------------
class _View:
    """The planned segments as the cleaner wants to see a log: files to read, nothing to change."""

    def __init__(self, plan: _Plan, disk: RealDisk) -> None:
        self.disk = disk
        self.directory = plan.directory
        self.config = plan.config
        self.segment_set = Segments()
        self.segment_set.replace(
            (),
            [
                Segment(
                    disk,
                    plan.directory,
                    file.base,
                    plan.config,
                    size=file.size,
                    created_ms=plan.now_ms,
                    has_txn_index=file.has_txn_index,
                )
                for file in plan.files
            ],
        )
        self.producers = _Producers()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.segment_set.all


class _Producers:
    """The log's producers are in the plan."""

    entries: Mapping[int, Any] = {}


class _TaskCleaning(Cleaning):
    """The cleaner's reading and rewriting over a part of a log, writing into a directory of its own."""

    def __init__(self, plan: _Plan, output: str = "") -> None:
        view: Any = _View(plan, RealDisk())
        super().__init__(view, plan.target, self._no_map, now_ms=plan.now_ms)
        self._last_records = dict(plan.last_records)
        self._kept_offsets = {last.offset for last in self._last_records.values() if last.offset >= 0}
        self._pids_without_data = {pid for pid, last in self._last_records.items() if last.offset < 0}
        self._map = OffsetMap(1 << 10, secret=plan.secret)
        self._output_directory = output
        self._survivors: FilterRules

    @staticmethod
    def _no_map() -> OffsetMap:
        raise AssertionError("a task has no map of the whole log")

    # task A
    def keys(self, first: int, last: int, secret: bytes, map_bytes: int) -> Iterator[tuple[Any, Any]]:
        """(hashes, offsets) of the segments [first, last): each key's highest, more than once where the map is full."""
        offsets = self._map = OffsetMap(map_bytes, secret=secret)
        transactions = Transactions()
        segments = self._segments
        transactions.add(self._aborted(segments[first].base_offset, self._next_base(last - 1)))
        for index in range(first, last):
            segment = segments[index]
            for table, data in self._chunks(segment, 0, self._next_base(index)):
                verdicts = self._aborted_rows(data, table, transactions)
                row, start = 0, 0
                payloads: dict[int, Any] = {}
                while True:
                    code, row, _ = offsets.put_run(
                        data, table, first=row, start_offset=start, verdicts=verdicts, payloads=payloads
                    )
                    if code == OK:
                        break
                    if code == MAP_FULL:
                        start = max(start, offsets.latest_offset + 1)
                        yield offsets.items()
                        offsets.clear()
                    elif code == NEEDS_PYTHON:
                        payloads = self._unpacked(data, table, row, verdicts)
                    else:
                        where = f"{segment.path} at offset {table.row(row)[BASE_OFFSET]}"
                        raise CorruptBatch(f"{where}: {TEXTS.get(code, code)}")
        if len(offsets):
            yield offsets.items()
        offsets.close()

    # task B
    def rewrite(self, group: Sequence[int], rules: FilterRules, transactions: Transactions) -> None:
        self._survivors = rules
        members = [self._segments[index] for index in group]
        for _ in self._rewrite(members, rules, transactions, self._legacy_horizon()):
            pass

    def _keeps_old(self, record: batches.Record, rules: FilterRules, keeps_tombstones: bool) -> bool:
        if record.offset > rules.latest_offset:
            return True
        if record.key is None:
            self.stats.invalid += 1
            return False
        assert rules.bitmap is not None
        place = record.offset - rules.bitmap_start
        survives = bool(rules.bitmap[place >> 3] >> (place & 7) & 1)
        return survives and (record.value is not None or keeps_tombstones)

    def new_segment(self, base_offset: int) -> Segment:
        self._made.append(f"{base_offset:020d}")
        return Segment.create(
            self.log.disk, self._output_directory, base_offset, self._config, self.now_ms, state=layout.CLEANED
        )

    def close(self) -> None:
        for segment in self._segments:
            segment.drop()


class _Keys:
    """Task A: see the module."""

    def __init__(self, plan: _Plan, pieces: list[tuple[int, int]]) -> None:
        self._plan = plan
        self._pieces = pieces

    def __call__(self, number: int) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        load_kernels()
        plan = self._plan
        bases = np.array(plan.group_bases(), dtype=np.int64)
        numbers = np.array(plan.numbers, dtype=np.int64)
        job = _TaskCleaning(plan)
        try:
            for hashes, offsets in job.keys(*self._pieces[number], plan.secret, plan.map_bytes):
                pairs = np.asarray(hashes, dtype=np.int64).reshape(-1, 2)
                places = np.asarray(offsets, dtype=np.int64)
                groups = numbers[np.searchsorted(bases, places, side="right") - 1]
                for at in range(0, len(places), _EMIT_ROWS):
                    part = slice(at, at + _EMIT_ROWS)
                    columns = (
                        np.ascontiguousarray(pairs[part, 0]),
                        np.ascontiguousarray(pairs[part, 1]),
                        places[part],
                        groups[part],
                    )
                    yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=["h0", "h1", "o", "g"])
        finally:
            job.close()


class _Rewrite:
    """Task B: the offsets of the survivors, sorted by group, one or more groups; a row about each group."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._groups = {number: group for group, number in enumerate(plan.numbers)}

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        import numpy as np

        load_kernels()
        plan = self._plan
        current = -1
        bits: Any = None
        start = 0
        for batch in rows:
            offsets = batch.column(0).to_numpy(zero_copy_only=False)
            numbers = batch.column(1).to_numpy(zero_copy_only=False)
            for number in np.unique(numbers):
                group = self._groups[int(number)]
                if group != current:
                    if current >= 0:
                        yield self._rewritten(current, start, bits)
                    current = group
                    start = plan.group_bases()[group]
                    bits = np.zeros((plan.end_of(group) - start + 7) // 8, dtype=np.uint8)
                places = offsets[(numbers == number) & (offsets >= 0)] - start
                np.bitwise_or.at(bits, places >> 3, (1 << (places & 7)).astype(np.uint8))
        if current >= 0:
            yield self._rewritten(current, start, bits)

    def _rewritten(self, group: int, start: int, bits: Any) -> Any:
        import pyarrow as pa

        plan = self._plan
        output = f"{plan.work}/{group}-{uuid.uuid4().hex}"
        os.mkdir(output)
        job = _TaskCleaning(plan, output)
        try:
            rules = FilterRules(
                latest_offset=plan.target.first_uncleanable - 1,
                now_ms=plan.now_ms,
                delete_retention_ms=plan.config.delete_retention_ms,
                bitmap=memoryview(bits),
                bitmap_start=start,
                bitmap_stop=plan.end_of(group),
            )
            state = plan.transactions.get(group)
            transactions = Transactions() if state is None else pickle.loads(state)
            job.rewrite(plan.groups[group], rules, transactions)
            assert job.ready is not None
            report = {
                "group": group,
                "directory": output,
                "segments": [
                    (segment.base_offset, segment.size, os.path.exists(segment.txn_index.path))
                    for segment in job.ready.new
                ],
                "records_read": job.stats.records_read,
                "records_written": job.stats.records_written,
            }
            for segment in job.ready.new:
                segment.drop()
        finally:
            job.close()
        return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], names=["report"])
