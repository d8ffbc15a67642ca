"""Records of `__share_group_state`: delivery states of share partitions, as whole snapshots and as updates to them.

A key begins with an int16, the record's type (0 snapshot, 1 update); a value with an int16, its version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, tag, uuid


class ShareSnapshotKey(Message):
    api_key = 0
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message):
    api_key = 0
    versions = (0, 0)
    flexible = 0

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = tag(0, int32(default=-1), since=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message):
    api_key = 1
    versions = (0, 0)
    flexible = None

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class ShareUpdateValue(Message):
    api_key = 1
    versions = (0, 0)
    flexible = 0

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = tag(0, int32(default=-1), since=0)
    state_batches: list[StateBatch] = array(StateBatch)


RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
"""Record type (the int16 in front of a key) to the classes of key and value."""
