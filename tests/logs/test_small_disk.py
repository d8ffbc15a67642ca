"""A real file system that is full: a tmpfs of 32 MiB.  Writes are refused with a clear error, reads go on, a start
needs no space, and everything recovers by itself when there is room again (D20, seed 001)."""

import contextlib
import os
import subprocess

import pytest
from logs_kit import log_of, settle

import stratalog.testing
from stratalog.client.failures import Refused

MIB = 1 << 20


@pytest.fixture
def small(tmp_path):
    """The mounted file system; where mounting is refused, the test says so."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def ballast(place, *, leave=0):
    """A file that takes all the room but `leave` bytes."""
    path = place / "ballast"
    stat = os.statvfs(place)
    size = stat.f_bavail * stat.f_frsize - leave
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))
    try:
        yield
    finally:
        path.unlink()


def fill_up(broker, topic, size=200_000):
    """Produce until the disk says no; how many records were taken."""
    for count in range(400):
        try:
            broker.produce(topic, [b"%d-" % count + bytes(size)])
        except Refused as refused:
            assert "KAFKA_STORAGE_ERROR" in str(refused)
            return count
    raise AssertionError("the disk is never full")


def test_a_full_file_system_refuses_writes_serves_reads_and_recovers(small) -> None:
    with stratalog.testing.broker(topics=["t"], directory=small) as b:
        taken = fill_up(b, "t")
        assert taken > 50
        assert [r.value[:3] for r in b.records("t")][:2] == [b"0-\0", b"1-\0"]
        assert len(b.records("t")) == taken and len(b.running.logs.online) == 1
        # Checkpoints, retention, flushes and the cleaner's looks go over a full disk.
        b.clock.advance(minutes=11)
        settle(b)
        assert len(b.records("t")) == taken and len(b.running.logs.online) == 1
        # Retention makes room, and nobody has to do anything.
        b.clock.advance(days=8)
        settle(b)
        b.clock.advance(minutes=5)
        settle(b)
        b.produce("t", [b"room again"])
        assert [r.value for r in b.records("t")][-1] == b"room again"


@pytest.mark.parametrize("kill", [False, True])
def test_a_start_needs_no_free_space(small, kill) -> None:
    """After a stop and after a crash, on a file system without a free byte; all that was acknowledged is there."""
    with stratalog.testing.broker(topics=["t", "u"], directory=small) as b:
        for i in range(40):
            b.produce("t", [b"%d-" % i + bytes(50_000)])
            b.produce("u", [(b"k%d" % (i % 3), b"%d" % i)])
        before = b.records("t"), b.records("u")
        with ballast(small):
            b.restart(kill=kill)
            assert (b.records("t"), b.records("u")) == before
            b.restart(kill=kill)
            assert (b.records("t"), b.records("u")) == before
        b.clock.advance(minutes=2)
        b.produce("t", [b"goes on"])
        b.restart()
        assert b.records("t")[-1].value == b"goes on" and b.records("t")[:-1] == before[0]


def test_a_cleaning_that_finds_no_room_waits_for_it(small) -> None:
    """The cleaner needs room for its result: on a full disk the partition is shown as failed and tried again."""
    config = {"log.cleaner.backoff.ms": "1000", "log.cleaner.dedupe.buffer.size": "1048576"}
    with stratalog.testing.broker(config=config, directory=small) as b:
        b.create_topic(
            "c",
            cleanup_policy="compact",
            segment_bytes=4 * MIB,
            min_cleanable_dirty_ratio="0.01",
            file_delete_delay_ms=0,
        )
        for i in range(12):
            b.produce("c", [(b"k%d" % k, b"%d-" % i + os.urandom(90_000)) for k in range(8)])
        last = {r.key: r.value for r in b.records("c")}
        b.running.run_on_loop(lambda: log_of(b, "c").roll(b.clock.now_ms()))
        with ballast(small, leave=300_000):
            b.clock.advance(seconds=2)
            settle(b)
            failures = b.running.log_service.cleaner.failures
            assert "No space" in failures["c", 0].text
            assert len(b.running.logs.online) == 1 and {r.key: r.value for r in b.records("c")} == last
            assert not [n for n in os.listdir(log_of(b, "c").directory) if n.endswith(".cleaned")]
        b.clock.advance(hours=2)
        settle(b)
        assert not b.running.log_service.cleaner.failures
        assert len(b.records("c")) == 8 and {r.key: r.value for r in b.records("c")} == last


def test_deleted_records_are_not_acknowledged_while_they_could_come_back(small) -> None:
    """LM-2: the new log start cannot be written, so the client is told; the next round writes it by itself."""
    with stratalog.testing.broker(topics=["t"], directory=small) as b:
        b.produce("t", [b"%d" % i for i in range(10)])
        with ballast(small):
            with b.client() as client, pytest.raises(Refused, match="KAFKA_STORAGE_ERROR"):
                delete(client, "t", 6)
            assert [r.offset for r in b.records("t")] == [6, 7, 8, 9]
        b.clock.advance(minutes=2)
        settle(b)
        b.restart(kill=True)
        assert [r.offset for r in b.records("t")] == [6, 7, 8, 9]


def delete(client, topic, offset):
    from stratalog.base.errors import ErrorCode
    from stratalog.protocol.k21_delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])],
        timeout_ms=5000,
    )
    code = client.call_controller(request).topics[0].partitions[0].error_code
    if code:
        raise Refused(ErrorCode(code), ErrorCode(code).name)
