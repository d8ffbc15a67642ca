"""The loop: one thread, one epoll, every socket.

Owns the connections.  Everything but `wake`, `call` and `stop` belongs to the loop's thread.  One turn:

    poll -> accept, receive, cut frames, node.handle_frame for each -> node.end_of_wakeup (one write for each log)
         -> send what is answered -> give buffers back

Rules:

- A connection is known by its `ConnectionId`.  A descriptor's number is reused, so nothing outlives a turn under it,
  and descriptors are closed at the end of a turn only.
- A receive buffer neither moves nor is given away before the turn's writes are done: frames are views into it.
- Answers go out in the order of the requests.  A frame is handed on when the connection waits for nothing, or waits
  only for produce requests and brings another one; else the rest stays in the buffer and the connection is muted.
- A connection whose answers the socket does not take is not read from.
- What is not in memory is not sent from here: `preadv(RWF_NOWAIT)` tells, a pool thread reads it, then it is sent.
- Fair: one `recv` for each connection and turn, at most `SEND_BYTES_PER_TURN` sent to it.
- While questions follow answers at once the loop asks for them without sleeping, for some microseconds at a time: to be
  woken costs a client more than to be answered (`Limits.spin_us`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from stratalog.base import limits
from stratalog.base.failures import Malformed
from stratalog.base.ports import Clock, Pool
from stratalog.base.types import Buffer, ConnectionId, FileRegion, Millis
from stratalog.node.request import Peer
from stratalog.server.connection import BufferPool, Connection

if TYPE_CHECKING:
    from stratalog.node.node import Node

log = logging.getLogger("stratalog.server")

_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR
_RDHUP: Final = select.EPOLLRDHUP
_SIZE_AND_KEY: Final = struct.Struct(">ih")
_SIZE: Final = struct.Struct(">i")
_PRODUCE: Final = 0
_NOWAIT: Final = os.RWF_NOWAIT
_preadv = os.preadv
_SMALL_REGION: Final = 32 << 10
"""A file region up to this size is read and sent with its header: one packet, one system call less."""
_IOV_MAX: Final = 512
_WANT_MAX: Final = 2 << 20
"""The largest buffer that a connection begins a frame with because its last ones were large."""
_SENDFILE_BYTES: Final = 1 << 20
"""One sendfile: small against a disk's patience, large against the cost of the call."""
_READ_AHEAD_BYTES: Final = 4 << 20
"""What a cold reader makes the kernel fetch beyond the part that it waits for."""
_PROBE: Final = [bytearray(1)]
_WARM_MS: Final = 1_000
"""How long what was found in memory is taken to be there still."""
_SWEEP_MS: Final = 1_000
_IDLE_SWEEP_MS: Final = 30_000
_TOKENS_MS: Final = 20
"""How long accepting waits when connections come faster than they may: short against the listen queue."""
_DISCARDS_MAX: Final = 64
"""Reads of 64 KiB from a connection that is closed by a stop: what a socket's buffer holds."""
_QUICK_TURNS: Final = 8
"""So many waits in a row must have been short before the next one spins: a conversation, not a coincidence."""
BACKLOG: Final = 4_096
"""Connections that may wait to be accepted, where `socket.listen.backlog.size` is not set: a whole estate that comes
back at once."""
_ACCEPTS_PER_TURN: Final = 256


def _is_cached(file: int, position: int, size: int) -> bool:
    """Whether the first and the last page of the bytes are in memory; true where the file system cannot say."""
    try:
        _preadv(file, _PROBE, position, _NOWAIT)
        _preadv(file, _PROBE, position + size - 1, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


class Limits:
    """What an operator may set; defaults from `base.limits`."""

    __slots__ = (
        "answer_bytes",
        "burst",
        "connections",
        "connections_per_ip",
        "frame_bytes",
        "idle_ms",
        "per_ip_overrides",
        "rate",
        "receive_bytes",
        "spin_us",
        "stall_ms",
    )

    def __init__(
        self,
        *,
        connections: int = limits.CONNECTIONS_MAX,
        connections_per_ip: int = limits.CONNECTIONS_PER_IP_MAX,
        rate: int = limits.CONNECTION_RATE_MAX,
        burst: int = limits.CONNECTION_BURST_MAX,
        frame_bytes: int = limits.FRAME_BYTES_MAX,
        idle_ms: int = limits.CONNECTION_IDLE_MS,
        stall_ms: int = limits.RESPONSE_STALL_MS,
        receive_bytes: int = limits.RECEIVE_BYTES_MAX,
        answer_bytes: int = limits.ANSWER_BYTES_MAX,
        spin_us: int = 0,
    ) -> None:
        self.connections = connections
        self.connections_per_ip = connections_per_ip
        self.per_ip_overrides: dict[str, int] = {}
        """Other bounds for single addresses."""
        self.rate = rate
        self.burst = burst
        self.frame_bytes = frame_bytes
        self.idle_ms = idle_ms
        self.stall_ms = stall_ms
        self.receive_bytes = receive_bytes
        self.answer_bytes = answer_bytes
        self.spin_us = spin_us
        """How long a wait goes on without sleep when the last ones were as short; 0 for never."""


class Listener:
    """A bound socket with its name in the configuration."""

    __slots__ = ("host", "name", "socket")

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((host, port))
        except OSError as error:
            self.socket.close()
            # The kind stays: a name that cannot be resolved is not an address that is taken.
            raise type(error)(error.errno, error.strerror, f"{host}:{port}") from error

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def listen(self, *, backlog: int = BACKLOG, receive_bytes: int = -1, send_bytes: int = -1) -> None:
        """The buffers' sizes go over to each connection; -1 leaves them to the system, which fits them to what a
        connection needs."""
        for option, size in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            if size >= 0:
                self.socket.setsockopt(socket.SOL_SOCKET, option, size)
        self.socket.listen(backlog)


class Loop:
    """The event loop of one broker."""

    node: Node

    def __init__(self, *, clock: Clock, limits_: Limits | None = None) -> None:
        self.clock = clock
        self.limits = limits_ or Limits()
        self.buffers = BufferPool(
            unit=limits.RECEIVE_BUFFER_BYTES, limit=self.limits.receive_bytes, keep_bytes=16 << 20
        )
        self.failure: BaseException | None = None
        """What ended the loop, if it was not `stop`."""
        self.rejected = 0
        self.cold_reads = 0
        self.pool: Pool | None = None
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, _IN)
        self._listeners: dict[int, Listener] = {}
        self._connections: dict[int, Connection] = {}
        """By connection id."""
        self._by_fd: dict[int, Connection] = {}
        """Only to find out whom an event of this turn is for."""
        self._per_ip: dict[str, int] = {}
        self._last_id = 0
        self._again: dict[Connection, None] = {}
        """Connections with frames in their buffer that may be handed on in the next turn."""
        self._used: list[Connection] = []
        """Connections whose buffer was parsed in this turn."""
        self._starved: dict[Connection, None] = {}
        """Connections that wait for memory."""
        self._partial: dict[Connection, None] = {}
        """Connections in the middle of a frame."""
        self._stalled: dict[Connection, None] = {}
        """Connections with answers that the socket does not take."""
        self._held: dict[Connection, int] = {}
        """Bytes in memory of such answers."""
        self.held_bytes = 0
        self._closed_sockets: list[socket.socket] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._work: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        self._draining = False
        self._tokens = float(self.limits.burst)
        self._tokens_at: Millis = clock.monotonic_ms()
        self._accept_paused = False
        self._accept_at: Millis = clock.monotonic_ms()
        self._next_sweep: Millis = clock.monotonic_ms()
        self._next_idle_sweep: Millis = clock.monotonic_ms()
        self._now: Millis = clock.now_ms()
        self._monotonic: Millis = clock.monotonic_ms()
        self._quick_turns = 0
        """How many of the last waits, one after the other, ended within `Limits.spin_us`."""

    # --- from any thread ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make the loop turn now."""
        wake_fd = self._wake_fd
        if wake_fd >= 0:
            with contextlib.suppress(OSError):  # the loop has ended, or the counter is full: it is awake
                os.eventfd_write(wake_fd, 1)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread, soon."""
        self._calls.append(function)
        self.wake()

    def stop(self) -> None:
        """End `run` after this turn."""
        self._stopping.set()
        self.wake()

    # --- set-up ---------------------------------------------------------------------------------------------------

    def add_listener(self, listener: Listener, **sockets: int) -> None:
        """`sockets` are what `Listener.listen` takes."""
        listener.listen(**sockets)
        self._listeners[listener.socket.fileno()] = listener
        self._epoll.register(listener.socket.fileno(), _IN)

    def on_wake(self, work: Callable[[], None]) -> None:
        """Something to look at in each turn that was begun by `wake`: the pool's results."""
        self._work.append(work)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # --- the turn -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until `stop`."""
        try:
            while not self._stopping.is_set():
                self.turn(self._timeout())
        except BaseException as failure:
            self.failure = failure
            raise

    def _timeout(self) -> float:
        if self._again:
            return 0.0
        deadline = self.node.deadline()
        monotonic = self.clock.monotonic_ms()
        wait = _IDLE_SWEEP_MS if not (self._partial or self._stalled) else _SWEEP_MS
        if self._accept_paused:
            wait = min(wait, self._accept_at - monotonic)
        if deadline is not None:
            wait = min(wait, deadline - monotonic)
        return wait / 1000.0 if wait > 0 else 0.0

    def turn(self, timeout: float) -> None:
        """One turn; tests may call it by themselves."""
        events = self._wait(timeout) if timeout else self._epoll.poll(0.0, 512)
        node = self.node
        node.turn_us = perf_counter_ns() // 1000
        now = self._now = self.clock.now_ms()
        monotonic = self._monotonic = self.clock.monotonic_ms()
        node.begin_turn(now, monotonic)
        if self._again:
            again, self._again = self._again, {}
            for connection in again:
                if not connection.closed:
                    self._parse(connection)
        by_fd = self._by_fd
        for fd, event in events:
            connection = by_fd.get(fd)  # type: ignore[assignment]
            if connection is not None:
                if event & _IN:
                    self._readable(connection)
                if event & _OUT and not connection.closed:
                    self._write(connection)
                if event & (_GONE | _RDHUP) and not connection.closed and not event & _IN:
                    self._close(connection, "")
                if len(node.ready) > limits.ANSWERS_PER_TURN_MAX:
                    self.flush()
            elif fd == self._wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)
                for work in self._work:
                    work()
                while self._calls:
                    self._calls.popleft()()
            elif fd in self._listeners:
                self._accept(self._listeners[fd])
        node.end_of_wakeup(now)
        if node.ready:
            self.flush()
        if self._used:
            self._release()
        if self._accept_paused and monotonic >= self._accept_at:
            self._resume_accepting()
        if monotonic >= self._next_sweep:
            self._sweep()
        if self._closed_sockets:
            for sock in self._closed_sockets:
                sock.close()
            self._closed_sockets.clear()

    def _wait(self, timeout: float) -> list[tuple[int, int]]:
        """The events of this turn.  Sleeps, but for a conversation: then it looks again and again for a while first.
        A wait that was longer ends that until there have been enough short ones again, so what is spun for nothing is
        little: once for every `_QUICK_TURNS` turns at the most."""
        poll = self._epoll.poll
        spin_ns = self.limits.spin_us * 1000
        if not spin_ns:
            return poll(timeout, 512)
        end = perf_counter_ns() + min(spin_ns, int(timeout * 1e9))
        if self._quick_turns >= _QUICK_TURNS:
            while perf_counter_ns() < end:
                events = poll(0.0, 512)
                if events:
                    return events
            self._quick_turns = 0
            return poll(timeout, 512)
        events = poll(timeout, 512)
        self._quick_turns = self._quick_turns + 1 if events and perf_counter_ns() < end else 0
        return events

    # --- accepting ------------------------------------------------------------------------------------------------

    def _accept(self, listener: Listener) -> None:
        tokens = self._tokens + (self._monotonic - self._tokens_at) * self.limits.rate / 1000.0
        self._tokens = tokens = min(tokens, float(self.limits.burst))
        self._tokens_at = self._monotonic
        for _ in range(_ACCEPTS_PER_TURN):
            if self._tokens < 1.0:
                self._pause_accepting(_TOKENS_MS)
                return
            try:
                sock, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    log.warning("no connection can be accepted: %s; trying again in a second", error.strerror)
                    self._pause_accepting(_SWEEP_MS)
                    return
                if error.errno == errno.ECONNABORTED:
                    continue
                raise
            self._tokens -= 1.0
            host = address[0]
            count = self._per_ip.get(host, 0)
            most = self.limits.per_ip_overrides.get(host, self.limits.connections_per_ip)
            if len(self._connections) >= self.limits.connections or count >= most:
                self.rejected += 1
                if self.rejected & (self.rejected - 1) == 0:  # 1, 2, 4, 8 ... : a storm fills no log
                    log.warning("connection refused: %s, too many (%d refused so far)", host, self.rejected)
                sock.close()
                continue
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._per_ip[host] = count + 1
            self._last_id += 1
            identity = ConnectionId(self._last_id)
            peer = Peer(identity, host=host, port=address[1], listener=listener.name)
            connection = Connection(sock, peer, self._monotonic)
            self._connections[identity] = connection
            self._by_fd[connection.fd] = connection
            connection.mask = _IN
            self._epoll.register(connection.fd, _IN)

    def _pause_accepting(self, span_ms: int) -> None:
        if not self._accept_paused:
            self._accept_paused = True
            self._accept_at = Millis(self._monotonic + span_ms)
            for fd in self._listeners:
                self._epoll.modify(fd, 0)

    def _resume_accepting(self) -> None:
        self._accept_paused = False
        if not self._draining:
            for fd in self._listeners:
                self._epoll.modify(fd, _IN)

    # --- receiving ------------------------------------------------------------------------------------------------

    def _readable(self, connection: Connection) -> None:
        queue = connection.queue
        if connection.out or (queue and (queue[0].output is not None or queue[0].key != _PRODUCE)):
            self._interest(connection, connection.mask & ~_IN | _RDHUP)  # muted: lazily, most are not
            return
        view = connection.view
        if view is None or connection.end == len(view):
            if not self._make_room(connection):
                return
            view = connection.view
            assert view is not None
        try:
            received = connection.socket.recv_into(view[connection.end :])
        except BlockingIOError:
            return
        except OSError as error:
            self._close(connection, error.strerror or "")
            return
        if received == 0:
            self._close(connection, "")
            return
        connection.end += received
        connection.last_active = self._monotonic
        if connection.end == len(view):  # more is waiting: the next buffer takes it in one piece
            connection.want = min(2 * len(view), _WANT_MAX)
        self._parse(connection)

    def _make_room(self, connection: Connection) -> bool:
        """A buffer with room at its end.  Called at the start of a turn's reading only: whatever was handed on from
        this buffer in earlier turns has been written."""
        buffer = connection.buffer
        if buffer is None:
            buffer = self.buffers.take(connection.want) or self.buffers.take(self.buffers.unit)
            assert buffer is not None, "a buffer of the smallest size is always given"
            connection.buffer = buffer
            connection.view = memoryview(buffer)
            rest = connection.rest
            connection.start = 0
            connection.end = len(rest)
            if rest:
                buffer[: connection.end] = rest
                connection.rest = b""
            return True
        have = connection.end - connection.start
        larger = None
        fits = connection.needed <= len(buffer) and connection.start > 0
        if not fits or connection.want > len(buffer):
            # The peer says how large its frame is, but memory is given for what has come: at most double that.
            larger = self.buffers.take(2 * len(buffer))
        view = connection.view
        assert view is not None
        if larger is not None:
            connection.want = min(len(larger), _WANT_MAX)
            larger[:have] = view[connection.start : connection.end]
            connection.buffer = larger
            connection.view = memoryview(larger)
            self.buffers.give(buffer)
        elif fits:
            view[:have] = view[connection.start : connection.end]
        else:
            self._starved[connection] = None
            self._interest(connection, connection.mask & ~_IN | _RDHUP)
            return False
        connection.start = 0
        connection.end = have
        return True

    def _parse(self, connection: Connection) -> None:
        """Hand on the complete frames in the buffer, as far as the order of answers allows."""
        view = connection.view
        if view is None:
            return
        node = self.node
        handle_frame = node.handle_frame
        now = self._now
        queue = connection.queue
        peer = connection.peer
        start = connection.start
        end = connection.end
        blocked = False
        needed = 0
        try:
            while end - start >= 6:
                size, key = _SIZE_AND_KEY.unpack_from(view, start)
                if size < 8 or size > self.limits.frame_bytes:
                    raise Malformed(f"a frame of {size} bytes")
                stop = start + 4 + size
                if stop > end:
                    needed = 4 + size
                    break
                if queue:
                    head = queue[0]
                    if head.output is None and not (key == _PRODUCE == head.key):
                        blocked = True
                        break
                request = handle_frame(peer, view[start + 4 : stop], now)
                queue.append(request)
                start = stop
        except Malformed as error:
            self._close(connection, error.reason)
            return
        except AssertionError:
            raise
        except Exception:  # the shell's top: a handler's bug costs the connection, and is told
            log.exception("a request of %s:%d failed", peer.host, peer.port)
            self._close(connection, "internal error")
            return
        if connection.closed:
            return
        moved = start != connection.start
        connection.start = start
        if blocked:
            connection.needed = 0
            return
        if start != end:
            if needed == 0:
                needed = 6
                if end - start >= 4:
                    (size,) = _SIZE.unpack_from(view, start)
                    if size < 8 or size > self.limits.frame_bytes:
                        self._close(connection, f"a frame of {size} bytes")
                        return
                    needed = 4 + size
            if connection.needed == 0 or moved:
                connection.frame_since = self._monotonic
            connection.needed = needed
            self._partial[connection] = None
        elif connection.needed:
            connection.needed = 0
            self._partial.pop(connection, None)
        self._used.append(connection)

    def _release(self) -> None:
        """The turn's writes are done: buffers without a rest go back."""
        for connection in self._used:
            buffer = connection.buffer
            if buffer is not None and connection.start == connection.end:
                if connection.end * 4 < connection.want:
                    connection.want >>= 1
                connection.buffer = connection.view = None
                connection.start = connection.end = 0
                self.buffers.give(buffer)
            elif (
                buffer is not None
                and connection.needed
                and connection.end - connection.start <= limits.RECEIVE_REST_BYTES
                and not connection.closed
            ):
                connection.rest = bytes(buffer[connection.start : connection.end])
                connection.buffer = connection.view = None
                connection.start = connection.end = 0
                self.buffers.give(buffer)
        self._used.clear()
        if self._starved:
            starved, self._starved = self._starved, {}
            for connection in starved:
                if not connection.closed:
                    self._interest(connection, connection.mask | _IN)

    # --- sending --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """`node.Effects`: send what is answered."""
        connections = self._connections
        ready = self.node.ready
        while ready:
            batch = ready[:]
            ready.clear()
            observe = self.node.metrics.observe
            now_us = perf_counter_ns() // 1000
            key, received_us, count = batch[0].key, batch[0].received_us, 0
            peer = connection = None
            for request in batch:
                if request.received_us != received_us or request.key != key:
                    observe(key, now_us - received_us, count)
                    key, received_us, count = request.key, request.received_us, 0
                count += 1  # what came in one turn with one key took equally long
                if request.peer is not peer:
                    peer = request.peer
                    connection = connections.get(peer.connection)
                if connection is not None:
                    queue = connection.queue
                    if queue and queue[0].output is not None:
                        self._flush(connection)
            observe(key, now_us - received_us, count)

    def _flush(self, connection: Connection) -> None:
        """Send what is answered at the head of the queue."""
        queue = connection.queue
        out = connection.out
        first = queue.popleft().output
        assert first is not None
        if not out and len(first) == 1 and not (queue and queue[0].output is not None):
            only = first[0]
            if type(only) is bytes:  # the one that matters: one small answer, one call
                try:
                    sent = connection.socket.send(only)
                except BlockingIOError:
                    sent = 0
                except OSError as error:
                    self._close(connection, error.strerror or "")
                    return
                self.node.bytes_out += sent
                if sent == len(only):
                    if connection.start != connection.end or connection.mask != _IN:
                        self._unmute(connection)
                    return
                first = [memoryview(only)[sent:]]
        out.extend(first)
        while queue:
            output = queue[0].output
            if output is None:
                break
            queue.popleft()
            out.extend(output)
        if out:
            self._write(connection)
        elif connection.start != connection.end or connection.mask != _IN:
            self._unmute(connection)

    def _unmute(self, connection: Connection) -> None:
        """Nothing is pending: read on, and look at what is in the buffer already."""
        if connection.out or connection.closed or self._draining or connection in self._starved:
            return
        if connection.mask != _IN:
            self._interest(connection, _IN)
        if connection.start != connection.end and not connection.needed:
            self._again[connection] = None

    def _write(self, connection: Connection) -> None:
        """Send as much of `out` as the socket takes."""
        if connection.warming:
            return
        out = connection.out
        sock = connection.socket
        budget = limits.SEND_BYTES_PER_TURN
        total = 0
        if connection.warm_bytes and self._monotonic - connection.last_active > _WARM_MS:
            connection.warm_bytes = 0
        try:
            while out and budget > 0:
                item = out[0]
                if isinstance(item, FileRegion):
                    file = item.file.fileno()
                    size = connection.warm_bytes
                    if not size:
                        size = item.length if item.length < _SENDFILE_BYTES else _SENDFILE_BYTES
                        if not _is_cached(file, item.position, size) and self._warm(connection, item, size):
                            break
                        connection.warm_bytes = size
                    sent = os.sendfile(connection.fd, file, item.position, size)
                    connection.warm_bytes -= sent
                    if sent == 0:
                        self._close(connection, f"{item.file.path} is shorter than its index says")
                        return
                    if sent == item.length:
                        out.popleft()
                    else:
                        out[0] = FileRegion(item.file, position=item.position + sent, length=item.length - sent)
                else:
                    buffers: list[Buffer] = []
                    more = False
                    while out and len(buffers) < _IOV_MAX:
                        item = out[0]
                        if isinstance(item, FileRegion):
                            if item.length > _SMALL_REGION:
                                more = True
                                break
                            data = item.read()
                            if len(data) < item.length:
                                self._close(connection, "a segment is shorter than its index says")
                                return
                            item = data
                        buffers.append(item)
                        out.popleft()
                    try:
                        sent = sock.sendmsg(buffers, (), socket.MSG_MORE if more else 0)
                    except BlockingIOError:
                        out.extendleft(reversed(buffers))
                        break
                    self._keep_rest(out, buffers, sent)
                budget -= sent
                total += sent
        except BlockingIOError:
            pass
        except OSError as error:
            self._close(connection, error.strerror or "")
            return
        self.node.bytes_out += total
        if connection.warming:
            self._interest(connection, _RDHUP)
            return
        if out:
            if connection.mask != _OUT:
                self._interest(connection, _OUT)
            if total or connection not in self._stalled:
                connection.stalled_since = self._monotonic
                self._stalled[connection] = None
            connection.last_active = self._monotonic if total else connection.last_active
            self._hold(connection)
            return
        if connection in self._stalled:
            del self._stalled[connection]
            self.held_bytes -= self._held.pop(connection, 0)
        if connection.start != connection.end or connection.mask != _IN:
            self._unmute(connection)

    def _hold(self, connection: Connection) -> None:
        """Count what a connection's answers hold in memory, and bound what all of them do."""
        size = sum(len(item) for item in connection.out if not isinstance(item, FileRegion))
        before = self._held.get(connection, 0)
        if size == before:
            return
        self.held_bytes += size - before
        self._held[connection] = size
        while self.held_bytes > self.limits.answer_bytes:
            most = max(self._held, key=self._held.__getitem__)
            self._close(most, f"{self._held[most]} bytes of answers not taken, {self.held_bytes} of all connections")

    def _warm(self, connection: Connection, region: FileRegion, size: int) -> bool:
        """Have a pool thread read the next bytes of a region; then go on sending.  False without a pool."""
        pool = self.pool
        if pool is None:
            return False
        connection.warming = True

        def read() -> None:
            # The region holds the file open, whatever becomes of the connection.
            file = region.file.fileno()
            os.posix_fadvise(file, region.position, max(region.length, _READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
            region.file.pread(size, region.position)

        def done(_: object, error: BaseException | None) -> None:
            connection.warming = False
            if connection.closed:
                return
            if error is not None:
                self._close(connection, str(error))
                return
            connection.warm_bytes = size
            connection.stalled_since = self._monotonic
            self._write(connection)

        pool.submit("cold-read", read, done)
        self.cold_reads += 1
        return True

    @staticmethod
    def _keep_rest(out: deque[Buffer | FileRegion], buffers: list[Buffer], sent: int) -> None:
        """Put back what `sendmsg` did not take."""
        rest: list[Buffer] = []
        for buffer in buffers:
            length = len(buffer)
            if sent >= length:
                sent -= length
            else:
                rest.append(memoryview(buffer)[sent:] if sent else buffer)
                sent = 0
        out.extendleft(reversed(rest))

    # --- the rest -------------------------------------------------------------------------------------------------

    def _interest(self, connection: Connection, mask: int) -> None:
        if connection.mask != mask:
            connection.mask = mask
            self._epoll.modify(connection.fd, mask)

    def close(self, connection: ConnectionId, reason: str) -> None:
        """`node.Effects`: end a connection from within the node."""
        found = self._connections.get(connection)
        if found is not None:
            self._close(found, reason)

    def _close(self, connection: Connection, reason: str) -> None:
        """The descriptor itself is closed at the end of the turn, so that its number comes back after this turn's
        events only."""
        if connection.closed:
            return
        connection.closed = True
        peer = connection.peer
        if reason:
            log.info("connection of %s:%d closed: %s", peer.host, peer.port, reason)
        del self._connections[peer.connection]
        del self._by_fd[connection.fd]
        count = self._per_ip[peer.host] - 1
        if count:
            self._per_ip[peer.host] = count
        else:
            del self._per_ip[peer.host]
        for waiting in (self._again, self._starved, self._partial, self._stalled):
            waiting.pop(connection, None)
        self.held_bytes -= self._held.pop(connection, 0)
        self._epoll.unregister(connection.fd)
        self._closed_sockets.append(connection.socket)
        connection.out.clear()
        connection.queue.clear()
        # Frames that were handed on in this turn are views into the buffer until the turn's writes are done.
        connection.start = connection.end = 0
        self._used.append(connection)
        self.node.connection_closed(peer)

    def _sweep(self) -> None:
        """Once a second: frames and readers without progress; now and then the idle ones."""
        now = self._monotonic
        self._next_sweep = Millis(now + _SWEEP_MS)
        for connection in list(self._partial):
            age = now - connection.frame_since
            if age > limits.FRAME_GRACE_MS:
                come = connection.end - connection.start + len(connection.rest)
                if come < (age - limits.FRAME_GRACE_MS) * limits.FRAME_BYTES_PER_SECOND_MIN // 1000:
                    self._close(connection, f"{come} bytes of a frame in {age} ms")
        for connection in list(self._stalled):
            if now - connection.stalled_since > self.limits.stall_ms:
                held = self._held.get(connection, 0)
                if held > limits.RESPONSE_BYTES_HIGH:
                    self._close(connection, f"{held} bytes of answers not taken for {self.limits.stall_ms} ms")
        if now >= self._next_idle_sweep:
            self._next_idle_sweep = Millis(now + min(_IDLE_SWEEP_MS, max(self.limits.idle_ms // 2, _SWEEP_MS)))
            oldest = now - self.limits.idle_ms
            for connection in list(self._connections.values()):
                if connection.last_active < oldest and not connection.queue:
                    self._close(connection, "idle")

    # --- the end --------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Accept nothing more and read nothing more; connections that wait for no answer are closed.  The others
        follow as they are answered: call it again.  A client that asks on as soon as it is answered, as every consumer
        does, is not waited for."""
        self._draining = True
        for fd, listener in list(self._listeners.items()):
            if listener.socket.fileno() >= 0:  # a closed socket has left the set by itself
                self._epoll.unregister(fd)
                listener.socket.close()
        self._listeners.clear()
        for connection in list(self._connections.values()):
            if not connection.queue and not connection.out:
                self._discard(connection)
                self._close(connection, "")
            else:
                self._interest(connection, connection.mask & ~_IN | _RDHUP)

    @staticmethod
    def _discard(connection: Connection) -> None:
        """Take what has come and will not be answered: unread, it would make the close a reset, which takes answers
        away from a client that has not read them yet."""
        with contextlib.suppress(OSError):
            for _ in range(_DISCARDS_MAX):
                if not connection.socket.recv(1 << 16):
                    return

    def close_all(self) -> None:
        """Close every socket and the loop's own descriptors."""
        self.drain()
        for connection in list(self._connections.values()):
            self._close(connection, "")
        for sock in self._closed_sockets:
            sock.close()
        self._closed_sockets.clear()
        self._epoll.close()
        wake_fd, self._wake_fd = self._wake_fd, -1  # the number is somebody else's from now on: `wake` may still come
        os.close(wake_fd)
