"""Producers: sequences, duplicates, fencing, transactions, expiry, snapshots."""

import os
import struct

import pytest
from storage_kit import CONFIG, NOW, contents, make_batch

from stratalog.base import limits
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.types import MAX_INT32
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.storage.log import AbortedTxn, Isolation, Origin
from stratalog.storage.producers import ProducerEntry, ProducerState, decode_snapshot, encode_snapshot


def refused(code, call, *args, **options):
    with pytest.raises(ApiError) as caught:
        call(*args, **options)
    assert caught.value.code is code


def test_the_last_five_batches_are_deduplicated_with_their_offsets(kit):
    """ST-14."""
    log = kit.open()
    for i in range(8):
        kit.append(log, b"a", b"b", pid=1, epoch=0, sequence=2 * i)
    for i in range(3, 8):
        info = kit.append(log, b"a", b"b", pid=1, epoch=0, sequence=2 * i)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (2 * i, 2 * i + 1)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, kit.append, log, b"a", b"b", pid=1, epoch=0, sequence=4)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, kit.append, log, b"a", pid=1, epoch=0, sequence=14)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, kit.append, log, b"a", pid=1, epoch=0, sequence=17)
    assert log.log_end_offset == 16


def test_a_duplicate_of_a_staged_batch_is_seen(kit):
    log = kit.open()
    raw = make_batch([b"a"], pid=1, epoch=0, sequence=0)
    first = log.stage_append(memoryview(bytearray(raw)), 0, NOW)
    again = log.stage_append(memoryview(bytearray(raw)), 0, NOW)
    assert not first.duplicate
    assert again.duplicate
    assert again.first_offset == 0
    log.commit_staged(NOW)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("compressed", [0, 1])
@pytest.mark.parametrize(("last", "following", "fits"), [(MAX_INT32, 0, True), (MAX_INT32, 1, False), (5, 6, True)])
def test_sequences_wrap(kit, last, following, fits, compressed):
    """P09; `compressed` takes the general way."""
    log = kit.open()
    kit.append(log, b"a", pid=1, epoch=0, sequence=last, codec=compressed)
    if fits:
        kit.append(log, b"b", pid=1, epoch=0, sequence=following, codec=compressed)
        assert log.log_end_offset == 2
    else:
        refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            kit.append,
            log,
            b"b",
            pid=1,
            epoch=0,
            sequence=following,
            codec=compressed,
        )


def test_a_batch_may_span_the_wrap_and_is_still_known(kit):
    """P09."""
    log = kit.open()
    kit.append(log, b"a", b"b", b"c", pid=1, epoch=0, sequence=MAX_INT32 - 1)
    assert log.producers.entries[1].last_sequence == 0
    assert kit.append(log, b"a", b"b", b"c", pid=1, epoch=0, sequence=MAX_INT32 - 1).duplicate
    kit.append(log, b"d", pid=1, epoch=0, sequence=1)
    assert log.log_end_offset == 4


def test_epochs_fence(kit):
    log = kit.open()
    kit.append(log, b"a", pid=1, epoch=1, sequence=0)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, kit.append, log, b"a", pid=1, epoch=0, sequence=1)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, kit.append, log, b"a", pid=1, epoch=2, sequence=1)
    kit.append(log, b"b", pid=1, epoch=2, sequence=0)
    again = kit.open()
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, kit.append, again, b"a", pid=1, epoch=1, sequence=0)


def test_an_unknown_producer_may_begin_anywhere(kit):
    """P07 (KIP-360): its records are gone, there is no UNKNOWN_PRODUCER_ID, and no duplicate."""
    log = kit.open()
    kit.append(log, b"a", pid=1, epoch=0, sequence=0)
    log.expire_producers(NOW + CONFIG.producer_id_expiration_ms + 1)
    assert 1 not in log.producers.entries
    kit.append(log, b"b", pid=1, epoch=0, sequence=77)
    assert kit.append(log, b"b", pid=1, epoch=0, sequence=77).duplicate


def test_a_follower_takes_appends_of_producers_it_does_not_know(kit):
    """P08 (KAFKA-6003)."""
    log = kit.open()
    log.append_as_follower(make_batch([b"a"], pid=9, epoch=3, sequence=500, base=10, leader=0), 0, NOW)
    assert log.producers.entries[9].row()[:5] == (9, 3, 500, 10, 0)
    log.append_as_follower(make_batch([b"a"], pid=9, epoch=3, sequence=900, base=11, leader=0), 0, NOW)
    assert log.log_end_offset == 12


def test_beyond_the_limit_the_idlest_producers_are_forgotten(kit, monkeypatch):
    """`security.md` 7.2: ids cost memory.  An open transaction is never forgotten, and the forgotten may go on."""
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 16)
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"a")
    for pid in range(2, 19):
        kit.append(log, b"a", pid=pid, epoch=0, sequence=0, timestamp=NOW + pid)
    assert sorted(log.producers.entries) == [1, *range(4, 19)]
    kit.append(log, b"b", pid=2, epoch=0, sequence=1, timestamp=NOW + 30)
    assert 2 in log.producers.entries and 4 not in log.producers.entries
    log.check_invariants()


def test_an_open_transaction_does_not_expire():
    state = ProducerState(1000)
    state.entries = {1: ProducerEntry(1, 0, 0, 0, 5), 2: ProducerEntry(2, 0, 0, 0, -1)}
    state.expire(10_000)
    assert list(state.entries) == [1]


def test_transactions_bound_the_last_stable_offset_and_aborts_are_told(kit):
    log = kit.open()
    kit.append(log, b"plain")  # 0
    kit.txn(log, 1, 0, 0, b"a1", b"a2")  # 1, 2
    kit.txn(log, 2, 0, 0, b"b1")  # 3
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    kit.marker(log, 2, 0, commit=False)  # 4
    assert log.last_stable_offset == 1
    kit.txn(log, 1, 0, 2, b"a3")  # 5
    kit.marker(log, 1, 0, commit=True)  # 6
    assert log.last_stable_offset == 7
    data = log.read(0, 1 << 20, Isolation.TXN_COMMITTED)
    assert data.aborted == [AbortedTxn(2, 3, 4, 1)]
    assert log.aborted_between(5, 7) == []
    assert log.read(0, 1 << 20, Isolation.HIGH_WATERMARK).aborted is None
    for again in (kit.open(), kit.open(recovery_point=3)):
        assert again.last_stable_offset == 7
        assert again.aborted_between(0, 7) == [AbortedTxn(2, 3, 4, 1)]


def test_a_marker_above_the_high_watermark_keeps_its_transaction_unstable(kit):
    """R26: the last stable offset may not pass a decided transaction before its marker is replicated."""
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"a")
    batch = control.build_marker(committed=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW)
    log.append_as_leader(batch, 0, NOW, origin=Origin.COORDINATOR)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_the_open_transaction_survives_truncation_and_reload(kit):
    """R10 (KAFKA-12153)."""
    log = kit.open()
    kit.append(log, b"plain")
    kit.txn(log, 1, 0, 0, b"a")
    kit.append(log, b"plain")
    kit.marker(log, 1, 0, commit=True)
    assert log.last_stable_offset == 4
    log.truncate_to(3, NOW)
    log.check_invariants()
    assert log.last_stable_offset == 1
    assert log.has_ongoing_transaction(1, 0)
    log.truncate_to(1, NOW)
    assert log.last_stable_offset == 1
    assert not log.has_ongoing_transaction(1, 0)


def test_late_transactions_are_seen_across_a_reload(kit):
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"a")
    late = NOW + CONFIG.transaction_max_timeout_ms + 300_001
    assert not log.has_late_transaction(late - 1)
    assert log.has_late_transaction(late)
    again = kit.open()
    assert again.has_late_transaction(late)
    kit.marker(again, 1, 0, commit=True)
    assert not again.has_late_transaction(late)


def test_a_transaction_needs_its_guard_and_only_once(kit):
    log = kit.open()
    raw = make_batch([b"a"], pid=1, epoch=0, sequence=0, txn=True)
    refused(ErrorCode.INVALID_TXN_STATE, log.append_as_leader, memoryview(raw), 0, NOW)
    guard = log.start_verification(1, 0, 0, False, NOW)
    assert log.start_verification(1, 0, 0, False, NOW) is guard
    log.append_as_leader(memoryview(bytearray(raw)), 0, NOW, guard=guard)
    assert log.start_verification(1, 1, 0, False, NOW) is None, "it is open: no guard needed"
    log.append_as_leader(memoryview(make_batch([b"b"], pid=1, epoch=0, sequence=1, txn=True)), 0, NOW)
    kit.marker(log, 1, 0, commit=True)
    late = make_batch([b"c"], pid=1, epoch=0, sequence=2, txn=True)
    refused(ErrorCode.INVALID_TXN_STATE, log.append_as_leader, memoryview(late), 0, NOW, guard=guard)


def test_a_marker_in_between_takes_the_guard_away(kit):
    log = kit.open()
    guard = log.start_verification(1, 0, 0, False, NOW)
    kit.marker(log, 1, 0, commit=False)
    raw = make_batch([b"a"], pid=1, epoch=0, sequence=0, txn=True)
    refused(ErrorCode.INVALID_TXN_STATE, log.append_as_leader, memoryview(raw), 0, NOW, guard=guard)


def test_a_verified_producer_begins_at_its_lowest_sequence(kit):
    """KIP-890: what a retry brings first may not be the first that was sent."""
    log = kit.open()
    guard = log.start_verification(1, 1, 0, False, NOW)
    log.start_verification(1, 0, 0, False, NOW)
    raw = make_batch([b"b"], pid=1, epoch=0, sequence=1, txn=True)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log.append_as_leader, memoryview(raw), 0, NOW, guard=guard)
    bump = log.start_verification(2, 3, 0, True, NOW)
    raw = make_batch([b"b"], pid=2, epoch=0, sequence=3, txn=True)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log.append_as_leader, memoryview(raw), 0, NOW, guard=bump)


def test_plain_batches_are_refused_inside_a_transaction(kit):
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"a")
    refused(ErrorCode.INVALID_TXN_STATE, kit.append, log, b"b", pid=1, epoch=0, sequence=1)


def test_markers_fence_by_producer_and_coordinator_epoch(kit):
    log = kit.open()
    kit.txn(log, 1, 5, 0, b"a")
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, kit.marker, log, 1, 4, commit=True)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, kit.marker, log, 1, 5, commit=True, version=2)
    kit.marker(log, 1, 6, commit=True, coordinator=3, version=2)
    kit.marker(log, 1, 6, commit=True, coordinator=3, version=2)  # KAFKA-19999: its retry
    refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, kit.marker, log, 1, 7, commit=True, coordinator=2, version=2)
    assert log.producers.entries[1].epoch == 6


def test_a_refused_append_changes_nothing(kit):
    log = kit.open()
    kit.append(log, b"a", pid=1, epoch=0, sequence=0)
    before = {pid: entry.row() for pid, entry in log.producers.entries.items()}
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, kit.append, log, b"b", pid=1, epoch=0, sequence=5)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, kit.append, log, b"b", pid=1, epoch=1, sequence=5)
    assert {pid: entry.row() for pid, entry in log.producers.entries.items()} == before
    assert contents(log) == [(0, b"a")]


def test_snapshots_round_trip_and_damage_is_refused():
    entries = [
        ProducerEntry(1, 2, 3, 4, 5, [(6, 7, 8, 4)]),
        ProducerEntry(9, -1, -1, -1, -1, []),
    ]
    data = encode_snapshot(entries)
    assert len(data) == 10 + 2 * 46
    assert [entry.row() for entry in decode_snapshot(data)] == [entry.row() for entry in entries]
    assert decode_snapshot(encode_snapshot([])) == []
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(Malformed):
            decode_snapshot(bytes(damaged))
        with pytest.raises(Malformed):
            decode_snapshot(data[:position])
    with pytest.raises(Malformed):
        decode_snapshot(struct.pack(">hIi", 1, 0, 2**31 - 1))


def test_a_damaged_snapshot_is_discarded_and_older_ones_serve(kit):
    """ST-8, D09."""
    log = kit.open()
    for i in range(30):
        kit.append(log, b"v", pid=i % 3, epoch=0, sequence=i // 3)
        if i % 10 == 9:
            log.roll(NOW)
    expected = {pid: entry.row() for pid, entry in log.producers.entries.items()}
    log.close()
    names = sorted(name for name in os.listdir(kit.directory) if name.endswith(".snapshot"))
    assert len(names) == 3
    with open(f"{kit.directory}/{names[-1]}", "r+b") as file:
        file.seek(20)
        file.write(b"\xff")
    again = kit.open(had_clean_shutdown=True)
    assert {pid: entry.row() for pid, entry in again.producers.entries.items()} == expected
    assert [finding.kind for finding in again.report.findings] == ["snapshot-removed"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_first_index_costs_no_snapshot(kit, clean):
    """D09 (KAFKA-5829): the segment is read again; what older segments' producers have done is still known."""
    log = kit.open()
    for i in range(30):
        kit.append(log, b"v", pid=i % 3, epoch=0, sequence=i // 3)
        if i % 10 == 9:
            log.roll(NOW)
    expected = {pid: entry.row() for pid, entry in log.producers.entries.items()}
    log.close()
    before = sorted(name for name in os.listdir(kit.directory) if name.endswith(".snapshot"))
    with open(f"{kit.directory}/{0:020d}.index", "ab") as file:
        file.write(b"\1\2\3")
    again = kit.open(had_clean_shutdown=clean)
    assert "index-rebuilt" in {finding.kind for finding in again.report.findings}
    assert {pid: entry.row() for pid, entry in again.producers.entries.items()} == expected
    assert set(before) <= set(os.listdir(kit.directory))


def test_an_empty_snapshot_at_the_log_start_is_one(kit):
    """D09 (KAFKA-5435): after everything was deleted, nobody is known; and that is no reason to read anything again."""
    log = kit.open()
    for i in range(5):
        kit.append(log, b"v", pid=1, epoch=0, sequence=i)
    log.truncate_fully_and_start_at(100, NOW)
    for _ in range(3):
        kit.append(log, b"w")
    log.roll(NOW)
    log.close()
    with open(f"{kit.directory}/{100:020d}.snapshot", "wb") as file:
        file.write(encode_snapshot([]))
    again = kit.open(log_start_offset=100, had_clean_shutdown=True)
    assert again.producers.entries == {}
    assert contents(again) == [(100 + i, b"w") for i in range(3)]
    assert kit.append(again, b"x", pid=1, epoch=0, sequence=5).first_offset == 103


def test_producer_state_equals_a_replay_from_empty(kit):
    """ST-8, ST-6: without any snapshot the answer is the same."""
    log = kit.open()
    for i in range(40):
        kit.append(log, b"v", b"w", pid=i % 4, epoch=i // 20, sequence=0 if i in range(20, 24) else (i % 20 // 4) * 2)
        if i % 9 == 8:
            log.roll(NOW)
    kit.txn(log, 7, 0, 0, b"open")
    expected = {pid: entry.row() for pid, entry in log.producers.entries.items()}
    log.close()
    for name in os.listdir(kit.directory):
        if name.endswith(".snapshot"):
            os.unlink(f"{kit.directory}/{name}")
    for clean in (True, False):
        again = kit.open(had_clean_shutdown=clean)
        assert {pid: entry.row() for pid, entry in again.producers.entries.items()} == expected
        assert again.has_ongoing_transaction(7, 0)


def test_stray_snapshots_go_but_the_newest_beyond_all_segments_stays(kit):
    log = kit.open()
    for i in range(6):
        kit.append(log, b"v", pid=1, epoch=0, sequence=i)
        if i == 2:
            log.roll(NOW)
    log.close()
    data = encode_snapshot([])
    for offset in (1, 2, 4, 5):
        with open(f"{kit.directory}/{offset:020d}.snapshot", "wb") as file:
            file.write(data)
    kit.open(had_clean_shutdown=True)
    left = sorted(int(name[:20]) for name in os.listdir(kit.directory) if name.endswith(".snapshot"))
    assert left == [3, 6]


def test_an_aborted_transaction_keeps_its_batches_readable_uncommitted(kit):
    log = kit.open()
    kit.txn(log, 1, 0, 0, b"a")
    kit.marker(log, 1, 0, commit=False)
    raw = log.read(0, 1 << 20, Isolation.TXN_COMMITTED).region.read()
    kinds = [(h.is_control, h.producer_id) for h in batches.batches(raw)]
    assert kinds == [(False, 1), (True, 1)]
