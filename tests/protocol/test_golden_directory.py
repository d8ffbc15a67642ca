"""What a real broker left in its directory, read with the classes of `protocol.disk` and written back.

`tools/golden/conversation.py` recorded the records of the internal logs and the small files of Apache Kafka 4.3.1
after topics, groups of the classic, the consumer and the share protocol, and transactions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from crc32c import crc32c

import golden_frames
from stratalog.base.types import ZERO_UUID
from stratalog.protocol.disk import (
    consumer_protocol,
    control,
    group,
    metadata,
    quorum,
    share,
    share_group,
    snapshot,
    streams_group,
    txn,
)
from stratalog.protocol.schema import Message

GROUP_RECORDS = {**group.RECORDS, **share_group.RECORDS, **streams_group.RECORDS}
ROWS = [json.loads(row) for row in (golden_frames.GOLDEN / "directory.jsonl").read_text(encoding="utf-8").splitlines()]


def raw(row: dict[str, Any], part: str) -> bytes | None:
    return None if row[part] is None else bytes.fromhex(row[part])


def records(log: str, *, is_control: bool = False) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (raw(row, "key"), raw(row, "value")) for row in ROWS if row.get("log") == log and row["control"] == is_control
    ]


def files(kind: str) -> list[bytes]:
    return [bytes.fromhex(row["bytes"]) for row in ROWS if row.get("file") == kind]


def number(data: bytes, position: int = 0) -> int:
    return int.from_bytes(data[position : position + 2], "big", signed=True)


def prefixed(cls: type[Message], data: bytes) -> Message:
    """A message behind its version, which is written back to the same bytes."""
    version = number(data)
    message = cls.decode(data[2:], version)
    assert data[:2] + message.encode_bytes(version) == data
    return message


def keyed(log: str, tables: dict[int, tuple[type[Message], type[Message]]]) -> dict[int, list[tuple[Any, Any]]]:
    """The records of a coordinator's log by type, keys and values decoded."""
    found: dict[int, list[tuple[Any, Any]]] = {}
    for key, value in records(log):
        assert key is not None
        kind = number(key)
        key_class, value_class = tables[kind]
        decoded = key_class.decode(key[2:], 0)
        assert key[:2] + decoded.encode_bytes(0) == key
        found.setdefault(kind, []).append((decoded, None if value is None else prefixed(value_class, value)))
    return found


def test_group_records_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: the int16 in front of a key is the record's type, in front of a value its
    version."""
    found = keyed("__consumer_offsets", GROUP_RECORDS)
    assert {1, 2, 3, 5, 6, 7, 8, 10, 11} <= found.keys()
    assert any(key.topic == "plain" and value and value.offset > 0 for key, value in found[1])
    assert any(value is None for pairs in found.values() for _, value in pairs)
    members = [member for _, value in found[2] if value is not None for member in value.members]
    assert members
    for member in members:
        subscription = prefixed(consumer_protocol.ConsumerProtocolSubscription, member.subscription)
        assert isinstance(subscription, consumer_protocol.ConsumerProtocolSubscription)
        assert subscription.topics == ["plain"]
        assignment = prefixed(consumer_protocol.ConsumerProtocolAssignment, member.assignment)
        assert isinstance(assignment, consumer_protocol.ConsumerProtocolAssignment)
        assert [part.topic for part in assignment.assigned_partitions] == ["plain"]


def test_transaction_records_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: TransactionLogKey 0, TransactionLogValue 0-1."""
    found = keyed("__transaction_state", {0: (txn.TransactionLogKey, txn.TransactionLogValue)})
    values = [value for _, value in found[0] if value is not None]
    assert values and all(value.producer_id >= 0 for value in values)
    assert any(value.transaction_partitions for value in values)


def test_share_state_records_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: share snapshots 0 and updates 1."""
    found = keyed("__share_group_state", share.RECORDS)
    assert found.keys() == {0, 1}
    assert {key.group_id for key, _ in found[0]} == {"s"}


def test_metadata_records_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: frame version, id and version as varints, then the record."""
    found: dict[str, list[Message]] = {}
    for key, value in records("__cluster_metadata"):
        assert key is None and value is not None
        frame, kind, version = value[:3]  # each below 128, so one byte
        assert frame == 1
        message = metadata.RECORDS[kind].decode(value[3:], version)
        assert value[:3] + message.encode_bytes(version) == value
        found.setdefault(type(message).__name__, []).append(message)
    topics = [record for record in found["TopicRecord"] if isinstance(record, metadata.TopicRecord)]
    assert "plain" in {record.name for record in topics}
    assert all(record.topic_id != ZERO_UUID for record in topics)
    expected = {"RegisterBrokerRecord", "RegisterControllerRecord", "FeatureLevelRecord", "PartitionRecord"}
    later = {"PartitionChangeRecord", "ConfigRecord", "ClientQuotaRecord", "RemoveTopicRecord", "NoOpRecord"}
    assert expected | later <= found.keys()


def test_control_records_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: types 2 to 6 begin with their own version field."""
    seen = set()
    for key, value in records("__cluster_metadata", is_control=True):
        assert key is not None and value is not None
        kind = control.ControlRecordTypeSchema.decode(key[2:], number(key))
        cls = control.VALUES[kind.type]
        message: Any = cls.decode(value, number(value))
        assert message.version == number(value)
        assert message.encode_bytes(message.version) == value
        seen.add(kind.type)
    assert seen == {
        control.LEADER_CHANGE,
        control.SNAPSHOT_HEADER,
        control.SNAPSHOT_FOOTER,
        control.KRAFT_VERSION,
        control.KRAFT_VOTERS,
    }


def test_producer_snapshots_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: CRC32C after 6 bytes, of what follows it."""
    snapshots = files("snapshot")
    entries = 0
    for data in snapshots:
        state = prefixed(snapshot.ProducerSnapshot, data)
        assert isinstance(state, snapshot.ProducerSnapshot)
        assert state.crc == crc32c(data[6:])
        entries += len(state.producer_entries)
    assert entries > 0


def test_transaction_indexes_of_kafka_are_read_and_written_back():
    """api-surface.md, On-disk schemas: 34 bytes for each aborted transaction."""
    indexes = files("txnindex")
    assert indexes
    for data in indexes:
        assert len(data) % 34 == 0
        for position in range(0, len(data), 34):
            entry = prefixed(snapshot.AbortedTxn, data[position : position + 34])
            assert isinstance(entry, snapshot.AbortedTxn)
            assert entry.first_offset <= entry.last_offset


def test_the_quorum_state_of_kafka_has_the_keys_of_its_class():
    """api-surface.md, On-disk schemas: quorum-state is a JSON text."""
    (data,) = files("quorum-state")
    state = json.loads(data)
    version = state.pop("data_version")
    known = {
        field.kafka_name[:1].lower() + field.kafka_name[1:]
        for field in quorum.QuorumStateData.__fields__
        if field.exists_in(version)
    }
    assert state.keys() == known


@pytest.mark.parametrize("part", ["log", "file"])
def test_the_recording_names_what_it_holds(part: str):
    """A recording that lost its lines would prove nothing."""
    assert len([row for row in ROWS if part in row]) >= 4
