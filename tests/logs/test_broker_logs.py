"""The logs of a running broker: cleaning on a moved clock, failing disks, several directories, moves."""

import errno
import threading

import pytest
from logs_kit import files, log_of, settle, wait_for

import stratalog.testing
from stratalog.client.failures import Refused
from stratalog.metadata.image import ResourceType
from stratalog.protocol.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from stratalog.protocol.k35_describe_log_dirs import DescribeLogDirsRequest
from stratalog.protocol.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from stratalog.testing.broker import BrokenStart

FAST = {"log.cleaner.backoff.ms": "1000", "log.cleaner.dedupe.buffer.size": "1048576"}


def compacted(broker, name="c", **config):
    options = {
        "cleanup_policy": "compact",
        "segment_bytes": 1 << 20,
        "min_cleanable_dirty_ratio": "0.01",
        "file_delete_delay_ms": 0,
    }
    options.update(config)
    broker.create_topic(name, **options)


def fill(broker, name="c", rounds=5, keys=10, size=30_000, mark=b""):
    for i in range(rounds):
        broker.produce(name, [(b"k%d" % k, b"%s%d-" % (mark, i) + bytes(size)) for k in range(keys)])


def roll(broker, name="c"):
    running = broker.running
    running.run_on_loop(lambda: log_of(broker, name).roll(broker.clock.now_ms()))


# --- compaction ------------------------------------------------------------------------------------------------------
def test_a_compacted_topic_is_cleaned_by_itself_and_keeps_every_keys_last_value() -> None:
    """LM-4, and the checkpoint that says up to where."""
    with stratalog.testing.broker(config=FAST) as b:
        compacted(b)
        fill(b)
        roll(b)
        b.clock.advance(seconds=2)
        settle(b)
        found = b.records("c")
        assert sorted((r.key, r.value[:2]) for r in found) == [(b"k%d" % k, b"4-") for k in range(10)]
        log = log_of(b, "c")
        checkpoint = (b.directory / "data" / "cleaner-offset-checkpoint").read_text()
        assert f"c 0 {log.active_segment.base_offset}" in checkpoint
        b.restart(kill=True)
        assert b.records("c") == found


def test_a_consumer_that_reads_from_the_start_meanwhile_sees_every_last_value() -> None:
    """LM-9: during compaction, retention and rolls, and never an error."""
    with stratalog.testing.broker(config=FAST) as b:
        compacted(b)
        seen: list[dict] = []
        errors: list[BaseException] = []
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    seen.append({r.key: r.value for r in b.records("c")})
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        for i in range(6):
            b.produce("c", [(b"k%d" % k, b"%d" % i + bytes(20_000)) for k in range(10)])
            roll(b)
            b.clock.advance(seconds=2)
        settle(b)
        stop.set()
        thread.join()
        assert not errors and len(seen) > 1
        newest = -1
        for state in seen:
            if len(state) == 10:
                low = min(int(v[:1]) for v in state.values())
                assert low >= newest - 1, "a later read never sees an older last value"
                newest = max(newest, low)
        assert {r.value[:1] for r in b.records("c")} == {b"5"}


def test_a_consumer_that_reads_from_the_start_during_retention_sees_no_hole() -> None:
    """LM-9: rolls, deletions without a delay, DeleteRecords by retention; what it reads is a run up to the end, and the
    only answer beside records is that its offset has gone."""
    with stratalog.testing.broker(config={"log.retention.check.interval.ms": "1000"}) as b:
        b.create_topic("d", retention_bytes=1 << 20, segment_bytes=1 << 20, file_delete_delay_ms=0)
        seen: list[list[tuple[int, bytes]]] = []
        errors: list[BaseException] = []
        gone = 0
        stop = threading.Event()

        def read() -> None:
            nonlocal gone
            while not stop.is_set():
                try:
                    seen.append([(r.offset, r.value[:9]) for r in b.records("d")])
                except Refused as refused:
                    if refused.name != "OFFSET_OUT_OF_RANGE":
                        errors.append(refused)
                        return
                    gone += 1
                except Exception as error:  # noqa: BLE001 - looked at below
                    errors.append(error)
                    return

        thread = threading.Thread(target=read)
        thread.start()
        for i in range(12):
            b.produce("d", [b"%09d" % (i * 20 + k) + bytes(30_000) for k in range(20)])
            b.clock.advance(seconds=31 if i == 0 else 2)
        settle(b)
        stop.set()
        thread.join()
        assert not errors and len(seen) > 1
        for run in seen:
            first = run[0][0] if run else 0
            assert run == [(offset, b"%09d" % offset) for offset in range(first, first + len(run))]
        last = b.records("d")
        assert last[0].offset > 0 and last[-1].offset == 239


def test_compact_and_delete_together_clean_and_retire() -> None:
    with stratalog.testing.broker(config=FAST) as b:
        compacted(b, cleanup_policy="compact,delete", retention_ms=1000 * 3600)
        fill(b)
        roll(b)
        b.clock.advance(seconds=2)
        settle(b)
        assert len(b.records("c")) == 10
        b.clock.advance(hours=2)
        settle(b)
        assert b.records("c") == []


def test_a_partition_that_cannot_be_cleaned_is_shown_and_tried_again_later() -> None:
    """LM-11, and better than KAFKA-19895: the pause grows, and when the damage is gone it is clean again."""
    with stratalog.testing.broker(config=FAST) as b:
        compacted(b)
        fill(b, rounds=2)
        roll(b)
        log = log_of(b, "c")
        segment = log.segments[0]
        byte = segment.file.pread(1, 1000)
        segment.file.pwritev([b"!"], 1000)
        b.clock.advance(seconds=2)
        settle(b)
        cleaner = b.running.log_service.cleaner
        assert cleaner.failures["c", 0].attempts == 1 and "checksum" in cleaner.failures["c", 0].text
        gauges = {name: value for name, _, value in b.running.log_service.gauges()}
        assert gauges["stratalog_uncleanable_partitions"] == 1 and gauges["stratalog_uncleanable_bytes"] > 0
        b.clock.advance(seconds=5)
        settle(b)
        assert cleaner.failures["c", 0].attempts == 1, "not before its pause is over"
        b.clock.advance(seconds=15)
        settle(b)
        failure = cleaner.failures["c", 0]
        assert failure.attempts == 2 and failure.next_ms - failure.at_ms == 30_000
        segment.file.pwritev([byte], 1000)
        b.clock.advance(seconds=31)
        settle(b)
        assert not cleaner.failures and len(b.records("c")) == 10


def test_deleting_a_topic_ends_its_cleaning() -> None:
    """D12: delete, roll and the cleaner."""
    with stratalog.testing.broker(config={**FAST, "log.cleaner.io.max.bytes.per.second": "100000"}) as b:
        from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

        compacted(b)
        fill(b)
        roll(b)
        b.clock.advance(seconds=2)
        cleaner = b.running.log_service.cleaner
        wait_for(lambda: cleaner.busy == [("c", 0)], what="the cleaning")
        with b.client() as client:
            request = DeleteTopicsRequest(timeout_ms=1000, topics=[DeleteTopicState(name="c")], topic_names=["c"])
            client.call_controller(request)
        compacted(b)
        b.clock.advance(seconds=60)
        settle(b)
        assert not cleaner.busy and cleaner.totals.aborted == 1
        assert not [n for n in files(log_of(b, "c").directory) if n.endswith(".cleaned")]
        fill(b, rounds=1)
        assert len(b.records("c")) == 10


def test_the_throttle_holds_the_cleaner_to_its_bytes_a_second() -> None:
    with stratalog.testing.broker(config={**FAST, "log.cleaner.io.max.bytes.per.second": "1000000"}) as b:
        compacted(b)
        fill(b)  # 1.5 MB, read twice
        roll(b)
        b.clock.advance(seconds=2)
        cleaner = b.running.log_service.cleaner
        wait_for(lambda: bool(cleaner.busy), what="the cleaning")
        b.clock.advance(ms=500)
        assert cleaner.busy, "not done after half a second"
        for _ in range(80):
            b.clock.advance(ms=100)
        settle(b)
        assert len(b.records("c")) == 10


def test_a_cleaning_that_waits_for_the_throttle_ends_when_it_is_told_to() -> None:
    """At a byte a second it would wait for weeks, and a cleaner with it."""
    with stratalog.testing.broker(config={**FAST, "log.cleaner.io.max.bytes.per.second": "1"}) as b:
        cleaner = b.running.log_service.cleaner
        for name in ("c", "d"):
            compacted(b, name)
            fill(b, name)
            roll(b, name)
            b.clock.advance(seconds=2)
            wait_for(lambda name=name: cleaner.busy == [(name, 0)], what="the cleaning")
            wait_for(lambda: b.running.log_service.cleaner_pool.outstanding == 0, what="the first step")
            b.clock.advance(seconds=60)
            assert cleaner.busy == [(name, 0)], "it waits"
            if name == "c":
                alter(b, ResourceType.TOPIC, "c", cleanup_policy="delete")
            else:
                alter(b, ResourceType.BROKER, "", log_cleaner_io_max_bytes_per_second="1e12")
            b.clock.advance(seconds=2)
            settle(b)
            assert not cleaner.busy
        assert (cleaner.totals.aborted, cleaner.totals.cleanings) == (1, 1)
        assert len(b.records("d")) == 10


def alter(broker, kind, name, **values):
    with broker.client() as client:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=k.replace("_", "."), config_operation=0, value=v) for k, v in values.items()],
        )
        (answer,) = client.call_controller(IncrementalAlterConfigsRequest(resources=[resource])).responses
        return answer.error_code, answer.error_message


def test_cleaners_are_added_and_taken_away_while_the_broker_runs() -> None:
    """Seed 001: a new number counts at once; of cleaners that are too many, each ends with its log."""
    config = {**FAST, "log.cleaner.dedupe.buffer.size": str(4 << 20), "log.cleaner.io.max.bytes.per.second": "100000"}
    with stratalog.testing.broker(config=config) as b:
        names = ("a", "b", "c", "d")
        for name in names:
            compacted(b, name)
            fill(b, name, rounds=2)
            roll(b, name)
        cleaner = b.running.log_service.cleaner

        def at_work():
            return len(b.running.run_on_loop(lambda: cleaner.busy))

        b.clock.advance(seconds=2)
        wait_for(lambda: at_work() == 1, what="the one cleaner")
        for threads in (2, 4):
            assert alter(b, ResourceType.BROKER, "", log_cleaner_threads=str(threads)) == (0, None)
            wait_for(lambda threads=threads: at_work() == threads, what=f"{threads} cleaners")
        assert alter(b, ResourceType.BROKER, "", log_cleaner_threads="2") == (0, None)
        assert at_work() == 4 and cleaner.settings.threads == 2 and cleaner.settings.map_bytes_each == 2 << 20
        alter(b, ResourceType.BROKER, "", log_cleaner_io_max_bytes_per_second="1e12")
        b.clock.advance(seconds=60)
        settle(b)
        assert cleaner.totals.cleanings == 4 and cleaner.totals.aborted == 0
        assert all(len(b.records(name)) == 10 for name in names)


def test_a_setting_that_no_cleaner_can_work_with_is_refused_and_the_broker_goes_on() -> None:
    """It would end the process at the next cleaning."""
    with stratalog.testing.broker(config=FAST) as b:
        compacted(b)
        fill(b)
        roll(b)
        for values in (
            {"log_cleaner_io_max_bytes_per_second": "0"},
            {"log_cleaner_io_buffer_load_factor": "0"},
            {"log_cleaner_dedupe_buffer_size": "100"},
            {"log_cleaner_threads": "100000"},
        ):
            code, message = alter(b, ResourceType.BROKER, "", **values)
            assert code and "log.cleaner" in message, values
        b.clock.advance(seconds=2)
        settle(b)
        assert len(b.records("c")) == 10


def test_a_policy_that_changes_during_a_cleaning_ends_it() -> None:
    """C09, KAFKA-12840: nothing of a log that is not compacted any more is replaced; back again, it is cleaned."""
    config = {**FAST, "log.cleaner.io.max.bytes.per.second": "100000"}
    with stratalog.testing.broker(config=config) as b:
        compacted(b)
        fill(b)
        roll(b)
        b.clock.advance(seconds=2)
        cleaner = b.running.log_service.cleaner
        wait_for(lambda: cleaner.busy == [("c", 0)], what="the cleaning")
        alter(b, ResourceType.TOPIC, "c", cleanup_policy="delete")
        b.clock.advance(seconds=60)
        settle(b)
        assert not cleaner.busy and cleaner.totals.aborted == 1 and cleaner.totals.cleanings == 0
        assert not [name for name in files(log_of(b, "c").directory) if name.endswith((".cleaned", ".swap"))]
        assert len(b.records("c")) == 50, "nothing was compacted"
        alter(b, ResourceType.TOPIC, "c", cleanup_policy="compact")
        b.clock.advance(seconds=2)
        wait_for(lambda: cleaner.busy == [("c", 0)], what="the cleaning")
        # The throttle counts from when the cleaner comes to it, which on a busy machine may be after any fixed advance.
        wait_for(lambda: b.clock.advance(seconds=1) or cleaner.totals.cleanings == 1, what="the end of the cleaning")
        settle(b)
        assert cleaner.totals.cleanings == 1 and len(b.records("c")) == 10


def test_a_cleaning_in_progress_keeps_retention_away() -> None:
    """LM-3: the state machine."""
    from stratalog.logs.cleaner.states import States

    states = States()
    key = ("t", 0)
    states.start(key)
    assert states.is_cleaned(key) and not states.is_free(key)
    assert states.pause(key) is True and states.pause(key) is False
    assert not states.is_cleaned(key)
    states.resume(key)
    states.done(key)
    assert states.of(key) == ("paused", 1)
    states.resume(key)
    assert states.is_free(key)
    states.pause(key)
    with pytest.raises(AssertionError):
        states.start(key)
    states.resume(key)
    with pytest.raises(AssertionError):
        states.resume(key)


# --- disks that fail -------------------------------------------------------------------------------------------------
@pytest.fixture
def two(tmp_path):
    """A broker with two data directories and a topic whose partitions are spread over them."""
    dirs = f"{tmp_path}/one,{tmp_path}/two"
    with stratalog.testing.broker({"t": 4}, config={"log.dirs": dirs, **FAST}, directory=tmp_path / "x") as b:
        yield b, tmp_path


def homes(broker):
    logs = broker.running.logs
    return {index: logs.directory_of("t", index).path.rsplit("/", 1)[1] for index in range(4)}


def test_partitions_are_spread_and_a_failing_directory_takes_only_its_own_offline(two) -> None:
    """D13: its partitions answer KAFKA_STORAGE_ERROR and are not made anew elsewhere; the others go on."""
    b, tmp = two
    where = homes(b)
    assert sorted(where.values()) == ["one", "one", "two", "two"]
    for index in range(4):
        b.produce("t", [b"before"], partition=index)
    with b.disk.failing("write", part=f"{tmp}/two/"):
        lost = [i for i in where if where[i] == "two"]
        with pytest.raises(Refused, match="KAFKA_STORAGE_ERROR"):
            b.produce("t", [b"x"], partition=lost[0])
    with pytest.raises(Refused, match="KAFKA_STORAGE_ERROR"):
        b.produce("t", [b"x"], partition=lost[1])
    for index in set(where) - set(lost):
        b.produce("t", [b"after"], partition=index)
        assert [r.value for r in b.records("t", index)] == [b"before", b"after"]
    assert not [name for name in files(tmp / "one") if name in {f"t-{i}" for i in lost}]
    b.restart()
    assert [r.value for r in b.records("t", lost[0])] == [b"before"]


def test_an_error_while_a_log_is_made_takes_its_directory_offline(two) -> None:
    """Seed 001: any error of a disk; else it has the fewest partitions for ever, and every new one goes there.  The
    controller, which places them, is told."""
    b, tmp = two
    where = homes(b)
    with b.disk.failing("mkdir", part=f"{tmp}/two/"):
        b.create_topic("new", partitions=2)
        wait_for(lambda: len(b.running.logs.online) == 1, what="the failure")
    assert all(b.running.logs.is_offline(("t", index)) for index in where if where[index] == "two")
    assert sorted(name for name in files(tmp / "one") if name.startswith("new-"))
    b.create_topic("later", partitions=2)
    for index in range(2):
        b.produce("later", [b"x"], partition=index)
    assert {b.running.logs.directory_of("later", i).path for i in range(2)} == {f"{tmp}/one"}


def test_a_directory_that_is_missing_at_the_start_stays_offline(two) -> None:
    """D13: the metadata says where its partitions are; they are not made anew, empty."""
    b, tmp = two
    where = homes(b)
    for index in range(4):
        b.produce("t", [b"v"], partition=index)
    b.stop()
    from stratalog.testing import disk as testing_disk

    original = testing_disk.FaultyDisk.lock

    def broken(self, path):
        if "/two/" in path:
            raise OSError(errno.EIO, "broken", path)
        return original(self, path)

    testing_disk.FaultyDisk.lock = broken
    try:
        b.start()
        for index, home in where.items():
            if home == "two":
                with pytest.raises(Refused, match="KAFKA_STORAGE_ERROR"):
                    b.produce("t", [b"x"], partition=index)
            else:
                assert [r.value for r in b.records("t", index)] == [b"v"]
        assert not [n for n in files(tmp / "one") if n.startswith("t-") and where[int(n[2:])] == "two"]
        b.stop()
    finally:
        testing_disk.FaultyDisk.lock = original
    b.start()
    assert [r.value for r in b.records("t")] == [b"v"] * 4


def test_the_last_directory_that_fails_stops_the_broker() -> None:
    with stratalog.testing.broker(topics=["t"]) as b:
        running = b.running
        with b.disk.failing("write", part="/t-0"), pytest.raises(Exception, match=r"."):
            b.produce("t", [b"x"])
        assert running.wait(10)
        b.stop()
        assert b.failure is not None and "t-0" in str(b.failure)


def test_a_failed_sync_is_not_tried_again() -> None:
    """D16: after a sync that failed, data that was not synced counts as lost: the directory is offline."""
    with stratalog.testing.broker() as b:
        b.create_topic("t", flush_ms=1000)
        running = b.running
        b.produce("t", [b"x"])
        with b.disk.failing("fsync", part="/t-0", times=1):
            for _ in range(4):
                b.clock._ahead_ms += 1500  # without waiting for the loop, which is going to end
                running.loop.wake()
                running.wait(0.2)
            assert running.wait(10)
        b.stop()
        assert b.failure is not None and "t-0" in str(b.failure)


def test_a_full_disk_ends_no_directory_and_cleaning_goes_on_when_there_is_room() -> None:
    """D20: the cleaner and the checkpoints on a full disk."""
    with stratalog.testing.broker(config=FAST) as b:
        compacted(b)
        fill(b)
        roll(b)
        with b.disk.full():
            b.clock.advance(seconds=2)
            settle(b)
            b.clock.advance(seconds=61)
            settle(b)
            assert b.running.logs.online and len(b.records("c")) == 50
            assert "c" in {key[0] for key in b.running.log_service.cleaner.failures}
        b.clock.advance(hours=2)
        settle(b)
        assert len(b.records("c")) == 10
        fill(b, rounds=1)


def test_a_topic_made_on_a_full_disk_works_when_there_is_room() -> None:
    """D20."""
    with stratalog.testing.broker() as b:
        with b.disk.full("/t-0"):  # the broker's own directory may have a name with t-0 in it
            b.create_topic("t")
            with pytest.raises(Refused, match="KAFKA_STORAGE_ERROR"):
                b.produce("t", [b"x"])
        b.clock.advance(seconds=6)
        b.produce("t", [b"y"])
        assert [r.value for r in b.records("t")] == [b"y"]


# --- several directories ---------------------------------------------------------------------------------------------
def test_a_directory_named_twice_or_locked_is_refused(tmp_path) -> None:
    with (
        pytest.raises((ValueError, BrokenStart), match="twice"),
        stratalog.testing.broker(config={"log.dirs": f"{tmp_path}/a,{tmp_path}/./a"}),
    ):
        pass
    with (
        stratalog.testing.broker(directory=tmp_path / "b"),
        pytest.raises(BrokenStart, match="locked"),
        stratalog.testing.broker(directory=tmp_path / "b"),
    ):
        pass


def test_a_stray_directory_is_set_aside_and_kept(tmp_path) -> None:
    with stratalog.testing.broker(topics=["t"], directory=tmp_path) as b:
        b.produce("t", [b"x"])
        b.stop()
        (tmp_path / "data" / "t-0").rename(tmp_path / "data" / "unknown-7")
        b.start()
        names = files(tmp_path / "data")
        assert [n for n in names if n.startswith("unknown-7.") and n.endswith("-stray")]
        assert "unknown-7" not in names


def test_corrupt_checkpoints_are_survived(tmp_path) -> None:
    """LM-10."""
    with stratalog.testing.broker(topics=["t"], directory=tmp_path) as b:
        b.produce("t", [b"x"])
        b.stop()
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
            (tmp_path / "data" / name).write_bytes(b"\x00garbage\n")
        b.start()
        assert [r.value for r in b.records("t")] == [b"x"]


def move(broker, path, *partitions):
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name="t", partitions=list(partitions))])
        ]
    )
    with broker.client() as client:
        return [row.error_code for row in client.call_controller(request).results[0].partitions]


def test_a_replica_moves_to_the_other_directory_and_stays_there(two) -> None:
    """Seed 001: future logs swap atomically; the metadata knows where the replica is after a restart."""
    b, tmp = two
    index = next(i for i, home in homes(b).items() if home == "two")
    b.produce("t", [b"%d" % i + bytes(5000) for i in range(500)], partition=index)
    before = b.records("t", index)
    assert move(b, tmp / "nowhere", index) == [57]
    assert move(b, tmp / "one", index) == [0]
    wait_for(lambda: homes(b)[index] == "one", what="the move")
    b.produce("t", [b"after"], partition=index)
    assert b.records("t", index)[:-1] == before
    assert f"t-{index}" in files(tmp / "one") and f"t-{index}" not in files(tmp / "two")
    b.restart()
    assert homes(b)[index] == "one"
    assert b.records("t", index)[:-1] == before
    with b.client() as client:
        described = client.call_controller(DescribeLogDirsRequest(topics=None))
    assert not any(p.is_future_key for d in described.results for t in d.topics for p in t.partitions)


def test_an_interrupted_move_goes_on_after_a_crash(two) -> None:
    """D14."""
    b, tmp = two
    index = next(i for i, home in homes(b).items() if home == "two")
    b.produce("t", [bytes(9000)] * 400, partition=index)
    before = b.records("t", index)
    b.running.log_service.moves.rates = lambda: 1000.0
    assert move(b, tmp / "one", index) == [0]
    wait_for(lambda: any(n.endswith("-future") for n in files(tmp / "one")), what="the future log")
    b.restart(kill=True)
    wait_for(lambda: homes(b)[index] == "one", what="the move")
    assert b.records("t", index) == before


def test_the_target_of_a_move_may_fail_without_harm(two) -> None:
    """D14, KAFKA-16297: the original stays what it was."""
    b, tmp = two
    index = next(i for i, home in homes(b).items() if home == "one")
    b.produce("t", [bytes(9000)] * 100, partition=index)
    before = b.records("t", index)
    b.running.log_service.moves.rates = lambda: 1000.0
    assert move(b, tmp / "two", index) == [0]
    with b.disk.failing("write", part=f"{tmp}/two/"):
        b.clock.advance(hours=3)
        wait_for(lambda: len(b.running.logs.online) == 1, what="the failure")
    assert b.records("t", index) == before
    b.produce("t", [b"goes on"], partition=index)


def test_cordoned_directories_take_no_new_partitions(tmp_path) -> None:
    config = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two", "cordoned.log.dirs": f"{tmp_path}/two"}
    with stratalog.testing.broker(config=config, directory=tmp_path / "x") as b:
        b.create_topic("t", 6)
        assert set(homes(b).values()) == {"one"}
        assert move(b, tmp_path / "two", 0) == [39], "INVALID_REPLICA_ASSIGNMENT, as Kafka 4.3.1"
        with b.client() as client:
            described = client.call_controller(DescribeLogDirsRequest(topics=None))
        assert {d.log_dir: d.is_cordoned for d in described.results} == {
            f"{tmp_path}/one": False,
            f"{tmp_path}/two": True,
        }
