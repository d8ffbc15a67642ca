"""From the log to the image: batches come in, deltas come out; a transaction of records counts at its end.

Between `BeginTransactionRecord` and `EndTransactionRecord` nothing is applied; an abort, or the end of the log, drops
what was gathered.  Loop, or the thread that loads at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stratalog.base.failures import Malformed
from stratalog.metadata import serde
from stratalog.metadata.image import LATEST_METADATA_VERSION, METADATA_VERSION, Delta, MetadataImage
from stratalog.protocol.disk.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from stratalog.protocol.schema import Message


class Loader:
    """Gathers deltas onto one image.  `image` is the state so far."""

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.image = image or MetadataImage()
        self._transaction: list[Message] | None = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def feed(self, records: Iterable[Message], *, offset: int, epoch: int) -> Delta:
        """The records of one batch (or several); `offset` is that of the last of them."""
        applied: list[Message] = []
        for record in records:
            kind = type(record)
            if kind is BeginTransactionRecord:
                if self._transaction is not None:
                    raise Malformed(f"a transaction begins inside another one before offset {offset}")
                self._transaction = []
            elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
                if self._transaction is None:
                    raise Malformed(f"a transaction ends that did not begin, before offset {offset}")
                if kind is EndTransactionRecord:
                    applied += self._transaction
                self._transaction = None
            elif self._transaction is not None:
                self._transaction.append(record)
            else:
                applied.append(record)
        delta = self.image.apply(applied, offset=offset, epoch=epoch)
        self.image = delta.image
        return delta


def load(batches: Iterable[tuple[int, int, Sequence[bytes]]]) -> Loader:
    """Replay a whole log: batches of (last offset, leader epoch, values).  `Malformed` for a log of a newer Kafka."""
    loader = Loader()
    gathered: list[Message] = []
    offset = epoch = -1
    for offset, epoch, values in batches:
        gathered += map(serde.decode, values)
        if len(gathered) >= 10_000:  # bounds the memory; one delta for many batches copies each mapping once
            loader.feed(gathered, offset=offset, epoch=epoch)
            gathered = []
    loader.feed(gathered, offset=offset, epoch=epoch)
    level = loader.image.features.get(METADATA_VERSION, 0)
    if level > LATEST_METADATA_VERSION:
        raise Malformed(
            f"the metadata log has metadata.version {level}, this broker knows up to {LATEST_METADATA_VERSION}"
        )
    return loader
