"""Producer state beside a segment: `.snapshot` and `.txnindex`.

A `.snapshot` file is an int16 version, then `ProducerSnapshot`, whose CRC-32C covers what follows the CRC field.  A
`.txnindex` file is a row of entries, each an int16 version 0 and an `AbortedTxn`: 34 bytes.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, uint32


class ProducerEntry(Struct):
    producer_id: int = int64()
    epoch: int = int16()
    last_sequence: int = int32()
    last_offset: int = int64()
    offset_delta: int = int32()
    timestamp: int = int64()
    coordinator_epoch: int = int32()
    current_txn_first_offset: int = int64()


class ProducerSnapshot(Message):
    versions = (1, 1)
    flexible = None

    crc: int = uint32()
    producer_entries: list[ProducerEntry] = array(ProducerEntry)


class AbortedTxn(Message):
    versions = (0, 0)
    flexible = None

    producer_id: int = int64()
    first_offset: int = int64()
    last_offset: int = int64()
    last_stable_offset: int = int64()
