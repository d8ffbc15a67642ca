"""`stratalog dump` and `stratalog verify` on directories of Apache Kafka: healthy, damaged, killed, in use."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stratalog.server.disk import RealDisk
from stratalog.storage.audit import Summary, audit
from stratalog.storage.dump import dump

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import files_kit

import kafka_peer

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=f"no Kafka: {kafka_peer.why_missing()}"),
]
SETTINGS = (
    "log.segment.bytes=1048576",
    "log.index.interval.bytes=4096",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
)


@pytest.fixture(scope="module")
def kafka_directory(tmp_path_factory):
    """Stopped cleanly, with segments, an idempotent producer, transactions of both kinds and a group; and what an audit
    of the running broker's directory said."""
    place = tmp_path_factory.mktemp("kafka-files")
    home = kafka_peer.kafka_home()
    with kafka_peer.kafka_broker(place, *SETTINGS) as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        for topic in ("plain", "txn"):
            kafka_peer.tool("kafka-topics", *at, "--create", "--topic", topic, "--partitions", "1")
        done = kafka_peer.tool(
            "kafka-producer-perf-test",
            *("--topic", "plain", "--num-records", "3000", "--record-size", "800", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "enable.idempotence=true"),
        )
        assert done.returncode == 0, done.stderr
        done = kafka_peer.run_class(
            "TxnAbort", broker.bootstrap, "txn", "9", class_path=f"{home}/extra/classes", timeout_s=90
        )
        assert done.returncode == 0, done.stderr
        done = kafka_peer.tool(
            "kafka-console-consumer",
            *(*at, "--topic", "plain", "--group", "g", "--from-beginning", "--max-messages", "10"),
        )
        assert done.returncode == 0, done.stderr
        running = [str(finding) for finding in audit(RealDisk(), str(broker.log_dir))]
    return broker.log_dir, running


def test_nothing_to_say_of_what_kafka_wrote(kafka_directory):
    directory, running = kafka_directory
    assert running == []
    summary = Summary()
    assert [str(finding) for finding in audit(RealDisk(), str(directory), summary=summary)] == []
    assert summary.partitions >= 7 and summary.segments >= 9


def test_all_of_kafkas_files_are_dumped(kafka_directory):
    """No file is unknown, no record of an internal topic is a riddle."""
    directory, _ = kafka_directory
    counts = Counter()
    types = set()
    for row in dump(RealDisk(), str(directory)):
        assert row["kind"] != "problem", row
        assert not (row["kind"] == "file" and row["type"] == "unknown"), row
        assert not str(row.get("type", "")).startswith("unknown"), row
        counts[row["kind"]] += 1
        types.add(row.get("type") or row.get("control"))
    assert {"TopicRecord", "PartitionRecord", "FeatureLevelRecord", "RegisterBrokerRecord"} <= types
    assert {"OffsetCommit", "GroupMetadata", "TransactionLog", "snapshotHeader", "abort", "commit"} <= types
    assert counts["aborted-transaction"] == 4
    # A time index gets an entry only for a later millisecond: a fast machine writes many batches in one.
    assert counts["producer"] > 0 and counts["index-entry"] > 50 and counts["time-index-entry"] > 5


def test_our_dump_says_what_kafkas_dump_says(kafka_directory):
    """Batch by batch: offsets, positions, sizes, CRCs, producers."""
    directory, _ = kafka_directory
    for path in sorted((directory / "txn-0").glob("*.log")):
        theirs = kafka_peer.tool("kafka-dump-log", "--files", path).stdout
        expected = []
        for line in theirs.splitlines():
            if line.startswith("baseOffset:"):
                words = line.split()
                fields = dict(zip((word.rstrip(":") for word in words[::2]), words[1::2], strict=False))
                expected.append([int(fields[name]) for name in ("baseOffset", "lastOffset", "position", "size", "crc")])
        ours = [
            [row[name] for name in ("baseOffset", "lastOffset", "position", "size", "crc")]
            for row in dump(RealDisk(), str(path))
            if row["kind"] == "batch"
        ]
        assert ours == expected and len(ours) > 10


@pytest.mark.parametrize("damage", files_kit.DAMAGES, ids=lambda damage: damage.__name__)
def test_each_damage_to_kafkas_files_is_found(kafka_directory, tmp_path, damage):
    """The table in which its own verifier says nothing, or exits with 0, for most."""
    directory, _ = kafka_directory
    source = directory / ("txn-0" if "transaction" in damage.__name__ else "plain-0")
    partition = shutil.copytree(source, tmp_path / source.name)
    expected = damage(partition)
    assert expected in {finding.kind for finding in audit(RealDisk(), str(partition))}


def test_a_directory_that_was_killed_is_only_unfinished(kafka_directory, tmp_path):
    """Killed with -9 in mid-write: whatever is found is what the next start repairs by itself."""
    directory, _ = kafka_directory
    shutil.copytree(directory, tmp_path / "log")
    broker = kafka_peer.start_broker(tmp_path, *SETTINGS)
    command = [
        str(kafka_peer.kafka_home() / "bin" / "kafka-producer-perf-test"),
        *("--topic", "plain", "--num-records", "100000", "--record-size", "800", "--throughput", "4000"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as producer:
        assert producer.stdout is not None
        producer.stdout.readline()  # the first report comes after some seconds
        kafka_peer.stop_broker(broker, kill=True)
        producer.kill()
    found = list(audit(RealDisk(), str(broker.log_dir)))
    assert {finding.kind for finding in found} <= {"torn-tail", "left-over", "time-index", "epochs"}, found
