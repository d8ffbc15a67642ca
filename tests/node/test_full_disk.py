"""D20 around the partitions: what a full disk stops for a while, and what must go on again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog.testing
from stratalog.base.errors import ErrorCode
from stratalog.client import Client, admin
from stratalog.protocol.k10_find_coordinator import FindCoordinatorRequest
from stratalog.protocol.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def coordinator(client: Client, version: int) -> int:
    """The error of the answer."""
    node = next(iter(client.brokers))
    asked = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    answer = client.connection(node).call(asked, version=version)
    return int(answer.error_code if version < 4 else answer.coordinators[0].error_code)


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_disk_that_is_full_when_the_first_group_comes_stops_no_later_one(version: int) -> None:
    with stratalog.testing.broker() as b, b.client() as client:
        with b.disk.full("__cluster_metadata"):
            for _ in range(2):
                assert coordinator(client, version) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert coordinator(client, version) == ErrorCode.NONE


def test_groups_are_coordinated_once_there_is_room_for_their_logs() -> None:
    config = {"offsets.topic.num.partitions": "2"}
    with stratalog.testing.broker(topics=["t"], config=config) as b, b.client() as client:
        with b.disk.full("__consumer_offsets"):
            assert coordinator(client, 4) == ErrorCode.NONE
            assert not b.running.node.groups.runtimes
        b.clock.advance(seconds=5)
        admin.commit_offsets(client, "g", {("t", 0): 3})
        assert [place.offset for place in admin.committed_offsets(client, "g")] == [3]


def test_a_replica_moves_away_from_a_full_disk(tmp_path: Path) -> None:
    """The metadata is on the full disk too: it is told of the move when it takes records again."""
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    with stratalog.testing.broker(topics=["t"], config={"log.dirs": ",".join(paths)}) as b, b.client() as client:
        b.produce("t", [b"kept"])
        logs = b.running.logs
        source, target = paths if (tmp_path / "one" / "t-0").exists() else paths[::-1]
        move = AlterReplicaLogDir(path=target, topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])
        with b.disk.full(source), b.disk.full("__cluster_metadata"):
            client.call(AlterReplicaLogDirsRequest(dirs=[move]))
            until(lambda: logs.get("t", 0) is not None and logs.get("t", 0).directory == f"{target}/t-0")
            assert [record.value for record in b.records("t")] == [b"kept"]
        b.clock.advance(seconds=5)
        b.produce("t", [b"more"])
        topic = b.running.metadata.image.topics_by_name["t"]
        assert topic.partitions[0].directories == (b.running.metadata.directory_ids[target],)


def test_a_snapshot_of_the_metadata_waits_for_room() -> None:
    config = {"metadata.log.max.snapshot.interval.ms": "1000"}
    with stratalog.testing.broker(topics=["t"], config=config) as b:
        b.produce("t", [b"kept"])
        quorum = b.running.metadata.quorum
        before = len(quorum.snapshots)
        with b.disk.full():
            b.clock.advance(seconds=10)
            until(lambda: not b.running.run_on_loop(lambda: b.running._pool.outstanding))
            assert [record.value for record in b.records("t")] == [b"kept"]
            assert len(quorum.snapshots) == before
        b.clock.advance(seconds=10)
        until(lambda: len(quorum.snapshots) > before)


def test_a_stop_on_a_full_disk_comes_to_its_end() -> None:
    """`serve` waits for it; what was acknowledged is there after the next start."""
    with stratalog.testing.broker(topics=["t"]) as b:
        b.produce("t", [b"kept"])
        running = b.running
        with b.disk.full():
            b.stop()
        assert running.wait(0) and not running.was_clean
        assert b.failure is None
        assert not (b.directory / "data" / ".kafka_cleanshutdown").exists()
        b.start()
        assert [record.value for record in b.records("t")] == [b"kept"]
        running = b.running
        b.stop()
        assert running.was_clean
