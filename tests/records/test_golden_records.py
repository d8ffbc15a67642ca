"""Golden batches: what Kafka's own builders wrote reads as Kafka's own readers read it, and the other way round.

`tests/golden/records` is written by `tools/golden_records/record.py`.  Issue 3, proof.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import zlib
from pathlib import Path

import pytest

from stratalog.records import batch, control, convert, legacy
from stratalog.records.batch import Record
from stratalog.records.compression import NAMES

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "records"
FILES = sorted(path.stem for path in GOLDEN.glob("*.bin"))


def _hex(data):
    if data is None:
        return None
    data = bytes(data)
    return data.hex() if len(data) <= 64 else f"{len(data)} bytes, crc32 {zlib.crc32(data)}"


def describe(data):
    """The same description as `GoldenRecords.java` gives, by our readers."""
    found = []
    for header in batch.batches(data):
        batch.check(data, header)
        records = list(batch.records_of(data, header))
        found.append(
            {
                "magic": header.magic,
                "size": header.size,
                "codec": NAMES[header.codec],
                "first_offset": header.base_offset if header.magic == 2 else legacy.first_offset(data, header),
                "last_offset": header.last_offset,
                "timestamp_type": header.timestamp_type,
                "max_timestamp": header.max_timestamp,
                "leader_epoch": header.leader_epoch,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "last_sequence": header.last_sequence,
                "transactional": header.is_transactional,
                "control": header.is_control,
                "delete_horizon_ms": header.delete_horizon_ms,
                "records": [
                    [
                        record.offset,
                        record.timestamp,
                        record.sequence,
                        _hex(record.key),
                        _hex(record.value),
                        [[_hex(name.encode()), _hex(value)] for name, value in record.headers],
                    ]
                    for record in records
                ],
            }
        )
    return found


def test_the_golden_files_cover_every_codec_and_magic():
    for magic, codecs in ((0, NAMES[:4]), (1, NAMES[:4]), (2, NAMES)):
        for codec in codecs:
            assert {f"v{magic}-{codec}", f"v{magic}-{codec}-large"} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_what_kafka_wrote_reads_as_kafka_reads_it(name):
    data = (GOLDEN / f"{name}.bin").read_bytes()
    assert batch.complete_bytes(data) == len(data)
    assert describe(data) == json.loads((GOLDEN / f"{name}.json").read_text())


PLAIN = [name for name in FILES if name.startswith("v2-") and name.split("-")[1] not in NAMES[1:]]


@pytest.mark.parametrize("name", PLAIN)
def test_an_uncompressed_batch_is_rebuilt_to_the_byte(name):
    """Our builder writes the very bytes of Kafka's for the same records."""
    data = (GOLDEN / f"{name}.bin").read_bytes()
    header = batch.read_header(data)
    if header.count == 0:
        assert batch.empty_batch(header) == data
        return
    builder = batch.BatchBuilder(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
    )
    stamped = header.timestamp_type == batch.LOG_APPEND_TIME
    if stamped:  # the records keep the times that they were made with under the stamp
        cleared = bytearray(data)
        batch.patch(cleared, 0, timestamp_type=batch.CREATE_TIME)
        records = list(batch.records_of(cleared, batch.read_header(cleared)))
    else:
        records = list(batch.records_of(data, header))
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers, offset=record.offset)
    assert builder.build(max_timestamp=header.max_timestamp if stamped else None) == data


def test_the_markers_of_transactions_read_back():
    for name, committed, epoch in (("v2-commit", True, 12), ("v2-abort", False, 13)):
        data = (GOLDEN / f"{name}.bin").read_bytes()
        header = batch.read_header(data)
        assert header.is_control
        assert header.is_transactional
        assert control.marker_of(data, header) == (committed, epoch)
        ours = control.build_marker(
            committed=committed,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=epoch,
            timestamp=header.max_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert ours == data
    data = (GOLDEN / "v2-leader-change.bin").read_bytes()
    assert control.marker_of(data, batch.read_header(data)) is None


# --- ours, read by Kafka --------------------------------------------------------------------------------------------
def _recorder():
    spec = importlib.util.spec_from_file_location("golden_records_record", ROOT / "tools/golden_records/record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["golden_records_record"] = module
    return module


def _ours():
    headers = (("trace", b"abc"), ("", b""), ("nothing", None), ("grüß", b"\x00\xff"))
    small = [
        Record(500, 1_700_000_000_000, b"k", b"v"),
        Record(501, 1_700_000_000_500, None, b"x" * 300, headers),
        Record(502, 1_600_000_000_000, b"", None),
        Record(507, 1_800_000_000_000, None, None, headers),
    ]
    large = [Record(10_000 + 2 * i, 1_700_000_000_000 + i, b"%d" % i, (b"word%d " % (i % 13)) * 700) for i in range(80)]
    for codec in range(5):
        name = NAMES[codec]
        for label, records in (("small", small), ("large", large)):
            yield f"v2-{name}-{label}", batch.build_batch(records, codec=codec, leader_epoch=7)
            if codec < 4:
                for magic in (0, 1):
                    message_set = legacy.build_message_set(records, magic, codec=codec)
                    yield f"v{magic}-{name}-{label}", message_set
                    v2 = batch.build_batch(records, codec=codec)
                    yield f"v{magic}-{name}-{label}-down", convert.down_convert(v2, magic)
        stamped = batch.build_batch(small, codec=codec)
        batch.patch(stamped, 0, base_offset=900, leader_epoch=3, max_timestamp=1_900_000_000_000, timestamp_type=1)
        yield f"v2-{name}-stamped", stamped
        if codec < 4:
            yield (
                f"v1-{name}-stamped",
                legacy.build_message_set(small, 1, codec=codec, timestamp_type=1, log_append_time=1_900_000_000_000),
            )
        for level in (1, 9):
            if codec in (1, 3, 4):
                yield f"v2-{name}-level-{level}", batch.build_batch(large, codec=codec, level=level)
    yield (
        "v2-producer",
        batch.build_batch(small, producer_id=5, producer_epoch=2, base_sequence=2**31 - 2, transactional=True),
    )
    odd = batch.build_batch(
        [Record(i, 1_700_000_000_000, b"k", b"v", ((key, b"x"),)) for i, key in enumerate(("12345", "678"))]
    )
    odd[odd.index(b"12345") : odd.index(b"12345") + 5] = b"\xe2\x82a\xff\xc0"  # no text, as librdkafka lets it through
    odd[odd.index(b"678") : odd.index(b"678") + 3] = b"\xf0\x9f\x98"  # cut off in the middle of a letter
    odd[batch.CRC_AT : batch.CRC_AT + 4] = batch.crc32c(bytes(odd[batch.ATTRIBUTES_AT :])).to_bytes(4, "big")
    yield "v2-header-keys", odd
    yield "v2-horizon", batch.build_batch(small, delete_horizon_ms=1_750_000_000_000)
    yield (
        "v2-marker",
        control.build_marker(
            committed=True, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp=1_700_000_000_000
        ),
    )
    yield "v2-empty", batch.empty_batch(batch.read_header(batch.build_batch(small, producer_id=5, base_sequence=4)))


@pytest.mark.java
def test_what_we_write_reads_the_same_in_kafka(tmp_path):
    recorder = _recorder()
    if recorder.kafka_home() is None:
        pytest.skip(recorder.why_missing())
    expected = {}
    for name, data in _ours():
        (tmp_path / f"{name}.bin").write_bytes(data)
        expected[name] = describe(bytes(data))
    found = recorder.read(tmp_path)
    assert len(found) == len(expected) > 50
    for name, batches in found.items():
        assert batches == expected[name], name
