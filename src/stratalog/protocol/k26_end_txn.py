"""EndTxn, API key 26.

Behaviour
  Commits or aborts the open transaction. The coordinator replies when the decision is stored; markers go to the
  partitions afterwards.

Version notes
  2: PRODUCER_FENCED may come.
  3: flexible.
  4: TRANSACTION_ABORTABLE may come.
  5: the epoch rises with every transaction, the reply brings the producer's next id and epoch.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message):
    api_key = 26
    versions = (0, 5)
    flexible = 3
    one_of_each = True

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message):
    api_key = 26
    versions = (0, 5)
    flexible = 3
    one_of_each = True

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1, ignorable=True)
    producer_epoch: int = int16(since=5, default=-1, ignorable=True)
