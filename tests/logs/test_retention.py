"""Retention: the three rules, the two guards, timestamps of the future (seed 001; LM-1, LM-2, LM-9, C14)."""

from dataclasses import dataclass

from logs_kit import files, log_of, settle

import stratalog.testing
from stratalog.logs import retention
from stratalog.storage.config import LogConfig

DAY = 86_400_000
NOW = 1_700_000_000_000


@dataclass
class Fake:
    base_offset: int
    size: int
    max_timestamp: int
    modified_ms: int = NOW


def facts(segments, *, start=0, high=None, end=None, **config):
    end = segments[-1].base_offset + 10 if end is None else end
    return retention.LogFacts(segments, start, end if high is None else high, end, LogConfig(**config))


def five(ages_days, size=100):
    return [Fake(i * 10, size, NOW - int(age * DAY)) for i, age in enumerate(ages_days)]


def decide(log, now=NOW, cap=-1):
    found = retention.decide(log, now, cap)
    return None if found is None else (found.segments, found.rule)


def test_rules_come_in_the_order_log_start_size_time() -> None:
    """Seed 001."""
    segments = five([9, 8, 8, 1, 0])
    assert decide(facts(segments, start=10, retention_bytes=300)) == (1, "log-start")
    assert decide(facts(segments[1:], start=10, retention_bytes=300)) == (1, "size")
    assert decide(facts(segments[2:], retention_bytes=300)) == (1, "time")
    assert decide(facts(segments[3:], retention_bytes=300)) is None


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    """LM-1."""
    segments = five([30, 30, 30])
    assert decide(facts(segments, high=0)) is None
    assert decide(facts(segments, high=19)) == (1, "time")
    assert decide(facts(segments, high=20)) == (2, "time")
    assert decide(facts(segments, high=30)) == (3, "time")


def test_an_empty_last_segment_is_never_taken() -> None:
    """LM-1."""
    segments = [*five([30, 30]), Fake(20, 0, -1, modified_ms=0)]
    assert decide(facts(segments, end=20)) == (2, "time")
    assert decide(facts(segments[2:], end=20)) is None


def test_a_young_segment_protects_the_ones_behind_it() -> None:
    assert decide(facts(five([1, 30, 30]))) is None


def test_size_keeps_at_least_what_is_asked_for() -> None:
    segments = five([0] * 5)
    assert decide(facts(segments, retention_bytes=400)) == (1, "size")
    assert decide(facts(segments, retention_bytes=401)) is None
    assert decide(facts(segments, retention_bytes=0)) == (5, "size")
    assert decide(facts(segments, retention_bytes=-1)) is None


def test_only_compacted_logs_lose_what_is_below_their_start() -> None:
    """C10: DeleteRecords on `compact,delete`; the policy alone takes nothing."""
    segments = five([30] * 5)
    assert decide(facts(segments, start=25, cleanup_policy=("compact",))) == (2, "log-start")
    assert decide(facts(segments, cleanup_policy=("compact",), retention_bytes=1)) is None
    assert decide(facts(segments, cleanup_policy=("compact", "delete"))) == (5, "time")


def test_a_segment_without_timestamps_goes_by_its_file() -> None:
    assert decide(facts([Fake(0, 10, -1, NOW - 8 * DAY), Fake(10, 10, NOW)])) == (1, "time")
    assert decide(facts([Fake(0, 10, -1, NOW - 6 * DAY), Fake(10, 10, NOW)])) is None


def test_future_timestamps_hold_a_segment_until_the_cap_says_no() -> None:
    """C14."""
    future = Fake(0, 100, NOW + 1000 * DAY, modified_ms=NOW - 10 * DAY)
    log = facts([future, Fake(10, 100, NOW)])
    assert decide(log) is None
    assert decide(log, cap=4 * DAY) is None
    assert decide(log, cap=2 * DAY) == (1, "time")
    why = retention.explain(log, NOW)
    assert why[0].rule == "future" and why[0].until_ms == future.max_timestamp + 7 * DAY + 1


def test_remote_storage_keeps_what_is_not_uploaded() -> None:
    segments = five([30] * 3)
    log = facts(segments, remote_storage_enable=True, local_retention_ms=1)
    assert decide(log) is None
    assert decide(log._replace(uploaded_until=10)) == (1, "time")
    assert decide(log._replace(uploaded_until=30)) == (2, "time")


def test_explain_says_for_each_segment_what_decide_does() -> None:
    for segments, config in (
        (five([9, 8, 8, 1, 0]), {"retention_bytes": 300}),
        (five([9, 8, 8, 1, 0]), {}),
        (five([1, 30, 30]), {}),
        (five([30] * 3), {"cleanup_policy": ("compact",)}),
    ):
        log = facts(segments, start=10, **config)
        while (found := retention.decide(log, NOW)) is not None:
            assert all(kept.rule == "deletable" for kept in retention.explain(log, NOW)[: found.segments])
            log = log._replace(segments=log.segments[found.segments :])
        assert all(kept.rule != "deletable" for kept in retention.explain(log, NOW))


# --- with a broker ---------------------------------------------------------------------------------------------------
def test_a_week_later_old_segments_are_gone_and_the_log_goes_on() -> None:
    """LM-1, LM-9."""
    with stratalog.testing.broker() as b:
        b.create_topic("t", segment_bytes=1 << 20, file_delete_delay_ms=1000)
        for _ in range(3):
            b.produce("t", [bytes(700_000)])
        assert len(log_of(b, "t").segments) == 3
        b.clock.advance(days=8)
        settle(b)
        log = log_of(b, "t")
        assert [s.base_offset for s in log.segments] == [3] and log.log_start_offset == 3
        assert b.records("t") == []
        names = files(log.directory)
        assert any(name.endswith(".deleted") for name in names)
        b.clock.advance(seconds=2)
        settle(b)
        assert not any(name.endswith(".deleted") for name in files(log.directory))
        b.produce("t", [b"after"])
        assert [(r.offset, r.value) for r in b.records("t")] == [(3, b"after")]


def test_deleted_records_stay_deleted_over_a_crash() -> None:
    """LM-2: the answer of DeleteRecords comes after its start is on the disk."""
    from stratalog.protocol.k21_delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    with stratalog.testing.broker(topics=["t"]) as b:
        b.produce("t", [b"%d" % i for i in range(10)])
        with b.client() as client:
            answer = client.call_controller(
                DeleteRecordsRequest(
                    timeout_ms=1000,
                    topics=[
                        DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])
                    ],
                )
            )
            assert answer.topics[0].partitions[0].low_watermark == 7
        b.restart(kill=True)
        assert [r.offset for r in b.records("t")] == [7, 8, 9]


def test_a_deleted_topics_directory_waits_for_its_delay_and_goes() -> None:
    with stratalog.testing.broker(config={"log.segment.delete.delay.ms": "60000"}) as b:
        from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

        b.create_topic("t")
        b.produce("t", [b"x"])
        data = b.directory / "data"
        with b.client() as client:
            request = DeleteTopicsRequest(timeout_ms=1000, topics=[DeleteTopicState(name="t")], topic_names=["t"])
            client.call_controller(request)
        settle(b)
        waiting = [name for name in files(data) if name.startswith("t-0.")]
        assert len(waiting) == 1 and waiting[0].endswith("-delete")
        b.clock.advance(seconds=61)
        settle(b)
        assert not [name for name in files(data) if name.startswith("t-0")]
