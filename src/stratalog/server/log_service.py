"""The threads around the logs: the background pool, the cleaners, parallel loading.  One for each `process.Broker`.

    LogService(...)     makes the registry, before the metadata is open
    .load(...)          all logs: `num.recovery.threads.per.data.dir` threads for each directory, one a core at least
    .start(node)        the tasks begin
    .stop()             cleaners and tasks end; then the registry may be closed

Decisions are in `stratalog.logs`; here is only what runs where.  Loop only, but for the work on the pools.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from stratalog.base.failures import ApiError
from stratalog.base.ports import Clock, Disk, Rng
from stratalog.base.types import MAX_INT64, ZERO_UUID, Millis, Uuid
from stratalog.controller.controller import Result
from stratalog.logs import reserve
from stratalog.logs.background import Background, Intervals
from stratalog.logs.cleaner.manager import CleanerManager, Settings
from stratalog.logs.moves import Moves
from stratalog.logs.registry import Key, LogRegistry
from stratalog.logs.status import STATUS_FILE, status_of
from stratalog.metadata.effective import CLEANER_MAP_BYTES_MIN
from stratalog.metadata.topic_config import TOPIC_KEYS
from stratalog.node.config import BrokerConfig
from stratalog.node.node import Node
from stratalog.protocol.disk.metadata import BrokerRegistrationChangeRecord
from stratalog.records.kernels import kernels_ready, kernels_wanted, load_kernels
from stratalog.server.pool import ThreadPool
from stratalog.storage.config import LogConfig

log = logging.getLogger("stratalog.server")

BACKGROUND_THREADS: Final = 5
"""For each directory, one for each kind of slow work: flush, checkpoints, deletion, copies, status.  They wait for
disks, not for processors, and start when they are wanted."""
CLEANERS_MAX: Final = 64
"""Beyond this, cleaners wait for each other."""
STATUS_DELAY_MS: Final = 1_000
RESERVE_LOOK_MS: Final = 60_000
TELL_AGAIN_MS: Final = 5_000
"""When the metadata log took no record: a full disk may have room again."""
KERNELS_LOOK_MS: Final = 1_000
"""How long compressed batches are walked by the plain twin at most, once there are many of them."""
_LOG_KEYS: Final = {"node.id", "log.dirs", "metadata.log.dir", "stratalog.retention.future.timestamp.cap.ms"} | {
    name for key in TOPIC_KEYS.values() for name, _ in key.synonyms
}
"""The broker's settings that decide about logs, for `stratalog why` and whoever cleans a directory offline."""


class LogService:
    """See the module."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        disk: Disk,
        rng: Rng,
        name: str,
        wake: Callable[[], None],
        config_of: Callable[[str], LogConfig],
    ) -> None:
        self._config = config
        self._clock = clock
        self._disk = disk
        self._rng = rng
        threads = BACKGROUND_THREADS * len(config.log_dirs)
        self.background_pool = ThreadPool(threads=threads, name=f"{name}-background", wake=wake)
        self.cleaner_pool = ThreadPool(threads=CLEANERS_MAX, name=f"{name}-cleaner", wake=wake)
        self.logs = LogRegistry(disk, self.background_pool, rng, config.log_dirs, config_of=config_of)
        self.background: Background | None = None
        self.cleaner: CleanerManager | None = None
        self.moves: Moves | None = None
        self._node: Node | None = None
        self._assigned: Callable[[Key], Uuid] = lambda key: ZERO_UUID
        self._status_due = False

    def run_done(self) -> None:
        """What the pools have finished, on the loop."""
        self.background_pool.run_done()
        self.cleaner_pool.run_done()

    @property
    def online_paths(self) -> list[str]:
        return [directory.path for directory in self.logs.online]

    def require_metadata_directory(self) -> None:
        """The metadata has one home; without it this is no broker of its cluster, whatever else is there."""
        home = self._config["metadata.log.dir"] or self._config.log_dirs[0]
        for directory in self.logs.directories:
            if directory.path == home and directory.failure is not None:
                raise directory.failure

    # --- start -----------------------------------------------------------------------------------------------------
    def load(self, now: Millis, assigned: Callable[[Key], Uuid], topic_of: Callable[[Key], Uuid | None]) -> None:
        # Nobody is served yet: no core is left idle, whatever the key's small default says.
        threads = max(
            int(self._config["num.recovery.threads.per.data.dir"]) * len(self.logs.online), os.cpu_count() or 1
        )
        started = time.monotonic()
        self._assigned = assigned

        def parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
            tasks = list(items)
            if len(tasks) < 2 or threads < 2:
                return map(work, tasks)
            with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="log-recovery") as executor:
                return list(executor.map(work, tasks))

        self.logs.load(now, parallel=parallel, seconds=time.monotonic, assigned=assigned, topic_of=topic_of)
        loading = self.logs.loading
        log.info(
            "%d logs loaded in %.2f s, %d segments with %.1f MB were recovered",
            loading.done,
            time.monotonic() - started,
            loading.segments_recovered,
            loading.bytes_recovered / 1e6,
        )

    def start(self, node: Node) -> None:
        self._node = node
        config = self._config
        self.logs.attach(node)
        self.background = Background(self.logs, self.background_pool, node, _intervals(config))
        self.cleaner = CleanerManager(
            self.logs,
            self.cleaner_pool,
            self._rng,
            node,
            _settings(config),
            now_ms=self._clock.now_ms,
            monotonic_ms=self._clock.monotonic_ms,
        )
        self.cleaner.on_failure = self._status_soon
        self.logs.cleaner = self.cleaner
        self.moves = Moves(self.logs, self.background_pool, node)
        self.moves.assigned = self._assigned
        self._take_config()
        for directory in self.logs.online:
            reserve.hold(self._disk, directory.path)
        node.after(RESERVE_LOOK_MS, self._hold_reserve)
        node.after(KERNELS_LOOK_MS, self._look_for_kernels)
        self.background.start()
        self.cleaner.start(config["log.initial.task.delay.ms"])
        self.moves.start()
        self._status_soon()

    def reconfigured(self) -> None:
        """Dynamic values have changed."""
        self._take_config()
        if self.background is not None:
            self.background.intervals = _intervals(self._config)
        if self.cleaner is not None:
            settings = _settings(self._config)
            if settings != self.cleaner.settings:
                self.cleaner.reconfigure(settings)

    def _take_config(self) -> None:
        self.logs.cordoned = frozenset(self._config.get("cordoned.log.dirs") or ())
        if self._node is not None:
            self._node.after(0, self._tell_cordoned)
        cap = self._config.get("stratalog.retention.future.timestamp.cap.ms")
        self.logs.future_cap_ms = -1 if cap is None else int(cap)

    def _tell_cordoned(self, now: Millis) -> None:
        """The controller places new partitions: it has to know which directories take none."""
        node = self._node
        assert node is not None
        broker = node.image.brokers.get(node.node_id)
        if broker is None:
            return
        cordoned = self.logs.cordoned
        ids = [d.id for d in self.logs.directories if "*" in cordoned or d.path in cordoned]
        if ids == list(broker.cordoned_directories or ()):
            return
        record = BrokerRegistrationChangeRecord(
            broker_id=node.node_id, broker_epoch=broker.epoch, cordoned_log_dirs=ids
        )
        try:
            node.controller.submit(lambda _: Result([record], None), None, now)
        except ApiError:  # the metadata's own directory is full
            node.after(TELL_AGAIN_MS, self._tell_cordoned)

    def _hold_reserve(self, _: Millis) -> None:
        """What the next start on a full disk needs, off the loop."""
        node = self._node
        assert node is not None

        def done(_: Any, error: BaseException | None) -> None:
            if error is not None:
                raise error
            node.after(RESERVE_LOOK_MS, self._hold_reserve)

        paths = self.online_paths

        def work() -> None:
            for path in paths:
                reserve.hold(self._disk, path)

        self.background_pool.submit("reserve", work, done)

    def _look_for_kernels(self, _: Millis) -> None:
        """A broker that gets compressed batches wants the kernels; one that gets none does not pay for them."""
        node = self._node
        assert node is not None
        if not kernels_wanted():
            if not kernels_ready():
                node.after(KERNELS_LOOK_MS, self._look_for_kernels)
            return

        def done(_: Any, error: BaseException | None) -> None:
            if error is not None:
                log.warning("the kernels could not be loaded, compressed batches take longer: %s", error)

        self.background_pool.submit("kernels", load_kernels, done)

    # --- what `stratalog why` reads ----------------------------------------------------------------------------------
    def _status_soon(self) -> None:
        if not self._status_due and self._node is not None:
            self._status_due = True
            self._node.after(STATUS_DELAY_MS, self._write_status)

    def _write_status(self, now: Millis) -> None:
        self._status_due = False
        settings = {name: value for name, value in self._config.static.items() if name in _LOG_KEYS}
        for directory in self.logs.online:
            content = json.dumps(status_of(self.logs, directory, now, settings), indent=1).encode()
            path = f"{directory.path}/{STATUS_FILE}"

            def done(_: Any, error: BaseException | None, path: str = path) -> None:
                if isinstance(error, OSError):
                    log.warning("%s could not be written: %s", path, error)  # only `why` reads it
                elif error is not None:
                    raise error

            def work(path: str = path, content: bytes = content) -> None:
                self._disk.write_atomically(path, content)

            self.background_pool.submit("status", work, done)

    # --- the end ---------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """End everything that works on logs; returns when no thread does any more."""
        if self.background is not None:
            self.background.close()
        if self.moves is not None:
            self.moves.close()
        if self.cleaner is not None:
            self.cleaner.close()
        self.cleaner_pool.close()
        self.background_pool.close()
        if self.cleaner is not None:
            self.cleaner.closed()

    def gauges(self) -> list[tuple[str, str, float]]:
        return self.logs.gauges(self._clock.now_ms())


def _settings(config: BrokerConfig) -> Settings:
    threads = config["log.cleaner.threads"]
    return Settings(
        threads=threads,
        # Values that were changed at run time and a file that was changed later need not go together.
        map_bytes=max(config["log.cleaner.dedupe.buffer.size"], threads * CLEANER_MAP_BYTES_MIN),
        load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_buffer_bytes=config["log.cleaner.io.buffer.size"],
        bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
        backoff_ms=config["log.cleaner.backoff.ms"],
        enable=config["log.cleaner.enable"],
    )


def _intervals(config: BrokerConfig) -> Intervals:
    flush = config["log.flush.scheduler.interval.ms"]
    return Intervals(
        initial_ms=config["log.initial.task.delay.ms"],
        retention_ms=config["log.retention.check.interval.ms"],
        recovery_points_ms=config["log.flush.offset.checkpoint.interval.ms"],
        log_starts_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
        high_watermarks_ms=config["replica.high.watermark.checkpoint.interval.ms"],
        flush_look_ms=Intervals().flush_look_ms if flush is None or flush >= MAX_INT64 else flush,
    )
