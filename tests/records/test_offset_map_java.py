"""The rewrite against Apache Kafka's own filter: the same batches to the byte (issue 6, "the same survivors")."""

import random
import struct
import subprocess
from pathlib import Path

import pytest

import kafka_peer
from stratalog.records import kernels, plain
from stratalog.records.arrow import payloads_of
from stratalog.records.batch import BatchBuilder, batches, check, records_of
from stratalog.records.control import build_marker
from stratalog.records.kernels import CONTROL, DISCARD, EMPTY_TRANSACTION, OK, RETAIN_EMPTY, BatchTable, FilterRules
from stratalog.records.offset_map import OffsetMap, rewrite_batch

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]

compiled = kernels.load_kernels()
DAY = 86_400_000
NOW = 1_700_000_000_000
CASES = 400


def make_log(rng, codec):
    """A few batches as clients, coordinators and earlier cleanings leave them."""
    out = b""
    base = rng.randrange(1000)
    for _ in range(rng.randint(1, 6)):
        producer = rng.choice((-1, 7, 8))
        if producer >= 0 and rng.random() < 0.2:
            out += build_marker(
                committed=rng.random() < 0.5,
                producer_id=producer,
                producer_epoch=1,
                coordinator_epoch=2,
                base_offset=base,
                timestamp=NOW - rng.randrange(1000),
            )
            base += 1
            continue
        horizon = rng.choice((None, None, None, NOW - 5, NOW + 5))
        builder = BatchBuilder(
            base_offset=base,
            leader_epoch=rng.randrange(5),
            codec=codec,
            timestamp_type=rng.randint(0, 1),
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 1,
            base_sequence=-1 if producer < 0 else base,
            transactional=producer >= 0 and rng.random() < 0.5,
            delete_horizon_ms=horizon,
        )
        when = NOW - rng.randrange(10_000)
        for _ in range(rng.randint(1, 8)):
            key = rng.choice((None, b"a", b"b", b"c", b"d" * 30))
            value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 5, 60, 200)))
            headers = [("h", None), ("x" * 70, b"y")][: rng.randrange(3)]
            builder.append(when, key, value, headers)
            when += rng.choice((0, 0, 1, 70, -3, 20_000))
        out += bytes(builder.build(last_offset=builder.next_offset - 1 + rng.choice((0, 0, 2))))
        base = builder.next_offset + 2
    return out


def kafka_filter(tmp_path, cases):
    """What Kafka writes for each case."""
    source = tmp_path / "cases"
    target = tmp_path / "filtered"
    data = [struct.pack(">i", len(cases))]
    for log, verdicts, kept in cases:
        data.append(struct.pack(">i", len(log)) + log + struct.pack(">qq", NOW, DAY))
        data.append(struct.pack(">i", len(verdicts)) + verdicts)
        data.append(struct.pack(f">i{len(kept)}q", len(kept), *kept))
    source.write_bytes(b"".join(data))
    done = subprocess.run(
        [
            kafka_peer.java(),
            "-cp",
            f"{kafka_peer.kafka_home()}/libs/*",
            str(Path(__file__).parent / "java" / "FilterLog.java"),
            str(source),
            str(target),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer = target.read_bytes()
    logs = []
    position = 0
    while position < len(answer):
        size = int.from_bytes(answer[position : position + 4], "big")
        logs.append(answer[position + 4 : position + 4 + size])
        position += 4 + size
    return logs


def prepare(rng, codec):
    """(log, its table, the map, the rules, verdicts, the offsets that the cleaner's rule keeps)."""
    log = make_log(rng, codec)
    table = BatchTable(64)
    assert compiled.scan_batches(log, table) == OK
    verdicts = bytearray(
        rng.choice((0, 0, 0, DISCARD, RETAIN_EMPTY, RETAIN_EMPTY | DISCARD)) for _ in range(len(table))
    )
    for index, attributes in enumerate(table.column(kernels.ATTRIBUTES)):
        if attributes & CONTROL:
            verdicts[index] = rng.choice((0, EMPTY_TRANSACTION, RETAIN_EMPTY, DISCARD))
    offset_map = OffsetMap(24 * 100, secret=rng.randbytes(16), twin=compiled)
    assert offset_map.put_run(log, table, verdicts=verdicts, payloads=payloads_of(log, table))[0] == OK
    latest = rng.choice((offset_map.latest_offset, table.column(kernels.LAST_OFFSET)[0]))
    bitmap = offset_map.survivors(0, latest + 1) if rng.random() < 0.5 else None
    rules = FilterRules(latest, NOW, DAY, bitmap, 0, latest + 1)
    kept = []
    for header, verdict in zip(batches(log), verdicts, strict=True):
        for record in records_of(log, header):
            keep = record.offset > latest or header.is_control
            if not keep and record.key is not None:
                horizon = header.delete_horizon_ms
                keep = record.offset >= offset_map.get(record.key) and (
                    record.value is not None or horizon is None or horizon > NOW
                )
            if keep and not verdict & DISCARD:
                kept.append(record.offset)
    return log, table, offset_map, rules, bytes(verdicts), kept


def test_the_rewrite_is_kafkas_to_the_byte(tmp_path):
    rng = random.Random(20)
    prepared = [prepare(rng, 0) for _ in range(CASES)]
    theirs = kafka_filter(tmp_path, [(log, verdicts, kept) for log, _, _, _, verdicts, kept in prepared])
    assert len(theirs) == CASES
    rewritten = 0
    for (log, table, offset_map, rules, verdicts, _), expected in zip(prepared, theirs, strict=True):
        output = bytearray(1 << 16)
        run = offset_map.filter_run(log, table, rules, verdicts, output)
        assert run.code == OK
        assert bytes(output[: run.output_size]) == expected
        again = plain.filter_run(log, table, 0, verdicts, None, rules, output, {}) if rules.bitmap else run
        assert again.code == OK
        rewritten += sum(run.written[7::8])
    assert rewritten > CASES  # not only copies


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_have_kafkas_survivors(tmp_path, codec):
    """Libraries compress differently, so the batches are compared opened: every header field but size and CRC, and
    every record."""
    rng = random.Random(codec)
    prepared = [prepare(rng, codec) for _ in range(60)]
    theirs = kafka_filter(tmp_path, [(log, verdicts, kept) for log, _, _, _, verdicts, kept in prepared])
    for (log, table, offset_map, rules, verdicts, _), expected in zip(prepared, theirs, strict=True):
        ours = b"".join(
            bytes(rewrite_batch(log, table, index, rules, verdicts[index], offset_map)[1])
            for index in range(len(table))
        )
        assert opened(ours) == opened(expected)


def opened(log):
    found = []
    for header in batches(log):
        check(log, header)
        found.append((header._replace(position=0, length=0, crc=0), list(records_of(log, header))))
    return found
