"""Records of the metadata log as bytes: three unsigned varints (frame version 1, record id, record version), then the
record.  Which version is written follows the metadata version, so that a Kafka of that version can read the log.
Pure; any thread.
"""

from __future__ import annotations

from typing import Final

from stratalog.base.failures import Malformed
from stratalog.base.types import Buffer
from stratalog.protocol.disk.metadata import (
    RECORDS,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from stratalog.protocol.schema import Message

FRAME_VERSION: Final = 1

_SINCE: Final[dict[type[Message], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (7, 1)),
    PartitionRecord: ((23, 2), (17, 1), (7, 0)),
    PartitionChangeRecord: ((23, 2), (17, 1), (7, 0)),
}
"""Record to (metadata version, record version), newest first; what is not in it has one version."""


def version_of(record: type[Message], metadata_version: int) -> int:
    """The version in which a cluster of this metadata version writes a record."""
    for since, version in _SINCE.get(record, ()):
        if metadata_version >= since:
            return version
    return 0


def encode(record: Message, metadata_version: int) -> bytes:
    """A record as the value of a log record."""
    kind = type(record)
    version = version_of(kind, metadata_version)
    assert kind.api_key is not None and kind.api_key < 128
    return bytes((FRAME_VERSION, kind.api_key, version)) + record.encode_bytes(version)


def decode(value: Buffer) -> Message:
    """The record behind a value; `Malformed` for what no version of Kafka 4.3 writes."""
    frame, position = _unsigned_varint(value, 0)
    if frame != FRAME_VERSION:
        raise Malformed(f"a metadata record has frame version {frame}")
    key, position = _unsigned_varint(value, position)
    version, position = _unsigned_varint(value, position)
    kind = RECORDS.get(key)
    if kind is None:
        raise Malformed(f"unknown metadata record {key}")
    low, high = kind.versions
    if not low <= version <= high:
        raise Malformed(f"{kind.__name__} has version {version}, this broker knows {low} to {high}")
    record, end = kind.decode_at(value, position, version)
    if end != len(value):
        raise Malformed(f"{len(value) - end} bytes behind a {kind.__name__}", position=end)
    return record


def _unsigned_varint(value: Buffer, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(value) or shift > 28:
            raise Malformed("a metadata record's envelope is cut off or too long", position=position)
        byte = value[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, position
        shift += 7
