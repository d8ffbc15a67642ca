"""AddPartitionsToTxn, API key 24.

Behaviour
  A producer adds partitions to its open transaction before it writes to them (0-3). From 4 on brokers use it in
  batches, to verify that a partition is in the transaction or to add it on a producer's behalf.

Version notes
  2: PRODUCER_FENCED may come.
  3: flexible.
  4: several transactions, `verify_only`; an error for all.
  5: TRANSACTION_ABORTABLE may come.

The one transaction of versions 0 to 3 stands in the fields with `v3_and_below` in their names.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string(since=4)
    producer_id: int = int64(since=4)
    producer_epoch: int = int16(since=4)
    verify_only: bool = boolean(since=4)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)


class AddPartitionsToTxnRequest(Message):
    api_key = 24
    versions = (0, 5)
    flexible = 3
    one_of_each = True

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, since=4)


class AddPartitionsToTxnResponse(Message):
    api_key = 24
    versions = (0, 5)
    flexible = 3
    one_of_each = True

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)
