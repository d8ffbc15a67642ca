"""InitProducerId, API key 22.

Behaviour
  Gives an idempotent producer its id and epoch. With a transactional id the coordinator returns the same id with the
  next epoch, which fences older instances, and ends a transaction left open. Without one any broker answers.

Version notes
  1: throttled clients get the reply at once.
  2: flexible.
  3: the producer names the id and epoch it has, to bump it by itself after an error.
  4: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.
  5: TRANSACTION_ABORTABLE may come.
  6: two-phase commit: keep the prepared transaction and return its id and epoch; not stable in Kafka 4.4, brokers
    do not offer it.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message):
    api_key = 22
    versions = (0, 6)
    flexible = 2
    one_of_each = True

    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


class InitProducerIdResponse(Message):
    api_key = 22
    versions = (0, 6)
    flexible = 2
    one_of_each = True

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = int16(since=6, default=-1)
