"""The broker as a value: a frame comes in, an answer goes out, and what the cores decide happens at the ports.

Owned by the loop's thread; nothing here is called from another one.  A turn of the loop is

    now = clock.now_ms()
    node.tick(now)                       # timers
    node.handle_frame(peer, frame, now)  # for each frame that has come
    node.end_of_wakeup(now)              # one write for each log that was appended to, then the answers
    send what is in node.ready

What a handler can reach: `image` (metadata that brokers read), `controller` (the write path of the metadata),
`logs`, `partitions[(topic, index)]`, `groups`, `config`, `clock`, `rng`, `disk`, `pool`, `timers`, `metrics`, `effects`.
"""

from __future__ import annotations

from typing import Any, Protocol

from stratalog.base.ports import Clock, Disk, Pool, Rng
from stratalog.base.types import ConnectionId, Millis
from stratalog.node.request import Parked, Peer, Request
from stratalog.node.timers import Callback, Timer, Timers
from stratalog.replication.partition import Partition


class Effects(Protocol):
    """What the node may do to its connections beside answering."""

    def close(self, connection: ConnectionId, reason: str) -> None: ...


class Node:
    """One broker."""

    image: Any
    """The metadata that this broker has applied (`metadata.image`); replaced, never changed."""
    controller: Any
    """The write path of the metadata (M1)."""
    groups: Any
    """The group coordinator (G1)."""
    logs: Any
    """`logs.registry.LogRegistry`."""
    config: Any
    """The broker's configuration, static and dynamic."""

    def __init__(self, *, config: Any, clock: Clock, rng: Rng, disk: Disk, pool: Pool, logs: Any, effects: Effects) -> None:
        self.config = config
        self.clock = clock
        self.rng = rng
        self.disk = disk
        self.pool = pool
        self.logs = logs
        self.effects = effects
        self.timers = Timers()
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.ready: list[Request] = []
        """Requests whose answer has come since the server last looked."""

    def handle_frame(self, peer: Peer, frame: memoryview, now: Millis) -> Request:
        """Take one frame (without its size prefix).  The request's `output` is there at once, after `end_of_wakeup`, or
        later.  `Malformed` when the frame is none of ours: the server closes the connection."""
        raise NotImplementedError

    def park(self, request: Request) -> Parked:
        """The handler's answer when it has none yet."""
        return Parked(self, request)

    def complete(self, request: Request, message: Any) -> None:
        """Encode the answer and hand it to the server; `Parked.reply` comes here."""
        raise NotImplementedError

    def at(self, deadline: Millis, callback: Callback) -> Timer:
        """Call `callback(now)` when the clock has reached the deadline."""
        return self.timers.at(deadline, callback)

    def deadline(self) -> Millis | None:
        """When `tick` has something to do."""
        raise NotImplementedError

    def tick(self, now: Millis) -> None:
        """Run the timers that are due and the cores' own."""
        raise NotImplementedError

    def end_of_wakeup(self, now: Millis) -> None:
        """Commit all staged appends, one write for each log, move high watermarks, complete what waited for them."""
        raise NotImplementedError

    def connection_closed(self, peer: Peer) -> None:
        """Forget what the connection waits for."""
        raise NotImplementedError
