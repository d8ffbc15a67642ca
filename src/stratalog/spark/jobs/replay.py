"""Replay: a range of a topic, from files or a broker, into another topic or another broker.

A task reads one partition's range in order and writes it with the sink's producer (`spark.sink`): keys, values,
headers and timestamps as they were, the partition as it was (`partitions="keep"`) or by key (`"key"`).  Records go from
log to wire inside the worker; they never pass the JVM.  Committed records only, unless the options say otherwise.

The sink's promise holds here: with the same `write_id` and the same range, a task or a job that is tried again goes on
behind what it has written (`docs/SPARK.md`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stratalog.spark.errors import OptionError
from stratalog.spark.jobs.ranges import Ranges, planned, read_piece, source_options
from stratalog.spark.jobs.running import Progress, Watch, session_of, tasks
from stratalog.spark.options import WriteOptions, write_options

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
_SCHEMA = "topic string, part int, start bigint, stop bigint, records bigint, repeated bigint, size bigint"


@dataclass(slots=True)
class Replayed:
    """What became of one partition."""

    partition: str
    start: int
    stop: int
    records: int
    repeated: int
    """Of these an earlier attempt had written."""
    bytes: int


@dataclass(slots=True)
class ReplayReport:
    """What the job did, a row for each partition that had something."""

    target: str
    partitions: list[Replayed] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "records": self.records}


def replay(
    topic: str,
    target: str,
    spark: Any = None,
    *,
    path: str | None = None,
    bootstrap: str | None = None,
    to_bootstrap: str | None = None,
    partitions: str = "keep",
    options: Mapping[str, str] | None = None,
    write_options_: Mapping[str, str] | None = None,
    write_id: str | None = None,
    progress: Progress | None = None,
) -> ReplayReport:
    """Write a range of `topic` (from `path`, `bootstrap` or both) into the topic `target` at `to_bootstrap`, which is
    `bootstrap` where it is not given.

    `options`: of the data source, such as `startingOffsets`, `startingTimestamp`, `endingTimestamp`, `isolation`.
    `write_options_`: of the sink, such as `compression`.  The target topic exists already.
    """
    begun = time.monotonic()
    to = to_bootstrap or bootstrap
    if to is None:
        raise OptionError("to_bootstrap is missing: the broker to write to")
    if partitions not in ("keep", "key"):
        raise OptionError.of("partitions", partitions, "keep or key")
    if target == topic and (to_bootstrap is None or to_bootstrap == bootstrap):
        raise OptionError.of("target", target, "another topic or another broker: this one would be read into itself")
    raw = {"kafka.bootstrap.servers": to, "topic": target, "includeHeaders": "true", "timestamps": "column"}
    writing = write_options({**raw, **(write_options_ or {})})
    ranges = planned(source_options(topic, path=path, bootstrap=bootstrap, options=options), by_bytes=False)
    for name, value in (
        ("minPartitions", ranges.options.min_partitions),
        ("maxRecordsPerPartition", ranges.options.max_records_per_partition),
    ):
        if value is not None:
            raise OptionError.of(name, value, "not in a replay: one task writes all of a partition, in its order")
    _check_target(writing, target, ranges, keep=partitions == "keep")
    report = ReplayReport(f"{target} at {to}")
    if ranges.pieces:
        running = session_of(spark)
        work = _Replay(ranges, writing, write_id or uuid.uuid4().hex, partitions == "keep")
        with Watch(running, f"replay {topic}", progress):
            rows = tasks(running, len(ranges.pieces), work, _SCHEMA).collect()
        for row in sorted(rows, key=lambda row: (row[0], row[1])):
            report.partitions.append(Replayed(f"{row[0]}-{row[1]}", *row[2:]))
    report.seconds = time.monotonic() - begun
    return report


def _check_target(writing: WriteOptions, target: str, ranges: Ranges, *, keep: bool) -> None:
    from stratalog.client import Client

    with Client(writing.bootstrap, client_id=writing.client_id, timeout_s=writing.timeout_s) as client:
        there = len(client.topic(target).partitions)
    highest = max((partition for _, partition in ranges.spans), default=0)
    if keep and highest >= there:
        raise OptionError(
            f"target {target} has {there} partitions, the range has a partition {highest}: make more, or "
            "partitions=key to spread the records by key"
        )


class _Replay:
    """In a task: one partition's slices, one behind the other."""

    def __init__(self, ranges: Ranges, writing: WriteOptions, write_id: str, keep: bool) -> None:
        self._ranges = ranges
        self._writing = writing
        self._write_id = write_id
        self._keep = keep

    def __call__(self, number: int) -> Iterator[Any]:
        import pyarrow as pa

        from stratalog.spark.rows import rows_of
        from stratalog.spark.sink import Identity, TaskWriter

        pieces = self._ranges.pieces[number]
        size = 0
        first = pieces[0]
        # The identity is the partition's, not the task's number: the next run may find nothing in another partition.
        identity = Identity(f"{self._write_id}/{first.topic}-{first.partition}", 0, 0)
        with TaskWriter(self._writing, identity, patient=True) as writer:
            for piece in pieces:
                for batch in read_piece(piece, self._ranges.options, _COLUMNS):
                    columns = {name: batch.column(name) for name in ("key", "value", "timestamp", "headers")}
                    if self._keep:
                        columns["partition"] = pa.repeat(pa.scalar(piece.partition, pa.int32()), batch.num_rows)
                    size += columns["value"].nbytes + columns["key"].nbytes
                    for rows in rows_of(pa.RecordBatch.from_pydict(columns), self._writing):
                        writer.add(rows)
            writer.finish()
            row = (first.topic, first.partition, first.start, pieces[-1].stop, writer.records, writer.repeated, size)
        names = ["topic", "part", "start", "stop", "records", "repeated", "size"]
        kinds = [pa.string(), pa.int32(), *[pa.int64()] * 5]
        yield pa.RecordBatch.from_arrays([pa.array([v], k) for v, k in zip(row, kinds, strict=True)], names=names)
