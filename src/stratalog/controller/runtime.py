"""The controller on its log: append what handlers decide, publish and answer what is committed.

    submit -> handler makes records -> replayed on the head -> appended -> ... flushed ... -> image published -> reply

Loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stratalog.base.types import Millis
from stratalog.controller.controller import Controller, Result
from stratalog.metadata.image import Delta, MetadataImage

T = TypeVar("T")


class MetadataLog(Protocol):
    """The log under the controller (`raft.quorum.Quorum`)."""

    on_commit: Callable[[int], None]
    """Called on the loop with the new high watermark."""

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def append(self, values: Sequence[bytes], now: Millis) -> int:
        """Append records as one batch; returns the offset of the last one."""
        ...


class Runtime:
    """`node.controller`.  `image` is the committed state, the one that brokers read."""

    controller: Controller
    image: MetadataImage
    on_image: Callable[[Delta], None]
    """Called on the loop for each committed change, in the log's order: topics to open, configurations to apply."""

    def submit(self, handle: Callable[[Controller], Result[T]], reply: Callable[[T], None], now: Millis) -> None:
        """Run a handler; `reply(response)` is called once its records, and all before them, are committed: perhaps
        at once, inside this call, when nothing is pending.  An `ApiError` of the handler passes through.

            node.controller.submit(lambda c: c.create_topics(request.body, now), parked.reply, now)
        """
        raise NotImplementedError

    def deadline(self) -> Millis | None:
        """When `tick` has something to do."""
        raise NotImplementedError

    def tick(self, now: Millis) -> None:
        """Fence brokers whose session ended; take a snapshot when the log has grown."""
        raise NotImplementedError
