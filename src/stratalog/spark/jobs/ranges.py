"""Which offsets a job reads, and reading them in a task without a DataFrame: what `replay`, `export` and `profile`
share with the data source.  Options are the source's own (`options.py`); planning runs in the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stratalog.spark import origin
from stratalog.spark.errors import DataLoss
from stratalog.spark.options import ReadOptions, TopicPartition, read_options
from stratalog.spark.origin import lost


@dataclass(frozen=True, slots=True)
class Ranges:
    """What is to be read: the spans, and the slices of each task."""

    options: ReadOptions
    spans: Mapping[TopicPartition, origin.Span]
    pieces: list[tuple[origin.Slice, ...]]

    @property
    def offsets(self) -> int:
        return sum(span.stop - span.start for span in self.spans.values())


def source_options(
    topic: str, *, path: str | None, bootstrap: str | None, options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options of the data source for one topic; `options` has further ones by their names there."""
    raw = {"subscribe": topic}
    if path is not None:
        raw["path"] = path
    if bootstrap is not None:
        raw["kafka.bootstrap.servers"] = bootstrap
    return {**raw, **(options or {})}


def planned(
    raw: Mapping[str, str], *, known: Mapping[TopicPartition, int] | None = None, by_bytes: bool = True
) -> Ranges:
    """What the options mean now.  A partition in `known` begins there, whatever the options say of it."""
    options = read_options(raw, streaming=False)
    found = origin.open_origin(options)
    try:
        partitions = found.partitions(options.selection)
        spans = found.spans(partitions)
        starts = origin.resolve_start(found, options, partitions, spans)
        starts.update({p: offset for p, offset in (known or {}).items() if p in starts})
        ends = origin.resolve_end(found, options, partitions, spans)
        for p, offset in (known or {}).items():
            if p not in spans:
                lost(options, f"{p[0]}-{p[1]} was read up to offset {offset} and is not there any more")
            elif offset > spans[p].stop:
                raise DataLoss(
                    f"{p[0]}-{p[1]} was read up to offset {offset} and ends at {spans[p].stop} now: this is another "
                    "topic of the same name, or its log was cut off"
                )
            else:
                ends[p] = max(ends[p], starts[p])
        wanted = origin.within(options, starts, ends, spans)
        return Ranges(options, wanted, origin.cut(found, options, wanted, by_bytes=by_bytes))
    finally:
        found.close()


def read_piece(piece: origin.Slice, options: ReadOptions, columns: tuple[str, ...], seen: Any = None) -> Iterator[Any]:
    """The records of a slice as Arrow batches of `columns` (in Kafka's order), timestamps in microseconds.  `seen` is
    told of batches that come over the wire (`wire.Seen`)."""
    from stratalog.records import arrow
    from stratalog.spark.files import read_files
    from stratalog.spark.wire import read_wire

    if piece.directory:
        yield from read_files(piece, options, arrow.chosen(columns), None, None)
    else:
        yield from read_wire(piece, options, arrow.chosen(columns), None, None, seen)
