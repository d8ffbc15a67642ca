"""The audit on Spark finds what `stratalog verify` finds, in the same words and the same order."""

import shutil

import pytest
from files_kit import DAMAGES, write_data_directory

from stratalog.server.disk import RealDisk
from stratalog.spark import verify
from stratalog.spark.errors import NotThere
from stratalog.storage.audit import Summary, audit

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return write_data_directory(tmp_path_factory.mktemp("healthy"))


def same(spark, path, **options):
    summary = Summary()
    compacted = False if options.get("no_holes") else None
    wanted = list(audit(RealDisk(), str(path), compacted=compacted, summary=summary))
    report = verify(path, spark, **options)
    assert report.findings == wanted
    assert report.summary == summary
    return report


def test_every_damage_is_found_as_the_command_finds_it(spark, healthy, tmp_path) -> None:
    """One data directory with a partition for each way to damage one, and a healthy one."""
    data = shutil.copytree(healthy, tmp_path / "data")
    expected = {}
    for number, damage in enumerate(DAMAGES, 1):
        name = f"orders-{number}"
        shutil.copytree(healthy / "orders-0", data / name)
        expected[name] = damage(data / name)
    report = same(spark, data)
    for name, kind in expected.items():
        kinds = {finding.kind for finding in report.findings if f"/{name}/" in f"{finding}/" or name in str(finding)}
        assert kind in kinds, f"{name}: {kinds}"


def test_a_healthy_directory_and_a_single_partition(spark, healthy) -> None:
    report = same(spark, healthy)
    assert report.findings == [] and report.summary.partitions == 1 and report.summary.segments > 3
    assert same(spark, healthy / "orders-0").findings == []
    same(spark, healthy / "orders-0", no_holes=True)
    assert report.as_dict()["batches"] == report.summary.batches


def test_what_is_between_the_partitions_is_found_too(spark, healthy, tmp_path) -> None:
    """A checkpoint beyond the log's end, a damaged checkpoint, an unknown file."""
    data = shutil.copytree(healthy, tmp_path / "data")
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 999999\n")
    (data / "log-start-offset-checkpoint").write_text("0\nx\n")
    assert len(same(spark, data).findings) >= 2


def test_no_directory_is_one_line(spark, tmp_path) -> None:
    with pytest.raises(NotThere, match="there is no such directory"):
        verify(tmp_path / "none", spark)
