"""One partition's log: what an append, a boundary and a roll mean.

Owns the segments, the producers' state, the epochs and the boundaries of one partition.  One writer (the loop's
thread, or the pool thread that loads it) calls everything that changes something; `read`, `offset_for_timestamp` and
the boundary properties may be called from any thread at any time.

    log start <= last stable <= high watermark <= log end        recovery point <= log end

An append goes in two steps, so that a wake-up writes once: `stage_append` checks, numbers and notes a payload, in place
in the receive buffer; `commit_staged` writes all that is staged with one call and only then moves the log end, index
entries and the last stable offset.  The producers' state sees staged batches at once, or their duplicates would slip
through, and takes them back when the write fails.  After a failed write or sync nothing is appended any more (`fenced`,
D08, D16), except that a full disk is tried again by the next append, since nothing of the failed one is left.

Reading is in `read`, loading and recovery in `recovery`, truncation, deletion and the cleaner's swap in `reshape`.
This file is longer than 600 lines where the straight line of the append would have to be torn for it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os.path
import struct
from collections.abc import Callable, Sequence

import crc32c as _crc32c

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.ports import Disk, File
from stratalog.base.types import MAX_INT32, MAX_INT64, Buffer, Uuid
from stratalog.records import batch as batches
from stratalog.records import control, validate
from stratalog.records.walk import usual_times
from stratalog.storage import layout, read, recovery, reshape
from stratalog.storage.config import CREATE_TIME, PRODUCER, LogConfig
from stratalog.storage.epochs import LeaderEpochs
from stratalog.storage.index_file import CorruptIndex, IndexFile
from stratalog.storage.producers import Batch, ProducerState, encode_snapshot
from stratalog.storage.segment import Segment
from stratalog.storage.segments import Segments
from stratalog.storage.values import (
    AbortedTxn,
    AppendInfo,
    Deletion,
    FetchData,
    FlushPlan,
    Isolation,
    LoadReport,
    OffsetMetadata,
    Origin,
    TimestampOffset,
)

__all__ = [
    "AbortedTxn",
    "AppendInfo",
    "Deletion",
    "FetchData",
    "FlushPlan",
    "Isolation",
    "LoadReport",
    "Log",
    "OffsetMetadata",
    "Origin",
    "TimestampOffset",
]

_HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_stamp = struct.Struct(">qii").pack_into
_crc = _crc32c.crc32c
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_RECENT_MAX = 512
"""Batches whose place is remembered, so that a reader at the tail needs no search.  A few wake-ups' worth."""
_ALWAYS = 1 << 62
"""A timestamp bound beyond any clock: nothing is refused by it."""


class Log:
    """A partition's log."""

    __slots__ = (
        "_aborted",
        "_active",
        "_after_max_ms",
        "_buffers",
        "_codec",
        "_cut_files",
        "_first_unstable",
        "_flush_messages",
        "_generation",
        "_high_watermark",
        "_index_room",
        "_jitter",
        "_known_snapshots",
        "_log_end",
        "_max_message_bytes",
        "_metadata_unsynced",
        "_names_changed",
        "_names_durable",
        "_names_synced",
        "_new_epochs",
        "_next_offset",
        "_next_position",
        "_parent_dirty",
        "_plain",
        "_recent",
        "_roll_now_ms",
        "_roll_timestamp",
        "_segment_bytes",
        "_snapshot_files",
        "_staged",
        "_staged_epoch",
        "_usual_codecs",
        "closed",
        "config",
        "directory",
        "disk",
        "epochs",
        "fenced",
        "flush_due",
        "last_snapshot_offset",
        "local_log_start_offset",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "report",
        "segment_set",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig,
        jitter: Callable[[int], int] | None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.report = LoadReport()
        self.segment_set = Segments()
        self.producers = ProducerState(config.producer_id_expiration_ms)
        self.epochs = LeaderEpochs(disk, directory, [])
        self.log_start_offset = 0
        self.local_log_start_offset = 0
        self.recovery_point = 0
        self.last_snapshot_offset = 0
        self.fenced: OSError | None = None
        """Set by a failed write or sync: no append is taken any more; the directory goes offline."""
        self.flush_due: int | None = None
        """After a roll: up to where somebody should run a `flush_plan` off the writer's path."""
        self.closed = False
        self._jitter = jitter
        self._generation = 0
        self._names_changed = 1
        self._names_synced = 0
        """How often names in the directory have changed, and up to which change they are synced: several plans may be
        on their way at once, and none moves the recovery point past a name that another one was to sync."""
        self._names_durable = True
        """Whether segments that were deleted cannot come back with a power failure."""
        self._parent_dirty = True
        """Whether the directory's own name may be lost with the power: nobody waits for it before the first flush."""
        self._metadata_unsynced = False
        """Whether the first flush must sync `partition.metadata`."""
        self._known_snapshots: list[int] | None = None
        """While it is loaded: the offsets of the snapshots in the directory, which is not listed anew each time."""
        self._snapshot_files: list[File] = []
        self._cut_files: list[File] = []
        """Files that were made shorter since the last sync: see `_settle_cuts`."""
        self._recent: dict[int, tuple[int, int]] = {}
        self._log_end = self._high_watermark = OffsetMetadata(0, 0, 0)
        self._first_unstable: OffsetMetadata | None = None
        self._buffers: list[Buffer] = []
        self._staged: list[tuple[int, int, int, int]] = []
        self._new_epochs: list[tuple[int, int]] = []
        self._aborted: list[AbortedTxn] = []
        self._next_offset = 0
        self._next_position = 0
        self._staged_epoch = -1
        self._index_room = 0
        self._roll_timestamp = self._roll_now_ms = MAX_INT64
        self.configure(config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        now_ms: int,
        topic_id: Uuid | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = False,
        jitter: Callable[[int], int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Log:
        """Load the directory (made when missing), recover what an unclean stop left; runs on a pool thread.

        `jitter(n)` draws a number in [0, n) for `segment.jitter.ms`; `progress(done, total)` counts bytes recovered.
        Raises `OSError` (the directory goes offline) and `Malformed` (partition.metadata of another topic id).
        """
        log = cls(disk, directory, topic, partition, topic_id, config, jitter)
        recovery.load(
            log,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=had_clean_shutdown,
            now_ms=now_ms,
            progress=progress,
        )
        return log

    def configure(self, config: LogConfig) -> None:
        """Take a new configuration; it counts from the next append on."""
        self.config = config
        self.producers.expiration_ms = config.producer_id_expiration_ms
        self._max_message_bytes = config.max_message_bytes
        self._segment_bytes = config.segment_bytes
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._flush_messages = config.flush_messages
        self._codec = None if config.compression_type == PRODUCER else _CODECS[config.compression_type]
        self._plain = (
            config.message_timestamp_type == CREATE_TIME
            and not config.compact
            and not self._codec
            and config.message_timestamp_before_max_ms >= _ALWAYS
        )
        self._usual_codecs = 4 if self._codec is None else 0
        if len(self.segment_set):
            for segment in self.segment_set.all:
                segment.index_interval = config.index_interval_bytes
            self._expect_rolls()

    # --- appending -------------------------------------------------------------------------------------------------
    def append_as_leader(
        self,
        payload: Buffer,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """`stage_append` and `commit_staged`."""
        info = self.stage_append(
            payload, leader_epoch, now_ms, origin=origin, guard=guard, transaction_version=transaction_version
        )
        self.commit_staged(now_ms)
        return info

    def stage_append(
        self,
        payload: Buffer,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check and number one partition's records, in place in `payload`, and hold them for `commit_staged`.

        `payload` must not move or be reused before the commit.  Raises `ApiError` and `Malformed`; then nothing of it
        is staged.  When the segment is full, what is staged so far is written and the segment rolls here, which may
        raise `OSError`.
        """
        if self.fenced is not None:
            self._check_fence()
        size = len(payload)
        if type(payload) is not memoryview:
            payload = memoryview(payload)
        if payload.readonly:
            payload = memoryview(bytearray(payload))
        if size < 61 or not self._plain or origin is not Origin.CLIENT:
            return self._stage_slowly(payload, leader_epoch, now_ms, origin, guard, transaction_version)
        base, length, _, magic, crc, attributes, delta, base_timestamp, timestamp, pid, epoch, sequence, count = (
            _unpack_header(payload)
        )
        if (
            magic != 2
            or not 0 <= attributes <= self._usual_codecs  # transactional, control, stamped, or to be recompressed
            or length + 12 != size
            or base
            or count != delta + 1
            or count < 1
            or (count > (size - 61) // 7 and not attributes)  # a record has seven bytes at least
            or size > self._max_message_bytes
            or size > self._segment_bytes
            or not 0 <= base_timestamp <= timestamp <= now_ms + self._after_max_ms
            or (pid >= 0 and sequence < 0)
        ):
            return self._stage_slowly(payload, leader_epoch, now_ms, origin, guard, transaction_version)
        if _crc(payload[21:]) != crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a batch has a wrong CRC")
        if attributes:
            low, high = usual_times(attributes, payload[61:], count, base_timestamp)
            if low < 0 or high != timestamp:
                return self._stage_slowly(payload, leader_epoch, now_ms, origin, guard, transaction_version)
        first = self._next_offset
        last = first + delta
        position = self._next_position
        if (
            position + size > self._segment_bytes
            or timestamp > self._roll_timestamp
            or now_ms > self._roll_now_ms
            or self._index_room <= 0
            or last - self._active.base_offset > MAX_INT32
        ):
            position = self._make_room(size, last, timestamp, now_ms)
        if pid >= 0:
            duplicate = self.producers.append_client(pid, epoch, sequence, last, delta, timestamp)
            if duplicate is not None:
                return self._duplicate(duplicate, size)
        _stamp(payload, 0, first, length, leader_epoch)
        if leader_epoch != self._staged_epoch:
            self._new_epochs.append((leader_epoch, first))
            self._staged_epoch = leader_epoch
        if not position:
            self._first_batch(timestamp)
        self._buffers.append(payload)
        self._staged.append((first, last, timestamp, size))
        self._next_offset = last + 1
        self._next_position = position + size
        self._index_room -= 1
        return AppendInfo(first, last, timestamp, -1, self.log_start_offset, size)

    def _stage_slowly(
        self,
        payload: memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin,
        guard: object | None,
        transaction_version: int,
    ) -> AppendInfo:
        """Everything that the straight way above does not know: codecs, conversions, stamps, transactions, markers,
        old formats, refusals.  `tests/storage` holds the two equal where both apply."""
        config = self.config
        legacy = len(payload) > 16 and payload[16] < 2
        by = validate.Origin.CLIENT if origin is Origin.CLIENT else validate.Origin.COORDINATOR
        headers = validate.analyze(
            payload,
            max_message_bytes=config.max_message_bytes if origin is not Origin.RAFT_LEADER else MAX_INT32,
            produce_version=2 if legacy else 7,
            origin=by,
        )
        checked = validate.validate_and_assign(
            payload,
            base_offset=self._next_offset,
            now_ms=now_ms,
            leader_epoch=leader_epoch,
            timestamp_type=0 if config.message_timestamp_type == CREATE_TIME else 1,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.compact,
            codec=self._codec if origin is not Origin.RAFT_LEADER else None,
            level=self._level(),
            max_message_bytes=config.max_message_bytes if origin is not Origin.RAFT_LEADER else MAX_INT32,
            origin=by,
            headers=headers,
        )
        total = sum(map(len, checked.buffers))
        if total > config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{total} bytes to append exceed the segment size of {config.segment_bytes}",
            )
        position = self._next_position
        if self._is_full(position, total, checked.last_offset, checked.max_timestamp, now_ms, len(checked.headers)):
            position = self._make_room(total, checked.last_offset, checked.max_timestamp, now_ms)
        mark = self.producers.mark
        aborted = len(self._aborted)
        try:
            at = position
            for buffer, header in zip(checked.buffers, checked.headers, strict=True):
                if header.producer_id >= 0:
                    duplicate = self._note_producer(buffer, header, at, origin, guard, transaction_version)
                    if duplicate is not None:
                        self.producers.undo(mark)
                        return self._duplicate(duplicate, total)
                at += len(buffer)
        except BaseException:
            self.producers.undo(mark)
            del self._aborted[aborted:]
            raise
        if leader_epoch != self._staged_epoch and leader_epoch >= 0:
            self._new_epochs.append((leader_epoch, checked.first_offset))
            self._staged_epoch = leader_epoch
        self._hold(checked.buffers, checked.headers, position)
        return AppendInfo(
            checked.first_offset,
            checked.last_offset,
            checked.max_timestamp,
            checked.log_append_time_ms,
            self.log_start_offset,
            total,
        )

    def _hold(self, buffers: Sequence[Buffer], headers: Sequence[batches.BatchHeader], position: int) -> None:
        if not position:
            self._first_batch(headers[0].max_timestamp)
        for buffer, header in zip(buffers, headers, strict=True):
            size = len(buffer)
            self._buffers.append(buffer)
            self._staged.append((header.base_offset, header.last_offset, header.max_timestamp, size))
            self._next_offset = header.last_offset + 1
            position += size
        self._next_position = position
        self._index_room -= len(headers)

    def _level(self) -> int | None:
        config = self.config
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        return levels.get(config.compression_type)

    def _note_producer(
        self,
        buffer: Buffer,
        header: batches.BatchHeader,
        position: int,
        origin: Origin,
        guard: object | None,
        transaction_version: int,
    ) -> Batch | None:
        """One batch of a producer: checked and noted; the batch that it repeats, if it does."""
        producers = self.producers
        pid, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if header.is_control:
            marker = control.marker_of(buffer, header._replace(position=0))
            if marker is None:
                return None
            ended = producers.append_marker(
                pid,
                epoch,
                header.base_offset,
                header.max_timestamp,
                aborted=not marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                origin=origin,
                transaction_version=transaction_version,
            )
            if ended is not None and ended[0].aborted:
                txn, stable = ended
                self._aborted.append(AbortedTxn(pid, txn.first_offset, txn.last_offset, stable))
            return None
        if origin is Origin.CLIENT:
            duplicate = producers.find_duplicate(pid, epoch, sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
        transactional = header.is_transactional
        if transactional and origin in (Origin.CLIENT, Origin.COORDINATOR) and not producers.has_ongoing(pid, epoch):
            entry = producers.entries.get(pid)
            if entry is not None and epoch < entry.epoch:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {pid} comes with epoch {epoch}; epoch {entry.epoch} has written here already",
                )
            if self.config.transaction_partition_verification_enable and (
                guard is None or producers.verifications.get(pid) is not guard
            ):
                raise ApiError(ErrorCode.INVALID_TXN_STATE, "the producer has no open transaction in this partition")
        producers.append_data(
            pid,
            epoch,
            sequence,
            header.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
            transactional=transactional,
            origin=origin,
            where=OffsetMetadata(header.base_offset, self._active.base_offset, position),
        )
        return None

    def _duplicate(self, batch: Batch, size: int) -> AppendInfo:
        _, last, delta, timestamp = batch
        stamped = timestamp if self.config.message_timestamp_type != CREATE_TIME else -1
        return AppendInfo(last - delta, last, timestamp, stamped, self.log_start_offset, size, True)

    def append_as_follower(self, payload: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo | None:
        """What the leader sent, verbatim; None when not one whole batch is in it.

        A batch of a newer epoch than `leader_epoch`, and all behind it, is left out: it came from a leader that this
        replica does not follow yet.  A batch that is cut off at the end is left for the next fetch.
        """
        if self.fenced is not None:
            self._check_fence()
        self.commit_staged(now_ms)
        view = memoryview(payload)
        headers: list[batches.BatchHeader] = []
        last_offset = -1
        end = 0
        for header in batches.batches(view):
            if header.magic == 2 and header.leader_epoch > leader_epoch:
                break
            batches.check(view, header)
            if header.base_offset <= last_offset:
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} follows offset {last_offset} in a fetch"
                )
            last_offset = header.last_offset
            headers.append(header)
            end = header.end
        if not headers:
            return None
        if headers[0].base_offset < self._next_offset:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.topic}-{self.partition} goes on at offset {self._next_offset}, and what was fetched begins at "
                f"{headers[0].base_offset} (the log starts at {self.log_start_offset})",
            )
        greatest = max(header.max_timestamp for header in headers)
        position = self._next_position
        if self._is_full(position, end, last_offset, greatest, now_ms, len(headers)):
            # An old compressed entry is numbered by its last record: the segment must begin at or before its first.
            exact = headers[0].magic == 2 or not headers[0].codec
            first_offset = headers[0].base_offset if exact else None
            position = self._make_room(end, last_offset, greatest, now_ms, first=first_offset)
        mark = self.producers.mark
        try:
            for header in headers:
                if header.producer_id >= 0:
                    part = view[header.position : header.end]
                    self._note_producer(part, header, position + header.position, Origin.REPLICATION, None, 0)
        except BaseException:
            self.producers.undo(mark)
            self._aborted.clear()
            raise
        for header in headers:
            if header.magic < 2:
                if self.epochs.rows:
                    self.epochs.clear()  # epochs that an old format leaves out would mislead a truncation (R08)
                    self._staged_epoch = -1
            elif header.leader_epoch >= 0 and header.leader_epoch != self._staged_epoch:
                self._new_epochs.append((header.leader_epoch, header.base_offset))
                self._staged_epoch = header.leader_epoch
        first = headers[0].base_offset
        self._hold([view[header.position : header.end] for header in headers], headers, position)
        self.commit_staged(now_ms)
        return AppendInfo(first, last_offset, greatest, -1, self.log_start_offset, end)

    def commit_staged(self, now_ms: int) -> None:
        """One write for all that is staged; then index entries, producers and the log end become visible.

        `OSError` when the write fails: nothing of it is visible, the log is fenced."""
        staged = self._staged
        if not staged:
            return
        segment = self._active
        start = position = segment.size
        offsets, times = segment.offset_index, segment.time_index
        before = (
            offsets.file.entries,
            times.file.entries,
            segment.bytes_since_index,
            segment._max_timestamp,
            segment._offset_of_max_timestamp,
            segment.first_timestamp,
        )
        rows = len(segment.txn_index.data) if self._aborted else -1
        recent = self._recent
        if len(recent) > _RECENT_MAX:
            recent.clear()
        try:
            if self._cut_files:
                self._settle_cuts()
            if self._new_epochs:
                for epoch, first in self._new_epochs:
                    self.epochs.assign(epoch, first)
            if self._next_position > segment.ahead:
                segment.take_blocks(self._next_position, self._segment_bytes)
            segment.file.pwritev(self._buffers, position)
            segment.note_all(staged, position)
            for first, _, _, size in staged:
                recent[first] = (position, size)
                position += size
            if self._aborted:
                self._names_changed += not segment.txn_index.exists
                for txn in self._aborted:
                    segment.txn_index.append(txn)
        except OSError as error:
            self._abandon(error, segment, start, before, rows)
            raise
        segment.size = position
        producers = self.producers
        producers.keep()
        producers.map_end_offset = next_offset = self._next_offset
        assert position == self._next_position
        assert next_offset > self._log_end[0]
        if producers.ongoing or producers.unreplicated or self._first_unstable is not None:
            self._first_unstable = self._known(producers.first_unstable())
        self._log_end = OffsetMetadata(next_offset, segment.base_offset, position)
        self._unstage()
        if next_offset - self.recovery_point >= self._flush_messages:
            self.flush()

    def _settle_cuts(self) -> None:
        """Before anything is written behind a cut: what was cut off must not come back after a power failure, or its
        offsets would count as those of the batches and epochs that follow, and nobody would see that the replica
        diverges.  The epochs are written after that: while the old bytes may come back, so may their epochs."""
        for file in self._cut_files:
            file.fsync()
        self.disk.fsync_dir(self.directory)
        self.epochs.write()
        self._cut_files = []

    def _unstage(self) -> None:
        self._buffers = []
        self._staged = []
        self._aborted = []
        self._new_epochs = []
        self._restage()

    def _restage(self) -> None:
        """Where the next staged batch goes, and what would make it roll, from what is written.  Without room in the
        indexes it goes by `_make_room`, which is what a segment needs that nobody has appended to yet."""
        active = self.segment_set.active
        self._active = active
        self._next_offset = self._log_end.offset
        self._next_position = active.size
        latest = self.epochs.latest
        self._staged_epoch = -1 if latest is None else latest
        self._index_room = 0
        if active.is_warm:
            offsets, times = active.offset_index.file, active.time_index.file
            self._index_room = min(offsets.max_entries - offsets.entries, times.max_entries - 1 - times.entries)
        self._expect_rolls()

    def _warm(self) -> None:
        """Make the active segment take appends, which waits for the first one: thousands of partitions get none.  A
        disk that is full refuses this append; the next one tries again."""
        try:
            self._active.make_active()
        except CorruptIndex as error:
            self.fenced = OSError(errno.EIO, str(error), self._active.path)
            raise self.fenced from error
        except OSError as error:
            self.fenced = OSError(error.errno or errno.EIO, error.strerror, error.filename)
            raise
        self._restage()

    def rest(self) -> None:
        """Hold no descriptor for any segment until somebody reads or appends; nothing is staged."""
        for segment in self.segment_set.all:
            segment.rest()
        self._index_room = 0

    def _expect_rolls(self) -> None:
        """When the active segment's time will be over; what is staged counts."""
        self._roll_timestamp = self._roll_now_ms = MAX_INT64
        active = self._active
        if active.size:
            self._first_batch(active.load_first_timestamp())
        elif self._staged:
            self._first_batch(self._staged[0][2])

    def _first_batch(self, timestamp: int) -> None:
        """The active segment's first batch is known: when its time is over."""
        span = self.config.segment_ms_max - self._active.jitter_ms
        if timestamp >= 0:
            self._roll_timestamp = timestamp + span
        else:
            self._roll_now_ms = self._active.created_ms + span

    def _abandon(
        self,
        error: OSError,
        segment: Segment,
        size: int,
        before: tuple[int, int, int, int | None, int, int],
        rows: int,
    ) -> None:
        """A write failed: back to what was before it, as far as the disk lets us, and no further append."""
        self.fenced = error
        self.producers.undo()
        segment.offset_index.file.entries = before[0]
        segment.offset_index._read_last()
        segment.time_index.file.entries = before[1]
        segment.time_index._read_last()
        segment.bytes_since_index = before[2]
        segment._max_timestamp, segment._offset_of_max_timestamp, segment.first_timestamp = before[3:]
        self._recent.clear()
        if self.epochs.rows:
            self.epochs.truncate_from_end(self._log_end.offset, write=False)
        self._unstage()
        try:
            segment.file.truncate(size)
            if rows >= 0:
                segment.txn_index.cut(rows)
        except OSError:
            # The first error is the one that tells; the next start cuts the tail.  Not even a full disk is retried.
            self.fenced = OSError(errno.EIO, f"cannot be cut back after: {error}", segment.path)

    def _check_fence(self) -> None:
        """A full disk may have room again; any other failure lasts until the directory is opened anew."""
        assert self.fenced is not None
        if self.fenced.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(self.fenced.errno, f"no append after a failed one: {self.fenced.strerror}", self.directory)
        self.fenced = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is appended any more until the log is loaded anew.  A full disk is no such end: the next
        append tries again, and what makes room goes on meanwhile."""
        return self.fenced is not None and self.fenced.errno not in (errno.ENOSPC, errno.EDQUOT)

    def fail(self, error: OSError) -> None:
        """A sync or another operation outside of the append has failed: never trust what comes after (D16)."""
        self.fenced = error

    def _is_full(self, position: int, size: int, last: int, timestamp: int, now_ms: int, entries: int) -> bool:
        return (
            position + size > self._segment_bytes
            or timestamp > self._roll_timestamp
            or now_ms > self._roll_now_ms
            or self._index_room < entries
            or last - self._active.base_offset > MAX_INT32
        )

    def _make_room(self, size: int, last: int, timestamp: int, now_ms: int, *, first: int | None = None) -> int:
        """Write what is staged, warm the segment up, roll if that is still wanted; the position for what comes."""
        self.commit_staged(now_ms)
        if not self._active.is_warm:
            self._warm()
        if self._is_full(self._next_position, size, last, timestamp, now_ms, 1):
            self.roll(now_ms, first)
        return self._next_position

    # --- rolling ---------------------------------------------------------------------------------------------------
    def roll(self, now_ms: int, expected_next_offset: int | None = None, *, warm: bool = True) -> None:
        """Close the active segment and begin a new one at the log end (or above it, for a follower's gap).  Without
        `warm` no append is on its way to it."""
        self.commit_staged(now_ms)
        end = self._log_end.offset
        base = max(end, expected_next_offset or 0)
        active = self.segment_set.active
        try:
            if base == active.base_offset:
                assert active.size == 0, f"{active.path} has {active.size} bytes and would be rolled onto itself"
                fresh = self._new_segment(base, now_ms, warm=warm)  # its index is full without an entry (KAFKA-6388)
                self.segment_set.replace((active,), (fresh,))
                active.drop()
            else:
                self.producers.map_end_offset = base
                self.take_snapshot()
                try:
                    fresh = self._new_segment(base, now_ms, warm=warm)
                    active.become_inactive()
                except OSError:
                    self._stay_in(active, base)
                    raise
                self.segment_set.add(fresh)
        except OSError as error:
            self.fenced = self.fenced or OSError(error.errno or errno.EIO, error.strerror, error.filename)
            self._restage()
            raise
        at_end = self._high_watermark.offset == end
        self._log_end = OffsetMetadata(end, base, 0)
        if at_end:
            self._high_watermark = self._log_end
        self._recent.clear()
        self._names_changed += 1
        self.flush_due = end
        self._restage()

    def _stay_in(self, active: Segment, base: int) -> None:
        """A roll has failed.  When the disk has room again, a smaller batch may still fit into the active segment; an
        empty one that begins in the middle of it would hide what it holds (`recovery` takes it away as well)."""
        for kind in layout.SEGMENT_SUFFIXES:
            self.disk.unlink(layout.path_of(self.directory, base, kind), missing_ok=True)
        self._names_changed += 1
        active.make_active()

    def _new_segment(self, base: int, now_ms: int, state: str = "", *, warm: bool = True) -> Segment:
        span = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter = self._jitter(span) if self._jitter is not None and span > 0 else 0
        return Segment.create(
            self.disk, self.directory, base, self.config, now_ms, jitter_ms=jitter, state=state, warm=warm
        )

    def new_cleaned_segment(self, base_offset: int, now_ms: int) -> Segment:
        """An empty segment with the suffix `.cleaned`, for the cleaner or a split to write into."""
        return self._new_segment(base_offset, now_ms, layout.CLEANED)

    def take_snapshot(self, *, sync: bool = False, keep: bool = True) -> None:
        """Write the producers' state as of `map_end_offset`, unless that is the last snapshot already.  The next flush
        syncs it, but with `sync` this is done here; without `keep` nobody does: it may be lost, and an older one
        serves."""
        offset = self.producers.map_end_offset
        if offset <= self.last_snapshot_offset:
            return
        path = layout.path_of(self.directory, offset, layout.SNAPSHOT)
        data = encode_snapshot(self.producers.entries.values())
        file = self.disk.open(path, create=True)
        file.pwritev([data], 0)
        if file.size() != len(data):
            file.truncate(len(data))
        if sync:
            file.fsync()
        elif keep:
            self._snapshot_files.append(file)
        self._names_changed += 1
        self.last_snapshot_offset = offset

    # --- durability ------------------------------------------------------------------------------------------------
    def flush_plan(self, up_to: int | None = None) -> FlushPlan | None:
        """What a pool thread must sync so that the recovery point may move to `up_to` (the log end); None: nothing."""
        offset = self._log_end.offset if up_to is None else min(up_to, self._log_end.offset)
        if self.flush_due is not None and offset >= self.flush_due:
            self.flush_due = None
        if offset <= self.recovery_point:
            return None
        files: list[File] = []
        indexes: list[tuple[IndexFile, int]] = []
        for segment in self._unsynced_segments():
            if segment.base_offset < offset:
                files.extend(segment.sync_files())
                indexes.extend((one.file, one.file.changes) for one in (segment.offset_index, segment.time_index))
        if self._metadata_unsynced:
            self._metadata_unsynced = False
            with contextlib.suppress(FileNotFoundError):
                self._snapshot_files.append(self.disk.open(f"{self.directory}/{layout.PARTITION_METADATA}"))
        snapshots = tuple(self._snapshot_files)
        files.extend(snapshots)
        disk, directory = self.disk, self.directory
        names, parent_dirty = self._names_changed, self._parent_dirty
        sync_directory = names != self._names_synced

        def run() -> None:
            for file in files:
                file.fsync()
            if sync_directory:
                disk.fsync_dir(directory)
            if parent_dirty:
                disk.fsync_dir(os.path.dirname(directory) or ".")

        return FlushPlan(offset, run, self._generation, names, directory, snapshots, tuple(indexes))

    def _unsynced_segments(self) -> tuple[Segment, ...]:
        """Those with something behind the recovery point, and the one that ends there: it may have been closed since,
        which wrote the last entries of its indexes."""
        return self.segment_set.from_offset(max(self.recovery_point - 1, 0))

    def complete_flush(self, plan: FlushPlan) -> None:
        """The plan has run without an error: the recovery point follows, unless the log was truncated meanwhile."""
        self._names_synced = max(self._names_synced, plan.names)
        if plan.directory == self.directory:
            self._parent_dirty = False
        self._snapshot_files = [file for file in self._snapshot_files if file not in plan.snapshots]
        if plan.generation != self._generation or plan.offset <= self.recovery_point:
            return
        assert plan.offset <= self._log_end.offset
        for index, changes in plan.indexes:
            index.let_go(changes)
        self._names_durable = self._names_durable or self._names_synced == self._names_changed
        self.recovery_point = plan.offset

    def flush(self, up_to: int | None = None) -> None:
        """Plan, run and complete, here and now.  `OSError`: the log is fenced."""
        plan = self.flush_plan(up_to)
        if plan is None:
            return
        try:
            plan.run()
        except OSError as error:
            self.fail(error)
            raise
        self.complete_flush(plan)

    # --- boundaries ------------------------------------------------------------------------------------------------
    @property
    def log_end_offset(self) -> int:
        return self._log_end.offset

    @property
    def log_end(self) -> OffsetMetadata:
        return self._log_end

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def high_watermark_metadata(self) -> OffsetMetadata:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.last_stable.offset

    @property
    def last_stable(self) -> OffsetMetadata:
        """The lower of the high watermark and the first unstable offset."""
        high, unstable = self._high_watermark, self._first_unstable
        return high if unstable is None or unstable.offset >= high.offset else unstable

    @property
    def first_unstable(self) -> OffsetMetadata | None:
        return self._first_unstable

    @property
    def is_start_in_a_name(self) -> bool:
        """Whether a load finds the log start by the name of the first segment, so that no checkpoint must say it: not
        while segments that were deleted may come back with a power failure (LM-2)."""
        start = self.log_start_offset
        if not self._names_durable:
            return start == 0
        segments = self.segment_set.all
        return start <= (segments[0].base_offset if segments else 0)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segment_set.all)

    @property
    def segments(self) -> Sequence[Segment]:
        """A consistent view, oldest first."""
        return self.segment_set.all

    @property
    def active_segment(self) -> Segment:
        return self.segment_set.active

    def update_high_watermark(self, offset: int | OffsetMetadata) -> int:
        """Set it, bounded to [local log start, log end] (R27): for followers and after a load.  Returns the new one."""
        wanted = offset if isinstance(offset, int) else offset.offset
        end = self._log_end
        bounded = max(min(wanted, end.offset), min(self.local_log_start_offset, end.offset))
        if bounded == end.offset:
            new = end
        elif isinstance(offset, OffsetMetadata) and bounded == offset.offset and offset.position >= 0:
            new = offset
        else:
            new = read.locate(self, bounded)
        self._set_high_watermark(new)
        return bounded

    def maybe_increment_high_watermark(self, new: OffsetMetadata) -> bool:
        """The leader's way: only forward, never past the log end (ST-3).  Also to a newer position of the same offset,
        which a roll makes."""
        old, end = self._high_watermark, self._log_end
        assert new.offset <= end.offset, f"high watermark {new.offset} above the log end {end.offset}"
        if new.offset < old.offset or (new.offset == old.offset and new.segment_base <= old.segment_base):
            return False
        if new.position < 0:
            new = end if new.offset == end.offset else read.locate(self, new.offset)
        self._set_high_watermark(new)
        return True

    def _set_high_watermark(self, new: OffsetMetadata) -> None:
        assert 0 <= new.offset <= self._log_end.offset
        producers = self.producers
        if producers.unreplicated and producers.on_high_watermark(new.offset) and not self._staged:
            # Before the high watermark itself: a reader in between sees an older last stable offset, never a newer
            # one than the transactions allow (R26).
            unstable = self._known(producers.first_unstable())
            self._high_watermark, self._first_unstable = new, unstable
            return
        self._high_watermark = new

    def _known(self, where: OffsetMetadata | None) -> OffsetMetadata | None:
        """The same with its position, and not below the log start."""
        if where is None or (where.position >= 0 and where.offset >= self.log_start_offset):
            return where
        return read.locate(self, max(where.offset, self.log_start_offset))

    def refresh_first_unstable(self) -> None:
        self._first_unstable = self._known(self.producers.first_unstable())

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Forward only; ApiError OFFSET_OUT_OF_RANGE above the high watermark.  `reason` is for the caller's log."""
        if offset > self._high_watermark.offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition} cannot start at {offset}: only what is below the high watermark "
                f"{self._high_watermark.offset} may be deleted",
            )
        if offset <= self.log_start_offset:
            return False
        self.commit_staged(0)
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        # In the checkpoint older epochs may stay: the next load cuts them off as well, and the loop waits for no sync.
        self.epochs.truncate_from_start(offset, write=False)
        producers = self.producers
        producers.on_high_watermark(offset)
        producers.map_end_offset = max(producers.map_end_offset, offset)
        self.refresh_first_unstable()
        return True

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: -1 means the high watermark.  Returns the new log start."""
        target = self._high_watermark.offset if offset == -1 else offset
        if target < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {offset} is not valid")
        self.maybe_increment_log_start_offset(target, "records deleted by a client")
        return self.log_start_offset

    # --- reading: see `read` ---------------------------------------------------------------------------------------
    def read(
        self, offset: int, max_bytes: int, isolation: Isolation = Isolation.LOG_END, min_one: bool = True
    ) -> FetchData:
        """Batches from the one that holds `offset` on, as a file region.  ApiError OFFSET_OUT_OF_RANGE."""
        return read.read(self, offset, max_bytes, isolation, min_one)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after `timestamp`."""
        return read.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the greatest timestamp, the first of those."""
        return read.max_timestamp_offset(self)

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions that have something in [start, end)."""
        return read.aborted_between(self, start, end)

    # --- epochs ----------------------------------------------------------------------------------------------------
    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A new leader's first act."""
        self.commit_staged(0)
        if self._cut_files:
            self._settle_cuts()
        self.epochs.assign(epoch, start_offset)
        latest = self.epochs.latest
        self._staged_epoch = -1 if latest is None else latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch at or below the asked one; (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self._log_end.offset)

    # --- reshaping: see `reshape` ----------------------------------------------------------------------------------
    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop what is at or after `offset`; also when there is nothing, conflicting epochs go (R09)."""
        return reshape.truncate_to(self, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, log_start_offset: int | None = None) -> None:
        reshape.truncate_fully(self, offset, now_ms, log_start_offset)

    def delete_segments(self, segments: Sequence[Segment], reason: str, now_ms: int) -> Deletion:
        """Take the oldest segments out (retention); when that is all of them, a new empty one is made first."""
        return reshape.delete_segments(self, segments, reason, now_ms)

    def finish_deletion(self, deletion: Deletion) -> None:
        """Unlink what `delete_segments` or `replace_segments` renamed; any thread, after the delay."""
        for path in deletion.paths:
            self.disk.unlink(path, missing_ok=True)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> Deletion:
        """The crash-safe swap of the cleaner and the split: `new` are `.cleaned` segments, written by their maker."""
        return reshape.replace_segments(self, new, old)

    def rename_directory(self, path: str) -> None:
        """The partition's directory gets another name (deletion, future replica, another mount has its own way)."""
        self.commit_staged(0)
        with contextlib.ExitStack() as held:
            for segment in self.segment_set.all:
                held.enter_context(segment.lock)  # no reader opens a file between the two names
            self.disk.rename(self.directory, path)
            self._parent_dirty = True  # what is flushed from here on is durable under the new name
            self.directory = path
            self.epochs.directory = path
            for segment in self.segment_set.all:
                segment.moved(path)

    def delete(self) -> None:
        """Remove the whole directory."""
        self.closed = True
        for segment in self.segment_set.all:
            segment.drop()
        self.disk.rmtree(self.directory)

    def close(self, *, clean: bool = True) -> None:
        """Flush, write the producers' snapshot, trim the indexes.  `clean=False` only lets go of the files."""
        if self.closed:
            return
        self.closed = True
        if clean and self.fenced is None:
            self.commit_staged(0)
            if self._cut_files:
                self._settle_cuts()  # the next load believes the files: what was cut off must not be in them again
            if not self.epochs.is_written:
                self.epochs.write()
            self.producers.map_end_offset = max(self.producers.map_end_offset, self._log_end.offset)
            self._last_snapshot()
            active = self.segment_set.active
            active.become_inactive()
            self.flush()
            # Also when the flush had nothing to do: after a clean stop every entry is believed, those of the active
            # segment and those of one that was rolled after the last flush.
            for segment in self._unsynced_segments():
                for index in (segment.offset_index.file, segment.time_index.file):
                    if (file := index.sync_file()) is not None:
                        file.fsync()
            if self._names_synced != self._names_changed or not self._names_durable:
                self.disk.fsync_dir(self.directory)
                self._names_durable = True
        self._snapshot_files = []  # not closed: a plan that is still on its way may be syncing them
        for segment in self.segment_set.all:
            segment.drop()

    def _last_snapshot(self) -> None:
        """The next start reads it; on a full disk it reads the log instead."""
        try:
            self.take_snapshot(sync=True)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            path = layout.path_of(self.directory, self.producers.map_end_offset, layout.SNAPSHOT)
            self.disk.unlink(path, missing_ok=True)

    # --- producers -------------------------------------------------------------------------------------------------
    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> object | None:
        """A guard for a transaction's first append here, None when one is ongoing already (or verification is off)."""
        if not self.config.transaction_partition_verification_enable or self.producers.has_ongoing(producer_id, epoch):
            return None
        return self.producers.start_verification(producer_id, sequence, epoch, supports_epoch_bump, now_ms)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.producers.has_ongoing(producer_id, epoch)

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether a transaction is open for longer than any may be."""
        since = self.producers.oldest_open_timestamp()
        return since > 0 and now_ms - since > self.config.transaction_max_timeout_ms + 300_000

    def expire_producers(self, now_ms: int) -> None:
        self.producers.expire(now_ms)

    # --- the topic's id --------------------------------------------------------------------------------------------
    def check_topic_id(self, found: Uuid | None) -> None:
        """Settle on the id of `partition.metadata` and of the caller, who must agree."""
        if found is not None and self.topic_id is not None and found != self.topic_id:
            raise Malformed(
                f"{self.directory}/{layout.PARTITION_METADATA}: topic id {found}, but {self.topic} has {self.topic_id}"
            )
        if self.topic_id is None:
            self.topic_id = found

    def check_invariants(self) -> None:
        """ST-2, ST-3, ST-4 and the shape of the segments, for tests and the simulator after each event."""
        end = self._log_end
        assert 0 <= self.log_start_offset <= self.local_log_start_offset
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= end.offset
        assert self.recovery_point <= end.offset
        active = self.segment_set.active
        assert end.segment_base == active.base_offset and end.position == active.size
        bases = self.segment_set.view[0]
        assert all(a < b for a, b in itertools.pairwise(bases))
        assert active.base_offset <= end.offset or active.size == 0
        rows = self.epochs.rows
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(rows))

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset}..{self._log_end.offset})"
