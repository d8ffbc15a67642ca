"""Our validator beside Kafka's own `LogValidator` on the same payloads: both refuse, naming the same records, or both
write the same ones.  Seed 002."""

from __future__ import annotations

import importlib.util
import itertools
import struct
from pathlib import Path

import pytest

from stratalog.base.failures import ApiError, Malformed
from stratalog.records import batch, legacy
from stratalog.records.batch import Record
from stratalog.records.compression import NAMES, compress
from stratalog.records.errors import InvalidBatch
from stratalog.records.validate import analyze, validate_and_assign

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_700_000_000_000
HEADERS = (("h", b"x"),)


def _recorder():
    spec = importlib.util.spec_from_file_location("golden_records_peer", ROOT / "tools/golden_records/record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDS = {
    "good": [Record(0, NOW, b"a", b"1", HEADERS), Record(1, NOW - 5, b"b", None), Record(2, NOW - 1, b"", b"")],
    "keyless": [Record(0, NOW, b"a", b"1"), Record(1, NOW, None, b"2"), Record(2, NOW, None, b"3")],
    "late": [Record(0, NOW, b"a", b"1"), Record(1, NOW + 1_001, b"a", b"2"), Record(2, NOW + 1_000, None, b"2")],
    "early": [Record(0, NOW - 2_001, b"a", b"1"), Record(1, NOW - 2_000, b"a", b"2")],
    "timeless": [Record(0, -1, b"a", b"1"), Record(1, -1, b"a", b"2")],
}


def _payloads():
    for (label, records), codec in itertools.product(RECORDS.items(), range(5)):
        name = NAMES[codec]
        yield f"v2-{name}-{label}", batch.build_batch(records, codec=codec)
        if codec < 4:
            plain = [Record(r.offset, r.timestamp, r.key, r.value) for r in records]
            for magic in (0, 1):
                yield f"v{magic}-{name}-{label}", legacy.build_message_set(plain, magic, codec=codec)
    good = RECORDS["good"]
    for codec in (0, 1, 4):
        name = NAMES[codec]
        producer = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 2**31 - 2}
        yield f"v2-{name}-producer", batch.build_batch(good, codec=codec, transactional=True, **producer)
        yield f"v2-{name}-stamped", batch.build_batch(good, codec=codec, timestamp_type=1)
        yield f"v2-{name}-control", batch.build_batch(good[:1], codec=codec, control=True)
        yield f"v2-{name}-no-sequence", batch.build_batch(good, codec=codec, producer_id=9)
        lie = batch.build_batch(good, codec=codec)
        batch.patch(lie, 0, max_timestamp=NOW + 900)
        yield f"v2-{name}-max-timestamp", lie
        for field, at, value in (
            ("count", batch.COUNT_AT, 4),
            ("delta", batch.LAST_OFFSET_DELTA_AT, 5),
            ("no", batch.COUNT_AT, 0),
        ):
            wrong = batch.build_batch(good, codec=codec)
            struct.pack_into(">i", wrong, at, value)
            yield f"v2-{name}-{field}", _sealed(wrong)
        both = batch.build_batch(good, codec=codec)
        struct.pack_into(">i", both, batch.COUNT_AT, 4)
        struct.pack_into(">i", both, batch.LAST_OFFSET_DELTA_AT, 3)
        yield f"v2-{name}-one-short", _sealed(both)
    body = b"".join(batch.encode_record(delta, delta, b"k", b"v") for delta in (0, 0, 1))
    yield (
        "v2-gzip-deltas",
        batch.assemble(
            compress(1, body),
            base_offset=0,
            last_offset_delta=2,
            count=3,
            attributes=1,
            base_timestamp=NOW,
            max_timestamp=NOW + 1,
        ),
    )
    zeros = b"".join(legacy.encode_entry(1, 0, NOW, b"k", b"v") for _ in range(2))
    for magic, offset in itertools.product((0, 1), (-1, 99)):
        inner = b"".join(legacy.encode_entry(magic, at, NOW, b"k", b"v") for at in range(2))
        wrapper = legacy.encode_entry(magic, offset, NOW, None, compress(1, inner), codec=1)
        yield f"v{magic}-gzip-wrapper{offset}", wrapper
    yield "v1-gzip-zeros", legacy.encode_entry(1, 1, NOW, None, compress(1, zeros), codec=1)


def _sealed(data):
    struct.pack_into(">I", data, batch.CRC_AT, batch.crc32c(bytes(data[batch.ATTRIBUTES_AT :])))
    return data


def _rules():
    for target, kind in itertools.product((None, *range(5)), (0, 1)):
        yield {
            "codec": target,
            "timestamp_type": kind,
            "compacted": False,
            "before_max_ms": 2_000,
            "after_max_ms": 1_000,
        }
    for kind in (0, 1):
        yield {
            "codec": None,
            "timestamp_type": kind,
            "compacted": True,
            "before_max_ms": 2**63 - 1,
            "after_max_ms": 1_000,
        }


def _describe(data):
    """Everything but sizes, CRCs and record deltas, which depend on the compressor."""
    found = []
    for header in batch.batches(data):
        batch.check(data, header)
        fields = [getattr(header, name) for name in (
            "magic", "base_offset", "last_offset", "leader_epoch", "attributes", "max_timestamp", "producer_id",
            "producer_epoch", "base_sequence", "count")]  # fmt: skip
        found.append((fields, list(batch.records_of(data, header))))
    return found


@pytest.mark.java
def test_both_validators_write_the_same_and_refuse_the_same(tmp_path):
    """RC-10."""
    recorder = _recorder()
    if recorder.kafka_home() is None:
        pytest.skip(recorder.why_missing())
    cases = {}
    lines = []
    for (label, payload), (number, rules) in itertools.product(_payloads(), enumerate(_rules())):
        name = f"{label}-{number}"
        cases[name] = (payload, rules)
        (tmp_path / f"{name}.bin").write_bytes(payload)
        codec = "producer" if rules["codec"] is None else NAMES[rules["codec"]]
        words = (name, codec, rules["timestamp_type"], rules["before_max_ms"], rules["after_max_ms"])
        lines.append(" ".join(map(str, (*words, int(rules["compacted"]), 5_000, 7, NOW))))
    (tmp_path / "cases.txt").write_text("\n".join(lines))
    answers = recorder.validate(tmp_path)
    assert len(answers) == len(cases) > 800
    refused = 0
    for name, (payload, rules) in cases.items():
        answer = answers[name]
        try:
            headers = analyze(payload, produce_version=2 if payload[16] < 2 else 7)
            done = validate_and_assign(
                bytearray(payload),
                base_offset=5_000,
                now_ms=NOW,
                leader_epoch=7,
                headers=headers,
                inspect=True,
                **rules,
            )
        except (Malformed, ApiError) as error:
            refused += 1
            if "deltas" in name and rules["codec"] not in (None, 1):
                continue  # stricter: Kafka numbers such records anew if it recompresses, and fails over them if not
            assert "error" in answer, (name, rules, error)
            if "rows" in answer:
                assert isinstance(error, InvalidBatch)
                assert error.code.name == answer["error"], (name, rules)
                rows = [row.batch_index for row in error.record_errors]
                # Kafka counts the entries of an uncompressed message set from 0 each, and stops at the first bad one;
                # the answers that old producers get have no place for it anyway.
                if not name.startswith(("v0-none", "v1-none")):
                    assert rows == answer["rows"], (name, rules)
        else:
            assert "error" not in answer, (name, rules, answer)
            assert done.max_timestamp == answer["max_timestamp"], (name, rules)
            theirs = (tmp_path / f"{name}.out").read_bytes()
            assert _describe(done.buffers[0]) == _describe(theirs), (name, rules)
            if not done.converted:
                assert done.buffers[0] == theirs, (name, rules)
    assert refused > 100


LIES = ("max-timestamp", "one-short", "deltas")
"""Payloads whose headers say something else than their records."""


def _outcome(payload, rules, inspect):
    data = bytearray(payload)
    try:
        headers = analyze(data, produce_version=2 if data[16] < 2 else 7)
        done = validate_and_assign(
            data, base_offset=5_000, now_ms=NOW, leader_epoch=7, headers=headers, inspect=inspect, **rules
        )
    except InvalidBatch as error:
        return error.code, [row.batch_index for row in error.record_errors]
    except Malformed as error:
        return str(error)
    return done._replace(buffers=[bytes(view) for view in done.buffers])


def test_an_honest_header_spares_the_look_at_the_records():
    """The short way (headers only) and the long way end the same for all but the liars."""
    compared = 0
    for (label, payload), rules in itertools.product(_payloads(), _rules()):
        if not label.endswith(LIES):
            assert _outcome(payload, rules, False) == _outcome(payload, rules, True), (label, rules)
            compared += 1
    assert compared > 700
