"""What the cleaner must know of transactions while it goes through a log from its beginning.

Fed with the aborted transactions of a range (from the transaction indexes) and then with every batch of a producer in
order, it says which batches belong to an aborted transaction, and of which transactions a marker is the last thing
left.  A marker goes only when nothing of its transaction was seen before it; then `why` it may go is a delete horizon.
Of a transaction whose aborted data is dropped now the marker stays once more, and so does its row in the new
segment's transaction index: readers of the records that are not cleaned yet need both (C02, C03, LM-8).

Keys play no part: a user's key may look like a marker's (C01).  One cleaning, one thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from stratalog.records import control
from stratalog.records.batch import BatchHeader, records_of
from stratalog.storage.values import AbortedTxn


class Transactions:
    """The open ends of one walk."""

    __slots__ = ("_aborted", "_ahead", "_committed", "retained")

    def __init__(self) -> None:
        self._ahead: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        self._committed: set[int] = set()
        self.retained: list[AbortedTxn] = []
        """Rows for the transaction index of the segment that is being written, in the order of their markers."""

    def add(self, transactions: Iterable[AbortedTxn]) -> None:
        """Aborted transactions that the next batches may belong to; one that is told twice counts once."""
        for txn in transactions:
            heapq.heappush(self._ahead, (txn.first_offset, txn))

    def _up_to(self, offset: int) -> None:
        ahead = self._ahead
        while ahead and ahead[0][0] <= offset:
            txn = heapq.heappop(ahead)[1]
            self._aborted.setdefault(txn.producer_id, (txn, False))

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional data batch belongs to an aborted transaction."""
        self._up_to(last_offset)
        found = self._aborted.get(producer_id)
        if found is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = (found[0], True)
        return True

    def marker_is_last(self, data: memoryview, header: BatchHeader) -> bool:
        """A control batch: whether nothing of its transaction is left before it."""
        self._up_to(header.last_offset)
        for record in records_of(data, header):
            kind = control.read_type(record.key)
            if kind == control.ABORT:
                found = self._aborted.pop(header.producer_id, None)
                if found is not None and found[1]:
                    self.retained.append(found[0])
                    return False
                return True
            if kind == control.COMMIT:
                if header.producer_id in self._committed:
                    self._committed.remove(header.producer_id)
                    return False
                return True
            return False
        return True  # emptied by an earlier cleaning
