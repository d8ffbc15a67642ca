"""What a coordinator makes of a log that it did not write: transactions, gaps, records of others, damage."""

from __future__ import annotations

import random
import time

import pytest

from stratalog.coordinator.group import disk
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.events import Commit
from stratalog.records import batch as v2
from stratalog.records.control import build_marker


def add(world, *records, producer_id: int = -1) -> None:
    """A batch of somebody else's at the end of the log."""
    builder = v2.BatchBuilder(
        base_offset=world.log.log_end_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )
    for key, value in records:
        builder.append(1, key, value)
    world.log.add(bytes(builder.build()))


def end(world, producer_id: int, committed: bool) -> None:
    marker = build_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=1,
        base_offset=world.log.log_end_offset,
    )
    world.log.add(bytes(marker))


def offset(value: int, partition: int = 0, group: str = "g"):
    return disk.offset_record(group, "t", partition, Commit(value, -1, "", 1_700_000_000_000))


def test_offsets_in_a_transaction_count_when_it_commits(world):
    add(world, offset(1), offset(1, 1))
    add(world, offset(5), producer_id=7)
    add(world, offset(6, 1), producer_id=8)
    end(world, 8, committed=False)
    end(world, 7, committed=True)
    world.start()
    assert world.offsets() == {("t", 0): 5, ("t", 1): 1}


def test_an_open_transaction_is_unstable(world):
    add(world, offset(1), offset(1, 1))
    add(world, offset(5), producer_id=7)
    world.start()
    assert world.offsets() == {("t", 0): 1, ("t", 1): 1}
    found = world.send(ev.FetchOffsets, "g", None, require_stable=True)[0].topics[0][2]
    assert [(f.partition, f.offset, f.error.name) for f in found] == [
        (0, -1, "UNSTABLE_OFFSET_COMMIT"),
        (1, 1, "NONE"),
    ]


def test_a_later_plain_commit_wins_over_a_transaction_that_ends_after_it(world):
    """G04, KAFKA-5600: by the place of the commit in the log, not of its marker."""
    add(world, offset(5), producer_id=7)
    add(world, offset(9))
    end(world, 7, committed=True)
    world.start()
    assert world.offsets() == {("t", 0): 9}


def test_a_tombstone_takes_a_pending_offset_along(world):
    add(world, offset(5), producer_id=7)
    add(world, disk.offset_tombstone("g", "t", 0))
    end(world, 7, committed=True)
    world.start()
    assert world.offsets() == {}


@pytest.mark.parametrize("seed", range(5))
def test_tombstones_of_a_group_may_come_in_any_order(world, seed):
    """G08, KAFKA-17306."""
    value = disk.GroupValue("consumer", 3, None, None, 1_700_000_000_000)
    add(world, disk.group_record("g", value), offset(1), offset(2, 1), offset(3, 2))
    stones = [disk.group_tombstone("g"), *(disk.offset_tombstone("g", "t", p) for p in (0, 1, 2, 9))]
    random.Random(seed).shuffle(stones)
    for stone in stones:
        add(world, stone)
    add(world, disk.group_tombstone("never there"))
    world.start()
    assert not world.shard.groups and world.shard.offsets.count == 0


def test_records_of_other_protocols_are_left_alone(world):
    """KIP-848, share and streams groups in a log that Kafka wrote."""
    for kind in (3, 4, 5, 6, 7, 8, 10, 15, 16, 17, 19, 23, 99):
        add(world, (kind.to_bytes(2, "big") + b"\x00\x01g", b"\x00\x00whatever"))
    add(world, (b"\x00\x03\x00\x01h", None), offset(4))
    world.start()
    assert world.offsets() == {("t", 0): 4}
    assert world.shard.records_ignored == 14


def test_a_record_that_cannot_be_read_does_not_take_the_others_away(world):
    add(world, (b"\x00\x01\x00\x05g", b"\x00\x04"), (b"\x00\x02\x00\x01g", b"\xff\xff"), (b"\x00", b""), offset(4))
    world.start()
    assert world.offsets() == {("t", 0): 4}
    assert world.shard.records_malformed == 3


def test_commits_of_versions_to_come_are_read(world):
    key, value = offset(4)
    add(world, (key, b"\x00\x09" + value[2:-1] + b"\x01\x30\x01x"))
    world.start()
    assert world.offsets() == {("t", 0): 4}


def test_the_last_commit_wins_whatever_a_stretch_holds(world):
    numbers = random.Random(3)
    wanted = {}
    for _ in range(200):
        batch = []
        for _ in range(numbers.randrange(1, 5)):
            partition, value = numbers.randrange(4), numbers.randrange(100)
            if numbers.random() < 0.1:
                batch.append(disk.offset_tombstone("g", "t", partition))
                wanted.pop(("t", partition), None)
            else:
                batch.append(offset(value, partition))
                wanted["t", partition] = value
        add(world, *batch)
    world.start()
    assert world.offsets() == wanted


def test_loading_is_quick_enough_for_a_restart(make_world):
    """A partition with 100,000 commits by a few groups: well under a second of CPU; a regression to decoding each
    record anew would take five times as long."""
    world = make_world()
    base = 0
    for _ in range(200):
        builder = v2.BatchBuilder(base_offset=base)
        for n in range(500):
            key, value = disk.offset_record(f"group-{n % 10}", "a-topic", n % 100, Commit(base + n, 0, "", 1))
            builder.append(1, key, value)
        base += 500
        world.log.add(bytes(builder.build()))
    began = time.process_time()
    world.start()
    took = time.process_time() - began
    assert world.shard.offsets.count == 100
    assert world.runtime.records_loaded == 100_000
    assert took < 1.5
