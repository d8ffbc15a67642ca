"""The hand-written codec of the offsets topic against the schemas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.coordinator.group import disk
from stratalog.coordinator.group.coordinator import java_hash, partition_for
from stratalog.coordinator.group.events import Commit
from stratalog.protocol.disk import group as schema

_text = st.text(max_size=40).filter(lambda text: text.isprintable())
_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_ids = st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16).map(Uuid))


def encoded(message, version: int) -> bytes:
    return version.to_bytes(2, "big") + b"".join(bytes(part) for part in message.encode(version))


def key_of(message) -> bytes:
    return type(message).api_key.to_bytes(2, "big") + b"".join(bytes(part) for part in message.encode(0))


@given(_text, _text, _int32, st.integers(0, 2**63 - 1), _int32, st.text(max_size=300), _int64, _ids)
def test_offset_commits_are_kafkas_version_4(group, topic, partition, offset, epoch, metadata, time, topic_id):
    commit = Commit(offset, epoch, metadata, time, -1, topic_id, 77)
    key, value = disk.offset_record(group, topic, partition, commit)
    assert key == key_of(schema.OffsetCommitKey(group=group, topic=topic, partition=partition))
    message = schema.OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=time, topic_id=topic_id
    )
    assert value == encoded(message, 4)
    assert disk.read_offset_key(key) == (group, topic, partition)
    assert disk.read_offset_value(value, 77) == commit


@given(_int64, _int32, st.text(max_size=300), _int64, st.integers(0, 2**63 - 1))
def test_every_version_of_an_offset_commit_is_read(offset, epoch, metadata, time, expire):
    message = schema.OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=time, expire_timestamp=expire
    )
    for version in range(5):
        commit = disk.read_offset_value(encoded(message, version), 5)
        assert commit == Commit(
            offset,
            epoch if version >= 3 else -1,
            metadata,
            time,
            expire if version == 1 else -1,
            ZERO_UUID,
            5,
        )
    _, value = disk.offset_record("g", "t", 0, Commit(offset, epoch, metadata, time, expire))
    assert value == encoded(message, 1)


_members = st.lists(
    st.builds(
        disk.MemberValue,
        _text,
        st.one_of(st.none(), _text),
        _text,
        _text,
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**31 - 1),
        st.binary(max_size=50),
        st.binary(max_size=50),
    ),
    max_size=4,
)


@given(_text, _text, _int32, st.one_of(st.none(), _text), st.one_of(st.none(), _text), _int64, _members)
def test_group_metadata_is_kafkas_version_3(group, kind, generation, protocol, leader, time, members):
    value = disk.GroupValue(kind, generation, protocol, leader, time, members)
    message = schema.GroupMetadataValue(
        protocol_type=kind,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=time,
        members=[
            schema.MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.subscription,
                assignment=m.assignment,
            )
            for m in members
        ],
    )
    key, raw = disk.group_record(group, value)
    assert key == key_of(schema.GroupMetadataKey(group=group))
    assert raw == encoded(message, 3)
    assert disk.read_group_key(key) == group
    for version in range(5):
        read = disk.read_group_value(encoded(message, version))
        assert (read.protocol_type, read.generation, read.protocol, read.leader) == (kind, generation, protocol, leader)
        assert read.state_ms == (time if version >= 2 else -1)
        for mine, theirs in zip(members, read.members, strict=True):
            assert theirs.member_id == mine.member_id
            assert theirs.instance_id == (mine.instance_id if version >= 3 else None)
            assert theirs.rebalance_timeout_ms == (
                mine.rebalance_timeout_ms if version >= 1 else mine.session_timeout_ms
            )
            assert (theirs.subscription, theirs.assignment) == (mine.subscription, mine.assignment)


@given(st.binary(max_size=80))
def test_nonsense_is_malformed_and_nothing_else(data):
    for read in (
        disk.read_offset_key,
        disk.read_group_key,
        disk.read_group_value,
        lambda value: disk.read_offset_value(value, 0),
    ):
        try:
            read(data)
        except Malformed:
            pass


def test_a_record_that_is_cut_off_is_malformed():
    """Up to the tagged fields, which a reader may do without."""
    _, value = disk.offset_record("g", "t", 0, Commit(1, 2, "metadata", 3))
    for size in range(len(value) - 1):
        with pytest.raises(Malformed):
            disk.read_offset_value(value[:size], 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-consumer-group", 1513705513),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("käse", 3410411),
    ],
)
def test_the_hash_is_javas(text, value):
    assert java_hash(text) == value


def test_the_lowest_hash_lives_on_partition_0():
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
