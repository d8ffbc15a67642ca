"""Crashes of a broker's logs as a whole: a registry over two data directories on a simulated disk, with its cleaner and
its moves, driven in one thread; and the oracle.

`Life` does things and writes down what a start after a crash must find (`Held`).  `check` starts from the disk as
`server.log_service` does, lets begun moves end, and compares.
"""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from stratalog.base.types import Uuid
from stratalog.logs.cleaner.manager import CleanerManager, Settings
from stratalog.logs.moves import Moves
from stratalog.logs.registry import LogRegistry
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.sim.crash import Recording
from stratalog.sim.disk import SimDisk
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation, Origin

NOW = 1_700_000_000_000
HOMES = ("/one", "/two")
IDS = {home: Uuid(bytes([number] * 16)) for number, home in enumerate(HOMES, 1)}
CONFIG = LogConfig(
    segment_bytes=900,
    segment_index_bytes=120,
    index_interval_bytes=150,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.01,
    transaction_partition_verification_enable=False,
)
COMPACT = LogConfig(**{**{f: getattr(CONFIG, f) for f in CONFIG.__slots__}, "cleanup_policy": ("compact",)})
TOPIC_ID = Uuid(bytes(range(16)))
KEY = ("t", 0)


def clock():
    return NOW


class Rng:
    """Names that are the same in every run."""

    def __init__(self):
        self._random = random.Random(7)

    def integer(self, low, high):
        return self._random.randrange(low, high)

    def token(self, size):
        return self._random.randbytes(size)


class Queue:
    """A pool and a schedule of one thread: `run` does what is waiting, in order."""

    def __init__(self):
        self.waiting = deque()

    def submit(self, name, work, done):
        self.waiting.append((work, done))

    def after(self, delay_ms, callback):
        self.waiting.append((None, callback))

    def step(self):
        work, done = self.waiting.popleft()
        if work is None:
            done(NOW)
            return
        try:
            result, error = work(), None
        except Exception as failure:  # noqa: BLE001 - handed on as a pool does
            result, error = None, failure
        done(result, error)

    def run(self, turns=400):
        while self.waiting and turns:
            self.step()
            turns -= 1


class Held(NamedTuple):
    """What a start must find when the power fails now."""

    rows: tuple[tuple[int, int, bytes], ...] = ()
    """Every batch that was appended: first and last offset, bytes.  Survivors of a cleaning are a part of them."""
    floor: int = 0
    """What was flushed."""
    start_min: int = 0
    start_max: int = 0
    latest: tuple[tuple[bytes, bytes | None], ...] = ()
    """Of a compacted log: what a reader of committed records knows of each key, up to `floor` at least."""
    assigned: tuple[str, ...] = (HOMES[0],)
    """The directories that the metadata may name."""
    gone: bool = False
    """The topic is deleted (or is being deleted)."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Epochs that began at an offset, assigned and told to the disk."""
    config: LogConfig = CONFIG


class Node:
    """A registry with its cleaner and its moves."""

    def __init__(self, disk, config, assigned):
        self.disk = disk
        self.queue = Queue()
        self.registry = LogRegistry(disk, self.queue, Rng(), HOMES, config_of=lambda topic: config)
        self.registry.open()
        self.registry.identify(IDS)
        self.registry.load(NOW, assigned=lambda key: IDS[assigned])
        self.queue.run()  # left-overs go
        self.registry.attach(self.queue)
        self.cleaner = CleanerManager(
            self.registry,
            self.queue,
            Rng(),
            self.queue,
            Settings(map_bytes=24 * 400),
            now_ms=clock,
            monotonic_ms=clock,
        )
        self.registry.cleaner = self.cleaner
        self.moves = Moves(self.registry, self.queue, self.queue)
        self.moves.assigned = lambda key: IDS[assigned]
        self.told = []
        self.moves.on_moved = lambda key, log, directory: self.told.append(directory.path)
        for key in self.registry.keys():  # noqa: SIM118 - not a dict
            log = self.registry.get(*key)
            log.update_high_watermark(log.log_end_offset)  # the only replica leads
        self.moves.start()


def new_disk():
    return fresh(SimDisk(clock=clock))


def fresh(disk):
    for home in HOMES:
        disk.mkdir(home)
    disk.fsync_dir("/")
    return disk


class Life:
    """A node, its disk, and the timeline of what it has promised."""

    def __init__(self, config=CONFIG):
        self.disk = new_disk()
        self.config = config
        self.node = Node(self.disk, config, HOMES[0])
        self.held = Held(config=config)
        self.timeline = [(0, self.held)]
        self.start = len(self.disk.journal)
        self.sequences = {}
        self.count = 0
        self.log = self.node.registry.create(*KEY, TOPIC_ID, NOW, directory_id=IDS[HOMES[0]])

    def recording(self, name):
        return Recording(name, self.disk, self.timeline, start=self.start)

    @property
    def here(self):
        return len(self.disk.journal)

    def may(self, begin, **changes):
        self.held = self.held._replace(**changes)
        self.timeline.append((begin + 1, self.held))

    def must(self, **changes):
        self.held = self.held._replace(**changes)
        self.timeline.append((self.here, self.held))

    def append(self, *pairs, pid=-1, txn=False):
        builder = batches.BatchBuilder(
            base_offset=0,
            producer_id=pid,
            producer_epoch=0 if pid >= 0 else -1,
            base_sequence=self.sequences.get(pid, 0) if pid >= 0 else -1,
            transactional=txn,
        )
        for key, value in pairs:
            builder.append(NOW - 10_000 + self.count, key, value)
        if pid >= 0:
            self.sequences[pid] = self.sequences.get(pid, 0) + len(pairs)
        self._put(builder.build())

    def fill(self, count):
        for _ in range(count):
            self.count += 1
            self.append((b"k%d" % (self.count % 5), b"%d:" % self.count + b"v" * 40))

    def marker(self, pid, *, commit):
        made = control.build_marker(
            committed=commit, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
        )
        self._put(made, origin=Origin.COORDINATOR)

    def _put(self, raw, **options):
        begin = self.here
        payload = memoryview(bytearray(raw))
        info = self.log.append_as_leader(payload, self.epoch, NOW, **options)
        self.log.maybe_increment_high_watermark(self.log.log_end)
        row = (info.first_offset, info.last_offset, bytes(payload))
        self.may(begin, rows=(*self.held.rows, row))

    @property
    def epoch(self):
        return self.log.latest_epoch or 0

    def new_epoch(self):
        begin = self.here
        epoch = self.epoch + 1
        self.log.assign_epoch(epoch, self.log.log_end_offset)
        self.may(begin, epochs=(*self.held.epochs, (epoch, self.log.log_end_offset)))

    def flush(self):
        self.log.flush()
        self.must(floor=self.log.recovery_point, latest=known(self.log))

    def checkpoint(self):
        """The background's rounds."""
        self.node.registry.checkpoint()
        self.node.registry.checkpoint_high_watermarks()
        self.run()
        start = self.log.log_start_offset
        self.must(start_min=max(self.held.start_min, start))

    def run(self):
        self.node.queue.run()

    def delete_records(self, offset):
        begin = self.here
        self.may(begin, start_max=offset)
        self.log.delete_records(offset)
        answers = []
        self.node.registry.persist_log_starts([KEY], answers.append)
        self.run()
        assert answers == [None]
        self.must(start_min=offset)

    def retain(self):
        begin = self.here
        self.may(begin, start_max=self.log.log_end_offset)
        assert self.node.registry.retain(KEY, NOW) > 0
        self.run()
        self.may(self.here, start_max=self.log.log_start_offset)

    def clean(self):
        cleanings = self.node.cleaner.totals.cleanings
        before = known(self.log)
        self.node.cleaner.fill(NOW)
        self.run()
        assert self.node.cleaner.totals.cleanings > cleanings
        assert known(self.log) == before, "LM-4, LM-8: what a reader knows has changed"

    def move(self, target, *, told):
        """To the other directory; `told`: the metadata learns of it at once, else only after the crash."""
        begin = self.here
        self.may(begin, assigned=(self.held.assigned[-1], target))
        self.node.moves.ask(KEY, target, NOW)
        self.run()
        where = self.node.registry.directory_of(*KEY)
        assert self.node.told[-1:] == [target] and where is not None and where.path == target
        self.log = self.node.registry.get(*KEY)
        if told:
            self.must(assigned=(target,))

    def delete(self):
        self.may(self.here - 1, gone=True)
        self.node.registry.delete(*KEY)
        self.run()

    def stop(self):
        self.node.registry.close()
        self.must(floor=self.log.log_end_offset, latest=known(self.log))


def committed(log):
    """(offset, key, value) of what a reader of committed records sees."""
    offset = log.log_start_offset
    while True:
        data = log.read(offset, 1 << 20, Isolation.TXN_COMMITTED)
        if data.region is None:
            return
        raw = data.region.read()
        aborted = sorted(data.aborted or (), key=lambda txn: txn.first_offset)
        active = set()
        for header in batches.batches(raw):
            while aborted and aborted[0].first_offset <= header.last_offset:
                active.add(aborted.pop(0).producer_id)
            offset = header.next_offset
            if header.is_control:
                marker = control.marker_of(raw, header)
                if marker is not None and not marker.committed:
                    active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                yield from ((r.offset, r.key, r.value) for r in batches.records_of(raw, header))


def known(log):
    found = {key: value for _, key, value in committed(log)}
    return tuple(sorted((key, value) for key, value in found.items() if value is not None))


# --- the oracle -----------------------------------------------------------------------------------------------------
def check(disk, held):
    """LM-1, LM-2, LM-4, LM-5, LM-8, LM-9, LM-10; D14, R25."""
    for assigned in held.assigned[1:]:
        _check(copy_of(disk), held, assigned)
    _check(disk, held, held.assigned[0])


def copy_of(disk):
    assert disk.base is not None
    return disk.base.disk(clock)


def _check(disk, held, assigned):
    node = Node(disk, held.config, assigned)
    registry = node.registry
    assert not any(disk.exists(f"{home}/{layout.CLEAN_SHUTDOWN}") for home in HOMES)
    node.queue.run()
    names = [(home, name) for home in HOMES for name in disk.listdir(home)]
    assert not [one for one in names if one[1].endswith(layout.DIRECTORY_DELETE_SUFFIX)], names
    assert not [one for one in names if one[1].endswith(layout.DIRECTORY_FUTURE_SUFFIX)], names
    homes = [home for home, name in names if name == "t-0"]
    assert len(homes) <= 1, f"two replicas: {names}"
    log = registry.get(*KEY)
    if log is None:
        assert held.gone or held.floor == 0, f"the partition is gone: {names}"
        return
    log.check_invariants()
    log.update_high_watermark(log.log_end_offset)
    start, end = log.log_start_offset, log.log_end_offset
    assert log.segments, "LM-1"
    if not held.gone:
        assert end >= held.floor, f"the log ends at {end}, {held.floor} was flushed"
        assert held.start_min <= start <= max(held.start_max, held.start_min), f"LM-2: the log begins at {start}"
    there = [row for row in parse(log) if row[1] >= start]
    written = {row[0]: row for row in held.rows}
    if held.config.compact:
        if not held.gone and end == held.floor:
            assert known(log) == held.latest, f"LM-4, LM-8: {known(log)}, not {held.latest}"
    else:
        assert all(written.get(row[0]) == row for row in there), "a batch that nobody wrote"
        expected = [row for row in held.rows if start <= row[1] and row[1] < end]
        assert there == expected, f"LM-9: a hole in {[row[:2] for row in there]}"
    if held.epochs and not held.gone:
        assert log.epochs.rows[-1][0] >= max((e for e, at in held.epochs if at < held.floor), default=0)
    # What the checkpoints say can be read (LM-10), and the next stop and start finds the same.
    for home in HOMES:
        for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS, layout.CLEANER_OFFSETS):
            checkpoints.read_offsets(disk, f"{home}/{name}")
    where = registry.directory_of(*KEY)
    assert IDS[assigned] == where.id or node.told == [where.path], "the metadata is not told where the replica is"
    registry.close()
    again = Node(disk, held.config, where.path)
    again.queue.run()
    found = again.registry.get(*KEY)
    assert found is not None and (found.log_start_offset, found.log_end_offset) == (start, end)
    again.registry.close(clean=False)


def parse(log):
    found = []
    for segment in log.segments:
        raw = segment.file.pread(segment.size, 0)
        found += [
            (one.base_offset, one.last_offset, bytes(raw[one.position : one.end])) for one in batches.batches(raw)
        ]
    return found


def recover(disk, held):
    node = Node(disk, held.config, held.assigned[-1])
    node.queue.run()


# --- what happens ---------------------------------------------------------------------------------------------------
def moving(told=True):
    """A replica goes to the other directory and, later, back; it is appended to before, meanwhile and after."""
    life = Life()
    life.fill(14)
    life.flush()
    life.checkpoint()
    life.fill(4)
    life.new_epoch()
    life.move(HOMES[1], told=told)
    assert life.log.latest_epoch == 1, "R25"
    life.fill(3)
    life.flush()
    life.checkpoint()
    if told:
        life.delete_records(9)
        life.fill(2)
        life.move(HOMES[0], told=True)
        life.fill(2)
        life.flush()
    life.stop()
    return life.recording("moving")


def moving_untold():
    """The same, and the metadata does not hear of it before the crash."""
    return moving(told=False)


def retiring():
    """DeleteRecords, retention by size, checkpoints, and at the end the directory's deletion."""
    life = Life(LogConfig(**{**{f: getattr(CONFIG, f) for f in CONFIG.__slots__}, "retention_bytes": 1200}))
    life.fill(20)
    life.flush()
    life.checkpoint()
    life.delete_records(6)
    life.fill(8)
    life.retain()
    life.flush()
    life.checkpoint()
    life.fill(20)
    life.retain()
    life.checkpoint()
    life.delete()
    return life.recording("retiring")


def cleaning_transactions():
    """The cleaner on transactions, committed and aborted, over several segments, twice; tombstones between."""
    life = Life(COMPACT)
    for turn in range(2):
        for i in range(7):
            life.append((b"k%d" % (i % 4), b"committed %d %d" % (turn, i)), (b"x", b"c"), pid=1, txn=True)
            life.append((b"k%d" % (i % 4), b"aborted"), (b"never%d" % i, b"aborted"), pid=2, txn=True)
            if i % 3 == 2:
                life.marker(1, commit=True)
                life.marker(2, commit=False)
            life.append((b"k%d" % (i % 3), None if i % 4 == 1 else b"plain %d %d" % (turn, i)), pid=3)
        life.marker(1, commit=True)
        life.marker(2, commit=False)
        life.log.roll(NOW)
        life.flush()
        life.checkpoint()
        life.clean()
        life.flush()
    life.append((b"k0", b"last"))
    life.stop()
    return life.recording("cleaning_transactions")


WORKLOADS = {one.__name__: one for one in (moving, moving_untold, retiring, cleaning_transactions)}
