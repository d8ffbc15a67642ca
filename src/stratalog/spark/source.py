"""`format("stratalog")`: what Spark asks for a reader or a writer.

Spark makes this object anew in a Python process of the driver for each step (`load`, planning, commit) and pickles
it; so it holds the options and nothing else.  Errors are raised where they can be said first: wrong options at
`load()`; what only a batch or only a stream may say, and topics and places that are missing, when the query is planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from stratalog.spark import origin, schema
from stratalog.spark.errors import OptionError
from stratalog.spark.options import ReadOptions, TopicPartition, check_reading, columns_of, read_options, write_options


class StratalogDataSource(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return "stratalog"

    def schema(self) -> str:
        """Only reading asks: the table as Spark's Kafka source has it, or the columns that the options name."""
        check_reading(self.options)
        return schema.table_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, streaming=False)
        return (PushdownReader if options.pushdown else Reader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from stratalog.spark.stream import StreamReader

        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = write_options(self.options)
        if overwrite:
            raise OptionError("mode: a log is appended to; use mode('append'), not mode('overwrite')")
        if options.path:
            from stratalog.spark.bulk import BulkWriter

            return BulkWriter(options, schema)
        from stratalog.spark.sink import BatchWriter

        return BatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from stratalog.spark.sink import StreamWriter

        options = write_options(self.options)
        if options.path:
            raise OptionError.of("path", options.path, "bulk writes are for batch queries; a stream goes to a broker")
        if overwrite:
            raise OptionError("outputMode: a log is appended to; use append or update, not complete")
        return StreamWriter(options, schema)


class Task(InputPartition):
    """What a task reads: slices of one partition, one behind the other."""

    def __init__(self, slices: tuple[origin.Slice, ...], early: int | None = None, late: int | None = None) -> None:
        super().__init__(slices)
        self.early = early
        self.late = late


class Reader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: ReadOptions, schema_: StructType) -> None:
        self._options = options
        self._schema = schema_
        schema.checked(schema_)
        self._limits = Limits()

    def partitions(self) -> list[InputPartition]:
        found = origin.open_origin(self._options)
        try:
            return self._planned(found)
        finally:
            found.close()

    def _planned(self, found: origin.Origin) -> list[InputPartition]:
        options = self._options
        partitions = found.partitions(options.selection)
        spans = found.spans(partitions)
        starts = origin.resolve_start(found, options, partitions, spans)
        ends = origin.resolve_end(found, options, partitions, spans)
        wanted = self._limits.narrowed(origin.within(options, starts, ends, spans))
        tasks = origin.cut(found, options, wanted, by_bytes=True)
        return [Task(slices, self._limits.early, self._limits.late) for slices in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(partition, self._options, self._schema)


def read_task(partition: InputPartition, options: ReadOptions, schema_: StructType) -> Iterator[Any]:
    """Arrow batches of a task; Spark makes one with the value None where there is nothing to read."""
    if partition.value is None:
        return
    assert isinstance(partition, Task), "Spark gives back what was planned"
    shape = schema.Shape(schema_)
    for piece in partition.value:
        yield from origin.read(piece, options, shape, partition.early, partition.late)


# --- filters ----------------------------------------------------------------------------------------------------------
class Limits:
    """What filters leave: ranges of offsets and of time, topics, partitions.  Hints: Spark filters again."""

    def __init__(self) -> None:
        self.start = 0
        self.stop = 2**63 - 1
        self.early: int | None = None
        self.late: int | None = None
        self.topics: set[str] | None = None
        self.partitions: set[int] | None = None

    def narrowed(self, spans: Mapping[TopicPartition, origin.Span]) -> dict[TopicPartition, origin.Span]:
        found = {}
        for (topic, partition), span in spans.items():
            if self.topics is not None and topic not in self.topics:
                continue
            if self.partitions is not None and partition not in self.partitions:
                continue
            start, stop = max(span.start, self.start), min(span.stop, self.stop)
            if start < stop:
                found[topic, partition] = origin.Span(start, stop)
        return found

    def take(self, column: str, kind: str, value: Any) -> None:
        """Make use of one comparison, as far as it can be."""
        if column == "offset" and isinstance(value, int):
            if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual", "GreaterThan"):
                self.start = max(self.start, value + (kind == "GreaterThan"))
            if kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual", "LessThan"):
                self.stop = min(self.stop, value + (kind != "LessThan"))
        elif column == "timestamp":
            self._take_time(kind, value)
        elif column == "topic" and kind in ("EqualTo", "EqualNullSafe", "In"):
            names = set(value) if kind == "In" else {value}
            self.topics = names if self.topics is None else self.topics & names
        elif column == "partition" and kind in ("EqualTo", "EqualNullSafe", "In"):
            numbers = set(value) if kind == "In" else {value}
            self.partitions = numbers if self.partitions is None else self.partitions & numbers

    def _take_time(self, kind: str, value: Any) -> None:
        from datetime import UTC, datetime, timedelta

        if not isinstance(value, datetime) or value.tzinfo is None:
            return
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        floor = since // timedelta(milliseconds=1)
        # Records have milliseconds, filters microseconds: a bound is moved outwards to the next millisecond.
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual", "GreaterThan"):
            self.early = floor if self.early is None else max(self.early, floor)
        if kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual", "LessThan"):
            self.late = floor + 1 if self.late is None else min(self.late, floor + 1)


class PushdownReader(Reader):
    """A batch query with `pushdown=true`: filters on offset, timestamp, topic and partition leave out tasks, segments
    and batches.  A class of its own because Spark refuses a reader that could push filters while its configuration
    `spark.sql.python.filterPushdown.enabled` is false, which it is by default.

    Not obvious: Spark (4.3) keeps what is planned here for the frame, so that another query over the same frame may get
    these tasks (`docs/SPARK.md`, One plan for each `load()`); nothing on this side can tell."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        for given in filters:
            attribute = getattr(given, "attribute", None)
            if attribute is not None and len(attribute) == 1 and hasattr(given, "value"):
                self._limits.take(attribute[0], type(given).__name__, given.value)
            yield given
