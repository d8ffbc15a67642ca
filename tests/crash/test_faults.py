"""Every disk operation of a log's life fails once: with an I/O error, or for want of space.

D07, D08, D16, D20, ST-11.  What was acknowledged stays readable while the disk fails, and is there after a restart; an
error names its file; after an I/O error nothing is appended any more, after a full disk everything goes on.
"""

import errno
import random

import pytest
from crash_kit import Row, World, check, clock, parse

from stratalog.sim.crash import Crashes
from stratalog.storage import sweep

EVERYTHING = ("write", "open", "mkdir", "truncate", "rename", "unlink", "fsync", "fsync_dir")
SPACE = ("write", "open", "mkdir")


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Which pass a recovery takes does not depend on what ran before in this process."""
    monkeypatch.setattr(sweep, "wants_kernels", lambda size: False)


STEPS = [
    lambda world: world.new_epoch(),
    *[lambda world, i=i: world.append(1 + i % 3, pid=(None, 7)[i % 2], codec=(0, 1)[i % 5 == 4]) for i in range(7)],
    lambda world: world.append(2, pid=1, txn=True),
    lambda world: world.append(1, pid=7),
    lambda world: world.flush(),
    lambda world: world.checkpoint(),
    lambda world: world.marker(1, commit=False, epoch=1),
    lambda world: world.roll(),
    *[lambda world: world.append(2, pid=7) for _ in range(4)],
    lambda world: world.truncate(world.line[-3].base),
    lambda world: world.new_epoch(),
    lambda world: world.append(1, pid=7),
    lambda world: world.delete_records(world.line[3].base),
    lambda world: world.checkpoint(),
    lambda world: world.delete_segments(1),
    lambda world: world.append(1, pid=7),
    lambda world: world.flush(),
    lambda world: world.append(3),
    lambda world: world.close(),
]
SHRINKING = (18, 23)
"""The truncation and the deletion: half of it may be done."""


def run(world, start=0):
    """The steps from `start` on: the number of the one that failed, and how."""
    for number in range(start, len(STEPS)):
        world.attempted = None
        before = dict(world.sequences), world.epoch, world.count, world.time
        try:
            STEPS[number](world)
        except OSError as error:
            world.sequences, world.epoch, world.count, world.time = before
            return number, error
    return len(STEPS), None


def restarted(world, failed, variant="all"):
    """A disk as the next start finds it, and what must be on it."""
    state = world.state
    lines = state.lines
    if world.attempted is not None:
        raw = bytes(world.attempted)
        delta = int.from_bytes(raw[23:27], "big")
        base = world.line[-1].last + 1 if world.line else 0
        lines = (*lines, (*world.line, Row(base, base + delta, raw)))
    floor = state.floor
    if variant == "all" and failed not in SHRINKING and world.line:
        floor = world.line[-1].last + 1
    if failed in SHRINKING:
        floor = 0
    walker = Crashes(world.disk)
    walker.advance(world.here)
    image = walker.image(variant, random.Random(1))
    start_max = max(state.start_max, world.log.log_start_offset)
    ends = state.ends | {start_max}
    state = state._replace(lines=lines, floor=floor, start_max=start_max, ends=ends)
    if world.log.closed:  # the marker may be there already
        state = state._replace(clean_end=world.log.log_end_offset)
    return image.disk(clock), state


def faults(operations, number):
    """A world after each of the operations has failed once, with the step that it failed in."""
    skip = 0
    while True:
        world = World()
        with world.disk.fault(*operations, number=number, skip=skip, times=1) as fault:
            failed, error = run(world)
        if not fault.hits:
            return
        skip += 1
        if error is None:  # but for the snapshot that a clean stop can do without
            assert number == errno.ENOSPC and world.log.closed, f"operation {skip} failed and nobody was told"
        else:
            assert error.errno == number and error.filename, f"{error!r} says no file"
        yield world, failed


def readable(world):
    rows = parse(world.disk, world.log)
    line = [row for row in world.line if row.base >= world.log.segments[0].base_offset]
    assert rows[: len(line)] == line, "what was acknowledged is not there while the disk fails"
    for row in line:
        if row.base >= world.log.log_start_offset:
            assert world.log.read(row.base, 1).region.read() == row.data


def test_no_io_error_loses_anything():
    count = 0
    for world, failed in faults(EVERYTHING, errno.EIO):
        count += 1
        log = world.log
        if failed not in SHRINKING and not log.closed:
            readable(world)
        if log.fenced is not None:
            with pytest.raises(OSError):
                world.append(1)
            world.attempted = None
        for variant in ("all", "none"):
            disk, state = restarted(world, failed, variant)
            check(disk, state)
    assert count > 100


def test_a_full_disk_refuses_one_step_and_the_rest_goes_on():
    count = 0
    for world, failed in faults(SPACE, errno.ENOSPC):
        count += 1
        if failed not in SHRINKING and not world.log.closed:
            readable(world)
        disk, state = restarted(world, failed)
        check(disk, state)
        if failed in SHRINKING or world.log.closed:
            continue
        assert run(world, failed) == (len(STEPS), None)
        disk, state = restarted(world, len(STEPS))
        check(disk, state)
    assert count > 60
