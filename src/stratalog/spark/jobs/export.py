"""Export: a topic into a table, each record once, however often the job is run or interrupted.

    plan     the table says where its last commit ended, the log says where it ends now
    tasks    read slices as Arrow and write Parquet files, one or more for each partition of the table
    commit   the driver adds the files and the new offsets in one commit (`tables`)

Tasks write files under names of their own attempt; only those whose task Spark counted are committed, the others are
removed.  Values stay bytes unless a schema is given (`values`).  Records go from log to file inside the workers.
"""

from __future__ import annotations

import os
import pickle
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from stratalog.spark.errors import DataLoss, OptionError
from stratalog.spark.jobs.ranges import Ranges, planned, read_piece, source_options
from stratalog.spark.jobs.running import Progress, Watch, session_of, tasks
from stratalog.spark.jobs.tables import DataFile, Folder, column_of, open_target
from stratalog.spark.jobs.values import BadValue, ValueSchema, value_schema
from stratalog.spark.origin import Slice

OPEN_FILES_MAX: Final = 16
"""Files that one task writes at a time: records mostly come in the order of their dates."""
FILE_ROWS_MAX: Final = 50_000_000
ROW_GROUP_ROWS: Final = 131_072
_DAYS: Final = (-719_162, 2_932_896)
"""0001-01-01 and 9999-12-31, what tables have as dates.  A producer that takes microseconds for milliseconds writes
records of later ones; their partition is that of null."""


@dataclass(slots=True)
class ExportReport:
    """What the job did."""

    table: str
    format: str
    records: int = 0
    files: int = 0
    bytes: int = 0
    nulled: int = 0
    """Values that did not fit their schema and became null."""
    offsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each partition that had something: from where to where."""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def export(
    topic: str,
    target: str | os.PathLike[str],
    spark: Any = None,
    *,
    format: str = "parquet",
    path: str | None = None,
    bootstrap: str | None = None,
    by: str | None = "date",
    span: int = 1_000_000,
    values: str = "raw",
    value_schema_text: str | None = None,
    bad_values: str = "fail",
    headers: bool = False,
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write what is new in `topic` (from `path`, `bootstrap` or both) into the table at `target`.

    `format`: `parquet`, `iceberg` or `delta`.  `by`: partitions of the table by `date` (of the record's time, in UTC),
    by `offset` (ranges of `span`), or None.  `values`: `raw`, `json`, `avro`, `confluent-avro` or `protobuf` with
    `value_schema_text`; `bad_values`: `fail` or `null`.  `table` and `catalog` are for Iceberg: the name, and the
    properties of a catalog for pyiceberg (`name` among them, by which its own configuration knows it); without them a
    catalog in SQLite, named `stratalog`, is kept in `target`.  `options` are the data source's:
    they say where the first run begins and where this one ends.
    """
    begun = time.monotonic()
    place = os.path.abspath(os.fspath(target))
    if by not in ("date", "offset", None):
        raise OptionError.of("by", by, "date, offset or None")
    if span < 1:
        raise OptionError.of("span", span, "at least 1")
    if bad_values not in ("fail", "null"):
        raise OptionError.of("bad_values", bad_values, "fail or null")
    running = session_of(spark)
    schema = value_schema(values, value_schema_text, null_if_bad=bad_values == "null")
    work_schema = _schema(schema, headers)
    name = table or "stratalog." + re.sub(r"[^0-9A-Za-z_]", "_", topic)
    raw = source_options(topic, path=path, bootstrap=bootstrap, options=options)
    opened = open_target(format, place, work_schema, by=by, span=span, table=name, catalog=catalog)
    try:
        report = ExportReport(place if format != "iceberg" else f"{name} in {place}", format)
        known = opened.offsets(topic)
        ranges = planned(raw, known=known)
        for partition, span_ in ranges.spans.items():
            if span_.start < known.get(partition, span_.start):
                raise DataLoss(f"{partition}: the plan begins before the table's last commit")
        if ranges.pieces:
            work = _Export(ranges, opened.directory, schema, headers, by, span, format == "parquet")
            try:
                with Watch(running, f"export {topic}", progress):
                    rows = tasks(running, len(ranges.pieces), work, "result binary").collect()
                results = [pickle.loads(bytes(row[0])) for row in rows]
                files: list[DataFile] = [file for result in results for file in result[0]]
                wanted = {file.name for file in files}
                opened.discard([name for name in _names(opened.directory, work.job) if name not in wanted])
                ends = {p: span_.stop for p, span_ in ranges.spans.items()}
                opened.commit(files, ends)
            except BaseException:
                opened.discard(_uncommitted(opened.directory, work.job, opened.offsets(topic), ranges))
                raise
            report.files = len(files)
            report.records = sum(file.rows for file in files)
            report.bytes = sum(file.size for file in files)
            report.nulled = sum(result[1] for result in results)
            report.offsets = {f"{p[0]}-{p[1]}": (s.start, s.stop) for p, s in sorted(ranges.spans.items())}
    finally:
        opened.close()
    report.seconds = time.monotonic() - begun
    return report


def _names(directory: str, job: str) -> list[str]:
    return [name for name in os.listdir(directory) if job in name]


def _uncommitted(directory: str, job: str, offsets: Mapping[Any, int], ranges: Ranges) -> list[str]:
    """The job's files, unless its commit is there after all: then none."""
    if all(offsets.get(p, -1) >= span.stop for p, span in ranges.spans.items()):
        return []
    return _names(directory, job)


def _schema(values: ValueSchema | None, headers: bool) -> Any:
    import pyarrow as pa

    fields = [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary() if values is None else values.arrow),
    ]
    if headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pair)))
    return pa.schema(fields)


class _Export:
    """In a task: slices of the log into files."""

    def __init__(
        self,
        ranges: Ranges,
        directory: str,
        values: ValueSchema | None,
        headers: bool,
        by: str | None,
        span: int,
        staged: bool,
    ) -> None:
        self.job = uuid.uuid4().hex
        self._ranges = ranges
        self._directory = directory
        self._values = values
        self._headers = headers
        self._by = by
        self._span = span
        self._suffix = ".parquet.staged" if staged else ".parquet"

    def __call__(self, number: int) -> Iterator[Any]:
        import pyarrow as pa

        schema = _schema(self._values, self._headers)
        decode = None if self._values is None else self._values.decoder()
        columns = ("offset", "timestamp", "key", "value", *(("headers",) if self._headers else ()))
        files = _Files(self._directory, schema, f"{self.job}-{uuid.uuid4().hex[:8]}", self._suffix)
        nulled = 0
        try:
            for piece in self._ranges.pieces[number]:
                for batch in read_piece(piece, self._ranges.options, columns):
                    values = batch.column("value")
                    if decode is not None:
                        values, bad = decode(values)
                        nulled += len(bad)
                        if bad and not (self._values and self._values.null_if_bad):
                            offset = batch.column("offset")[bad[0][0]].as_py()
                            raise BadValue(f"{piece.name} at offset {offset}: the value does not fit: {bad[0][1]}")
                    made = {
                        "topic": pa.repeat(pa.scalar(piece.topic), batch.num_rows),
                        "partition": pa.repeat(pa.scalar(piece.partition, pa.int32()), batch.num_rows),
                        "offset": batch.column("offset"),
                        "timestamp": batch.column("timestamp"),
                        "key": batch.column("key"),
                        "value": values,
                    }
                    if self._headers:
                        made["headers"] = batch.column("headers")
                    arrays = [made[name].cast(schema.field(name).type) for name in schema.names]
                    self._write(files, piece, pa.RecordBatch.from_arrays(arrays, schema=schema))
        finally:
            files.close()
        result = pickle.dumps((files.done, nulled))
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=["result"])

    def _write(self, files: _Files, piece: Slice, batch: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = column_of(self._by)
        if column is None:
            files.write(piece, None, batch)
            return
        if self._by == "date":
            keys = batch.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
            days = keys.cast(pa.int32())
            there = pc.and_(pc.greater_equal(days, _DAYS[0]), pc.less_equal(days, _DAYS[1]))
            keys = pc.if_else(there, keys, pa.scalar(None, pa.date32()))
        else:
            offsets = batch.column("offset")
            keys = pc.multiply(pc.divide(offsets, self._span), self._span)
        for key in pc.unique(keys).to_pylist():
            if key is None:
                files.write(piece, (column, None), batch.filter(pc.is_null(keys)))
            else:
                files.write(piece, (column, str(key)), batch.filter(pc.equal(keys, key)))


class _Open:
    """A file that is being written."""

    __slots__ = ("file", "first", "folder", "last", "name", "path", "rows", "writer")

    def __init__(self, path: str, name: str, folder: Folder | None, schema: Any) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.name = name
        self.folder = folder
        self.rows = 0
        self.first = 1 << 63
        self.last = -1
        self.file = open(path, "wb")  # noqa: SIM115  closed with the writer
        self.writer = pq.ParquetWriter(self.file, schema, compression="zstd")


class _Files:
    """The files of one task."""

    def __init__(self, directory: str, schema: Any, attempt: str, suffix: str) -> None:
        self._directory = directory
        self._schema = schema
        self._attempt = attempt
        self._suffix = suffix
        self._open: dict[tuple[str, Folder | None], _Open] = {}
        self._made = 0
        self.done: list[DataFile] = []

    def write(self, piece: Slice, folder: Folder | None, batch: Any) -> None:
        import pyarrow.compute as pc

        place = (piece.name, folder)
        one = self._open.pop(place, None)
        if one is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(self._open.pop(next(iter(self._open))))
            first = batch.column("offset")[0].as_py()
            name = f"{piece.name}-{first:020d}-{self._attempt}-{self._made}{self._suffix}"
            self._made += 1
            one = _Open(f"{self._directory}/{name}", name, folder, self._schema)
        self._open[place] = one  # the one that was written last is closed last
        one.writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
        bounds = pc.min_max(batch.column("offset")).as_py()
        one.first, one.last = min(one.first, bounds["min"]), max(one.last, bounds["max"])
        one.rows += batch.num_rows
        if one.rows >= FILE_ROWS_MAX:
            self._finish(self._open.pop(place))

    def _finish(self, one: _Open) -> None:
        one.writer.close()
        one.file.flush()
        os.fsync(one.file.fileno())
        one.file.close()
        size = os.path.getsize(one.path)
        self.done.append(DataFile(one.name, one.folder, one.rows, size, one.first, one.last))

    def close(self) -> None:
        for place in list(self._open):
            self._finish(self._open.pop(place))
