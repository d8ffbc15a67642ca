"""The logs of one broker, in one or several data directories.

Owns, for each data directory: its lock, its clean-shutdown marker, its checkpoints (recovery points, log starts, high
watermarks, cleaner offsets), and the `Log` of each partition directory in it.  Called from the loop; `open` and `load`
before the loop runs.

    open()    lock the directories, take the markers (a crash from here on counts as unclean), read the checkpoints
    load()    open the logs that are there, several at once
    create()  find or make one partition's log
    delete()  rename the directory to `-delete` and let go of it; its files go later, elsewhere
    fail()    a directory's disk has failed: let go of everything in it, once
    close()   checkpoints, every log flushed and closed, then the marker

A directory is online, offline (`failure` says why; until the next start) or cordoned (no new partitions).  A partition
whose directory is offline stays there: it is never made anew, empty, somewhere else (D13).  The metadata says where it
belongs, also when the disk cannot be read at all.  Checkpoints are written off the loop (`background.Checkpoints`).
"""

from __future__ import annotations

import errno
import logging
import posixpath
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk, Pool, Rng
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.logs import reserve, retention
from stratalog.logs.background import Checkpoints, Schedule, Shredder
from stratalog.logs.cleaner.manager import CleanerManager
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log
from stratalog.storage.segment import Segment
from stratalog.storage.values import Deletion, LoadReport

log = logging.getLogger("stratalog.logs")

Key = tuple[str, int]
METADATA_DIRECTORY: Final = "__cluster_metadata-0"
"""The quorum's own, opened by it."""
SEGMENTS_PER_PASS: Final = 32
"""Segments of one log that a look of the retention takes out at most: each costs some renames on the loop."""
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_PROGRESS_SECONDS: Final = 5.0


class Directory:
    """One data directory."""

    __slots__ = (
        "cleaner_offsets",
        "failure",
        "futures",
        "high_watermarks",
        "id",
        "lock",
        "log_starts",
        "logs",
        "path",
        "recovery_points",
        "stale",
        "starts_on_disk",
        "unwritten",
        "was_clean",
    )

    def __init__(self, path: str, identity: Uuid) -> None:
        self.path = path
        self.id = identity
        self.lock: AbstractContextManager[None] | None = None
        self.was_clean = False
        self.failure: OSError | None = None
        """Why the directory is offline."""
        self.recovery_points: dict[Key, int] = {}
        self.log_starts: dict[Key, int] = {}
        self.high_watermarks: dict[Key, int] = {}
        self.cleaner_offsets: dict[Key, int] = {}
        self.starts_on_disk: set[Key] = set()
        """The partitions that the log-start checkpoint may name."""
        self.stale: set[Key] = set()
        """Deleted partitions that the checkpoints of recovery points and high watermarks may still name."""
        self.unwritten: set[str] = set()
        """Checkpoints whose last write failed: the next round writes them whether anything has changed or not."""
        self.logs: dict[Key, Log] = {}
        self.futures: dict[Key, Log] = {}
        """Copies that are being made here of replicas in other directories (`moves`)."""

    @property
    def replicas(self) -> int:
        return len(self.logs) + len(self.futures)

    def __repr__(self) -> str:
        return f"<Directory {self.path} {'offline' if self.failure else 'online'}, {len(self.logs)} logs>"


class Loading:
    """How far the start is.  Written by the threads that load, read by anybody."""

    __slots__ = ("_guard", "_last", "_parts", "bytes_recovered", "done", "on_progress", "segments_recovered", "total")

    def __init__(self, total: int = 0, *, seconds: float = 0.0) -> None:
        self.total = total
        self.done = 0
        self.segments_recovered = 0
        self.bytes_recovered = 0
        self.on_progress: Callable[[Loading], None] = lambda loading: None
        """Called after each recovered segment and each log, on any thread, one call at a time."""
        self._parts: dict[object, tuple[int, int]] = {}
        self._guard = threading.Lock()
        self._last = seconds

    @property
    def left(self) -> int:
        return self.total - self.done

    @property
    def share(self) -> float:
        """Logs that are loaded, those that are being recovered counted in part."""
        return self.done + sum(done / total for done, total in list(self._parts.values()) if total)

    def recovered(self, task: object, done: int, total: int, seconds: float) -> None:
        """So many of a log's bytes are checked."""
        with self._guard:
            before = self._parts.get(task, (0, 0))[0]
            self._parts[task] = (done, total)
            self.segments_recovered += 1
            self.bytes_recovered += done - before
            self._say(seconds)

    def loaded(self, task: object, seconds: float) -> None:
        with self._guard:
            self._parts.pop(task, None)
            self.done += 1
            self._say(seconds)

    def _say(self, seconds: float) -> None:
        if seconds - self._last >= _PROGRESS_SECONDS:
            self._last = seconds
            log.info(
                "%d of %d logs loaded, %.1f MB in %d segments recovered",
                self.done,
                self.total,
                self.bytes_recovered / 1e6,
                self.segments_recovered,
            )
        self.on_progress(self)


Parallel = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""`map`, or one that runs several calls at once and gives their results in order."""


class LogRegistry:
    """Every log of this broker."""

    def __init__(
        self,
        disk: Disk,
        pool: Pool,
        rng: Rng,
        directories: Sequence[str],
        *,
        config_of: Callable[[str], LogConfig],
    ) -> None:
        """`config_of(topic)` gives the configuration that a topic's logs have now.  `ValueError` for a directory that
        is named twice."""
        normal = [posixpath.normpath(path) for path in directories]
        for index, path in enumerate(normal):
            if path in normal[:index]:
                raise ValueError(f"log.dirs names {path} twice")
        self._disk = disk
        self._rng = rng
        self._config_of = config_of
        self.directories = [Directory(path, ZERO_UUID) for path in directories]
        self._home: dict[Key, Directory] = {}
        self._offline: dict[Key, Directory] = {}
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that take no new partitions; `*` for all."""
        self.loading = Loading()
        self.reports: dict[Key, LoadReport] = {}
        """What start-up found, where it found anything."""
        self.future_cap_ms = retention.NO_CAP
        self.broker_epoch = -1
        self.clean_epoch: int | None = None
        """The broker epoch of the last clean stop, None when the last stop was not clean in every directory."""
        self.checkpoints = Checkpoints(disk, pool, self._checkpoint_failed)
        self.shredder = Shredder(disk, pool, self.path_failed)
        self.cleaner: CleanerManager | None = None
        self.on_offline: Callable[[Directory, list[Key], OSError], None] = lambda directory, keys, error: None
        """A directory has failed: these partitions are offline."""
        self.on_last: Callable[[OSError], None] = lambda error: None
        """No directory is left: the process has to stop."""
        self.retired_bytes = 0
        self.retired_segments = 0
        self._future_named: dict[Key, int] = {}
        """The segment of each partition whose timestamp from the future was told of."""

    def attach(self, schedule: Schedule) -> None:
        """The loop runs: deletions wait for their time from now on."""
        self.shredder.schedule = schedule

    # --- start ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """`BlockingIOError` when another process has a directory, `OSError` when not one can be used."""
        epochs: list[int | None] = []
        for directory in self.directories:
            try:
                epochs.append(self._open_directory(directory))
            except BlockingIOError:
                raise
            except OSError as error:
                log.error("%s is offline: %s", directory.path, error)
                directory.failure = error
                if directory.lock is not None:
                    directory.lock.__exit__(None, None, None)
                    directory.lock = None
                epochs.append(None)
        if all(directory.failure is not None for directory in self.directories):
            failure = self.directories[0].failure
            assert failure is not None
            raise failure
        self.clean_epoch = epochs[0] if all(epoch is not None and epoch == epochs[0] for epoch in epochs) else None

    def _open_directory(self, directory: Directory) -> int | None:
        self._disk.mkdir(directory.path)
        directory.lock = self._disk.lock(f"{directory.path}/{layout.LOCK}")
        reserve.release(self._disk, directory.path)
        epoch = checkpoints.take_clean_shutdown(self._disk, directory.path)
        directory.was_clean = epoch is not None
        directory.recovery_points = self._offsets(directory, layout.RECOVERY_POINTS)
        directory.log_starts = self._offsets(directory, layout.LOG_STARTS)
        directory.starts_on_disk = set(directory.log_starts)
        directory.high_watermarks = self._offsets(directory, layout.HIGH_WATERMARKS)
        directory.cleaner_offsets = self._offsets(directory, layout.CLEANER_OFFSETS)
        return epoch

    def identify(self, ids: Mapping[str, Uuid]) -> None:
        """The directories' ids, known once they are formatted."""
        for directory in self.directories:
            if directory.path in ids:
                directory.id = ids[directory.path]

    @property
    def online(self) -> list[Directory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _offsets(self, directory: Directory, name: str) -> dict[Key, int]:
        """A checkpoint; a damaged one is as good as none: recovery then looks at everything."""
        try:
            found = checkpoints.read_offsets(self._disk, f"{directory.path}/{name}")
        except Malformed as error:
            log.warning("%s; going on without it", error)
            return {}
        return {(key[0], key[1]): offset for key, offset in found.items()}

    def load(
        self,
        now: Millis,
        *,
        parallel: Parallel = map,
        seconds: Callable[[], float] = lambda: 0.0,
        assigned: Callable[[Key], Uuid] = lambda key: ZERO_UUID,
        topic_of: Callable[[Key], Uuid | None] = lambda key: None,
    ) -> None:
        """Open every log that is there; remove what waited for its deletion.  `assigned(key)` is the directory that the
        metadata has for a partition, `topic_of(key)` its topic's id, for one that is found in two."""
        tasks: list[tuple[Directory, Key, bool]] = []
        for directory in self.online:
            try:
                tasks += self._found(directory)
            except OSError as error:
                self.fail(directory, error)
        # One of each directory in turn: every disk has work from the start to the end.
        order = {id(directory): 0 for directory in self.directories}
        turns = []
        for task in tasks:
            turns.append(order[id(task[0])])
            order[id(task[0])] += 1
        tasks = [task for _, task in sorted(zip(turns, tasks, strict=True), key=lambda pair: pair[0])]
        loading = Loading(total=len(tasks), seconds=seconds())
        loading.on_progress = self.loading.on_progress
        self.loading = loading
        log.info("%d logs to load in %d directories", len(tasks), len(self.online))

        def load(task: tuple[Directory, Key, bool]) -> Log | OSError | Malformed:
            directory, key, future = task
            try:
                return self._load(
                    directory,
                    key,
                    None,
                    now,
                    future=future,
                    progress=lambda done, total: loading.recovered(task, done, total, seconds()),
                )
            except (OSError, Malformed) as error:
                return error
            finally:
                loading.loaded(task, seconds())

        for task, result in zip(tasks, parallel(load, tasks), strict=True):
            self._loaded(*task, result, assigned, topic_of)
        for directory in self.online:
            for key in list(directory.futures):
                if not self._is_of_another_topic(directory, key, topic_of(key)):
                    self._promote(directory, key, assigned)
        for directory in self.online:
            self._drop_stale_offsets(directory)

    def _drop_stale_offsets(self, directory: Directory) -> None:
        """A crash may come between a deletion and the checkpoints: the next topic of that name must not take the old
        one's offsets for its own.  (Log starts are kept as they are: `create` writes them before it makes a log.)"""
        for offsets in (directory.recovery_points, directory.high_watermarks, directory.cleaner_offsets):
            stale = [key for key in offsets if key not in directory.logs and key not in self._offline]
            for key in stale:
                del offsets[key]
            if stale and offsets is directory.cleaner_offsets:  # the others are written anew in their time
                self.checkpoints.put(f"{directory.path}/{layout.CLEANER_OFFSETS}", offsets)

    def _found(self, directory: Directory) -> list[tuple[Directory, Key, bool]]:
        tasks: list[tuple[Directory, Key, bool]] = []
        for name in self._disk.listdir(directory.path):
            path = f"{directory.path}/{name}"
            if name == METADATA_DIRECTORY or not self._disk.is_dir(path):
                continue
            if name.endswith(layout.DIRECTORY_DELETE_SUFFIX) and "." in name:
                self.shredder.tree(path, 0)
                continue
            key = layout.parse_directory(name)
            if key is not None:
                tasks.append((directory, key, False))
            elif name.endswith(layout.DIRECTORY_STRAY_SUFFIX):
                log.warning("%s holds a replica that no topic has; it is kept until somebody removes it", path)
            elif name.endswith(layout.DIRECTORY_FUTURE_SUFFIX):
                key = layout.parse_directory(name.partition(".")[0])
                if key is not None:
                    tasks.append((directory, key, True))
        return tasks

    def _loaded(
        self,
        directory: Directory,
        key: Key,
        future: bool,
        result: Log | OSError | Malformed,
        assigned: Callable[[Key], Uuid],
        topic_of: Callable[[Key], Uuid | None],
    ) -> None:
        if isinstance(result, OSError):
            self.fail(directory, result)
            self._offline[key] = directory
            return
        if isinstance(result, Malformed):
            log.error("%s-%d is offline: %s", *key, result)
            self._offline[key] = directory
            return
        if directory.failure is not None:
            result.close(clean=False)
            self._offline[key] = directory
            return
        report = result.report
        if report.findings:
            self.reports[key] = report
            for finding in report.findings:
                log.warning("%s-%d: %s: %s: %s", *key, finding.kind, finding.path, finding.text)
        if future:
            directory.futures[key] = result
            return
        other = self._home.get(key)
        if other is not None:
            # A move was interrupted between the two renames of its end: both are whole, and the one that went on from
            # there is longer.  The metadata may not know of the move yet: it decides between equals only.  Or one is a
            # deleted topic's of the same name, whose directory was offline then: its length says nothing (D13).
            mine, theirs = result.log_end_offset, other.logs[key].log_end_offset
            keep_new = mine > theirs or (mine == theirs and assigned(key) == directory.id)
            ids = result.topic_id, other.logs[key].topic_id
            if None not in ids and ids[0] != ids[1] and topic_of(key) in ids:
                keep_new = ids[0] == topic_of(key)
            loser, where = (other.logs[key], other) if keep_new else (result, directory)
            log.warning(
                "%s-%d is in %s and %s; the one in %s is set aside", *key, other.path, directory.path, where.path
            )
            self._set_aside(loser, where, key)
            if not keep_new:
                return
            del other.logs[key]
        directory.logs[key] = result
        self._home[key] = directory

    def _is_of_another_topic(self, directory: Directory, key: Key, right: Uuid | None) -> bool:
        """Whether a copy belongs to a topic that was deleted and made anew while its directory was offline: it is set
        aside, and never gets the new topic's records or place (D13)."""
        future = directory.futures[key]
        home = self._home.get(key)
        if right is None and home is not None:
            right = home.logs[key].topic_id
        if right is None or future.topic_id is None or future.topic_id == right:
            return False
        del directory.futures[key]
        self._set_aside(future, directory, key)
        return True

    def _promote(self, directory: Directory, key: Key, assigned: Callable[[Key], Uuid]) -> None:
        """A copy that a crash found under its name of a copy, though it had been swapped in: it goes on from where the
        original ends, or the original's end of the swap is on the disk and its own is not."""
        future = directory.futures[key]
        home = self._home.get(key)
        if home is None:
            where = assigned(key)
            if key in self._offline or not any(one.id == where for one in self.online):
                return  # the original may come back with its directory
        elif home is directory or future.log_end_offset <= home.logs[key].log_end_offset:
            return
        log.warning("%s-%d: its move to %s was over but for a name, and is ended now", *key, directory.path)
        try:
            future.rename_directory(f"{directory.path}/{layout.directory_name(*key)}")
        except OSError as error:
            self.fail(directory, error)
            return
        del directory.futures[key]
        future.update_high_watermark(future.log_end_offset)
        start = min(directory.log_starts.get(key, 0), future.log_end_offset)
        future.maybe_increment_log_start_offset(start, "as the original")
        if home is not None:
            self.replace_home(key, directory, future)
        else:
            directory.logs[key] = future
            self._home[key] = directory

    def _load(
        self,
        directory: Directory,
        key: Key,
        topic_id: Uuid | None,
        now: Millis,
        *,
        future: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Log:
        """Open one log; any thread."""
        topic, partition = key
        name = layout.directory_name(topic, partition)
        path = f"{directory.path}/{name}"
        if future:
            for candidate in self._disk.listdir(directory.path):
                if candidate.startswith(name + ".") and candidate.endswith(layout.DIRECTORY_FUTURE_SUFFIX):
                    path = f"{directory.path}/{candidate}"
        opened = Log.open(
            self._disk,
            path,
            topic=topic,
            partition=partition,
            config=self._config_of(topic),
            now_ms=now,
            topic_id=topic_id,
            log_start_offset=0 if future else directory.log_starts.get(key, 0),
            recovery_point=0 if future else directory.recovery_points.get(key, 0),
            had_clean_shutdown=directory.was_clean,
            jitter=lambda bound: self._rng.integer(0, bound),
            progress=progress,
        )
        high_watermark = directory.high_watermarks.get(key)
        if high_watermark is not None and not future:
            opened.update_high_watermark(high_watermark)
        return opened

    # --- partitions -----------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Log | None:
        directory = self._home.get((topic, partition))
        return None if directory is None else directory.logs[topic, partition]

    def __len__(self) -> int:
        return len(self._home)

    def items(self) -> Iterable[tuple[Key, Log]]:
        for key, directory in self._home.items():
            yield key, directory.logs[key]

    def keys(self) -> list[Key]:
        return list(self._home)

    def directory_of(self, topic: str, partition: int) -> Directory | None:
        return self._home.get((topic, partition))

    def is_offline(self, key: Key) -> bool:
        """Whether the partition is known to be in a directory that failed."""
        return key in self._offline

    def create(
        self, topic: str, partition: int, topic_id: Uuid, now: Millis, *, directory_id: Uuid | None = None
    ) -> Log:
        """The partition's log, made in the asked directory or in the online one with the fewest partitions.  A
        directory that holds an older topic of this name is put aside first.  `OSError` when it belongs to a directory
        that is offline."""
        key = (topic, partition)
        found = self.get(topic, partition)
        if found is not None:
            if found.topic_id is None:
                # Its directory did not say, or a crash came before it could: the metadata does.
                found.topic_id = topic_id
                path = found.directory
                try:
                    self._at(self._home[key], lambda: checkpoints.write_topic_id(self._disk, path, topic_id))
                except OSError as error:
                    if error.errno not in FULL:
                        raise
                    log.warning("%s: no room for the topic's id, the next start writes it: %s", path, error.strerror)
            if found.topic_id == topic_id:
                return found
            log.warning("%s-%d belongs to a topic that is gone (id %s)", topic, partition, found.topic_id)
            self.delete(topic, partition)
        offline = self._offline.get(key)
        if offline is not None:
            raise OSError(errno.EIO, "the partition's data directory is offline", offline.path)
        chosen = self._place(directory_id)

        def make() -> Log:
            if key in chosen.starts_on_disk:
                # An older topic of this name left its start in the checkpoint: a crash must not find it with new data.
                self._write_starts_now(chosen)
            return self._load(chosen, key, topic_id, now)

        opened: Log = self._at(chosen, make)
        chosen.logs[key] = opened
        self._home[key] = chosen
        if key in chosen.stale:
            # Deletions wait for the next round, but a power failure before it must not find the old topic's recovery
            # point: what of the new log is not synced yet would count as synced (ST-4).
            chosen.stale.clear()
            self.checkpoints.put(f"{chosen.path}/{layout.RECOVERY_POINTS}", chosen.recovery_points)
            self.checkpoints.put(f"{chosen.path}/{layout.HIGH_WATERMARKS}", chosen.high_watermarks)
        return opened

    def _at(self, directory: Directory, work: Callable[[], Any]) -> Any:
        """Do something in a directory, which an I/O error takes offline; the error goes on to the caller."""
        try:
            return work()
        except OSError as error:
            if error.errno not in FULL:
                self.fail(directory, error)
            raise

    def _place(self, directory_id: Uuid | None) -> Directory:
        """Where a new log goes."""
        online = self.online
        if not online:
            raise OSError(errno.EIO, "every data directory is offline", self.directories[0].path)
        if directory_id is not None and not is_reserved(directory_id):
            for directory in online:
                if directory.id == directory_id:
                    return directory
            raise OSError(
                errno.EIO, f"the data directory {directory_id} that holds the partition is offline", online[0].path
            )
        free = [d for d in online if "*" not in self.cordoned and d.path not in self.cordoned]
        if not free:
            log.warning("every data directory is cordoned: a new partition goes to one all the same")
        return min(free or online, key=lambda directory: directory.replicas)

    def placeholder(self, topic: str, partition: int, topic_id: Uuid) -> Log:
        """A log without anything, for a partition whose directory is offline: somebody must be able to ask it."""
        return Log(self._disk, "", topic, partition, topic_id, self._config_of(topic), None)

    def delete(self, topic: str, partition: int) -> None:
        """Let go of a partition's log and remove its files, later and elsewhere."""
        key = (topic, partition)
        self.reports.pop(key, None)
        offline = self._offline.pop(key, None)
        if offline is not None and offline.failure is None:
            self._delete_unread(offline, key)
        for directory in self.directories:
            future = directory.futures.pop(key, None)
            if future is not None:
                self._to_delete(future, directory, key)
        home = self._home.get(key)
        if home is not None:
            self._to_delete(self._let_go(home, key), home, key)

    def _delete_unread(self, directory: Directory, key: Key) -> None:
        """A log that could not be loaded goes like any other, or the next topic of its name would find it."""
        name = layout.renamed_directory(*key, self._rng.token(16).hex(), layout.DIRECTORY_DELETE_SUFFIX)
        target = f"{directory.path}/{name}"
        try:
            source = f"{directory.path}/{layout.directory_name(*key)}"
            self._with_room(directory, lambda: self._disk.rename(source, target))
        except OSError as error:
            self.fail(directory, error)
            return
        self._forget_offsets(directory, key)
        self.shredder.tree(target, self._config_of(key[0]).file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> None:
        """A stray: no topic of the metadata has it.  It is renamed and kept; nothing is deleted on suspicion."""
        key = (topic, partition)
        home = self._home.get(key)
        if home is not None:
            self._set_aside(self._let_go(home, key), home, key)

    def _let_go(self, home: Directory, key: Key) -> Log:
        if self.cleaner is not None:
            self.cleaner.forget(key)
        del self._home[key]
        old = home.logs.pop(key)
        self._future_named.pop(key, None)
        self._forget_offsets(home, key)
        return old

    def _forget_offsets(self, home: Directory, key: Key) -> None:
        for offsets in (home.recovery_points, home.log_starts, home.high_watermarks):
            if offsets.pop(key, None) is not None:
                home.stale.add(key)
        if key in home.starts_on_disk:
            self.checkpoint_log_starts(home)
        if home.cleaner_offsets.pop(key, None) is not None:
            self.checkpoints.put(f"{home.path}/{layout.CLEANER_OFFSETS}", home.cleaner_offsets)

    def _to_delete(self, old: Log, directory: Directory, key: Key) -> None:
        path = self._rename(old, directory, key, layout.DIRECTORY_DELETE_SUFFIX)
        if path is not None:
            self.shredder.tree(path, old.config.file_delete_delay_ms)

    def _set_aside(self, old: Log, directory: Directory, key: Key) -> None:
        path = self._rename(old, directory, key, layout.DIRECTORY_STRAY_SUFFIX)
        if path is not None:
            log.warning("%s-%d is in no topic of the metadata: kept as %s", *key, path)

    def _rename(self, old: Log, directory: Directory, key: Key, suffix: str) -> str | None:
        unique = self._rng.token(16).hex()
        path = f"{directory.path}/{layout.renamed_directory(*key, unique, suffix)}"
        try:
            self._with_room(directory, lambda: old.rename_directory(path))
        except OSError as error:
            self.fail(directory, error)
            return None
        finally:
            old.close(clean=False)
        return path

    def _with_room(self, directory: Directory, rename: Callable[[], None]) -> None:
        """A longer name may need a block that a full disk does not have: the reserve has one.  Whoever deletes topics
        because the disk is full must not lose the directory by it."""
        try:
            rename()
        except OSError as error:
            if error.errno not in FULL:
                raise
            reserve.give_back(self._disk, directory.path)
            rename()

    def replace_home(self, key: Key, target: Directory, one: Log) -> None:
        """A move is over: this log, under its live name already, is the partition's; the old one goes."""
        source = self._home[key]
        old = source.logs.pop(key)
        self._forget_offsets(source, key)
        target.logs[key] = one
        self._home[key] = target
        self._to_delete(old, source, key)

    def configure(self, topic: str | None) -> None:
        """The topic's configuration has changed, or with None that of the broker: all logs look anew."""
        configs: dict[str, LogConfig] = {}
        for directory in self.directories:
            for group in (directory.logs, directory.futures):
                for (name, _), one in group.items():
                    if topic is None or name == topic:
                        if name not in configs:
                            configs[name] = self._config_of(name)
                        one.configure(configs[name])

    # --- a disk that fails ----------------------------------------------------------------------------------------

    def disk_full(self, one: Log) -> None:
        """A write to this log found no room: what the others on its disk have taken ahead and not used is room."""
        directory = self._home.get((one.topic, one.partition))
        if directory is None:
            return
        for other in directory.logs.values():
            try:
                other.active_segment.give_blocks_back()
            except OSError as error:
                log.warning("%s: blocks taken ahead could not be given back: %s", other.directory, error)

    def log_failed(self, one: Log, error: OSError) -> None:
        """An operation on this log has failed."""
        directory = self._home.get((one.topic, one.partition))
        if directory is None or directory.logs[one.topic, one.partition] is not one:
            self.path_failed(one.directory, error)
        else:
            self.fail(directory, error)

    def path_failed(self, path: str, error: OSError) -> None:
        """An operation on a path has failed."""
        for directory in self.directories:
            if path == directory.path or path.startswith(directory.path + "/"):
                self.fail(directory, error)
                return
        log.error("%s: %s", path, error)

    def _checkpoint_failed(self, path: str, error: OSError) -> None:
        for directory in self.directories:
            if posixpath.dirname(path) == directory.path:
                directory.unwritten.add(posixpath.basename(path))
        if error.errno in FULL:
            log.warning("%s could not be written, the next one may be: %s", path, error.strerror)
        else:
            self.path_failed(path, error)

    def fail(self, directory: Directory, error: OSError) -> None:
        """Take a directory offline, once: its logs are let go of, its partitions are told, the others go on."""
        if directory.failure is not None:
            return
        directory.failure = error
        keys = list(directory.logs)
        log.critical("%s is offline until the next start, with %d partitions: %s", directory.path, len(keys), error)
        for key in keys:
            del self._home[key]
            self._offline[key] = directory
            if self.cleaner is not None:
                self.cleaner.forget(key)
        end = error
        if error.errno in FULL:  # a full disk is tried again by the next append, a directory that is offline is not
            end = OSError(errno.EIO, f"its directory is offline: {error.strerror}", error.filename)
        for one in (*directory.logs.values(), *directory.futures.values()):
            one.fail(end)
            one.close(clean=False)
        directory.logs.clear()
        directory.futures.clear()
        if directory.lock is not None:
            directory.lock.__exit__(None, None, None)
            directory.lock = None
        self.on_offline(directory, keys, error)
        if not self.online:
            self.on_last(error)

    # --- retention ------------------------------------------------------------------------------------------------

    def retain(self, key: Key, now: Millis) -> int:
        """Take out the segments of one partition that it has outlived; how many.  Nothing while it is being cleaned
        (LM-3); a cleaner that was paused swaps nothing any more, so that a long move does not fill the disk."""
        directory = self._home.get(key)
        if directory is None or (self.cleaner is not None and self.cleaner.states.is_cleaned(key)):
            return 0
        one = directory.logs[key]
        count = self._retain(directory, one, now)
        for target in self.online:
            copy = target.futures.get(key)
            if copy is not None:
                self._retain_copy(target, copy, one.log_start_offset, now)
        return count

    def _retain_copy(self, target: Directory, copy: Log, start: int, now: Millis) -> None:
        """A copy on its way loses what the original has lost, or a long move would fill its target."""
        try:
            # Only what is below the original's high watermark was copied.
            copy.update_high_watermark(copy.log_end_offset)
            copy.maybe_increment_log_start_offset(min(start, copy.log_end_offset), "as the original")
            count = retention.below_start(retention_facts(copy))
            if count:
                self.finish_later(copy, copy.delete_segments(copy.segments[:count], "as the original", now))
        except OSError as error:
            if error.errno not in FULL or copy.is_over:
                self.fail(target, error)

    def _name_future(self, key: Key, one: Log, now: Millis) -> None:
        """Say once of each segment that it holds up the retention until a time that is to come (C14)."""
        oldest = one.segments[0]
        if not one.config.delete or one.config.retention_ms < 0 or not retention.is_from_the_future(oldest, now):
            return
        if self._future_named.get(key) != oldest.base_offset:
            self._future_named[key] = oldest.base_offset
            log.warning(
                "%s-%d: the segment from offset %d on has a timestamp that is %.0f s in the future; retention.ms "
                "counts from there, stratalog.retention.future.timestamp.cap.ms bounds how long",
                *key,
                oldest.base_offset,
                (oldest.max_timestamp - now) / 1000,
            )

    def _retain(self, directory: Directory, one: Log, now: Millis) -> int:
        count = 0
        try:
            while count < SEGMENTS_PER_PASS and not one.is_over:
                doomed = retention.decide(retention_facts(one), now, self.future_cap_ms)
                if doomed is None:
                    break
                segments = one.segments[: min(doomed.segments, SEGMENTS_PER_PASS)]
                self.retired_bytes += sum(segment.size for segment in segments)
                self.retired_segments += len(segments)
                log.info(
                    "%s-%d: %d segments from offset %d on are deleted: %s",
                    one.topic,
                    one.partition,
                    len(segments),
                    segments[0].base_offset,
                    doomed.reason,
                )
                deletion = self._delete_segments(directory, one, segments, doomed.reason, now)
                count += len(segments)
                self.finish_later(one, deletion)
            if not one.is_over:
                self._name_future((one.topic, one.partition), one, now)
        except OSError as error:
            if error.errno not in FULL or one.is_over:
                self.fail(directory, error)
        return count

    def _delete_segments(
        self, directory: Directory, one: Log, segments: Sequence[Segment], reason: str, now: Millis
    ) -> Deletion:
        """When all segments go, a new one comes first, and a full disk may have no room for it: the reserve has some,
        or nothing would ever make any."""
        try:
            return one.delete_segments(segments, reason, now)
        except OSError as error:
            if error.errno not in FULL or one.is_over:
                raise
            reserve.give_back(self._disk, directory.path)
            return one.delete_segments(segments, reason, now)

    def finish_later(self, one: Log, deletion: Any) -> None:
        """Unlink what was renamed to `.deleted`, after its delay, off the loop."""
        assert isinstance(deletion, Deletion)
        if deletion.paths:
            self.shredder.files(one, deletion)

    # --- the cleaner's part ---------------------------------------------------------------------------------------

    def compacted(self) -> list[tuple[Key, Log]]:
        return [(key, one) for key, one in self.items() if one.config.compact]

    def cleaner_checkpoint(self, key: Key) -> int | None:
        directory = self._home.get(key)
        return None if directory is None else directory.cleaner_offsets.get(key)

    def set_cleaner_checkpoint(self, key: Key, offset: int) -> None:
        directory = self._home.get(key)
        if directory is not None:
            directory.cleaner_offsets[key] = offset
            self.checkpoints.put(f"{directory.path}/{layout.CLEANER_OFFSETS}", directory.cleaner_offsets)

    def pause_cleaning(self, key: Key) -> None:
        """Before a truncation, a move or anything else that takes segments away: no swap from here on."""
        if self.cleaner is not None:
            self.cleaner.pause(key)

    def resume_cleaning(self, key: Key) -> None:
        if self.cleaner is not None:
            self.cleaner.resume(key)

    def truncate_to(self, topic: str, partition: int, offset: int, now: Millis) -> bool:
        """`Log.truncate_to`, with the cleaner out of the way and its checkpoint not past what is left."""
        return self._truncate((topic, partition), offset, lambda one: one.truncate_to(offset, now))

    def truncate_fully_and_start_at(self, topic: str, partition: int, offset: int, now: Millis) -> None:
        def work(one: Log) -> bool:
            one.truncate_fully_and_start_at(offset, now)
            return True

        self._truncate((topic, partition), 0, work)

    def _truncate(self, key: Key, offset: int, work: Callable[[Log], bool]) -> bool:
        one = self.get(*key)
        assert one is not None
        reaches = offset < one.active_segment.base_offset
        if reaches:
            self.pause_cleaning(key)
        try:
            changed = work(one)
            if reaches:
                checkpoint = self.cleaner_checkpoint(key)
                if checkpoint is not None and checkpoint > one.active_segment.base_offset:
                    self.set_cleaner_checkpoint(key, one.active_segment.base_offset)
        finally:
            if reaches:
                self.resume_cleaning(key)
        return changed

    # --- checkpoints and the end ----------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self) -> None:
        for directory in self.online:
            offsets = self._high_watermarks(directory)
            if offsets != directory.high_watermarks or layout.HIGH_WATERMARKS in directory.unwritten:
                directory.unwritten.discard(layout.HIGH_WATERMARKS)
                directory.high_watermarks = offsets
                self.checkpoints.put(f"{directory.path}/{layout.HIGH_WATERMARKS}", offsets)

    def checkpoint(self) -> None:
        """Recovery points and log starts."""
        for directory in self.online:
            self.checkpoint_recovery_points(directory)
            self.checkpoint_log_starts(directory)

    def checkpoint_recovery_points(self, directory: Directory) -> None:
        """The recovery point never passes what was flushed."""
        offsets = self._recovery_points(directory)
        if offsets != directory.recovery_points or layout.RECOVERY_POINTS in directory.unwritten:
            directory.unwritten.discard(layout.RECOVERY_POINTS)
            directory.recovery_points = offsets
            self.checkpoints.put(f"{directory.path}/{layout.RECOVERY_POINTS}", offsets)

    def checkpoint_log_starts(self, directory: Directory, then: Callable[[OSError | None], None] | None = None) -> None:
        """Only starts that the first segment's name does not say.  `then` gets None when they are on the disk, else
        why they are not."""
        if layout.CLEANER_OFFSETS in directory.unwritten:
            directory.unwritten.discard(layout.CLEANER_OFFSETS)
            self.checkpoints.put(f"{directory.path}/{layout.CLEANER_OFFSETS}", directory.cleaner_offsets)
        starts = self._starts(directory)
        same = starts == directory.log_starts and directory.starts_on_disk == set(starts)
        if same and then is None and layout.LOG_STARTS not in directory.unwritten:
            return
        directory.unwritten.discard(layout.LOG_STARTS)
        directory.log_starts = starts
        directory.starts_on_disk |= set(starts)

        def written(error: OSError | None) -> None:
            if error is None and directory.log_starts is starts:
                directory.starts_on_disk = set(starts)
            if then is not None:
                then(error)

        self.checkpoints.put(f"{directory.path}/{layout.LOG_STARTS}", starts, written)

    def _unread(self, directory: Directory, offsets: Mapping[Key, int]) -> dict[Key, int]:
        """The entries of logs that are there and could not be loaded: the next start needs them as they are (LM-2)."""
        if directory.failure is not None or not self._offline:
            return {}
        return {key: offset for key, offset in offsets.items() if self._offline.get(key) is directory}

    def _starts(self, directory: Directory) -> dict[Key, int]:
        starts = self._unread(directory, directory.log_starts)
        for key, one in (*directory.futures.items(), *directory.logs.items()):
            if not one.is_start_in_a_name:
                starts[key] = one.log_start_offset
        return starts

    def _recovery_points(self, directory: Directory) -> dict[Key, int]:
        points = self._unread(directory, directory.recovery_points)
        points.update((key, one.recovery_point) for key, one in directory.logs.items())
        return points

    def _high_watermarks(self, directory: Directory) -> dict[Key, int]:
        offsets = self._unread(directory, directory.high_watermarks)
        offsets.update((key, one.high_watermark) for key, one in directory.logs.items())
        return offsets

    def _write_starts_now(self, directory: Directory) -> None:
        directory.log_starts = self._starts(directory)
        self.checkpoints.write_now(f"{directory.path}/{layout.LOG_STARTS}", directory.log_starts)
        directory.starts_on_disk = set(directory.log_starts)

    def persist_log_starts(self, keys: Iterable[Key], then: Callable[[OSError | None], None]) -> None:
        """DeleteRecords: `then` gets None when the new starts of these partitions cannot be lost any more (LM-2), else
        why they may be."""
        homes = list({id(d): d for key in keys if (d := self._home.get(key)) is not None}.values())
        left = len(homes)
        failure: OSError | None = None
        if not left:
            then(None)
            return

        def one_done(error: OSError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if not left:
                then(failure)

        for directory in homes:
            self.checkpoint_log_starts(directory, one_done)

    def close(self, *, clean: bool = True) -> None:
        """Flush and close every log, then checkpoints, then the marker.  `clean=False` lets go of the files only, as
        a crash would."""
        self.checkpoints.close()
        for directory in self.directories:
            healthy = directory.failure is None
            for key, one in sorted((*directory.logs.items(), *directory.futures.items()), key=lambda item: item[0]):
                try:
                    one.close(clean=clean and one.fenced is None)
                except OSError as error:
                    log.error("%s-%d could not be closed: %s", *key, error)
                    healthy = False
                healthy = healthy and one.fenced is None
            if clean and healthy:
                try:
                    self._finish(directory)
                except OSError as error:
                    log.error("%s: the stop cannot be marked as clean: %s", directory.path, error)
            if directory.lock is not None:
                directory.lock.__exit__(None, None, None)
                directory.lock = None
        self._home.clear()

    def _finish(self, directory: Directory) -> None:
        path = directory.path
        checkpoints.write_offsets(self._disk, f"{path}/{layout.RECOVERY_POINTS}", self._recovery_points(directory))
        checkpoints.write_offsets(self._disk, f"{path}/{layout.HIGH_WATERMARKS}", self._high_watermarks(directory))
        checkpoints.write_offsets(self._disk, f"{path}/{layout.LOG_STARTS}", self._starts(directory))
        if directory.cleaner_offsets or self._disk.exists(f"{path}/{layout.CLEANER_OFFSETS}"):
            checkpoints.write_offsets(self._disk, f"{path}/{layout.CLEANER_OFFSETS}", directory.cleaner_offsets)
        unread = [f"{key[0]}-{key[1]}" for key, home in self._offline.items() if home is directory]
        if unread and not directory.was_clean:
            # The next start would take for sound what was never recovered.
            log.warning("%s: no mark of a clean stop, %s could not be loaded", path, ", ".join(unread[:10]))
            return
        checkpoints.write_clean_shutdown(self._disk, path, self.broker_epoch)

    # --- metrics --------------------------------------------------------------------------------------------------

    def gauges(self, now: Millis) -> list[tuple[str, str, float]]:
        rows: list[tuple[str, str, float]] = [
            ("stratalog_log_directories_online", "", len(self.online)),
            ("stratalog_log_directories_offline", "", len(self.directories) - len(self.online)),
            ("stratalog_logs_to_load", "", self.loading.left),
            ("stratalog_recovered_segments_total", "", self.loading.segments_recovered),
            ("stratalog_recovered_bytes_total", "", self.loading.bytes_recovered),
            ("stratalog_retired_segments_total", "", self.retired_segments),
            ("stratalog_retired_bytes_total", "", self.retired_bytes),
            ("stratalog_future_timestamp_segments", "", self.future_segments(now)),
            ("stratalog_deletions_waiting", "", self.shredder.waiting),
        ]
        if self.cleaner is not None:
            rows += self.cleaner.gauges()
        return rows

    def future_segments(self, now: Millis) -> int:
        """Segments whose newest timestamp lies in the future: retention by time waits for them (C14)."""
        count = 0
        for key, home in list(self._home.items()):  # any thread
            one = home.logs.get(key)
            if one is not None and one.config.delete and one.config.retention_ms >= 0:
                count += sum(
                    segment._max_timestamp is not None and segment._max_timestamp > now for segment in one.segments
                )
        return count


def retention_facts(one: Log) -> retention.LogFacts:
    """A log as retention sees it."""
    return retention.LogFacts(one.segments, one.log_start_offset, one.high_watermark, one.log_end_offset, one.config)


def is_reserved(directory_id: Uuid) -> bool:
    """Ids that name no directory: unassigned, lost, on the way, and what Kafka keeps beside them."""
    return not any(directory_id[:8]) and int.from_bytes(directory_id[8:], "big") < 100
