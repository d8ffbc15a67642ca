"""The runtime: what is visible when, what a failure leaves, what a load brings back."""

from __future__ import annotations

import errno

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.records import batch as v2
from stratalog.records.control import build_marker
from stratalog.rsm import runtime as runtime_module
from stratalog.rsm.runtime import TRANSITIONS, Runtime, State
from stratalog.rsm.shard import Now


def at(ms: int) -> Now:
    return Now(1_000_000 + ms, ms)


START = at(0)


@pytest.fixture
def runtime(log, counter) -> Runtime:
    runtime = Runtime(log, counter, write_timeout_ms=5_000)
    runtime.elect(at(0))
    return runtime


def submit(runtime: Runtime, *event, now: Now = START) -> list:
    replies: list = []
    runtime.submit(replies.append, (replies.append, *event), now)
    return replies


def test_a_write_is_answered_once_it_is_committed(runtime, log):
    log.commits = False
    replies = submit(runtime, "add", 1, 2)
    assert replies == []
    log.high_watermark = 1  # the first of the two records
    runtime.high_watermark_moved(at(1))
    assert replies == []
    log.high_watermark = 2
    runtime.high_watermark_moved(at(2))
    assert replies == [3]


def test_a_handler_sees_what_was_written_but_a_read_waits_for_its_commit(runtime, log):
    log.commits = False
    submit(runtime, "add", 5)
    second = submit(runtime, "add", 1)
    read = submit(runtime, "get")
    assert second == read == []
    log.high_watermark = 1
    runtime.high_watermark_moved(at(1))
    assert read == []
    log.high_watermark = 2
    runtime.high_watermark_moved(at(1))
    assert (second, read) == ([6], [6])


def test_a_read_of_committed_state_does_not_wait(runtime, log):
    submit(runtime, "add", 5)
    assert submit(runtime, "get") == [5]


def test_an_append_that_is_refused_changes_nothing(runtime, log):
    log.error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert submit(runtime, "add", 5) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    log.error = None
    assert submit(runtime, "get") == [0]
    assert runtime.state is State.ACTIVE


def test_a_disk_fault_fails_the_runtime_and_an_election_loads_it_again(runtime, log):
    submit(runtime, "add", 5)
    log.error = OSError(errno.EIO, "broken", "x.log")
    assert submit(runtime, "add", 6) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert runtime.state is State.FAILED
    assert submit(runtime, "get") == [ErrorCode.NOT_COORDINATOR]
    log.error = None
    runtime.elect(at(1))
    assert submit(runtime, "get") == [5]


def test_what_never_reached_the_log_is_forgotten_and_its_readers_are_told(runtime, log):
    """Staged records were replayed, then the write at the end of the wake-up failed."""
    submit(runtime, "add", 1)
    log.commits = False
    write = submit(runtime, "add", 5)
    read = submit(runtime, "get")
    log.truncate_to(1)
    runtime.fail(OSError(errno.EIO, "broken"), at(1))
    assert write == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert read == [ErrorCode.NOT_COORDINATOR]
    runtime.elect(at(2))
    assert submit(runtime, "get") == [1]


def test_a_failed_runtime_tries_again_with_growing_pauses(runtime, log):
    submit(runtime, "add", 5)
    log.error = OSError(errno.ENOSPC, "full")
    now = 0
    for pause in (100, 200, 400):
        assert submit(runtime, "add", 1, now=at(now)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert runtime.deadline() == now + pause
        runtime.tick(at(now + pause - 1))
        assert runtime.state is State.FAILED
        now += pause
        runtime.tick(at(now))
        assert submit(runtime, "get") == [5]
    log.error = None
    assert submit(runtime, "add", 1) == [6]


def test_a_write_that_waits_too_long_is_given_up_but_stays(runtime, log):
    log.commits = False
    first = submit(runtime, "add", 5)
    second = submit(runtime, "add", 6, now=at(3_000))
    assert runtime.deadline() == 5_000
    runtime.tick(at(5_000))
    assert (first, second) == ([ErrorCode.REQUEST_TIMED_OUT], [])
    assert runtime.deadline() == 8_000
    log.high_watermark = 2
    runtime.high_watermark_moved(at(6_000))
    assert (first, second) == ([ErrorCode.REQUEST_TIMED_OUT], [11])
    assert runtime.deadline() is None
    assert submit(runtime, "get") == [11]


def test_events_are_refused_by_state(log, counter):
    runtime = Runtime(log, counter)
    assert submit(runtime, "get") == [ErrorCode.NOT_COORDINATOR]
    runtime.elect(at(0))
    runtime.resign(at(1))
    assert submit(runtime, "get") == [ErrorCode.NOT_COORDINATOR]


def test_a_long_log_is_loaded_in_steps(runtime, log, counter, monkeypatch):
    """LOAD_IN_PROGRESS meanwhile (seed 004, 5.5)."""
    for n in range(10):
        submit(runtime, "add", n)
    monkeypatch.setattr(runtime_module, "LOAD_BYTES", 2 * len(log.batches[0]))
    again = Runtime(log, counter)
    again.elect(at(0))
    steps = 0
    while again.state is State.LOADING:
        assert submit(again, "get") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert again.deadline() == 0
        again.tick(at(steps))
        steps += 1
    assert steps == 4
    assert submit(again, "get") == [45]
    assert again.records_loaded == 10


def test_a_gap_before_the_end_of_the_log_does_not_hold_the_loader(log, counter):
    """C16, G04: compaction took the last records; the end offset stays."""
    builder = v2.BatchBuilder(base_offset=0)
    builder.append(1, b"n", b"7")
    log.batches = [bytes(builder.build())]
    log.log_end_offset = log.high_watermark = 100
    runtime = Runtime(log, counter)
    runtime.elect(at(0))
    runtime.tick(at(0))
    assert runtime.state is State.ACTIVE
    assert log.reads <= 3
    assert submit(runtime, "get") == [7]


def test_a_batch_that_was_emptied_or_begins_earlier_is_taken_right(log, counter):
    builder = v2.BatchBuilder(base_offset=0)
    for n in (1, 10, 100):
        builder.append(1, b"n", b"%d" % n)
    empty = v2.BatchBuilder(base_offset=3).build(last_offset=9)
    log.batches = [bytes(builder.build()), bytes(empty)]
    log.log_start_offset = 1
    log.log_end_offset = log.high_watermark = 10
    runtime = Runtime(log, counter)
    runtime.elect(at(0))
    runtime.tick(at(0))
    assert submit(runtime, "get") == [110]


def test_markers_end_transactions_in_order(log, counter):
    builder = v2.BatchBuilder(base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(1, b"n", b"1")
    marker = build_marker(
        committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=1
    )
    log.batches = [bytes(builder.build()), bytes(marker)]
    log.log_end_offset = log.high_watermark = 2
    runtime = Runtime(log, counter)
    runtime.elect(at(0))
    assert runtime.shard.ended == [(7, True)]
    assert runtime.shard.value == 1


def test_a_damaged_log_fails_the_runtime(runtime, log, counter):
    submit(runtime, "add", 5)
    damaged = bytearray(log.batches[0])
    damaged[-2] ^= 1
    log.batches[0] = bytes(damaged)
    again = Runtime(log, counter)
    again.elect(at(0))
    assert again.state is State.FAILED
    assert "CRC" in str(again.error)


def test_timers_write_records(runtime, log):
    submit(runtime, "alarm", 50)
    assert runtime.deadline() == 50
    runtime.tick(at(49))
    assert submit(runtime, "get") == [0]
    runtime.tick(at(50))
    assert submit(runtime, "get") == [1000]


def test_every_state_is_in_the_table():
    assert set(TRANSITIONS) == set(State)
