"""Produce (0): every version, what is refused and with which code, and when it is answered."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from harness import Bench, batch

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import Malformed
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest
from stratalog.records.batch import Record
from stratalog.records.legacy import build_message_set
from stratalog.storage.config import LogConfig
from stratalog.storage.segment import Segment
from stratalog.storage.values import Isolation


@pytest.fixture
def bench(tmp_path: Any) -> Bench:
    return Bench(str(tmp_path))


def request(version: int, topic: Any, records: Any, *, acks: int = -1, index: int = 0, **fields: Any) -> ProduceRequest:
    row = TopicProduceData(partition_data=[PartitionProduceData(index=index, records=records)])
    if version >= 13:
        row.topic_id = topic
    else:
        row.name = topic
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[row], **fields)


def one(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_from_3_appends_a_batch_and_tells_its_offset(bench: Bench, version: int) -> None:
    """ST-1."""
    topic_id = bench.create("orders")
    topic = topic_id if version >= 13 else "orders"
    assert one(bench.ask("Produce", version, request(version, topic, batch(b"a", b"b")))).base_offset == 0
    row = one(bench.ask("Produce", version, request(version, topic, batch(b"c"))))
    assert (row.error_code, row.base_offset) == (0, 2)
    if version >= 5:
        assert row.log_start_offset == 0
    log = bench.node.partitions["orders", 0].log
    assert log.high_watermark == log.log_end_offset == 3


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_old_clients_are_served_by_conversion(bench: Bench, version: int, magic: int) -> None:
    """Clients of 0.9 and 0.10."""
    bench.create("orders")
    records = [Record(offset, 1_700_000_000_000 if magic else -1, None, b"v", ()) for offset in range(2)]
    data = build_message_set(records, magic)
    assert one(bench.ask("Produce", version, request(version, "orders", bytearray(data)))).base_offset == 0
    assert bench.node.partitions["orders", 0].log.log_end_offset == 2


def test_acks_0_is_never_answered_and_a_fault_closes_the_connection(bench: Bench) -> None:
    bench.create("orders")
    assert bench.ask("Produce", 9, request(9, "orders", batch(b"a"), acks=0)) == b""
    assert bench.effects.closed == []
    assert bench.ask("Produce", 9, request(9, "nowhere", batch(b"a"), acks=0)) == b""
    assert [connection for connection, _ in bench.effects.closed] == [1]


def test_nothing_is_answered_or_visible_before_the_turns_write(bench: Bench) -> None:
    """`stage_append` holds, `end_of_wakeup` writes and answers."""
    bench.create("orders")
    first = bench.submit("Produce", 9, request(9, "orders", batch(b"a")))
    second = bench.submit("Produce", 9, request(9, "orders", batch(b"b")), connection=2)
    log = bench.node.partitions["orders", 0].log
    assert first.output is None and second.output is None and log.log_end_offset == 0
    bench.end_turn()
    assert one(bench.answer(first)).base_offset == 0
    assert one(bench.answer(second)).base_offset == 1


def test_unknown_partitions_have_the_code_of_their_version(bench: Bench) -> None:
    topic_id = bench.create("orders")
    wrong = type(topic_id)(b"x" * 16)
    for version, topic, index, code in (
        (9, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (9, "orders", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, wrong, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (13, topic_id, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        row = one(bench.ask("Produce", version, request(version, topic, batch(b"a"), index=index)))
        assert (row.error_code, row.base_offset) == (code, -1)


def test_one_bad_partition_does_not_spoil_the_others(bench: Bench) -> None:
    bench.create("orders", 2)
    bad = batch(b"a")
    bad[-1] ^= 1
    row = TopicProduceData(
        name="orders",
        partition_data=[
            PartitionProduceData(index=0, records=bad),
            PartitionProduceData(index=1, records=batch(b"b")),
        ],
    )
    answer = bench.ask("Produce", 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row]))
    rows = answer.responses[0].partition_responses
    assert [r.error_code for r in rows] == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert bench.node.partitions["orders", 0].log.log_end_offset == 0
    assert bench.node.partitions["orders", 1].log.log_end_offset == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data + data, ErrorCode.INVALID_RECORD),
        (lambda data: data[:60], ErrorCode.INVALID_RECORD),
        (lambda data: data[:-3], ErrorCode.INVALID_RECORD),
        (lambda data: b"", ErrorCode.INVALID_RECORD),
        (lambda data: None, ErrorCode.INVALID_RECORD),
        (lambda data: data[:16] + b"\x01" + data[17:], ErrorCode.INVALID_RECORD),
        (lambda data: data[:16] + b"\x07" + data[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data[:8] + b"\0\0\0\x03" + data[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data[:8] + b"\0\0\0\x14" + data[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data[:22] + b"\x10" + data[23:], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_partition_brings_exactly_one_whole_batch(bench: Bench, change: Any, code: ErrorCode) -> None:
    """From version 3 on."""
    bench.create("orders")
    data = change(bytes(batch(b"a", b"b")))
    assert one(bench.ask("Produce", 9, request(9, "orders", data))).error_code == code


def test_acks_all_below_min_insync_replicas_is_refused_before_the_append(bench: Bench) -> None:
    """RP-7: two are wanted, one is there."""
    bench.create("orders", config=LogConfig(min_insync_replicas=2))
    row = one(bench.ask("Produce", 9, request(9, "orders", batch(b"a"))))
    assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.node.partitions["orders", 0].log.log_end_offset == 0
    assert one(bench.ask("Produce", 9, request(9, "orders", batch(b"a"), acks=1))).error_code == 0


def test_acks_all_waits_for_the_high_watermark_to_pass_the_last_offset(bench: Bench) -> None:
    """Trap of seed 003: HW 0 does not acknowledge offset 0.  Two replicas in sync, one of them silent."""
    bench.create("orders", isr=[1, 2])
    pending = bench.submit("Produce", 9, request(9, "orders", batch(b"a", b"b")))
    bench.end_turn()
    partition = bench.node.partitions["orders", 0]
    assert partition.log.log_end_offset == 2 and partition.high_watermark == 0
    assert bench.answer(pending) is None
    partition.log.update_high_watermark(1)
    for waiter in list(partition.waiters):
        waiter.wake(bench.node, bench.clock.now_ms())
    assert bench.answer(pending) is None
    partition.log.update_high_watermark(2)
    for waiter in list(partition.waiters):
        waiter.wake(bench.node, bench.clock.now_ms())
    assert one(bench.answer(pending)).base_offset == 0
    assert not partition.waiters


def test_acks_all_gives_up_after_its_timeout(bench: Bench) -> None:
    bench.create("orders", isr=[1, 2])
    pending = bench.submit("Produce", 9, request(9, "orders", batch(b"a")))
    bench.end_turn()
    bench.turn(999)
    assert bench.answer(pending) is None
    bench.turn(2)
    assert one(bench.answer(pending)).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_acks_all_learns_that_its_partition_has_no_leader_any_more(bench: Bench) -> None:
    """R14: nobody waits for a high watermark that cannot come.  One that can, is waited for."""
    bench.create("orders", isr=[1, 2])
    pending = bench.submit("Produce", 9, request(9, "orders", batch(b"a")))
    bench.end_turn()
    partition = bench.node.partitions["orders", 0]
    for is_leader in (True, False):
        partition.is_leader = is_leader
        assert bench.answer(pending) is None
        for waiter in list(partition.waiters):
            waiter.recheck(bench.clock.now_ms())
    assert one(bench.answer(pending)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.waiters


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_invalid(bench: Bench, acks: int) -> None:
    bench.create("orders")
    row = one(bench.ask("Produce", 9, request(9, "orders", batch(b"a"), acks=acks)))
    assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_transactional_id_is_refused_until_there_are_transactions(bench: Bench) -> None:
    bench.create("orders")
    row = one(bench.ask("Produce", 9, request(9, "orders", batch(b"a"), transactional_id="t")))
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert bench.node.partitions["orders", 0].log.log_end_offset == 0


def test_internal_topics_are_written_by_coordinators_only(bench: Bench) -> None:
    bench.create("__consumer_offsets")
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert one(bench.ask("Produce", 9, request(9, "__consumer_offsets", batch(b"a")))).error_code == code


def test_a_repeated_batch_of_an_idempotent_producer_gets_its_first_offsets(bench: Bench) -> None:
    """ST-14."""
    bench.create("orders")
    first = batch(b"a", b"b", producer_id=7, epoch=0, sequence=0)
    second = batch(b"c", producer_id=7, epoch=0, sequence=2)
    assert one(bench.ask("Produce", 9, request(9, "orders", bytearray(first)))).base_offset == 0
    assert one(bench.ask("Produce", 9, request(9, "orders", bytearray(second)))).base_offset == 2
    assert one(bench.ask("Produce", 9, request(9, "orders", bytearray(first)))).base_offset == 0
    assert bench.node.partitions["orders", 0].log.log_end_offset == 3
    gap = batch(b"d", producer_id=7, epoch=0, sequence=9)
    row = one(bench.ask("Produce", 9, request(9, "orders", gap)))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_is_written_has_the_leaders_epoch_and_the_offset(bench: Bench) -> None:
    bench.create("orders")
    bench.ask("Produce", 9, request(9, "orders", batch(b"a")))
    bench.ask("Produce", 9, request(9, "orders", batch(b"b")))
    data = bench.node.partitions["orders", 0].log.read(1, 1 << 20, Isolation.LOG_END).region.read()
    assert int.from_bytes(data[:8], "big") == 1
    assert int.from_bytes(data[12:16], "big") == 0


def test_a_full_disk_refuses_writes_and_keeps_serving_reads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-full: ENOSPC is an error code, the partition stays; all logs give back the blocks that they took ahead."""
    bench.create("other")
    bench.create("orders")
    given: list[str] = []
    monkeypatch.setattr(Segment, "give_blocks_back", lambda segment: given.append(segment.path))
    bench.ask("Produce", 9, request(9, "orders", batch(b"a")))
    partition = bench.node.partitions["orders", 0]
    real = type(partition.log).commit_staged

    def full(log: Any, now: int) -> None:
        log._abandon(OSError(errno.ENOSPC, "full", "x"), log._active, log._active.size, _before(log), -1)
        raise OSError(errno.ENOSPC, "full", "x")

    monkeypatch.setattr(type(partition.log), "commit_staged", full)
    row = one(bench.ask("Produce", 9, request(9, "orders", batch(b"b"))))
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.is_leader and partition.log.log_end_offset == 1
    assert given == [bench.node.partitions["other", 0].log.active_segment.path, partition.log.active_segment.path]
    monkeypatch.setattr(type(partition.log), "commit_staged", real)
    assert one(bench.ask("Produce", 9, request(9, "orders", batch(b"b")))).base_offset == 1


def _before(log: Any) -> tuple[Any, ...]:
    segment = log._active
    return (
        segment.offset_index.file.entries,
        segment.time_index.file.entries,
        segment.bytes_since_index,
        segment._max_timestamp,
        segment._offset_of_max_timestamp,
        segment.first_timestamp,
    )


def test_a_failed_disk_takes_the_partition_offline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """ST-11: nothing is appended after a failed write."""
    bench.create("orders", 2)
    partition = bench.node.partitions["orders", 0]

    def broken(now: int) -> None:
        raise OSError(errno.EIO, "broken", "x")

    monkeypatch.setattr(type(partition), "commit", lambda self, now: broken(now))
    row = one(bench.ask("Produce", 9, request(9, "orders", batch(b"b"))))
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert not partition.is_leader
    assert one(bench.ask("Produce", 9, request(9, "orders", batch(b"b")))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    other = one(bench.ask("Produce", 9, request(9, "orders", batch(b"b"), index=1)))
    assert other.error_code == ErrorCode.KAFKA_STORAGE_ERROR  # in the same directory


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_every_cut_of_a_request_is_malformed(bench: Bench, version: int) -> None:
    """Fed byte by byte: an error of the one declared kind, never an index or struct error."""
    topic_id = bench.create("orders")
    body = request(version, topic_id if version >= 13 else "orders", batch(b"a"))
    frame = bench.frame("Produce", version, body)
    for cut in range(len(frame)):
        with pytest.raises(Malformed):
            bench.node.handle_frame(bench.peer(), memoryview(bytearray(frame[:cut])), bench.clock.now_ms())
    with pytest.raises(Malformed):
        bench.node.handle_frame(bench.peer(), memoryview(frame + b"\0"), bench.clock.now_ms())
    assert not bench.node.produced


def test_the_fast_answer_is_what_the_schema_says(bench: Bench) -> None:
    """STYLE 14: the hand-written answers decode with the message classes, many partitions too."""
    topic_id = bench.create("orders", 200)
    for version in range(3, 14):
        rows = [PartitionProduceData(index=index, records=batch(b"a")) for index in range(200)]
        topic = TopicProduceData(partition_data=rows)
        if version >= 13:
            topic.topic_id = topic_id
        else:
            topic.name = "orders"
        answer = bench.ask("Produce", version, ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]))
        got = answer.responses[0].partition_responses
        assert [row.index for row in got] == list(range(200))
        assert {row.base_offset for row in got} == {version - 3}


def test_injected_refusals_answer_each_partition_and_append_nothing(bench: Bench) -> None:
    bench.create("orders")
    bench.node.refusals[0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    row = one(bench.ask("Produce", 9, request(9, "orders", batch(b"a"))))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one(bench.ask("Produce", 9, request(9, "orders", batch(b"a")))).base_offset == 0


def test_a_refusal_with_acks_0_closes_the_connection(bench: Bench) -> None:
    """An answer that nobody waits for would be taken for the next one's."""
    bench.create("orders")
    bench.node.refusals[0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(Malformed, match="NOT_LEADER_OR_FOLLOWER"):
        bench.ask("Produce", 9, request(9, "orders", batch(b"a"), acks=0))
    assert bench.ask("Produce", 9, request(9, "orders", batch(b"b"), acks=0)) == b""
    assert bench.node.partitions["orders", 0].log.log_end_offset == 1


def test_no_transactional_producer_gets_an_id(bench: Bench) -> None:
    body = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    assert bench.ask("InitProducerId", 4, body).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
