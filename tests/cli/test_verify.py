"""`stratalog verify`: nothing to say of what is right, one line for each thing that is wrong."""

import hashlib
import json
import shutil
import struct

import pytest
from files_kit import CONFIG, DAMAGES, NOW, batch, files, fill, put, run, write_data_directory

from stratalog.base.types import Uuid
from stratalog.records import control, kernels
from stratalog.server.disk import RealDisk
from stratalog.storage import audit as audit_module
from stratalog.storage import checkpoints, layout
from stratalog.storage.audit import Summary, audit
from stratalog.storage.log import Log, Origin
from stratalog.storage.producers import decode_snapshot, encode_snapshot
from stratalog.storage.segment import Segment
from stratalog.testing.disk import FaultyDisk


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return write_data_directory(tmp_path_factory.mktemp("healthy"))


@pytest.fixture
def data(healthy, tmp_path):
    return shutil.copytree(healthy, tmp_path / "data")


def kinds(path, **options):
    return [finding.kind for finding in audit(RealDisk(), str(path), **options)]


def fingerprint(path):
    return {
        str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


def test_a_healthy_directory_has_no_finding_and_is_not_changed(healthy, capsys):
    before = fingerprint(healthy)
    code, out, err = run(capsys, "verify", healthy)
    assert (code, err) == (0, "")
    assert out.startswith("0 findings: 1 partitions, ")
    assert run(capsys, "verify", healthy / "orders-0", "--no-holes")[0] == 0
    assert fingerprint(healthy) == before


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_each_damage_is_found(data, damage, capsys):
    expected = damage(data / "orders-0")
    code, out, _ = run(capsys, "verify", data)
    assert code == 1
    lines = out.splitlines()
    assert any(f"({expected})" in line for line in lines), out
    assert all(str(data) in line for line in lines[:-1]), "each line names its file"


@pytest.mark.parametrize("part", [".log", ".index", ".timeindex", ".snapshot", layout.LEADER_EPOCHS, layout.LOG_STARTS])
def test_a_file_that_cannot_be_read_hides_no_other(data, part):
    """A bad block of the disk: named, and everything else is audited."""
    victim = sorted(file for file in data.rglob("*") if file.name.endswith(part))[0]
    (data / "stranger").write_bytes(b"")
    disk = FaultyDisk()
    with disk.failing("read", part=victim.name):
        found = list(audit(disk, str(data)))
    assert [finding.path for finding in found if finding.kind == "unreadable"] == [str(victim)]
    assert any(finding.path.endswith("stranger") for finding in found)
    assert len(found) == 2 or part == ".log"


def test_findings_as_json(data, capsys):
    DAMAGES[0](data / "orders-0")
    code, out, _ = run(capsys, "verify", "--json", data / "orders-0")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1 and rows[0]["kind"] == "damaged-batch" and rows[0]["position"] > 0
    assert set(rows[0]) == {"path", "position", "kind", "text", "advice"}


def test_damage_does_not_hide_what_is_behind_it(data):
    """Two damaged batches in one segment are two findings, and batches between them are counted."""
    path = files(data / "orders-0", ".log")[0]
    raw = bytearray(path.read_bytes())
    for part in (4, 2):
        raw[len(raw) // part] ^= 1
    path.write_bytes(raw)
    summary = Summary()
    found = [one.kind for one in audit(RealDisk(), str(data), summary=summary)]
    assert found.count("damaged-batch") == 2 and summary.batches > 100


def test_a_segment_in_the_middle_that_is_gone_is_a_hole_when_asked(data):
    partition = data / "orders-0"
    for file in partition.glob(files(partition, ".log")[1].stem + ".*"):
        if file.suffix != ".snapshot":
            file.unlink()
    assert "hole" in kinds(data, compacted=False)
    assert "hole" not in kinds(data)


def test_a_snapshot_with_a_right_crc_and_wrong_numbers_is_found(data):
    """ST-8: it is held against a replay of the log."""
    path = files(data / "orders-0", ".snapshot")[-1]
    entries = decode_snapshot(path.read_bytes())
    entry = next(one for one in entries if one.producer_id == 11)
    sequence, offset, delta, timestamp = entry.batches[0]
    entry.batches[0] = (sequence + 1, offset, delta, timestamp)
    path.write_bytes(encode_snapshot(entries))
    assert kinds(data) == ["snapshot"]
    path.write_bytes(encode_snapshot([one for one in entries if one.producer_id != 11]))
    assert kinds(data) == ["snapshot"]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        (layout.RECOVERY_POINTS, "0\n1\norders 0 999999\n", "checkpoint"),
        (layout.HIGH_WATERMARKS, "0\n1\ngone 3 5\n", "checkpoint"),
        (layout.LOG_STARTS, "0\n2\norders 0 1\n", "malformed"),
        (layout.META_PROPERTIES, "version=9\n", "malformed"),
        (layout.CLEAN_SHUTDOWN, "{", "malformed"),
        ("core.1234", "x", "stray-file"),
        ("bootstrap.checkpoint", "", "cut-off"),
    ],
)
def test_small_files_of_a_data_directory_are_checked(data, name, text, kind):
    (data / name).write_text(text)
    assert kinds(data) == [kind]


def test_topic_ids_are_held_against_each_other(data):
    shutil.copytree(data / "orders-0", data / "other-0")
    found = kinds(data)
    assert found == ["topic-id"]
    (data / "other-0" / "partition.metadata").unlink()
    checkpoints.write_topic_id(RealDisk(), str(data / "other-0"), Uuid(b"\3" * 16))
    assert kinds(data) == []
    (data / "other-0").rename(data / "orders-1")
    assert kinds(data) == ["topic-id"]


def test_the_directory_of_a_running_broker_is_fine(tmp_path):
    """Pre-allocated indexes, a half-written batch, files that are about to go: no findings while its lock is held."""
    disk = RealDisk()
    log = Log.open(disk, f"{tmp_path}/orders-0", topic="orders", partition=0, config=CONFIG, now_ms=NOW)
    fill(log)
    log.finish_deletion(log.delete_segments(log.segments[:1], "test", NOW)._replace(paths=()))
    with disk.lock(f"{tmp_path}/.lock"):
        assert kinds(tmp_path) == []
        with open(log.active_segment.path, "ab") as file:
            file.write(bytes(batch([b"half"]))[:30])
        assert kinds(tmp_path) == []
    assert kinds(tmp_path) == ["torn-tail"]


def test_epochs_of_records_that_are_all_deleted_need_not_be_known(tmp_path):
    def start(offset=0):
        return Log.open(
            RealDisk(),
            f"{tmp_path}/orders-0",
            topic="orders",
            partition=0,
            config=CONFIG,
            now_ms=NOW,
            log_start_offset=offset,
            had_clean_shutdown=True,
        )

    log = start()
    fill(log)
    end = log.log_end_offset
    log.maybe_increment_high_watermark(log.log_end)
    log.delete_records(end)
    log.close()
    start(end).close()
    assert "epochs" in kinds(tmp_path / "orders-0")
    checkpoints.write_offsets(RealDisk(), f"{tmp_path}/{layout.LOG_STARTS}", {("orders", 0): end})
    assert kinds(tmp_path) == []


def test_what_a_running_broker_does_meanwhile_is_no_finding(tmp_path, monkeypatch):
    """Retention takes segments that were listed, has begun with one, an index is being cut: nothing is wrong."""
    log = Log.open(RealDisk(), f"{tmp_path}/orders-0", topic="orders", partition=0, config=CONFIG, now_ms=NOW)
    fill(log, 120)
    assert len(log.segments) > 6
    gone = log.segments[2].path
    aborts = next(one.txn_index.path for one in log.segments[3:-1] if one.txn_index.exists)
    active = log.active_segment.time_index.file.path

    class Meanwhile(RealDisk):
        def open(self, path, **options):
            if path == gone and log.segments[0].base_offset == 0:
                log.finish_deletion(log.delete_segments(log.segments[:3], "retention", NOW))
            return super().open(path, **options)

        def read(self, path, **options):
            data = super().read(path, **options)
            return data[: len(data) // 2 + 1] if path == active else data

    with RealDisk().lock(f"{tmp_path}/.lock"):
        assert [str(one) for one in audit(Meanwhile(), f"{tmp_path}/orders-0", compacted=False)] == []
        assert log.log_start_offset > 0
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "become_inactive", lambda segment: None)
            log.roll(NOW)
        assert kinds(tmp_path) == [], "a roll that has made the new segment and not closed the old one yet"
        RealDisk().rename(aborts, f"{aborts}.deleted")
        assert kinds(tmp_path) == []
        RealDisk().rename(f"{aborts}.deleted", aborts)
        RealDisk().unlink(aborts)
        assert kinds(tmp_path) == ["txn-index"], "what is wrong is told all the same"


def test_both_twins_of_the_scan_find_the_same(data, monkeypatch):
    from stratalog.records import plain

    DAMAGES[0](data / "orders-0")
    compiled = kernels.load_kernels()
    with_kernels = list(audit(RealDisk(), str(data)))
    monkeypatch.setattr(kernels, "best", lambda: plain)
    assert list(audit(RealDisk(), str(data))) == with_kernels
    assert compiled is not None


def test_a_batch_larger_than_a_block_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_module, "BLOCK_BYTES", 1 << 10)
    log = Log.open(RealDisk(), f"{tmp_path}/t-0", topic="t", partition=0, config=CONFIG, now_ms=NOW)
    for size in (10, 3000, 5000, 100, 1024 - 71, 2000):
        put(log, batch([bytes(size)]))
    log.close()
    summary = Summary()
    assert not list(audit(RealDisk(), f"{tmp_path}/t-0", summary=summary))
    assert summary.batches == 6


def test_random_bytes_anywhere_are_findings_and_no_crash(healthy, tmp_path):
    """The audit is for directories that are broken in ways nobody thought of."""
    import random

    rng = random.Random(7)
    names = sorted(file.name for file in (healthy / "orders-0").iterdir())
    for number in range(60):
        place = shutil.copytree(healthy / "orders-0", tmp_path / f"{number}" / "orders-0")
        path = place / rng.choice(names)
        raw = bytearray(path.read_bytes())
        if not raw:
            continue
        at = rng.randrange(len(raw))
        junk = rng.randbytes(rng.randint(1, 40))
        raw[at : at + len(junk)] = junk
        path.write_bytes(raw if rng.random() < 0.7 else raw[:at])
        list(audit(RealDisk(), str(place)))


def test_progress_reaches_the_end(healthy):
    seen = []
    list(audit(RealDisk(), str(healthy), progress=lambda done, total: seen.append((done, total))))
    assert seen[-1][0] == seen[-1][1] == sum(f.stat().st_size for f in files(healthy / "orders-0", ".log"))
    assert seen == sorted(seen)


def test_a_path_that_is_no_directory_is_refused(healthy, capsys):
    code, _, err = run(capsys, "verify", healthy / "meta.properties")
    assert code == 2 and "no directory" in err


def test_offsets_that_cannot_be_are_found(tmp_path):
    """A segment whose batches belong to another, and one that a wrong name hides."""
    log = Log.open(RealDisk(), f"{tmp_path}/t-0", topic="t", partition=0, config=CONFIG, now_ms=NOW)
    for i in range(5):
        put(log, batch([b"%d" % i]))
    log.close()
    path = files(tmp_path / "t-0", ".log")[0]
    raw = bytearray(path.read_bytes())
    size = struct.unpack_from(">i", raw, 8)[0] + 12
    struct.pack_into(">q", raw, 3 * size, 1)  # the offset is not covered by the CRC
    path.write_bytes(raw)
    assert "offset-order" in kinds(tmp_path / "t-0")


def test_a_transaction_that_began_in_a_deleted_segment_is_known_by_its_marker(tmp_path):
    """Retention took its beginning away; that is no finding, but an entry that is missing stays one."""
    log = Log.open(RealDisk(), f"{tmp_path}/t-0", topic="t", partition=0, config=CONFIG, now_ms=NOW)
    guard = log.start_verification(21, 0, 0, False, NOW)
    put(log, batch([b"a"], pid=21, epoch=0, sequence=0, txn=True), guard=guard)
    log.roll(NOW)
    put(log, batch([b"b"], pid=21, epoch=0, sequence=1, txn=True))
    marker = control.build_marker(committed=False, producer_id=21, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    put(log, marker, origin=Origin.COORDINATOR)
    put(log, batch([b"c"]))
    log.delete_records(3)
    log.finish_deletion(log.delete_segments(log.segments[:1], "retention", NOW))
    log.close()
    assert kinds(tmp_path / "t-0", compacted=False) == []
    files(tmp_path / "t-0", ".txnindex")[0].write_bytes(b"")
    assert kinds(tmp_path / "t-0", compacted=False) == ["txn-index"]


@pytest.mark.parametrize(
    "rows", [[], [(0, 0)], [(256, 0), (512, 1 << 24)], [(0, 0), (7, 90)], [(1, 65536), (2, 1 << 24)]]
)
@pytest.mark.parametrize("slots", [0, 1, 1000])
def test_unused_slots_of_an_index_are_told_from_entries_that_end_in_zeros(rows, slots):
    """A running broker's index is 10 MiB of unused slots: they are counted, not looked at."""
    entry = struct.Struct(">ii")
    data = b"".join(entry.pack(*row) for row in rows) + bytes(8 * slots)
    used, unused = audit_module._without_zeros(data, entry)
    wanted = rows[:-1] if rows[-1:] == [(0, 0)] else rows
    assert (used, unused) == (wanted, len(rows) + slots - len(wanted))
