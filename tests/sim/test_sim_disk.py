"""The simulated disk: what a program sees, what a power cut leaves, and how it fails."""

import errno
import random

import pytest

from stratalog.server.disk import RealDisk
from stratalog.sim.crash import VARIANTS, Crashes
from stratalog.sim.disk import PowerCut, SimDisk


@pytest.fixture
def disk():
    made = SimDisk()
    made.mkdir("/d")
    made.fsync_dir("/")
    return made


def put(disk, path, data, *, sync=False):
    file = disk.open(path, create=True)
    file.pwritev([data], file.size())
    if sync:
        file.fsync()
    return file


def left(disk, variant, seed=0):
    """The files that one variant of a cut here leaves; None where it makes no difference."""
    walker = Crashes(disk)
    walker.advance(len(disk.journal))
    image = walker.image(variant, random.Random(seed))
    return None if image is None else image.disk().files()


def test_bytes_need_a_sync_and_names_another(disk):
    put(disk, "/d/a", b"hello", sync=True)
    assert left(disk, "none") == {} and left(disk, "all") == {"/d/a": b"hello"}
    disk.fsync_dir("/d")
    assert left(disk, "none") == {"/d/a": b"hello"}
    put(disk, "/d/a", b" world")
    assert left(disk, "none") == {"/d/a": b"hello"}
    put(disk, "/d/b", b"x")
    disk.fsync_dir("/d")
    assert left(disk, "none") == {"/d/a": b"hello", "/d/b": b""}


def test_each_variant_does_what_its_name_says(disk):
    put(disk, "/d/old", b"old", sync=True)
    disk.fsync_dir("/d")
    file = put(disk, "/d/new", b"A" * 600)
    file.pwritev([b"B" * 600], 600)
    disk.rename("/d/old", "/d/moved")
    disk.unlink("/d/moved")
    whole = b"A" * 600 + b"B" * 600
    assert left(disk, "none") == {"/d/old": b"old"}
    assert left(disk, "all") == {"/d/new": whole}
    assert left(disk, "dirent-lost") == {"/d/old": b"old"}
    assert left(disk, "rename-before-data") == {"/d/new": b""}
    assert left(disk, "unlink-not-durable") == {"/d/new": whole, "/d/moved": b"old"}
    assert left(disk, "zero-tail") == {"/d/new": bytes(1200)}
    assert left(disk, "torn-seq")["/d/new"] == bytes(600) + b"B" * 600
    torn = {len(left(disk, "torn-op", seed)["/d/new"]) for seed in range(20)}
    assert len(torn) > 5 and all(600 <= size < 1200 for size in torn)
    garbage = left(disk, "garbage-tail", 1)["/d/new"]
    assert len(garbage) == 1200 and garbage not in (whole, bytes(1200))
    prefixes = {tuple(sorted(left(disk, "prefix", seed).items())) for seed in range(40)}
    assert (("/d/new", b"A" * 600), ("/d/old", b"old")) in prefixes and len(prefixes) >= 4
    subsets = {left(disk, "subset-512", seed).get("/d/new") for seed in range(40)} - {None}
    assert any(data[512:600] in (b"", bytes(88)) and data[:512] == b"A" * 512 for data in subsets)
    assert {left(disk, "subset-4096", seed).get("/d/new") for seed in range(40)}


def test_nothing_pending_means_one_image(disk):
    put(disk, "/d/a", b"hello", sync=True)
    disk.fsync_dir("/d")
    images = [left(disk, variant) for variant in VARIANTS]
    assert all(image in (None, {"/d/a": b"hello"}) for image in images)


def test_stores_into_a_mapping_are_pending_sectors(disk):
    file = put(disk, "/d/i", bytes(2048), sync=True)
    disk.fsync_dir("/d")
    mapping = file.map(2048)
    mapping.view[0:4] = b"aaaa"
    mapping.view[1500:1504] = b"bbbb"
    assert file.pread(4, 1500) == b"bbbb"
    mapping.close()
    assert left(disk, "none") == {"/d/i": bytes(2048)}
    some = {left(disk, "subset-512", seed)["/d/i"] for seed in range(40)}
    assert any(data[:4] == b"aaaa" and data[1500:1504] == bytes(4) for data in some)
    assert any(data[:4] == bytes(4) and data[1500:1504] == b"bbbb" for data in some)
    file.fsync()
    assert left(disk, "none")["/d/i"][1500:1504] == b"bbbb"


def test_small_files_written_atomically_are_old_or_new(disk):
    """LM-10, after every one of its operations."""
    disk.write_atomically("/d/c", b"old")
    start = len(disk.journal)
    disk.write_atomically("/d/c", b"new")
    walker = Crashes(disk)
    seen = set()
    for point in range(start, len(disk.journal) + 1):
        walker.advance(point)
        for variant in VARIANTS:
            image = walker.image(variant, random.Random(point))
            if image is not None:
                seen.add(image.disk().files()["/d/c"])
    assert seen == {b"old", b"new"}


def test_a_failed_sync_loses_what_was_pending_and_then_says_yes(disk):
    """D16 (fsyncgate): pages are clean, the data is not on the disk, and reads still show it."""
    file = put(disk, "/d/a", b"hello")
    disk.fsync_dir("/d")
    with disk.fault("fsync", drop=True, times=1), pytest.raises(OSError, match="Input/output") as failure:
        file.fsync()
    assert failure.value.filename == "/d/a"
    file.fsync()
    assert file.pread(5, 0) == b"hello" and left(disk, "all") == {"/d/a": b""}


def test_a_full_disk_writes_a_part(disk):
    file = put(disk, "/d/a", b"hello")
    with disk.full(), pytest.raises(OSError, match="No space") as failure:
        file.pwritev([b"12345678"], 5)
    assert failure.value.errno == errno.ENOSPC and file.pread(20, 0) == b"hello1234"
    file.pwritev([b"12345678"], 5)
    assert file.size() == 13


def test_faults_are_chosen_by_operation_path_and_count(disk):
    put(disk, "/d/a", b"x")
    put(disk, "/d/b", b"x")
    with disk.fault("read", part="/a", skip=1, times=1) as fault:
        assert disk.read("/d/a") == b"x"
        assert disk.read("/d/b") == b"x"
        with pytest.raises(OSError):
            disk.read("/d/a")
        assert disk.read("/d/a") == b"x"
    assert fault.hits == 1 and not disk.faults


def test_rot_read_only_and_a_cut_in_mid_run(disk):
    put(disk, "/d/a", b"\x00\x00", sync=True)
    disk.flip("/d/a", 1, 0x80)
    assert disk.read("/d/a") == b"\x00\x80"
    disk.read_only = True
    for act in (
        lambda: disk.unlink("/d/a"),
        lambda: disk.rename("/d/a", "/d/b"),
        lambda: disk.open("/d/new", create=True),
        lambda: disk.mkdir("/d/e"),
    ):
        with pytest.raises(OSError) as failure:
            act()
        assert failure.value.errno == errno.EROFS
    disk.read_only = False
    disk.cut_at = len(disk.journal) + 1
    put(disk, "/d/b", b"")
    with pytest.raises(PowerCut):
        put(disk, "/d/c", b"")
    assert not disk.exists("/d/c")


def test_it_answers_as_the_real_disk_does(tmp_path, disk):
    """The same random operations on both: the same answers, the same errors, the same files."""
    rng = random.Random(3)
    real, root = RealDisk(), str(tmp_path)
    names = ["a", "b", "c", "s/x", "s/y"]

    def both(act):
        answers = []
        for one, base in ((real, root), (disk, "/d")):
            try:
                answers.append(act(one, base))
            except OSError as error:
                answers.append((type(error), error.errno))
        assert answers[0] == answers[1]
        return answers[0]

    def write(one, base, name, data, at):
        file = one.open(f"{base}/{name}", create=True)
        count = file.pwritev([data[:3], data[3:]], at)
        size = file.size()
        file.close()
        return count, size

    for _ in range(600):
        name, other = rng.choice(names), rng.choice(names)
        data, at = rng.randbytes(rng.randint(0, 30)), rng.randint(0, 40)
        both(
            rng.choice(
                [
                    lambda d, b, n=name, x=data, a=at: write(d, b, n, x, a),
                    lambda d, b, n=name: d.read(f"{b}/{n}"),
                    lambda d, b, n=name, a=at: d.open(f"{b}/{n}").truncate(a),
                    lambda d, b, n=name, o=other: d.rename(f"{b}/{n}", f"{b}/{o}"),
                    lambda d, b, n=name: d.unlink(f"{b}/{n}"),
                    lambda d, b, n=name: d.size(f"{b}/{n}"),
                    lambda d, b, n=name, a=at: d.open(f"{b}/{n}").pread(7, a),
                    lambda d, b: d.mkdir(f"{b}/s"),
                    lambda d, b: d.listdir(b),
                    lambda d, b: d.is_dir(f"{b}/s"),
                    lambda d, b, n=name, x=data: d.write_atomically(f"{b}/{n}", x),
                    lambda d, b, n=name: d.open(f"{b}/{n}", create=True, exclusive=True).size(),
                ]
            )
        )
    both(lambda d, b: [(n, d.read(f"{b}/{n}")) for n in d.listdir(b) if not d.is_dir(f"{b}/{n}")])
    both(lambda d, b: d.rmtree(f"{b}/s") or d.exists(f"{b}/s"))
