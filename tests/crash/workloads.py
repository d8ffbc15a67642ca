"""The workloads whose every crash is tried.  Each returns a recording: a disk with its journal, and a timeline."""

import dataclasses

from crash_kit import CONFIG, DATA, NOW, PARTITION, Row, State, World, new_disk, open_log

from stratalog.records import batch as batches

COMPACT = dataclasses.replace(CONFIG, cleanup_policy=("compact",))


def appends():
    """Plain, idempotent and compressed appends over several segments, flushes, recovery points."""
    world = World()
    for i in range(26):
        world.append(1 + i % 3, pid=(None, 7, 8)[i % 3], codec=(0, 0, 0, 1)[i % 4])
        if i % 9 == 4:
            world.flush()
        if i % 9 == 6:
            world.checkpoint()
        if i % 8 == 3:
            world.checkpoint_high_watermark()
    world.roll()
    world.append()
    world.flush()
    world.checkpoint()
    world.append(2, pid=7)
    return world.recording("appends")


def transactions():
    """Two producers with interleaved transactions, committed and aborted, over several segments; epochs bump."""
    world = World()
    epochs = {1: 0, 2: 0}
    for i in range(7):
        world.append(2, pid=1, txn=True, epoch=epochs[1])
        world.append(1, pid=2, txn=True, epoch=epochs[2])
        world.append(1, pid=3)
        if i in (0, 2):
            world.flush()
        if i == 3:
            world.checkpoint()
        epochs[1] += 1
        world.marker(1, commit=i % 3 == 0, epoch=epochs[1])
        if i % 2:
            world.append(1)
            epochs[2] += 1
            world.marker(2, commit=i % 4 == 1, epoch=epochs[2])
        if i in (1, 4):
            world.flush()
            world.checkpoint()
    world.flush()
    world.append(1, pid=1, txn=True, epoch=epochs[1])
    world.roll()
    world.append(1, pid=1, txn=True, epoch=epochs[1])
    return world.recording("transactions")


def truncations():
    """A follower's life: other leaders, truncated tails, whole segments gone, a new start far ahead."""
    world = World()
    for i in range(14):
        if i % 5 == 0:
            world.new_epoch()
        world.append(1 + i % 2, pid=5 if i % 2 else None)
    world.flush()
    world.checkpoint()
    for _ in range(4):
        world.append(1, pid=5)
    world.truncate(world.line[-2].base)
    world.new_epoch()
    world.append(2, pid=5)
    world.flush()
    world.checkpoint()
    world.truncate(world.line[4].base)
    world.new_epoch()
    for _ in range(5):
        world.append(1)
    world.flush()
    world.start_at(100)
    world.new_epoch()
    for _ in range(4):
        world.append(1, pid=6)
    world.flush()
    world.checkpoint()
    world.append(1, pid=6)
    world.flush()
    world.truncate(world.line[-3].base)
    world.close()
    world.reopen()
    return world.recording("truncations")


def deletions():
    """DeleteRecords, retention of segments, log starts on disk."""
    world = World()
    for i in range(20):
        world.append(1 + i % 2, pid=(4, None)[i % 2])
    world.flush()
    world.checkpoint()
    world.delete_records(world.line[5].base)
    world.checkpoint()
    world.delete_segments(1)
    world.append(2, pid=4)
    world.delete_segments(1)
    world.checkpoint()
    for _ in range(8):
        world.append(1)
    world.delete_records(world.log.high_watermark - 3)
    world.flush()
    world.checkpoint()
    world.delete_segments(len(world.log.segments) - 1)
    world.checkpoint()
    world.append(1, pid=4)
    world.flush()
    world.checkpoint()
    return world.recording("deletions")


def restarts():
    """Clean stops and starts; what a marker says must be true (ST-10)."""
    world = World()
    for i in range(6):
        world.append(1 + i % 3, pid=9)
    world.close()
    world.reopen()
    for i in range(7):
        world.append(1, pid=9 if i % 2 else None)
    world.flush()
    world.append(1, pid=9)
    world.close()
    world.reopen()
    world.close()
    world.reopen()
    world.append(3)
    world.delete_records(5)
    world.flush()
    world.roll()  # behind the last flush
    world.close()
    return world.recording("restarts")


def cleaning():
    """What the cleaner does: several segments into one, twice, the second over the first's result (LM-5)."""
    world = World(COMPACT)
    for i in range(30):
        world.append(1, pid=(None, 3)[i % 2], keys=[b"k%d" % (i % 4)])
    world.flush()
    world.checkpoint()
    world.swap(2, keep=lambda row: row.base % 3 == 0)
    world.append(1, keys=[b"k"])
    world.swap(2, keep=lambda row: row.base % 2 == 0)
    for _ in range(6):
        world.append(1, keys=[b"k"], pid=3)
    world.flush()
    world.swap(len(world.log.segments) - 1, keep=lambda row: False)
    world.append(1, keys=[b"k"])
    return world.recording("cleaning")


def splitting():
    """A segment whose offsets outgrow an index, as old cleaners left it: the load splits it (D05)."""
    disk = new_disk()
    disk.mkdir(PARTITION)
    rows = []
    bases = [0, 4, 9, (1 << 31) - 3, (1 << 31) + 2, (1 << 31) + 50, (1 << 32) + 8, (1 << 32) + 20]
    data = b""
    for i, base in enumerate(bases):
        builder = batches.BatchBuilder(
            base_offset=base, leader_epoch=0, producer_id=2, producer_epoch=0, base_sequence=i
        )
        builder.append(NOW - 2_000_000 + i, b"k%d" % i, b"v" * 40)
        raw = bytes(builder.build())
        rows.append(Row(base, base, raw))
        data += raw
    path = f"{PARTITION}/{0:020d}.log"
    file = disk.open(path, create=True)
    file.pwritev([data], 0)
    file.fsync()
    for directory in (PARTITION, DATA, "/"):
        disk.fsync_dir(directory)
    base = len(disk.journal)
    world = World.__new__(World)
    world.config, world.disk, world.start = COMPACT, disk, base
    world.sequences, world.epoch, world.time, world.count = {}, 0, NOW - 1_000_000, 0
    world.state = State(lines=(tuple(rows),), floor=rows[-1].last + 1, config=COMPACT)
    world.timeline = [(base, world.state)]
    world.log = open_log(disk, COMPACT)
    world.flush()
    world.append(1, keys=[b"k"])
    world.flush()
    world.checkpoint()
    return world.recording("splitting")


def following():
    """A follower's appends of whole fetches, with a gap at the start as after tiering, and recovery points."""
    leader = World()
    for i in range(16):
        if i % 6 == 0:
            leader.new_epoch()
        leader.append(1 + i % 2, pid=(None, 11)[i % 2])
    world = World()
    rows = leader.line
    world.state = world.state._replace(assigned=leader.state.assigned)
    for i in range(0, len(rows), 3):
        world.follow(rows[i : i + 3])
        if i % 6 == 3:
            world.flush()
            world.checkpoint()
    return world.recording("following")


def compaction():
    """The cleaner itself, twice over the same keys, with tombstones: what a consumer of the latest values sees never
    changes (LM-4), and each swap is all or nothing (LM-5)."""
    world = World(COMPACT)
    for turn in range(2):
        for i in range(24):
            world.append(2, keys=[b"k%d" % (i % 5), b"q%d" % (i % 7)], pid=(None, 3)[i % 2])
        world.roll()
        world.flush()
        world.checkpoint()
        world.clean()
        world.append(1, keys=[b"k%d" % turn])
        world.flush()
        world.checkpoint()
    return world.recording("compaction")


WORKLOADS = {
    one.__name__: one
    for one in (appends, transactions, truncations, deletions, restarts, cleaning, compaction, splitting, following)
}
