"""The small files: what Kafka writes, read and written back; what is damaged, refused with path and line."""

import pytest

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.server.disk import RealDisk
from stratalog.storage import checkpoints, layout

DISK = RealDisk()


def test_offset_checkpoint_round_trip_and_format(tmp_path):
    path = f"{tmp_path}/{layout.RECOVERY_POINTS}"
    assert checkpoints.read_offsets(DISK, path) == {}
    checkpoints.write_offsets(DISK, path, {("b-c", 1): 7, ("a", 0): 100})
    assert (tmp_path / layout.RECOVERY_POINTS).read_bytes() == b"0\n2\na 0 100\nb-c 1 7\n"
    assert checkpoints.read_offsets(DISK, path) == {("a", 0): 100, ("b-c", 1): 7}


def test_an_empty_checkpoint_file_is_an_empty_checkpoint(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    assert checkpoints.read_offsets(DISK, f"{tmp_path}/x") == {}
    assert checkpoints.read_epochs(DISK, f"{tmp_path}/x") == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1\n0\n", "unknown version"),
        (b"0\n", "count is missing"),
        (b"0\n2\na 0 1\n", "says 2 entries, 1 follow"),
        (b"0\n1\na 0\n", "not 'topic partition offset'"),
        (b"0\n1\na 0 x\n", "not a number"),
        (b"0\n1\na -1 1\n", "not a number"),
        (b"0\n1\na 0 99999999999999999999\n", "not a number"),
        (b"0\n1\na 0 9223372036854775808\n", "not a number"),
        (b"0\n1\na 2147483648 0\n", "not a number"),
        (b"0\n-1\n", "not a number"),
        (b"\xff\xfe", "not text"),
        (b"0\n1\na 0 1\x00\n", "not a number"),
    ],
)
def test_a_damaged_offset_checkpoint_names_file_and_line(tmp_path, data, words):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(Malformed, match=words) as caught:
        checkpoints.read_offsets(DISK, f"{tmp_path}/x")
    assert f"{tmp_path}/x" in caught.value.reason


def test_an_epoch_that_no_leader_can_have_is_damage(tmp_path):
    """It would be greater than every real one, so that none is ever noted again."""
    (tmp_path / "x").write_bytes(b"0\n1\n2147483648 0\n")
    with pytest.raises(Malformed, match="line 3: not a number"):
        checkpoints.read_epochs(DISK, f"{tmp_path}/x")


def test_partition_metadata_is_byte_for_byte_what_kafka_writes(tmp_path):
    topic_id = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")
    assert checkpoints.read_topic_id(DISK, str(tmp_path)) is None
    checkpoints.write_topic_id(DISK, str(tmp_path), topic_id)
    assert (tmp_path / layout.PARTITION_METADATA).read_bytes() == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert checkpoints.read_topic_id(DISK, str(tmp_path)) == topic_id
    (tmp_path / layout.PARTITION_METADATA).write_bytes(b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(Malformed, match="unknown version"):
        checkpoints.read_topic_id(DISK, str(tmp_path))


def test_the_clean_shutdown_marker_is_consumed_before_anything_is_loaded(tmp_path):
    """D01, ST-10."""
    assert checkpoints.take_clean_shutdown(DISK, str(tmp_path)) is None
    checkpoints.write_clean_shutdown(DISK, str(tmp_path), 14)
    assert (tmp_path / layout.CLEAN_SHUTDOWN).read_bytes() == b'{"version":0,"brokerEpoch":14}'
    assert checkpoints.take_clean_shutdown(DISK, str(tmp_path)) == 14
    assert checkpoints.take_clean_shutdown(DISK, str(tmp_path)) is None
    (tmp_path / layout.CLEAN_SHUTDOWN).write_bytes(b"")
    assert checkpoints.take_clean_shutdown(DISK, str(tmp_path)) == -1


def test_meta_properties_of_kafka_are_read(tmp_path):
    (tmp_path / layout.META_PROPERTIES).write_text(
        "#\n#Wed Nov 18 22:00:00 UTC 2026\nnode.id=1\ndirectory.id=gg\nversion=1\ncluster.id=a\\:b\n"
    )
    read = checkpoints.read_meta_properties(DISK, str(tmp_path))
    assert read == {"node.id": "1", "directory.id": "gg", "version": "1", "cluster.id": "a:b"}
    checkpoints.write_meta_properties(DISK, str(tmp_path), cluster_id="c", node_id=3, directory_id=Uuid(b"\1" * 16))
    read = checkpoints.read_meta_properties(DISK, str(tmp_path))
    assert read == {"version": "1", "cluster.id": "c", "node.id": "3", "directory.id": "AQEBAQEBAQEBAQEBAQEBAQ"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000147001.log", (147001, ".log", "")),
        ("00000000000000000000.snapshot", (0, ".snapshot", "")),
        ("00000000000000000000.timeindex.swap", (0, ".timeindex", ".swap")),
        ("00000000000000000000.log.cleaned", (0, ".log", ".cleaned")),
        ("leader-epoch-checkpoint", None),
        ("x.log", None),
        ("99999999999999999999.log", None),
        ("00000000000000000000.checkpoint", None),
    ],
)
def test_file_names_are_taken_apart(name, expected):
    parsed = layout.parse(name)
    assert (parsed and tuple(parsed)) == expected
    if parsed:
        assert layout.file_name(*parsed) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-2", ("orders", 2)),
        ("a-b-0", ("a-b", 0)),
        ("a.b-7", ("a.b", 7)),
        ("orders-2.0123abcd-delete", None),
        ("orders-2.0123abcd-future", None),
        ("x", None),
        ("-1", None),
    ],
)
def test_directory_names_are_taken_apart(name, expected):
    assert layout.parse_directory(name) == expected
