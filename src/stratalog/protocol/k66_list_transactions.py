"""ListTransactions, API key 66.

Behaviour
  The transactions of the broker that it is sent to, filtered by state and producer.

Version notes
  1: only those running longer than a time.
  2: ids by a regular expression.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message):
    api_key = 66
    versions = (0, 2)
    flexible = 0

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable=2, default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message):
    api_key = 66
    versions = (0, 2)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
