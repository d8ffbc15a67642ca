"""The same log cleaned by Kafka 4.3.1's own cleaner and by ours has the same survivors: records, batch fields, retained
empty batches, delete horizons, segments, rows of aborted transactions.  Seed 001; LM-4, LM-6, LM-7, LM-8."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kafka_peer

sys.path.insert(0, str(Path(__file__).parents[1] / "logs"))

from logs_kit import NOW, SECRET, Kit, run

from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.cleaning import Cleaning
from stratalog.logs.cleaner.manager import facts_of
from stratalog.records import batch as batches
from stratalog.records import legacy
from stratalog.records.offset_map import OffsetMap

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing()),
]
DAY = 86_400_000
HERE = Path(__file__).parent


def kafkas(*cases: tuple[Path, int, int, int, int, int, int]) -> list[int]:
    """Clean these directories with Kafka: (directory, now, map bytes, delete retention, segment bytes, passes, first
    dirty offset) each; the end offsets."""
    done = subprocess.run(
        [
            kafka_peer.java(),
            "-cp",
            f"{kafka_peer.kafka_home()}/libs/*",
            str(HERE / "java" / "CleanLog.java"),
            *[str(value) for case in cases for value in case],
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line[:1].isdigit()]
    return [int(line.split()[0]) for line in lines]


def ours(directory: Path, now: int, map_bytes: int, retention: int, segment: int, passes: int, first: int) -> int:
    log = Kit(directory, clean=True, now=now, segment_bytes=segment, delete_retention_ms=retention).log
    uncleanable = log.active_segment.base_offset
    count = 0
    while first < uncleanable and (not passes or count < passes):
        target = choice.cleanable(facts_of(log), first, now)
        job = Cleaning(log, target, lambda: OffsetMap(map_bytes, secret=SECRET), now_ms=now)
        run(job)
        first = job.end_offset
        count += 1
    log.close()
    return first


def surviving(directory: Path) -> dict[str, object]:
    """Everything about the log that a cleaner decides."""
    found = []
    layout = []
    rows = []
    for path in sorted(directory.glob("*.log")):
        raw = path.read_bytes()
        layout.append(int(path.stem))
        for header in batches.batches(raw):
            assert batches.crc_is_valid(raw, header)
            fields = header._replace(position=0, crc=0, length=0 if header.codec else header.length)
            records = list(batches.records_of(raw, header))
            found.append((tuple(fields), records))
        index = path.with_suffix(".txnindex")
        if index.exists():
            data = index.read_bytes()
            rows += [data[at : at + 34].hex() for at in range(0, len(data), 34)]
    return {"batches": found, "segments": layout, "aborted": rows}


def offsets(survivors: dict[str, object]) -> set[int]:
    return {record.offset for _, records in survivors["batches"] for record in records}


def lasts(survivors: dict[str, object]) -> dict[bytes, tuple[int, bytes]]:
    """The last value of each key that has one; markers count by their offsets."""
    found = {}
    for fields, records in survivors["batches"]:
        for record in records:
            found[record.offset if fields[6] & 0x20 else record.key] = (record.offset, record.value)
    return {key: value for key, value in found.items() if value[1] is not None}


def workload(kit: Kit, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    open_txn: set[int] = set()
    for i in range(160):
        pairs = [
            (b"key-%d" % rng.randrange(40), None if rng.random() < 0.15 else rng.randbytes(rng.randrange(200)))
            for _ in range(rng.randrange(1, 8))
        ]
        headers = [(f"h{rng.randrange(3)}", rng.choice([None, b"", b"value"]))] if rng.random() < 0.3 else ()
        codec = rng.randrange(5) if kind in ("codecs", "stamped", "all") else 0
        timestamp = kit.now + rng.randrange(-5000, 5000) - (3 * DAY if i < 40 else 0)
        draw = rng.random()
        kit.now += kind == "stamped"
        if kind in ("plain", "codecs", "stamped") or draw < 0.3:
            kit.put(*pairs, codec=codec, headers=headers, timestamp=timestamp)
        elif draw < 0.5:
            kit.put(*pairs, pid=100 + rng.randrange(4), codec=codec, headers=headers, timestamp=timestamp)
        elif draw < 0.85:
            pid = rng.randrange(5)
            kit.put(*pairs, pid=pid, txn=True, codec=codec, headers=headers, timestamp=timestamp)
            open_txn.add(pid)
        elif open_txn:
            pid = rng.choice(sorted(open_txn))
            open_txn.discard(pid)
            kit.marker(pid, commit=rng.random() < 0.5, timestamp=timestamp)
    for pid in sorted(open_txn):
        kit.marker(pid, commit=rng.random() < 0.5)
    kit.roll()
    kit.put((b"active", b"1"))


def test_the_same_log_has_the_same_survivors(tmp_path: Path) -> None:
    cases = []
    names = []
    loose = set()
    for kind in ("plain", "codecs", "stamped", "producers", "all"):
        for seed, (map_slots, segment) in enumerate(((4000, 6000), (50, 6000), (30, 1 << 20))):
            source = tmp_path / f"{kind}-{seed}-source" / "t-0"
            stamp = "LogAppendTime" if kind == "stamped" else "CreateTime"
            kit = Kit(source, segment_bytes=6000, message_timestamp_type=stamp)
            workload(kit, seed, kind)
            kit.log.close()
            names.append(f"{kind} seed {seed}, {map_slots} slots")
            if kind in ("producers", "all") and map_slots < 1000:
                loose.add(names[-1])
            cases.append((source, map_slots * 24, segment))
    # Four rounds on each pair of copies: cleaned, cleaned again at once, after the horizon, and once more.
    homes = []
    for source, map_bytes, segment in cases:
        pair = []
        for who in ("kafka", "ours"):
            home = source.parents[1] / f"{source.parent.name}-{who}" / "t-0"
            shutil.copytree(source, home)
            pair.append(home)
        homes.append((pair[0], pair[1], map_bytes, segment))
    for now, passes in ((NOW + 1000, 1), (NOW + 2000, 0), (NOW + 2000 + DAY, 0), (NOW + 3000 + 2 * DAY, 0)):
        ends = kafkas(*[(kafka, now, slots, DAY, segment, passes, 0) for kafka, _, slots, segment in homes])
        for name, end, (kafka, home, slots, segment) in zip(names, ends, homes, strict=True):
            assert ours(home, now, slots, DAY, segment, passes, 0) == end, (name, now)
            theirs, mine = surviving(kafka), surviving(home)
            if passes == 0 and name in loose:
                # From a first dirty offset in the middle of a segment, Kafka takes batches of committed transactions
                # for those of an earlier aborted one of the same producer, and so may leave older records of a key.
                assert lasts(theirs) == lasts(mine), (name, now - NOW)
                assert offsets(mine) <= offsets(theirs), (name, now - NOW)
                continue
            for other, one in zip(theirs["batches"], mine["batches"], strict=False):
                assert other == one, (name, now - NOW)
            assert theirs == mine, (name, now - NOW)


def test_old_formats_have_the_same_survivors(tmp_path: Path) -> None:
    pairs = []
    for magic in (0, 1):
        for codec in range(4):
            source = tmp_path / f"m{magic}c{codec}" / "t-0"
            kit = Kit(source, segment_bytes=900)
            rng = random.Random(magic * 10 + codec)
            offset = 0
            for _ in range(40):
                records = [
                    batches.Record(offset + i, NOW, b"k%d" % rng.randrange(12), rng.choice([None, b"v" * 20]))
                    for i in range(rng.randrange(1, 5))
                ]
                if codec == 0:
                    data = b"".join(bytes(legacy.build_message_set([r], magic)) for r in records)
                else:
                    data = legacy.build_message_set(records, magic, codec=codec)
                kit.log.append_as_follower(bytearray(data), 0, NOW)
                offset += len(records)
            kit.log.update_high_watermark(offset)
            kit.roll()
            kit.put((b"active", b"1"))
            kit.log.close()
            home = tmp_path / f"m{magic}c{codec}-ours" / "t-0"
            shutil.copytree(source, home)
            pairs.append((source, home))
    ends = kafkas(*[(kafka, NOW, 24 * 1000, DAY, 900, 0, 0) for kafka, _ in pairs])
    for (kafka, home), end in zip(pairs, ends, strict=True):
        assert ours(home, NOW, 24 * 1000, DAY, 900, 0, 0) == end
        theirs, mine = surviving(kafka), surviving(home)
        flat = [
            [(r.offset, r.timestamp, r.key, r.value) for _, records in side["batches"] for r in records]
            for side in (theirs, mine)
        ]
        assert flat[0] == flat[1], kafka.parent.name
        assert theirs["segments"] == mine["segments"]
