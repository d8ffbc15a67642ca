"""Moving replicas between the data directories of this broker: future logs.

    ask()        `topic-partition.<unique>-future` is made in the target directory, from the current log's start on
    copy         batches are read from the current log on the background pool and appended on the loop, chunk by chunk,
                 verbatim, up to the high watermark
    flush        when the copy has reached the log end, on the pool: it promises then what the original has promised,
                 its log start (LM-2) among it
    swap         in one turn of the loop, when the copy has reached the log end again: the future log takes the live
                 name, the current one is renamed to `-delete`; the metadata is told where the replica lives now

The cleaner leaves both alone from `ask` to the swap.  A crash before the swap finds the future directory and goes on
with it.  One in the middle of it finds any mixture of the names: two whole logs, of which the longer one counts
(`registry._loaded`), or a copy that is complete (`registry._promote`).  A move back to where the replica is ends the
move.  A full disk makes a move wait.  Loop only, but for reads and syncs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.ports import Pool
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.logs.background import Lanes, Schedule
from stratalog.logs.registry import FULL, Directory, Key, LogRegistry, is_reserved
from stratalog.storage import layout
from stratalog.storage.log import Isolation, Log

log = logging.getLogger("stratalog.logs")

COPY_BYTES: Final = 1 << 20
"""Read at once; the append of a chunk is a part of one turn of the loop."""
RETRY_MS: Final = 1_000
FULL_RETRY_MS: Final = 5_000
"""Until a target that was full is asked again."""


class Move:
    """One replica on its way."""

    __slots__ = ("current", "flushed", "future", "key", "source", "stopped", "target", "waits")

    def __init__(self, key: Key, source: Directory, target: Directory, current: Log, future: Log) -> None:
        self.key = key
        self.source = source
        self.target = target
        self.current = current
        self.future = future
        self.stopped = False
        self.flushed = False
        """The copy's names are on the disk, and its records as far as the original's were when this was looked at."""
        self.waits = False
        """The target is full."""


class Moves:
    """See the module."""

    def __init__(self, logs: LogRegistry, pool: Pool, schedule: Schedule) -> None:
        self._logs = logs
        self._reads = Lanes(pool, "move")
        self._syncs = Lanes(pool, "move")
        self._schedule = schedule
        self.moves: dict[Key, Move] = {}
        self.on_moved: Callable[[Key, Log, Directory], None] = lambda key, current, directory: None
        """The replica's log is another now, in this directory."""
        self.rates: Callable[[], float] = lambda: float("inf")
        """Bytes a second that a move may copy."""
        self.assigned: Callable[[Key], Uuid] = lambda key: ZERO_UUID
        """The directory that the metadata has for a partition."""
        self._closed = False

    def start(self) -> None:
        """Go on with what the last run began."""
        self._schedule.after(0, self._tell)
        for directory in self._logs.online:
            for key, future in list(directory.futures.items()):
                source = self._logs.directory_of(*key)
                if source is None or source is directory:
                    log.warning("%s-%d: a copy in %s without an original", *key, directory.path)
                    continue
                running = self.moves.get(key)
                if running is not None and running.future.log_end_offset >= future.log_end_offset:
                    # Its directory was offline when another one was asked for; copies may be made again.
                    self._logs._to_delete(directory.futures.pop(key), directory, key)
                    continue
                if running is not None:
                    self._abandon(running)
                self._begin(key, source, directory, future)

    def _tell(self, _: Millis) -> None:
        """A crash may have come between a swap and the metadata's word of it: left so, the failure of one directory
        would be taken for that of the other."""
        for directory in self._logs.online:
            for key, one in list(directory.logs.items()):
                where = self.assigned(key)
                if where != directory.id and not is_reserved(where) and not is_reserved(directory.id):
                    log.warning("%s-%d is in %s, which the metadata did not know", *key, directory.path)
                    self.on_moved(key, one, directory)

    def close(self) -> None:
        self._closed = True

    def ask(self, key: Key, path: str, now: Millis) -> None:
        """Move a replica to the directory at `path`; returns when the move has begun.  `ApiError`."""
        logs = self._logs
        target = next((d for d in logs.directories if d.path == path.rstrip("/")), None)
        if target is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no log directory of this broker")
        if target.failure is not None or logs.is_offline(key):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        if "*" in logs.cordoned or target.path in logs.cordoned:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned: it takes no replicas")
        source = logs.directory_of(*key)
        if source is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{key[0]}-{key[1]} is not on this broker")
        running = self.moves.get(key)
        if running is not None:
            if running.target is target and self._is_valid(running):
                return
            self._abandon(running)
        if source is target:
            return
        current = source.logs[key]
        unique = logs._rng.token(16).hex()
        name = layout.renamed_directory(*key, unique, layout.DIRECTORY_FUTURE_SUFFIX)
        future = None
        try:
            future = Log.open(
                logs._disk,
                f"{target.path}/{name}",
                topic=key[0],
                partition=key[1],
                config=current.config,
                now_ms=now,
                topic_id=current.topic_id,
            )
            if current.log_start_offset:
                future.truncate_fully_and_start_at(current.log_start_offset, now)
        except OSError as error:
            if error.errno not in FULL:
                logs.fail(target, error)
            else:
                if future is not None:
                    future.close(clean=False)
                logs.shredder.tree(f"{target.path}/{name}", 0)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        target.futures[key] = future
        self._begin(key, source, target, future)

    def _begin(self, key: Key, source: Directory, target: Directory, future: Log) -> None:
        move = Move(key, source, target, source.logs[key], future)
        self.moves[key] = move
        self._logs.pause_cleaning(key)
        log.info("%s-%d moves from %s to %s", *key, source.path, target.path)
        self._copy(move)

    def _is_valid(self, move: Move) -> bool:
        return (
            not self._closed
            and not move.stopped
            and self.moves.get(move.key) is move
            and move.source.logs.get(move.key) is move.current
            and move.target.futures.get(move.key) is move.future
        )

    def _copy(self, move: Move) -> None:
        if not self._is_valid(move):
            self._forget(move)
            return
        start = max(move.future.log_end_offset, move.current.log_start_offset)
        if start > move.future.log_end_offset:  # the original has lost its beginning meanwhile
            move.flushed = False
            try:
                move.future.truncate_fully_and_start_at(start, Millis(0))
            except OSError as error:
                self._failed(move, error)
                return

        def read() -> bytes:
            try:
                data = move.current.read(start, COPY_BYTES, Isolation.HIGH_WATERMARK, True)
            except ApiError:
                return b""  # the range has moved: looked at again on the loop
            return b"" if data.region is None else data.region.read()

        self._reads.of(move.current.directory).submit(read, lambda result, error: self._append(move, result, error))

    def _append(self, move: Move, data: bytes | None, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            if self._is_valid(move):
                self._logs.fail(move.source, error)
            self._forget(move)
            return
        if error is not None:
            raise error
        if not self._is_valid(move):
            self._forget(move)
            return
        now = Millis(0)
        if not data:
            if move.future.log_end_offset < move.current.log_end_offset:
                self._schedule.after(RETRY_MS, lambda _: self._copy(move))
            elif not move.flushed:
                self._flush(move)
            else:
                self._swap(move)
            return
        epoch = move.current.latest_epoch
        try:
            move.future.append_as_follower(bytearray(data), 1 << 30 if epoch is None else epoch, now)
        except OSError as failure:
            self._failed(move, failure)
            return
        rate = self.rates()
        delay = 0 if rate == float("inf") else int(len(data) * 1000 / max(rate, 1.0))
        if delay:
            self._schedule.after(delay, lambda _: self._copy(move))
        else:
            self._copy(move)

    def _flush(self, move: Move) -> None:
        """What the original has promised to survive a crash, the copy has to promise before it takes its place."""
        future = move.future
        plan = future.flush_plan()

        def work() -> None:
            if plan is not None:
                plan.run()
            future.disk.fsync_dir(future.directory)
            future.disk.fsync_dir(move.target.path)

        def done(_: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, OSError):
                raise error
            if not self._is_valid(move):
                self._forget(move)
            elif error is not None:
                self._logs.fail(move.target, error)
                self._forget(move)
            else:
                if plan is not None:
                    future.complete_flush(plan)
                self._write_start(move)

        self._syncs.of(future.directory).submit(work, done)

    def _write_start(self, move: Move) -> None:
        """What was deleted of the original is not seen again in the copy: its start is on the disk before the swap."""
        future, start = move.future, move.current.log_start_offset
        future.update_high_watermark(future.log_end_offset)
        future.maybe_increment_log_start_offset(min(start, future.log_end_offset), "as the original")

        def written(error: OSError | None) -> None:
            if not self._is_valid(move):
                self._forget(move)
            elif error is not None:
                self._failed(move, error)
            else:
                move.flushed = True
                self._copy(move)

        if future.is_start_in_a_name:
            written(None)
        else:
            self._logs.checkpoint_log_starts(move.target, written)

    def _failed(self, move: Move, error: OSError) -> None:
        """The target takes no more: until there is room again, or for good."""
        if error.errno in FULL:
            if not move.waits:
                move.waits = True
                log.warning("%s-%d: its move waits, %s is full", *move.key, move.target.path)
            self._schedule.after(FULL_RETRY_MS, lambda _: self._copy(move))
            return
        self._logs.fail(move.target, error)
        self._forget(move)

    def _swap(self, move: Move) -> None:
        """All of it is there: exchange the two, in one turn."""
        key, logs, future, current = move.key, self._logs, move.future, move.current
        try:
            current.commit_staged(0)
        except OSError:
            self._schedule.after(RETRY_MS, lambda _: self._copy(move))  # the next append to it says what is wrong
            return
        if (
            future.log_end_offset < current.log_end_offset
            or future.recovery_point < current.recovery_point
            or future.log_start_offset < current.log_start_offset
        ):
            move.flushed = False
            self._copy(move)  # something was staged, synced or deleted
            return
        try:
            for epoch, start in current.epochs.rows:
                if future.latest_epoch is None or epoch > future.latest_epoch:
                    future.assign_epoch(epoch, start)  # an epoch without a batch yet (R25)
            future.rename_directory(f"{move.target.path}/{layout.directory_name(*key)}")
        except OSError as error:
            self._failed(move, error)
            return
        future.update_high_watermark(current.high_watermark)
        checkpoint = logs.cleaner_checkpoint(key)
        del self.moves[key]
        del move.target.futures[key]
        logs.replace_home(key, move.target, future)
        if checkpoint is not None:
            logs.set_cleaner_checkpoint(key, checkpoint)
        logs.resume_cleaning(key)
        logs.checkpoint()
        log.info("%s-%d lives in %s now", *key, move.target.path)
        self.on_moved(key, future, move.target)

    def _abandon(self, move: Move) -> None:
        """Another directory is wanted now, or none."""
        future = move.target.futures.pop(move.key, None)
        self._forget(move)
        if future is not None:
            self._logs._to_delete(future, move.target, move.key)

    def _forget(self, move: Move) -> None:
        move.stopped = True
        if self.moves.get(move.key) is move:
            del self.moves[move.key]
            if not self._closed:
                self._logs.resume_cleaning(move.key)

    def lag(self, key: Key) -> int:
        """Offsets that the copy is behind."""
        move = self.moves.get(key)
        return 0 if move is None else max(move.current.log_end_offset - move.future.log_end_offset, 0)

    def gauges(self) -> list[tuple[str, str, float]]:
        rows: list[tuple[str, str, Any]] = [("stratalog_replica_moves", "", len(self.moves))]
        return rows
