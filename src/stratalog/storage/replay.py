"""The producers' state of a log, from its newest usable snapshot and the batches behind it (ST-8).

A load that checks the log's end feeds each batch to a `Replay` while it has it in its hands; who has no reason to read
the bytes (`rebuild`: a truncation, a load after a clean stop, a repair somewhere in the middle) walks the headers.
Both end in the same state.  Snapshots are disposable: one that is damaged is removed and an older one taken.

Runs in the log's writer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stratalog.base.failures import Malformed
from stratalog.base.limits import PRODUCER_BATCHES_KEPT
from stratalog.base.types import MAX_INT32
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from stratalog.storage import layout
from stratalog.storage.producers import ProducerEntry, read_snapshot
from stratalog.storage.scan import CONTROL, TRANSACTIONAL, resync, scan
from stratalog.storage.segment import Segment
from stratalog.storage.values import AbortedTxn, OffsetMetadata, Origin

if TYPE_CHECKING:
    from stratalog.storage.log import Log

_KEPT = PRODUCER_BATCHES_KEPT
_FIELDS = (
    POSITION,
    SIZE,
    BASE_OFFSET,
    LAST_OFFSET,
    ATTRIBUTES,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
)
"""What `Replay._one` takes."""
_NEVER = 1 << 63


class Replay:
    """Takes batches in their order.  `begin`, then `row`, `block` or `walk`, then `finish`.

    `aborted` gets the aborted transactions whose marker is at or behind `index_from`: the entries of a transaction
    index that is written anew.
    """

    __slots__ = ("aborted", "count", "first_base", "from_offset", "index_from", "is_begun", "log")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_begun = False
        self.count = 0
        self.from_offset = self.first_base = 0
        self.index_from = _NEVER
        self.aborted: list[AbortedTxn] = []

    def begin(self, limit: int, end_offset: int, now_ms: int) -> None:
        """Load the newest snapshot at or below `limit`; those beyond `end_offset` describe what is not there."""
        log = self.log
        disk, producers = log.disk, log.producers
        self.is_begun = True
        self.first_base = self.from_offset = log.segment_set.first.base_offset
        producers.clear(self.first_base)
        log.last_snapshot_offset = 0
        for offset in reversed(snapshot_offsets(log)):
            path = layout.path_of(log.directory, offset, layout.SNAPSHOT)
            if offset > end_offset:
                _remove_snapshot(log, offset)
            elif self.first_base <= offset <= limit:  # what lies between an older one and the first segment is gone
                try:
                    rows = read_snapshot(disk, path)
                except Malformed as error:
                    log.report.add("snapshot-removed", path, str(error))
                    _remove_snapshot(log, offset)
                    continue
                producers.load(rows, now_ms, offset)
                self.from_offset = offset
                break

    def finish(self, end_offset: int) -> None:
        """The state is that of `end_offset`."""
        log = self.log
        log.producers.keep()
        log.producers.map_end_offset = end_offset
        offsets = snapshot_offsets(log)
        beyond = [offset for offset in offsets if offset > end_offset]
        for offset in beyond:
            _remove_snapshot(log, offset)
        if beyond:
            # When the log has grown past them again, they must not be back.
            log.disk.fsync_dir(log.directory)
        log.last_snapshot_offset = max((offset for offset in offsets if offset <= end_offset), default=0)

    # --- feeding ---------------------------------------------------------------------------------------------------
    def walk(self, segment: Segment, up_to: int = _NEVER) -> None:
        """The headers of a segment, from `from_offset` on and below offset `up_to`."""
        file, end = segment.file, segment.size
        position = segment.lookup(self.from_offset) if self.from_offset > segment.base_offset else 0
        last_seen = -1
        while position < end:
            for row in scan(file, position, end, verify=False, after_offset=last_seen):
                if row[2] >= up_to:
                    return
                position = row[0] + row[1]
                last_seen = row[3]
                self.row(segment, row)
            if position < end:
                position = resync(file, position, end, last_seen)  # damage that was left in place (D17)
                if position < 0:
                    return

    def row(self, segment: Segment, row: tuple[int, ...]) -> None:
        """One batch, as `scan` gives it."""
        if row[8] >= 0 and row[3] >= self.from_offset:
            self._one(segment, *row[:4], *row[6:11])

    def block(self, segment: Segment, rows: Any, origin: int) -> None:
        """Some batches, as `sweep` gives them."""
        ids = rows[:, PRODUCER_ID]
        wanted = (ids >= 0) & (rows[:, LAST_OFFSET] >= self.from_offset)
        if not wanted.any():
            return
        if not wanted.all():
            rows = rows[wanted]
            ids = rows[:, PRODUCER_ID]
        producers = self.log.producers
        if producers.ongoing or (rows[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).any():
            for at, *fields in rows[:, _FIELDS].tolist():
                self._one(segment, at + origin, *fields)
            return
        # No transaction in sight: all that stays of a producer are its last five batches.
        self.count += len(rows)
        if (ids == ids[0]).all():
            self._last_of(int(ids[0]), rows)
            return
        groups: dict[int, list[int]] = {}
        for index, producer_id in enumerate(ids.tolist()):
            groups.setdefault(producer_id, []).append(index)
        for producer_id, indexes in groups.items():
            self._last_of(producer_id, rows[indexes])
        producers.keep()  # no more of them than a partition may have, also while a log of new ones is read

    def _last_of(self, producer_id: int, rows: Any) -> None:
        entries = self.log.producers.entries
        entry = entries.get(producer_id)
        if entry is None:
            entry = entries[producer_id] = ProducerEntry(producer_id)
        epochs = rows[:, PRODUCER_EPOCH]
        if (epochs == epochs[0]).all() and int(epochs[0]) == entry.epoch:
            rows = rows[-_KEPT:]
        columns = (PRODUCER_EPOCH, BASE_SEQUENCE, BASE_OFFSET, LAST_OFFSET, MAX_TIMESTAMP)
        for epoch, sequence, base, last, timestamp in rows[:, columns].tolist():
            delta = last - base
            entry.add(epoch, ((sequence + delta) & MAX_INT32 if sequence >= 0 else -1, last, delta, timestamp))

    def _one(
        self,
        segment: Segment,
        position: int,
        size: int,
        base: int,
        last: int,
        attributes: int,
        timestamp: int,
        producer_id: int,
        epoch: int,
        sequence: int,
    ) -> None:
        producers = self.log.producers
        self.count += 1
        if not attributes & CONTROL:
            producers.append_data(
                producer_id,
                epoch,
                sequence,
                last,
                last - base,
                timestamp,
                transactional=attributes & TRANSACTIONAL != 0,
                origin=Origin.REPLICATION,
                where=OffsetMetadata(base, segment.base_offset, position),
            )
            producers.keep()
            return
        data = segment.file.pread(size, position)
        marker = control.marker_of(data, batches.read_header(data))
        if marker is None:
            return
        ended = producers.append_marker(
            producer_id,
            epoch,
            base,
            timestamp,
            aborted=not marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            origin=Origin.REPLICATION,
            transaction_version=0,
        )
        producers.keep()
        if ended is not None and ended[0].aborted and base >= self.index_from:
            txn, stable = ended
            self.aborted.append(AbortedTxn(producer_id, txn.first_offset, txn.last_offset, stable))


def rebuild(
    log: Log,
    now_ms: int,
    *,
    end_offset: int,
    checked: dict[int, int] | None = None,
    kept: dict[int, list[AbortedTxn]] | None = None,
) -> int:
    """From the newest snapshot that can be used to `end_offset`, by the headers; returns the batches that were read.

    `checked` names segments whose transaction index is written anew from an offset on, `kept` their entries before it;
    then the snapshot must be from before the first of them, since what a marker ends must be known.
    """
    anew = {base: first for base, first in (checked or {}).items() if first < end_offset}
    aborted = kept or {}
    replay = Replay(log)
    replay.begin(min(anew.values(), default=end_offset), end_offset, now_ms)
    if replay.from_offset < end_offset:
        for segment in log.segment_set.from_offset(replay.from_offset):
            replay.index_from = anew.get(segment.base_offset, _NEVER)
            replay.aborted = aborted.get(segment.base_offset, [])
            replay.walk(segment)
    for segment in log.segment_set.all:
        if segment.base_offset in aborted:
            segment.txn_index.replace(aborted[segment.base_offset])
    replay.finish(end_offset)
    return replay.count


def snapshot_offsets(log: Log) -> list[int]:
    """The offsets of the snapshot files in the directory, ascending."""
    if log._known_snapshots is not None:
        return list(log._known_snapshots)
    return snapshots_among(log.disk.listdir(log.directory))


def snapshots_among(names: Iterable[str]) -> list[int]:
    """The same of a directory that was listed."""
    found = []
    for name in names:
        parsed = layout.parse(name) if name.endswith(layout.SNAPSHOT) else None
        if parsed is not None and parsed.kind == layout.SNAPSHOT and not parsed.state:
            found.append(int(parsed.offset))
    return found


def remove_stray_snapshots(log: Log) -> None:
    """Keep those that belong to a segment, and the newest of the others when it is newer than every segment."""
    bases = set(log.segment_set.view[0])
    stray = [offset for offset in snapshot_offsets(log) if offset not in bases]
    newest = stray[-1] if stray and stray[-1] > max(bases) else -1
    for offset in stray:
        if offset != newest:
            _remove_snapshot(log, offset)


def delete_snapshots(log: Log, keep: Iterable[int]) -> None:
    kept = set(keep)
    for offset in snapshot_offsets(log):
        if offset not in kept:
            _remove_snapshot(log, offset)


def _remove_snapshot(log: Log, offset: int) -> None:
    log.disk.unlink(layout.path_of(log.directory, offset, layout.SNAPSHOT))
    if log._known_snapshots is not None:
        log._known_snapshots.remove(offset)
