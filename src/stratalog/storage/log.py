"""One partition's log.  API skeleton: signatures are stable, bodies follow within the hour."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.base.ports import Disk
from stratalog.base.types import Buffer, Uuid
from stratalog.storage.config import LogConfig
from stratalog.storage.segment import Segment
from stratalog.storage.values import (
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


class Log:
    """A partition's log: one writer, readers on any thread."""

    directory: str
    topic: str
    partition: int
    topic_id: Uuid | None
    config: LogConfig
    report: LoadReport
    log_start_offset: int
    local_log_start_offset: int
    recovery_point: int
    fenced: OSError | None
    """Set by a failed write or fsync: no append is taken any more (D08); its directory goes offline."""

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
        raise NotImplementedError

    # --- appending -------------------------------------------------------------------------------------------------
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

        `payload` must not move or be reused before the commit.  Raises `ApiError`; then nothing of it is staged.
        When the segment is full the staged bytes are written and the segment rolls here.
        """
        raise NotImplementedError

    def commit_staged(self, now_ms: int) -> None:
        """One write for all that is staged; then index entries, producers, log end become visible.  `OSError` when
        the write fails: nothing of it is visible, the log is fenced."""
        raise NotImplementedError

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
        raise NotImplementedError

    def append_as_follower(self, payload: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo | None:
        """Verbatim; None when not one whole batch is in it.  A batch of a newer epoch than `leader_epoch` and what
        follows it is left out."""
        raise NotImplementedError

    # --- reading ---------------------------------------------------------------------------------------------------
    def read(self, offset: int, max_bytes: int, isolation: Isolation, min_one: bool = True) -> FetchData:
        """Batches from the one that holds `offset` on, as a file region.  ApiError OFFSET_OUT_OF_RANGE."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after `timestamp`."""
        raise NotImplementedError

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the greatest timestamp, the first of those."""
        raise NotImplementedError

    # --- boundaries ------------------------------------------------------------------------------------------------
    @property
    def log_end_offset(self) -> int:
        raise NotImplementedError

    @property
    def log_end(self) -> OffsetMetadata:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        raise NotImplementedError

    @property
    def high_watermark_metadata(self) -> OffsetMetadata:
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> int:
        raise NotImplementedError

    @property
    def size(self) -> int:
        raise NotImplementedError

    def update_high_watermark(self, offset: int | OffsetMetadata) -> int:
        """Set it, bounded to [local log start, log end] (R27): followers, and a new leader.  Returns the new one."""
        raise NotImplementedError

    def maybe_increment_high_watermark(self, new: OffsetMetadata) -> bool:
        """The leader's way: only forward, never past the log end (ST-3)."""
        raise NotImplementedError

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Forward only; ApiError OFFSET_OUT_OF_RANGE above the high watermark."""
        raise NotImplementedError

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: -1 means the high watermark.  Returns the new log start."""
        raise NotImplementedError

    # --- epochs ----------------------------------------------------------------------------------------------------
    @property
    def latest_epoch(self) -> int | None:
        raise NotImplementedError

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A new leader's first act."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch at or below the asked one; (-1, -1) when unknown."""
        raise NotImplementedError

    # --- shape -----------------------------------------------------------------------------------------------------
    @property
    def segments(self) -> Sequence[Segment]:
        """A consistent view, oldest first."""
        raise NotImplementedError

    def roll(self, now_ms: int, expected_next_offset: int | None = None) -> None:
        raise NotImplementedError

    def maybe_roll_by_time(self, now_ms: int) -> bool:
        raise NotImplementedError

    def flush_plan(self, up_to: int | None = None) -> FlushPlan | None:
        raise NotImplementedError

    def complete_flush(self, plan: FlushPlan) -> None:
        raise NotImplementedError

    def flush(self, up_to: int | None = None) -> None:
        raise NotImplementedError

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop what is at or after `offset`; also when there is nothing, conflicting epochs go (R09)."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, log_start_offset: int | None = None) -> None:
        raise NotImplementedError

    def delete_segments(self, segments: Sequence[Segment], reason: str, now_ms: int) -> Deletion:
        """Take the oldest segments out (retention); all of them means: roll first, an empty one stays."""
        raise NotImplementedError

    def finish_deletion(self, deletion: Deletion) -> None:
        """Unlink what `delete_segments` or `replace_segments` renamed; any thread, after the delay."""
        raise NotImplementedError

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> Deletion:
        """The cleaner's crash-safe swap: `new` are `.cleaned` segments, flushed by their maker."""
        raise NotImplementedError

    def new_cleaned_segment(self, base_offset: int, now_ms: int) -> Segment:
        """An empty segment with the suffix `.cleaned`, for the cleaner to write into."""
        raise NotImplementedError

    def configure(self, config: LogConfig) -> None:
        raise NotImplementedError

    def rename_directory(self, path: str) -> None:
        raise NotImplementedError

    def delete(self) -> None:
        """Remove the whole directory (already renamed to `-delete`)."""
        raise NotImplementedError

    def close(self, *, clean: bool = True) -> None:
        """Flush, write the producers' snapshot, trim indexes.  `clean=False` only lets go of the files."""
        raise NotImplementedError

    # --- producers -------------------------------------------------------------------------------------------------
    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> object | None:
        """A guard for a transaction's first append here, None when one is ongoing already (or verification is off)."""
        raise NotImplementedError

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        raise NotImplementedError

    def expire_producers(self, now_ms: int) -> None:
        raise NotImplementedError
