"""Any sequence of append, roll, flush, read, truncate, delete, crash and reload against a naive list.

The list is `crash_kit.World`: what was appended, and what of it a recovery must find.  After a crash, life goes on with
what was found.  `tests/storage/test_log_model.py` is the same on the real disk, without crashes and with more reads.
"""

import random

import pytest
from crash_kit import World, check_reads, parse
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stratalog.sim.crash import VARIANTS
from stratalog.storage import sweep
from stratalog.storage.segment import Segment


@pytest.fixture(autouse=True, scope="module")
def plain():
    """Which pass a recovery takes does not depend on what ran before in this process."""
    real = sweep.wants_kernels
    sweep.wants_kernels = lambda size: False
    yield
    sweep.wants_kernels = real


class CrashMachine(RuleBasedStateMachine):
    """One world after the other, each on the disk that the last one left."""

    @initialize()
    def begin(self):
        self.world = World()

    @property
    def log(self):
        return self.world.log

    @rule(count=st.integers(1, 4), size=st.integers(0, 200), codec=st.sampled_from([0, 0, 1]))
    def append(self, count, size, codec):
        self.world.append(count, size=size, codec=codec)

    @rule(pid=st.sampled_from([7, 8]), count=st.integers(1, 3))
    def append_idempotent(self, pid, count):
        self.world.append(count, pid=pid, epoch=self._epoch(pid))

    def _epoch(self, pid):
        entry = self.log.producers.entries.get(pid)
        return 0 if entry is None else entry.epoch

    @rule(pid=st.sampled_from([1, 2]), count=st.integers(1, 2))
    def append_transactional(self, pid, count):
        self.world.append(count, pid=pid, txn=True, epoch=self._epoch(pid))

    @precondition(lambda self: self.log.producers.ongoing)
    @rule(which=st.integers(0, 1), commit=st.booleans())
    def end_transaction(self, which, commit):
        ongoing = [pid for pid, _ in self.log.producers.ongoing.values()]
        pid = ongoing[which % len(ongoing)]
        self.world.marker(pid, commit=commit, epoch=self._epoch(pid) + 1)

    @rule()
    def flush(self):
        self.world.flush()

    @rule()
    def flush_and_checkpoint(self):
        self.world.flush()
        self.world.checkpoint()

    @rule()
    def checkpoint(self):
        self.world.checkpoint()

    @precondition(lambda self: self.log.active_segment.size)
    @rule()
    def roll(self):
        self.world.roll()

    @rule()
    def new_leader(self):
        self.world.epoch = max(self.world.epoch, self.log.latest_epoch or 0)
        self.world.new_epoch()

    @precondition(lambda self: self._targets())
    @rule(part=st.floats(0, 1))
    def truncate(self, part):
        targets = self._targets()
        self.world.truncate(targets[int((len(targets) - 1) * part)])

    def _targets(self):
        """A batch is cut as a whole, and not below what was deleted."""
        return [row.base for row in self.world.line if row.base >= self.log.log_start_offset]

    @rule(part=st.floats(0, 1))
    def delete_records(self, part):
        log = self.log
        self.world.delete_records(log.log_start_offset + int((log.high_watermark - log.log_start_offset) * part))

    @precondition(lambda self: len(self.log.segments) > 2)
    @rule()
    def delete_oldest(self):
        self.world.delete_segments(1)

    @precondition(lambda self: self.log.active_segment.size and not self.log.producers.ongoing)
    @rule()
    def delete_everything(self):
        self.world.delete_segments(len(self.log.segments))

    @rule()
    def reload(self):
        self.world.close()
        self.world.reopen()
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule()
    def kill(self):
        self.world.killed()

    @rule(variant=st.sampled_from(VARIANTS), back=st.sampled_from([0, 0, 0.1, 0.5, 1]), seed=st.integers(0, 1 << 16))
    def crash(self, variant, back, seed):
        world = self.world
        world.crash(int(world.here - back * (world.here - world.start)), variant, random.Random(seed))

    @rule()
    def read(self):
        log = self.log
        check_reads(log, [row for row in parse(self.world.disk, log) if row.last >= log.log_start_offset])

    @invariant()
    def agrees(self):
        log = self.log
        log.check_invariants()
        start = log.log_start_offset
        rows = parse(self.world.disk, log)
        assert [row for row in rows if row.last >= start] == [row for row in self.world.line if row.last >= start]
        assert not rows or log.log_end_offset == rows[-1].last + 1


TestCrashMachine = CrashMachine.TestCase
TestCrashMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("then", ["restarts", "leads", "begins-anew"])
def test_what_a_killed_process_has_cut_off_stays_away(then):
    """ST-5, ST-9: the process that knew what had to be synced is gone, and the power fails after the next start."""
    world = World()
    world.append(1)
    world.flush()
    if then == "begins-anew":
        world.start_at(50)
    else:
        world.truncate(0)
    world.killed()
    if then == "restarts":
        world.close()
        world.reopen()
    else:
        world.new_epoch()
    world.crash(world.here, "none", random.Random(0))


def test_what_a_killed_process_has_deleted_stays_away():
    """LM-2: the names may be back after a power failure; the checkpoint of the next start says where the log begins."""
    world = World()
    world.append(2)
    world.checkpoint()
    world.delete_segments(1)
    world.killed()
    world.checkpoint()
    world.crash(world.here, "none", random.Random(0))


def test_a_broken_engine_is_found_by_the_model(monkeypatch):
    """A flush that syncs nothing: some sequence of steps shows it."""
    monkeypatch.setattr(Segment, "sync_files", lambda self: [])
    quick = settings(TestCrashMachine.settings, max_examples=500, phases=[Phase.generate], derandomize=True)
    with pytest.raises(AssertionError, match=r"ST-|no batch"):
        run_state_machine_as_test(CrashMachine, settings=quick)
