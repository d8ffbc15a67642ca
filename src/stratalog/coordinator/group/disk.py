"""The records of `__consumer_offsets`, byte for byte as Apache Kafka 4.3 writes them, and tolerant in reading.

Hand-written, because a loader decodes millions of them; `tests/coordinator/test_group_disk.py` holds them equal to the
schemas in `protocol.disk.group`.  Any thread.

A key begins with its type, a value with its version, both int16:

| type | key | value, versions read | written |
|---|---|---|---|
| 0, 1 | OffsetCommit: group, topic, partition | 0 to 4 | 4; 1 where a client named a retention |
| 2 | GroupMetadata: group | 0 to 4 | 3 |

Other types (groups of the newer protocols, share groups, streams) are kept in the log and ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stratalog.base.failures import Malformed
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.coordinator.group.events import Commit
from stratalog.rsm.shard import Record

OFFSET_COMMIT_LEGACY: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2
GROUP_METADATA_VERSION: Final = 3

_H: Final = struct.Struct(">h")
_I: Final = struct.Struct(">i")
_Q: Final = struct.Struct(">q")
_HH: Final = struct.Struct(">hh")
_HQ: Final = struct.Struct(">hq")
_HQI: Final = struct.Struct(">hqi")
_QQ: Final = struct.Struct(">qq")
_II: Final = struct.Struct(">ii")


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class MemberValue:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True)
class GroupValue:
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: list[MemberValue] = field(default_factory=list)


# --- writing ------------------------------------------------------------------------------------------------------
def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group = group_id.encode()
    name = topic.encode()
    return b"".join((_HH.pack(OFFSET_COMMIT, len(group)), group, _H.pack(len(name)), name, _I.pack(partition)))


def offset_record(group_id: str, topic: str, partition: int, commit: Commit) -> Record:
    metadata = commit.metadata.encode()
    key = offset_key(group_id, topic, partition)
    if commit.expire_ms >= 0:
        return Record(
            key,
            b"".join(
                (
                    _HQ.pack(1, commit.offset),
                    _H.pack(len(metadata)),
                    metadata,
                    _QQ.pack(commit.commit_ms, commit.expire_ms),
                )
            ),
        )
    has_id = commit.topic_id != ZERO_UUID
    return Record(
        key,
        b"".join(
            (
                _HQI.pack(4, commit.offset, commit.leader_epoch),
                _uvarint(len(metadata) + 1),
                metadata,
                _Q.pack(commit.commit_ms),
                b"\x01\x00\x10" + commit.topic_id if has_id else b"\x00",
            )
        ),
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(offset_key(group_id, topic, partition), None)


def group_key(group_id: str) -> bytes:
    return _H.pack(GROUP_METADATA) + _string(group_id)


def group_record(group_id: str, value: GroupValue) -> Record:
    parts = [
        _H.pack(GROUP_METADATA_VERSION),
        _string(value.protocol_type),
        _I.pack(value.generation),
        _string(value.protocol),
        _string(value.leader),
        _Q.pack(value.state_ms),
        _I.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _II.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _I.pack(len(member.subscription)),
            member.subscription,
            _I.pack(len(member.assignment)),
            member.assignment,
        )
    return Record(group_key(group_id), b"".join(parts))


def group_tombstone(group_id: str) -> Record:
    return Record(group_key(group_id), None)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _H.pack(len(raw)) + raw


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- reading ------------------------------------------------------------------------------------------------------
def key_type(key: bytes) -> int:
    """The record type in front of a key; `Malformed` when there is none."""
    if len(key) < 2:
        raise Malformed("a key of the offsets topic is cut off")
    return int(_H.unpack_from(key)[0])


def read_offset_key(key: bytes) -> OffsetKey:
    try:
        length = _H.unpack_from(key, 2)[0]
        at = 4 + length
        name_length = _H.unpack_from(key, at)[0]
        stop = at + 2 + name_length
        if length < 0 or name_length < 0 or stop + 4 > len(key):
            raise Malformed("an offset key's lengths do not fit", position=2)
        return OffsetKey(key[4:at].decode(), key[at + 2 : stop].decode(), _I.unpack_from(key, stop)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"an offset key does not decode: {error}") from error


def read_offset_value(value: bytes, record_offset: int) -> Commit:
    """Versions 0 to 4; a later one is read as version 4, whose fields it must keep (KIP-915)."""
    try:
        version, offset = _HQ.unpack_from(value)
        if version < 0:
            raise Malformed(f"an offset commit has version {version}")
        if version >= 4:
            return _read_flexible_commit(value, offset, record_offset)
        at = 10
        epoch = -1
        if version == 3:
            epoch = _I.unpack_from(value, at)[0]
            at += 4
        length = _H.unpack_from(value, at)[0]
        at += 2
        stop = at + length
        if length < 0 or stop > len(value):
            raise Malformed("an offset commit's metadata is cut off", position=at)
        expire_ms = -1
        if version == 1:
            commit_ms, expire_ms = _QQ.unpack_from(value, stop)
        else:
            commit_ms = _Q.unpack_from(value, stop)[0]
        return Commit(offset, epoch, value[at:stop].decode(), commit_ms, expire_ms, ZERO_UUID, record_offset)
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"an offset commit does not decode: {error}") from error


def _read_flexible_commit(value: bytes, offset: int, record_offset: int) -> Commit:
    epoch = _I.unpack_from(value, 10)[0]
    length, at = _read_uvarint(value, 14)
    stop = at + length - 1
    if length == 0 or stop > len(value):
        raise Malformed("an offset commit's metadata is cut off", position=at)
    commit_ms = _Q.unpack_from(value, stop)[0]
    topic_id = ZERO_UUID
    position = stop + 8
    if len(value) > position and value[position]:
        for tag, content in _tags(value, position):
            if tag == 0:
                if len(content) != 16:
                    raise Malformed("an offset commit's topic id has the wrong size", position=position)
                topic_id = Uuid(content)
    return Commit(offset, epoch, value[at:stop].decode(), commit_ms, -1, topic_id, record_offset)


def read_group_key(key: bytes) -> str:
    return _Reader(key, 2, flexible=False).string()


def read_group_value(value: bytes) -> GroupValue:
    """Versions 0 to 4; a later one is read as version 4."""
    try:
        version = _H.unpack_from(value)[0]
        if version < 0:
            raise Malformed(f"group metadata has version {version}")
        reader = _Reader(value, 2, flexible=version >= 4)
        protocol_type = reader.string()
        generation = reader.int32()
        protocol = reader.nullable_string()
        leader = reader.nullable_string()
        state_ms = reader.int64() if version >= 2 else -1
        members = []
        for _ in range(reader.count()):
            member_id = reader.string()
            instance_id = reader.nullable_string() if version >= 3 else None
            client_id = reader.string()
            client_host = reader.string()
            rebalance_ms = reader.int32() if version >= 1 else -1
            session_ms = reader.int32()
            if rebalance_ms < 0:
                rebalance_ms = session_ms
            subscription = reader.bytes()
            assignment = reader.bytes()
            reader.tags()
            members.append(
                MemberValue(
                    member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription, assignment
                )
            )
        reader.tags()
        return GroupValue(protocol_type, generation, protocol, leader, state_ms, members)
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"group metadata does not decode: {error}") from error


def _read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise Malformed("an unsigned varint is cut off or too long", position=position)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _tags(data: bytes, position: int) -> list[tuple[int, bytes]]:
    count, position = _read_uvarint(data, position)
    tags = []
    if count > len(data):
        raise Malformed(f"{count} tagged fields do not fit", position=position)
    for _ in range(count):
        tag, position = _read_uvarint(data, position)
        size, position = _read_uvarint(data, position)
        if size > len(data) - position:
            raise Malformed("a tagged field is cut off", position=position)
        tags.append((tag, data[position : position + size]))
        position += size
    return tags


class _Reader:
    """A cursor for the rare record, group metadata."""

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: bytes, position: int, *, flexible: bool) -> None:
        self.data = data
        self.position = position
        self.flexible = flexible

    def int32(self) -> int:
        self.position += 4
        return int(_I.unpack_from(self.data, self.position - 4)[0])

    def int64(self) -> int:
        self.position += 8
        return int(_Q.unpack_from(self.data, self.position - 8)[0])

    def _uvarint(self) -> int:
        value, self.position = _read_uvarint(self.data, self.position)
        return value

    def count(self) -> int:
        count = self._uvarint() - 1 if self.flexible else self.int32()
        if not 0 <= count <= len(self.data) - self.position:
            raise Malformed(f"an array of {count} does not fit", position=self.position)
        return count

    def _take(self, length: int) -> bytes:
        start = self.position
        if not 0 <= length <= len(self.data) - start:
            raise Malformed(f"a field of {length} bytes does not fit", position=start)
        self.position = start + length
        return self.data[start : self.position]

    def bytes(self) -> bytes:
        return self._take(self._uvarint() - 1 if self.flexible else self.int32())

    def nullable_string(self) -> str | None:
        if self.flexible:
            length = self._uvarint() - 1
        else:
            length = int(_H.unpack_from(self.data, self.position)[0])
            self.position += 2
        if length == -1:
            return None
        return self._take(length).decode()

    def string(self) -> str:
        try:
            text = self.nullable_string()
        except (struct.error, UnicodeDecodeError) as error:
            raise Malformed(f"a string does not decode: {error}", position=self.position) from error
        if text is None:
            raise Malformed("a string that must be there is null", position=self.position)
        return text

    def tags(self) -> None:
        if not self.flexible:
            return
        for _ in range(self._uvarint()):
            self._uvarint()
            self._take(self._uvarint())
