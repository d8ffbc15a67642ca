"""The metadata log of a single voter: epochs, commits, snapshots, and what a broken file does."""

from __future__ import annotations

import json

import pytest

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.metadata import serde
from stratalog.metadata.loader import load
from stratalog.protocol.disk.metadata import ConfigRecord
from stratalog.raft import snapshot, state
from stratalog.raft.quorum import Quorum, bootstrap_values, format_metadata
from stratalog.raft.snapshot import SnapshotId, Voter
from stratalog.records.batch import batches
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig

DISK = RealDisk()
DIRECTORY_ID = Uuid(b"0123456789abcdef")


class ManualPool:
    """Work waits until the test lets it run."""

    def __init__(self):
        self.waiting = []

    def submit(self, name, work, done):
        self.waiting.append((name, work, done))

    def run(self):
        waiting, self.waiting = self.waiting, []
        for _, work, done in waiting:
            try:
                result, error = work(), None
            except OSError as failure:
                result, error = None, failure
            done(result, error)
        return len(waiting)


def open_quorum(directory, pool=None, **more):
    return Quorum.open(DISK, pool or ManualPool(), str(directory), node_id=1, directory_id=DIRECTORY_ID, now=5, **more)


def value(text: str) -> bytes:
    return serde.encode(ConfigRecord(resource_type=2, resource_name="t", name="k", value=text), 30)


def read_state(directory):
    return json.loads((directory / "__cluster_metadata-0" / "quorum-state").read_bytes())


def start(directory, pool=None, **more):
    quorum = open_quorum(directory, pool, **more)
    recovered = list(quorum.recovered())
    quorum.lead(10)
    return quorum, recovered


def test_each_start_leads_in_a_new_epoch(tmp_path):
    for epoch in (1, 2, 3):
        quorum, _ = start(tmp_path)
        assert quorum.epoch == epoch
        assert read_state(tmp_path)["leaderEpoch"] == epoch
        quorum.append([value(str(epoch))], 11)
        quorum.close()
    quorum = open_quorum(tmp_path)
    assert [epoch for _, epoch, _ in quorum.recovered()] == [1, 2, 3]
    quorum.close()


def test_the_epoch_is_in_the_state_before_it_is_in_the_log(tmp_path):
    """A crash between the two may lose an epoch's batch, never its number (K05: no vote twice in one epoch)."""
    quorum, _ = start(tmp_path)
    quorum.close()
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_bytes(
        state.QuorumState(leader_epoch=9, leader_id=1, data_version=1).encode()
    )
    quorum, _ = start(tmp_path)
    assert quorum.epoch == 10
    quorum.close()


def test_the_state_is_what_kafka_writes(tmp_path):
    """Version 0 of the file for a fixed quorum, version 1 for a dynamic one; no newline."""
    quorum, _ = start(tmp_path / "fixed")
    quorum.close()
    raw = (tmp_path / "fixed" / "__cluster_metadata-0" / "quorum-state").read_bytes()
    assert raw == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    voters = [Voter(1, DIRECTORY_ID, (("CONTROLLER", "h", 9093),))]
    (tmp_path / "dynamic").mkdir()
    format_metadata(DISK, str(tmp_path / "dynamic"), [value("x")], now=1, voters=voters)
    quorum, _ = start(tmp_path / "dynamic")
    assert quorum.voters == tuple(voters)
    quorum.close()
    raw = (tmp_path / "dynamic" / "__cluster_metadata-0" / "quorum-state").read_bytes()
    assert raw == (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b"\xff\xfe",
        b"{}",
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":-4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":"1","votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":true,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}',
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":7,"data_version":0}',
        b"[" * 60_000,
    ],
)
def test_a_broken_quorum_state_stops_the_start(tmp_path, content):
    """K05 (KAFKA-16526): fail fast, never vote again in the same epoch."""
    quorum, _ = start(tmp_path)
    quorum.close()
    path = tmp_path / "__cluster_metadata-0" / "quorum-state"
    path.write_bytes(content)
    with pytest.raises(Malformed, match="quorum-state"):
        open_quorum(tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("size", range(0, 120, 11))
def test_a_quorum_state_that_is_cut_off_is_malformed(size):
    whole = state.QuorumState(leader_epoch=5, leader_id=1, voters=(1,), data_version=0).encode()
    assert state.decode(whole, "x").leader_epoch == 5
    with pytest.raises(Malformed):
        state.decode(whole[: min(size, len(whole) - 1)], "x")


def test_a_quorum_of_several_is_not_opened_by_one(tmp_path):
    quorum, _ = start(tmp_path)
    quorum.close()
    path = tmp_path / "__cluster_metadata-0" / "quorum-state"
    path.write_bytes(state.QuorumState(leader_epoch=3, leader_id=2, voters=(1, 2, 3), data_version=0).encode())
    with pytest.raises(Malformed, match="voters"):
        open_quorum(tmp_path)


def test_the_high_watermark_is_the_flushed_end(tmp_path):
    pool = ManualPool()
    quorum, _ = start(tmp_path, pool)
    commits = []
    quorum.on_commit = commits.append
    first = quorum.append([value("1")], 11)
    assert commits == []
    quorum.append([value("2"), value("3")], 11)
    quorum.append([value("4")], 11)
    assert len(pool.waiting) == 1  # what comes while a flush waits shares it, or the next one
    pool.run()
    assert commits[0] >= first + 1
    pool.run()
    assert commits[-1] == quorum.end_offset == quorum.high_watermark
    assert pool.run() == 0
    quorum.close()


def test_without_fsync_the_owner_commits(tmp_path):
    quorum, _ = start(tmp_path, fsync=False)
    commits = []
    quorum.on_commit = commits.append
    quorum.append([value("1")], 11)
    assert commits == []
    quorum.commit()
    assert commits == [quorum.end_offset]
    quorum.close()


def test_a_flush_that_fails_is_told_and_nothing_is_committed(tmp_path):
    """ST-11: an fsync that failed is never retried and trusted."""
    pool = ManualPool()
    quorum, _ = start(tmp_path, pool)
    failures, commits = [], []
    quorum.on_failure, quorum.on_commit = failures.append, commits.append
    quorum.append([value("1")], 11)
    name, _, done = pool.waiting.pop()
    assert name == "metadata-flush"
    done(None, OSError(5, "broken", "x"))
    assert len(failures) == 1
    assert commits == []
    quorum.close()


def test_what_was_appended_comes_back(tmp_path):
    quorum, _ = start(tmp_path)
    for number in range(20):
        quorum.append([value(str(number)), value("x")], 11)
    quorum.close()
    quorum = open_quorum(tmp_path)
    image = load(quorum.recovered()).image
    assert image.topic_config("t") == {"k": "x"}
    assert image.offset == quorum.end_offset - 1
    quorum.close()


def test_a_torn_tail_is_cut(tmp_path):
    """ST-5: a crash in the middle of an append leaves a prefix."""
    quorum, _ = start(tmp_path)
    quorum.append([value("kept")], 11)
    quorum.append([value("torn")], 11)
    quorum.close()
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-3])
    quorum, recovered = start(tmp_path)
    assert [values for _, _, values in recovered] == [[value("kept")]]
    assert quorum.epoch == 2
    quorum.close()


# --- damage ----------------------------------------------------------------------------------------------------------
def three_sessions(tmp_path):
    """A log of three epochs, two records each; gives its file and the positions of its batches."""
    for number in range(3):
        quorum, _ = start(tmp_path)
        for text in "ab":
            quorum.append([value(f"{number}{text}")], 11)
        quorum.close()
    file = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    return file, [header.position for header in batches(file.read_bytes())]


@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a stop"])
@pytest.mark.parametrize("batch", [0, 1, 3, 5])
def test_rot_in_what_was_flushed_stops_the_start_and_changes_nothing(tmp_path, batch, clean):
    """D17: to cut the log there would take the topics away that came later."""
    file, positions = three_sessions(tmp_path)
    data = bytearray(file.read_bytes())
    data[positions[batch] + 70] ^= 1
    file.write_bytes(data)
    for _ in range(2):
        with pytest.raises(Malformed, match=r"the metadata log is damaged .*bring the file back"):
            list(open_quorum(tmp_path, had_clean_shutdown=clean).recovered())
        assert file.read_bytes() == data
    assert not list(file.parent.glob("*.damaged"))


def test_a_tail_that_was_written_in_another_order_is_cut_and_kept_aside(tmp_path, caplog):
    """Two batches of the last epoch, the first torn and the second whole: a power cut may do that to what was on its
    way, so the start goes on, and says what it has put aside."""
    file, positions = three_sessions(tmp_path)
    data = bytearray(file.read_bytes())
    data[positions[-2] + 70] ^= 1
    file.write_bytes(data)
    quorum, recovered = start(tmp_path)
    assert len(recovered) == 4
    quorum.close()
    assert (file.parent / (file.name + ".damaged")).read_bytes() == data[positions[-2] :]
    assert "kept-aside" in caplog.text


# --- snapshots --------------------------------------------------------------------------------------------------------
def test_a_start_goes_on_from_the_snapshot(tmp_path):
    quorum, _ = start(tmp_path)
    quorum.append([value("before")], 11)
    quorum.flush()
    id = SnapshotId(quorum.end_offset, quorum.epoch)
    quorum.take_snapshot(id, lambda: [value("from the snapshot")], 12, wait=True)
    assert (tmp_path / "__cluster_metadata-0" / id.file_name).exists()
    last = quorum.append([value("after")], 13)
    quorum.close()
    quorum, recovered = start(tmp_path)
    assert recovered == [
        (id.end_offset - 1, 1, [value("from the snapshot")]),
        (last, 1, [value("after")]),
    ]
    quorum.close()


def test_older_snapshots_go(tmp_path):
    pool = ManualPool()
    quorum, _ = start(tmp_path, pool, fsync=False)
    for number in range(5):
        quorum.append([value(str(number))], 11)
        quorum.commit()
        quorum.take_snapshot(SnapshotId(quorum.end_offset, 1), lambda: [value("s")], 12)
        pool.run()
    left = snapshot.find(DISK, str(tmp_path / "__cluster_metadata-0"))
    assert left == list(quorum.snapshots)
    assert [id.end_offset for id in left] == [quorum.end_offset - 1, quorum.end_offset]
    quorum.close()


@pytest.mark.parametrize("more", [{"retention_bytes": 0}, {"retention_ms": 0}], ids=["too many bytes", "too old"])
def test_segments_that_snapshots_stand_for_go(tmp_path, more):
    """K03: none that holds a record which the oldest kept snapshot does not have, whatever the retention says; the
    next start has everything."""
    config = LogConfig(segment_bytes=200, retention_ms=-1)
    quorum, _ = start(tmp_path, config=config, fsync=False, **more)
    log = quorum.log
    covered = 0
    for number in range(12):
        quorum.append([value(str(number))], 20 + number)
        quorum.commit()
        if number in (3, 7):
            assert log.log_start_offset == 0 or number > 3
            covered, end = quorum.snapshots[-1].end_offset if quorum.snapshots else 0, quorum.end_offset
            state_then = [value(str(n)) for n in range(number + 1)]
            quorum.take_snapshot(SnapshotId(end, quorum.epoch), lambda state=state_then: state, 60, wait=True)
    bases = [segment.base_offset for segment in log.segments]
    assert 0 < log.log_start_offset == bases[0] <= covered < bases[1] <= quorum.snapshots[-1].end_offset
    assert not list((tmp_path / "__cluster_metadata-0").glob("*.deleted"))
    quorum.close()
    quorum, recovered = start(tmp_path, config=config, fsync=False, **more)
    assert [text for _, _, values in recovered for text in values] == [value(str(n)) for n in range(12)]
    quorum.close()


def test_without_retention_no_segment_goes(tmp_path):
    quorum, _ = start(tmp_path, config=LogConfig(segment_bytes=200, retention_ms=-1), fsync=False)
    for number in range(8):
        quorum.append([value(str(number))], 20)
        quorum.commit()
        quorum.take_snapshot(SnapshotId(quorum.end_offset, quorum.epoch), list, 60, wait=True)
    assert quorum.log.log_start_offset == 0 and len(quorum.log.segments) > 2
    quorum.close()


def test_a_snapshot_beyond_the_log_takes_its_place(tmp_path):
    """What a follower that fetched a snapshot has: the log restarts behind it."""
    quorum, _ = start(tmp_path)
    quorum.close()
    directory = tmp_path / "__cluster_metadata-0"
    data = snapshot.encode([value("s")], now=1, last_timestamp=1, epoch=4)
    (directory / SnapshotId(100, 4).file_name).write_bytes(data)
    quorum, recovered = start(tmp_path)
    assert recovered == [(99, 4, [value("s")])]
    assert quorum.epoch == 5
    assert quorum.append([value("x")], 11) > 100
    quorum.close()


def test_format_leaves_what_is_there(tmp_path):
    format_metadata(DISK, str(tmp_path), [value("first")], now=1)
    format_metadata(DISK, str(tmp_path), [value("second")], now=1)
    assert bootstrap_values(DISK, str(tmp_path)) == [value("first")]
    assert bootstrap_values(DISK, str(tmp_path / "nowhere")) is None
