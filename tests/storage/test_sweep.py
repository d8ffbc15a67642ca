"""The compiled pass of a recovery does what the plain one does, to the byte of each file."""

import os
import random
import shutil
from pathlib import Path

import pytest
from storage_kit import NOW, Kit, contents, make_batch

from stratalog.base import limits
from stratalog.records import control, kernels, legacy
from stratalog.records.batch import Record
from stratalog.storage import layout, replay, sweep
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log

CONFIG = LogConfig(segment_bytes=30_000, segment_index_bytes=4096, index_interval_bytes=700)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    kernels.load_kernels()


def payload(seed, count=260):
    """Batches as a leader would send them to a follower: every kind, from several producers and epochs."""
    rng = random.Random(seed)
    offset, out = 0, []
    sequences, open_ones = {}, {}
    for i in range(count):
        kind = rng.random()
        pid = rng.randrange(4)
        leader = i // 90
        values = [rng.randbytes(rng.choice((3, 40, 400))) for _ in range(rng.randrange(1, 5))]
        stamp = NOW + rng.randrange(-500, 500)
        if kind < 0.35:
            raw = make_batch(values, base=offset, leader=leader, timestamp=stamp, codec=rng.choice((0, 4)))
        elif kind < 0.8 or (kind < 0.97 and not open_ones):
            txn = 10 + pid if rng.random() < 0.3 else pid
            sequence = sequences.get(txn, 0)
            raw = make_batch(
                values, base=offset, leader=leader, timestamp=stamp, pid=txn, epoch=0, sequence=sequence, txn=txn >= 10
            )
            sequences[txn] = sequence + len(values)
            if txn >= 10:
                open_ones[txn] = True
        elif kind < 0.97:
            pid = rng.choice(list(open_ones))
            del open_ones[pid]
            raw = control.build_marker(
                committed=rng.random() < 0.5,
                producer_id=pid,
                producer_epoch=0,
                coordinator_epoch=1,
                timestamp=stamp,
                base_offset=offset,
                leader_epoch=leader,
            )
            values = [b""]
        else:
            raw = legacy.build_message_set([Record(offset, stamp, None, b"old")], 1)
            values = [b""]
        out.append(bytes(raw))
        offset += len(values) + (rng.randrange(3) if rng.random() < 0.02 else 0)
    return out


def recovered(directory, tmp_path, *, compiled, monkeypatch, readable=True, **options):
    copy = tmp_path / f"compiled-{compiled}" / "t-0"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    monkeypatch.setattr(sweep, "wants_kernels", lambda size: compiled)
    log = Kit(copy).open(options.pop("config", CONFIG), **options)
    found = {
        "end": log.log_end_offset,
        "start": log.log_start_offset,
        "stable": log.last_stable_offset,
        "producers": [(pid, entry.row(), entry.batches) for pid, entry in log.producers.entries.items()],
        "ongoing": list(log.producers.ongoing.items()),
        "epochs": log.epochs.rows,
        "aborted": log.aborted_between(0, 1 << 40),
        "findings": [(f.kind, os.path.basename(f.path), f.position) for f in log.report.findings],
        "sizes": [(s.base_offset, s.size, s.max_timestamp, s.offset_of_max_timestamp) for s in log.segments],
        "interval": log.active_segment.bytes_since_index,
    }
    records = contents(log) if readable else []
    log.close()
    files = {p.name: p.read_bytes() for p in Path(copy).iterdir() if not p.name.endswith(layout.LOG)}
    return found, records, files


def written(tmp_path, raws):
    log = Kit(tmp_path / "source" / "t-0").open(CONFIG)
    for raw in raws:
        log.append_as_follower(raw, 99, NOW)
    log.close(clean=False)
    return Path(log.directory)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("state", ["killed", "no indexes", "torn", "damaged", "flushed in part"])
def test_the_compiled_pass_equals_the_plain_one(tmp_path, monkeypatch, seed, state):
    """ST-5 to ST-9: indexes, snapshots, epochs, transaction indexes, findings."""
    raws = payload(seed)
    directory = written(tmp_path, raws)
    rng = random.Random(seed)
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 2
    options = {}
    if state == "no indexes":
        for path in directory.glob("*index"):
            path.unlink()
    elif state == "torn":
        logs[-1].write_bytes(logs[-1].read_bytes()[: -rng.randrange(1, 200)])
    elif state == "damaged":
        victim = rng.choice(logs[:-1])
        data = bytearray(victim.read_bytes())
        data[rng.randrange(len(data))] ^= 0x11
        victim.write_bytes(data)
        options["recovery_point"] = rng.choice((0, 1 << 30))
        options["readable"] = False  # what was flushed is not read again, nor cut
    elif state == "flushed in part":
        options["recovery_point"] = rng.randrange(1, int(logs[-1].name[:20]) + 5)
    plain = recovered(directory, tmp_path, compiled=False, monkeypatch=monkeypatch, **options)
    compiled = recovered(directory, tmp_path, compiled=True, monkeypatch=monkeypatch, **options)
    assert compiled[0] == plain[0]
    assert compiled[1] == plain[1]
    assert compiled[2] == plain[2]


def test_a_recovery_remembers_no_more_producers_than_a_partition_may(tmp_path, monkeypatch):
    """`security.md` 7.2: a log in which each batch has a producer of its own must not fill the memory at a start."""
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 50)
    raws = [make_batch([b"v" * 300], pid=i, epoch=0, sequence=0, base=i, leader=0) for i in range(300)]
    directory = written(tmp_path, raws)
    counts = []
    real = replay.Replay.block

    def block(self, rows, *rest):
        real(self, rows, *rest)
        counts.append(len(self.log.producers.entries))

    monkeypatch.setattr(replay.Replay, "block", block)
    recovered(directory, tmp_path, compiled=True, monkeypatch=monkeypatch)
    assert len(counts) > 2 and 0 < max(counts) <= 50


def test_batches_larger_than_a_block_are_checked_as_well(tmp_path, monkeypatch):
    config = LogConfig(segment_bytes=16 << 20, segment_index_bytes=4096)
    log = Kit(tmp_path / "source" / "t-0").open(config)
    small = [make_batch([b"v" * 100], base=i) for i in range(3)]
    large = make_batch([os.urandom((3 << 20) + 17)], base=3)
    behind = [make_batch([os.urandom(700_000)], base=i) for i in range(4, 8)]
    for raw in (*small, large, *behind):
        log.append_as_follower(raw, 99, NOW)
    log.close(clean=False)
    both = [
        recovered(log.directory, tmp_path, compiled=compiled, monkeypatch=monkeypatch, config=config)
        for compiled in (False, True)
    ]
    assert both[0] == both[1]
    assert both[1][0]["end"] == 8


@pytest.mark.parametrize("compiled", [False, True])
def test_an_index_too_small_for_a_recovered_segment_is_left_short(tmp_path, monkeypatch, compiled):
    """Smaller indexes are configured now than when the segment was written."""
    stamps = [NOW + (i * 37) % 101 for i in range(80)]
    directory = written(tmp_path, [make_batch([b"v" * 600], base=i, timestamp=stamps[i]) for i in range(80)])
    for path in directory.glob("*index"):
        path.unlink()
    config = LogConfig(segment_bytes=60_000, segment_index_bytes=96, index_interval_bytes=700)
    found, records, _ = recovered(directory, tmp_path, compiled=compiled, monkeypatch=monkeypatch, config=config)
    assert [kind for kind, _, _ in found["findings"]] == ["index-rebuilt"] * 2 + ["index-short"] * 2
    assert [offset for offset, _ in records] == list(range(80))
    bases = [base for base, *_ in found["sizes"]]
    for base, end, (_, _, greatest, at) in zip(bases, [*bases[1:], 80], found["sizes"], strict=True):
        assert greatest == max(stamps[base:end]), "retention by time would delete it too early"
        assert stamps[at] == greatest


def test_the_kernels_are_loaded_only_when_they_pay(monkeypatch):
    monkeypatch.setattr(kernels, "_compiled", None)
    monkeypatch.setattr(sweep, "_walked", 0)
    loaded = []
    monkeypatch.setattr(kernels, "load_kernels", lambda: loaded.append(1))
    for _ in range(63):
        sweep.wants_kernels(1 << 20)
    assert not loaded
    sweep.wants_kernels(1 << 20)
    assert loaded


def test_two_threads_sweep_at_once(tmp_path, monkeypatch):
    import threading

    directory = written(tmp_path, payload(7))
    copies = [tmp_path / str(i) / "t-0" for i in range(6)]
    for copy in copies:
        shutil.copytree(directory, copy)
    monkeypatch.setattr(sweep, "wants_kernels", lambda size: True)
    ends = []

    def work(mine):
        ends.extend(
            Log.open(Kit(copy).disk, str(copy), topic="t", partition=0, config=CONFIG, now_ms=NOW) for copy in mine
        )

    threads = [threading.Thread(target=work, args=(copies[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({log.log_end_offset for log in ends}) == 1
    assert len(ends) == 6
