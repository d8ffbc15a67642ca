"""The values that travel between a log and its callers.  No behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from stratalog.base.ports import File
from stratalog.base.types import FileRegion
from stratalog.storage.index_file import IndexFile


class Isolation(IntEnum):
    """What bounds a read from above: the log end, the high watermark, or the last stable offset."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class Origin(IntEnum):
    """Where a batch comes from, which says how far it is checked."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3


class OffsetMetadata(NamedTuple):
    """An offset and where it is: the base offset of its segment and the byte position, -1 where not known."""

    offset: int
    segment_base: int = -1
    position: int = -1


class AbortedTxn(NamedTuple):
    """A row of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TimestampOffset(NamedTuple):
    """An answer of `Log.offset_for_timestamp`."""

    timestamp: int
    offset: int
    leader_epoch: int


class AppendInfo:
    """What became of one append.  Of a duplicate, the offsets are those of the batch that was written first."""

    __slots__ = (
        "duplicate",
        "first_offset",
        "last_offset",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
        "size",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        log_append_time: int,
        log_start_offset: int,
        size: int,
        duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.log_append_time = log_append_time
        """-1 where the topic keeps the producers' timestamps."""
        self.log_start_offset = log_start_offset
        self.size = size
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return (
            f"AppendInfo({self.first_offset}..{self.last_offset}, {self.size} bytes"
            f"{', duplicate' if self.duplicate else ''})"
        )


class FetchData:
    """What a read found: where it starts, the file region (None: nothing below the bound), aborted transactions."""

    __slots__ = ("aborted", "first_entry_incomplete", "offset_metadata", "region")

    def __init__(
        self,
        offset_metadata: OffsetMetadata,
        region: FileRegion | None,
        aborted: list[AbortedTxn] | None = None,
        first_entry_incomplete: bool = False,
    ) -> None:
        self.offset_metadata = offset_metadata
        self.region = region
        self.aborted = aborted
        self.first_entry_incomplete = first_entry_incomplete

    @property
    def size(self) -> int:
        return 0 if self.region is None else self.region.length


class Deletion(NamedTuple):
    """Files that were renamed to `.deleted` and wait for `delay_ms` before `Log.finish_deletion` unlinks them, so
    that readers and a crash in between lose nothing."""

    paths: tuple[str, ...]
    delay_ms: int
    reason: str


class FlushPlan(NamedTuple):
    """What must reach the disk before the recovery point may move to `offset`.  `run` may run on a pool thread; its
    end, without an error, is told to the log by `Log.complete_flush(plan)` on the loop."""

    offset: int
    run: Callable[[], None]
    generation: int
    names: int
    """Up to which change the names of `directory` are synced by it."""
    directory: str
    snapshots: tuple[File, ...]
    indexes: tuple[tuple[IndexFile, int], ...]
    """What may be closed after it, unless it has changed more often by then than it had when this was planned."""


@dataclass(slots=True)
class Finding:
    """A line of the report of a load: what was found, and what was done about it."""

    kind: str
    path: str
    text: str
    position: int = -1


@dataclass(slots=True)
class LoadReport:
    """What start-up found and did; `stratalog why` prints it."""

    findings: list[Finding] = field(default_factory=list)
    segments: int = 0
    segments_recovered: int = 0
    bytes_recovered: int = 0
    bytes_truncated: int = 0
    damaged: bool = False
    """Flushed data is damaged: this replica must not lead before it was repaired (D17)."""

    def add(self, kind: str, path: str, text: str, position: int = -1) -> None:
        self.findings.append(Finding(kind, path, text, position))
