"""The metadata of one node: its quorum and its controller joined, its own registration, its session.

`Metadata.open` formats what is new, replays snapshot and log, leads in a new epoch, registers this broker and
publishes the first image before it returns.  Loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from stratalog.base.ports import Clock, Disk, Pool, Rng
from stratalog.base.types import Millis, Uuid
from stratalog.controller.controller import Controller, Result
from stratalog.metadata.image import Delta, Endpoint, MetadataImage

T = TypeVar("T")


class Metadata:
    """`node.controller` is one of these.  `image` is the committed state."""

    image: MetadataImage
    cluster_id: str
    directory_ids: Mapping[str, Uuid]
    """Log directory (its path) to its id."""
    broker_epoch: int
    on_image: Callable[[Delta], None]
    """Set it before the first change; called on the loop for each committed change, in the log's order."""

    @classmethod
    def open(
        cls,
        *,
        config: object,
        disk: Disk,
        pool: Pool,
        clock: Clock,
        rng: Rng,
        directories: Sequence[str],
        endpoints: Sequence[Endpoint],
        clean_shutdown_epoch: int | None,
        now: Millis,
        fsync: bool = True,
    ) -> Metadata:
        """`endpoints`: the listeners as they are advertised, ports bound already.  `clean_shutdown_epoch`: what
        `storage.checkpoints.take_clean_shutdown` gave (None: the last stop was not clean).  The broker is fenced
        until `serve` is called."""
        raise NotImplementedError

    def serve(self, now: Millis) -> None:
        """Unfence this broker: its logs are open, clients may come."""
        raise NotImplementedError

    def submit(self, handle: Callable[[Controller], Result[T]], reply: Callable[[T], None], now: Millis) -> None:
        """Run one of the controller's handlers; `reply(response)` comes once its records are committed.

            node.controller.submit(lambda c: c.create_topics(request.body, now), parked.reply, now)
        """
        raise NotImplementedError

    def deadline(self) -> Millis | None:
        """When `tick` has something to do (heartbeat, sessions, snapshot)."""
        raise NotImplementedError

    def tick(self, now: Millis) -> None:
        raise NotImplementedError

    def ensure_internal_topic(self, name: str, now: Millis) -> None:
        """Have `__consumer_offsets` (or another internal topic) created with its partitions and configuration; a
        no-op when it is there or on its way."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush and close the metadata log.  The clean-shutdown marker is the caller's, with `broker_epoch`."""
        raise NotImplementedError
