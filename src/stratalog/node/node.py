"""The broker as a value: a frame comes in, an answer goes out, and what the cores decide happens at the ports.

Owned by the loop's thread; nothing here is called from another one.  A turn of the loop is

    node.begin_turn(clock.now_ms(), clock.monotonic_ms())   # timers that are due
    node.handle_frame(peer, frame, now)                     # for each frame that has come
    node.end_of_wakeup(now)                                 # one write for each log that was appended to, the answers
    send what is in node.ready

`now` is wall time in milliseconds, for timestamps that are kept.  Timers run on monotonic time: `node.after(delay_ms,
callback)`, and `node.now` is the moment of this turn on both clocks.

What a handler can reach: `image` (metadata that brokers read), `controller` (the write path of the metadata),
`logs`, `partitions[(topic, index)]`, `groups`, `config`, `clock`, `rng`, `disk`, `pool`, `timers`, `metrics`,
`effects`.
"""

from __future__ import annotations

import errno
import logging
import struct
from typing import Any, Final, Protocol

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.ports import Clock, Disk, Pool, Rng
from stratalog.base.types import ConnectionId, FileRegion, Millis, NodeId
from stratalog.coordinator.group.coordinator import TOPIC as OFFSETS_TOPIC
from stratalog.metadata import features
from stratalog.node import groups, handlers
from stratalog.node.metrics import Metrics
from stratalog.node.producer_ids import ProducerIds
from stratalog.node.request import LATER, Output, Parked, Peer, Request
from stratalog.node.sessions import FetchSessions
from stratalog.node.timers import Callback, Timer, Timers
from stratalog.protocol.apis import APIS, Api
from stratalog.protocol.headers import skip_tags
from stratalog.replication.partition import Partition
from stratalog.rsm.shard import Now

log = logging.getLogger("stratalog.node")

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors after which a log may take writes again."""
_RELOAD_MS: Final = 1_000
"""After a full disk refused a group's records: when its partition's groups are loaded anew."""
_HEADER: Final = struct.Struct(">hhih")
_SIZE_AND_ID: Final = struct.Struct(">ii")
_PRODUCE: Final = 0
_API_VERSIONS: Final = 18


class Effects(Protocol):
    """What the node may do to its connections beside answering."""

    def close(self, connection: ConnectionId, reason: str) -> None: ...

    def flush(self) -> None:
        """Send what is answered so far; the rest of the turn takes its time."""


class Core(Protocol):
    """A state machine beside the partitions that has timers of its own."""

    def deadline(self) -> Millis | None: ...


class _Route:
    """One API key that this broker serves."""

    __slots__ = ("api", "flexible", "handle", "high", "low", "name", "request_class")

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = name
        low, high = api.versions
        if api.latest_unstable:
            high -= 1
        self.low = low
        self.high = high
        self.flexible = 1 << 15 if api.flexible is None else api.flexible
        self.handle: handlers.Handle | None = None
        self.request_class: Any = None

    def resolve(self) -> handlers.Handle:
        module = handlers.load(self.name)
        self.handle = module.handle
        # Produce decodes by itself: its records stay where they are, and nothing is made for each of them.
        self.request_class = None if self.api.key == _PRODUCE else self.api.request
        return module.handle  # type: ignore[no-any-return]


class Node:
    """One broker."""

    def __init__(
        self,
        *,
        config: Any,
        node_id: int,
        cluster_id: str,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        pool: Pool,
        logs: Any,
        effects: Effects,
    ) -> None:
        self.config = config
        self.node_id = NodeId(node_id)
        self.cluster_id = cluster_id
        self.clock = clock
        self.rng = rng
        self.disk = disk
        self.pool = pool
        self.logs = logs
        self.effects = effects
        self.image: Any = None
        """The metadata that this broker has applied (`metadata.image`); replaced, never changed."""
        self.controller: Any = None
        """The write path of the metadata (`controller.runtime.Runtime`)."""
        self.groups: Any = None
        """The group coordinator."""
        self.timers = Timers()
        self.metrics = Metrics()
        self.now = Now(clock.now_ms(), clock.monotonic_ms())
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        """The same by the topic's name as it stands on the wire."""
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.ready: list[Request] = []
        """Requests whose answer has come since the server last looked."""
        self.bytes_out = 0
        self.turn_us = 0
        """When this turn began, on the shell's own clock: the start of its requests' latencies."""
        self.dirty: list[Partition] = []
        """Partitions with staged appends."""
        self.broken: dict[Partition, OSError] = {}
        """Partitions whose write failed in this turn: what was staged for them is lost."""
        self.produced: list[Any] = []
        """Produce requests of this turn that wait for the write."""
        self.sessions = FetchSessions(slots=1000, rng=rng)
        self.broker_epoch = -1
        """The offset of this broker's registration in the metadata log."""
        self.producer_ids = ProducerIds()
        self.refusals: dict[int, list[ErrorCode]] = {}
        """Faults that a test injects: API key to the errors that its next requests get."""
        self.parked_fetches: dict[ConnectionId, Any] = {}
        self.moves: Any = None
        """Replicas on their way between log directories (`logs.moves`)."""
        self._routes: list[_Route | None] = [None] * 128
        for key, name in handlers.names().items():
            if key in APIS:
                self._routes[key] = _Route(APIS[key], name)
        self._tick_at: Millis | None = None
        self._finish_produce: Any = None

    # --- a request ------------------------------------------------------------------------------------------------

    def handle_frame(self, peer: Peer, frame: memoryview, now: Millis) -> Request:
        """Take one frame (without its size prefix).  The request's `output` is there at once, after `end_of_wakeup`, or
        later.  `Malformed` when the frame is none of ours: the server closes the connection."""
        size = len(frame)
        if size < 10:
            if size < 8:
                raise Malformed("a frame without a header")
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            raise Malformed(f"a header without a client id (API key {key})")
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        request = Request(peer, key, version, correlation_id, frame, now, self.turn_us)
        route = self._routes[key] if 0 <= key < 128 else None
        if route is None or not route.low <= version <= route.high:
            if key == _API_VERSIONS:
                return self._unknown_api_versions(request)
            raise Malformed(f"API key {key} version {version} is not served here")
        position = 10 + length if length >= 0 else 10
        if position > size or length < -1:
            raise Malformed("the client id is longer than the frame")
        if version >= route.flexible:
            if position < size and not frame[position]:
                position += 1
            else:
                position = skip_tags(frame, position)
        metrics = self.metrics
        metrics.requests[key] += 1
        metrics.bytes_in += size + 4
        request.position = position
        handle = route.handle or route.resolve()
        if self.refusals and key in self.refusals:
            refused = self._refuse(request)
            if refused is not None:
                return refused
        try:
            if key != _PRODUCE:
                if length > 0:
                    request.client_id = str(frame[10 : 10 + length], "utf-8", "replace")
                elif length == 0:
                    request.client_id = ""
                # What follows the body is not looked at, as in Kafka: librdkafka's Metadata of all topics has a tail.
                request.body, _ = route.request_class.decode_at(frame, position, version)
                request.frame = None
            answer = handle(self, request, now)
        except ApiError as error:
            self._fail(request, error)
            return request
        if answer is LATER:
            return request
        if answer is None:
            request.output = []
            self.ready.append(request)
        elif type(answer) is Parked:
            pass
        else:
            self.complete(request, answer)
        return request

    def park(self, request: Request) -> Parked:
        """The handler's answer when it has none yet."""
        return Parked(self, request)

    def complete(self, request: Request, message: Any) -> None:
        """Encode the answer and hand it to the server; `Parked.reply` comes here."""
        version = request.version
        route = self._routes[request.key]
        assert route is not None
        self.send(request, message.encode(version), route.flexible <= version and request.key != _API_VERSIONS)

    def send(self, request: Request, buffers: list[Any], tagged_header: bool) -> None:
        """Put size and header before an encoded body, and hand it to the server."""
        size = 4
        regions = False
        for buffer in buffers:
            size += len(buffer)
            if type(buffer) is FileRegion:
                regions = True
        if tagged_header:
            head = _SIZE_AND_ID.pack(size + 1, request.correlation_id) + b"\0"
        else:
            head = _SIZE_AND_ID.pack(size, request.correlation_id)
        output: Output
        if regions:
            first = buffers[0]
            if type(first) is FileRegion:
                output = [head, *buffers]
            else:
                output = [head + first, *buffers[1:]]
        else:
            output = [b"".join((head, *buffers))]
        request.output = output
        self.ready.append(request)

    def _fail(self, request: Request, error: ApiError) -> None:
        """A handler gave up on the whole request."""
        self.metrics.errors[request.key] += 1
        response = self.error_response(request, error.code, error.message)
        if response is None:
            raise Malformed(f"API key {request.key}: {error.message}")
        self.complete(request, response)

    def error_response(self, request: Request, code: ErrorCode, message: str) -> Any | None:
        """The response with this error at its top, None where the version has no place for one."""
        response_class: Any = APIS[request.key].response
        if not hasattr(response_class, "error_code"):
            return None
        response = response_class(error_code=int(code))
        if hasattr(response_class, "error_message"):
            response.error_message = message
        return response

    def _refuse(self, request: Request) -> Request | None:
        """A fault that a test injected."""
        errors = self.refusals[request.key]
        if not errors:
            del self.refusals[request.key]
            return None
        code = errors.pop(0)
        from stratalog.node import refusals

        response = refusals.answer(request, code) or handlers.refusal(self, request, code)
        if response is None:
            raise Malformed(f"refused by the test: {code.name}")
        self.complete(request, response)
        return request

    def _unknown_api_versions(self, request: Request) -> Request:
        """A client newer than we are asks what we speak: the answer has version 0's form and says so."""
        request.version = 0
        module = handlers.load(handlers.names()[_API_VERSIONS])
        self.metrics.requests[_API_VERSIONS] += 1
        self.complete(request, module.unsupported(self))
        return request

    def features(self) -> dict[str, tuple[int, int]]:
        """The features that this broker knows, with their lowest and highest level."""
        return dict(features.SUPPORTED)

    def served(self) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version of everything that this broker offers."""
        return [(route.api.key, route.low, route.high) for route in self._routes if route is not None]

    # --- time -----------------------------------------------------------------------------------------------------

    def after(self, delay_ms: int, callback: Callback) -> Timer:
        """Call `callback(now)` in `delay_ms` from this turn."""
        return self.timers.at(Millis(self.now.monotonic_ms + delay_ms), callback)

    def every(self, interval_ms: int, callback: Callback) -> None:
        """Call `callback(now)` again and again, the next time counted from the end of the last one."""

        def again(now: Millis) -> None:
            callback(now)
            self.after(interval_ms, again)

        self.after(interval_ms, again)

    def deadline(self) -> Millis | None:
        """When `begin_turn` has something to do, in monotonic time; asked before each wait."""
        deadline = self.timers.deadline()
        wall, monotonic = self.now
        if self.groups is not None:
            due = self.groups.deadline()
            if due is not None and (deadline is None or due < deadline):
                deadline = due
        if self.controller is not None:
            controller = self.controller.deadline()
            if controller is not None:
                controller = Millis(monotonic + controller - wall)
                if deadline is None or controller < deadline:
                    deadline = controller
        self._tick_at = deadline
        return deadline

    def begin_turn(self, now: Millis, monotonic: Millis) -> None:
        """The time of this turn, and what is due at it."""
        self.now = Now(now, monotonic)
        tick_at = self._tick_at
        if tick_at is not None and tick_at <= monotonic:
            self._tick_at = None
            self.timers.fire(monotonic, now)
            if self.groups is not None:
                self.groups.tick(self.now)
            if self.controller is not None:
                self.controller.tick(now)

    def end_of_wakeup(self, now: Millis) -> None:
        """Commit all staged appends, one write for each log, move high watermarks, complete what waited for them."""
        while self.dirty or self.produced:
            woken: dict[Any, None] = {}
            committed: list[Partition] = []
            if self.dirty:
                dirty = self.dirty[:]
                self.dirty.clear()  # in place: the partitions hold this list
                for partition in dirty:
                    if partition.failure is not None:  # its directory went offline with what was staged
                        self.broken.setdefault(partition, partition.failure)
                        continue
                    try:
                        size = partition.commit(now)
                    except OSError as error:
                        self.disk_failed(partition, error)
                        size = 0
                    if partition.waiters:
                        for waiter in partition.waiters:
                            waiter.appended(size)
                            woken[waiter] = None
                    if partition.listeners:
                        committed.append(partition)
            if self.produced:
                produced, self.produced = self.produced, []
                for entry in produced:
                    entry.written(self, now)
                self.broken.clear()
                if woken:  # producers need not wait until their consumers' answers are made
                    self.effects.flush()
            for partition in committed:
                for listener in partition.listeners:
                    listener(partition, now)
            for waiter in woken:
                waiter.wake(self, now)

    def disk_failed(self, partition: Partition, error: OSError) -> None:
        """A write to the partition's log failed.  A full disk refuses writes and keeps serving reads; anything else
        takes the replica offline."""
        self.broken[partition] = error
        full = error.errno in FULL
        if full:
            self.logs.disk_full(partition.log)
        else:
            self.logs.log_failed(partition.log, error)
            partition.fail(error)
        log.error("%s-%d %s: %s", partition.topic, partition.index, "takes no writes" if full else "is offline", error)
        if self.groups is not None:
            groups.failed(self, partition, error)
            if full and partition.topic == OFFSETS_TOPIC:
                # The shard was given up with what was staged; it is loaded again from what is in the log.
                self.after(_RELOAD_MS, lambda now: groups.reload(self, partition))

    def connection_closed(self, peer: Peer) -> None:
        """Forget what the connection waits for."""
        fetch = self.parked_fetches.pop(peer.connection, None)
        if fetch is not None:
            fetch.forget()
