"""Reading records between offsets: batches in, records out, aborted transactions and control batches left out."""

from __future__ import annotations

from collections.abc import Iterator

from stratalog.base.types import Buffer
from stratalog.client.client import Client
from stratalog.records.batch import BatchHeader, Record, batches, check, records_of
from stratalog.records.control import marker_of


class AbortedFilter:
    """Which batches of a fetch belong to aborted transactions (KIP-98): a producer's transaction is aborted from its
    first offset in the list until its abort marker."""

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda pair: pair[1])
        self._active: set[int] = set()

    def drops(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Whether the batch's records are not for applications; call it for every batch, in order."""
        while self._coming and self._coming[0][1] <= header.last_offset:
            self._active.add(self._coming.pop(0)[0])
        if header.is_control:
            if marker_of(buffer, header) is not None:  # the transaction ends here, this way or that
                self._active.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._active


def visible_batches(
    buffer: Buffer, aborted: list[tuple[int, int]], *, committed: bool = True
) -> Iterator[tuple[BatchHeader, bool]]:
    """Whole batches of a fetch with whether their records are for applications; CRCs are checked."""
    drops = AbortedFilter(aborted if committed else [])
    for header in batches(buffer):
        check(buffer, header)
        yield header, not drops.drops(buffer, header)


def records_between(
    client: Client,
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    *,
    committed: bool = True,
    max_wait_ms: int = 500,
    partition_max_bytes: int = 4 << 20,
) -> Iterator[Record]:
    """Records of one partition in [start, end); without an end it follows the log for ever."""
    position = start
    while end is None or position < end:
        fetched = client.fetch(
            topic,
            {partition: position},
            committed=committed,
            max_wait_ms=max_wait_ms,
            partition_max_bytes=partition_max_bytes,
            max_bytes=max(partition_max_bytes, 8 << 20),
        )
        moved = position
        for part in fetched:
            for header, visible in visible_batches(part.records, part.aborted, committed=committed):
                if header.next_offset <= position:
                    continue
                if visible:
                    for record in records_of(part.records, header):
                        if record.offset < position:
                            continue
                        if end is not None and record.offset >= end:
                            return
                        yield record
                moved = max(moved, header.next_offset)
        if end is not None and moved == position and not any(len(part.records) for part in fetched):
            bound = min((p.last_stable_offset if committed else p.high_watermark for p in fetched), default=end)
            if 0 <= bound <= position:
                return  # the log ends here although the caller expected more: a transaction is open, or it was cut
        position = moved
