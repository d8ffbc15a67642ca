"""A request on its way through the node, and its answer.

Owned by the loop's thread.  A `Request` is at the same time the slot that keeps answers in order: the server holds
the requests of a connection in the order of their arrival and sends what is complete at the head.
`output` is None until the answer is there; an empty list is an answer that sends nothing (acks=0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stratalog.base.types import Buffer, ConnectionId, FileRegion, Millis

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.protocol.schema import Message

Output = list[Buffer | FileRegion]
"""A whole answer, size prefix and header included."""


class Peer:
    """The other end of a connection, as handlers may know it."""

    __slots__ = ("connection", "host", "listener", "port", "principal", "software", "software_version")

    def __init__(self, connection: ConnectionId, *, host: str, port: int, listener: str) -> None:
        self.connection = connection
        self.host = host
        self.port = port
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.software = ""
        self.software_version = ""


class Request:
    """One request: who, what, and its decoded body."""

    __slots__ = (
        "body",
        "client_id",
        "correlation_id",
        "frame",
        "key",
        "output",
        "peer",
        "position",
        "received_ms",
        "received_us",
        "version",
    )

    body: Any
    """The decoded message; None for the keys that decode by themselves (Produce)."""

    def __init__(
        self,
        peer: Peer,
        key: int,
        version: int,
        correlation_id: int,
        frame: memoryview,
        received_ms: Millis,
        received_us: int = 0,
    ) -> None:
        self.peer = peer
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id: str | None = None
        self.frame: memoryview | None = frame  # valid until the end of the wake-up only
        self.position = 0  # where the body begins in the frame
        self.received_ms = received_ms
        self.received_us = received_us  # on the shell's own clock, for the latency histogram
        self.output: Output | None = None

    @property
    def connection(self) -> ConnectionId:
        return self.peer.connection

    @property
    def listener(self) -> str:
        return self.peer.listener


class Parked:
    """A request whose answer comes later.  Answering twice is a bug; answering after the connection has gone is
    harmless."""

    __slots__ = ("_node", "request")

    def __init__(self, node: Node, request: Request) -> None:
        self._node = node
        self.request = request

    @property
    def answered(self) -> bool:
        return self.request.output is not None

    def reply(self, message: Message) -> None:
        """Send the answer, encoded in the request's version."""
        assert self.request.output is None, "a request is answered once"
        self._node.complete(self.request, message)


class Later:
    """The answer of a handler that will fill in the request's `output` by itself, in this turn or later."""

    __slots__ = ()


LATER: Final = Later()
