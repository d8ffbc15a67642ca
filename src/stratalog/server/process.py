"""The process: the real ports under a node.  `Broker(config).start()`, `.stop()`.

A broker has one thread, the loop's, and a small pool.  Several brokers live in one process without knowing of each
other.  Start: lock the directories, format what is new, replay the metadata log, load the logs, register, listen.
Stop: take no more connections, answer what is in flight, flush and close the logs, write the clean-shutdown markers.
`kill()` is the other way to end: nothing is flushed, nothing is marked, as after kill -9.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from stratalog.base.config import ConfigError
from stratalog.base.limits import CONNECTIONS_OF_FILES
from stratalog.base.ports import Clock, Disk, Rng
from stratalog.coordinator.group.config import GroupConfig
from stratalog.coordinator.group.coordinator import GroupCoordinator
from stratalog.logs.registry import Loading, LogRegistry
from stratalog.metadata.image import Endpoint
from stratalog.node import groups
from stratalog.node.config import BrokerConfig, ListenerConfig
from stratalog.node.metadata import Metadata
from stratalog.node.node import Node
from stratalog.node.topics import Topics
from stratalog.server.clock import RealClock, RealRng
from stratalog.server.disk import RealDisk
from stratalog.server.log_service import LogService
from stratalog.server.loop import Limits, Listener, Loop
from stratalog.server.metrics_http import MetricsServer
from stratalog.server.pool import ThreadPool
from stratalog.storage.config import LogConfig

log = logging.getLogger("stratalog.server")

T = TypeVar("T")
_DRAIN_SECONDS: Final = 2.0
"""How long a stop waits for answers that are on their way; a parked fetch is answered at once."""
_ENDED_LOOK_SECONDS: Final = 0.1
"""How soon who waits for the loop sees that it has ended."""
_POOL_THREADS: Final = 2
_START_SECONDS_MAX: Final = 600.0
"""Recovery of a large directory takes minutes; a start that hangs must still end in an error."""


_SWITCH_SECONDS: Final = 0.0002
"""How long the loop waits for the interpreter when another thread runs Python; its default of 5 ms is what a request
would wait while the cleaner plans."""


def settle() -> None:
    """For a process that is one broker and nothing else, after its start: what is there stays, and new garbage is
    young, for a full collection stops the loop for milliseconds; and the loop gets the interpreter soon."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(_SWITCH_SECONDS)


class Ended(RuntimeError):
    """The broker's loop has ended, and with it whatever was to be done there."""


class Broker:
    """One broker of this process."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        rng: Rng | None = None,
        fsync_metadata: bool = True,
        name: str = "stratalog",
    ) -> None:
        """`fsync_metadata=False` is for tests: a topic is made without waiting for the disk."""
        self.config = config
        self.clock: Clock = clock or RealClock()
        self.disk: Disk = disk or RealDisk()
        self.rng: Rng = rng or RealRng()
        self.name = name
        self.node: Node
        self.metadata: Metadata
        self.logs: LogRegistry
        self.log_service: LogService
        self.loop: Loop
        self._fsync_metadata = fsync_metadata
        self._pool: ThreadPool
        self._listeners: list[Listener] = []
        self._metrics: MetricsServer | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._clean = True
        self._began = time.monotonic()
        self._halted = threading.Event()
        self.on_loading: Callable[[Loading], None] = lambda loading: None
        """How far the start is, told now and then, on any thread: for a bar."""

    # --- what a user does ------------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Serve; returns when clients are accepted.  Whatever stops the start is raised here."""
        assert self._thread is None, "a broker starts once"
        self._thread = threading.Thread(target=self._run, name=f"{self.name}-loop", daemon=True)
        self._thread.start()
        seen = -1.0
        while not self._ready.wait(_START_SECONDS_MAX):
            now = self.logs.loading.share if hasattr(self, "logs") else -1.0
            if now == seen:  # a large recovery may take its time, as long as it goes on
                raise TimeoutError(f"the broker is not ready after {_START_SECONDS_MAX:.0f} s")
            seen = now
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop cleanly; returns when everything is flushed and closed."""
        self._end(clean=True)

    def kill(self) -> None:
        """Stop as kill -9 does: what is not in the files by now is lost."""
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        thread = self._thread
        if thread is None:
            return
        self._clean = clean
        if thread.is_alive():
            self.loop.stop()
        thread.join()
        self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the broker has ended by itself or was stopped from another thread."""
        return self._halted.wait(timeout)

    def __enter__(self) -> Broker:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def was_clean(self) -> bool:
        """After the end: whether the next start finds everything flushed and marked."""
        return self._clean

    @property
    def port(self) -> int:
        return self._port

    @property
    def bootstrap(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def metrics_port(self) -> int | None:
        return None if self._metrics is None else self._metrics.port

    def run_on_loop(self, function: Callable[[], T], timeout: float = 30.0) -> T:
        """Run a function on the loop's thread and give back what it returns; `Ended` when there is no loop any more."""
        done = threading.Event()
        result: list[Any] = []

        def work() -> None:
            try:
                result.extend((function(), None))
            except Exception as error:  # noqa: BLE001 - carried to the caller's thread
                result.extend((None, error))
            done.set()

        self.loop.call(work)
        deadline = time.monotonic() + timeout
        while not done.wait(_ENDED_LOOK_SECONDS):
            if self._halted.is_set():
                raise Ended("the broker has stopped by itself" if self._failure else "the broker is stopped")
            if time.monotonic() > deadline:
                raise TimeoutError("the loop does not turn")
        value, error = result
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    # --- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            try:
                self._open(stack)
                self._ready.set()
                self.loop.run()
            except BaseException as error:  # carried to whoever started the broker
                self._failure = error
                self._clean = False
                if self._ready.is_set():
                    log.critical("the broker stops: %s", error, exc_info=error)
            finally:
                try:
                    stack.close()
                except Exception as error:  # noqa: BLE001 - carried to whoever stops the broker
                    self._failure = self._failure or error
                self._halted.set()
                self._ready.set()

    def _open(self, stack: contextlib.ExitStack) -> None:
        """Everything up to the first connection; `stack` takes it back in the other order."""
        config, clock, disk = self.config, self.clock, self.disk
        _refuse_what_is_not_there(config)
        _raise_file_limit()
        self.loop = Loop(clock=clock, limits_=_limits(config, Limits()))
        if self.loop.limits.connections < (config["max.connections"] or 0) < Limits().connections:
            log.warning(
                "max.connections is %d, and no more than %d are taken: the system allows %d open files, and logs need "
                "some of them; raise its limit (ulimit -n)",
                config["max.connections"],
                self.loop.limits.connections,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )
        stack.callback(self.loop.close_all)
        endpoints: list[Endpoint] = []
        for wanted in config.listeners:
            listener = Listener(wanted.name, wanted.host or "0.0.0.0", wanted.port)
            self._listeners.append(listener)
            stack.callback(listener.socket.close)
            endpoints.append(_advertised(config, wanted, listener.port))
        self._host, self._port = endpoints[0].host, self._listeners[0].port
        self._pool = ThreadPool(threads=_POOL_THREADS, name=self.name, wake=self.loop.wake)
        stack.callback(self._pool.close)
        self.loop.on_wake(self._pool.run_done)
        self.loop.pool = self._pool
        now = clock.now_ms()
        service = self.log_service = LogService(
            config=config,
            clock=clock,
            disk=disk,
            rng=self.rng,
            name=self.name,
            wake=self.loop.wake,
            config_of=self._log_config,
        )
        self.logs = service.logs
        self.logs.open()
        stack.callback(self._close_logs)
        stack.callback(service.stop)
        self.loop.on_wake(service.run_done)
        service.require_metadata_directory()
        self.metadata = Metadata.open(
            config=config,
            disk=disk,
            pool=self._pool,
            clock=clock,
            rng=self.rng,
            directories=service.online_paths,
            endpoints=endpoints,
            clean_shutdown_epoch=self.logs.clean_epoch,
            now=now,
            fsync=self._fsync_metadata,
        )
        stack.callback(self._close_metadata)
        self.logs.identify(self.metadata.directory_ids)
        self.logs.broker_epoch = self.metadata.broker_epoch
        node = self.node = Node(
            config=config,
            node_id=config.node_id,
            cluster_id=self.metadata.cluster_id,
            clock=clock,
            rng=self.rng,
            disk=disk,
            pool=self._pool,
            logs=self.logs,
            effects=self.loop,
        )
        self.loop.node = node
        node.sessions.slots = config["max.incremental.fetch.session.cache.slots"]
        node.controller = self.metadata
        node.broker_epoch = self.metadata.broker_epoch
        node.groups = GroupCoordinator(GroupConfig.of(config.get), clock, self.rng)
        stack.callback(self._answer_all)
        node.image = self.metadata.image
        topics = Topics(node)
        if config.metrics_port is not None:  # a long recovery can be watched
            node.metrics.sources.append(service.gauges)
            self._metrics = MetricsServer(self._listeners[0].host, config.metrics_port, self._render)
            self._metrics.start()
            stack.callback(self._metrics.close)
        self.logs.loading.on_progress = self.on_loading
        service.load(now, topics.directory_assigned, topics.topic_id_of)
        self.logs.on_offline = topics.directory_failed
        self.logs.on_last = self._last_directory_failed
        topics.start(self.metadata.image)
        self.metadata.on_image = topics.apply
        config.listeners_changed.append(self._reconfigured)
        self.metadata.serve(now)
        node.begin_turn(now, clock.monotonic_ms())
        node.end_of_wakeup(now)
        service.start(node)
        assert service.moves is not None
        node.moves = service.moves
        service.moves.on_moved = topics.moved
        node.metrics.sources[:] = [self._gauges]
        for listener in self._listeners:
            self.loop.add_listener(listener, **_sockets(config))
        log.info("node %d serves on %s", config.node_id, self.bootstrap)

    def _log_config(self, topic: str) -> LogConfig:
        """What a topic's logs are configured with: its own values over the broker's over the defaults."""
        return self.config.log_config(self.node.image.topic_config(topic))

    def _reconfigured(self, changed: set[str]) -> None:
        """A dynamic value of the broker has changed: the topics' defaults come from there."""
        try:
            _limits(self.config, self.loop.limits)
        except ConfigError as error:  # the records may be another broker's
            log.warning("%s", error)
        self.logs.configure(None)
        self.log_service.reconfigured()
        self.node.groups.configure(replace(GroupConfig.of(self.config.get), partitions=self._group_partitions()))

    def _group_partitions(self) -> int:
        return int(self.node.groups.config.partitions)

    def _last_directory_failed(self, error: OSError) -> None:
        """No log directory is left: a broker without a disk must not stay in its cluster."""
        self._failure = error
        self._clean = False
        self.loop.stop()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _answer_all(self) -> None:
        """Whoever waits is answered, as far as that goes quickly."""
        if not self._clean:
            return
        node, loop = self.node, self.loop
        now = self.clock.now_ms()
        for fetch in list(node.parked_fetches.values()):
            fetch.recheck(now)
        node.groups.close()
        loop.drain()
        deadline = time.monotonic() + _DRAIN_SECONDS  # the machine's own: a test's clock stands still meanwhile
        loop.turn(0.0)
        while loop.connection_count and time.monotonic() < deadline:
            loop.turn(0.05)
            loop.drain()

    def _close_metadata(self) -> None:
        try:
            self.metadata.close(clean=self._clean)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Nothing is lost: the next start looks through the logs as after a crash.
            log.error("no room for a clean stop: %s", error)
            self._clean = False

    def _close_logs(self) -> None:
        self.logs.close(clean=self._clean)

    # --- metrics ---------------------------------------------------------------------------------------------------

    def _render(self) -> str:
        from stratalog.protocol.apis import APIS

        return self.node.metrics.render({key: api.name for key, api in APIS.items()}, self.clock.monotonic_ms())

    def _gauges(self) -> list[tuple[str, str, float]]:
        from stratalog.node.gauges import gauges

        rows = gauges(self.node)
        rows += self.log_service.gauges()
        rows.append(("stratalog_connections", "", self.loop.connection_count))
        rows.append(("stratalog_connections_rejected_total", "", self.loop.rejected))
        rows.append(("stratalog_cold_reads_total", "", self.loop.cold_reads))
        rows.append(("stratalog_receive_buffer_bytes", "", self.loop.buffers.in_use))
        rows.append(("stratalog_held_answer_bytes", "", self.loop.held_bytes))
        rows.append(("stratalog_pool_outstanding", "", self._pool.outstanding))
        rows += groups.gauges(self.node)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        rows.append(("process_cpu_seconds_total", "", usage.ru_utime + usage.ru_stime))
        rows.append(("process_resident_memory_bytes", "", _resident_bytes()))
        rows.append(("stratalog_uptime_seconds", "", round(time.monotonic() - self._began, 3)))
        return rows


def _refuse_what_is_not_there(config: BrokerConfig) -> None:
    """A listener that was to be secure must not be served in the clear, nor a role be left out in silence."""
    for listener in config.listeners:
        if listener.protocol != "PLAINTEXT":
            where = f"{listener.name}://{listener.host}:{listener.port}"
            reason = f"asks for {listener.protocol}, which this broker does not have yet; it serves PLAINTEXT"
            raise ConfigError("listeners", where, reason)
    if not config.listeners:
        raise ConfigError("listeners", ",".join(config["listeners"] or ()), "has none for clients")
    roles = config["process.roles"]
    if roles and set(roles) != {"broker", "controller"}:
        raise ConfigError("process.roles", ",".join(roles), "is one role of two; this broker is its own controller")


def _advertised(config: BrokerConfig, listener: ListenerConfig, port: int) -> Endpoint:
    """How a listener is told to clients, with the port that was taken."""
    for advertised in config.advertised_listeners:
        if advertised.name == listener.name:
            host = advertised.host if advertised.host not in ("", "0.0.0.0", "::") else socket.gethostname()
            return advertised.endpoint(host=host, port=advertised.port or port)
    return listener.endpoint(port=port)


def _limits(config: BrokerConfig, limits: Limits) -> Limits:
    """The socket limits as configured, at the start and after each change; Kafka's "no limit" means ours."""
    ours = Limits()
    # Clients must not use up the files that the logs need: a segment that cannot be opened takes its directory offline.
    share = max(int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * CONNECTIONS_OF_FILES), 1)
    connections = config["max.connections"]
    limits.connections = min(ours.connections if connections is None else connections, ours.connections, share)
    per_ip = config["max.connections.per.ip"]
    if per_ip is not None:
        limits.connections_per_ip = min(per_ip, ours.connections_per_ip)
    limits.per_ip_overrides = _per_ip(config["max.connections.per.ip.overrides"] or "")
    rate = config["max.connection.creation.rate"]
    if rate is not None:
        limits.rate = min(rate, ours.rate)
        limits.burst = max(limits.rate, 1) if rate < ours.rate else ours.burst
    limits.frame_bytes = config["socket.request.max.bytes"]
    queued = config["queued.max.request.bytes"]
    if queued is not None and queued > 0:
        limits.receive_bytes = min(queued, limits.receive_bytes)
    limits.idle_ms = config["connections.max.idle.ms"]
    # The client that is answered sooner needs a core to ask again.
    limits.spin_us = config["stratalog.spin.us"] if len(os.sched_getaffinity(0)) > 1 else 0
    return limits


def _sockets(config: BrokerConfig) -> dict[str, int]:
    """What was set for the sockets; Kafka's defaults are smaller than what the system does by itself."""
    keys = {
        "backlog": "socket.listen.backlog.size",
        "receive_bytes": "socket.receive.buffer.bytes",
        "send_bytes": "socket.send.buffer.bytes",
    }
    return {name: config[key] for name, key in keys.items() if key in config.static}


def _per_ip(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: address:count, separated by commas."""
    found: dict[str, int] = {}
    for item in text.split(","):
        host, _, count = item.strip().rpartition(":")
        if item.strip():
            if not host or not count.isdigit():
                raise ConfigError("max.connections.per.ip.overrides", item, "is not address:count")
            found[host.strip("[]")] = int(count)
    return found


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _raise_file_limit() -> None:
    """As many descriptors as the system lets us have: connections and segments need one each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
