"""What a load repairs, and what it must not cut: named scenarios, and every pass of the loader."""

import os
from pathlib import Path

import pytest
from storage_kit import CONFIG, NOW, Kit, contents, make_batch

from stratalog.records import batch as batches
from stratalog.storage import layout
from stratalog.storage.log import AbortedTxn
from stratalog.storage.offset_index import ENTRY
from stratalog.storage.scan import scan


def names(kit, *suffixes):
    return sorted(name for name in os.listdir(kit.directory) if name.endswith(suffixes))


def path_of(kit, base, kind):
    return Path(kit.directory) / layout.file_name(base, kind)


def fill(kit, log, count=30, per_segment=10, **options):
    for i in range(count):
        kit.append(log, b"v%d" % i, **options)
        if i % per_segment == per_segment - 1 and i < count - 1:
            log.roll(NOW)
    return contents(log)


def kinds(log):
    return [finding.kind for finding in log.report.findings]


@pytest.mark.parametrize("cut", [1, 20, 60, 69])
def test_a_torn_tail_is_cut(kit, cut):
    """ST-5."""
    log = kit.open()
    before = fill(kit, log)
    active = path_of(kit, 20, ".log")
    data = active.read_bytes()
    active.write_bytes(data[:-cut])
    again = kit.open()
    assert contents(again) == before[:-1]
    assert kinds(again) == ["tail-cut"]
    assert again.report.bytes_truncated > 0
    assert not again.report.damaged
    kit.append(again, b"next")
    assert contents(kit.open()) == [*before[:-1], (29, b"next")]


@pytest.mark.parametrize(
    "tail", [bytes(500), b"\xff" * 300, os.urandom(777), "old block"], ids=["zeros", "ones", "random", "old block"]
)
def test_a_nonsense_block_at_the_tail_is_cut(kit, tail):
    """D18 (seed 004, 5.4): the file grew, the data did not come; or an old block came back, with a right CRC."""
    log = kit.open()
    before = fill(kit, log, 10)
    active = path_of(kit, 0, ".log")
    if tail == "old block":
        tail = active.read_bytes()[:140]
    with active.open("ab") as file:
        file.write(tail)
    again = kit.open()
    assert contents(again) == before
    assert kinds(again) == ["tail-cut"]


def test_damage_above_the_recovery_point_cuts_and_keeps_aside(kit):
    """ST-5, and D17: what is cut was more than a torn tail, so it is kept."""
    log = kit.open()
    before = fill(kit, log)
    middle = path_of(kit, 10, ".log")
    data = bytearray(middle.read_bytes())
    size = len(data) // 10
    data[5 * size + 65] ^= 1
    middle.write_bytes(data)
    again = kit.open()
    assert contents(again) == before[:15]
    assert kinds(again) == ["kept-aside", "segment-kept-aside"]
    assert path_of(kit, 10, ".log.damaged").read_bytes() == bytes(data[5 * size :])
    assert path_of(kit, 20, ".log.damaged").exists()
    assert not again.report.damaged
    assert contents(kit.open()) == before[:15]


def test_damage_in_flushed_data_cuts_nothing(kit):
    """D17 (CORDS): bit rot in the middle of what was synced is reported; what is behind it stays."""
    log = kit.open()
    before = fill(kit, log)
    log.flush()
    middle = path_of(kit, 10, ".log")
    data = bytearray(middle.read_bytes())
    size = len(data) // 10
    data[5 * size + 65] ^= 1
    middle.write_bytes(data)
    path_of(kit, 10, ".index").unlink()  # or nobody would look
    again = kit.open(recovery_point=30)
    assert "flushed-data-damaged" in kinds(again)
    assert again.report.damaged
    finding = again.report.findings[-1]
    assert (finding.path, finding.position) == (str(middle), 5 * size)
    assert again.log_end_offset == 30
    assert contents(again, start=16) == before[16:]
    assert middle.read_bytes() == bytes(data)
    with pytest.raises(AssertionError):
        contents(again)


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd", "noise"])
def test_indexes_are_disposable(kit, kind, damage):
    """ST-6."""
    log = kit.open()
    for i in range(60):
        kit.append(log, b"x" * 50, b"%d" % i, timestamp=NOW - 5000 + (i * 37) % 100, pid=4, epoch=0, sequence=2 * i)
        if i % 20 == 19:
            kit.txn(log, 5, 0, i // 20, b"t")
            kit.marker(log, 5, 0, commit=False)
            log.roll(NOW)
    expected = (
        contents(log),
        [log.offset_for_timestamp(NOW - 5000 + t) for t in range(-2, 103)],
        log.aborted_between(0, 1000),
        {pid: entry.row() for pid, entry in log.producers.entries.items()},
        log.max_timestamp_offset(),
    )
    assert len(expected[2]) == 3
    log.close()
    for name in names(kit, kind):
        path = Path(kit.directory) / name
        if damage == "missing":
            path.unlink()
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "odd":
            path.write_bytes(path.read_bytes() + b"\1\2\3")
        else:
            path.write_bytes(os.urandom(len(path.read_bytes())))
    again = kit.open()
    assert expected == (
        contents(again),
        [again.offset_for_timestamp(NOW - 5000 + t) for t in range(-2, 103)],
        again.aborted_between(0, 1000),
        {pid: entry.row() for pid, entry in again.producers.entries.items()},
        again.max_timestamp_offset(),
    )


def test_only_what_is_not_flushed_is_checked_again(kit):
    log = kit.open()
    before = fill(kit, log, 60, 30)
    log.flush(45)
    kept = log.active_segment.offset_index.entries
    again = kit.open(recovery_point=45)
    assert again.report.segments_recovered == 1
    assert again.active_segment.offset_index.entries == kept
    assert contents(again) == before
    for offset in range(60):
        assert again.read(offset, 1).offset_metadata == log.read(offset, 1).offset_metadata


def test_rebuilt_indexes_equal_those_of_the_append(kit):
    log = kit.open()
    fill(kit, log, 80, 40)
    log.close()
    before = {name: (Path(kit.directory) / name).read_bytes() for name in names(kit, "index")}
    for name in before:
        (Path(kit.directory) / name).unlink()
    kit.open().close()
    assert {name: (Path(kit.directory) / name).read_bytes() for name in names(kit, "index")} == before


def test_index_entries_point_at_batch_starts(kit):
    """ST-1, ST-7."""
    log = kit.open()
    fill(kit, log, 60)
    log.close()
    for base in (0, 10, 50):
        data = path_of(kit, base, ".log").read_bytes()
        ends = {header.position: header.last_offset for header in batches.batches(data)}
        entries = list(ENTRY.iter_unpack(path_of(kit, base, ".index").read_bytes()))
        assert entries
        assert all(ends[position] == base + relative for relative, position in entries)


def test_temporary_files_go_and_orphans_too(kit):
    log = kit.open()
    before = fill(kit, log)
    log.close()
    for name in (
        "00000000000000000005.log.deleted",
        "00000000000000000007.snapshot.deleted",
        "00000000000000000003.log.cleaned",
        "00000000000000000003.index.cleaned",
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "leader-epoch-checkpoint.tmp",
    ):
        (Path(kit.directory) / name).write_bytes(b"x")
    again = kit.open(had_clean_shutdown=True)
    assert contents(again) == before
    assert not names(kit, ".deleted", ".cleaned", ".tmp")
    assert not names(kit, "99.index", "99.timeindex")
    assert kinds(again) == ["orphan-removed", "orphan-removed"]


def cleaned_copy(kit, log, segment_index, drop=()):
    """A cleaned segment that holds what a segment holds, without some offsets."""
    old = log.segments[segment_index]
    new = log.new_cleaned_segment(old.base_offset, NOW)
    for row in scan(old.file, 0, old.size, verify=True):
        if row[2] in drop:
            continue
        new.file.pwritev([old.file.pread(row[1], row[0])], new.size)
        new.note(last_offset=row[3], max_timestamp=row[7], position=new.size, size=row[1])
        new.size += row[1]
    new.become_inactive()
    return new


def test_segments_are_replaced_and_readers_keep_theirs(kit):
    log = kit.open()
    before = fill(kit, log)
    region = log.read(0, 1 << 20).region
    raw = region.read()
    old = log.segments[0]
    deletion = log.replace_segments([cleaned_copy(kit, log, 0, drop=(3, 4, 9))], [old])
    expected = [row for row in before if row[0] not in (3, 4, 9)]
    assert contents(log) == expected
    assert region.read() == raw
    log.finish_deletion(deletion)
    assert contents(log, start=9) == expected[7:], "an offset that compaction removed reads on from the next"
    assert not names(kit, ".swap", ".cleaned", ".deleted")
    log.close()
    assert contents(kit.open(had_clean_shutdown=True)) == expected
    compacted = CONFIG.__class__(cleanup_policy=("compact",), segment_index_bytes=4096)  # where holes are legal
    assert contents(kit.open(compacted)) == expected


def test_a_crash_at_each_step_of_the_swap_leaves_old_or_new(kit, tmp_path):
    """D04 (KAFKA-7401), D06 (KAFKA-12520): phases of a swap, and the snapshots stay."""

    class Crash(Exception):
        pass

    step = 0
    while True:
        turn = Kit(tmp_path / f"s{step}-0")
        log = turn.open()
        before = fill(turn, log, pid=-1)
        turn.append(log, b"p", pid=1, epoch=0, sequence=0)
        log.flush()
        before = contents(log)
        new = cleaned_copy(turn, log, 0, drop=(3,))
        left = [step]

        class Breaking:
            def __init__(self, disk, left):
                self._disk = disk
                self._left = left

            def __getattr__(self, name):
                method = getattr(self._disk, name)
                if name not in ("rename", "unlink", "fsync_dir"):
                    return method

                def stepped(*args, **options):
                    if self._left[0] == 0:
                        raise Crash
                    self._left[0] -= 1
                    return method(*args, **options)

                return stepped

        disk = Breaking(turn.disk, left)
        log.disk = new.disk = log.segments[0].disk = disk
        try:
            deletion = log.replace_segments([new], [log.segments[0]])
            log.finish_deletion(deletion)
            finished = True
        except Crash:
            finished = False
        again = turn.open(recovery_point=31, log_start_offset=2)
        assert contents(again, start=2) in (before[2:], [row for row in before[2:] if row[0] != 3])
        assert again.producers.entries[1].last_offset == 30
        assert not names(turn, ".swap", ".cleaned", ".deleted")
        if finished:
            break
        step += 1
    assert step > 8


def test_an_overflowed_segment_is_split(kit):
    """D05 (KAFKA-6264), ST-13: a file as an old cleaner could leave it, with and without indexes."""
    os.makedirs(kit.directory)
    offsets = [0, 5, 2**31 + 7, 2**31 + 8, 2**32 + 20]
    data = b"".join(bytes(make_batch([b"v%d" % o], base=o, leader=0)) for o in offsets)
    path_of(kit, 0, ".log").write_bytes(data)
    compacted = CONFIG.__class__(cleanup_policy=("compact",), segment_index_bytes=4096)
    again = kit.open(compacted)
    assert [o for o, _ in contents(again)] == offsets
    assert [segment.base_offset for segment in again.segments] == [0, 2**31 + 7, 2**32 + 20]
    assert "segment-split" in kinds(again)
    again.close()
    assert [o for o, _ in contents(kit.open(compacted, had_clean_shutdown=True))] == offsets
    assert not names(kit, ".deleted", ".swap", ".cleaned")


def test_incomplete_splits_are_undone(kit):
    """D05: `.swap` beside `.cleaned` is a set that was not complete."""
    log = kit.open()
    before = fill(kit, log, 10)
    log.close()
    raw = path_of(kit, 0, ".log").read_bytes()
    path_of(kit, 5, ".log.swap").write_bytes(raw[len(raw) // 2 :])
    path_of(kit, 0, ".log.cleaned").write_bytes(raw[: len(raw) // 2])
    assert contents(kit.open()) == before
    assert not names(kit, ".swap", ".cleaned")


def test_the_producers_of_an_emptied_log_stay_forgotten(kit):
    """D19: a snapshot at the new start would open a transaction again that nobody ends any more."""
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"x")
    kit.append(log, b"y")
    log.close(clean=False)
    log = kit.open()  # takes a snapshot at its end
    assert path_of(kit, 2, ".snapshot").exists()
    log.close(clean=False)
    path_of(kit, 0, ".log").write_bytes(b"")
    for _ in range(2):
        log = kit.open(log_start_offset=2)
        assert log.producers.entries == {} and log.log_end_offset == 2
        log.close(clean=False)


def test_a_log_that_ends_before_its_start_is_emptied_and_says_so(kit):
    """D19, D02: hand-deleted segments; announced, and the replica is marked."""
    log = kit.open()
    fill(kit, log)
    log.close()
    again = kit.open(log_start_offset=100, recovery_point=200)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (100, 100, 100)
    assert kinds(again) == ["log-start-beyond-end"]
    assert again.report.damaged
    assert again.epochs.rows == []
    assert (Path(kit.directory) / layout.LEADER_EPOCHS).read_bytes() == b"0\n0\n"
    kit.append(again, b"new")
    assert contents(kit.open(log_start_offset=100)) == [(100, b"new")]


def test_the_recovery_point_is_never_ahead_of_the_log(kit):
    """D02 (KAFKA-10101)."""
    log = kit.open()
    fill(kit, log, 10)
    again = kit.open(recovery_point=500)
    assert again.recovery_point == 10
    assert kit.open(recovery_point=4).recovery_point == 4


def test_epochs_come_back_from_the_batches(kit):
    """D03 (KAFKA-16541): a checkpoint that is missing, empty or torn costs nothing."""
    log = kit.open()
    for i in range(9):
        kit.append(log, b"%d" % i, leader=i // 3)
    rows = log.epochs.rows
    path = Path(kit.directory) / layout.LEADER_EPOCHS
    for content in (None, b"", b"0\n3\n0 0\n1", b"\xff\xff"):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        assert kit.open().epochs.rows == rows
        assert path.read_bytes() == b"0\n3\n0 0\n1 3\n2 6\n"


def test_an_old_format_clears_the_epochs(kit):
    """R08 (KAFKA-7897): epochs with a gap would truncate by guess."""
    from stratalog.records.legacy import build_message_set

    log = kit.open()
    kit.append(log, b"a", leader=3)
    raw = build_message_set([batches.Record(1, NOW, None, b"old")], 1)
    log.append_as_follower(raw, 3, NOW)
    assert log.epochs.rows == []
    assert contents(kit.open())[-1] == (1, b"old")


def test_a_stale_snapshot_beyond_the_log_is_dropped(kit):
    """D15: a snapshot from before a truncation does not describe what is there now."""
    log = kit.open()
    for i in range(10):
        kit.append(log, b"%d" % i, pid=1, epoch=0, sequence=i)
    log.producers.map_end_offset = 10
    log.take_snapshot()
    log.truncate_to(5, NOW)
    assert not names(kit, "10.snapshot")
    assert log.producers.entries[1].last_sequence == 4
    kit.append(log, b"again", pid=1, epoch=0, sequence=5)
    assert kit.open().producers.entries[1].last_sequence == 5


def test_an_aborted_transaction_over_two_segments_is_indexed_once(kit):
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"a")
    log.roll(NOW)
    kit.txn(log, 1, 0, 1, b"b")
    kit.marker(log, 1, 0, commit=False)
    assert names(kit, ".txnindex") == ["00000000000000000001.txnindex"]
    for point in (0, 1, 2, 3):
        assert kit.open(recovery_point=point).aborted_between(0, 3) == [AbortedTxn(1, 0, 2, 3)]
    log.truncate_to(2, NOW)
    assert log.aborted_between(0, 3) == []


def test_a_rebuilt_segment_before_a_trusted_prefix_skips_no_producer(kit):
    """ST-6, ST-8: an old segment has lost its index, and the last flush ended in the middle of the next one.  What is
    trusted of that one is not read again for its indexes, but its producers and its aborted transaction count."""
    log = kit.open()
    for i in range(10):
        kit.append(log, b"v%d" % i)
    log.roll(NOW)
    for i in range(8):
        kit.append(log, b"x" * 100, pid=9, epoch=0, sequence=i)
    kit.txn(log, 5, 0, 0, b"aborted")
    kit.marker(log, 5, 0, commit=False)
    for i in range(8, 16):
        kit.append(log, b"x" * 100, pid=9, epoch=0, sequence=i)
    log.flush()
    flushed = log.recovery_point
    kit.append(log, b"x", pid=9, epoch=0, sequence=16)
    aborted = log.aborted_between(0, log.log_end_offset)
    assert len(aborted) == 1 and log.segments[1].index_bytes > 0
    producers = {pid: entry.row() for pid, entry in log.producers.entries.items()}
    path_of(kit, 0, ".index").unlink()
    for name in names(kit, ".snapshot"):
        os.unlink(f"{kit.directory}/{name}")
    again = kit.open(recovery_point=flushed)
    assert kinds(again) == ["index-rebuilt"]
    assert again.aborted_between(0, again.log_end_offset) == aborted
    assert {pid: entry.row() for pid, entry in again.producers.entries.items()} == producers


def test_a_directory_moves_with_its_log(kit, tmp_path):
    """D12: appends and reads go on under the new name."""
    log = kit.open()
    before = fill(kit, log)
    target = str(tmp_path / "t-0.abc-delete")
    log.rename_directory(target)
    kit.append(log, b"after")
    log.roll(NOW)
    assert contents(log) == [*before, (30, b"after")]
    log.delete()
    assert not os.path.exists(target)


def test_a_lazy_index_may_be_asked_from_many_threads(kit):
    """D11 (KAFKA-14792)."""
    import threading

    log = kit.open()
    fill(kit, log, 60, 30)
    log.close()
    again = kit.open(had_clean_shutdown=True)
    failed = []

    def ask():
        try:
            for offset in range(60):
                assert again.read(offset, 1).offset_metadata.offset == offset
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_readers_never_pass_their_bound_while_the_log_grows_and_rolls(kit):
    """ST-12, R26 (KAFKA-9807, KAFKA-9835)."""
    import threading

    log = kit.open(CONFIG.__class__(segment_bytes=4000, segment_index_bytes=4096, index_interval_bytes=200))
    stop = threading.Event()
    failed = []

    def reader(isolation):
        try:
            while not stop.is_set():
                bound = log.high_watermark if isolation else log.log_end_offset
                start = max(bound - 20, log.log_start_offset)
                data = log.read(start, 1 << 20, isolation)
                after = log.high_watermark if isolation else log.log_end_offset
                if data.region is not None:
                    raw = data.region.read()
                    assert batches.complete_bytes(raw) == len(raw)
                    offsets = [header.base_offset for header in batches.batches(raw)]
                    assert offsets == list(range(start, start + len(offsets)))
                    assert offsets[-1] < after
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failed.append(error)

    threads = [threading.Thread(target=reader, args=(isolation,)) for isolation in (0, 1, 2)]
    for thread in threads:
        thread.start()
    for i in range(1500):
        log.append_as_leader(make_batch([b"v%d" % i]), 0, NOW)
        if i % 3 == 0:
            log.maybe_increment_high_watermark(log.log_end)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(log.segments) > 10
