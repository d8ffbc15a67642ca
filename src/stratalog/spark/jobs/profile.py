"""Profile: what is in a topic.  Sizes, rates over time, keys and their skew, gaps, duplicates, codecs.

A task reads slices as Arrow (`ranges.read_piece`), counts what can be counted with small arrays (`Counts`), and gives
out a row for each key that it met with number and size, and, where duplicates are asked for, one for each content, as a
hash of 64 bits.  Spark adds up both by a shuffle, so neither has to fit into one memory; numbers of keys are exact.
Codecs and batches come from the headers: of the files, or of the fetched bytes.  Nothing is written but the page.
"""

from __future__ import annotations

import codecs
import os
import pickle
import struct
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from stratalog.records.compression import NAMES as CODECS
from stratalog.server.disk import RealDisk
from stratalog.spark.errors import NotThere, OptionError
from stratalog.spark.jobs.ranges import Ranges, planned, read_piece, source_options
from stratalog.spark.jobs.running import Progress, Watch, session_of, tasks
from stratalog.spark.origin import Slice
from stratalog.storage import layout
from stratalog.storage.scan import CONTROL, scan

KEYS_HELD_MAX: Final = 1 << 19
"""Distinct keys that a task gathers before it gives them out; more only cost rows in the shuffle."""
_MERGE_ROWS: Final = 1 << 20
TIME_BUCKETS_MAX: Final = 2048
"""Buckets of time in a task; when there are more, each two become one."""
GAPS_KEPT: Final = 10
KEY_SHOWN_BYTES: Final = 96
_ROW_SCHEMA: Final = "kind int, h bigint, key binary, n bigint, size bigint, report binary"
_REPORT, _KEY, _CONTENT = 0, 1, 2
_ENTRY: Final = struct.Struct(">ii")


@dataclass(slots=True)
class Counts:
    """What is counted of some records; two can be added."""

    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0
    size_min: int = 1 << 62
    size_max: int = 0
    first_ms: int = 1 << 62
    last_ms: int = -1
    late: int = 0
    """Records with an earlier time than the one before them in their partition."""
    sizes: Counter[int] = field(default_factory=Counter)
    """Records by the bits of their size: 7 is 64 to 127 bytes of key and value."""
    width_ms: int = 1000
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Time divided by the width: records, bytes."""
    gaps: int = 0
    missing: int = 0
    largest_gaps: list[tuple[int, str, int]] = field(default_factory=list)
    """(missing offsets, partition, first missing offset), the largest first."""
    codecs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Batches and bytes as stored."""
    formats: Counter[int] = field(default_factory=Counter)
    """Batches by magic."""
    control_batches: int = 0

    def add(self, other: Counts) -> None:
        """Take in what another has counted."""
        for name in (
            "records", "key_bytes", "value_bytes", "null_keys", "null_values", "late", "gaps", "missing",
            "control_batches",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.size_min, self.size_max = min(self.size_min, other.size_min), max(self.size_max, other.size_max)
        self.first_ms, self.last_ms = min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms)
        self.sizes.update(other.sizes)
        self.formats.update(other.formats)
        for name, (batches, size) in other.codecs.items():
            mine = self.codecs.get(name, (0, 0))
            self.codecs[name] = (mine[0] + batches, mine[1] + size)
        while self.width_ms < other.width_ms:
            self._coarsen()
        factor = self.width_ms // other.width_ms
        for bucket, (records, size) in other.times.items():
            self.count_time(bucket // factor, records, size)
        self.keep_gaps(other.largest_gaps)

    def count_time(self, bucket: int, records: int, size: int) -> None:
        mine = self.times.get(bucket, (0, 0))
        self.times[bucket] = (mine[0] + records, mine[1] + size)
        while len(self.times) > TIME_BUCKETS_MAX:
            self._coarsen()

    def keep_gaps(self, gaps: list[tuple[int, str, int]]) -> None:
        self.largest_gaps = sorted([*self.largest_gaps, *gaps], key=lambda gap: (-gap[0], *gap[1:]))[:GAPS_KEPT]

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `asdict` would count the pairs of a `Counter` instead of copying them."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        if not self.records:
            found["size_min"] = found["first_ms"] = found["last_ms"] = None
        return {**found, "sizes": dict(self.sizes), "formats": dict(self.formats)}

    def _coarsen(self) -> None:
        times, self.times = self.times, {}
        self.width_ms *= 2
        for bucket, (records, size) in times.items():
            mine = self.times.get(bucket // 2, (0, 0))
            self.times[bucket // 2] = (mine[0] + records, mine[1] + size)


@dataclass(slots=True)
class Key:
    """A key that comes often.  `text` is None for records without a key."""

    text: str | None
    records: int
    bytes: int


@dataclass(slots=True)
class ProfileReport:
    """What was found; `partitions` has a row for each that had something."""

    topic: str
    place: str
    total: Counts = field(default_factory=Counts)
    partitions: dict[str, Counts] = field(default_factory=dict)
    offsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    distinct_keys: int = 0
    top_keys: list[Key] = field(default_factory=list)
    key_steps: list[tuple[int, int, int]] = field(default_factory=list)
    """(bits of the number of records of a key, keys, records of them)."""
    duplicates: int | None = None
    """Records with the key and value of an earlier one in the topic; None where that was not asked for."""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        counted = {name: one.as_dict() for name, one in self.partitions.items()}
        plain = asdict(replace(self, total=Counts(), partitions={}))
        return {**plain, "total": self.total.as_dict(), "partitions": counted}

    def html(self) -> str:
        """A page with tables and plots that needs nothing else."""
        from stratalog.spark.jobs.page import profile_page

        return profile_page(self)


def profile(
    topic: str,
    spark: Any = None,
    *,
    path: str | None = None,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
    top: int = 20,
    duplicates: bool = True,
    page: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ProfileReport:
    """Look through a topic (from `path`, `bootstrap` or both); `page` is where the HTML page is written.

    `options` are the data source's: a range of offsets or time, the isolation.  `top`: keys in the report.
    `duplicates=False` leaves out the shuffle of the contents.
    """
    begun = time.monotonic()
    if not 1 <= top <= 10_000:
        raise OptionError.of("top", top, "1 to 10000")
    if page is not None and not os.path.isdir(folder := os.path.dirname(os.path.abspath(os.fspath(page)))):
        raise NotThere(f"{folder}: there is no such directory for the page")
    running = session_of(spark)
    ranges = planned(source_options(topic, path=path, bootstrap=bootstrap, options=options))
    report = ProfileReport(topic, " and ".join(place for place in (path, bootstrap) if place))
    report.offsets = {f"{p[0]}-{p[1]}": (span.start, span.stop) for p, span in sorted(ranges.spans.items())}
    if ranges.pieces:
        rows = tasks(running, len(ranges.pieces), _Profile(ranges, duplicates), _ROW_SCHEMA).persist()
        try:
            with Watch(running, f"profile {topic}", progress):
                _gather(rows, report, top, duplicates)
        finally:
            rows.unpersist()
    elif duplicates:
        report.duplicates = 0
    report.seconds = time.monotonic() - begun
    if page is not None:
        RealDisk().write_atomically(os.path.abspath(os.fspath(page)), report.html().encode())
    return report


def _gather(rows: Any, report: ProfileReport, top: int, duplicates: bool) -> None:
    from pyspark.sql import functions as f

    for row in rows.where(f"kind = {_REPORT}").select("report").collect():
        for name, counts in pickle.loads(bytes(row[0])).items():
            report.partitions.setdefault(name, Counts()).add(counts)
            report.total.add(counts)
    report.partitions = dict(sorted(report.partitions.items()))
    keys = rows.where(f"kind = {_KEY}").groupBy("key").agg(f.sum("n").alias("n"), f.sum("size").alias("size")).persist()
    try:
        for row in keys.orderBy("n", "key", ascending=[False, True]).limit(top).collect():
            report.top_keys.append(Key(None if row[0] is None else shown(bytes(row[0])), row[1], row[2]))
        steps = keys.where("key IS NOT NULL").selectExpr("length(bin(n)) AS step", "n").groupBy("step")
        for step, number, records in sorted(steps.agg(f.count("*"), f.sum("n")).collect()):
            report.key_steps.append((step, number, records))
            report.distinct_keys += number
    finally:
        keys.unpersist()
    if duplicates:
        contents = rows.where(f"kind = {_CONTENT}").groupBy("h").agg(f.sum("n").alias("n"))
        report.duplicates = contents.where("n > 1").selectExpr("coalesce(sum(n - 1), 0L)").first()[0]


def shown(key: bytes) -> str:
    """A key for people: text where it is text, else hex; cut where it is long."""
    cut = key[:KEY_SHOWN_BYTES]
    more = "..." if len(key) > len(cut) else ""
    try:
        # A character that the cut goes through is no reason for hex.
        text = cut.decode("utf-8") if not more else codecs.getincrementaldecoder("utf-8")().decode(cut)
    except UnicodeDecodeError:
        return "0x" + cut.hex() + more
    return (text if text.isprintable() else "0x" + cut.hex()) + more


# --- in a task --------------------------------------------------------------------------------------------------------
class _Profile:
    """Runs in the worker: one group of slices."""

    def __init__(self, ranges: Ranges, duplicates: bool) -> None:
        self._ranges = ranges
        self._duplicates = duplicates

    def __call__(self, number: int) -> Iterator[Any]:
        keys = _Keys()
        found: dict[str, Counts] = {}
        for piece in self._ranges.pieces[number]:
            counts = found.setdefault(piece.name, Counts())
            headers = _Headers(counts)
            if piece.directory:
                headers.of_files(piece)
            last = _Last(piece.start - 1)
            for batch in read_piece(
                piece, self._ranges.options, ("offset", "timestamp", "key", "value"), headers.of_answer
            ):
                sizes = _counted(counts, batch, piece, last)
                yield from keys.add(batch.column("key"), sizes)
                if self._duplicates:
                    yield _contents(batch)
            last.gap(counts, piece, piece.stop)
        yield from keys.rest()
        yield _rows(kind=_REPORT, report=[pickle.dumps(found)])


class _Last:
    """The record before, to see gaps and times that go back."""

    __slots__ = ("offset", "stamp")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.stamp = -1

    def gap(self, counts: Counts, piece: Slice, following: int) -> None:
        """Count the offsets between the record before and `following`."""
        missing = following - self.offset - 1
        if missing > 0:
            counts.gaps += 1
            counts.missing += missing
            counts.keep_gaps([(missing, piece.name, self.offset + 1)])


def _counted(counts: Counts, batch: Any, piece: Slice, last: _Last) -> Any:
    """Count a batch; the size of each record."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    key, value = batch.column("key"), batch.column("value")
    key_sizes = pc.fill_null(pc.binary_length(key), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    value_sizes = pc.fill_null(pc.binary_length(value), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = key_sizes + value_sizes
    counts.records += len(sizes)
    counts.key_bytes += int(key_sizes.sum())
    counts.value_bytes += int(value_sizes.sum())
    counts.null_keys += key.null_count
    counts.null_values += value.null_count
    counts.size_min, counts.size_max = min(counts.size_min, int(sizes.min())), max(counts.size_max, int(sizes.max()))
    bits = np.frexp(sizes.astype(np.float64))[1]
    for step, number in zip(*np.unique(bits, return_counts=True), strict=True):
        counts.sizes[int(step)] += int(number)

    stamps = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    if stamps.min() >= 0:
        _count_times(counts, stamps, sizes, last)
    elif stamps.max() >= 0:  # records of the first format have no time
        _count_times(counts, stamps[stamps >= 0], sizes[stamps >= 0], last)

    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    last.gap(counts, piece, int(offsets[0]))
    steps = np.diff(offsets)
    for place in np.flatnonzero(steps > 1) if len(steps) and int(steps.max()) > 1 else ():
        last.offset = int(offsets[place])
        last.gap(counts, piece, int(offsets[place + 1]))
    last.offset = int(offsets[-1])
    return sizes


def _count_times(counts: Counts, stamps: Any, sizes: Any, last: _Last) -> None:
    import numpy as np

    counts.first_ms, counts.last_ms = min(counts.first_ms, int(stamps.min())), max(counts.last_ms, int(stamps.max()))
    counts.late += int((np.diff(stamps) < 0).sum()) + int(stamps[0] < last.stamp)
    last.stamp = int(stamps[-1])
    buckets, places = np.unique(stamps // counts.width_ms, return_inverse=True)
    width = counts.width_ms
    totals = np.bincount(places), np.bincount(places, weights=sizes)
    for bucket, records, size in zip(buckets.tolist(), *map(np.ndarray.tolist, totals), strict=True):
        counts.count_time(bucket * width // counts.width_ms, records, int(size))


class _Keys:
    """Distinct keys with number and size, gathered over batches and given out when they are many."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._held = 0

    def add(self, key: Any, sizes: Any) -> Iterator[Any]:
        import pyarrow as pa

        ones = pa.repeat(pa.scalar(1, pa.int64()), len(key))
        columns = {"key": key, "n": ones, "size": pa.array(sizes)}
        self._parts.append(_grouped([pa.Table.from_pydict(columns)]))
        self._held += self._parts[-1].num_rows
        if self._held > _MERGE_ROWS:
            merged = _grouped(self._parts)
            self._parts, self._held = [merged], merged.num_rows
            if merged.num_rows > KEYS_HELD_MAX:
                yield from self.rest()

    def rest(self) -> Iterator[Any]:
        if self._parts:
            merged = _grouped(self._parts)
            for batch in merged.to_batches(max_chunksize=65_536):
                yield _rows(kind=_KEY, key=batch.column("key"), n=batch.column("n"), size=batch.column("size"))
        self._parts, self._held = [], 0


def _grouped(parts: list[Any]) -> Any:
    import pyarrow as pa

    # One thread: Spark has its own tasks for the other cores.
    found = pa.concat_tables(parts).group_by("key", use_threads=False).aggregate([("n", "sum"), ("size", "sum")])
    return found.rename_columns({"n_sum": "n", "size_sum": "size"})


def _contents(batch: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    from stratalog.spark.encode import column_of, hashes_of

    rows = batch.num_rows
    hashes = hashes_of(column_of(batch.column("key"), rows), column_of(batch.column("value"), rows))
    distinct, numbers = np.unique(hashes, return_counts=True)
    return _rows(kind=_CONTENT, h=pa.array(distinct), n=pa.array(numbers.astype(np.int64)))


def _rows(*, kind: int, **columns: Any) -> Any:
    import pyarrow as pa

    kinds = {"h": pa.int64(), "key": pa.binary(), "n": pa.int64(), "size": pa.int64(), "report": pa.binary()}
    count = len(next(iter(columns.values())))
    arrays = [pa.repeat(pa.scalar(kind, pa.int32()), count)]
    for name, type_ in kinds.items():
        column = columns.get(name)
        if column is None:
            column = pa.nulls(count, type_)
        elif not isinstance(column, pa.Array):
            column = pa.array(column, type_)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=["kind", *kinds])


class _Headers:
    """Counts batches by codec and format.  A batch belongs to the slice that has its last offset."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def of_files(self, piece: Slice) -> None:
        disk = RealDisk()
        names = (layout.parse(name) for name in disk.listdir(piece.directory))
        bases = sorted({one.offset for one in names if one is not None and one.kind == layout.LOG and not one.state})
        for index, base in enumerate(bases):
            if base >= piece.stop or (index + 1 < len(bases) and bases[index + 1] <= piece.start):
                continue
            try:
                file = disk.open(layout.path_of(piece.directory, base, layout.LOG), write=False)
            except FileNotFoundError:
                continue  # cleaned or deleted since; the records themselves are read with more care
            try:
                begin = _position(disk, piece.directory, base, piece.start)
                for row in scan(file, begin, file.size(), verify=False):
                    if row[3] >= piece.stop:
                        break
                    if row[3] >= piece.start:
                        self._count(row[1], row[5], row[6])
            finally:
                file.close()

    def of_answer(self, position: int, stop: int, rows: list[tuple[int, int, int, int]]) -> None:
        """Batches over the wire, as (last offset, size, magic, attributes)."""
        for last, size, magic, attributes in rows:
            if position <= last < stop:
                self._count(size, magic, attributes)

    def _count(self, size: int, magic: int, attributes: int) -> None:
        counts = self._counts
        counts.formats[magic] += 1
        if magic == 2 and attributes & CONTROL:
            counts.control_batches += 1
            return
        codec = attributes & 7
        name = CODECS[codec] if codec < len(CODECS) else f"codec {codec}"
        mine = counts.codecs.get(name, (0, 0))
        counts.codecs[name] = (mine[0] + 1, mine[1] + size)


def _position(disk: RealDisk, directory: str, base: int, offset: int) -> int:
    """Where to begin in a segment: at the last entry of its index below the offset."""
    try:
        data = disk.read(layout.path_of(directory, base, layout.INDEX), limit=1 << 30)
    except FileNotFoundError:
        return 0
    entries = [entry for entry in _ENTRY.iter_unpack(data[: len(data) // 8 * 8]) if entry[0] or entry[1]]
    found = bisect_left(entries, offset - base, key=lambda entry: entry[0]) - 1
    return int(entries[found][1]) if found >= 0 else 0
