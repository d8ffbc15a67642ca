"""`readStream.format("stratalog")`: offsets, admission control, restart.

Spark keeps one Python process for a query's reader here, which lives as long as the query and says where each
micro-batch ends; the records are read by tasks, as in a batch query.  A query's offsets are JSON as Kafka's source
writes it, `{"orders": {"0": 23}}`, with topics and partitions in order, so that equal offsets are equal texts.

A batch that is repeated after a restart has the same offsets, is cut into the same tasks, and finds the same records.
New partitions begin at their earliest offset; a partition that disappears, or whose next offset is gone, is a loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from stratalog.spark import origin, schema
from stratalog.spark.admission import (
    ADMISSION,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from stratalog.spark.errors import OptionError
from stratalog.spark.options import ReadOptions, TopicPartition
from stratalog.spark.source import Task, read_task

Offsets = dict[TopicPartition, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's side of the driver.  `read` runs in tasks, on a copy without connections."""

    def __init__(
        self, options: ReadOptions, schema_: StructType, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._schema = schema_
        schema.checked(schema_)
        if not ADMISSION:
            _refuse_limits(options)
        self._origin: origin.Origin | None = None
        self._clock = clock
        self._last_trigger: float | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origin": None}

    @property
    def _source(self) -> origin.Origin:
        if self._origin is None:
            self._origin = origin.open_origin(self._options)
        return self._origin

    # --- offsets ---------------------------------------------------------------------------------------------------
    def initialOffset(self) -> dict[str, Any]:
        """Only a new query asks; a restarted one has its offsets in the checkpoint."""
        options = self._options
        partitions = self._source.partitions(options.selection)
        spans = self._source.spans(partitions)
        starts = origin.resolve_start(self._source, options, partitions, spans)
        for p, start in starts.items():
            if start < spans[p].start or start > spans[p].stop:
                origin.lost(
                    options,
                    f"{p[0]}-{p[1]}: the query begins at offset {start}, there are {spans[p].start} to {spans[p].stop}",
                )
                starts[p] = min(max(start, spans[p].start), spans[p].stop)
        return to_json(starts)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What there is now is what the query will have read at its end."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` again when there is none yet.  PySpark 4.1 gives neither argument,
        and gets all there is."""
        self._latest = self._ends()
        if start is None:
            return to_json(self._latest)
        begin = from_json(start)
        self._check(begin, self._latest)
        ends = self._latest if self._target is None else _capped(self._target, begin, self._latest)
        whole = self._with_new(begin, ends)
        available = {p: max(ends[p] - whole[p], 0) for p in ends}
        total = sum(available.values())
        if total == 0:
            # A partition that is new and empty is noted with the next records.  One that is gone, or shorter than it
            # was (`failOnDataLoss=false`, else the check has raised), is noted at once: it is said once, and what
            # comes there next is read.
            return to_json(ends) if any(ends.get(p, -1) < offset for p, offset in begin.items()) else start
        if isinstance(limit, ReadAllAvailable):
            return to_json(ends)
        minimum = self._options.min_offsets_per_trigger
        waits = minimum is not None and self._target is None and total < minimum
        now = self._clock()
        # As with Kafka's source, the first batch of a query's life waits for nothing.
        if waits and self._last_trigger is not None and now - self._last_trigger < self._options.max_trigger_delay_s:
            return start
        self._last_trigger = now
        most = self._options.max_offsets_per_trigger
        if most is None or total <= most:
            return to_json(ends)
        shares = shared_out(available, most)
        return to_json({p: whole[p] + shares[p] if available[p] else ends[p] for p in ends})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Shown in the query's progress: `lag` makes the distance of it."""
        return to_json(self._latest) if self._latest else None

    def _check(self, begin: Offsets, ends: Offsets) -> None:
        """Whether all is there that the query stood at."""
        for p, offset in sorted(begin.items()):
            if p not in ends:
                origin.lost(self._options, f"{p[0]}-{p[1]} does not exist any more; the query stood at offset {offset}")
            elif ends[p] < offset:
                origin.lost(
                    self._options, f"{p[0]}-{p[1]} ends at offset {ends[p]}, the query stands at {offset} already"
                )

    def _ends(self) -> Offsets:
        partitions = self._source.partitions(self._options.selection)
        return {p: span.stop for p, span in self._source.spans(partitions).items()}

    def _with_new(self, begin: Offsets, ends: Mapping[TopicPartition, int]) -> Offsets:
        """`begin`, and the earliest offset of partitions that are new since."""
        fresh = sorted(set(ends) - set(begin))
        if not fresh:
            return begin
        spans = self._source.spans(fresh)
        return {**begin, **{p: spans[p].start for p in fresh}}

    # --- reading ---------------------------------------------------------------------------------------------------
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch; nothing but the offsets decides how it is cut."""
        ends = from_json(end)
        if not self._latest:
            ends = self._still_there(ends)
        begin = self._with_new(from_json(start), ends)
        if not ADMISSION:
            self._check(from_json(start), ends)
        wanted = {p: origin.Span(begin[p], ends[p]) for p in sorted(ends) if begin[p] < ends[p]}
        if self._options.path and self._options.bootstrap:
            self._source.spans(sorted(wanted))  # what the files have by now
        return [Task(slices) for slices in origin.cut(self._source, self._options, wanted, by_bytes=False)]

    def _still_there(self, ends: Offsets) -> Offsets:
        """What a restarted query repeats first was planned long ago: its partitions may be gone meanwhile."""
        there = set(self._source.partitions(self._options.selection))
        for p in sorted(set(ends) - there):
            origin.lost(self._options, f"{p[0]}-{p[1]} does not exist any more; the query was to read to {ends[p]}")
        return {p: offset for p, offset in ends.items() if p in there}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has the offsets; nothing is committed to Kafka."""

    def stop(self) -> None:
        if self._origin is not None:
            self._origin.close()
            self._origin = None


def _refuse_limits(options: ReadOptions) -> None:
    """PySpark 4.1 does not tell a reader where a batch begins, so it cannot say where a smaller one ends."""
    for name, value in (
        ("maxOffsetsPerTrigger", options.max_offsets_per_trigger),
        ("minOffsetsPerTrigger", options.min_offsets_per_trigger),
    ):
        if value is not None:
            raise OptionError.of(name, value, "PySpark 4.1 has no admission control for Python sources; 4.2 and later")


def _capped(target: Offsets, begin: Offsets, latest: Offsets) -> Offsets:
    """The target of an `availableNow` query: nothing behind it, nothing in front of where the query stands, and nothing
    that is not there any more."""
    return {p: min(max(end, begin.get(p, end)), latest[p]) for p, end in target.items() if p in latest}


def shared_out(available: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """`most` offsets over the partitions, each by its share of what is waiting, none forgotten, none over.

    >>> shared_out({("t", 0): 90, ("t", 1): 9, ("t", 2): 1}, 10)
    {('t', 0): 8, ('t', 1): 1, ('t', 2): 1}
    """
    total = sum(available.values())
    if total <= most:
        return dict(available)
    # One for each that waits, where that is possible; what is left by what each has beyond that one.
    each = 1 if most >= sum(1 for size in available.values() if size) else 0
    shares = {p: min(each, size) for p, size in available.items()}
    left = most - sum(shares.values())
    beyond = total - sum(shares.values())
    for p, size in available.items():
        shares[p] += (size - shares[p]) * left // beyond
    left = most - sum(shares.values())
    # What rounding left over goes to those who got nothing, then to those who wait with the most.
    order = sorted(available, key=lambda p: (shares[p] > 0, shares[p] - available[p], p))
    while left:
        given = 0
        for p in order:
            if left and shares[p] < available[p]:
                shares[p] += 1
                left -= 1
                given += 1
        assert given, "there is more waiting than may be read"
    return shares


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As Spark's Kafka source writes it, in order."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Back to partitions."""
    return {(topic, int(p)): offset for topic, rows in offsets.items() for p, offset in rows.items()}


def lag(progress: Any) -> dict[str, float]:
    """How far a query is behind, from its progress (`query.lastProgress`): `minOffsetsBehindLatest`,
    `maxOffsetsBehindLatest`, `avgOffsetsBehindLatest`, as Kafka's source reports them, and the sum `offsetsBehind`.

    A Python source cannot put numbers of its own into the progress, so they are computed from the offsets in it.
    """
    import json

    sources = progress["sources"] if isinstance(progress, dict) else progress.sources
    behind: list[int] = []
    for source in sources:
        read = source["endOffset"] if isinstance(source, dict) else source.endOffset
        latest = source["latestOffset"] if isinstance(source, dict) else source.latestOffset
        if not read or not latest:
            continue
        at = from_json(json.loads(read) if isinstance(read, str) else read)
        goal = from_json(json.loads(latest) if isinstance(latest, str) else latest)
        behind += [max(offset - at.get(p, 0), 0) for p, offset in goal.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "offsetsBehind": sum(behind),
    }
