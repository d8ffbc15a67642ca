"""A metadata log, a bootstrap snapshot and a voters' snapshot that Apache Kafka 4.3.1 wrote: read, and written again
to the same bytes.  Made by: format --standalone, one topic with two partitions and an override, one client quota, a
clean stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.base.failures import Malformed
from stratalog.metadata import serde
from stratalog.metadata.image import ResourceType
from stratalog.metadata.loader import load
from stratalog.protocol.disk.metadata import BrokerRegistrationChangeRecord, PartitionRecord, RegisterBrokerRecord
from stratalog.raft import snapshot
from stratalog.records.batch import batches, read_header, records_of

GOLDEN = Path(__file__).parent / "golden"
LOG = (GOLDEN / "kafka-4.3.1-cluster-metadata.log").read_bytes()
BOOTSTRAP = (GOLDEN / "kafka-4.3.1-bootstrap.checkpoint").read_bytes()
VOTERS = (GOLDEN / "kafka-4.3.1-0-0.checkpoint").read_bytes()


def log_batches():
    for header in batches(LOG):
        if not header.is_control:
            yield header.last_offset, header.leader_epoch, [record.value for record in records_of(LOG, header)]


def test_kafkas_log_is_replayed():
    image = load(log_batches()).image
    assert image.offset == 29
    topic = image.topic("a")
    assert len(topic.partitions) == 2
    assert topic.partitions[0].eligible_leader_replicas == (1,)
    assert image.topic_config("a") == {"retention.ms": "1000000"}
    assert image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "1"}
    assert image.quotas == {(("client-id", "c1"),): {"producer_byte_rate": 1024.0}}
    assert image.features["metadata.version"] == 30
    assert image.brokers[1].fenced
    assert image.brokers[1].in_controlled_shutdown


def test_each_record_is_written_as_kafka_wrote_it():
    """Kafka writes BrokerRegistrationChange in the lowest version that holds it, we in the one of the metadata
    version: its version byte may differ, nothing else."""
    count = 0
    for _, _, values in log_batches():
        for value in values:
            record = serde.decode(value)
            ours = serde.encode(record, 30)
            if isinstance(record, BrokerRegistrationChangeRecord):
                assert (ours[:2], ours[3:]) == (value[:2], value[3:])
            else:
                assert ours == value, type(record).__name__
            count += 1
    assert count == 27


def test_kafkas_bootstrap_snapshot_is_read_and_written_to_the_same_bytes():
    contents = snapshot.decode(BOOTSTRAP, "x")
    assert next(serde.decode(value).name for value in contents.values) == "metadata.version"
    headers = list(batches(BOOTSTRAP))
    stamp = headers[0].base_timestamp
    ours = snapshot.encode(contents.values, now=stamp, last_timestamp=contents.last_timestamp, epoch=0)
    assert len(ours) == len(BOOTSTRAP)
    assert bytes(ours[: headers[0].end]) == BOOTSTRAP[: headers[0].end]
    for mine, theirs in zip(batches(ours), headers, strict=True):
        assert [r.value for r in records_of(ours, mine)] == [r.value for r in records_of(BOOTSTRAP, theirs)]
        assert mine._replace(crc=0, base_timestamp=0, max_timestamp=0) == theirs._replace(
            crc=0, base_timestamp=0, max_timestamp=0
        )


def test_kafkas_voters_are_read_and_written_to_the_same_bytes():
    contents = snapshot.decode(VOTERS, "x")
    assert contents.kraft_version == 1
    (voter,) = contents.voters
    assert voter.id == 1
    assert voter.endpoints == (("CONTROLLER", "127.0.0.1", 21711),)
    first = read_header(VOTERS, 0)
    ours = snapshot.encode(
        (),
        now=first.base_timestamp,
        last_timestamp=contents.last_timestamp,
        epoch=0,
        kraft_version=1,
        voters=contents.voters,
    )
    assert bytes(ours[: first.end]) == VOTERS[: first.end]


@pytest.mark.parametrize("size", range(0, len(BOOTSTRAP), 13))
def test_a_snapshot_that_is_cut_off_is_malformed(size):
    with pytest.raises(Malformed):
        snapshot.decode(BOOTSTRAP[:size], "x")


def test_a_snapshot_with_a_flipped_bit_is_malformed():
    for position in range(0, len(BOOTSTRAP), 7):
        damaged = bytearray(BOOTSTRAP)
        damaged[position] ^= 0x10
        header = next(h for h in batches(BOOTSTRAP) if h.position <= position < h.end)
        if (position - header.position < 16 and position - header.position >= 12) or position - header.position < 8:
            continue  # base offset and leader epoch are outside of the CRC, and nobody reads them here
        with pytest.raises(Malformed):
            snapshot.decode(bytes(damaged), "x")


@pytest.mark.parametrize(
    "value",
    [b"", b"\x01", b"\x02\x0c\x00", b"\x01\x7f\x00", b"\x01\x0c\x01", b"\x01\x0c\x00", b"\xff\xff\xff\xff\xff\xff"],
)
def test_a_value_that_is_no_record_is_malformed(value):
    with pytest.raises(Malformed):
        serde.decode(value)


@pytest.mark.parametrize(
    ("record", "metadata_version", "version"),
    [
        (RegisterBrokerRecord, 30, 4),
        (RegisterBrokerRecord, 29, 3),
        (RegisterBrokerRecord, 16, 2),
        (RegisterBrokerRecord, 7, 1),
        (PartitionRecord, 30, 2),
        (PartitionRecord, 22, 1),
        (PartitionRecord, 16, 0),
    ],
)
def test_the_metadata_version_decides_the_version_of_a_record(record, metadata_version, version):
    assert serde.version_of(record, metadata_version) == version
