"""`stratalog dump`: every kind of file, as text and as JSON lines; what is damaged is named, and the rest is shown."""

import errno
import json
import shutil

import pytest
from files_kit import CONFIG, NOW, batch, files, flip, put, run, write_data_directory

from stratalog.base.types import Uuid
from stratalog.protocol.disk import control as control_schema
from stratalog.protocol.disk import group, metadata, remote, share, txn
from stratalog.records import batch as batches
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.dump import dump, file_type
from stratalog.storage.log import Log, Origin
from stratalog.testing.disk import FaultyDisk


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return write_data_directory(tmp_path_factory.mktemp("healthy"))


@pytest.fixture
def data(healthy, tmp_path):
    return shutil.copytree(healthy, tmp_path / "data")


def rows(path, kind=None, **options):
    return [row for row in dump(RealDisk(), str(path), **options) if kind in (None, row["kind"])]


def test_a_directory_is_dumped_whole(healthy, capsys):
    code, out, err = run(capsys, "dump", healthy)
    assert (code, err) == (0, "")
    assert not [line for line in out.splitlines() if "PROBLEM" in line or "unknown" in line]
    shown = {row["file"]: row["type"] for row in rows(healthy, "file")}
    assert set(shown) == {str(file) for file in healthy.rglob("*") if file.is_file()}
    assert {"log", "index", "timeindex", "txnindex", "snapshot", "leader-epochs", "partition-metadata"} <= set(
        shown.values()
    )
    assert {"meta-properties", "clean-shutdown", "offset-checkpoint"} <= set(shown.values())


def test_batches_as_people_read_them(healthy, capsys):
    _, out, _ = run(capsys, "dump", files(healthy / "orders-0", ".log")[0])
    lines = out.splitlines()
    assert "log, " in lines[0]
    assert "offsets 0..3  4 records  byte 0" in lines[1] and "CreateTime 2025-06-15T" in lines[1]
    assert "producer 11:0  sequences 0..1" in lines[2]
    assert any("gzip" in line for line in lines)
    _, everything, _ = run(capsys, "dump", *files(healthy / "orders-0", ".log"))
    assert "abort  coordinatorEpoch 1" in everything and "commit  coordinatorEpoch 1" in everything


def test_records_and_offsets_are_chosen(healthy, capsys):
    _, out, _ = run(capsys, "dump", "--records", "--offsets", "2-4", files(healthy / "orders-0", ".log")[0])
    records = [line.split() for line in out.splitlines() if line.startswith("    ")]
    assert [words[0] for words in records] == ["2", "3", "4"]
    assert "key=k2" in records[0] and "value=value" in records[0] and "headers=h:x" in records[0]
    found = [row["offset"] for row in rows(healthy / "orders-0", "record", records=True, first=9, last=9)]
    assert found == [9]


def test_every_record_is_there_once(healthy):
    """Against the files themselves, read batch by batch."""
    expected = []
    for path in files(healthy / "orders-0", ".log"):
        raw = path.read_bytes()
        for header in batches.batches(raw):
            if not header.is_control:
                expected += [(r.offset, r.timestamp, r.value.decode()) for r in batches.records_of(raw, header)]
    found = [
        (row["offset"], row["timestamp"], row["value"])
        for row in rows(healthy, "record", records=True)
        if "control" not in row
    ]
    assert found == expected and len(found) > 300


def test_json_lines_name_their_file(healthy, capsys):
    code, out, _ = run(capsys, "dump", "--json", healthy / "orders-0")
    parsed = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and all(row["file"].startswith(str(healthy)) for row in parsed)
    txns = [row for row in parsed if row["kind"] == "aborted-transaction"]
    assert txns and all(row["producerId"] == 21 and row["firstOffset"] < row["lastOffset"] for row in txns)
    assert {row["epoch"] for row in parsed if row["kind"] == "leader-epoch"} == {0, 1, 2}
    assert {row["producerId"] for row in parsed if row["kind"] == "producer"} == {11, 21}
    topic = next(row for row in parsed if row["kind"] == "partition-metadata")
    assert topic["topicId"] == str(Uuid(b"\7" * 16))


def test_damage_is_named_and_the_rest_is_shown(data, capsys):
    path = files(data / "orders-0", ".log")[0]
    whole = len(rows(path, "batch"))
    flip(path, path.stat().st_size // 2)
    code, out, err = run(capsys, "dump", path)
    assert code == 1 and err == "1 problems\n"
    assert "PROBLEM at byte" in out and "goes on at byte" in out
    assert len(rows(path, "batch")) == whole - 1


def test_a_file_that_cannot_be_read_or_is_gone_hides_no_other(data):
    disk = FaultyDisk()
    everything = {row["file"] for row in rows(data, "file")}
    victim = min(name for name in everything if name.endswith(".log"))
    with disk.failing("read", part=victim):
        found = list(dump(disk, str(data)))
    assert {row["file"] for row in found if row["kind"] == "file"} == everything
    assert [(row["file"], row["text"]) for row in found if row["kind"] == "problem"] == [
        (victim, "cannot be read: Input/output error")
    ]
    with disk.failing("read", part=victim, number=errno.ENOENT):
        found = list(dump(disk, str(data)))
    assert [row for row in found if row["kind"] == "problem"] == []
    assert [row["file"] for row in found if row.get("text") == "deleted meanwhile"] == [victim]


@pytest.mark.parametrize(
    ("suffix", "position", "words"),
    [(".snapshot", 20, "wrong CRC"), (".txnindex", 1, "version"), (".log", 16, "magic")],
)
def test_damage_of_each_kind_of_file_is_named(data, capsys, suffix, position, words):
    path = max(files(data / "orders-0", suffix), key=lambda file: file.stat().st_size)
    flip(path, position, 0x41 if suffix == ".log" else 0x01)
    code, out, _ = run(capsys, "dump", path)
    assert code == 1 and words in out


def test_cut_indexes_and_unused_slots_are_told(tmp_path, capsys):
    log = Log.open(RealDisk(), f"{tmp_path}/t-0", topic="t", partition=0, config=CONFIG, now_ms=NOW)
    for i in range(20):
        put(log, batch([b"%d" % i * 40], timestamp=NOW + i))
    index = files(tmp_path / "t-0", ".index")[0]
    entries = rows(index, "index-entry")
    assert len(entries) > 3 and entries[0]["offset"] > 0 and "unused slots" in run(capsys, "dump", index)[1]
    log.close()
    index.write_bytes(index.read_bytes()[:-3])
    code, out, _ = run(capsys, "dump", index)
    assert code == 1 and "5 bytes are left over" in out


def test_a_file_of_another_kind_is_named(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("x")
    code, out, _ = run(capsys, "dump", tmp_path / "notes.txt")
    assert code == 0 and "unknown" in out and "no file that a broker writes" in out
    assert run(capsys, "dump", tmp_path / "missing")[0] == 2
    assert run(capsys, "dump", "--offsets", "a-b", tmp_path)[0] == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000010.log", "log"),
        ("00000000000000000010.log.deleted", "log"),
        ("00000000000000000010.timeindex.cleaned", "timeindex"),
        ("00000000000000000042-0000000003.checkpoint", "metadata-snapshot"),
        ("leader-epoch-checkpoint.tmp", "leader-epochs"),
        ("cleaner-offset-checkpoint", "offset-checkpoint"),
        ("orders.csv", "unknown"),
    ],
)
def test_names_say_what_a_file_is(name, expected):
    assert file_type(f"/data/x-0/{name}") == expected


# --- the internal topics ----------------------------------------------------------------------------------------------
def internal(tmp_path, topic, records, *, origin=Origin.COORDINATOR):
    log = Log.open(RealDisk(), f"{tmp_path}/{topic}-0", topic=topic, partition=0, config=LogConfig(), now_ms=NOW)
    builder = batches.BatchBuilder()
    for key, value in records:
        builder.append(NOW, key, value)
    put(log, builder.build(), origin=origin)
    log.close()
    return rows(tmp_path / f"{topic}-0", "record")


def int16(number):
    return number.to_bytes(2, "big")


def test_committed_offsets_are_decoded(tmp_path):
    key = int16(1) + group.OffsetCommitKey(group="g", topic="t", partition=3).encode_bytes(0)
    value = int16(3) + group.OffsetCommitValue(offset=42, leader_epoch=5, metadata="m").encode_bytes(3)
    first, second, third = internal(tmp_path, "__consumer_offsets", [(key, value), (key, None), (int16(99), b"\xff")])
    assert first["type"] == "OffsetCommit" and first["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert first["value"]["offset"] == 42 and first["value"]["leaderEpoch"] == 5 and first["version"] == 3
    assert second["value"] is None and "version" not in second
    assert third["type"] == "unknown (99)" and third["value"] == {"base64": "/w=="}


def test_transaction_states_are_decoded(tmp_path):
    key = int16(0) + txn.TransactionLogKey(transactional_id="tx").encode_bytes(0)
    value = int16(1) + txn.TransactionLogValue(
        producer_id=9, transaction_partitions=[txn.PartitionsSchema(topic="t", partition_ids=[0, 2])]
    ).encode_bytes(1)
    (row,) = internal(tmp_path, "__transaction_state", [(key, value)])
    assert row["key"] == {"transactionalId": "tx"} and row["value"]["producerId"] == 9
    assert row["value"]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 2]}]


def test_share_states_are_decoded(tmp_path):
    key = int16(0) + share.ShareSnapshotKey(group_id="g", topic_id=Uuid(b"\5" * 16), partition=1).encode_bytes(0)
    value = int16(0) + share.ShareSnapshotValue(
        start_offset=7, state_batches=[share.StateBatch(first_offset=7, last_offset=9)]
    ).encode_bytes(0)
    (row,) = internal(tmp_path, "__share_group_state", [(key, value)])
    assert row["key"]["topicId"] == str(Uuid(b"\5" * 16)) and row["value"]["stateBatches"][0]["lastOffset"] == 9


def test_remote_log_metadata_is_decoded(tmp_path):
    message = remote.RemotePartitionDeleteMetadataRecord()
    value = bytes((1, 2, 0)) + message.encode_bytes(0)
    good, bad = internal(tmp_path, "__remote_log_metadata", [(None, value), (None, bytes((9, 9, 9)))])
    assert good["type"] == "RemotePartitionDeleteMetadataRecord"
    assert bad["type"] == "unknown (9)"


def test_metadata_records_and_control_records_are_decoded(tmp_path, capsys):
    value = bytes((1, 2, 0)) + metadata.TopicRecord(name="t", topic_id=Uuid(b"\5" * 16)).encode_bytes(0)
    (row,) = internal(tmp_path, "__cluster_metadata", [(None, value)])
    assert row["type"] == "TopicRecord" and row["value"] == {"name": "t", "topicId": str(Uuid(b"\5" * 16))}
    builder = batches.BatchBuilder(control=True)
    for kind, message in (
        (3, control_schema.SnapshotHeaderRecord(last_contained_log_timestamp=8)),
        (4, control_schema.SnapshotFooterRecord()),
    ):
        builder.append(NOW, bytes(2) + int16(kind), message.encode_bytes(0))
    snapshot = tmp_path / "00000000000000000005-0000000001.checkpoint"
    snapshot.write_bytes(builder.build())
    first, second = rows(snapshot, "record")
    assert first["control"] == "snapshotHeader" and first["value"]["lastContainedLogTimestamp"] == 8
    assert second["control"] == "snapshotFooter"
    assert run(capsys, "dump", snapshot)[0] == 0


def test_a_record_that_cannot_be_decoded_is_a_problem_and_still_shown(tmp_path, capsys):
    key = int16(1) + b"\x00\x09too short"
    (row,) = internal(tmp_path, "__consumer_offsets", [(key, b"\x00\x03")])
    assert row["key"] == key.decode() and row["value"] == "\x00\x03"
    code, out, _ = run(capsys, "dump", tmp_path / "__consumer_offsets-0")
    assert code == 1 and "cannot be decoded" in out and "\x00" not in out
