"""Bulk writes: finished, indexed segments of new partition directories, no broker involved.

Each task writes, for each partition, segments of its own below a hidden directory beside the result, with offsets from
0 on.  The commit, in one process, puts them behind one another in the order of the tasks: it writes each batch's base
offset (which no checksum covers), names each segment by its first offset, and moves the finished directories to their
places.  An index is relative to its segment, so it is right wherever the segment goes.  What a failed attempt left is
thrown away with the hidden directory; nothing is visible before the commit.

    DIR/.stratalog-write-RUN/TASK-ATTEMPT/orders-0.0.log .index .timeindex      tasks
    DIR/.stratalog-write-RUN/ready/orders-0/00000000000000000000.log ...        commit
    DIR/orders-0/                                                               one rename for each partition
"""

from __future__ import annotations

import os
import shutil
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stratalog.base.types import Uuid
from stratalog.client.producer import CODECS
from stratalog.server.disk import RealDisk
from stratalog.spark.errors import OptionError
from stratalog.spark.options import PARTITIONS_MAX, WriteOptions
from stratalog.spark.rows import Rows, SinkError, check_columns, pour, rows_of
from stratalog.storage import layout
from stratalog.storage.checkpoints import write_epochs, write_topic_id

_INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default for `index.interval.bytes`."""
_INDEX_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_BASE: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")
_RELATIVE_MAX: Final = 2**31 - 2


@dataclass(slots=True)
class Part:
    """A segment that a task wrote: its files' common name, how many records it has."""

    path: str
    records: int


@dataclass
class Parts(WriterCommitMessage):
    """What a task wrote, by topic and partition."""

    task: int = 0
    parts: dict[tuple[str, int], list[Part]] = field(default_factory=dict)


class BulkWriter(DataSourceArrowWriter):
    """`df.write.format("stratalog").option("path", DIR)`."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._root = os.path.abspath(options.path)
        self._topic_id = Uuid(uuid.uuid4().bytes)
        if options.topic_id is not None:
            if options.topic is None:
                raise OptionError.of("topicId", options.topic_id, "it goes with the option topic, for one topic")
            try:
                self._topic_id = Uuid.parse(options.topic_id)
            except ValueError as error:
                raise OptionError.of("topicId", options.topic_id, str(error)) from None
        if options.topic is not None:
            _refuse_existing(self._root, options.topic, options.partitions or 1)
        self._hidden = os.path.join(self._root, f".stratalog-write-{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[Any]) -> Parts:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        attempt = context.taskAttemptId() if context is not None else 0
        folder = os.path.join(self._hidden, f"{task}-{attempt}")
        os.makedirs(folder)
        writer = _TaskWriter(folder, self._options)
        for batch in iterator:
            for rows in rows_of(batch, self._options):
                writer.add(rows)
        return Parts(task, writer.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Put the parts of all tasks together, and move the result to its place."""
        by_partition: dict[tuple[str, int], list[Part]] = {}
        for message in sorted((m for m in messages if isinstance(m, Parts)), key=lambda m: m.task):
            for place, parts in message.parts.items():
                by_partition.setdefault(place, []).extend(parts)
        topics = {topic for topic, _ in by_partition} | ({self._options.topic} if self._options.topic else set())
        for topic in sorted(topics):
            _refuse_existing(self._root, topic, self._options.partitions or 1)
            highest = max((p for t, p in by_partition if t == topic), default=0)
            for partition in range(max(self._options.partitions or 1, highest + 1)):
                by_partition.setdefault((topic, partition), [])
        ready = os.path.join(self._hidden, "ready")
        os.makedirs(ready)
        ids = {topic: self._topic_id if topic == self._options.topic else Uuid(uuid.uuid4().bytes) for topic in topics}
        names = [
            _assembled(ready, topic, partition, parts, ids[topic])
            for (topic, partition), parts in sorted(by_partition.items())
        ]
        disk = RealDisk()
        for name in names:
            os.rename(os.path.join(ready, name), os.path.join(self._root, name))
        disk.fsync_dir(self._root)
        shutil.rmtree(self._hidden)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was visible; what the tasks wrote goes away."""
        shutil.rmtree(self._hidden, ignore_errors=True)


def _refuse_existing(root: str, topic: str, partitions: int) -> None:
    if not topic or len(topic) > 249 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in topic):
        raise OptionError.of("topic", topic, "a topic's name: letters, digits, '.', '_' and '-', at most 249")
    for name in os.listdir(root) if os.path.isdir(root) else ():
        parsed = layout.parse_directory(name)
        if parsed is not None and parsed[0] == topic:
            raise OptionError.of("path", root, f"{name} is there already; bulk writes make new partitions only")


class _TaskWriter:
    """The segments of one task."""

    def __init__(self, folder: str, options: WriteOptions) -> None:
        self._folder = folder
        self._options = options
        self._partitions = options.partitions or 1
        self._pending: dict[tuple[str, int], Any] = {}
        self._segments: dict[tuple[str, int], _Segment] = {}
        self._parts: dict[tuple[str, int], list[Part]] = {}

    def add(self, rows: Rows) -> None:
        import numpy as np

        from stratalog.spark.encode import grouped, partitions_of

        routed = partitions_of(rows.keys, rows.values, self._partitions)
        places = np.where(rows.partitions >= 0, rows.partitions, routed)
        highest = int(places[rows.rows].max()) if len(rows.rows) else 0
        if self._options.partitions is not None and highest >= self._partitions:
            raise SinkError(f"the column partition has {highest}, the option partitions is {self._partitions}")
        if highest >= PARTITIONS_MAX:
            raise SinkError(
                f"the column partition has {highest}, a bulk write makes at most {PARTITIONS_MAX} partitions"
            )
        for partition, chosen in grouped(places, rows.rows):
            place = rows.topic, partition
            pour(rows, chosen, self._buffer(place), partial(self._flush, place))

    def _buffer(self, place: tuple[str, int]) -> Any:
        from stratalog.spark.encode import Pending

        pending = self._pending.get(place)
        if pending is None:
            pending = self._pending[place] = Pending(self._options.batch_bytes)
        return pending

    def _flush(self, place: tuple[str, int]) -> None:
        pending = self._pending[place]
        segment = self._segments.get(place)
        if segment is not None and segment.is_full(pending.size, pending.count, self._options.segment_bytes):
            segment.close()
            segment = None
        if segment is None:
            parts = self._parts.setdefault(place, [])
            path = os.path.join(self._folder, f"{layout.directory_name(*place)}.{len(parts)}")
            parts.append(Part(path, 0))
            segment = self._segments[place] = _Segment(path)
        count, latest = pending.count, pending.latest
        batch = pending.take(
            codec=CODECS[self._options.compression],
            level=self._options.level,
            base_offset=segment.records,
            leader_epoch=0,
        )
        segment.append(batch, count, latest)
        self._parts[place][-1].records = segment.records

    def finish(self) -> dict[tuple[str, int], list[Part]]:
        for place, pending in sorted(self._pending.items()):
            if pending.count:
                self._flush(place)
        for segment in self._segments.values():
            segment.close()
        return self._parts


class _Segment:
    """A segment file with its two indexes, offsets from 0 on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open(path + layout.LOG, "xb", buffering=0)  # noqa: SIM115  closed by `close`
        self._size = 0
        self.records = 0
        self._since_entry = 0
        self._index = bytearray()
        self._times = bytearray()
        self._latest = -1
        self._latest_offset = 0
        self._noted = -1

    def is_full(self, size: int, records: int, segment_bytes: int) -> bool:
        return self._size + size + 61 > segment_bytes or self.records + records > _RELATIVE_MAX

    def append(self, batch: bytearray, records: int, latest: int) -> None:
        last = self.records + records - 1
        if latest > self._latest:
            self._latest, self._latest_offset = latest, last
        if self._since_entry > _INDEX_INTERVAL_BYTES:
            self._index += _INDEX_ENTRY.pack(last, self._size)
            self._note_time()
            self._since_entry = 0
        view = memoryview(batch)
        while view:
            view = view[self._file.write(view) :]
        self._size += len(batch)
        self._since_entry += len(batch)
        self.records += records

    def _note_time(self) -> None:
        if self._latest > self._noted:
            self._times += _TIME_ENTRY.pack(self._latest, self._latest_offset)
            self._noted = self._latest

    def close(self) -> None:
        if self._file.closed:
            return
        self._note_time()
        self._file.close()
        for kind, content in ((layout.INDEX, self._index), (layout.TIME_INDEX, self._times)):
            with open(self._path + kind, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())


def _assembled(ready: str, topic: str, partition: int, parts: list[Part], topic_id: Uuid) -> str:
    """A partition's directory out of its parts; its name."""
    disk = RealDisk()
    name = layout.directory_name(topic, partition)
    directory = os.path.join(ready, name)
    os.makedirs(directory)
    base = 0
    for part in parts:
        _shift(part.path + layout.LOG, base)
        for kind in (layout.LOG, layout.INDEX, layout.TIME_INDEX):
            os.rename(part.path + kind, layout.path_of(directory, base, kind))
        base += part.records
    if not parts:
        for kind in (layout.LOG, layout.INDEX, layout.TIME_INDEX):
            with open(layout.path_of(directory, 0, kind), "xb"):
                pass
    write_epochs(disk, f"{directory}/{layout.LEADER_EPOCHS}", [(0, 0)] if parts else [])
    write_topic_id(disk, directory, topic_id)
    disk.fsync_dir(directory)
    return name


def _shift(path: str, base: int) -> None:
    """Write the base offsets of a segment's batches; the checksum of a batch does not cover them."""
    with open(path, "r+b", buffering=0) as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        position = 0
        while base and position < size:
            offset, length = _HEAD.unpack(os.pread(fd, _HEAD.size, position))
            os.pwrite(fd, _BASE.pack(offset + base), position)
            position += 12 + length
        os.fsync(fd)
