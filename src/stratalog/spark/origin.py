"""Where the records are: in the files of a data directory, at a broker, or both.

An origin knows the partitions, their first and last offsets, the offset of a time, and how to read a slice.  Planning
asks in the driver's Python process; `read` runs in a task.  With both, the files have everything that they can be
trusted with and the broker the rest, so each record is read once.

The last offset is the last stable one for committed reads: everything below it is decided, so a slice that ends there
needs to know nothing of open transactions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stratalog.spark.errors import DataLoss, NotThere, OptionError
from stratalog.spark.options import Bound, ReadOptions, Selection, TopicPartition

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Left out of patterns, as Kafka's consumers do; `subscribe` and `assign` may name them."""


class Slice(NamedTuple):
    """A range of one partition's offsets, read by one task."""

    topic: str
    partition: int
    start: int
    stop: int
    directory: str
    """Where its files are; empty when it is read from the broker."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Span(NamedTuple):
    """The offsets that a partition has: [start, stop)."""

    start: int
    stop: int


class Origin(Protocol):
    """One way to the records."""

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """The partitions, sorted; `NotThere` for one that was named and does not exist."""

    def spans(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Span]:
        """What each partition has now."""

    def at_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time, -1 where there is none."""

    def slices(self, partition: TopicPartition, span: Span, *, by_bytes: bool) -> list[Slice]:
        """A span cut into what one task reads; `by_bytes`: as the files suggest it, else only where it must be cut."""

    def close(self) -> None:
        """Give back connections and files."""


def open_origin(options: ReadOptions) -> Origin:
    """The origin that the options name."""
    from stratalog.spark.files import Files
    from stratalog.spark.wire import Wire

    if options.path and options.bootstrap:
        return Both(Files(options), Wire(options))
    return Files(options) if options.path else Wire(options)


def read(piece: Slice, options: ReadOptions, shape: Any, early: int | None, late: int | None) -> Iterator[Any]:
    """The records of a slice as Arrow batches of the table."""
    from stratalog.spark.files import read_files
    from stratalog.spark.wire import read_wire

    batches = (read_files if piece.directory else read_wire)(piece, options, shape.decoded, early, late)
    for batch in batches:
        yield shape.shaped(batch, piece.topic, piece.partition)


def lost(options: ReadOptions, text: str) -> None:
    """Data is gone: an error, or a line in the worker's log when the query was told to go on."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{text} (failOnDataLoss=false goes on without)")
    print(f"stratalog: {text}; going on without (failOnDataLoss=false)", file=sys.stderr)


def matching(selection: Selection, existing: Mapping[str, Sequence[int]], place: str) -> list[TopicPartition]:
    """What a selection means among the topics that there are."""
    if selection.kind == "assign":
        for topic, partition in selection.assigned:
            if topic not in existing:
                raise NotThere(f"there is no topic {topic} {place}")
            if partition not in existing[topic]:
                raise NotThere(f"there is no partition {partition} of topic {topic} {place}")
        return list(selection.assigned)
    if selection.kind == "subscribe":
        for topic in selection.topics:
            if topic not in existing:
                raise NotThere(f"there is no topic {topic} {place}")
        names = list(selection.topics)
    else:
        pattern = re.compile(selection.pattern)
        names = [name for name in existing if name not in INTERNAL and pattern.fullmatch(name)]
    return sorted((name, partition) for name in names for partition in existing[name])


# --- from options to offsets ------------------------------------------------------------------------------------------
def resolve_start(
    origin: Origin, options: ReadOptions, partitions: Sequence[TopicPartition], spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    """Where each partition begins."""
    bound = options.start
    if bound.kind == "earliest":
        return {p: spans[p].start for p in partitions}
    if bound.kind == "latest":
        return {p: spans[p].stop for p in partitions}
    if bound.kind == "offsets":
        return _named(bound, partitions, spans)
    times = _times(bound, partitions)
    found = _at_times(origin, times, spans)
    for p, offset in found.items():
        if offset < 0:
            if not options.latest_if_no_match:
                raise OptionError.of(
                    bound.option,
                    times[p],
                    f"{p[0]}-{p[1]} has no record from then on; startingOffsetsByTimestampStrategy=latest begins at "
                    "its end",
                )
            found[p] = spans[p].stop
    return found


def resolve_end(
    origin: Origin, options: ReadOptions, partitions: Sequence[TopicPartition], spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    """Where each partition ends."""
    bound = options.end
    if bound.kind == "latest":
        return {p: spans[p].stop for p in partitions}
    if bound.kind == "offsets":
        return _named(bound, partitions, spans)
    found = _at_times(origin, _times(bound, partitions), spans)
    return {p: offset if offset >= 0 else spans[p].stop for p, offset in found.items()}


def _at_times(
    origin: Origin, times: Mapping[TopicPartition, int], spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    """The offsets of times, -1 where there is none below the end of what may be read: a record behind the last stable
    offset is no answer to a committed reader, as it is none for Kafka's."""
    return {p: offset if offset < spans[p].stop else -1 for p, offset in origin.at_time(times).items()}


def _named(
    bound: Bound, partitions: Sequence[TopicPartition], spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    _check_same(bound, partitions)
    found = {}
    for p in partitions:
        offset = bound.by_partition[p]
        found[p] = spans[p].start if offset == -2 else spans[p].stop if offset == -1 else offset
    return found


def _times(bound: Bound, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    if bound.kind == "time":
        return dict.fromkeys(partitions, bound.time)
    _check_same(bound, partitions)
    return {p: bound.by_partition[p] for p in partitions}


def _check_same(bound: Bound, partitions: Sequence[TopicPartition]) -> None:
    """Kafka's rule: who names offsets names them for every partition, and for no other."""
    missing = sorted(set(partitions) - set(bound.by_partition))
    extra = sorted(set(bound.by_partition) - set(partitions))
    if missing or extra:
        what = "does not have" if missing else "has, but the query does not read,"
        shown = ", ".join(f"{topic}-{partition}" for topic, partition in (missing or extra)[:5])
        raise OptionError(f"option {bound.option}: it {what} {shown}; each partition that is read must be in it")


def within(
    options: ReadOptions,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    spans: Mapping[TopicPartition, Span],
) -> dict[TopicPartition, Span]:
    """The spans to read, inside of what there is; what is not there any more is a loss."""
    wanted = {}
    for p in sorted(ends):
        start, stop = starts[p], ends[p]
        if start >= stop:
            continue  # nothing is wanted, so nothing is missing, wherever the log begins and ends
        has = spans[p]
        if start < has.start:
            lost(options, f"{p[0]}-{p[1]}: offsets {start} to {min(stop, has.start) - 1} are not there any more")
            start = has.start
        if stop > has.stop:
            lost(options, f"{p[0]}-{p[1]}: it ends before offset {has.stop}, wanted was everything before {stop}")
            stop = has.stop
        if start < stop:
            wanted[p] = Span(start, stop)
    return wanted


def cut(
    origin: Origin, options: ReadOptions, wanted: Mapping[TopicPartition, Span], *, by_bytes: bool
) -> list[tuple[Slice, ...]]:
    """The tasks.  `minPartitions` and `maxRecordsPerPartition` are arithmetic on offsets, and so is a stream's batch,
    which must be cut the same when it is repeated; else the files say where."""
    if by_bytes and options.min_partitions is None and options.max_records_per_partition is None:
        return [
            (piece,)
            for partition, span in sorted(wanted.items())
            for piece in origin.slices(partition, span, by_bytes=True)
        ]
    parts = [
        (partition, part)
        for partition, span in sorted(wanted.items())
        for part in _in_parts(span, -(-(span.stop - span.start) // (options.max_records_per_partition or 2**63)))
    ]
    goal = options.min_partitions or 0
    if len(parts) < goal:
        total = sum(part.stop - part.start for _, part in parts)
        parts = [
            (partition, smaller)
            for partition, part in parts
            for smaller in _in_parts(part, -(-(part.stop - part.start) * goal // total))
        ]
    return [tuple(origin.slices(partition, part, by_bytes=False)) for partition, part in parts]


def _in_parts(span: Span, parts: int) -> list[Span]:
    size = span.stop - span.start
    parts = min(max(parts, 1), size)
    edges = [span.start + size * i // parts for i in range(parts + 1)]
    return [Span(edges[i], edges[i + 1]) for i in range(parts)]


class Both:
    """Files for history, a broker for what they do not have.  The broker says which offsets exist."""

    def __init__(self, files: Any, wire: Any) -> None:
        self._files = files
        self._wire = wire
        self._known: dict[TopicPartition, Span] = {}

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        self._files.refresh()
        found: list[TopicPartition] = self._wire.partitions(selection)
        return found

    def spans(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Span]:
        here = [p for p in partitions if self._files.has(p)]
        for topic in sorted({topic for topic, _ in here}):
            self._check_same_topic(topic, [p for p in here if p[0] == topic])
        self._known = {p: span for p in here if (span := self._in_files(p)) is not None}
        spans: dict[TopicPartition, Span] = self._wire.spans(partitions)
        return spans

    def _in_files(self, partition: TopicPartition) -> Span | None:
        """What the files have; None where they go away meanwhile: the broker has it, or says that it is gone, too."""
        if not self._files.has(partition):
            return None
        try:
            span: Span = self._files.spans([partition])[partition]
        except NotThere:
            return None
        return span

    def _check_same_topic(self, topic: str, partitions: Sequence[TopicPartition]) -> None:
        """Files of a topic that was deleted and made again are another topic's."""
        theirs = self._wire.topic_id(topic)
        for p in partitions:
            ours = self._files.topic_id(p)
            if ours is not None and theirs is not None and ours != theirs:
                raise NotThere(
                    f"{p[0]}-{p[1]}: the files in {self._files.directory(p)} are of a topic with id {ours}, the "
                    f"broker's topic of this name has id {theirs}"
                )

    def at_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = self._wire.at_time(times)
        return found

    def slices(self, partition: TopicPartition, span: Span, *, by_bytes: bool) -> list[Slice]:
        known = self._known.get(partition) or self._in_files(partition)
        if known is None:
            return list(self._wire.slices(partition, span, by_bytes=by_bytes))
        start, stop = max(span.start, known.start), min(span.stop, known.stop)
        if start >= stop:
            return list(self._wire.slices(partition, span, by_bytes=by_bytes))
        found: list[Slice] = []
        if span.start < start:
            found += self._wire.slices(partition, Span(span.start, start), by_bytes=by_bytes)
        found += self._files.slices(partition, Span(start, stop), by_bytes=by_bytes)
        if stop < span.stop:
            found += self._wire.slices(partition, Span(stop, span.stop), by_bytes=by_bytes)
        return found

    def close(self) -> None:
        self._files.close()
        self._wire.close()
