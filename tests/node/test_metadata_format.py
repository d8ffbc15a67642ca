"""Formatting of data directories: what a new node gets, what is kept, what is refused."""

from __future__ import annotations

import re

import pytest

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.metadata import serde
from stratalog.metadata.image import Endpoint
from stratalog.node.metadata import format_directories
from stratalog.raft import snapshot
from stratalog.server.clock import RealRng
from stratalog.server.disk import RealDisk
from stratalog.storage import checkpoints

DISK = RealDisk()


def form(*directories, node_id=1, **more):
    return format_directories(
        DISK, [str(path) for path in directories], node_id=node_id, rng=RealRng(), now=1_000, **more
    )


def test_a_new_directory_gets_what_kafka_gives_it(tmp_path):
    formatted = form(tmp_path / "a")
    text = (tmp_path / "a" / "meta.properties").read_text()
    assert re.search(r"^version=1$", text, re.M)
    assert re.search(r"^node.id=1$", text, re.M)
    assert f"cluster.id={formatted.cluster_id}" in text
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", formatted.cluster_id)
    contents = snapshot.read(DISK, str(tmp_path / "a" / "bootstrap.checkpoint"))
    (record,) = map(serde.decode, contents.values)
    assert (record.name, record.feature_level) == ("metadata.version", 30)
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()


def test_formatting_again_changes_nothing(tmp_path):
    first = form(tmp_path / "a", tmp_path / "b")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert form(tmp_path / "a", tmp_path / "b") == first
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_a_directory_that_comes_later_joins_the_cluster(tmp_path):
    first = form(tmp_path / "a")
    second = form(tmp_path / "a", tmp_path / "b")
    assert second.cluster_id == first.cluster_id
    assert second.directory_ids[str(tmp_path / "a")] == first.directory_ids[str(tmp_path / "a")]
    assert len(set(second.directory_ids.values())) == 2
    assert not (tmp_path / "b" / "bootstrap.checkpoint").exists()


def test_a_dynamic_quorum_has_its_voter_in_the_first_snapshot(tmp_path):
    formatted = form(tmp_path, voter_endpoint=Endpoint("CONTROLLER", "h", 9093, 0), cluster_id="given")
    assert formatted.cluster_id == "given"
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    contents = snapshot.read(DISK, str(path))
    assert contents.kraft_version == 1
    (voter,) = contents.voters
    assert (voter.id, voter.directory_id) == (1, formatted.directory_ids[str(tmp_path)])
    assert voter.endpoints == (("CONTROLLER", "h", 9093),)


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"node_id": 2}, "node 1"), ({"cluster_id": "other"}, "cluster"), ({"metadata_directory": "/x"}, "/x")],
)
def test_a_directory_of_somebody_else_is_refused(tmp_path, more, reason):
    form(tmp_path)
    with pytest.raises(Malformed, match=reason):
        form(tmp_path, **more)


def test_two_clusters_in_one_node_are_refused(tmp_path):
    form(tmp_path / "a")
    form(tmp_path / "b")
    with pytest.raises(Malformed, match="cluster"):
        form(tmp_path / "a", tmp_path / "b")


def test_a_copied_directory_is_refused(tmp_path):
    """Two directories with one id: somebody copied one; the metadata could not tell them apart."""
    formatted = form(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    with pytest.raises(Malformed, match=r"same directory\.id"):
        form(tmp_path / "a", tmp_path / "b")
    checkpoints.write_meta_properties(
        DISK, str(tmp_path / "b"), cluster_id=formatted.cluster_id, node_id=1, directory_id=Uuid(b"y" * 16)
    )
    assert len(form(tmp_path / "a", tmp_path / "b").directory_ids) == 2


def test_a_directory_id_that_is_none_is_refused(tmp_path):
    form(tmp_path)
    path = tmp_path / "meta.properties"
    path.write_text(re.sub(r"directory.id=.*", "directory.id=nonsense", path.read_text()))
    with pytest.raises(Malformed, match=r"directory\.id"):
        form(tmp_path)
