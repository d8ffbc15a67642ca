"""A log from its first append to its second life."""

import os

import pytest
from storage_kit import CONFIG, NOW, contents, make_batch

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.records import batch as batches
from stratalog.storage.log import Isolation


def test_append_read_roll_and_reopen_clean(kit):
    log = kit.open()
    expected = []
    for i in range(40):
        values = [b"%d-%d" % (i, j) for j in range(3)]
        info = kit.append(log, *values)
        assert (info.first_offset, info.last_offset) == (3 * i, 3 * i + 2)
        expected += [(3 * i + j, value) for j, value in enumerate(values)]
        if i % 10 == 9:
            log.roll(kit.now)
    assert contents(log) == expected
    assert len(log.segments) == 5
    log.check_invariants()
    log.close()
    again = kit.open(had_clean_shutdown=True)
    assert again.log_end_offset == 120
    assert contents(again) == expected
    assert again.report.findings == []
    assert again.recovery_point == 120
    kit.append(again, b"more")
    assert contents(again) == [*expected, (120, b"more")]


def test_a_log_that_was_not_closed_is_recovered(kit):
    log = kit.open()
    for i in range(50):
        kit.append(log, b"v%d" % i)
        if i == 20:
            log.roll(kit.now)
    before = contents(log)
    again = kit.open()
    assert contents(again) == before
    assert again.report.segments_recovered == 2
    assert not again.report.damaged
    assert again.recovery_point == 0


def test_nothing_staged_is_visible_before_the_commit(kit):
    log = kit.open()
    one = log.stage_append(memoryview(make_batch([b"a"])), 0, NOW)
    two = log.stage_append(memoryview(make_batch([b"b", b"c"])), 0, NOW)
    assert (one.first_offset, two.first_offset, two.last_offset) == (0, 1, 2)
    assert log.log_end_offset == 0
    assert log.read(0, 1000).region is None
    assert os.path.getsize(log.active_segment.path) == 0
    log.commit_staged(NOW)
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_offsets_and_epoch_are_stamped_in_place(kit):
    log = kit.open()
    kit.append(log, b"a")
    raw = memoryview(make_batch([b"x", b"y"]))
    log.append_as_leader(raw, 7, NOW)
    header = batches.read_header(raw)
    assert (header.base_offset, header.leader_epoch) == (1, 7)
    assert log.read(1, 1000).region.read() == bytes(raw)
    assert log.epochs.rows == [(0, 0), (7, 1)]


@pytest.mark.parametrize("isolation", list(Isolation))
def test_reads_are_bounded_by_their_isolation(kit, isolation):
    """ST-12."""
    log = kit.open()
    for i in range(10):
        log.append_as_leader(memoryview(make_batch([b"%d" % i])), 0, NOW)
    log.update_high_watermark(6)
    bound = 10 if isolation is Isolation.LOG_END else 6
    for start in range(11):
        data = log.read(start, 1 << 20, isolation)
        if start >= bound:
            assert data.region is None
        else:
            offsets = [h.base_offset for h in batches.batches(data.region.read())]
            assert offsets == list(range(start, bound))
    with pytest.raises(ApiError) as caught:
        log.read(11, 100, isolation)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_gives_at_least_one_batch_when_asked(kit):
    log = kit.open()
    kit.append(log, b"x" * 5000)
    whole = os.path.getsize(log.active_segment.path)
    assert log.read(0, 10, min_one=True).size == whole
    data = log.read(0, 10, min_one=False)
    assert data.size == 10
    assert data.first_entry_incomplete
    assert log.read(0, 0, min_one=False).region is None


def test_a_read_in_the_middle_of_a_batch_gives_the_whole_batch(kit):
    log = kit.open()
    kit.append(log, b"a", b"b", b"c")
    kit.append(log, b"d")
    data = log.read(1, 1 << 20)
    assert data.offset_metadata.offset == 0
    assert contents(log, start=1) == [(1, b"b"), (2, b"c"), (3, b"d")]


def test_a_region_outlives_its_segment(kit):
    log = kit.open()
    kit.append(log, b"a")
    region = log.read(0, 1000).region
    raw = region.read()
    log.roll(kit.now)
    kit.append(log, b"b")
    deletion = log.delete_segments(log.segments[:1], "test", kit.now)
    assert region.read() == raw
    log.finish_deletion(deletion)
    assert region.read() == raw
    assert log.log_start_offset == 1
    assert not any(name.endswith(".deleted") for name in os.listdir(kit.directory))
    with pytest.raises(ApiError):
        log.read(0, 100)


def test_every_segment_can_be_deleted_and_an_empty_one_stays(kit):
    log = kit.open()
    for i in range(3):
        kit.append(log, b"%d" % i)
        log.roll(kit.now)
    kit.append(log, b"last")
    log.delete_segments(log.segments, "test", kit.now)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (4, 4, 1)
    log.check_invariants()
    kit.append(log, b"new")
    again = kit.open()
    assert contents(again) == [(4, b"new")]


def test_segments_roll_by_size_time_and_full_index(kit):
    log = kit.open()
    small = CONFIG.__class__(segment_bytes=1000, segment_ms=1000, segment_index_bytes=4096, index_interval_bytes=0)
    log.configure(small)
    kit.append(log, b"x" * 600)
    kit.append(log, b"y" * 600)
    assert len(log.segments) == 2  # size
    kit.append(log, b"z", timestamp=NOW + 1000)
    assert len(log.segments) == 2
    kit.append(log, b"z", timestamp=NOW + 1001)
    assert len(log.segments) == 3  # time between batches
    full = CONFIG.__class__(segment_index_bytes=40, index_interval_bytes=0)
    log.close()
    log = kit.open(full, had_clean_shutdown=True)
    count = len(log.segments)
    for _ in range(10):
        kit.append(log, b"v")
    assert len(log.segments) > count  # five offsets a segment
    assert [o for o, _ in contents(log)] == list(range(14))


@pytest.mark.parametrize(("policy", "rolls"), [("compact", True), ("delete", False)])
def test_the_compaction_lag_bounds_how_long_a_segment_is_active(kit, policy, rolls):
    """Seed 001, `max.compaction.lag.ms`, KIP-354: the active segment is not cleaned, so it has to roll in time."""
    log = kit.open(CONFIG.__class__(cleanup_policy=(policy,), max_compaction_lag_ms=1000))
    kit.append(log, b"a", keys=[b"k"])
    kit.append(log, b"b", keys=[b"k"], timestamp=NOW + 1000)
    assert len(log.segments) == 1
    kit.append(log, b"c", keys=[b"k"], timestamp=NOW + 1001)
    assert len(log.segments) == (2 if rolls else 1)


def test_roll_onto_an_existing_empty_segment(kit):
    """D10 (KAFKA-6388): an index without room makes an empty segment look full."""
    log = kit.open(CONFIG.__class__(segment_index_bytes=4, segment_bytes=1 << 20))
    for i in range(5):
        kit.append(log, b"%d" % i)
        log.check_invariants()
    assert [o for o, _ in contents(log)] == list(range(5))
    log.close()
    assert contents(kit.open(had_clean_shutdown=True)) == contents(kit.open())


def test_a_segment_rolls_when_its_offsets_outgrow_it(kit):
    """ST-13."""
    compacted = CONFIG.__class__(cleanup_policy=("compact",), segment_index_bytes=4096)  # where holes are legal
    log = kit.open(compacted)
    kit.append(log, b"a", keys=[b"k"])
    far = make_batch([b"b"], base=2**31, leader=0)
    log.append_as_follower(memoryview(far), 0, NOW)
    assert [s.base_offset for s in log.segments] == [0, 2**31]
    assert contents(log) == [(0, b"a"), (2**31, b"b")]
    assert contents(kit.open(compacted)) == [(0, b"a"), (2**31, b"b")]


def test_deleting_records_moves_the_start_and_survives(kit):
    log = kit.open()
    for i in range(10):
        kit.append(log, b"%d" % i)
    log.update_high_watermark(8)
    with pytest.raises(ApiError) as caught:
        log.delete_records(9)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(5) == 5
    assert log.delete_records(3) == 5
    assert log.delete_records(-1) == 8
    with pytest.raises(ApiError):
        log.read(7, 100)
    log.close()
    again = kit.open(log_start_offset=8, had_clean_shutdown=True)
    assert contents(again) == [(8, b"8"), (9, b"9")]


def test_records_are_found_by_timestamp(kit):
    """ST-7 by example: equal and out-of-order timestamps, several segments, compressed batches."""
    log = kit.open()
    stamps = [50, 20, 30, 90, 90, 10, 70, 120, 5, 119]
    for i, stamp in enumerate(stamps):
        kit.append(log, b"a%d" % i, b"b%d" % i, timestamp=NOW - 1000 + stamp, codec=[0, 1][i % 2])
        if i in (3, 6):
            log.roll(kit.now)
    flat = [(2 * i + j, NOW - 1000 + stamp + j) for i, stamp in enumerate(stamps) for j in range(2)]
    for either in (log, kit.open()):
        for wanted in range(NOW - 1001, NOW - 870):
            brute = next(((t, o) for o, t in flat if t >= wanted), None)
            found = either.offset_for_timestamp(wanted)
            assert (found and (found.timestamp, found.offset)) == brute, wanted - NOW + 1000
        greatest = either.max_timestamp_offset()
        assert (greatest.timestamp, greatest.offset) == (NOW - 1000 + 121, 15)


def test_truncation_keeps_a_prefix(kit):
    log = kit.open()
    for i in range(20):
        kit.append(log, b"%d" % i, leader=i // 5)
        if i % 7 == 6:
            log.roll(kit.now)
    assert log.truncate_to(9, kit.now)
    assert [o for o, _ in contents(log)] == list(range(9))
    assert log.epochs.rows == [(0, 0), (1, 5)]
    log.check_invariants()
    assert log.high_watermark == 9
    kit.append(log, b"again", leader=9)
    assert contents(log)[-1] == (9, b"again")
    assert contents(kit.open()) == contents(log)
    log.truncate_fully_and_start_at(100, kit.now)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.rows) == (100, 100, [])
    kit.append(log, b"x", leader=10)
    assert contents(kit.open()) == [(100, b"x")]


def test_truncating_at_the_end_still_drops_conflicting_epochs(kit):
    """R09 (KAFKA-10706)."""
    log = kit.open()
    kit.append(log, b"a", leader=1)
    log.assign_epoch(5, 1)
    assert log.epochs.rows == [(1, 0), (5, 1)]
    assert not log.truncate_to(1, kit.now)
    assert log.epochs.rows == [(1, 0)]
    assert kit.open().epochs.rows == [(1, 0)]


def test_epochs_answer_where_they_end(kit):
    log = kit.open()
    for leader, count in ((1, 3), (4, 2), (6, 5)):
        for _ in range(count):
            kit.append(log, b"v", leader=leader)
    assert [log.end_offset_for_epoch(e) for e in (-1, 0, 1, 2, 4, 5, 6, 7)] == [
        (-1, -1),
        (0, 0),
        (1, 3),
        (1, 3),
        (4, 5),
        (4, 5),
        (6, 10),
        (-1, -1),
    ]
    assert [log.epochs.epoch_for_offset(o) for o in (0, 2, 3, 9)] == [1, 1, 4, 6]


def test_high_watermark_is_bounded_and_monotone_for_a_leader(kit):
    """ST-3, R27 (KAFKA-15703)."""
    log = kit.open()
    for i in range(5):
        log.append_as_leader(memoryview(make_batch([b"%d" % i])), 0, NOW)
    assert log.update_high_watermark(99) == 5
    log.delete_records(2)
    assert log.update_high_watermark(0) == 2
    assert log.maybe_increment_high_watermark(log.log_end)
    assert not log.maybe_increment_high_watermark(log.log_end._replace(offset=3))
    assert log.high_watermark == 5


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda b: b.__setitem__(70, b[70] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b.__setitem__(7, 3), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_a_client_may_not_send_is_refused(kit, change, code):
    log = kit.open()
    raw = make_batch([b"hello world"])
    change(raw)
    with pytest.raises((ApiError, ValueError)) as caught:
        log.append_as_leader(memoryview(raw), 0, NOW)
    assert getattr(caught.value, "code", ErrorCode.CORRUPT_MESSAGE) is code
    assert log.log_end_offset == 0
    kit.append(log, b"fine")


def test_size_limits_have_their_codes(kit):
    log = kit.open(CONFIG.__class__(max_message_bytes=500, segment_bytes=300))
    with pytest.raises(ApiError) as caught:
        kit.append(log, b"x" * 600)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ApiError) as caught:
        kit.append(log, b"x" * 400)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_compacted_topic_wants_keys_and_log_append_time_stamps(kit):
    log = kit.open(CONFIG.__class__(cleanup_policy=("compact",)))
    with pytest.raises(ApiError) as caught:
        kit.append(log, b"no key")
    assert caught.value.code is ErrorCode.INVALID_RECORD
    kit.append(log, b"v", keys=[b"k"])
    log.configure(CONFIG.__class__(message_timestamp_type="LogAppendTime"))
    info = kit.append(log, b"v", timestamp=5)
    assert info.log_append_time == NOW
    assert log.max_timestamp_offset().offset in (0, 1)
    header = batches.read_header(log.read(1, 1000).region.read())
    assert header.max_timestamp == NOW


def test_codec_of_the_topic_wins(kit):
    log = kit.open(CONFIG.__class__(compression_type="gzip"))
    kit.append(log, b"v" * 300)
    header = batches.read_header(log.read(0, 1000).region.read())
    assert header.codec == 1
    assert contents(log) == [(0, b"v" * 300)]
    log.configure(CONFIG.__class__(compression_type="uncompressed"))
    kit.append(log, b"w", codec=1)
    assert batches.read_header(log.read(1, 1000).region.read()).codec == 0


def test_a_follower_takes_what_the_leader_has(kit, tmp_path):
    leader = kit.open()
    for i in range(6):
        kit.append(leader, b"%d" % i, pid=3, epoch=0, sequence=i, leader=i // 3)
    copy = kit.__class__(tmp_path / "copy-0")
    follower = copy.open()
    raw = leader.read(0, 1 << 20).region.read()
    cut = bytearray(raw[:-5])
    info = follower.append_as_follower(memoryview(cut), 1, NOW)
    assert info.last_offset == 4
    with pytest.raises(ApiError):
        follower.append_as_follower(memoryview(cut), 1, NOW)
    rest = leader.read(5, 1 << 20).region.read()
    follower.append_as_follower(rest, 1, NOW)
    assert follower.read(0, 1 << 20).region.read() == raw
    assert follower.epochs.rows == leader.epochs.rows == [(0, 0), (1, 3)]
    assert follower.producers.entries[3].row() == leader.producers.entries[3].row()


def test_a_fetch_with_more_batches_than_an_index_has_entries(kit):
    """They go into one segment; its index ends early, and the next append rolls."""
    config = CONFIG.__class__(segment_bytes=1 << 20, segment_index_bytes=36, index_interval_bytes=10)
    log = kit.open(config)
    fetched = b"".join(bytes(make_batch([b"%d" % i], base=i, leader=0, timestamp=NOW + i)) for i in range(20))
    log.append_as_follower(bytearray(fetched), 0, NOW)
    assert contents(log) == [(i, b"%d" % i) for i in range(20)]
    assert log.segments[0].entries_left() == 0
    log.append_as_follower(make_batch([b"20"], base=20, leader=0, timestamp=NOW + 20), 0, NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 20]
    assert log.offset_for_timestamp(NOW + 18).offset == 18
    assert contents(kit.open(config), start=15) == [(i, b"%d" % i) for i in range(15, 21)]


def test_a_follower_leaves_out_batches_of_a_newer_epoch(kit, tmp_path):
    leader = kit.open()
    kit.append(leader, b"a", leader=1)
    kit.append(leader, b"b", leader=2)
    follower = kit.__class__(tmp_path / "copy-0").open()
    raw = leader.read(0, 1 << 20).region.read()
    assert follower.append_as_follower(raw, 1, NOW).last_offset == 0
    assert follower.append_as_follower(leader.read(1, 100).region.read(), 1, NOW) is None
    assert follower.log_end_offset == 1


def test_a_flush_moves_the_recovery_point_only_when_complete(kit):
    """ST-4, D16."""
    log = kit.open()
    kit.append(log, b"a")
    plan = log.flush_plan()
    kit.append(log, b"b")
    assert log.recovery_point == 0
    plan.run()
    log.complete_flush(plan)
    assert log.recovery_point == 1
    stale = log.flush_plan()
    log.truncate_to(1, kit.now)
    kit.append(log, b"c")
    stale.run()
    log.complete_flush(stale)
    assert log.recovery_point == 1, "a truncation in between: what was synced is not what is there"
    log.configure(CONFIG.__class__(flush_messages=1))
    kit.append(log, b"d")
    assert log.recovery_point == log.log_end_offset == 3
