"""Apache Kafka reads what we write, and we read what it writes.

One call of `kafka-dump-log` over every kind of file; its broker on a copy of our directory with recovery forced; its
own directory, killed in mid-write, opened here.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stratalog.base.failures import ApiError
from stratalog.base.types import Uuid
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.server.disk import RealDisk
from stratalog.storage import checkpoints, layout
from stratalog.storage.audit import audit
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation, Log, Origin
from stratalog.storage.producers import read_snapshot

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import kafka_peer

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=f"no Kafka: {kafka_peer.why_missing()}"),
]
NOW = 1_750_000_000_000
CONFIG = LogConfig(segment_bytes=40_000, index_interval_bytes=1000, segment_index_bytes=1 << 16)
BAD = re.compile(r"isvalid: false|invalid bytes|Mismatch|mismatch|out of order|corrupt|Corrupt|Exception")


def batch(values, *, pid=-1, epoch=-1, sequence=-1, txn=False, codec=0, timestamp=NOW):
    builder = batches.BatchBuilder(
        codec=codec, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=txn
    )
    for i, value in enumerate(values):
        builder.append(timestamp + i, b"k%d" % i, value, (("h", b"x"),))
    return builder.build()


def append(log, raw, **options):
    info = log.append_as_leader(memoryview(raw), options.pop("leader", 0), NOW, **options)
    log.maybe_increment_high_watermark(log.log_end)
    return info


def transaction(log, pid, epoch, sequence, values, *, commit, leader):
    guard = log.start_verification(pid, sequence, epoch, True, NOW)
    append(log, batch(values, pid=pid, epoch=epoch, sequence=sequence, txn=True), guard=guard, leader=leader)
    marker = control.build_marker(
        committed=commit, producer_id=pid, producer_epoch=epoch + 1, coordinator_epoch=1, timestamp=NOW
    )
    append(log, marker, origin=Origin.COORDINATOR, transaction_version=2, leader=leader)


def write_ours(directory):
    """A partition with every codec, several segments and epochs, idempotent and transactional producers."""
    log = Log.open(
        RealDisk(),
        str(directory / "ours-0"),
        topic="ours",
        partition=0,
        config=CONFIG,
        now_ms=NOW,
        topic_id=Uuid(b"\7" * 16),
    )
    sequence = 0
    for i in range(60):
        values = [b"value %d of %d " % (j, i) * 20 for j in range(10)]
        append(log, batch(values, codec=i % 5, timestamp=NOW - 100_000 + i * 100), leader=i // 20)
        append(log, batch(values[:2], pid=11, epoch=0, sequence=sequence), leader=i // 20)
        sequence += 2
        if i % 12 == 5:
            transaction(log, 21, 2 * (i // 12), 0, values[:3], commit=i % 24 == 5, leader=i // 20)
    return log


def committed(log):
    """(offset, value) of what a read_committed consumer gets, by the same rule as the Java client."""
    found, offset, aborting = [], log.log_start_offset, set()
    while True:
        data = log.read(offset, 1 << 20, Isolation.TXN_COMMITTED)
        if data.region is None:
            return found
        raw = data.region.read()
        pending = sorted(data.aborted, key=lambda txn: txn.first_offset)
        for header in batches.batches(raw):
            while pending and pending[0].first_offset <= header.last_offset:
                aborting.add(pending.pop(0).producer_id)
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found += [(r.offset, r.value) for r in batches.records_of(raw, header)]
            offset = header.next_offset


def dump_log(*options, files):
    run = kafka_peer.tool("kafka-dump-log", *options, "--files", ",".join(str(file) for file in files))
    output = run.stdout + run.stderr
    assert run.returncode == 0, output[-3000:]
    findings = [line for line in output.splitlines() if BAD.search(line) and "log4j" not in line.lower()]
    assert not findings, findings[:10]
    return output


def test_kafka_dump_log_has_no_finding_on_our_files(tmp_path):
    """The acceptance rule of peers/kafka/README: logs, indexes, time indexes, transaction indexes, snapshots."""
    log = write_ours(tmp_path)
    assert len(log.segments) >= 3
    end = log.log_end_offset
    aborted = log.aborted_between(0, end)
    log.close()
    directory = tmp_path / "ours-0"
    files = sorted(directory.iterdir())
    wanted = [file for file in files if file.suffix in (".log", ".snapshot", ".txnindex")]
    output = dump_log("--deep-iteration", files=wanted)
    for line in re.findall(r"Non-consecutive offsets.*|\(.* is followed by .*\)", output):
        assert re.search(r"-1|Non-consecutive", line), line
    assert f"lastOffset: {end - 1} " in output
    for txn in aborted:
        assert f"producerId: {txn.producer_id} firstOffset: {txn.first_offset} lastOffset: {txn.last_offset}" in output
    assert "producerId: 11" in output
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
    dump_log("--index-sanity-check", files=indexes)
    dump_log("--verify-index-only", files=indexes)
    assert list(audit(RealDisk(), str(directory))) == []


def test_kafka_opens_our_directory_with_recovery_forced(tmp_path):
    """Its broker finds nothing to complain about; its consumers get the same records, read_committed included."""
    home = kafka_peer.kafka_home()
    ours = tmp_path / "data"
    log = write_ours(ours)
    start = log.delete_records(33)
    expected = [row for row in committed(log) if row[0] >= start]
    end = log.log_end_offset
    log.close()
    checkpoints.write_offsets(RealDisk(), f"{ours}/{layout.LOG_STARTS}", {("ours", 0): start})
    checkpoints.write_meta_properties(
        RealDisk(), str(ours), cluster_id=str(Uuid(b"\3" * 16)), node_id=1, directory_id=Uuid(b"\4" * 16)
    )
    port = kafka_peer.free_port(2)
    work = tmp_path / "work"
    started = subprocess.run(
        # Our records are old: after half a minute, its retention would take them.
        [str(home / "bin" / "open-foreign"), str(ours), str(port), str(work), "log.retention.ms=-1"],
        env={**os.environ, "UNCLEAN": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    pid = re.search(r"pid=(\d+)", started.stdout + started.stderr)
    assert pid, started.stdout + started.stderr
    try:
        bootstrap = f"127.0.0.1:{port}"
        offsets = kafka_peer.tool("kafka-get-offsets", "--bootstrap-server", bootstrap, "--topic", "ours")
        assert f"ours:0:{end}" in offsets.stdout
        offsets = kafka_peer.tool(
            "kafka-get-offsets", "--bootstrap-server", bootstrap, "--topic", "ours", "--time", "earliest"
        )
        assert f"ours:0:{start}" in offsets.stdout
        consumer = kafka_peer.tool(
            "kafka-console-consumer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            "ours",
            "--from-beginning",
            "--isolation-level",
            "read_committed",
            "--timeout-ms",
            "90000",
            "--max-messages",
            str(len(expected)),
            "--formatter-property",
            "print.offset=true",
        )
        assert consumer.stdout, consumer.stderr[-2000:]
        got = [
            (int(match[1]), match[2].encode())
            for match in re.finditer(r"^Offset:(\d+)\t(.*)$", consumer.stdout, re.MULTILINE)
        ]
        assert got == expected
        server_log = "".join(path.read_text(errors="replace") for path in work.glob("*.log"))
        assert not re.search(r"Found invalid|Corruption found|truncating|Deleting segments|stray|ERROR", server_log)
    finally:
        subprocess.run([str(home / "bin" / "stop"), pid[1], "KILL"], check=False, capture_output=True)


def test_a_directory_that_kafka_wrote_and_was_killed_over_opens_here(tmp_path):
    """All codecs, segments, transactions committed and aborted, idempotent producers, a moved log start, kill -9 in
    mid-write: the same records, offsets by timestamp, aborted transactions, producers."""
    home = kafka_peer.kafka_home()
    data = tmp_path / "kafka"
    broker = kafka_peer.start_broker(
        data, "log.initial.task.delay.ms=100", "log.flush.start.offset.checkpoint.interval.ms=500"
    )
    told = {}
    try:
        codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
        payload = tmp_path / "payload"
        payload.write_text("\n".join(f"line {i} " * 12 for i in range(50)))
        for name, options in {
            "plain": ["--config", "segment.bytes=1048576", "--config", "index.interval.bytes=2000"],
            "txn": [],
        }.items():
            made = kafka_peer.tool(
                "kafka-topics",
                "--bootstrap-server",
                broker.bootstrap,
                "--create",
                "--topic",
                name,
                "--partitions",
                "1",
                *options,
            )
            assert made.returncode == 0, made.stderr
        for codec in codecs:
            made = kafka_peer.tool(
                "kafka-producer-perf-test",
                "--bootstrap-server",
                broker.bootstrap,
                "--topic",
                "plain",
                "--num-records",
                "6000",
                "--throughput",
                "-1",
                "--payload-file",
                str(payload),
                "--command-property",
                f"compression.type={codec}",
            )
            assert made.returncode == 0, made.stdout + made.stderr
        run = kafka_peer.run_class("TxnAbort", broker.bootstrap, "txn", "7", class_path=f"{home}/extra/classes")
        assert run.returncode == 0, run.stderr
        request = tmp_path / "delete.json"
        request.write_text('{"version": 1, "partitions": [{"topic": "plain", "partition": 0, "offset": 1234}]}')
        done = kafka_peer.tool(
            "kafka-delete-records", "--bootstrap-server", broker.bootstrap, "--offset-json-file", str(request)
        )
        assert "low_watermark: 1234" in done.stdout, done.stdout + done.stderr
        moment = theirs_by_hand(broker.log_dir / "plain-0")[20_000][1]
        for when in ("earliest", str(moment)):
            done = kafka_peer.tool(
                "kafka-get-offsets", "--bootstrap-server", broker.bootstrap, "--topic", "plain", "--time", when
            )
            told[when] = int(re.search(r"plain:0:(\d+)", done.stdout)[1])
        until(lambda: "plain" in (broker.log_dir / layout.LOG_STARTS).read_text())
        killed_in_mid_write(broker, payload)
    finally:
        kafka_peer.stop_broker(broker, kill=True)
    starts = checkpoints.read_offsets(RealDisk(), f"{broker.log_dir}/{layout.LOG_STARTS}")
    assert starts == {("plain", 0): 1234}
    for topic in ("plain", "txn"):
        source = broker.log_dir / f"{topic}-0"
        theirs = theirs_by_hand(source)
        start = starts.get((topic, 0), 0)
        for again in (False, True):
            copy = tmp_path / f"{again}" / f"{topic}-0"
            shutil.copytree(source, copy)
            if again:  # a torn tail, as a kill in mid-write leaves it
                active = max(copy.glob("*.log"))
                active.write_bytes(active.read_bytes() + struct.pack(">qi", theirs[-1][0] + 1, 5000) + bytes(40))
            log = Log.open(
                RealDisk(),
                str(copy),
                topic=topic,
                partition=0,
                config=LogConfig(),
                now_ms=NOW,
                log_start_offset=start,
            )
            log.update_high_watermark(log.log_end_offset)
            assert {finding.kind for finding in log.report.findings} <= {"tail-cut"}
            assert log.topic_id is not None
            assert (log.log_start_offset, log.log_end_offset) == (start, theirs[-1][0] + 1)
            with pytest.raises(ApiError):
                log.read(start - 1, 1)
            flat = []
            offset = start
            while (data := log.read(offset, 1 << 20)).region is not None:
                raw = data.region.read()
                for header in batches.batches(raw):
                    flat += [(r.offset, r.timestamp, r.value) for r in batches.records_of(raw, header)]
                    offset = header.next_offset
            assert flat[0][0] <= start  # the batch that holds it
            first = next(i for i, row in enumerate(theirs) if row[0] == flat[0][0])
            assert flat == theirs[first:]
            visible = [row for row in theirs if row[0] >= start]
            for _, timestamp, _ in visible[:: max(len(visible) // 50, 1)]:
                found = log.offset_for_timestamp(timestamp)
                assert found.offset == next(o for o, t, _ in visible if t >= timestamp)
            if topic == "plain":
                assert told == {"earliest": start, str(moment): log.offset_for_timestamp(moment).offset}
            if topic == "txn":
                aborted = log.aborted_between(0, log.log_end_offset)
                dumped = kafka_peer.tool(
                    "kafka-dump-log", "--files", ",".join(str(path) for path in source.glob("*.txnindex"))
                ).stdout
                rows = re.findall(
                    r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", dumped
                )
                assert [tuple(map(int, row)) for row in rows] == [tuple(txn) for txn in aborted]
                assert len(aborted) == 3
                assert len([value for _, value in committed(log)]) == 40
            log.close()
            wanted = [path for path in copy.iterdir() if path.suffix in (".log", ".snapshot", ".txnindex")]
            dump_log("--deep-iteration", files=wanted)
    producers_equal_kafkas_snapshots(broker.log_dir / "plain-0", tmp_path)


def killed_in_mid_write(broker, payload):
    """While its producer sends and segments roll: the last one is ended with -9."""
    command = [
        str(kafka_peer.kafka_home() / "bin" / "kafka-producer-perf-test"),
        *("--bootstrap-server", broker.bootstrap, "--topic", "plain", "--num-records", "1000000"),
        *("--throughput", "20000", "--payload-file", str(payload)),
    ]
    directory = broker.log_dir / "plain-0"

    def size():
        return sum(path.stat().st_size for path in directory.glob("*.log"))

    before = size()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as producer:
        try:
            until(lambda: size() >= before + (1 << 20))
        finally:
            kafka_peer.stop_broker(broker, kill=True)
            producer.kill()


def until(condition):
    """Kafka's own threads, on a machine that may be busy: a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "Kafka has not come so far in a minute"
        time.sleep(0.02)


def producers_equal_kafkas_snapshots(source, place):
    """What Kafka wrote down of its producers at each roll is what a replay of its log gives here at that offset."""
    snapshots = sorted(source.glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        copy = place / path.stem / "plain-0"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.snapshot"))
        log = Log.open(RealDisk(), str(copy), topic="plain", partition=0, config=LogConfig(), now_ms=NOW)
        log.truncate_to(int(path.stem), NOW)
        theirs = {entry.producer_id: entry.row() for entry in read_snapshot(RealDisk(), str(path))}
        assert {pid: entry.row() for pid, entry in log.producers.entries.items()} == theirs
        assert theirs
        log.close(clean=False)


def theirs_by_hand(directory):
    """Every record of a directory's logs, read without the engine."""
    rows = []
    for path in sorted(directory.glob("*" + layout.LOG)):
        raw = path.read_bytes()
        for header in batches.batches(raw):
            rows += [(r.offset, r.timestamp, r.value) for r in batches.records_of(raw, header)]
    return rows
