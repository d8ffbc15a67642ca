"""Fetch (1): versions, bounds, sessions, waiting, fencing; ListOffsets (2), DeleteRecords (21), epochs (23)."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Bench, batch

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Uuid
from stratalog.protocol import k01_fetch as k01
from stratalog.protocol import k02_list_offsets as k02
from stratalog.protocol import k18_api_versions as k18
from stratalog.protocol import k21_delete_records as k21
from stratalog.protocol import k23_offset_for_leader_epoch as k23
from stratalog.protocol.apis import APIS
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.records.batch import batches, records_of
from stratalog.storage.config import LogConfig


@pytest.fixture
def bench(tmp_path: Any) -> Bench:
    return Bench(str(tmp_path))


def put(bench: Bench, topic: str, *values: bytes, index: int = 0, timestamp: int = 1_700_000_000_000) -> None:
    row = PartitionProduceData(index=index, records=batch(*values, timestamp=timestamp))
    body = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[row])])
    answer = bench.ask("Produce", 9, body, connection=99)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(
    topic: Any,
    *partitions: tuple[int, int],
    version: int = 12,
    wait_ms: int = 0,
    min_bytes: int = 1,
    limit: int = 1 << 20,
    forgotten: list[int] | None = None,
    epoch: int = -1,
    last_epoch: int = -1,
    total: int = 1 << 20,
    **fields: Any,
) -> k01.FetchRequest:
    rows = [k01.FetchPartition(partition=i, fetch_offset=at, partition_max_bytes=limit) for i, at in partitions]
    for row in rows:
        row.current_leader_epoch = epoch
        row.last_fetched_epoch = last_epoch
    entry = k01.FetchTopic(partitions=rows)
    if version >= 13:
        entry.topic_id = topic
    else:
        entry.topic = topic
    body = k01.FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=[entry] if rows else [], **fields)
    if version >= 3:
        body.max_bytes = total
    if forgotten:
        body.forgotten_topics_data = [k01.ForgottenTopic(topic=topic, partitions=forgotten)]
    return body


def one(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def values(row: Any) -> list[bytes]:
    data = bytes(row.records or b"")
    return [bytes(record.value) for header in batches(data) for record in records_of(data, header)]


@pytest.mark.parametrize("version", range(19))
def test_every_version_returns_the_records(bench: Bench, version: int) -> None:
    """0 and 1 in format v0, 2 and 3 in v1, from 4 on as they are stored."""
    topic_id = bench.create("orders")
    put(bench, "orders", b"a", b"b")
    topic = topic_id if version >= 13 else "orders"
    row = one(bench.ask("Fetch", version, fetch(topic, (0, 0), version=version)))
    assert row.error_code == 0 and row.high_watermark == 2
    assert values(row) == [b"a", b"b"]
    magic = bytes(row.records)[16]
    assert magic == (0 if version < 2 else 1 if version < 4 else 2)


def test_the_hand_written_answer_is_what_the_schema_says(bench: Bench) -> None:
    """STYLE 14: many partitions, with and without data and errors, names and ids."""
    topic_id = bench.create("orders", 150)
    for index in range(0, 150, 3):
        put(bench, "orders", b"x" * 300, index=index)
    for version in (12, 13, 18):
        topic = topic_id if version >= 13 else "orders"
        wanted = [(index, 5 if index == 7 else 0) for index in range(150)]
        answer = bench.ask("Fetch", version, fetch(topic, *wanted, version=version, isolation_level=1))
        rows = answer.responses[0].partitions
        assert [row.partition_index for row in rows] == list(range(150))
        for row in rows:
            if row.partition_index == 7:
                assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and row.high_watermark == -1
            else:
                assert values(row) == ([b"x" * 300] if row.partition_index % 3 == 0 else [])
                assert row.aborted_transactions == []


def test_the_first_batch_comes_whole_and_the_rest_keeps_to_the_limit(bench: Bench) -> None:
    """KIP-74: a reader never starves, `max_bytes` bounds the rest."""
    bench.create("orders", 3)
    for index in range(3):
        put(bench, "orders", b"x" * 1000, index=index)
        put(bench, "orders", b"y" * 1000, index=index)
    rows = bench.ask("Fetch", 12, fetch("orders", (0, 0), (1, 0), (2, 0), total=100)).responses[0].partitions
    assert [len(values(row)) for row in rows] == [1, 0, 0]
    rows = bench.ask("Fetch", 12, fetch("orders", (0, 0), (1, 0), (2, 0), total=3500)).responses[0].partitions
    assert [len(values(row)) for row in rows] == [2, 1, 0]
    rows = bench.ask("Fetch", 12, fetch("orders", (0, 0), (1, 0), (2, 0), limit=1100)).responses[0].partitions
    assert [len(values(row)) for row in rows] == [1, 1, 1]


def test_the_broker_has_a_limit_of_its_own(bench: Bench) -> None:
    """`fetch.max.bytes`, whatever the client asks for."""
    bench.create("orders", 3)
    for index in range(3):
        put(bench, "orders", b"x" * 1000, index=index)
    bench.node.config["fetch.max.bytes"] = 2500
    rows = bench.ask("Fetch", 12, fetch("orders", (0, 0), (1, 0), (2, 0))).responses[0].partitions
    assert [len(values(row)) for row in rows] == [1, 1, 0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_client_gets_a_batch_that_is_larger_than_its_limit(bench: Bench, version: int) -> None:
    """Its records have to be converted, all or none: a client that got none stood still without an error."""
    bench.create("orders", 2)
    for index in range(2):
        put(bench, "orders", *[b"x" * 1000] * 5, index=index)
        put(bench, "orders", b"y" * 1000, index=index)
    answer = bench.ask("Fetch", version, fetch("orders", (0, 0), (1, 3), version=version, limit=2000))
    first, second = answer.responses[0].partitions
    assert (first.error_code, second.error_code) == (0, 0)
    assert values(first) == [b"x" * 1000] * 5
    assert values(second) == [b"x" * 1000] * 2
    bench.node.config["fetch.max.bytes"] = 1_500  # what the broker gives at once stays bounded
    answer = bench.ask("Fetch", version, fetch("orders", (0, 0), (1, 3), version=version, limit=2000))
    assert [len(values(row)) for row in answer.responses[0].partitions] == [5, 0]


def test_a_reader_sees_nothing_above_the_high_watermark(bench: Bench) -> None:
    """ST-12: two replicas, one silent; the record is written and not committed."""
    bench.create("orders", isr=[1, 2])
    put(bench, "orders", b"a")
    row = one(bench.ask("Fetch", 12, fetch("orders", (0, 0))))
    assert (row.error_code, row.high_watermark, values(row)) == (0, 0, [])


@pytest.mark.parametrize("offset", [-5, 3, 100])
def test_an_offset_outside_of_the_log_is_out_of_range(bench: Bench, offset: int) -> None:
    bench.create("orders")
    put(bench, "orders", b"a", b"b")
    row = one(bench.ask("Fetch", 12, fetch("orders", (0, offset))))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_unknown_topics_have_the_code_of_their_version(bench: Bench) -> None:
    bench.create("orders")
    unknown = Uuid(b"y" * 16)
    row = one(bench.ask("Fetch", 12, fetch("nowhere", (0, 0))))
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(bench.ask("Fetch", 13, fetch(unknown, (0, 0), version=13))).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_stale_leader_epoch_is_fenced_and_a_newer_one_unknown(bench: Bench) -> None:
    """KIP-320."""
    bench.create("orders")
    bench.node.partitions["orders", 0].leader_epoch = 5
    assert one(bench.ask("Fetch", 12, fetch("orders", (0, 0), epoch=4))).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert one(bench.ask("Fetch", 12, fetch("orders", (0, 0), epoch=6))).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert one(bench.ask("Fetch", 12, fetch("orders", (0, 0), epoch=5))).error_code == 0


def test_a_diverging_reader_is_told_where(bench: Bench) -> None:
    """KIP-595: the reader's last epoch ended before its offset."""
    bench.create("orders")
    put(bench, "orders", b"a")
    bench.node.partitions["orders", 0].leader_epoch = 3
    put(bench, "orders", b"b")
    row = one(bench.ask("Fetch", 12, fetch("orders", (0, 2), last_epoch=1)))
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 1)
    assert one(bench.ask("Fetch", 12, fetch("orders", (0, 2), last_epoch=3))).diverging_epoch.end_offset == -1


def test_an_offset_below_the_log_start_is_out_of_range_whatever_the_epochs_say(bench: Bench) -> None:
    """R11 (KAFKA-12996): not a divergence, which would send the reader to truncate where nothing is."""
    bench.create("orders")
    put(bench, "orders", b"a")
    bench.node.partitions["orders", 0].leader_epoch = 3
    put(bench, "orders", b"b", b"c")
    bench.node.partitions["orders", 0].log.delete_records(2)
    for last_epoch in (0, 1, 2, 3):
        row = one(bench.ask("Fetch", 12, fetch("orders", (0, 1), last_epoch=last_epoch)))
        assert (row.error_code, row.diverging_epoch.end_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize("version", [4, 7, 12])
def test_a_replicas_fetch_is_refused(bench: Bench, version: int) -> None:
    """N04."""
    bench.create("orders")
    answer = bench.ask("Fetch", version, fetch("orders", (0, 0), version=version, replica_id=2))
    code = answer.error_code if version >= 7 else one(answer).error_code
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- waiting --------------------------------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_and_the_next_commit_wakes_it(bench: Bench) -> None:
    bench.create("orders")
    pending = bench.submit("Fetch", 12, fetch("orders", (0, 0), wait_ms=500))
    bench.end_turn()
    assert bench.answer(pending) is None and len(bench.node.parked_fetches) == 1
    put(bench, "orders", b"a")
    assert values(one(bench.answer(pending))) == [b"a"]
    assert not bench.node.parked_fetches and not bench.node.partitions["orders", 0].waiters


def test_a_fetch_that_waited_long_enough_is_answered_with_what_there_is(bench: Bench) -> None:
    bench.create("orders")
    put(bench, "orders", b"a")
    pending = bench.submit("Fetch", 12, fetch("orders", (0, 0), wait_ms=500, min_bytes=10_000))
    bench.end_turn()
    bench.turn(499)
    assert bench.answer(pending) is None
    bench.turn(1)
    assert values(one(bench.answer(pending))) == [b"a"]
    assert not bench.node.partitions["orders", 0].waiters


def test_min_bytes_counts_over_all_partitions(bench: Bench) -> None:
    bench.create("orders", 2)
    pending = bench.submit("Fetch", 12, fetch("orders", (0, 0), (1, 0), wait_ms=500, min_bytes=1500))
    bench.end_turn()
    put(bench, "orders", b"x" * 1000, index=0)
    assert bench.answer(pending) is None
    put(bench, "orders", b"x" * 1000, index=1)
    rows = bench.answer(pending).responses[0].partitions
    assert [len(values(row)) for row in rows] == [1, 1]


def test_a_closed_connection_leaves_no_waiter_behind(bench: Bench) -> None:
    bench.create("orders")
    bench.submit("Fetch", 12, fetch("orders", (0, 0), wait_ms=500))
    bench.end_turn()
    bench.node.connection_closed(bench.peer())
    assert not bench.node.partitions["orders", 0].waiters and not bench.node.parked_fetches
    assert len(bench.node.timers) == 0


def test_an_error_is_told_without_waiting(bench: Bench) -> None:
    bench.create("orders")
    assert bench.ask("Fetch", 12, fetch("orders", (5, 0), wait_ms=500)) is not None


# --- sessions (KIP-227) ---------------------------------------------------------------------------------------------


def test_in_a_session_only_changes_travel(bench: Bench) -> None:
    bench.create("orders", 3)
    first = bench.ask("Fetch", 12, fetch("orders", (0, 0), (1, 0), session_epoch=0))
    assert first.session_id > 0 and len(first.responses[0].partitions) == 2
    nothing = bench.ask("Fetch", 12, fetch("orders", session_id=first.session_id, session_epoch=1))
    assert nothing.error_code == 0 and nothing.responses == []
    put(bench, "orders", b"a", index=1)
    changed = bench.ask("Fetch", 12, fetch("orders", session_id=first.session_id, session_epoch=2))
    assert [row.partition_index for row in changed.responses[0].partitions] == [1]
    moved = bench.ask("Fetch", 12, fetch("orders", (1, 1), session_id=first.session_id, session_epoch=3))
    assert moved.responses == []
    added = fetch("orders", (2, 0), session_id=first.session_id, session_epoch=4, forgotten=[0])
    answer = bench.ask("Fetch", 12, added)
    assert [row.partition_index for row in answer.responses[0].partitions] == [2]
    put(bench, "orders", b"b", index=0)
    assert bench.ask("Fetch", 12, fetch("orders", session_id=first.session_id, session_epoch=5)).responses == []


def test_a_session_out_of_step_or_unknown_is_an_error(bench: Bench) -> None:
    bench.create("orders")
    session = bench.ask("Fetch", 12, fetch("orders", (0, 0), session_epoch=0)).session_id
    wrong = bench.ask("Fetch", 12, fetch("orders", session_id=session, session_epoch=9))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = bench.ask("Fetch", 12, fetch("orders", session_id=session + 1, session_epoch=1))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    mixed = bench.ask("Fetch", 13, fetch(None, version=13, session_id=session, session_epoch=1))
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    bench.ask("Fetch", 12, fetch("orders", (0, 0), session_id=session, session_epoch=-1))
    assert len(bench.node.sessions) == 0


def test_partitions_with_data_go_to_the_end_of_the_session(bench: Bench) -> None:
    """Fairness: a small `max_bytes` does not starve the later partitions."""
    bench.create("orders", 2)
    for index in range(2):
        put(bench, "orders", b"x" * 1000, index=index)
        put(bench, "orders", b"y" * 1000, index=index)
    first = bench.ask("Fetch", 12, fetch("orders", (0, 0), (1, 0), session_epoch=0, total=100))
    assert [len(values(row)) for row in first.responses[0].partitions] == [1, 0]
    again = bench.ask("Fetch", 12, fetch("orders", session_id=first.session_id, session_epoch=1, total=100))
    assert [(row.partition_index, len(values(row))) for row in again.responses[0].partitions] == [(1, 1)]


def test_the_cache_is_bounded_and_makes_room_for_the_living(bench: Bench) -> None:
    bench.create("orders")
    bench.node.sessions.slots = 2
    ids = [bench.ask("Fetch", 12, fetch("orders", (0, 0), session_epoch=0)).session_id for _ in range(3)]
    assert ids[0] and ids[1] and ids[2] == 0
    bench.clock.advance(120_000)
    assert bench.ask("Fetch", 12, fetch("orders", (0, 0), session_epoch=0)).session_id > 0
    gone = bench.ask("Fetch", 12, fetch("orders", session_id=ids[0], session_epoch=1))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_partitions_of_all_sessions_are_bounded(bench: Bench) -> None:
    """Partitions that do not exist cost memory as well, and one request may name a hundred thousand of them."""
    bench.create("orders")
    sessions = bench.node.sessions
    sessions.room = 10

    def asked(*indexes: int, **more: Any) -> Any:
        return bench.ask("Fetch", 12, fetch("orders", *((index, 0) for index in indexes), **more))

    small = asked(0, 1, 2, session_epoch=0).session_id
    assert small and sessions.partitions == 3
    assert asked(*range(8), session_epoch=0).session_id == 0, "three and eight are more than ten"
    assert asked(3, 4, session_id=small, session_epoch=1, forgotten=[0]).session_id == small
    other = asked(*range(6), session_epoch=0).session_id
    assert other and sessions.partitions == 10
    assert asked(9, session_id=small, session_epoch=2).error_code == 0
    gone = asked(session_id=small, session_epoch=3)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it has outgrown the room"
    assert sessions.partitions == 6 and len(sessions) == 1
    bench.clock.advance(120_000)
    assert asked(*range(10), session_epoch=0).session_id, "the one at rest makes room"
    assert sessions.partitions == 10
    assert asked(0, session_id=other, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# --- ListOffsets, DeleteRecords, epochs, ApiVersions ----------------------------------------------------------------


def listed(bench: Bench, timestamp: int, version: int = 11, **fields: Any) -> Any:
    row = k02.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)
    topic = k02.ListOffsetsTopic(name="orders", partitions=[row])
    body = k02.ListOffsetsRequest(replica_id=-1, topics=[topic])
    return bench.ask("ListOffsets", version, body).topics[0].partitions[0]


def test_special_timestamps(bench: Bench) -> None:
    bench.create("orders")
    put(bench, "orders", b"a", b"b", timestamp=1_700_000_000_000)
    put(bench, "orders", b"c", timestamp=1_700_000_900_000)
    put(bench, "orders", b"d", timestamp=1_700_000_500_000)
    assert listed(bench, -1).offset == 4
    assert listed(bench, -2).offset == 0
    assert (listed(bench, -3).offset, listed(bench, -3).timestamp) == (2, 1_700_000_900_000)
    assert listed(bench, -4).offset == 0
    assert listed(bench, -5).offset == -1
    assert listed(bench, -6).offset == -1
    found = listed(bench, 1_700_000_000_001)
    assert (found.offset, found.timestamp, found.leader_epoch) == (2, 1_700_000_900_000, 0)
    assert (listed(bench, 1_700_000_900_001).offset, listed(bench, 1_700_000_900_001).error_code) == (-1, 0)
    assert listed(bench, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed(bench, -9).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_lists_the_end(bench: Bench, version: int) -> None:
    bench.create("orders")
    put(bench, "orders", b"a", b"b")
    assert listed(bench, -1, version=version).offset == 2


def test_version_0_lists_segment_starts_newest_first(bench: Bench) -> None:
    bench.create("orders", config=LogConfig(segment_bytes=200))
    for value in (b"x" * 100, b"y" * 100, b"z" * 100):
        put(bench, "orders", value)
    assert listed(bench, -1, version=0, max_num_offsets=10).old_style_offsets == [3, 2, 1, 0]
    assert listed(bench, -1, version=0, max_num_offsets=1).old_style_offsets == [3]
    assert listed(bench, -2, version=0, max_num_offsets=10).old_style_offsets == [0]


def deleted(bench: Bench, offset: int, index: int = 0) -> Any:
    topic = k21.DeleteRecordsTopic(
        name="orders", partitions=[k21.DeleteRecordsPartition(partition_index=index, offset=offset)]
    )
    return bench.ask("DeleteRecords", 2, k21.DeleteRecordsRequest(topics=[topic], timeout_ms=1)).topics[0].partitions[0]


def test_delete_records_moves_the_start(bench: Bench) -> None:
    bench.create("orders")
    put(bench, "orders", b"a", b"b", b"c")
    assert deleted(bench, 2).low_watermark == 2
    assert listed(bench, -2).offset == 2
    assert one(bench.ask("Fetch", 12, fetch("orders", (0, 1)))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert deleted(bench, -1).low_watermark == 3
    assert deleted(bench, 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert deleted(bench, 0, index=4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_compacted_topic_keeps_its_records(bench: Bench) -> None:
    bench.create("orders", config=LogConfig(cleanup_policy=("compact",)))
    assert deleted(bench, 0).error_code == ErrorCode.POLICY_VIOLATION


def test_where_an_epoch_ends(bench: Bench) -> None:
    bench.create("orders")
    put(bench, "orders", b"a")
    bench.node.partitions["orders", 0].leader_epoch = 3
    put(bench, "orders", b"b")

    def end(epoch: int, current: int = -1) -> Any:
        row = k23.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        body = k23.OffsetForLeaderEpochRequest(topics=[k23.OffsetForLeaderTopic(topic="orders", partitions=[row])])
        return bench.ask("OffsetForLeaderEpoch", 4, body).topics[0].partitions[0]

    assert (end(0).leader_epoch, end(0).end_offset) == (0, 1)
    assert (end(2).leader_epoch, end(2).end_offset) == (0, 1)
    assert (end(3).leader_epoch, end(3).end_offset) == (3, 2)
    assert (end(9).leader_epoch, end(9).end_offset) == (-1, -1)
    assert end(3, current=2).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", range(6))
def test_api_versions_tell_what_is_served(bench: Bench, version: int) -> None:
    body = k18.ApiVersionsRequest()
    if version >= 3:
        body.client_software_name, body.client_software_version = "test", "1.0"
    answer = bench.ask("ApiVersions", version, body)
    assert answer.error_code == 0
    offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert offered[0] == (0, 13) and offered[1] == (0, 18) and offered[22] == (0, 5)
    assert not {24, 25, 26, 27, 28, 29, 30, 31, 17, 36, 68, 69} & set(offered), "brought by a later issue"
    if version >= 3:
        assert bench.peer().software == "test"
        assert all(feature.min_version > 0 for feature in answer.supported_features) or version > 3


def test_a_newer_api_versions_is_answered_in_version_0(bench: Bench) -> None:
    """Clients that are newer than the broker: error 35 and the list."""
    frame = bytearray(b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01xanything at all")
    request = bench.node.handle_frame(bench.peer(), memoryview(frame), bench.clock.now_ms())
    assert request.output is not None
    data = b"".join(request.output)
    answer = APIS[18].response.decode(data[8:], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert any(row.api_key == 18 for row in answer.api_keys)


def test_a_deleted_topic_wakes_its_readers(bench: Bench) -> None:
    from stratalog.protocol.disk import metadata as records

    topic_id = bench.create("orders")
    pending = bench.submit("Fetch", 13, fetch(topic_id, (0, 0), version=13, wait_ms=60_000))
    bench.end_turn()
    bench.apply(records.RemoveTopicRecord(topic_id=topic_id))
    assert one(bench.answer(pending)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert bench.logs.get("orders", 0) is None


def test_a_topic_deleted_in_the_same_turn_refuses_what_was_staged(bench: Bench) -> None:
    from stratalog.protocol.disk import metadata as records

    topic_id = bench.create("orders")
    row = PartitionProduceData(index=0, records=batch(b"a"))
    body = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="orders", partition_data=[row])])
    pending = bench.submit("Produce", 9, body)
    bench.apply(records.RemoveTopicRecord(topic_id=topic_id))
    bench.end_turn()
    assert bench.answer(pending).responses[0].partition_responses[0].error_code != 0
