"""Control records: their type, and the keys and values of transaction markers, built and read with `struct`.

A control record's key is a version and a type, both int16.  Only the end-transaction markers' values are read here,
because recovery wants them for every batch; the quorum's own records (leader change, snapshot header and footer,
voters) have their schemas in `protocol.disk`, and their keys here.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from stratalog.base.types import Buffer
from stratalog.records.batch import BatchHeader, build_control_batch, records_of
from stratalog.records.errors import CorruptBatch

ABORT: Final = 0
COMMIT: Final = 1
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    committed: bool
    coordinator_epoch: int


def key(kind: int) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, kind)


def read_type(key: Buffer | None) -> int:
    """The type in a control record's key; newer versions of the key have it at the same place."""
    if key is None or len(key) < 4:
        raise CorruptBatch("a control record has no type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"a control record's key has version {version}")
    return int(kind)


def marker_value(coordinator_epoch: int) -> bytes:
    return _MARKER.pack(0, coordinator_epoch)


def read_marker(key: Buffer | None, value: Buffer | None) -> EndTransactionMarker:
    """The marker behind a control record of type ABORT or COMMIT."""
    kind = read_type(key)
    if kind not in (ABORT, COMMIT):
        raise CorruptBatch(f"a control record of type {kind} is no transaction marker")
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch("a transaction marker is cut off")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"a transaction marker has version {version}")
    return EndTransactionMarker(kind == COMMIT, epoch)


def marker_of(buffer: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in a control batch; None where it is another control record, or was compacted away."""
    for record in records_of(buffer, header):
        if read_type(record.key) in (ABORT, COMMIT):
            return read_marker(record.key, record.value)
        return None
    return None


def build_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction."""
    return build_control_batch(
        timestamp,
        key(COMMIT if committed else ABORT),
        marker_value(coordinator_epoch),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )
