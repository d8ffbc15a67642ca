"""Kafka's nouns as types.

Ranges are half-open everywhere.  Units come last in names (`timeout_ms`), and a number that means something has
a `NewType`, so that a position in a file is never handed over where an offset in the log belongs.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from stratalog.base.ports import File

Offset = NewType("Offset", int)
"""A record's place in its partition's log, from 0 on."""
Position = NewType("Position", int)
"""A byte's place in a segment file."""
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Millis = NewType("Millis", int)
"""Milliseconds since 1970, or a span of milliseconds."""
NodeId = NewType("NodeId", int)
ConnectionId = NewType("ConnectionId", int)
"""Never reused, unlike the descriptor number behind it."""

NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_TIMESTAMP: Final = Millis(-1)
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

Buffer = bytes | bytearray | memoryview


class Uuid(bytes):
    """Sixteen bytes that print as Kafka prints them: URL-safe base64 without padding, 22 characters."""

    __slots__ = ()

    def __new__(cls, raw: Buffer = bytes(16)) -> Uuid:
        value = super().__new__(cls, raw)
        if len(value) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
        return value

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """The uuid behind Kafka's text form."""
        if len(text) > 24:
            raise ValueError(f"a uuid has 22 characters, not {len(text)}: {text[:40]!r}")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError as error:
            raise ValueError(f"not a uuid in URL-safe base64: {text!r}") from error
        return cls(raw)

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


ZERO_UUID: Final = Uuid(bytes(16))
METADATA_TOPIC_ID: Final = Uuid(bytes(15) + b"\x01")
"""The topic id of `__cluster_metadata`, fixed by the format."""


class FileRegion:
    """Bytes of an open file that travel to a socket without passing through Python.

    Whoever holds a region holds the file: `file` is kept open until the last region on it is dropped, also when
    retention has deleted the segment meanwhile.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, *, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The region's bytes, for tests, TLS and conversion; shorter only where the file is."""
        return self.file.pread(self.length, self.position)

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path!r}, position={self.position}, length={self.length})"
