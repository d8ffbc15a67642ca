"""Records of `__transaction_state`: the state of each transactional id.

A key begins with an int16, the record's type 0; a value with an int16, its version.  A null value forgets the id.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, tag


class TransactionLogKey(Message):
    api_key = 0
    versions = (0, 0)
    flexible = None

    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message):
    api_key = 0
    versions = (0, 1)
    flexible = 1

    producer_id: int = int64()
    previous_producer_id: int = tag(0, int64(default=-1), since=1)
    next_producer_id: int = tag(1, int64(default=-1), since=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = tag(3, int16(default=-1), since=1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable=0)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = tag(2, int16(), since=1)
