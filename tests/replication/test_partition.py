"""Partition: who may append, what is committed, what the metadata changes."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import NodeId, Uuid
from stratalog.records.batch import BatchBuilder
from stratalog.replication.partition import Partition
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log
from stratalog.storage.values import Isolation

NOW = 1_700_000_000_000


def made(tmp_path: Any, **config: Any) -> tuple[Partition, list[Partition]]:
    dirty: list[Partition] = []
    log = Log.open(RealDisk(), str(tmp_path / "t-0"), topic="t", partition=0, config=LogConfig(**config), now_ms=NOW)
    return Partition("t", 0, Uuid(), log=log, node_id=NodeId(1), dirty=dirty), dirty


def lead(partition: Partition, *, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1,)) -> None:
    partition.apply(leader_id=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=isr, isr=isr)


def batch(*values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(NOW, None, value)
    return builder.build()


def refused(partition: Partition, acks: int = -1) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        partition.stage_append(batch(b"a"), acks, NOW)
    return caught.value.code


def test_only_the_leader_appends(tmp_path: Any) -> None:
    partition, dirty = made(tmp_path)
    assert refused(partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    lead(partition, leader=2, isr=(1, 2))
    assert refused(partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert dirty == []


def test_staged_appends_are_written_once_and_seen_after(tmp_path: Any) -> None:
    partition, dirty = made(tmp_path)
    lead(partition)
    first = partition.stage_append(batch(b"a", b"b"), -1, NOW)
    second = partition.stage_append(batch(b"c"), 1, NOW)
    assert (first.first_offset, second.first_offset) == (0, 2)
    assert dirty == [partition] and partition.log.log_end_offset == 0
    assert partition.commit(NOW) == first.size + second.size
    assert partition.log.log_end_offset == 3 and partition.high_watermark == 3


def test_alone_in_the_isr_what_is_written_is_committed(tmp_path: Any) -> None:
    """RP-1 for a cluster of one."""
    partition, _ = made(tmp_path)
    lead(partition)
    partition.stage_append(batch(b"a"), -1, NOW)
    assert not partition.is_committed(0)
    partition.commit(NOW)
    assert partition.is_committed(0) and not partition.is_committed(1)


def test_with_others_in_sync_nothing_is_committed_by_the_leader_alone(tmp_path: Any) -> None:
    """The off-by-one trap of seed 003: high watermark 0 does not commit offset 0."""
    partition, _ = made(tmp_path)
    lead(partition, isr=(1, 2))
    partition.stage_append(batch(b"a"), -1, NOW)
    partition.commit(NOW)
    assert partition.log.log_end_offset == 1 and partition.high_watermark == 0
    assert not partition.is_committed(0)
    lead(partition, epoch=1, isr=(1,))
    assert partition.is_committed(0), "the other one left: the rest of the ISR has it all"


def test_acks_all_needs_min_insync_replicas_and_acks_1_does_not(tmp_path: Any) -> None:
    """RP-7."""
    partition, _ = made(tmp_path, min_insync_replicas=2)
    lead(partition)
    assert refused(partition, acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.stage_append(batch(b"a"), 1, NOW).first_offset == 0
    lead(partition, epoch=1, isr=(1, 2))
    assert partition.stage_append(batch(b"b"), -1, NOW).first_offset == 1


def test_leader_epochs_never_go_back(tmp_path: Any) -> None:
    """RP-4."""
    partition, _ = made(tmp_path)
    lead(partition, epoch=3)
    with pytest.raises(AssertionError):
        lead(partition, epoch=2)


def test_epochs_enter_the_cache_with_their_first_batch_and_end_where_the_next_begins(tmp_path: Any) -> None:
    partition, _ = made(tmp_path)
    lead(partition, epoch=0)
    partition.stage_append(batch(b"a"), -1, NOW)
    partition.commit(NOW)
    lead(partition, epoch=5)
    assert partition.end_offset_for(0) == (0, 1)
    assert partition.end_offset_for(5) == (5, 1)
    partition.stage_append(batch(b"b"), -1, NOW)
    partition.commit(NOW)
    assert partition.end_offset_for(0) == (0, 1)
    assert partition.end_offset_for(4) == (0, 1)
    assert partition.end_offset_for(5) == (5, 2)
    assert partition.log.epochs.rows == [(0, 0), (5, 1)]


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        (-1, ErrorCode.NONE),
        (4, ErrorCode.NONE),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_clients_epoch_is_checked(tmp_path: Any, claimed: int, code: ErrorCode) -> None:
    partition, _ = made(tmp_path)
    lead(partition, epoch=4)
    assert partition.check_leader(claimed) == code


def test_after_a_disk_failure_the_replica_is_offline(tmp_path: Any) -> None:
    """ST-11."""
    partition, _ = made(tmp_path)
    lead(partition)
    partition.fail(OSError(errno.EIO, "broken"))
    assert refused(partition) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.check_leader(-1) == ErrorCode.KAFKA_STORAGE_ERROR
    lead(partition, epoch=1)
    assert not partition.is_leader, "a new epoch does not repair a disk"


def test_the_bound_of_a_reader_depends_on_what_it_may_see(tmp_path: Any) -> None:
    """ST-12."""
    partition, _ = made(tmp_path)
    lead(partition, isr=(1, 2))
    partition.stage_append(batch(b"a"), 1, NOW)
    partition.commit(NOW)
    assert partition.bound(Isolation.LOG_END) == 1
    assert partition.bound(Isolation.HIGH_WATERMARK) == 0
    assert partition.bound(Isolation.TXN_COMMITTED) == 0
