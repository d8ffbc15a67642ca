"""The metadata log of one node that is the whole quorum.

Owns `__cluster_metadata-0` of the metadata directory: the log (a `storage.log.Log`), its snapshots and the
`quorum-state` file.  Rules: each start leads in a new epoch, which is in `quorum-state` before the first batch of it
is in the log (a broken file stops the start, K05); the high watermark is the flushed end of the log; who appends is
told through `on_commit` once the high watermark has passed.  Called from the loop; fsync runs on the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.base.ports import Disk, Pool
from stratalog.base.types import Millis, Uuid


class Quorum:
    """One voter, always the leader."""

    on_commit: Callable[[int], None]
    """Called on the loop with the new high watermark."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        pool: Pool,
        directory: str,
        *,
        node_id: int,
        directory_id: Uuid,
        cluster_id: str,
        now: Millis,
        fsync: bool = True,
    ) -> Quorum:
        """Open `directory/__cluster_metadata-0`, made when missing."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        raise NotImplementedError

    def append(self, values: Sequence[bytes], now: Millis) -> int:
        """Append records as one batch; returns the offset of the last one.  The flush is asked for by this call and
        shared by all appends until it starts."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush and close."""
        raise NotImplementedError
