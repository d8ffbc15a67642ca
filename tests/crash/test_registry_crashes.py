"""Every crash of a broker's logs as a whole: moves between directories, retention, deletion, checkpoints, the
cleaner on transactions.  LM-1 to LM-5, LM-8 to LM-10; D14, R25; crashes during the recovery included."""

import errno
import random

import pytest
import registry_kit
from registry_kit import HOMES, KEY, NOW, WORKLOADS, Life, Node, check, clock, fresh, recover

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.logs.moves import Moves
from stratalog.logs.registry import LogRegistry
from stratalog.sim.crash import VARIANTS, Crashes, explore
from stratalog.sim.disk import SimDisk
from stratalog.storage import layout


def run(name, *, images=600, seed=0):
    return explore(WORKLOADS[name](), check, recover, images=images, seed=seed, violations_max=3, clock=clock)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_crash_leaves_what_was_promised(name):
    report = run(name)
    assert not report.violations, "\n".join(map(str, report.violations))
    assert report.distinct > 300 and report.deep > 20
    assert not set(VARIANTS) - set(report.variants) - {"unlink-not-durable"}


def _swaps_unsynced(patch):
    """The original is let go of before the copy is on the disk."""

    def flush(self, move):
        plan = move.future.flush_plan()
        if plan is not None:
            move.future.complete_flush(plan)
        move.flushed = True
        self._copy(move)

    patch.setattr(Moves, "_flush", flush)


def _keeps_the_original(patch):
    """Of two whole replicas the metadata chooses, which has not heard of the move."""
    real = LogRegistry._loaded

    def loaded(self, directory, key, future, result, assigned):
        other = self._home.get(key)
        if other is None or future:
            real(self, directory, key, future, result, assigned)

    patch.setattr(LogRegistry, "_loaded", loaded)


@pytest.mark.parametrize("canary", [_swaps_unsynced, _keeps_the_original], ids=lambda c: c.__name__)
def test_a_broken_swap_is_found(canary, monkeypatch):
    canary(monkeypatch)
    assert any(run("moving_untold", seed=seed).violations for seed in range(4))


def _moved(*, longer=0):
    """A life up to the swap, with so many appends behind it."""
    life = Life()
    life.fill(14)
    life.flush()
    life.move(HOMES[1], told=False)
    life.fill(longer)
    life.node.registry.close(clean=False)
    return life


@pytest.mark.parametrize("assigned", HOMES)
def test_a_complete_copy_without_its_original_is_the_replica(assigned):
    """D14: of the two renames of a swap only the second came through; they are in two directories, on two disks."""
    life = _moved(longer=2)
    name = layout.renamed_directory(*KEY, "0" * 32, layout.DIRECTORY_FUTURE_SUFFIX)
    life.disk.rename("/two/t-0", f"/two/{name}")
    node = Node(life.disk, life.config, assigned)
    node.queue.run()
    log = node.registry.get(*KEY)
    assert log.directory == "/two/t-0" and log.log_end_offset == 16
    assert node.told == (["/two"] if assigned == "/one" else []), "the metadata is told what it does not know"


def test_a_copy_is_no_replica_while_the_originals_directory_is_offline(monkeypatch):
    """D13: the original may come back."""
    life = _moved()
    name = layout.renamed_directory(*KEY, "0" * 32, layout.DIRECTORY_FUTURE_SUFFIX)
    life.disk.rename("/two/t-0", f"/two/{name}")
    real = SimDisk.lock

    def lock(self, path):
        if path.startswith("/one/"):
            raise OSError(errno.EIO, "broken", path)
        return real(self, path)

    monkeypatch.setattr(SimDisk, "lock", lock)
    node = Node(life.disk, life.config, "/one")
    assert [one.path for one in node.registry.online] == ["/two"]
    assert node.registry.get(*KEY) is None and name in life.disk.listdir("/two")


@pytest.mark.parametrize("assigned", HOMES)
def test_of_two_replicas_the_one_that_went_on_counts(assigned):
    """D14: the original's rename did not come through, and the metadata may not have heard of the move."""
    life = Life()
    life.fill(14)
    life.flush()
    files = {path: data for path, data in life.disk.files().items() if path.startswith("/one/t-0/")}
    life.move(HOMES[1], told=False)
    life.fill(3)
    life.node.registry.close(clean=False)
    life.disk.mkdir("/one/t-0")
    for path, data in files.items():
        life.disk.open(path, create=True).pwritev([data], 0)
    node = Node(life.disk, life.config, assigned)
    node.queue.run()
    assert node.registry.get(*KEY).log_end_offset == 17
    assert [name for name in life.disk.listdir("/one") if name.endswith("-stray")]


def test_a_move_waits_while_its_target_is_full():
    """D20: a full disk takes no directory offline, and the move ends when there is room."""
    life = Life()
    life.fill(14)
    life.flush()
    with life.disk.full(part="/two"):
        with pytest.raises(ApiError, match="No space left") as refused:
            life.node.moves.ask(KEY, "/two", NOW)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        life.run()
        assert len(life.node.registry.online) == 2 and not life.node.moves.moves
    assert not [name for name in life.disk.listdir("/two") if name.startswith("t-0")]
    life.node.moves.ask(KEY, "/two", NOW)
    with life.disk.full(part="/two"):
        life.node.queue.run(50)
        assert len(life.node.registry.online) == 2 and life.node.told == []
    life.run()
    assert life.node.told == ["/two"] and life.node.registry.get(*KEY).log_end_offset == 14


def test_an_epoch_without_a_batch_moves_along():
    """R25 (KAFKA-15608): else a follower that knows it asks for ever where it ends."""
    life = Life()
    life.fill(5)
    life.new_epoch()
    life.fill(2)
    life.new_epoch()
    rows = life.log.epochs.rows
    assert rows[-1] == (2, 7)
    life.move(HOMES[1], told=True)
    assert life.log.epochs.rows == rows


@pytest.mark.parametrize("name", ["moving", "retiring", "cleaning_transactions"])
def test_a_disk_that_fails_at_any_operation_loses_nothing_that_was_flushed(name, monkeypatch):
    """ST-11, D16: every single operation of a life gets an I/O error; what was promised until then is found again."""
    recording = WORKLOADS[name]()
    operations = len(recording.disk.journal)
    lives = []
    real = Life.__init__

    def noted(self, *arguments, **options):
        lives.append(self)
        real(self, *arguments, **options)

    monkeypatch.setattr(Life, "__init__", noted)
    failed = 0
    for skip in range(6, operations, max(operations // 60, 1)):
        disk = SimDisk(clock=clock)
        monkeypatch.setattr(registry_kit, "new_disk", lambda disk=disk: fresh(disk))
        with disk.fault("write", "fsync", "rename", "unlink", "truncate", skip=skip, times=1, partial=0.5):
            try:
                WORKLOADS[name]()
                continue
            except (OSError, ApiError, AssertionError, IndexError, KeyError):
                failed += 1  # the life ends where its disk failed
        held = lives[-1].held
        image = Crashes(disk)
        image.advance(len(disk.journal))
        found = image.image("all", random.Random(skip)).disk(clock)
        node = Node(found, held.config, held.assigned[-1])
        node.queue.run()
        log = node.registry.get(*KEY)
        if held.gone:
            continue
        assert log is not None or held.floor == 0, skip
        assert log is None or log.log_end_offset >= held.floor, skip
    assert failed > 15
