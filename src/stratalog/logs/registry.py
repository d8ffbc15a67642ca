"""The logs of one broker, in one or several data directories.

Owns, for each data directory: its lock, its clean-shutdown marker, its three checkpoints (recovery points, log starts,
high watermarks), and the `Log` of each partition directory in it.  Called from the loop; `load` before the loop runs.

    open()    lock the directories, take the markers (a crash from here on counts as unclean), read the checkpoints
    load()    open the logs that are there
    create()  find or make one partition's log
    delete()  rename the directory to `-delete` and let go of it; the files go on the pool
    close()   checkpoints, every log flushed and closed, then the marker
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk, Pool, Rng
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log

log = logging.getLogger("stratalog.logs")

Key = tuple[str, int]
METADATA_DIRECTORY: Final = "__cluster_metadata-0"
"""The quorum's own, opened by it."""


class Directory:
    """One data directory."""

    __slots__ = (
        "failure",
        "high_watermarks",
        "id",
        "lock",
        "log_starts",
        "logs",
        "path",
        "recovery_points",
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
        self.logs: dict[Key, Log] = {}


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
        """`config_of(topic)` gives the configuration that a topic's logs have now."""
        self._disk = disk
        self._pool = pool
        self._rng = rng
        self._config_of = config_of
        self.directories = [Directory(path, ZERO_UUID) for path in directories]
        self._home: dict[Key, Directory] = {}
        self.broker_epoch = -1
        self.clean_epoch: int | None = None
        """The broker epoch of the last clean stop, None when the last stop was not clean in every directory."""

    # --- start ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """`BlockingIOError` when another process has a directory."""
        epochs: list[int | None] = []
        for directory in self.directories:
            self._disk.mkdir(directory.path)
            directory.lock = self._disk.lock(f"{directory.path}/{layout.LOCK}")
            epoch = checkpoints.take_clean_shutdown(self._disk, directory.path)
            directory.was_clean = epoch is not None
            epochs.append(epoch)
            directory.recovery_points = self._offsets(directory, layout.RECOVERY_POINTS)
            directory.log_starts = self._offsets(directory, layout.LOG_STARTS)
            directory.high_watermarks = self._offsets(directory, layout.HIGH_WATERMARKS)
        self.clean_epoch = epochs[0] if all(epoch is not None and epoch == epochs[0] for epoch in epochs) else None

    def identify(self, ids: Mapping[str, Uuid]) -> None:
        """The directories' ids, known once they are formatted."""
        for directory in self.directories:
            directory.id = ids[directory.path]

    def _offsets(self, directory: Directory, name: str) -> dict[Key, int]:
        """A checkpoint; a damaged one is as good as none: recovery then looks at everything."""
        try:
            found = checkpoints.read_offsets(self._disk, f"{directory.path}/{name}")
        except Malformed as error:
            log.warning("%s; going on without it", error)
            return {}
        return {(key[0], key[1]): offset for key, offset in found.items()}

    def load(self, now: Millis) -> None:
        """Open every log that is there; remove what waited for its deletion."""
        for directory in self.directories:
            for name in self._disk.listdir(directory.path):
                path = f"{directory.path}/{name}"
                if name == METADATA_DIRECTORY or not self._disk.is_dir(path):
                    continue
                if name.endswith(layout.DIRECTORY_DELETE_SUFFIX):
                    self._disk.rmtree(path)
                    continue
                key = layout.parse_directory(name)
                if key is not None:
                    self._open(directory, key, None, now)

    def _open(self, directory: Directory, key: Key, topic_id: Uuid | None, now: Millis) -> Log:
        topic, partition = key
        opened = Log.open(
            self._disk,
            f"{directory.path}/{layout.directory_name(topic, partition)}",
            topic=topic,
            partition=partition,
            config=self._config_of(topic),
            now_ms=now,
            topic_id=topic_id,
            log_start_offset=directory.log_starts.get(key, 0),
            recovery_point=directory.recovery_points.get(key, 0),
            had_clean_shutdown=directory.was_clean,
            jitter=lambda bound: self._rng.integer(0, bound),
        )
        high_watermark = directory.high_watermarks.get(key)
        if high_watermark is not None:
            opened.update_high_watermark(high_watermark)
        directory.logs[key] = opened
        self._home[key] = directory
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

    def directory_of(self, topic: str, partition: int) -> Directory | None:
        return self._home.get((topic, partition))

    def create(
        self, topic: str, partition: int, topic_id: Uuid, now: Millis, *, directory_id: Uuid | None = None
    ) -> Log:
        """The partition's log, made in the asked directory or in the online one with the fewest partitions.  A
        directory that holds an older topic of this name is put aside first."""
        key = (topic, partition)
        found = self.get(topic, partition)
        if found is not None:
            if found.topic_id is None:
                # Its directory did not say, or a crash came before it could: the metadata does.
                found.topic_id = topic_id
                checkpoints.write_topic_id(self._disk, found.directory, topic_id)
            if found.topic_id == topic_id:
                return found
            log.warning("%s-%d belongs to a topic that is gone (id %s)", topic, partition, found.topic_id)
            self.delete(topic, partition)
        online = [directory for directory in self.directories if directory.failure is None]
        if not online:
            raise OSError(5, "every data directory is offline", self.directories[0].path)
        chosen = min(online, key=lambda directory: len(directory.logs))
        for directory in online:
            if directory.id == directory_id:
                chosen = directory
        return self._open(chosen, key, topic_id, now)

    def delete(self, topic: str, partition: int) -> None:
        """Let go of a partition's log and remove its files, later and elsewhere."""
        key = (topic, partition)
        directory = self._home.pop(key, None)
        if directory is None:
            return
        old = directory.logs.pop(key)
        for offsets in (directory.recovery_points, directory.log_starts, directory.high_watermarks):
            offsets.pop(key, None)
        unique = self._rng.token(16).hex()
        name = layout.renamed_directory(topic, partition, unique, layout.DIRECTORY_DELETE_SUFFIX)
        old.rename_directory(f"{directory.path}/{name}")
        old.close(clean=False)
        self._pool.submit("delete-log", old.delete, _deleted)

    def configure(self, topic: str | None) -> None:
        """The topic's configuration has changed, or with None that of the broker: all logs look anew."""
        configs: dict[str, LogConfig] = {}
        for directory in self.directories:
            for (name, _), one in directory.logs.items():
                if topic is None or name == topic:
                    if name not in configs:
                        configs[name] = self._config_of(name)
                    one.configure(configs[name])

    # --- checkpoints and the end ----------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self) -> None:
        for directory in self.directories:
            if directory.failure is None:
                directory.high_watermarks = {key: one.high_watermark for key, one in directory.logs.items()}
                checkpoints.write_offsets(
                    self._disk, f"{directory.path}/{layout.HIGH_WATERMARKS}", directory.high_watermarks
                )

    def checkpoint(self) -> None:
        """Recovery points and log starts.  The recovery point never passes what was flushed."""
        for directory in self.directories:
            if directory.failure is not None:
                continue
            directory.recovery_points = {key: one.recovery_point for key, one in directory.logs.items()}
            checkpoints.write_offsets(
                self._disk, f"{directory.path}/{layout.RECOVERY_POINTS}", directory.recovery_points
            )
            directory.log_starts = {
                key: one.log_start_offset
                for key, one in directory.logs.items()
                if one.log_start_offset > (one.segments[0].base_offset if one.segments else 0)
            }
            checkpoints.write_offsets(self._disk, f"{directory.path}/{layout.LOG_STARTS}", directory.log_starts)

    def close(self, *, clean: bool = True) -> None:
        """Flush and close every log, then checkpoints, then the marker.  `clean=False` lets go of the files only, as
        a crash would."""
        for directory in self.directories:
            healthy = directory.failure is None
            for key, one in sorted(directory.logs.items()):
                try:
                    one.close(clean=clean and one.fenced is None)
                except OSError as error:
                    log.error("%s-%d could not be closed: %s", *key, error)
                    healthy = False
                healthy = healthy and one.fenced is None
            if clean and healthy:
                self._finish(directory)
            if directory.lock is not None:
                directory.lock.__exit__(None, None, None)
                directory.lock = None
        self._home.clear()

    def _finish(self, directory: Directory) -> None:
        path = directory.path
        offsets = {key: one.recovery_point for key, one in directory.logs.items()}
        checkpoints.write_offsets(self._disk, f"{path}/{layout.RECOVERY_POINTS}", offsets)
        offsets = {key: one.high_watermark for key, one in directory.logs.items()}
        checkpoints.write_offsets(self._disk, f"{path}/{layout.HIGH_WATERMARKS}", offsets)
        offsets = {key: one.log_start_offset for key, one in directory.logs.items() if one.log_start_offset > 0}
        checkpoints.write_offsets(self._disk, f"{path}/{layout.LOG_STARTS}", offsets)
        checkpoints.write_clean_shutdown(self._disk, path, self.broker_epoch)


def _deleted(_: object, error: BaseException | None) -> None:
    if error is not None:
        log.warning("a deleted log's files could not all be removed: %s", error)
