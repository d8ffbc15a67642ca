"""The metadata log of one node that is the whole quorum.

Owns `__cluster_metadata-0` of the metadata directory: the log (a `storage.log.Log`), its snapshots and the
`quorum-state` file.  Rules: each start leads in a new epoch, which is in `quorum-state` before the first batch of it
is in the log (a broken file stops the start, K05); the high watermark is the flushed end of the log; who appends is
told through `on_commit` once the high watermark has passed.  Called from the loop; fsync runs on the pool, one at a
time, and what is appended meanwhile shares the next one.

    open -> recovered() -> lead(now) -> append(...) ... on_commit(high watermark) ... close
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk, Pool
from stratalog.base.types import METADATA_TOPIC_ID, Millis, Uuid
from stratalog.protocol.disk import control as schema
from stratalog.raft import snapshot, state
from stratalog.raft.snapshot import SnapshotId, Voter
from stratalog.records import control
from stratalog.records.batch import BatchBuilder, batches, check, records_of
from stratalog.storage import layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log
from stratalog.storage.scan import resync, scan, why_invalid
from stratalog.storage.values import FlushPlan, Isolation, Origin

logger = logging.getLogger("stratalog.raft")

TOPIC: Final = "__cluster_metadata"
DIRECTORY: Final = "__cluster_metadata-0"
READ_BYTES: Final = 4 << 20
"""One read while replaying: large enough to be rare, small enough not to be felt."""
SNAPSHOTS_KEPT: Final = 2
"""The newest, and the one before it, should the newest turn out to be unreadable."""


def format_metadata(
    disk: Disk,
    directory: str,
    bootstrap: Sequence[bytes],
    *,
    now: Millis,
    voters: Sequence[Voter] | None = None,
) -> None:
    """What `format` leaves in the metadata directory: `bootstrap.checkpoint` with the first records, and, for a
    dynamic quorum, the snapshot `0-0` with its voters.  Files that are there already stay."""
    path = f"{directory}/{snapshot.BOOTSTRAP}"
    if not disk.exists(path):
        disk.write_atomically(path, snapshot.encode(bootstrap, now=now, last_timestamp=Millis(0), epoch=0))
    if voters is None:
        return
    log_directory = f"{directory}/{DIRECTORY}"
    disk.mkdir(log_directory)
    path = f"{log_directory}/{SnapshotId(0, 0).file_name}"
    if not disk.exists(path):
        data = snapshot.encode((), now=now, last_timestamp=now, epoch=0, kraft_version=1, voters=voters)
        disk.write_atomically(path, data)


def bootstrap_values(disk: Disk, directory: str) -> list[bytes] | None:
    """The records of `bootstrap.checkpoint`, None where there is none."""
    path = f"{directory}/{snapshot.BOOTSTRAP}"
    return snapshot.read(disk, path).values if disk.exists(path) else None


class Quorum:
    """One voter, always the leader."""

    def __init__(
        self,
        disk: Disk,
        pool: Pool,
        log: Log,
        *,
        node_id: int,
        directory_id: Uuid,
        previous: state.QuorumState | None,
        snapshots: list[SnapshotId],
        fsync: bool,
        retention_bytes: int,
        retention_ms: int,
    ) -> None:
        self._disk = disk
        self._pool = pool
        self._log = log
        self._fsync = fsync
        self._retention_bytes = retention_bytes
        self._retention_ms = retention_ms
        self._previous = previous
        self._snapshots = snapshots
        self._flushing = False
        self._closed = False
        self._snapshotting = False
        self.node_id = node_id
        self.directory_id = directory_id
        self.kraft_version = 0
        self.voters: tuple[Voter, ...] | None = None
        self.epoch = max(
            log.latest_epoch or 0,
            0 if previous is None else previous.leader_epoch,
            snapshots[-1].epoch if snapshots else 0,
        )
        self.leading = False
        self.high_watermark = 0
        self.last_timestamp = Millis(-1)
        self.bytes_since_snapshot = 0
        self.on_commit: Callable[[int], None] = _nothing
        """Called on the loop with the new high watermark."""
        self.on_failure: Callable[[BaseException], None] = _raise
        """Called on the loop when the log cannot be written or flushed any more: the node has to stop."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        pool: Pool,
        directory: str,
        *,
        node_id: int,
        directory_id: Uuid,
        now: Millis,
        config: LogConfig | None = None,
        had_clean_shutdown: bool = False,
        fsync: bool = True,
        retention_bytes: int = -1,
        retention_ms: int = -1,
    ) -> Quorum:
        """Open `directory/__cluster_metadata-0`, made when missing.  `Malformed` when the quorum state is broken or
        belongs to another voter set.  The retention (-1: none) is of segments that snapshots stand for."""
        path = f"{directory}/{DIRECTORY}"
        disk.mkdir(path)
        previous = state.read(disk, path)
        if previous is not None:
            if previous.voters is not None and previous.voters != (node_id,):
                raise Malformed(
                    f"{path}/{state.QUORUM_STATE}: the voters are {list(previous.voters)}; a node alone can only open "
                    f"a quorum of itself ({node_id})"
                )
            if previous.voted_id not in (-1, node_id) and previous.leader_id != node_id:
                raise Malformed(f"{path}/{state.QUORUM_STATE}: this node voted for node {previous.voted_id}")
        snapshots = snapshot.find(disk, path)
        if not had_clean_shutdown:
            _refuse_rot(disk, path)
        log = Log.open(
            disk,
            path,
            topic=TOPIC,
            partition=0,
            config=config or LogConfig(),
            now_ms=now,
            topic_id=METADATA_TOPIC_ID,
            had_clean_shutdown=had_clean_shutdown,
        )
        for finding in log.report.findings:
            logger.warning("%s: %s: %s", finding.path, finding.kind, finding.text)
        if snapshots and log.log_end_offset < snapshots[-1].end_offset:
            log.truncate_fully_and_start_at(snapshots[-1].end_offset, now)
        return cls(
            disk,
            pool,
            log,
            node_id=node_id,
            directory_id=directory_id,
            previous=previous,
            snapshots=snapshots,
            fsync=fsync,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
        )

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def log(self) -> Log:
        return self._log

    @property
    def is_new(self) -> bool:
        """Nothing was ever written here but, perhaps, the voters of `format`."""
        return self._log.log_end_offset == 0

    # --- loading ---------------------------------------------------------------------------------------------------
    def recovered(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """What the log holds: batches of (last offset, leader epoch, values), first the latest snapshot as one.
        Learns the quorum's version and voters on its way.  All of it is committed: the only voter has it."""
        position = self._log.log_start_offset
        if self._snapshots:
            latest = self._snapshots[-1]
            contents = snapshot.read(self._disk, f"{self._log.directory}/{latest.file_name}")
            self.kraft_version = contents.kraft_version
            self.voters = contents.voters
            self.last_timestamp = contents.last_timestamp
            position = latest.end_offset
            yield position - 1, latest.epoch, contents.values
        elif position > 0:
            raise Malformed(f"{self._log.directory}: the log starts at {position} and there is no snapshot before it")
        end = self._log.log_end_offset
        while position < end:
            region = self._log.read(position, READ_BYTES, Isolation.LOG_END).region
            assert region is not None, "below the log's end there is a batch"
            data = region.read()
            before = position
            for header in batches(data):
                if header.next_offset <= position:
                    continue
                try:
                    check(data, header)
                except Malformed as error:
                    raise _damaged(self._log.directory, f"offset {header.base_offset}: {error}") from error
                self.last_timestamp = Millis(header.max_timestamp)
                self.bytes_since_snapshot += header.size
                position = header.next_offset
                if header.is_control:
                    for record in records_of(data, header):
                        self._control(control.read_type(record.key), record.value or b"")
                else:
                    values = [record.value or b"" for record in records_of(data, header)]
                    yield header.last_offset, header.leader_epoch, values
            assert position > before, f"no batch at offset {before} of the metadata log"

    def _control(self, kind: int, value: bytes) -> None:
        if kind == control.KRAFT_VERSION:
            self.kraft_version = schema.KRaftVersionRecord.decode(value, 0).k_raft_version
        elif kind == control.KRAFT_VOTERS:
            self.voters = snapshot.read_voters(value)

    # --- leading ---------------------------------------------------------------------------------------------------
    def lead(self, now: Millis) -> None:
        """Begin a new epoch: into `quorum-state` first, then into the log."""
        assert not self.leading
        if self.voters is not None and [voter.id for voter in self.voters] != [self.node_id]:
            ids = [voter.id for voter in self.voters]
            raise Malformed(f"{self._log.directory}: the voters are {ids}; a node alone cannot lead them")
        fresh = self._log.log_end_offset == 0
        self.epoch += 1
        directory = self._log.directory
        new = state.QuorumState(
            leader_epoch=self.epoch,
            leader_id=self.node_id,
            voters=(self.node_id,) if self.kraft_version == 0 else None,
            data_version=min(self.kraft_version, 1),
        )
        state.write(self._disk, directory, new)
        self._log.assign_epoch(self.epoch, self._log.log_end_offset)
        builder = BatchBuilder(leader_epoch=self.epoch, control=True)
        voters = [schema.Voter(voter_id=self.node_id)]
        message = schema.LeaderChangeMessage(version=0, leader_id=self.node_id, voters=voters, granting_voters=voters)
        builder.append(now, control.key(control.LEADER_CHANGE), message.encode_bytes(0))
        if fresh and self.kraft_version > 0 and self.voters is not None:
            version = schema.KRaftVersionRecord(version=0, k_raft_version=self.kraft_version)
            builder.append(now, control.key(control.KRAFT_VERSION), version.encode_bytes(0))
            record = snapshot.voters_record(self.voters)
            builder.append(now, control.key(control.KRAFT_VOTERS), record.encode_bytes(0))
        self.leading = True
        self._write(builder.build(), now)

    def append(self, values: Sequence[bytes], now: Millis) -> int:
        """Append records as one batch; returns the offset of the last one.  A flush is asked for and shared by all
        appends until it starts; `on_commit` comes later, never inside this call."""
        assert self.leading and values
        builder = BatchBuilder(leader_epoch=self.epoch)
        for value in values:
            builder.append(now, None, value)
        self._write(builder.build(), now)
        if self._fsync:
            self._flush_later()
        return self._log.log_end_offset - 1

    def _write(self, batch: bytearray, now: Millis) -> None:
        size = len(batch)
        self._log.append_as_leader(batch, self.epoch, now, origin=Origin.RAFT_LEADER)
        self.last_timestamp = now
        self.bytes_since_snapshot += size

    def _flush_later(self) -> None:
        if self._flushing or self._closed:
            return
        plan = self._log.flush_plan()
        if plan is None:
            return
        self._flushing = True
        self._pool.submit("metadata-flush", plan.run, lambda _, error: self._flushed(plan, error))

    def _flushed(self, plan: FlushPlan, error: BaseException | None) -> None:
        self._flushing = False
        if self._closed:
            return
        if error is not None:
            self.on_failure(error)
            return
        self._log.complete_flush(plan)
        self._advance(plan.offset)
        if self._log.log_end_offset > plan.offset:
            self._flush_later()

    def commit(self) -> None:
        """Without fsync: what is written is committed.  The owner calls it when a turn of work is done."""
        if not self._fsync:
            self._advance(self._log.log_end_offset)

    @property
    def commits_by_itself(self) -> bool:
        """False without fsync: then somebody has to call `commit`."""
        return self._fsync

    def flush(self) -> None:
        """Commit everything here and now; for the start and the stop."""
        if self._fsync:
            self._log.flush()
        self._advance(self._log.log_end_offset)

    def _advance(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._log.update_high_watermark(offset)
            self.on_commit(offset)

    # --- snapshots -------------------------------------------------------------------------------------------------
    def take_snapshot(
        self, id: SnapshotId, values: Callable[[], Iterable[bytes]], now: Millis, *, wait: bool = False
    ) -> None:
        """Write the state before `id.end_offset` to a file, on the pool unless `wait`; then drop older ones.
        `values` is called there, so it must only touch what does not change (an image)."""
        assert id.end_offset <= self.high_watermark
        if self._snapshotting or (self._snapshots and self._snapshots[-1].end_offset >= id.end_offset):
            return
        path = f"{self._log.directory}/{id.file_name}"
        voters, kraft_version, last_timestamp = self.voters, self.kraft_version, self.last_timestamp

        def write() -> None:
            data = snapshot.encode(
                values(),
                now=now,
                last_timestamp=last_timestamp,
                epoch=id.epoch,
                kraft_version=kraft_version,
                voters=voters,
            )
            self._disk.write_atomically(path, data)

        def done(_: Any, error: BaseException | None) -> None:
            self._snapshotting = False
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                # The log has it all: nothing is lost, only the next start has more to replay until there is room.
                logger.warning("no room for a snapshot of the metadata: %s", error)
                self.bytes_since_snapshot += grown
                return
            if error is not None:
                self.on_failure(error)
                return
            self._snapshots.append(id)
            try:
                for old in self._snapshots[:-SNAPSHOTS_KEPT]:
                    self._disk.unlink(f"{self._log.directory}/{old.file_name}", missing_ok=True)
                del self._snapshots[:-SNAPSHOTS_KEPT]
                if not self._closed:
                    self._trim(now)
            except OSError as failure:
                self.on_failure(failure)

        self._snapshotting = True
        grown, self.bytes_since_snapshot = self.bytes_since_snapshot, 0
        if wait:
            write()
            done(None, None)
        else:
            self._pool.submit("metadata-snapshot", write, done)

    def _trim(self, now: Millis) -> None:
        """Drop the oldest segments, while they are too many or too old, and never one that holds a record which the
        oldest snapshot does not (K03): should the newest be unreadable, the one before it and the log give all."""
        covered = self._snapshots[0].end_offset
        size = self._log.size
        doomed = []
        for segment, following in pairwise(self._log.segments):
            is_too_much = 0 <= self._retention_bytes < size
            is_too_old = 0 <= self._retention_ms < now - segment.largest_timestamp
            if following.base_offset > covered or not (is_too_much or is_too_old):
                break
            doomed.append(segment)
            size -= segment.size
        if doomed:
            self._log.finish_deletion(self._log.delete_segments(doomed, "snapshots stand for them", now))

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        """Oldest first."""
        return self._snapshots

    def close(self, *, clean: bool = True) -> None:
        """Flush and close.  Nothing is told to anybody any more.  `clean=False` only lets go of the files."""
        if self._closed:
            return
        self._closed = True
        if self._fsync and clean:
            self._log.flush()
        self._log.close(clean=clean)


def _refuse_rot(disk: Disk, path: str) -> None:
    """Recovery ends a log before its first damaged batch.  That is right for what a crash tore, and here it would take
    the topics away when the damage came later: a sound batch of a later epoch behind it says so, because each start
    flushes the log before it serves."""
    names = [name for name in disk.listdir(path) if (parsed := layout.parse(name)) and not parsed.state]
    place = ""
    last, epoch = -1, -1
    for name in sorted(name for name in names if name.endswith(layout.LOG)):
        with closing(disk.open(f"{path}/{name}", write=False)) as file:
            position, end = 0, file.size()
            while position < end:
                for at, size, _, until, of_epoch, *_ in scan(file, position, end, verify=True, after_offset=last):
                    if place and of_epoch > epoch:
                        raise _damaged(path, place)
                    position, last = at + size, until
                    if not place:
                        epoch = of_epoch
                if position < end:
                    place = place or f"{name}, byte {position}: {why_invalid(file, position, end, last)}"
                    position = resync(file, position, end, last)
                    if position < 0:
                        break


def _damaged(path: str, what: str) -> Malformed:
    return Malformed(
        f"{path}: the metadata log is damaged where it was flushed ({what}); going on would lose topics, so nothing "
        "was changed: bring the file back from a copy"
    )


def _nothing(_: int) -> None:
    """Nobody listens yet."""


def _raise(error: BaseException) -> None:
    raise error
