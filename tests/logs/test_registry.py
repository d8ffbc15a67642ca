"""The registry by itself, on a simulated disk and a pool that the test turns: lanes, progress, logs that cannot be
read."""

import errno
import posixpath
import threading
from dataclasses import replace

import pytest

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.logs import reserve
from stratalog.logs.background import Lanes
from stratalog.logs.cleaner.manager import CleanerManager, Settings
from stratalog.logs.moves import Moves
from stratalog.logs.registry import Directory, Loading, LogRegistry
from stratalog.records import batch as batches
from stratalog.server.clock import RealRng
from stratalog.sim.disk import SimDisk
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig

NOW = 1_700_000_000_000
TOPIC_ID = Uuid(bytes(range(16)))
CONFIG = LogConfig(segment_bytes=900, segment_index_bytes=120, retention_bytes=1000, file_delete_delay_ms=0)
CLEAN = f"/data/{layout.CLEAN_SHUTDOWN}"


class Hand:
    """A pool whose work is done when the test says so, and which."""

    def __init__(self):
        self.waiting = []

    def submit(self, name, work, done):
        self.waiting.append((name, work, done))

    def after(self, delay_ms, callback):
        self.waiting.append(("timer", lambda: None, lambda result, error: callback(NOW)))

    def do(self, number=0):
        _, work, done = self.waiting.pop(number)
        try:
            result, error = work(), None
        except OSError as failure:
            result, error = None, failure
        done(result, error)

    def run(self):
        while self.waiting:
            self.do()


def registry(disk, config=CONFIG):
    pool = Hand()
    made = LogRegistry(disk, pool, RealRng(), ["/data"], config_of=lambda topic: config)
    made.open()
    made.load(NOW)
    made.test_pool = pool
    return made


def append(log, key, timestamp=NOW):
    builder = batches.BatchBuilder(base_offset=0)
    builder.append(timestamp, key, b"v" * 200)
    log.append_as_leader(memoryview(builder.build()), 0, NOW)
    log.maybe_increment_high_watermark(log.log_end)


def filled(made, name="t", batches_of=12):
    log = made.create(name, 0, TOPIC_ID, NOW)
    for _ in range(batches_of):
        append(log, b"k")
    return log


def stopped(disk):
    """A stopped broker's data directory with `t-0`, whose log start is in a checkpoint, and `u-0`."""
    made = registry(disk)
    log = filled(made)
    log.delete_records(1)
    filled(made, "u")
    made.checkpoint()
    made.checkpoint_high_watermarks()
    made.test_pool.run()
    made.close()


@pytest.fixture
def unreadable(monkeypatch):
    """While it is set, `t-0` cannot be loaded."""
    real = LogRegistry._load
    wanted = [True]

    def load(self, directory, key, *arguments, **options):
        if wanted and key == ("t", 0) and arguments[0] is None:
            raise Malformed("t-0: nonsense")
        return real(self, directory, key, *arguments, **options)

    monkeypatch.setattr(LogRegistry, "_load", load)
    return wanted


def test_a_disk_that_hangs_delays_only_its_own_lane() -> None:
    pool = Hand()
    lanes = Lanes(pool, "flush")
    done = []
    for path in ("/one/a-0", "/one/b-0", "/two/c-0"):
        lanes.of(path).submit(lambda path=path: path, lambda result, error: done.append(result))
    assert [name for name, _, _ in pool.waiting] == ["flush /one", "flush /two"], "one piece of each directory"
    pool.do(1)
    assert done == ["/two/c-0"] and len(lanes.of("/one/x")) == 2
    pool.run()
    assert done == ["/two/c-0", "/one/a-0", "/one/b-0"] and len(lanes.of("/one/x")) == 0


def test_a_lane_goes_on_behind_work_that_failed() -> None:
    pool = Hand()
    lane = Lanes(pool, "flush").of("/one/a-0")
    seen = []

    def broken(result, error):
        seen.append(result)
        raise RuntimeError("a bug")

    lane.submit(lambda: 1, broken)
    lane.submit(lambda: 2, lambda result, error: seen.append(result))
    with pytest.raises(RuntimeError):
        pool.do()
    pool.run()
    assert seen == [1, 2]


def test_the_progress_of_a_load_counts_logs_under_way_in_part() -> None:
    loading = Loading(total=4)
    shares = []
    loading.on_progress = lambda one: shares.append(one.share)
    loading.recovered("a", 50, 200, 0.0)
    loading.recovered("b", 100, 100, 0.0)
    loading.recovered("a", 200, 200, 0.0)
    loading.loaded("a", 0.0)
    loading.loaded("b", 0.0)
    assert shares == [0.25, 1.25, 2.0, 2.0, 2.0]
    assert (loading.left, loading.segments_recovered, loading.bytes_recovered) == (2, 3, 300)


def test_a_log_that_cannot_be_read_keeps_its_checkpoint_entries(unreadable) -> None:
    """LM-2: when it can be read again, nothing that was deleted comes back."""
    disk = SimDisk(clock=lambda: NOW)
    stopped(disk)
    made = registry(disk)
    assert made.is_offline(("t", 0)) and made.get("u", 0) is not None and made.online
    filled(made, "v")
    made.checkpoint()
    made.checkpoint_high_watermarks()
    made.test_pool.run()
    for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS):
        assert ("t", 0) in checkpoints.read_offsets(disk, f"/data/{name}"), name
    made.close()
    unreadable.clear()
    again = registry(disk)
    assert again.get("t", 0).log_start_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_is_not_marked_clean_while_a_log_was_never_recovered(clean, unreadable) -> None:
    """D01: else the next start takes for sound what nobody has looked at."""
    disk = SimDisk(clock=lambda: NOW)
    stopped(disk)
    if not clean:
        disk.unlink(CLEAN)
    made = registry(disk)
    assert made.is_offline(("t", 0)) and not disk.exists(CLEAN)
    made.close()
    assert disk.exists(CLEAN) is clean


def test_a_start_that_fails_leaves_no_mark_of_a_clean_stop() -> None:
    """R23 (KAFKA-15375): the marker is taken, then something else ends the start before the logs are loaded."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    filled(made)
    made.close()
    assert disk.exists(CLEAN)
    ended = LogRegistry(disk, Hand(), RealRng(), ["/data"], config_of=lambda topic: CONFIG)
    ended.open()
    ended.close(clean=False)
    assert not disk.exists(CLEAN)
    assert ("t", 0) in checkpoints.read_offsets(disk, f"/data/{layout.RECOVERY_POINTS}")


def test_a_topic_whose_log_cannot_be_read_is_deleted_like_any_other(unreadable) -> None:
    disk = SimDisk(clock=lambda: NOW)
    stopped(disk)
    made = registry(disk)
    made.delete("t", 0)
    assert not disk.exists("/data/t-0") and not made.is_offline(("t", 0))
    made.test_pool.run()
    assert not [name for name in disk.listdir("/data") if name.startswith("t-0")]
    assert filled(made, "t", 1).log_end_offset == 1, "the next topic of its name begins anew"


def test_retention_goes_on_while_the_cleaner_is_paused_and_stays_away_while_it_works() -> None:
    """LM-3."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    log = filled(made)
    pool = made.test_pool
    made.cleaner = CleanerManager(made, pool, RealRng(), pool, Settings(), now_ms=lambda: NOW, monotonic_ms=lambda: NOW)
    made.cleaner.states.start(("t", 0))
    assert made.retain(("t", 0), NOW) == 0
    made.cleaner.states.done(("t", 0))
    made.pause_cleaning(("t", 0))
    assert made.retain(("t", 0), NOW) > 0 and log.log_start_offset > 0
    made.resume_cleaning(("t", 0))


def test_checkpoints_that_found_no_room_are_written_in_the_next_round() -> None:
    """LM-2, LM-10: also when nothing has changed since."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    log = filled(made)
    log.delete_records(1)
    log.flush()
    answers = []
    with disk.full(part="checkpoint"):
        made.persist_log_starts([("t", 0)], answers.append)
        made.checkpoint()
        made.checkpoint_high_watermarks()
        made.test_pool.run()
    assert [type(answer) for answer in answers] == [OSError] and made.online
    made.checkpoint()
    made.checkpoint_high_watermarks()
    made.test_pool.run()
    assert checkpoints.read_offsets(disk, f"/data/{layout.LOG_STARTS}")["t", 0] == 1
    assert checkpoints.read_offsets(disk, f"/data/{layout.RECOVERY_POINTS}")["t", 0] == 12
    assert checkpoints.read_offsets(disk, f"/data/{layout.HIGH_WATERMARKS}")["t", 0] == 12


def restarted(disk, config):
    """What the next start finds, the last stop not being a clean one."""
    made = registry(disk, config)
    log = made.get("t", 0)
    log.update_high_watermark(log.log_end_offset)
    return made, log


def test_retention_finds_room_on_a_disk_that_has_none_for_a_name() -> None:
    """D20: a full disk may refuse to rename to `.deleted`; deleting makes room, and must not end the log."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    log = filled(made)
    first = log.segments[0].path
    with disk.fault("rename", number=errno.ENOSPC, part="/data/t-0/") as fault:
        taken = made.retain(("t", 0), NOW)
    assert taken > 1 and fault.hits
    assert made.online and log.fenced is None
    assert not disk.exists(first) and not [n for n in disk.listdir("/data/t-0") if n.endswith(layout.DELETED)]
    append(log, b"later")
    start, end = log.log_start_offset, log.log_end_offset
    made.test_pool.run()
    made.close(clean=False)
    _, log = restarted(disk, CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (start, end) and not log.report.findings


def test_a_swap_that_finds_no_room_is_tried_again_when_there_is_some() -> None:
    """D20, LM-5: at each of its renames; nothing is lost, nothing half done stays, and the partition goes on."""
    config = replace(CONFIG, cleanup_policy=("compact",), segment_bytes=600)
    skip = 0
    while True:
        disk = SimDisk(clock=lambda: NOW)
        made = registry(disk, config)
        log = filled(made)
        log.roll(NOW)
        pool = made.test_pool
        cleaner = CleanerManager(
            made, pool, RealRng(), pool, Settings(map_bytes=24 * 100), now_ms=lambda: NOW, monotonic_ms=lambda: NOW
        )
        made.cleaner = cleaner
        with disk.fault("rename", number=errno.ENOSPC, part="/data/t-0/", skip=skip, times=1) as fault:
            cleaner.fill(NOW)
            pool.run()
        if not fault.hits:
            break
        skip += 1
        if log.fenced is None:
            assert made.online
            names = disk.listdir("/data/t-0")
            assert not [n for n in names if n.endswith((layout.CLEANED, layout.SWAP, layout.DELETED))], names
            append(log, b"later")
            if cleaner.failures:
                (failure,) = cleaner.failures.values()
                cleaner.fill(failure.next_ms)
                pool.run()
            assert not cleaner.failures and cleaner.totals.cleanings == 1
        else:  # the live names are free by then: no real disk refuses them
            assert not made.online, "a log that takes nothing any more is shown"
        finished = bool(made.directories[0].failure)
        made.close(clean=False)
        _, log = restarted(disk, config)
        assert log.log_end_offset == (12 if finished else 13)
        assert any(finding.kind == "swap-finished" for finding in log.report.findings) == finished
        held = sum(header.count for s in log.segments for header in batches.batches(s.file.pread(s.size, 0)))
        assert held < 12 if finished else held == 2, "the last of each key, and what came later"
    assert skip > 10


def test_a_topic_is_deleted_on_a_disk_that_has_no_room_for_its_new_name() -> None:
    """D20: what deleting it frees is not worth the whole directory."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    filled(made)
    reserve.hold(disk, "/data")
    with disk.fault("rename", number=errno.ENOSPC, part="/data/t-0", times=1) as fault:
        made.delete("t", 0)
    assert fault.hits and made.online and made.get("t", 0) is None
    assert not disk.exists("/data/t-0") and not disk.exists(f"/data/{reserve.RESERVE_FILE}")
    made.test_pool.run()
    assert filled(made, "t", 1).log_end_offset == 1


def test_a_timestamp_from_the_future_is_named_once_and_counted(caplog) -> None:
    """C14: retention stalls where everybody can see it, and the cap ends it."""
    config = replace(CONFIG, retention_bytes=-1, retention_ms=1000)
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk, config)
    log = made.create("t", 0, TOPIC_ID, NOW)
    append(log, b"k", NOW + 3_600_000)
    log.roll(NOW)
    for _ in range(3):
        assert made.retain(("t", 0), NOW + 5000) == 0
    assert caplog.text.count("in the future") == 1 and "3595 s" in caplog.text
    assert ("stratalog_future_timestamp_segments", "", 1) in made.gauges(NOW + 5000)
    made.future_cap_ms = 2000
    assert made.retain(("t", 0), NOW + 3000) == 0
    assert made.retain(("t", 0), NOW + 3001) == 1


def test_a_topic_does_not_inherit_offsets_that_a_crash_left_in_a_checkpoint() -> None:
    """LM-10: it came between the rename of the directory and the checkpoint without the topic."""
    disk = SimDisk(clock=lambda: NOW)
    config = replace(CONFIG, cleanup_policy=("compact",))
    made = registry(disk, config)
    filled(made)
    made.set_cleaner_checkpoint(("t", 0), 5)
    made.checkpoint()
    made.checkpoint_high_watermarks()
    made.test_pool.run()
    made.delete("t", 0)
    made.close(clean=False)
    assert checkpoints.read_offsets(disk, f"/data/{layout.CLEANER_OFFSETS}")["t", 0] == 5
    made = registry(disk, config)
    made.test_pool.run()
    log = filled(made)
    assert made.cleaner_checkpoint(("t", 0)) is None and log.recovery_point == 0
    assert not checkpoints.read_offsets(disk, f"/data/{layout.CLEANER_OFFSETS}")


def moving():
    """A registry of two directories, the first of which is filled first."""
    disk = SimDisk(clock=lambda: NOW)
    disk.mkdir("/other")
    pool = Hand()
    made = LogRegistry(disk, pool, RealRng(), ["/data", "/other"], config_of=lambda topic: CONFIG)
    made.open()
    made.load(NOW)
    return made, pool, Moves(made, pool, pool)


def test_a_move_is_asked_for_again_when_its_topic_was_made_anew() -> None:
    """D12: the old topic's move has not noticed yet that its log is gone; it must not be taken for the new one's."""
    made, pool, moves = moving()
    filled(made)
    moves.ask(("t", 0), "/other", NOW)
    made.delete("t", 0)
    log = filled(made, "t", 3)
    assert made.directory_of("t", 0) is made.directories[0]
    moves.ask(("t", 0), "/other", NOW)
    assert moves.moves["t", 0].current is log
    pool.run()
    assert made.directory_of("t", 0) is made.directories[1] and made.get("t", 0).log_end_offset == 3
    assert not moves.moves


def test_a_copy_on_its_way_loses_what_the_original_loses() -> None:
    """Seed 001: retention looks at future logs, too."""
    made, pool, moves = moving()
    log = filled(made)
    target = made.directories[1]
    moves.ask(("t", 0), target.path, NOW)
    copy = target.futures["t", 0]
    while copy.log_end_offset < 12:
        pool.do()
    before = len(copy.segments)
    assert made.retain(("t", 0), NOW) > 0
    assert copy.log_start_offset == log.log_start_offset and len(copy.segments) < before
    pool.run()
    moved = made.get("t", 0)
    assert made.directory_of("t", 0) is target and moved is copy
    assert (moved.log_start_offset, moved.log_end_offset) == (log.log_start_offset, 12)


def test_a_log_whose_topic_id_finds_no_room_serves_all_the_same() -> None:
    """D20: a crash may leave the file empty, and a start needs no free space."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    filled(made)
    made.close()
    disk.unlink(f"/data/t-0/{layout.PARTITION_METADATA}")
    made = registry(disk)
    with disk.full(part=layout.PARTITION_METADATA):
        log = made.create("t", 0, TOPIC_ID, NOW)
    assert log is made.get("t", 0) and log.log_end_offset == 12 and made.online
    made.close()
    made = registry(disk)
    made.create("t", 0, TOPIC_ID, NOW)
    assert checkpoints.read_topic_id(disk, "/data/t-0") == TOPIC_ID


def test_retention_makes_room_in_a_log_that_a_full_disk_has_refused() -> None:
    """D20: producers have found the disk full and gave up; nobody appends any more, and the disk empties itself."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk, replace(CONFIG, retention_bytes=-1, retention_ms=1000))
    log = filled(made)
    log.roll(NOW)
    with disk.full():
        with pytest.raises(OSError, match="No space"):
            append(log, b"refused")
        assert made.retain(("t", 0), NOW + 5000) > 1 and made.online
    append(log, b"later")
    assert log.log_end_offset == 13


def test_retention_that_finds_no_room_for_a_new_segment_takes_it_from_the_reserve() -> None:
    """D20: all of a log is to go, for which an empty segment comes first; a full disk ends no directory."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk, replace(CONFIG, retention_bytes=-1, retention_ms=1000))
    log = filled(made)
    with disk.full():
        assert made.retain(("t", 0), NOW + 5000) == 0 and made.online and log.log_start_offset == 0
    assert made.retain(("t", 0), NOW + 5000) > 1 and log.log_start_offset == 12
    append(log, b"later")
    reserve.hold(disk, "/data")
    with disk.fault("write", "open", number=errno.ENOSPC, part="/data/t-0/", times=1) as fault:
        assert made.retain(("t", 0), NOW + 5000) == 1
    assert fault.hits and made.online and log.log_start_offset == 13
    assert not disk.exists(f"/data/{reserve.RESERVE_FILE}")


def test_producer_and_cleaner_that_find_the_disk_full_together_end_no_directory() -> None:
    """D20: an append and the cleaner's write are refused at the same time; both go on when there is room."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk, replace(CONFIG, cleanup_policy=("compact",), segment_bytes=600))
    log = filled(made)
    log.roll(NOW)
    pool = made.test_pool
    made.cleaner = cleaner = CleanerManager(
        made, pool, RealRng(), pool, Settings(map_bytes=24 * 100), now_ms=lambda: NOW, monotonic_ms=lambda: NOW
    )
    cleaner.fill(NOW)
    with disk.full():
        with pytest.raises(OSError, match="No space"):
            append(log, b"refused")
        pool.run()
        assert made.online and list(cleaner.failures) == [("t", 0)]
    cleaner.fill(cleaner.failures["t", 0].next_ms)
    pool.run()
    assert not cleaner.failures and cleaner.totals.cleanings == 1
    assert not [n for n in disk.listdir("/data/t-0") if n.endswith((layout.CLEANED, layout.SWAP))]
    append(log, b"later")
    assert log.log_end_offset == 13


def made_anew(*, copy):
    """A topic was deleted and made anew while `/data`, which held it (or a copy of it), was offline; `/data` is back.
    The registry that finds both, before it is loaded, and the new topic's id."""
    disk = SimDisk(clock=lambda: NOW)
    pool = Hand()
    new = Uuid(bytes(range(1, 17)))
    for directory, topic_id, count in (("/data", TOPIC_ID, 12), ("/other", new, 2)):
        made = LogRegistry(disk, pool, RealRng(), [directory], config_of=lambda topic: CONFIG)
        made.open()
        made.load(NOW)
        log = made.create("t", 0, topic_id, NOW)
        for _ in range(count):
            append(log, str(count).encode())
        made.close()
    if copy:
        disk.rename("/data/t-0", f"/data/t-0.{'0' * 32}-future")
    made = LogRegistry(disk, pool, RealRng(), ["/data", "/other"], config_of=lambda topic: CONFIG)
    made.open()
    made.identify({"/data": Uuid(b"a" * 16), "/other": Uuid(b"b" * 16)})
    return made, new


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("copy", [False, True])
def test_a_deleted_topics_longer_log_does_not_take_the_new_ones_place(copy, order) -> None:
    """D13: its directory was offline when the topic was deleted."""
    made, new = made_anew(copy=copy)
    made.directories[:] = made.directories[::order]
    made.load(NOW, assigned=lambda key: Uuid(b"b" * 16), topic_of=lambda key: new)
    log = made.create("t", 0, new, NOW, directory_id=Uuid(b"b" * 16))
    assert log.directory == "/other/t-0" and log.log_end_offset == 2
    assert not any(directory.futures for directory in made.directories), "nothing goes on with the old one's copy"
    made.close()


class SlowDisk(SimDisk):
    """One whose first write of a whole file ends when the test says so."""

    def __init__(self):
        super().__init__(clock=lambda: NOW)
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.writers = 0

    def write_atomically(self, path, data):
        if not path.endswith(layout.LOG_STARTS):
            return super().write_atomically(path, data)
        self.writers += 1
        assert self.writers == 1, "two writers of one temporary file"
        if not self.begun.is_set():
            self.begun.set()
            assert self.goes_on.wait(10)
        super().write_atomically(path, data)
        self.writers -= 1


@pytest.mark.parametrize("started", [True, False])
def test_a_topic_made_anew_at_once_waits_for_the_checkpoint_that_is_being_written(started) -> None:
    """LM-2, LM-10: both write the log starts; the older content does not come last, and no name vanishes under the
    other's hands, which took the directory offline."""
    disk = SlowDisk()
    made = registry(disk)
    pool = made.test_pool
    log = filled(made)
    log.delete_records(1)
    made.checkpoint_log_starts(made.directories[0])
    thread = threading.Thread(target=pool.do)
    if started:
        thread.start()
        assert disk.begun.wait(10)
        threading.Timer(0.05, disk.goes_on.set).start()
    else:
        disk.begun.set()
    made.delete("t", 0)
    new = made.create("t", 0, Uuid(bytes(range(1, 17))), NOW)
    if not started:
        thread.start()
    thread.join()
    assert made.online and new.log_start_offset == 0
    assert ("t", 0) not in checkpoints.read_offsets(disk, f"/data/{layout.LOG_STARTS}")
    pool.run()
    assert ("t", 0) not in checkpoints.read_offsets(disk, f"/data/{layout.LOG_STARTS}")


def test_a_cleaner_gets_a_map_of_the_size_that_is_configured_now() -> None:
    """Settings that change during a cleaning: its map is not taken for one of the new size afterwards."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk, replace(CONFIG, cleanup_policy=("compact",), segment_bytes=600))
    log = filled(made)
    log.roll(NOW)
    pool = made.test_pool
    made.cleaner = cleaner = CleanerManager(
        made, pool, RealRng(), pool, Settings(map_bytes=24 * 100), now_ms=lambda: NOW, monotonic_ms=lambda: NOW
    )
    cleaner.fill(NOW)
    cleaner.reconfigure(Settings(map_bytes=24 * 300))
    pool.run()
    for _ in range(12):
        append(log, b"k")
    log.roll(NOW)
    cleaner.fill(NOW)
    pool.do()
    assert [run.offsets.slots for run in cleaner._running.values()] == [300]
    pool.run()


def test_a_topic_made_anew_does_not_get_the_old_ones_recovery_point() -> None:
    """ST-4, LM-10: the crash comes when both topics have been here, before the next round of checkpoints."""
    disk = SimDisk(clock=lambda: NOW)
    made = registry(disk)
    filled(made).flush()
    filled(made, "u").flush()
    made.checkpoint()
    made.checkpoint_high_watermarks()
    made.test_pool.run()
    made.delete("t", 0)
    made.test_pool.run()
    made.create("t", 0, Uuid(bytes(range(1, 17))), NOW)
    made.test_pool.run()
    for name in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        assert checkpoints.read_offsets(disk, f"/data/{name}") == {("u", 0): 12}


@pytest.mark.parametrize("promoted", [False, True])
def test_deleted_records_stay_deleted_over_a_crash_at_the_end_of_a_move(promoted) -> None:
    """LM-2: their deletion was acknowledged while the copy was on its way, and the crash comes right after the swap
    (or loses the last of its names)."""
    made, pool, moves = moving()
    disk = made._disk
    log = filled(made)
    source, target = made.directories
    moves.ask(("t", 0), target.path, NOW)
    name = posixpath.basename(target.futures["t", 0].directory)
    while target.futures["t", 0].log_end_offset < 12:
        pool.do()
    log.delete_records(4)
    answers = []
    made.persist_log_starts([("t", 0)], answers.append)
    while made.directory_of("t", 0) is source:
        pool.do()
    assert answers == [None]
    made.close(clean=False)
    if promoted:
        disk.rename("/other/t-0", f"/other/{name}")
    made = LogRegistry(disk, Hand(), RealRng(), ["/data", "/other"], config_of=lambda topic: CONFIG)
    made.open()
    made.identify({"/data": Uuid(b"a" * 16), "/other": Uuid(b"b" * 16)})
    made.load(NOW, assigned=lambda key: Uuid(b"b" * 16))
    assert made.directory_of("t", 0).path == "/other" and made.get("t", 0).log_start_offset == 4


@pytest.mark.parametrize("longer", ["/other", "/third"])
def test_of_two_copies_on_their_way_the_longer_one_goes_on(longer) -> None:
    """A move's target was offline while a move elsewhere began, and is back: one move, and cleaning goes on after."""
    disk = SimDisk(clock=lambda: NOW)

    def started(*directories):
        pool = Hand()
        made = LogRegistry(disk, pool, RealRng(), directories, config_of=lambda topic: CONFIG)
        made.open()
        made.load(NOW)
        log = made.get("t", 0) or filled(made)
        log.update_high_watermark(12)
        return made, pool, Moves(made, pool, pool)

    for path in ("/other", "/third"):
        made, pool, moves = started("/data")
        made.directories.append(Directory(path, Uuid(b"b" * 16)))
        disk.mkdir(path)
        moves.ask(("t", 0), path, NOW)
        while made.directories[1].futures["t", 0].log_end_offset < (6 if path == longer else 3):
            pool.do()
        made.close(clean=False)
    made, pool, moves = started("/data", "/other", "/third")
    assert [list(directory.futures) for directory in made.directories] == [[], [("t", 0)], [("t", 0)]]
    made.cleaner = CleanerManager(made, pool, RealRng(), pool, Settings(), now_ms=lambda: NOW, monotonic_ms=lambda: NOW)
    moves.start()
    pool.run()
    assert made.directory_of("t", 0).path == longer and made.get("t", 0).log_end_offset == 12
    assert not any(directory.futures for directory in made.directories)
    assert made.cleaner.states.is_free(("t", 0)), "nobody pauses it any more"


def test_a_directory_that_went_offline_for_want_of_space_takes_nothing_when_there_is_some() -> None:
    """ST-11: a deletion that was half done, for example; who still holds the log must not write behind it."""
    made = registry(SimDisk(clock=lambda: NOW))
    log = filled(made)
    made.fail(made.directories[0], OSError(errno.ENOSPC, "No space left on device"))
    assert log.is_over
    with pytest.raises(OSError, match="offline"):
        append(log, b"later")
