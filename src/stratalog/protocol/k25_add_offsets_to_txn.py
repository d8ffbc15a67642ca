"""AddOffsetsToTxn, API key 25.

Behaviour
  A producer adds a group's offsets partition to its open transaction, before TxnOffsetCommit.

Version notes
  2: PRODUCER_FENCED may come.
  3: flexible.
  4: TRANSACTION_ABORTABLE may come. Not sent under transaction version 2.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message):
    api_key = 25
    versions = (0, 4)
    flexible = 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message):
    api_key = 25
    versions = (0, 4)
    flexible = 3

    throttle_time_ms: int = int32()
    error_code: int = int16()
