"""Every crash of every workload: recovered, and held against what was promised; and the canaries.

One test for each workload of `workloads`; `python -m tests.crash` is the same for as long as one likes.
"""

import pytest
from crash_kit import check, clock, recover
from workloads import WORKLOADS

from stratalog.records import kernels
from stratalog.sim import disk as sim_disk
from stratalog.sim.crash import VARIANTS, explore
from stratalog.sim.disk import SimDisk, SimFile
from stratalog.storage import checkpoints, layout, recovery, reshape, sweep
from stratalog.storage.log import Log
from stratalog.storage.segment import Segment

IMAGES = 4000


def run(name, *, images=IMAGES, seed=0, violations_max=3, every_point=False):
    recording = WORKLOADS[name]()
    if every_point:
        images = max(images, len(VARIANTS) * (len(recording.disk.journal) + 1 - recording.start))
    return explore(recording, check, recover, images=images, seed=seed, violations_max=violations_max, clock=clock)


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Which pass a recovery takes does not depend on what ran before in this process."""
    monkeypatch.setattr(sweep, "wants_kernels", lambda size: False)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_crash_leaves_what_was_promised(name):
    """ST-1 to ST-10, ST-13, ST-14, LM-1, LM-2, LM-5, LM-9, LM-10, RP-9; D01 D02 D03 D04 D05 D06 D09 D15 D18 D20.

    Every point of the journal under every variant: the two that make an image at each point count the points.
    """
    report = run(name, every_point=True)
    assert not report.violations, "\n".join(map(str, report.violations))
    assert min(report.variants["none"], report.variants["all"]) >= report.points
    assert report.images > IMAGES // 2 and report.distinct > 300
    assert report.deep > 20
    missing = set(VARIANTS) - set(report.variants) - {"unlink-not-durable"}
    assert not missing


def test_the_compiled_recovery_leaves_what_was_promised(monkeypatch):
    """The same images through the compiled pass (STYLE 14)."""
    kernels.load_kernels()
    monkeypatch.setattr(sweep, "wants_kernels", lambda size: True)
    for name in ("appends", "transactions"):
        report = run(name, images=1500)
        assert not report.violations, "\n".join(map(str, report.violations))
        assert report.distinct > 300


def test_an_exploration_is_the_same_for_the_same_seed():
    a, b = run("appends", images=300, seed=5), run("appends", images=300, seed=5)
    assert (a.images, a.distinct, a.deep, a.variants) == (b.images, b.distinct, b.deep, b.variants)
    assert run("appends", images=300, seed=6).distinct != a.distinct


# --- canaries: the engine is broken on purpose, and the enumeration must see it -------------------------------------
def _no_data_sync(patch):
    """A flush that syncs nothing."""
    patch.setattr(Segment, "sync_files", lambda self: [])


def _no_directory_sync(patch):
    """Names are never synced."""
    patch.setattr(SimDisk, "fsync_dir", lambda self, path: None)


def _no_crc(patch):
    """Recovery believes whatever looks like a batch."""
    real = recovery.scan
    patch.setattr(recovery, "scan", lambda *a, verify, **options: real(*a, verify=False, **options))


def _marker_stays(patch):
    """The marker of a clean stop is read, but not consumed (KAFKA-10471)."""
    patch.setattr(
        checkpoints,
        "take_clean_shutdown",
        lambda disk, data: 1 if disk.exists(f"{data}/{layout.CLEAN_SHUTDOWN}") else None,
    )


def _rename_before_sync(patch):
    """Small files are renamed into place before their bytes are durable (KAFKA-16541)."""

    def write(self, path, data):
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.pwritev([data], 0)
        self.rename(path + ".tmp", path)
        self.fsync_dir(path.rpartition("/")[0])

    patch.setattr(SimDisk, "write_atomically", write)


def _swap_without_sync(patch):
    """Cleaned segments take the place of the old ones before they are on disk."""
    real = SimFile.fsync
    patch.setattr(SimFile, "fsync", lambda self: None if self.path.endswith(layout.CLEANED) else real(self))


def _swap_finished_by_name(patch):
    """A `.swap` is never completed by a load."""
    patch.setattr(recovery, "_finish_swaps", lambda log, names: [n for n in names if not n.endswith(layout.SWAP)])


def _cut_without_sync(patch):
    """What a truncation has cut may come back behind a new epoch."""
    patch.setattr(Log, "_settle_cuts", lambda self: self._cut_files.clear())


def _stale_aborted_transactions(patch):
    """The transaction index keeps what it says of batches that are gone (KAFKA-7866)."""
    patch.setattr(recovery, "_kept_txns", lambda segment, first: list(segment.txn_index))


def _hole_not_seen(patch):
    """A segment that lost its tail at a batch's end is followed by the next one."""
    real = recovery._recover_segment

    def blind(*args):
        first, _, cut = real(*args)
        return first, 1 << 62, cut

    patch.setattr(recovery, "_recover_segment", blind)


def _restart_trusts_everything(patch):
    """The recovery point is taken for the log end."""
    real = recovery.load
    patch.setattr(recovery, "load", lambda log, **options: real(log, **{**options, "clean": True}))


def _recovery_point_too_far(patch):
    """The recovery point moves without a sync."""
    real = Log.flush_plan

    def plan(self, up_to=None):
        made = real(self, up_to)
        return None if made is None else made._replace(run=lambda: None)

    patch.setattr(Log, "flush_plan", plan)


def _deletion_from_the_wrong_end(patch):
    """A truncation takes the oldest of the doomed segments away first."""
    real = reshape._truncate

    def truncate(log, offset, now_ms):
        for segment in [one for one in log.segment_set.all if one.base_offset > offset][:-1]:
            log.segment_set.replace([segment], ())
            reshape._remove(segment)
        real(log, offset, now_ms)

    patch.setattr(reshape, "_truncate", truncate)


CANARIES = {
    _no_data_sync: "appends",
    _no_directory_sync: "appends",
    _no_crc: "appends",
    _marker_stays: "restarts",
    _rename_before_sync: "deletions",
    _swap_without_sync: "cleaning",
    _swap_finished_by_name: "cleaning",
    _cut_without_sync: "truncations",
    _stale_aborted_transactions: "transactions",
    _hole_not_seen: "appends",
    _restart_trusts_everything: "appends",
    _recovery_point_too_far: "transactions",
    _deletion_from_the_wrong_end: "truncations",
}


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.__name__.strip("_"))
def test_a_broken_engine_is_found(canary, monkeypatch):
    """A checker that never speaks proves nothing: each of these mistakes must be seen."""
    canary(monkeypatch)
    report = run(CANARIES[canary], images=6000, violations_max=1)
    assert report.violations, f"{canary.__doc__} Nothing was noticed on {report}"
    assert report.violations[0].text.startswith("AssertionError"), f"the canary itself is broken: {report.violations}"


def test_the_journal_is_described_for_people():
    from stratalog.sim.crash import describe

    recording = WORKLOADS["appends"]()
    text = describe(recording.disk, recording.start + 5)
    assert ".log" in text and "sync-dir" in text and text.count(">") == 1
    assert sim_disk.SECTOR == 512
