"""Moving replicas between the data directories of this broker: future logs.

    ask()        `topic-partition.<unique>-future` is made in the target directory, from the current log's start on
    copy         batches are read from the current log on the background pool and appended on the loop, chunk by chunk,
                 verbatim, up to the high watermark
    swap         when the copy has reached the log end, in one turn of the loop: the future log takes the live name,
                 the current one is renamed to `-delete`; the metadata is told where the replica lives now

The cleaner leaves both alone from `ask` to the swap.  A crash before the swap finds the future directory and goes on
with it; one in the middle of it finds two whole logs, and the metadata decides (`registry._loaded`).  A move back to
where the replica is ends the move.  Loop only, but for the reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.ports import Pool
from stratalog.base.types import Millis
from stratalog.logs.background import Lanes
from stratalog.logs.registry import Directory, Key, LogRegistry
from stratalog.storage import layout
from stratalog.storage.log import Isolation, Log

log = logging.getLogger("stratalog.logs")

COPY_BYTES: Final = 1 << 20
"""Read at once; the append of a chunk is a part of one turn of the loop."""
RETRY_MS: Final = 1_000


class Schedule(Protocol):
    def after(self, delay_ms: int, callback: Callable[[Millis], None]) -> object: ...


class Move:
    """One replica on its way."""

    __slots__ = ("current", "future", "key", "source", "stopped", "target")

    def __init__(self, key: Key, source: Directory, target: Directory, current: Log, future: Log) -> None:
        self.key = key
        self.source = source
        self.target = target
        self.current = current
        self.future = future
        self.stopped = False


class Moves:
    """See the module."""

    def __init__(self, logs: LogRegistry, pool: Pool, schedule: Schedule) -> None:
        self._logs = logs
        self._reads = Lanes(pool, "move")
        self._schedule = schedule
        self.moves: dict[Key, Move] = {}
        self.on_moved: Callable[[Key, Log, Directory], None] = lambda key, current, directory: None
        """The replica's log is another now, in this directory."""
        self.rates: Callable[[], float] = lambda: float("inf")
        """Bytes a second that a move may copy."""
        self._closed = False

    def start(self) -> None:
        """Go on with what the last run began."""
        for directory in self._logs.online:
            for key, future in list(directory.futures.items()):
                source = self._logs.directory_of(*key)
                if source is None or source is directory:
                    log.warning("%s-%d: a copy in %s without an original", *key, directory.path)
                    continue
                self._begin(key, source, directory, future)

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
        source = logs.directory_of(*key)
        if source is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{key[0]}-{key[1]} is not on this broker")
        running = self.moves.get(key)
        if running is not None:
            if running.target is target:
                return
            self._abandon(running)
        if source is target:
            return
        current = source.logs[key]
        unique = logs._rng.token(16).hex()
        name = layout.renamed_directory(*key, unique, layout.DIRECTORY_FUTURE_SUFFIX)
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
            logs.fail(target, error)
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
            move.future.truncate_fully_and_start_at(start, Millis(0))

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
            if move.future.log_end_offset >= move.current.log_end_offset:
                self._swap(move)
            else:
                self._schedule.after(RETRY_MS, lambda _: self._copy(move))
            return
        epoch = move.current.latest_epoch
        try:
            move.future.append_as_follower(bytearray(data), 1 << 30 if epoch is None else epoch, now)
        except OSError as failure:
            self._logs.fail(move.target, failure)
            self._forget(move)
            return
        rate = self.rates()
        delay = 0 if rate == float("inf") else int(len(data) * 1000 / max(rate, 1.0))
        if delay:
            self._schedule.after(delay, lambda _: self._copy(move))
        else:
            self._copy(move)

    def _swap(self, move: Move) -> None:
        """All of it is there: exchange the two, in one turn."""
        key, logs, future, current = move.key, self._logs, move.future, move.current
        try:
            current.commit_staged(0)
            if future.log_end_offset < current.log_end_offset:
                self._copy(move)  # something was staged
                return
            future.flush()
            if current.log_start_offset > future.log_start_offset:
                future.update_high_watermark(future.log_end_offset)
                future.maybe_increment_log_start_offset(current.log_start_offset, "as the original")
            future.rename_directory(f"{move.target.path}/{layout.directory_name(*key)}")
        except OSError as error:
            logs.fail(move.target, error)
            self._forget(move)
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
